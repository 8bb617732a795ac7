# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps the results of plays, and compares those of the same plays that ran another way."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .playbook import TaskRun

VARIABLE_PARTS = (
    *("api_port", "ca_path", "progress_file", "ansible_job_id", "results_file", "exception", "snapshot"),
    *("cluster", "digest", "uptime", "seconds", "checksum", "md5sum", "_original_basename", "ctime"),
)
"""What differs between two runs of the same task on two clusters: a traceback names files of the module's archive, a
snapshot has figures of the moment, a plan names its cluster and when its guests were created, no two moves take the
same time, a checksum is that of a page with the time on it, and Ansible copies a page from a file with a random name.
"""
OFFLINE = re.compile("cannot be reached, and the names of the VMs there are not known")
"""Five minutes after a node went, the cluster forgets its storages and the names of its guests. Which of two runs sees
that depends on how fast they are.
"""


def keep(folder: Path, tasks: Sequence[TaskRun]) -> None:
    """Keep the results of a play of the test that runs now."""
    test = re.sub(r"\W+", "-", os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0].rpartition("integration/")[2])
    order = {task: number for number, task in reversed(list(enumerate(task.task for task in tasks)))}
    # The hosts of a play end a task in any order.
    by_host = sorted(tasks, key=lambda task: (order[task.task], task.host))
    text = json.dumps([dataclasses.asdict(task) for task in by_host])
    for number in itertools.count():
        path = folder / f"{test[:200]}.{number}.json"
        if not path.exists():
            path.write_text(text, encoding="utf-8")
            return


def differences(one: Path, other: Path) -> list[str]:
    """What differs between the results kept in two folders, one line per play."""
    found = []
    for name in sorted({path.name for folder in (one, other) for path in folder.iterdir()}):
        if not ((one / name).exists() and (other / name).exists()):
            found.append(f"{name}: ran one way only")
            continue
        results = [json.loads((folder / name).read_text(encoding="utf-8")) for folder in (one, other)]
        # VMs of several hosts go where the order leads in which their tasks come.
        racing = any(len({task["host"] for task in tasks}) > 1 for tasks in results)
        found += [f"{name}: {where}" for where in itertools.islice(_differences("", *results, racing=racing), 1)]
    return found


def without_variable_parts(value: Any) -> Any:
    """A result without what differs between two runs of the same task."""
    if isinstance(value, dict):
        return {key: without_variable_parts(each) for key, each in _comparable(value).items()}
    return [without_variable_parts(item) for item in value] if isinstance(value, list) else value


def _differences(where: str, one: Any, other: Any, *, racing: bool) -> Iterator[str]:
    """Where two values differ; racing: compare keys and types only, and not where one has no value."""
    if racing and not (one and other):
        return
    if isinstance(one, dict) and isinstance(other, dict):
        one, other = _comparable(one), _comparable(other)
        if one.keys() != other.keys():
            yield f"{where}: only one has {sorted(one.keys() ^ other.keys())}"
        for key in one.keys() & other.keys():
            yield from _differences(f"{where}.{key}", one[key], other[key], racing=racing)
    elif isinstance(one, list) and isinstance(other, list) and (racing or len(one) == len(other)):
        for number, pair in enumerate(zip(one, other, strict=not racing)):
            yield from _differences(f"{where}[{number}]", *pair, racing=racing)
    elif type(one) is not type(other) if racing else _stable(one) != _stable(other):
        yield f"{where}: {one!r} and {other!r}"


def _comparable(value: dict[str, Any]) -> dict[str, Any]:
    """A mapping of a result without what differs between two runs of the same task."""
    left = {key: each for key, each in value.items() if key not in VARIABLE_PARTS}
    if left.get("online") is False:
        left.pop("storages", None)
    warnings = [text for text in left.get("warnings", ()) if not OFFLINE.search(str(text))]
    if warnings:
        left["warnings"] = warnings
    elif left.get("warnings"):
        del left["warnings"]
    return left


def _stable(value: Any) -> Any:
    """A value without its figures: ports, times, names of folders and random names differ between two runs."""
    if isinstance(value, str):
        value = re.sub(rf"{tempfile.gettempdir()}/[\w.-]+", "folder", value)
        return re.sub(r"[0-9A-Fa-f]*\d[0-9A-Fa-f]*", "0", value)
    return 0 if isinstance(value, (int, float)) and not isinstance(value, bool) else value
