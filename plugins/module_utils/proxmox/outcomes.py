# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Classifies Proxmox's refusals and failed tasks by their messages. Pure."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping, Sequence

# A drive for which a volume is made: "STORAGE:SIZE...", or one that is copied from elsewhere.
_ALLOCATION = re.compile(r"^[^:,]+:(\d+(\.\d+)?|cloudinit)(,|$)|(^|,)import-from=")


def is_missing(message: str) -> bool:
    """Whether the VM does not exist on the node of the call or task."""
    # Proxmox answers 500 for what is missing, never 404. On another node, an existing VM is missing, too.
    return bool(
        re.search(r"Configuration file '[^']*' does not exist|unable to find configuration file for VM \d+", message)
    )


def is_modified(message: str) -> bool:
    """Whether a write was refused because the config no longer has the digest that came with it."""
    return bool(re.search(r"checksum miss?match|detected modified configuration", message))


def is_running_already(message: str, vmid: int) -> bool:
    """Whether a start task failed because the VM runs: it held the VM's lock, so no other start goes on."""
    return bool(re.search(rf"\bVM {vmid} already running\b", message))


def is_shutdown_timeout(message: str) -> bool:
    """Whether a guest did not shut down in time."""
    return "VM quit/powerdown failed" in message


def is_paused(message: str) -> bool:
    """Whether a shutdown was refused because the guest is paused."""
    return "VM is paused - cannot shutdown" in message


def is_worker_failure(message: str) -> bool:
    """Whether Proxmox could not start the process of a task: nothing of the task was done."""
    return bool(re.search(r"start worker failed|starting worker failed|unable to fork worker", message))


def is_killed(exitstatus: str) -> bool:
    """Whether the process of a task was killed, so that Proxmox did not clean up."""
    return exitstatus == "unexpected status"


def is_vmid_taken(message: str, vmid: int) -> bool:
    """Whether a create or clone failed because another guest has vmid, or is being created with it."""
    return any(
        re.search(pattern, message)
        for pattern in (
            rf"\b(VM|CT) {vmid} already exists",
            rf"unable to create VM {vmid}: config file already exists",
            rf"/{vmid}\.conf' failed: File exists",
            # The winner of a race of two clones holds the lock of the new VMID.
            rf"can't lock file '[^']*/lock-{vmid}\.conf' - got timeout",
        )
    )


def is_tag_refusal(message: str) -> bool:
    """Whether a create failed because this user may not set tags in it (from 9.2 on); afterwards it may work."""
    return bool(re.search(r"\(/vms/\d+, VM\.Config\.Options\)|Sys\.Modify for modifying tag", message))


def is_busy(message: str) -> bool:
    """Whether another attempt may succeed: a lock timed out, or the process of a task could not be started."""
    if is_worker_failure(message):
        return True
    if is_shutdown_timeout(message):
        return False
    return bool(re.search(r"got (lock request )?timeout|cfs-lock '[^']*' error", message)) and not lacks_quorum(message)


def lacks_quorum(message: str) -> bool:
    """Whether a write was refused for lack of quorum, which makes the cluster's file system read-only."""
    return bool(re.search(r"no quorum|unable to open file '/etc/pve/[^']*' - Permission denied", message))


def lock_named(message: str) -> str | None:
    """Return the lock of a guest (C(backup)) if that is why a request was refused."""
    locked = re.search(r"is locked \(([\w-]+)\)", message)
    return None if locked is None else locked[1]


def is_config_locked(status: str) -> bool:
    """Whether a task ended before it did anything, because another one of its guest held the config for ten seconds: a
    reboot or shutdown holds it for up to minutes.
    """
    return bool(re.match(r"can't lock file '[^']*/(?:lock-\d+\.conf|pve-config-\d+\.lock)' - got timeout", status))


def is_lock_refusal(status: str) -> bool:
    """Whether a task about a guest ended before it did anything, because the guest or its config was locked."""
    return lock_named(status) is not None or is_config_locked(status)


def allocations(changes: Mapping[str, t.Any]) -> frozenset[str]:
    """Return the keys of config changes for which Proxmox allocates a new volume each time they are sent."""
    return frozenset(key for key, value in changes.items() if isinstance(value, str) and _ALLOCATION.search(value))


# --- why a migration failed: only the log of its task says it, never the exit status ---

_STAMP = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ")
_REMOTE = "remote command failed with exit code"
_NO_SPACE = "No space left on device"
_PATTERNS = (
    re.compile(r"^(can't migrate local disk .*)$"),
    re.compile(r"^ERROR: online migrate failure - (.*)$"),
    re.compile(r"^ERROR: storage migration for '[^']*' to storage '([^']*)' failed - (.*)$"),
    re.compile(r"^ERROR: migration aborted \(duration [\d:]+\): (.*)$"),
    re.compile(r"^ERROR: (?!migration (?:aborted|finished))(.*)$"),
)
_PERL_LINE = re.compile(r" at /\S+ line \d+\.?$")


def cause_of(log: Sequence[str]) -> str:
    """Return the line of a migration's log that names the cause, without its timestamp; empty if none does."""
    lines = [_STAMP.sub("", line).strip() for line in log]
    for index, line in enumerate(lines):
        if _REMOTE in line and index and lines[index - 1].startswith("["):
            # The message of the other node is on the line before.
            return lines[index - 1].partition("] ")[2]
    if any(_NO_SPACE in line for line in lines):
        return _NO_SPACE
    for pattern in _PATTERNS:
        for line in lines:
            match = pattern.match(line)
            if match:
                return _PERL_LINE.sub("", match[match.lastindex or 0])
    # The reasons for which ha-manager refused a move.
    return "; ".join(line.removeprefix("- ") for line in lines if line.startswith("- resource "))
