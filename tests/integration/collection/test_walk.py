# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much of the collection a reader meets who follows one task. C(make walk) prints the figures."""

from __future__ import annotations

import json
import typing as t
from collections import Counter

from support.controller import Controller
from support.module_server import WALK

TWO_VMS: t.Any = {
    "vms": [{"name": "web-1"}, {"name": "web-2"}],
    "cores": 1,
    "memory": 1024,
    "scsi": {"scsi0": {"storage": "local-lvm", "size": 8}},
}


class Walk(t.NamedTuple):
    """The functions that a task calls, and the frames from main() to the first filter, both included."""

    functions: list[str]
    to_filter: list[str]


def walk_of(controller: Controller, module: str, **options: t.Any) -> Walk:
    """Run a module, print what a reader of its walk meets, and return it."""
    file = controller.folder / "walk"
    result = controller.run(module, env={WALK: str(file)}, **options)
    assert not result.get("failed"), result["msg"]
    walk = Walk(**json.loads(file.read_text(encoding="utf-8")))
    files = Counter(name.partition(":")[0] for name in walk.functions)
    folders = Counter(name.partition(":")[0].rpartition("/")[0] for name in walk.functions)
    print(f"\n{len(walk.functions)} functions in {len(files)} files; {len(walk.to_filter)} frames to the first filter")
    print(*(f"{number:6} {folder}" for folder, number in folders.most_common()), sep="\n")
    print(*(f"       {frame}" for frame in walk.to_filter), sep="\n")
    return walk


def test_walk__of_two_new_vms(controller: Controller) -> None:
    walk = walk_of(controller, "qemu_schedule", **TWO_VMS)
    assert walk.to_filter[0].endswith("qemu_schedule.py:main")
    assert walk.to_filter[-1].endswith((".filter", ".filter_all"))
    assert len(walk.to_filter) <= 11
    assert len(walk.functions) <= 457


def test_walk__of_vms_that_are_as_they_should_be(controller: Controller) -> None:
    controller.schedule(**TWO_VMS)
    assert len(walk_of(controller, "qemu_schedule", **TWO_VMS).functions) <= 371


def test_walk__of_a_drained_node_in_check_mode(controller: Controller) -> None:
    controller.schedule(**TWO_VMS)
    assert len(walk_of(controller, "node_drain", check=True, node="pve1").functions) <= 414
