# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports the progress of a run: a line of JSON in a file for every finished VM, and at intervals while the run waits
for capacity.

A module's output is read when it ends. A file can be read by the process that waits for it.
"""

from __future__ import annotations

import contextlib
import json
import typing as t
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..errors import InvalidRequest
from ..files import append_text, reason_of
from ..secret_options import quote
from .job import Job
from .report import VMReport


@dataclass(frozen=True, slots=True)
class VMStep:
    """One VM is done, or failed. done counts the processed VMs of total; seconds is the time that this VM took."""

    report: VMReport
    done: int
    total: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Wait:
    """The VMs with these names wait until the plugins no longer reject them: for waited seconds so far, at most
    C(patience).
    """

    vms: Sequence[str]
    rejected_by: Sequence[str]
    waited: float
    patience: float

    @classmethod
    def of(cls, jobs: Iterable[Job], waited: float, patience: float) -> Wait:
        """Return the wait of the jobs that could not be placed."""
        outcomes = [job.outcome for job in jobs if job.outcome is not None]
        plugins = sorted({plugin for outcome in outcomes for plugin in outcome.rejected_by})
        return cls([outcome.request.name for outcome in outcomes], plugins, waited, patience)


Progress = Callable[["VMStep | Wait"], None]


class LineFile:
    """Appends lines of JSON to a file. Raises InvalidRequest at once when that is not possible."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            append_text(path, "")
        except (OSError, ValueError) as error:
            shown = quote("progress_file", path)
            raise InvalidRequest(f"progress_file: {shown} cannot be written: {reason_of(error)}") from error

    def append(self, line: Mapping[str, t.Any]) -> None:
        """Append one line. Write errors are ignored: a full disk must not fail a task whose work is done."""
        with contextlib.suppress(OSError, ValueError):
            append_text(self._path, json.dumps(line) + "\n")


class ProgressFile(LineFile):
    """Appends a line for every step and wait."""

    def __call__(self, step: VMStep | Wait) -> None:
        self.append(_line_of_wait(step) if isinstance(step, Wait) else _line_of_step(step))


def _line_of_step(step: VMStep) -> dict[str, t.Any]:
    """Return the progress of a VM as a line of the file has it."""
    report = step.report
    return {
        "done": step.done,
        "total": step.total,
        "name": report.name,
        "vmid": report.vmid,
        **({} if report.job.cluster is None else {"cluster": report.job.cluster}),
        "node": report.node,
        "actions": report.actions,
        "seconds": round(step.seconds, 2),
        "error": None if report.job.error is None else report.job.error.code,
    }


def _line_of_wait(wait: Wait) -> dict[str, t.Any]:
    """Return the wait for capacity as a line of the file has it."""
    return {
        "waiting": list(wait.vms),
        "rejected_by": list(wait.rejected_by),
        "waited": round(wait.waited),
        "patience": round(wait.patience),
    }
