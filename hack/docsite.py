# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the pages of docs/ as reStructuredText, the format of sites that are built with antsibull-docs.

They are listed in docs/docsite/extra-docs.yml, and are made when the tarball is built: Galaxy shows the Markdown pages.

usage: .venv/bin/python hack/docsite.py [CHECKOUT]
"""

from __future__ import annotations

import re
import sys
import typing as t
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml
from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

LABEL = "ansible_collections.qemu_scheduler.proxmox.docsite"
UNDERLINES = "=-~^"
SPECIAL = re.compile(r"([\\`*_|])")
INDENT = "   "
COMMENT = "<!--"
BREAK = "<br>"


def write(checkout: Path) -> list[Path]:
    """Write the pages that extra-docs.yml lists, and return them. Raises FileNotFoundError if there is no such page."""
    docsite = checkout / "docs" / "docsite"
    sections = yaml.safe_load((docsite / "extra-docs.yml").read_text(encoding="utf-8"))["sections"]
    names = [name for section in sections for name in section["toctree"]]
    written = []
    for name in names:
        page = Page(name, frozenset(names))
        target = docsite / "rst" / f"{name}.rst"
        target.parent.mkdir(exist_ok=True)
        target.write_text(page.rendered((checkout / "docs" / f"{name}.md").read_text(encoding="utf-8")), "utf-8")
        written.append(target)
    return written


class Page:
    """One page, and the names of all pages that it can link to."""

    def __init__(self, name: str, names: frozenset[str]) -> None:
        self._name = name
        self._names = names

    def rendered(self, text: str) -> str:
        """The page as reStructuredText."""
        root = SyntaxTreeNode(MarkdownIt("commonmark").enable("table").parse(text))
        licence = "..\n   GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)"
        blocks = [licence, f".. _{LABEL}.{self._name}:", *self._blocks(root.children)]
        return "\n\n".join(blocks) + "\n"

    # --- blocks ---

    def _blocks(self, nodes: Sequence[SyntaxTreeNode]) -> Iterator[str]:
        for node in nodes:
            yield from self._block(node)

    def _block(self, node: SyntaxTreeNode) -> Iterator[str]:
        if node.type == "heading":
            yield from self._heading(node)
        elif node.type == "paragraph":
            text = self._inline(node.children[0])
            if text:
                yield text
        elif node.type in ("fence", "code_block"):
            # Playbooks have tags of their own, such as !vault.
            language = "yaml+jinja" if node.info == "yaml" else node.info or "text"
            yield f".. code-block:: {language}\n\n{_indented(node.content.rstrip())}"
        elif node.type in ("bullet_list", "ordered_list"):
            mark = "*" if node.type == "bullet_list" else "#."
            items = ["\n\n".join(self._blocks(item.children)) for item in node.children]
            yield "\n".join(f"{mark} {_indented(item, ' ' * (len(mark) + 1)).lstrip()}" for item in items)
        elif node.type == "table":
            yield self._table(node)
        elif node.type == "blockquote":
            yield _indented("\n\n".join(self._blocks(node.children)))
        elif not (node.type == "html_block" and node.content.startswith(COMMENT)):
            raise ValueError(f"{self._name}: {node.type} cannot be rendered: {node.content[:60]!r}")

    def _heading(self, node: SyntaxTreeNode) -> Iterator[str]:
        level = int(node.tag[1]) - 1
        title = self._inline(node.children[0])
        if level:
            yield f".. _{self._label(self._name, _slug(_plain(node.children[0])))}:"
        yield f"{title}\n{UNDERLINES[level] * len(title)}"

    def _table(self, node: SyntaxTreeNode) -> str:
        rows = [row.children for part in node.children for row in part.children]
        header = any(cell.children[0].content for cell in rows[0])
        lines = [".. list-table::", f"{INDENT}:header-rows: {int(header)}", ""]
        for row in rows if header else rows[1:]:
            cells = [_indented(self._cell(cell.children[0]), " " * 7).lstrip() for cell in row]
            lines += [f"{INDENT}{'  -' if number else '* -'} {cell}" for number, cell in enumerate(cells)]
        return "\n".join(lines)

    def _cell(self, node: SyntaxTreeNode) -> str:
        """A cell's text, or the block that it keeps between C(<pre>) tags."""
        if node.content.startswith("<pre>"):
            code = node.content.removeprefix("<pre>").removesuffix("</pre>").replace(BREAK, "\n")
            return f".. code-block:: yaml+jinja\n\n{_indented(code)}"
        return self._inline(node)

    # --- text ---

    def _inline(self, node: SyntaxTreeNode) -> str:
        parts = [part for child in node.children if (part := self._span(child))]
        return "".join(_apart(parts)).strip()

    def _span(self, node: SyntaxTreeNode) -> str:
        if node.type == "text":
            return _escaped(node.content)
        if node.type in ("softbreak", "hardbreak"):
            return "\n"
        if node.type == "code_inline":
            return f"``{node.content}``"
        if node.type in ("strong", "em"):
            mark = "**" if node.type == "strong" else "*"
            return f"{mark}{_escaped(_plain(node))}{mark}"
        if node.type == "link":
            return self._link(str(node.attrs["href"]), _plain(node))
        if node.type == "image":
            return ""
        if node.type == "html_inline" and node.content == BREAK:
            return "\n"
        raise ValueError(f"{self._name}: {node.type} cannot be rendered: {node.content[:60]!r}")

    def _link(self, target: str, text: str) -> str:
        """A link to another page or place; what is not on the site is only named."""
        if "://" in target:
            return f"`{text} <{target}>`__"
        file, _hash, anchor = target.partition("#")
        name = Path(file).stem if file else self._name
        on_site = name in self._names and file in ("", f"{name}.md")
        return f":ref:`{text} <{self._label(name, anchor)}>`" if on_site else _escaped(text)

    @staticmethod
    def _label(name: str, anchor: str) -> str:
        return ".".join(filter(None, (LABEL, name, anchor)))


def _apart(parts: Sequence[str]) -> Iterator[str]:
    """The parts of a text, with an escape between markup and an adjacent word, as reStructuredText requires."""
    for number, part in enumerate(parts):
        before = parts[number - 1][-1] if number else " "
        touches = _is_markup(part) and (before.isalnum() or before in "`*_.:;,)")
        touches = touches or (number and _is_markup(parts[number - 1]) and (part[0].isalnum() or part[0] in "`*:("))
        yield f"\\ {part}" if touches else part


def _is_markup(part: str) -> bool:
    return part[0] in "`*:" and part[-1] in "`*_" and len(part) > 1


def _escaped(text: str) -> str:
    return SPECIAL.sub(r"\\\1", text)


def _plain(node: SyntaxTreeNode) -> str:
    """The text of a node and all below it, without markup."""
    if node.type in ("text", "code_inline"):
        return node.content
    return "".join(" " if child.type == "softbreak" else _plain(child) for child in node.children)


def _slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _indented(text: str, indent: str = INDENT) -> str:
    return "\n".join(f"{indent}{line}" if line else "" for line in text.split("\n"))


def main(arguments: Sequence[str]) -> t.NoReturn:
    """Write the pages of a checkout, by default of this one."""
    checkout = Path(arguments[0]) if arguments else Path(__file__).resolve().parents[1]
    print(f"written: {len(write(checkout))} pages in docs/docsite/rst")
    sys.exit()


if __name__ == "__main__":
    main(sys.argv[1:])
