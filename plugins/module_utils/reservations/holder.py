# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who holds a lease or a reservation, and whether that process is known to be dead."""

from __future__ import annotations

import os
import platform
import secrets
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Holder:
    """One process that schedules.

    space names the set of processes within which pid is unique: one boot of one kernel, and one PID namespace in it. A
    host name does not identify that set: containers may share one, and so may two hosts. started distinguishes a
    process from a later one with the same pid; it is empty where the system does not report it.
    """

    host: str
    pid: int
    space: str
    started: str
    id: str

    @classmethod
    def here(cls) -> Holder:
        """Return a new holder for the calling process. Two calls give two holders."""
        pid = os.getpid()
        return cls(platform.node(), pid, _process_space(), _start_time(pid) or "", secrets.token_hex(8))

    def is_dead(self) -> bool:
        """Tell whether the process has certainly ended. False also when it cannot be seen from here."""
        if self.space != _process_space():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        started = _start_time(self.pid)
        return started is not None and started != self.started

    def __str__(self) -> str:
        if not self.pid:
            return "an unknown process"
        return f"process {self.pid} on {self.host or 'an unnamed host'}"


def _process_space() -> str:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink(_PROC / 'self/ns/pid')}"
    except OSError:
        return platform.node()


def _start_time(pid: int) -> str | None:
    """Return when the process began, as opaque text: empty for a zombie, None when it cannot be determined."""
    try:
        stat = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # The second field is the program's name in parentheses, and may itself hold spaces and parentheses.
    fields = stat.rpartition(b")")[2].split()
    state, start = fields[0], fields[19]
    return "" if state in (b"Z", b"X") else start.decode()
