# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The changelog names all content of the versions that it has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.pages import CHECKOUT

CHANGELOG = yaml.safe_load((CHECKOUT / "changelogs" / "changelog.yaml").read_text(encoding="utf-8"))
CONTENT = {
    "module": "plugins/modules/*.py",
    "filter": "plugins/filter/*.yml",
    "inventory": "plugins/inventory/*.py",
    "role": "roles/*/meta/argument_specs.yml",
}


def in_changelog(kind: str) -> Iterator[str]:
    """The names of all modules, filters, ... of the releases."""
    for release in CHANGELOG["releases"].values():
        listed: dict[str, Any] = {
            "module": release.get("modules", ()),
            **release.get("plugins", {}),
            **release.get("objects", {}),
        }
        yield from (each["name"] for each in listed.get(kind, ()))


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def version_added(path: Path) -> tuple[int, ...]:
    """The first version that a file names is that of its content."""
    found = re.search(r"version_added: *[\"']?([\d.]+)", path.read_text(encoding="utf-8"))
    assert found, f"{path} does not say since when it exists"
    return numbers(found[1])


@pytest.mark.parametrize(("kind", "pattern"), CONTENT.items(), ids=CONTENT)
def test_changelog__names_all_content_of_its_versions(kind: str, pattern: str) -> None:
    latest = max(map(numbers, CHANGELOG["releases"]))
    paths = {path.parents[1].name if kind == "role" else path.stem: path for path in CHECKOUT.glob(pattern)}
    assert {name for name, path in paths.items() if version_added(path) <= latest} == set(in_changelog(kind))
