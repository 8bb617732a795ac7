# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The records of the ledger: who holds them, reservations, how long they are valid, and how they are stored."""

from __future__ import annotations

import dataclasses
import functools
import ipaddress
import json
import os
import platform
import secrets
import types
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ..errors import LedgerIncompatible
from ..model import NO_CONSTRAINTS, Constraints, Identity


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
    def new(cls) -> Holder:
        """Return a new holder for the calling process. Two calls give two holders."""
        pid = os.getpid()
        return cls(platform.node(), pid, _space_of(pid), _start_time(pid) or "", secrets.token_hex(8))

    def is_dead(self) -> bool:
        """Whether the process has certainly ended. False also when it cannot be seen from here."""
        if self.space != _space_of(os.getpid()):
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


@functools.cache  # a cycle asks for each reservation; a fork may be in another namespace than its parent
def _space_of(_pid: int) -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return platform.node()


def _start_time(pid: int) -> str | None:
    """Return when the process began, as opaque text: empty for a zombie, None when it cannot be determined."""
    try:
        # Not open(), which takes half as long again: a cycle looks at each process that has reserved something.
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        try:
            stat = os.read(file, 4096)
        finally:
            os.close(file)
    except OSError:
        return None
    # The second field is the program's name in parentheses, and may itself hold spaces and parentheses.
    fields = stat.rpartition(b")")[2].split()
    state, start = fields[0], fields[19]
    return "" if state in (b"Z", b"X") else start.decode()


Phase = t.Literal["reserved", "binding", "created"]
_PHASES = t.get_args(Phase)

LASTS = 3600.0
"""Seconds for which an expired reservation in the phase C(binding) is kept: a clone or a migration continues without
the process that sent the request, and only the reservation shows its size and its target.
"""

UNKNOWN_HOLDER = Holder(host="", pid=0, space="", started="", id="")
_TOO_MUCH = 2**63


@dataclass(frozen=True, slots=True)
class Durations:
    """How long records are valid without renewal, in seconds.

    lease must exceed the longest scheduling cycle, or slow schedulers take it from each other and none makes progress.
    reservation counts from the time of reserving or the last renewal; renewal is the interval at which a binder should
    renew. created is how long the reservation of a created VM still counts: longer than Proxmox needs to show the VM's
    real sizes (about ten seconds).
    """

    lease: float = 15.0
    reservation: float = 60.0
    renewal: float = 20.0
    created: float = 60.0


@dataclass(frozen=True, slots=True)
class Reservation:
    """A decision that other processes must count although Proxmox does not show it yet, or not with its real sizes.

    The ledger sets holder, created and expires, and for the phase C(binding) also quiet, expired and forsaken.

    Attributes:
        name: the VM's name; for a move, that of move_name, as existing guests may share a name.
        memory: in bytes.
        running: whether the VM will run.
        storage_bytes: bytes by (storage, node).
        devices: (node, device id), one entry per use.
        constraints: those of the request; the cluster does not show them.
        source: for a move, the node that the guest leaves; empty for a VM that is being created.
        addresses: the static IP addresses that the VM will have.
        identity: for a move, that of the guest. For a creation, that of the VM, as its config showed it after the
            create; None until then.
        per_node: whether other nodes may have a VM of the same name.
        task: for a creation, the UPID of the task that creates the VM; empty until it is known.
        phase: C(reserved) before anything was sent to Proxmox, C(binding) from just before the create call on,
            C(created) after its task has succeeded.
        created, expires: seconds since the epoch, by the ledger's clock.
        quiet: seconds since the last renewal.
        expired: whether that is so long ago that the holder must renew it before it writes, if it still can.
        forsaken: whether it has expired, or its holder had died when it was read.
    """

    cluster: str
    vmid: int
    name: str
    node: str
    cores: float = 0
    memory: int = 0
    running: bool = False
    storage_bytes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    devices: tuple[tuple[str, str], ...] = ()
    tags: frozenset[str] = frozenset()
    pool: str | None = None
    constraints: Constraints = NO_CONSTRAINTS
    source: str = ""
    addresses: tuple[str, ...] = ()
    identity: Identity | None = None
    task: str = ""
    per_node: bool = False
    phase: Phase = "reserved"
    holder: Holder | None = None
    created: float = 0.0
    expires: float = 0.0
    quiet: float = 0.0
    expired: bool = False
    forsaken: bool = False

    @property
    def key(self) -> str:
        """The name as far as it is unique in a cluster. A VM's name has no blanks."""
        return f"{self.name} on {self.node}" if self.per_node else self.name


def move_name(vmid: int) -> str:
    """Return the name under which the move of a guest is reserved, which no VM can have."""
    return f"move:{vmid}"


UNEXPIRED = f"expires + CASE phase WHEN 'binding' THEN {LASTS} ELSE 0 END > ?"
"""The SQL condition for rows that have not expired, as in has_expired."""

COLUMNS = "cluster, vmid, name, holder_id, holder, phase, created, expires, resources"


def to_row(reservation: Reservation) -> tuple[t.Any, ...]:
    """Return the values of COLUMNS. The reservation must have a holder."""
    if reservation.holder is None:
        raise ValueError("a reservation is kept only with its holder")
    resources = {
        "node": reservation.node,
        "cores": reservation.cores,
        "memory": reservation.memory,
        "running": reservation.running,
        "storage_bytes": [[storage, node, size] for (storage, node), size in reservation.storage_bytes.items()],
        "devices": reservation.devices,
        "tags": sorted(reservation.tags),
        "pool": reservation.pool,
        "constraints": to_data(reservation.constraints),
        "source": reservation.source,
        "addresses": reservation.addresses,
        "identity": to_data(reservation.identity),
        "task": reservation.task,
        "per_node": reservation.per_node,
        # Versions before 1.0.0 refuse reservations without it.
        "group": reservation.constraints.gang.name if reservation.constraints.gang else None,
    }
    return (
        reservation.cluster,
        reservation.vmid,
        reservation.key,
        reservation.holder.id,
        holder_to_text(reservation.holder),
        reservation.phase,
        reservation.created,
        reservation.expires,
        json.dumps(resources),
    )


def has_expired(row: Iterable[t.Any], now: float) -> bool:
    """Whether a row of COLUMNS has expired. The other columns are not checked."""
    *_others, phase, _created, expires, _resources = row
    return isinstance(expires, (int, float)) and now - (LASTS if phase == "binding" else 0.0) >= expires


def from_row(row: Sequence[t.Any]) -> Reservation:
    """Return the reservation in a row of COLUMNS. Raises LedgerIncompatible when the row is invalid."""
    try:
        return _parse(tuple(row))
    except (ValueError, TypeError, KeyError, RecursionError) as exc:
        # If it were skipped, its resources would be allocated a second time.
        reason = f"it lacks {exc}" if isinstance(exc, KeyError) else str(exc)
        cluster, vmid, *_others = row
        raise LedgerIncompatible(
            f"The ledger's reservation of VMID {vmid} on cluster '{cluster}' is invalid: {reason}. "
            "When nothing is being created, remove the ledger's file, or drop its tables.",
            cluster=cluster,
            vmid=vmid,
        ) from exc


@functools.lru_cache(maxsize=4096)  # a process reads most rows again in its next cycle
def _parse(row: tuple[t.Any, ...]) -> Reservation:
    cluster, vmid, name, _holder_id, holder, phase, created, expires, resources = row
    values = json.loads(resources)
    if not isinstance(values, dict):
        raise TypeError("expected a mapping")
    if not isinstance(vmid, int):
        raise TypeError("expected a number as VMID")
    if phase not in _PHASES:
        raise ValueError("expected a phase")
    return Reservation(
        cluster=cluster,
        vmid=vmid,
        name=_text(name).partition(" ")[0] if values.get("per_node") else _text(name),
        node=_text(values["node"]),
        cores=_amount(values["cores"]),
        memory=int(_amount(values["memory"])),
        running=bool(values["running"]),
        storage_bytes={
            (_text(storage), _text(node)): int(_amount(size)) for storage, node, size in values["storage_bytes"]
        },
        devices=tuple((_text(node), _text(device)) for node, device in values["devices"]),
        tags=frozenset(map(_text, values["tags"])),
        pool=None if values["pool"] is None else _text(values["pool"]),
        # Older versions did not write them.
        constraints=from_data(Constraints, values["constraints"]) if values.get("constraints") else NO_CONSTRAINTS,
        source=_text(values.get("source", "")),
        addresses=tuple(str(ipaddress.ip_address(_text(each))) for each in values.get("addresses", ())),
        identity=from_data(Identity, values["identity"]) if values.get("identity") else None,
        task=_text(values.get("task", "")),
        per_node=bool(values.get("per_node")),
        phase=phase,
        holder=holder_from_text(holder),
        created=_amount(created),
        expires=_amount(expires),
    )


def holder_to_text(holder: Holder) -> str:
    """Return the holder as it is stored."""
    return json.dumps(asdict(holder))


@functools.lru_cache(maxsize=1024)  # one holder may have thousands of reservations
def holder_from_text(text: str) -> Holder:
    """Return the holder that was stored, or UNKNOWN_HOLDER, which never counts as dead, if text is not valid."""
    try:
        holder = from_data(Holder, json.loads(text))
    except (ValueError, TypeError, RecursionError):
        return UNKNOWN_HOLDER
    return holder if 0 < holder.pid < 2**31 else UNKNOWN_HOLDER


# --- checks of stored values: other programs may have written anything ---


def _text(value: t.Any) -> str:
    if not isinstance(value, str):
        raise TypeError("expected a text")
    return value


def _amount(value: t.Any) -> t.Any:
    """Return a finite number that is not negative, of the type that it has."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < _TOO_MUCH:
        raise ValueError("expected a number that is not negative")
    return value


T = t.TypeVar("T")

_type_hints = functools.cache(t.get_type_hints)


def to_data(value: t.Any) -> t.Any:
    """Return the value as lists and mappings; of a dataclass only the fields that differ from their defaults."""
    if dataclasses.is_dataclass(value):
        given = ((field, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {field.name: to_data(found) for field, found in given if found != field.default}
    if isinstance(value, tuple):
        return [to_data(each) for each in value]
    return sorted(value) if isinstance(value, frozenset) else value


def from_data(kind: type[T], data: t.Any) -> T:
    """Return the dataclass that data was made from. Unknown keys are ignored: a newer version may have written them.

    Raises TypeError or KeyError when data does not describe a C(kind).
    """
    if not isinstance(data, dict):
        raise TypeError(f"expected a mapping for {kind.__name__}")
    hints = _type_hints(t.cast(t.Hashable, kind))
    return kind(**{name: _value(hint, data[name]) for name, hint in hints.items() if name in data})


def _value(hint: t.Any, data: t.Any) -> t.Any:
    """Return stored data as the type that a field has. Raises TypeError if it does not fit."""
    kind, inner = t.get_origin(hint), t.get_args(hint)
    if kind in (t.Union, types.UnionType):
        return None if data is None else _value(inner[0], data)
    if kind in (tuple, frozenset):
        if not isinstance(data, list):
            raise TypeError("expected a list")
        return kind(_value(inner[0], each) for each in data)
    if dataclasses.is_dataclass(hint):
        return from_data(t.cast(type, hint), data)
    if not isinstance(data, hint) or (isinstance(data, bool) and hint is not bool):
        raise TypeError(f"expected {hint.__name__}")
    return data
