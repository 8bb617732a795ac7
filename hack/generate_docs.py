# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the parts of docs/ that are made from the code: what stands between C(<!-- generated: NAME -->) and
C(<!-- end -->) on a page.

usage: .venv/bin/python hack/generate_docs.py [--check]
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import yaml

CHECKOUT = Path(__file__).resolve().parents[1]
DOCS = CHECKOUT / "docs"
sys.path.insert(0, str(CHECKOUT / ".venv" / "collections"))

from ansible_collections.qemu_scheduler.proxmox.plugins import module_utils  # noqa: E402
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework import interface  # noqa: E402
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface import Setting  # noqa: E402
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.builtin import (  # noqa: E402
    BUILTIN,
    builtin_registry,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.storages import (  # noqa: E402
    STORAGE_CLASS,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.profiles import (  # noqa: E402  # noqa: E402
    NAMED,
    SECTIONS,
    build_profiles,
    sections_of,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import CollectionError  # noqa: E402

LINKS_HEAD = """---
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Written by `make docs` from the addresses in galaxy.yml.
"""

FORUM_TAG = "https://forum.ansible.com/tag/proxmox"

PLACE = re.compile(r"(<!-- generated: ([a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)

HEADINGS = {
    "gates": "Gates",
    "queue": "Queue order",
    "pre_filters": "Before the filters",
    "filters": "Filters",
    "post_filters": "When no node passed",
    "scores": "Scores",
    "vmids": "VMIDs",
    "permits": "Permits",
}
REJECTING = {"pre_filters", "filters", "reserves", "vmids", "permits"}
"""Sections whose plugins may reject a VM that is then retried."""


# --- error codes ---


def error_codes() -> list[str]:
    """Every error code with cause and cure, from the docstrings of the error classes."""
    errors = sorted(_errors(), key=lambda error: error.code)
    return _table(["code", "cause", "cure"], ([f"`{error.code}`", *_cause_and_cure(error)] for error in errors))


def _errors() -> Iterator[type[CollectionError]]:
    """Every error class with its own code, wherever it is defined."""
    folder = Path(module_utils.__path__[0])
    for file in folder.rglob("*.py"):
        importlib.import_module(".".join((module_utils.__name__, *file.relative_to(folder).with_suffix("").parts)))
    waiting: list[type[CollectionError]] = [CollectionError]
    while waiting:
        error = waiting.pop()
        waiting.extend(error.__subclasses__())
        if "code" in vars(error) and error is not CollectionError:
            yield error


def _cause_and_cure(error: type[CollectionError]) -> list[str]:
    cause, separator, cure = (inspect.getdoc(error) or "").partition("Cure:")
    if not separator or not cause.strip() or not cure.strip():
        raise SystemExit(f"{error.__module__}.{error.__name__}: the docstring gives no cause and cure")
    cure = _text(cure)
    return [_text(cause), cure[0].upper() + cure[1:]]


# --- addresses of the project ---


def addresses() -> Mapping[str, str]:
    """The addresses in galaxy.yml."""
    galaxy = yaml.safe_load((CHECKOUT / "galaxy.yml").read_text(encoding="utf-8"))
    return {key: str(galaxy[key]) for key in ("repository", "documentation", "homepage", "issues")}


def project_links() -> list[str]:
    """Where to find the project, for README.md."""
    where = addresses()
    return [
        f"- Source and releases: [repository]({where['repository']})",
        f"- Bugs and feature requests: [issue tracker]({where['issues']})",
        f"- Documentation of the newest release: [pages]({where['documentation']})",
    ]


def site_links() -> str:
    """The links of documentation sites."""
    where = addresses()
    links = {
        "extra_links": [
            {"description": "Source", "url": where["repository"]},
            {"description": "Report an issue", "url": where["issues"]},
            {"description": "Documentation of Proxmox VE", "url": "https://pve.proxmox.com/pve-docs/"},
            {"description": "API of Proxmox VE", "url": "https://pve.proxmox.com/pve-docs/api-viewer/"},
        ],
        "communication": {
            "forums": [
                {"topic": "Ansible Forum, with the tag proxmox", "url": FORUM_TAG},
                {"topic": "Bugs and ideas: the issue tracker", "url": where["issues"]},
            ]
        },
    }
    return LINKS_HEAD + yaml.dump(links, Dumper=Indented, sort_keys=False, width=120)


# --- plugins ---


def overview() -> list[str]:
    """One row per built-in plugin."""
    rows = []
    for plugin in BUILTIN:
        sections = ", ".join(f"`{section}`" for section in sections_of(plugin))
        on, weight = "yes" if plugin.enabled else "no", _weight(plugin)
        rows.append([f"[{plugin.name}](#{plugin.name.lower()})", sections, on, weight, _first_sentence(plugin)])
    return _table(["plugin", "sections", "on by default", "weight", "rule"], rows)


def sections() -> list[str]:
    """The sections of the plugin config, each with the first line of its interface."""
    rows = ([f"`{section}`", point.__name__, _first_sentence(point)] for section, point in SECTIONS.items())
    return _table(["section", "interface", "what its plugins do"], rows)


def profiles() -> list[str]:
    """The named profiles, each with its scores."""
    built = build_profiles(builtin_registry())
    rows = []
    for name in NAMED:
        scores = [f"{plugin.name} {built[name].weights[plugin.name]:g}" for plugin in built[name].sections["scores"]]
        rows.append([f"`{name}`", ", ".join(scores)])
    return _table(["profile", "scores, with their weights"], rows)


def reference() -> list[str]:
    """Every built-in plugin in full, under the first of its sections."""
    lines = []
    for section, heading in HEADINGS.items():
        lines += [f"## {heading}", ""]
        for plugin in BUILTIN:
            if sections_of(plugin)[0] == section:
                lines += [*_entry(plugin), ""]
    return lines[:-1]


def storage_classes() -> list[str]:
    """The keys of one storage class."""
    return _settings(STORAGE_CLASS)


def _entry(plugin: type[interface.Plugin]) -> list[str]:
    facts = [f"Sections: {_listed(f'`{section}`' for section in sections_of(plugin))}."]
    facts.append(f"{'On' if plugin.enabled else 'Off'} by default.")
    if weight := _weight(plugin):
        facts.append(f"Weight {weight}.")
    if REJECTING & set(sections_of(plugin)):
        changed = [f"{event.value}s" for event in interface.Event if event in plugin.events]
        when = f"{_listed(changed)} change" if changed else "their time has come"
        facts.append(f"VMs that it rejected are retried when {when}.")
    paragraphs = (_text(paragraph) for paragraph in (inspect.getdoc(plugin) or "").split("\n\n"))
    lines = [f"### {plugin.name}", "", *"\n\n".join([*paragraphs, " ".join(facts)]).split("\n")]
    return [*lines, "", *_settings(plugin.settings)] if plugin.settings else lines


def _settings(settings: Mapping[str, Setting]) -> list[str]:
    rows = []
    for key, setting in settings.items():
        bound = f"; at least {setting.minimum:g}" if setting.minimum else ""
        choices = f"; one of {', '.join(setting.choices)}" if setting.choices else ""
        rows.append([f"`{key}`", setting.kind, _default(setting.default), f"{_text(setting.help)}{bound}{choices}"])
    return _table(["key", "kind", "default", "meaning"], rows)


def _default(value: object) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return f"{value:g}"
    if isinstance(value, list) and value:
        return "<br>".join(f"`{{{', '.join(f'{key}: {part}' for key, part in each.items())}}}`" for each in value)
    return "none" if value in ([], {}) else f"`{value}`"


def _weight(plugin: type[interface.Plugin]) -> str:
    return f"{plugin.weight:g}" if issubclass(plugin, interface.ScorePlugin) else ""


# --- text ---


def _first_sentence(subject: type) -> str:
    first = _text((inspect.getdoc(subject) or "").split("\n\n")[0])
    return re.split(r"(?<=[.])\s+(?=[A-Z])", first)[0]


def _text(docstring: str) -> str:
    """One line of Markdown from Ansible's markup."""
    flat = re.sub(r"\bM\(([^)]+)\)", r"`\1`", " ".join(docstring.split()))
    return re.sub(r"\b[COVE]\(((?:[^()]|\([^()]*\))*)\)", r"`\1`", flat)


def _table(headings: list[str], rows: Iterable[list[str]]) -> list[str]:
    return [_row(headings), _row(["---"] * len(headings)), *(_row(row) for row in rows)]


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _listed(items: Iterable[str]) -> str:
    *others, last = items
    return f"{', '.join(others)} and {last}" if others else last


class Indented(yaml.SafeDumper):
    """Indents lists, as yamllint wants it."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, indentless=False)


# --- pages ---

PARTS: Mapping[str, Callable[[], list[str]]] = {
    "error codes": error_codes,
    "plugin overview": overview,
    "project links": project_links,
    "plugin reference": reference,
    "profiles": profiles,
    "sections": sections,
    "storage classes": storage_classes,
}


def with_parts(page: str) -> str:
    """The text of a page with up-to-date generated parts."""
    return PLACE.sub(lambda place: "\n".join([place[1], *PARTS[place[2]](), "", place[3]]), page)


def pages() -> dict[Path, str]:
    """The text of each file."""
    paths = [CHECKOUT / "README.md", *sorted(DOCS.glob("*.md"))]
    made = {path: with_parts(path.read_text(encoding="utf-8")) for path in paths}
    return {**made, DOCS / "docsite" / "links.yml": site_links()}


def bring_up_to_date(files: Callable[[], Mapping[Path, str]]) -> int:
    """Write the files that differ, or with --check only list them. Returns the exit status."""
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        print(f"usage: {sys.argv[0]} [--check]", file=sys.stderr)
        return 2
    stale = 0
    for path, text in files().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale += 1
            print(f"{'out of date' if check else 'written'}: {path.relative_to(CHECKOUT)}")
            if not check:
                path.write_text(text, encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(bring_up_to_date(pages))
