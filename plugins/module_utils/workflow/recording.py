# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recording a cluster, so that decisions about it can be made again without it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import typing as t
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..errors import ApiError, ConnectionFailed, InvalidRequest, PermissionDenied
from ..model import Guest
from ..proxmox.freshness import read_config
from ..proxmox.inventory_devices import DeviceNeeds
from ..proxmox.inventory_next_id import read_next_id
from ..proxmox.parallel import in_parallel
from ..proxmox.recorded import Recorder
from ..proxmox.session import Session
from ..proxmox.snapshot import Needs, identity, read_settled

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
    """The module's result: everything that a decision may look at, by API path, without secrets.

    With C(dest) it is written there, unless the file holds the same already; write False leaves that out.
    Raises InvalidRequest, and what reading the cluster raises.
    """
    session = Session.connect(params)
    recorder = Recorder(session)
    try:
        identity(recorder)
        read_next_id(recorder)
        snapshot = read_settled(recorder, EVERYTHING)
        _read_configs(recorder, [guest for guest in snapshot.guests if params["configs"] == "all" or guest.template])
    finally:
        session.close()
    answers = dict(sorted(recorder.answers.items()))
    result: dict[str, t.Any] = {"changed": False, "snapshot": answers}
    if params.get("dest"):
        result["dest"] = params["dest"]
        if write:
            _write(str(params["dest"]), answers)
    return result


def _read_configs(recorder: Recorder, guests: Iterable[Guest]) -> None:
    def read(place: tuple[str, int]) -> None:
        try:
            read_config(recorder, *place)
        except (ApiError, ConnectionFailed, PermissionDenied):
            # What this user cannot read, or not now, is not in the recording.
            return

    in_parallel(read, [(guest.node, guest.vmid) for guest in guests if guest.kind == "qemu"])


def _write(dest: str, answers: Mapping[str, t.Any]) -> None:
    """Write the file as a whole or not at all, for its owner's eyes, unless it holds the same already."""
    text = json.dumps(answers, indent=1, sort_keys=True) + "\n"
    try:
        path = Path(dest).expanduser()
        if path.exists() and not path.is_file():
            raise ValueError("it is no plain file")
        if path.exists() and path.read_text(encoding="utf-8") == text:
            return
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
            file.write(text)
        os.replace(file.name, path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidRequest(f"dest: cannot write {dest!r}: {reason}") from error
