# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows what a module does while it does it.

A module cannot print. When it runs on the controller itself it is given a file to tell its progress in, and a thread
beside it shows what is in there. Everything else is left to Ansible's own way of running a module.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import threading
import typing as t
from collections.abc import Callable, Iterator
from pathlib import Path

from ansible import constants as C
from ansible.utils.display import Display

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.stopping import leave_signals_alone
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.direct import DirectAction
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.tables import TAKEN_BY_ANSIBLE, width_for

OPTION = "progress_file"
LOOK_EVERY = 0.2
MACHINE_READABLE = ("json", "jsonl", "null", "junit")
"""Endings of the names of stdout callbacks whose output other programs read: it must stay theirs alone."""

LineOf = Callable[[dict[str, t.Any]], "str | None"]
TableOf = Callable[[dict[str, t.Any], int], list[str]]


class ProgressAction(DirectAction):
    """The base of action plugins whose modules have the option C(progress_file).

    Attributes:
        line_of: makes what is shown of a line of the file; None for one that is not shown.
        table_of: makes what is shown of the result of a failure, with lines of a length, before Ansible shows all of it
            in one line.
    """

    line_of: LineOf
    table_of: TableOf

    def run(self, tmp: t.Any = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run the module, with progress shown where that is possible, and a table where it fails."""
        if not self._can_show_progress():
            return t.cast("dict[str, t.Any]", super().run(tmp, task_vars))
        result = self._followed(tmp, task_vars)
        # A task with failed_when shows by itself what failed.
        if result.get("failed") and not self._task.failed_when:
            prefix = f"{self._task.action.rpartition('.')[2]}: "
            for line in type(self).table_of(result, width_for(None) + TAKEN_BY_ANSIBLE - len(prefix)):
                Display().display(prefix + line)
        return result

    def _followed(self, tmp: t.Any, task_vars: dict[str, t.Any] | None) -> dict[str, t.Any]:
        """Run the module, and show what it tells meanwhile."""
        given = self._task.args
        with tempfile.TemporaryDirectory(prefix="qemu-scheduler-") as folder:
            file = Path(folder) / "progress.jsonl"
            self._task.args = {**given, OPTION: str(file)}
            try:
                with following(file, Display().display, type(self).line_of):
                    return t.cast("dict[str, t.Any]", super().run(tmp, task_vars))
            finally:
                # The task is run again with the same object where it has until, and its file is gone by then.
                self._task.args = given

    def _can_show_progress(self) -> bool:
        """Whether the module runs on this machine, as this user, and the output is shown to a user."""
        return (
            self._connection.transport == "local"
            and not self._play_context.become
            and not self._task.async_val
            and not self._task.no_log
            and OPTION not in self._task.args
            and not C.DEFAULT_STDOUT_CALLBACK.rpartition(".")[2].endswith(MACHINE_READABLE)
        )


@contextlib.contextmanager
def following(file: Path, show: Callable[[str], None], line_of: LineOf) -> Iterator[None]:
    """Show what is appended to file, which need not exist yet, until the block ends, and what was left then."""
    ended = threading.Event()

    def follow() -> None:
        leave_signals_alone()
        position = 0
        while True:
            last = ended.wait(LOOK_EVERY)
            position = _show_from(position, file, show, line_of)
            if last:
                return

    thread = threading.Thread(target=follow, name="progress of a module", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _show_from(position: int, file: Path, show: Callable[[str], None], line_of: LineOf) -> int:
    """Show the whole lines that start at position, and return where the next one will."""
    try:
        with file.open("rb") as stream:
            stream.seek(position)
            content = stream.read()
    except OSError:
        return position
    whole = content[: content.rfind(b"\n") + 1]
    for raw in whole.splitlines():
        # Progress is a courtesy: whatever is in there, the task goes on.
        with contextlib.suppress(ValueError, LookupError, TypeError, RecursionError):
            line = line_of(json.loads(raw))
            if line is not None:
                show(line)
    return position + len(whole)
