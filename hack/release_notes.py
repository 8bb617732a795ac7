# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the changelog says of a version, for hack/release.sh.

usage: hack/release_notes.py has VERSION      whether the changelog has it
       hack/release_notes.py allows VERSION   whether the fragments may become it, which is said if not
       hack/release_notes.py newer VERSION    those lines of the standard input that end in a later version
"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

CHANGELOGS = Path(__file__).resolve().parents[1] / "changelogs"
FOR_MAJOR = ("breaking_changes", "removed_features")
FOR_MINOR = ("major_changes", "minor_changes", "deprecated_features")


def released() -> list[tuple[int, ...]]:
    """The versions in the changelog, the oldest first."""
    changelog = yaml.safe_load((CHANGELOGS / "changelog.yaml").read_text(encoding="utf-8"))
    return sorted(numbers(version) for version in changelog["releases"])


def numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version."""
    return tuple(map(int, version.split(".")))


def objection(version: tuple[int, ...]) -> str | None:
    """Why the fragments may not become a version after the latest one."""
    latest = released()[-1]
    if version <= latest:
        return f"it is not newer than {'.'.join(map(str, latest))}"
    sections = {
        section
        for path in (CHANGELOGS / "fragments").glob("*.y*ml")
        for section in yaml.safe_load(path.read_text(encoding="utf-8"))
    }
    if version[0] == latest[0]:
        if found := sections.intersection(FOR_MAJOR):
            return f"fragments with {', '.join(sorted(found))} need a major version"
        if version[1] == latest[1] and (found := sections.intersection(FOR_MINOR)):
            return f"fragments with {', '.join(sorted(found))} need a minor version"
    return None


def main(question: str, version: str) -> int:
    """Answer one question by the exit status."""
    if question == "newer":
        later = [line for line in sys.stdin if numbers(line.split()[-1].strip('"')) > numbers(version)]
        print("".join(later), end="")
        return 0
    if question == "has":
        return 0 if numbers(version) in released() else 1
    why_not = objection(numbers(version))
    if why_not is not None:
        print(f"error: {version} is not possible: {why_not}", file=sys.stderr)
    return 0 if why_not is None else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
