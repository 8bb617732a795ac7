# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows the progress of a module while it runs.

A module cannot print. If it runs on the controller, it gets a file to write its progress to, and a thread of this
process shows what is appended to the file. Everything else is left to Ansible.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import tempfile
import threading
import typing as t
from collections.abc import Callable, Iterator
from pathlib import Path

from ansible import constants as C
from ansible.utils.display import Display

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.foreign_text import on_one_line
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.stopping import leave_signals_alone
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.ansible_core import MISFITS
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.direct import DirectAction
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.tables import TAKEN_BY_ANSIBLE, width_for

OPTION = "progress_file"
LOOK_EVERY = 0.2
MOST_AT_ONCE = 16 * 1024**2
"""Bytes that are read at a time; a line has some hundred."""

MACHINE_READABLE = ("json", "jsonl", "null", "junit")
"""Endings of the names of stdout callbacks whose output other programs parse. No progress is shown with these."""

LineOf = Callable[[dict[str, t.Any]], "str | None"]
TableOf = Callable[[dict[str, t.Any], int], list[str]]


class ProgressAction(DirectAction):
    """The base of action plugins whose modules have the option C(progress_file).

    Attributes:
        line_of: returns the text to show for a line of the file; None for none.
        table_of: returns lines of a given length to show for a failed result, which Ansible itself shows in one line.
    """

    line_of: LineOf
    table_of: TableOf

    def run(self, tmp: t.Any = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run the module; show its progress where that is possible, and a table if it fails."""
        if not self._can_show_progress():
            return super().run(tmp, task_vars)
        result = self._follow(tmp, task_vars)
        # With failed_when, the author of the task defines what a failure is.
        if result.get("failed") and not self._task.failed_when:
            prefix = f"{self._task.action.rpartition('.')[2]}: "
            for line in type(self).table_of(result, width_for(None) + TAKEN_BY_ANSIBLE - len(prefix)):
                Display().display(prefix + line)
        return result

    def _follow(self, tmp: t.Any, task_vars: dict[str, t.Any] | None) -> dict[str, t.Any]:
        """Run the module and show its progress."""
        given = self._task.args
        with _nameless_file() as file:
            self._task.args = {**given, OPTION: str(file)}
            try:
                with show_appended(file, way_to_show(), type(self).line_of):
                    return super().run(tmp, task_vars)
            finally:
                # With until, Ansible runs the same task object again, when this file no longer exists.
                self._task.args = given

    def _can_show_progress(self) -> bool:
        """Whether the module runs on this machine, as this user, and the output is shown to a user."""
        try:
            return (
                self._connection.transport == "local"
                and not self._play_context.become
                and not self._task.async_val
                and not self._task.no_log
                and OPTION not in self._task.args
                and not C.DEFAULT_STDOUT_CALLBACK.rpartition(".")[2].endswith(MACHINE_READABLE)
            )
        except MISFITS:
            # Another release of ansible-core may have other names. Without progress, the task still runs.
            return False


def way_to_show() -> Callable[[str], None]:
    """Return Ansible's own function that shows a line: in this process, it sends the line to the one that prints.

    ansible-runner, and so AWX, puts a function around it that prints as well. Before ansible-core 2.19, that waits
    without end in a thread of a worker: a lock belongs to the thread that has forked the worker. The line passes the
    same function in the process that prints.
    """
    show = Display.display
    while hasattr(show, "__wrapped__") and show.__globals__["__name__"] != Display.__module__:
        show = show.__wrapped__
    return functools.partial(show, Display())


@contextlib.contextmanager
def _nameless_file() -> Iterator[Path]:
    """Yield a file that ends with this process, however that ends: no folder lists it. Where processes have no folder
    that leads to their open files, as on macOS, it has a name and is removed after the block.
    """
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(tempfile.TemporaryFile(prefix="qemu-scheduler-"))
        path = Path(f"/proc/{os.getpid()}/fd/{file.fileno()}")
        if not path.exists():
            path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="qemu-scheduler-"))) / "progress.jsonl"
        yield path


@contextlib.contextmanager
def show_appended(file: Path, show: Callable[[str], None], line_of: LineOf) -> Iterator[None]:
    """Show the lines that are appended to file until the block ends, including the last ones. The file need not exist
    yet.
    """
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
    """Show the complete lines from position on, and return the position after them."""
    try:
        with file.open("rb") as stream:
            stream.seek(position)
            content = stream.read(MOST_AT_ONCE)
    except OSError:
        return position
    whole = content[: content.rfind(b"\n") + 1]
    for raw in whole.splitlines():
        # A line that cannot be shown must not make the task fail.
        with contextlib.suppress(ValueError, LookupError, TypeError, ArithmeticError, RecursionError):
            line = line_of(json.loads(raw))
            if line is not None:
                show(on_one_line(line))
    return position + len(whole)
