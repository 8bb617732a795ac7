# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Phrases that pages, option descriptions, messages, docstrings and comments must not use, and what to write instead.

docs/glossary.md defines the terms to use.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path

from .pages import CHECKOUT

BANNED: Mapping[str, str] = {
    "a plan costs no": "planning writes nothing",
    "anew": "again",
    "asked for": "requested",
    "bear": "have",
    "bears": "has",
    "better held": "preferred",
    "change its mind": "change its verdict",
    "change the mind": "change the verdict",
    "change their mind": "change their verdict",
    "door": "entry point",
    "doors": "entry points",
    "floor": "layer",
    "floors": "layers",
    "gave out": "allocated",
    "give out": "allocate",
    "given out": "allocated",
    "gives out": "allocates",
    "giving out": "allocating",
    "half made": "created in part",
    "hoped for": "unknown",
    "house": "architecture",
    "in vain": "without success",
    "is waited for": "the run waits for",
    "it is waited": "the run waits",
    "it was tried": "attempts",
    "it was waited": "the run waited",
    "laid over": "merged into",
    "lately": "recently",
    "left alone": "not changed",
    "may not see": "cannot see",
    "mend": "fix",
    "mended": "fixed",
    "mends": "fixes",
    "nothing of it is": "it is not",
    "now and then": "occasionally",
    "on offer": "available",
    "one's own": "custom",
    "own affair": "sets ... itself",
    "passed over": "skipped",
    "patience": "timeout",
    "promised": "allocated",
    "somebody": "another user or process",
    "stand in the way": "limit",
    "stands in the way": "limits",
    "stands still": "is stopped",
    "the hard way": "force-stop",
    "to be had": "available",
    "to be told": "to be reported",
    "what became of": "the result of",
    "whoever": "the user or process that",
    "wishes": "preferences",
    "would not help": "not retried",
    **{f"{verb} told": "reports" for verb in ("are", "be", "is", "was", "were")},
}
"""Each phrase, with what to write instead. A phrase matches whole words in any case, also where a line breaks."""

_BREAK = re.compile(r"[\s#]+")
# The longest first: of two phrases that begin at one word, the longer one says more.
_PHRASES = re.compile(
    "|".join(
        rf"\b{_BREAK.pattern.join(map(re.escape, phrase.split()))}\b"
        for phrase in sorted(BANNED, key=len, reverse=True)
    ),
    re.IGNORECASE,
)
_CODE = re.compile(r"`[^`\n]+`|\b[CEOV]\((?:[^()]|\([^()]*\))*\)")
"""Names of options, keys and values in the markup of Markdown and Ansible."""


def sources() -> list[Path]:
    """Every file whose text users or developers of the collection read."""
    patterns = (
        "docs/*.md", "*.md", "roles/**/*.md", "roles/**/*.yml", "roles/**/*.j2", "playbooks/**/*.yml",
        "plugins/doc_fragments/*.py", "plugins/modules/*.py", "plugins/filter/*.yml", "plugins/filter/*.py",
        "plugins/action/*.py", "plugins/inventory/*.py", "plugins/plugin_utils/*.py", "plugins/module_utils/**/*.py",
    )  # fmt: skip
    found = {path for pattern in patterns for path in CHECKOUT.glob(pattern)}
    return sorted(found - {CHECKOUT / "CHANGELOG.md"})


def findings(path: Path) -> list[str]:
    """Every banned phrase of a file, as C(file:line: 'phrase': write 'other')."""
    found = []
    for line, text in _texts(path):
        prose = _CODE.sub(lambda code: re.sub(r"[^\n]", "`", code[0]), text)
        for match in _PHRASES.finditer(prose):
            phrase = _BREAK.sub(" ", match[0]).lower()
            place = line + prose.count("\n", 0, match.start())
            found.append(f"{path.name}:{place}: {phrase!r}: write {BANNED[phrase]!r}")
    return found


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a file, each with the line that it begins at: of code its strings, docstrings and comments."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield 1, text
        return
    tree = ast.parse(text)
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    passed = {id(part) for string in strings for part in string.values}
    for string in strings:
        parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in string.values)
        yield string.lineno, "".join(map(str, parts))
    for node in ast.walk(tree):
        # A single word is a name.
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and " " in node.value
            and id(node) not in passed
        ):
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
