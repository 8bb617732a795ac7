# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recording a cluster, so that decisions about it can be made again without it."""

from __future__ import annotations

import sys
import typing as t
from collections.abc import Iterable, Mapping
from contextlib import suppress

from ..files import write_json
from ..model import Guest
from ..proxmox.api.failures import UNREADABLE
from ..proxmox.api.reader import in_parallel
from ..proxmox.api.recorded import Recorder
from ..proxmox.api.session import Session
from ..proxmox.inventory.config_names import read_config_names
from ..proxmox.inventory.freshness import read_config
from ..proxmox.inventory.mappings import DeviceNeeds
from ..proxmox.inventory.rows import read_next_id
from ..proxmox.inventory.snapshot import Needs, identity, read_settled
from .existing.matching import is_silent

_BACKUP_JOBS = "/cluster/backup"

EVERYTHING = Needs(
    next_id=True,
    bridges=True,
    cpu_types=True,
    cpu_flags=True,
    pressure=True,
    maintenance=True,
    ha_rules=True,
    new_bytes=sys.maxsize,
    devices=DeviceNeeds(),
)


def record_cluster(params: Mapping[str, t.Any], *, write: bool) -> dict[str, t.Any]:
    """Return the module's result: everything that a decision may look at, by API path, without secrets.

    With C(dest) it is written there, unless the file holds the same already; write False leaves that out.
    Raises InvalidRequest, and what reading the cluster raises.
    """
    session = Session.connect(params)
    recorder = Recorder(session)
    try:
        identity(recorder)
        read_next_id(recorder)
        snapshot = read_settled(recorder, EVERYTHING)
        silent = [guest.vmid for guest in snapshot.guests if is_silent(guest)]
        if silent:
            read_config_names(recorder, silent)
        _read_configs(recorder, [guest for guest in snapshot.guests if params["configs"] == "all" or guest.template])
    finally:
        session.close()
    answers = dict(sorted(recorder.answers.items()))
    if _BACKUP_JOBS in answers:
        # Without the mail addresses and comments.
        answers[_BACKUP_JOBS] = [{"id": job["id"]} for job in answers[_BACKUP_JOBS]]
    result: dict[str, t.Any] = {"changed": False, "snapshot": answers}
    if params.get("dest"):
        result["dest"] = params["dest"]
        if write:
            write_json("dest", str(params["dest"]), answers)
    return result


def _read_configs(recorder: Recorder, guests: Iterable[Guest]) -> None:
    """Read the config of every VM, so that it becomes a part of the recording."""

    def read(place: tuple[str, int]) -> None:
        # What this user cannot read, or not now, is not in the recording.
        with suppress(*UNREADABLE):
            read_config(recorder, *place)

    in_parallel(read, [(guest.node, guest.vmid) for guest in guests if guest.kind == "qemu"])
