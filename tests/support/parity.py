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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .playbook import TaskRun

VARIABLE_PARTS = (
    *("api_port", "ca_path", "progress_file", "ansible_job_id", "results_file", "exception", "snapshot"),
    *("cluster", "digest", "uptime", "seconds", "checksum"),
)
"""What differs between two runs of the same task on two clusters: a traceback names files of the module's archive, a
snapshot has figures of the moment, a plan names its cluster, no two moves take the same time, and a checksum is that of
a page with the time on it.
"""


def keep(folder: Path, tasks: Sequence[TaskRun]) -> None:
    """Keep the results of a play of the test that runs now."""
    test = re.sub(r"\W+", "-", os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0].rpartition("integration/")[2])
    text = json.dumps([dataclasses.asdict(task) for task in tasks])
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
        found += [f"{name}: {where}" for where in itertools.islice(_differences("", *results), 1)]
    return found


def without_variable_parts(value: Any) -> Any:
    """A result without what differs between two runs of the same task."""
    if isinstance(value, Mapping):
        return {key: without_variable_parts(v) for key, v in value.items() if key not in VARIABLE_PARTS}
    return [without_variable_parts(item) for item in value] if isinstance(value, list) else value


def _differences(where: str, one: Any, other: Any) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            yield f"{where}: only one has {sorted(one.keys() ^ other.keys())}"
        for key in one.keys() & other.keys() - set(VARIABLE_PARTS):
            yield from _differences(f"{where}.{key}", one[key], other[key])
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, pair in enumerate(zip(one, other, strict=True)):
            yield from _differences(f"{where}[{number}]", *pair)
    elif _stable(one) != _stable(other):
        yield f"{where}: {one!r} and {other!r}"


def _stable(value: Any) -> Any:
    """A value without its figures: ports, times and names of folders differ between two runs."""
    if isinstance(value, str):
        return re.sub(r"[0-9A-F]*\d[0-9A-Fa-f]*", "0", value)
    return 0 if isinstance(value, (int, float)) and not isinstance(value, bool) else value
