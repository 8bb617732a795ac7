# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One fault, as the file of faults describes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
UTILS = Path("plugins", "module_utils")


class DoesNotFit(ValueError):
    """The text that a fault replaces is not in its file exactly once."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault.

    Attributes:
        breaks: what no longer holds, in words.
        file: below plugins/module_utils, or of a role, the law or another plugin, with the path of which it begins.
        old, new: the text that is replaced, which stands once in the file, and what replaces it.
        tests: arguments for pytest: a path below tests, perhaps with options behind it.
    """

    breaks: str
    file: str
    old: str
    new: str
    tests: list[str]

    @property
    def path(self) -> Path:
        """The path of the file in the checkout."""
        return Path(self.file) if self.file.startswith(("plugins/", "roles/", "tests/")) else UTILS / self.file

    def applied(self, source: str) -> str:
        """Return the source with the fault. Raises DoesNotFit, SyntaxError when it is no
        Python then, and YAMLError when it is no YAML.
        """
        count = source.count(self.old)
        if count != 1:
            raise DoesNotFit(f"{self.file}: expected once, found {count} times: {self.old!r}")
        changed = source.replace(self.old, self.new)
        if self.path.suffix == ".py":
            compile(changed, self.file, "exec")
        else:
            yaml.safe_load(changed)
        return changed

    @contextmanager
    def planted(self, checkout: Path) -> Iterator[None]:
        """Have the fault in a copy of the checkout until the block ends."""
        file = checkout / self.path
        source = file.read_text(encoding="utf-8")
        file.write_text(self.applied(source), encoding="utf-8")
        try:
            yield
        finally:
            file.write_text(source, encoding="utf-8")


def mutants() -> list[Mutant]:
    """Return all faults, in the order of their file."""
    return [Mutant(**entry) for entry in yaml.safe_load((HERE / "mutants.yml").read_text(encoding="utf-8"))]
