# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a run reads the cluster and shares its decisions: a live session with a ledger, or a recording."""

from __future__ import annotations

import re
import sys
import typing as t
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from ..demand import CPU, MEMORY, NOTHING_STATED, Stated
from ..engine.devices.hardware import OPTIONS
from ..engine.framework.interface import Subject
from ..engine.plugins.nodes import COMMON_CPU_TYPES
from ..engine.profiles import Profile
from ..engine.standing_rules import StandingRules
from ..engine.texts import whole_number
from ..engine.usual import guests_like
from ..errors import ConnectionFailed, InvalidRequest, PermissionDenied
from ..model import Guest, Node, Request, Snapshot
from ..proxmox.api.failures import UNREADABLE, NotRecorded
from ..proxmox.api.reader import Reader, RememberingReader
from ..proxmox.api.session import ROOT, Session, endpoint_of
from ..proxmox.identity import identity_of
from ..proxmox.inventory.freshness import SETTLING, KnownGuest, read_config
from ..proxmox.inventory.kept_demands import KeptDemands
from ..proxmox.inventory.known_bridges import KnownBridges
from ..proxmox.inventory.rows import read_next_id
from ..proxmox.inventory.snapshot import (
    IDENTIFIED_BY_AUTHORITY,
    Needs,
    complete_snapshot,
    identity,
    read_settled,
    read_snapshot,
)
from ..proxmox.options.drives import volumes_of
from ..proxmox.options.kinds import OF_DRIVER
from ..proxmox.options.table import ROOT_ONLY, option_of
from ..reservations.ledger import Ledger
from ..reservations.opening import folder_of, names_folder, open_ledger
from ..reservations.records import Holder, Reservation
from .births import ask_if_another
from .options.metrics import METRICS, stated_metrics
from .options.rules import standing_rules
from .stopping import Stop

if t.TYPE_CHECKING:
    from ..proxmox.inventory.mappings import DeviceNeeds
    from ..proxmox.inventory.usage import Statistics


@dataclass(eq=False)
class Access:
    """The cluster of one run.

    Attributes:
        reader: reads API paths.
        session: the session for writes; None if the run is offline.
        ledger: the ledger in which decisions are shared.
        endpoint: the key of the cluster in the ledger, see endpoint_of; None if the run is offline.
        shared: whether other processes see the ledger.
        facts: returns what the user configured about nodes.
        standing: rules that apply to guests whether or not the run requests them.
        stop: whether the run has to end; asked before each write.
        kept_in: the folder in which the use of guests and the bridges of nodes are kept.
        stated: the use that the task states.
        holder: this run, in the ledger.
        claimed: VMIDs that this run has reserved, and will decide about again.
        known_bridges: those of the latest snapshot; None if nothing has needed them.
    """

    reader: Reader
    session: Session | None
    ledger: Ledger
    endpoint: tuple[str, int] | None
    shared: bool
    facts: Callable[[Collection[Node]], Mapping[str, Mapping[str, t.Any]]]
    standing: StandingRules = field(default_factory=StandingRules)
    stop: Stop = field(default_factory=Stop)
    kept_in: Path | None = None
    stated: Stated = NOTHING_STATED
    holder: Holder = field(default_factory=Holder.new)
    claimed: frozenset[int] = frozenset()
    known_bridges: KnownBridges | None = None
    _identity: str | None = None
    _identity_is_fresh: bool = False

    @classmethod
    def open(
        cls, params: Mapping[str, t.Any], facts: Callable[[Collection[Node]], Mapping[str, Mapping[str, t.Any]]]
    ) -> Access:
        """Log in, or open the recording, as the options say. facts returns what the user configured about the nodes.

        Raises InvalidRequest, InvalidSnapshot, ConnectionFailed, AuthenticationFailed, LedgerUnavailable, ...
        """
        recorded, standing = params.get("snapshot"), standing_rules(params)
        stated = stated_metrics(params) if params.get(METRICS) or params.get("balance") else Stated()
        if recorded is not None:
            from ..proxmox.api.recorded import RecordedReader

            reader = RecordedReader.from_file(recorded) if isinstance(recorded, str) else RecordedReader(recorded)
            return cls(reader, None, open_ledger("none"), None, False, facts, standing, stated=stated)
        where = params.get("reservations")
        ledger = open_ledger(where)
        stop, kept_in = Stop(), folder_of(where)
        session = Session.connect(params, before_write=stop.check)
        remembering, endpoint = RememberingReader(session), endpoint_of(params)
        return cls(remembering, session, ledger, endpoint, where != "none", facts, standing, stop, kept_in, stated)

    @property
    def offline(self) -> bool:
        return self.session is None

    def writer(self) -> Session:
        """Return the session for writes. Raises InvalidRequest if the run is offline."""
        if self.session is None:
            raise InvalidRequest("snapshot: a recorded cluster cannot be written to")
        return self.session

    def of_others(self, reservations: Iterable[Reservation]) -> list[Reservation]:
        """Return the reservations without those that this run will decide about again."""
        return [each for each in reservations if each.vmid not in self.claimed or each.holder != self.holder]

    def claim(self, vmids: Iterable[int]) -> None:
        """Decide again about these VMs of this run, in place of those claimed before: their reservations do not
        count.
        """
        self.claimed = frozenset(vmids)

    def give_up_claims(self) -> None:
        """Release the claimed reservations."""
        self.ledger.release(self.identity(), self.claimed, self.holder)
        self.claimed = frozenset()

    def check_release(self, request: Request) -> None:
        """Raise InvalidRequest if an option of the VM is newer than the cluster. Reads only if such an option
        is set.
        """
        newer = {
            option.name: option.since
            for parameter in request.options
            if (option := option_of(parameter)) is not None and option.since is not None
        }
        made = request.ha if request.ha is not None and request.ha.create is not None else None
        if made is not None and made.rule is not None:
            newer["ha.rule"] = (9, 0)
        if not newer and made is None:
            return
        try:
            release = str(self.reader.get("/version").get("release", ""))
        except NotRecorded:
            return
        numbers = tuple(number for part in release.split(".") if (number := whole_number(part)) is not None)
        for name, since in sorted(newer.items()):
            if numbers < since:
                raise InvalidRequest(
                    f"{name}: requires Proxmox VE {since[0]}.{since[1]} or later, but the cluster runs {release}",
                    option=name,
                )
        if made is not None and made.group is not None and numbers >= (9, 0):
            raise InvalidRequest("ha.group: Proxmox VE 9 has rules instead of groups; set ha.rule", option="ha")

    def check_rights(self, options: Mapping[str, t.Any]) -> None:
        """Raise PermissionDenied if options of a VM, or parameters for it, need what Proxmox grants only to root, and
        this is another user.
        """
        if self.session is None or self.session.user == ROOT:
            return
        for option in filter(ROOT_ONLY.fullmatch, sorted(options)):
            raise PermissionDenied(
                f"{option}: Proxmox VE lets only {ROOT} with its password set it, not {self.session.user}"
            )
        reason = needs_root(options)
        if reason is not None:
            raise PermissionDenied(reason)

    @cached_property
    def kept_demands(self) -> KeptDemands:
        """What this user has read within the last hour of what guests used, on this host."""
        return KeptDemands(*self._folder_and_owner())

    @property
    def bridges(self) -> KnownBridges:
        """The nodes' bridges: those read since the latest snapshot, and those that are kept."""
        if self.known_bridges is None:
            self.known_bridges = KnownBridges(self.reader, *self._folder_and_owner())
        return self.known_bridges

    def _folder_and_owner(self) -> tuple[Path | None, str]:
        """Return the folder for what is kept of this cluster for this user, and the name of both."""
        user = None if self.session is None else self.session.user
        return None if user is None else self.kept_in, f"{self.identity()} {user}"

    @property
    def statistics(self) -> Statistics:
        """What the nodes and guests used."""
        from ..proxmox.inventory.usage import Statistics

        return Statistics(self.reader, lambda: self.kept_demands, self.stated)

    def names_of(self, snapshot: Snapshot, vmids: Collection[int]) -> dict[int, str]:
        """Return the names of VMs on offline nodes, as far as they can be found out."""
        from ..proxmox.inventory.config_names import read_config_names
        from ..proxmox.inventory.kept_names import KeptNames

        found = read_config_names(self.reader, vmids)
        rest = set(vmids) - found.keys()
        return found | KeptNames(names_folder(), self.endpoint).recall(snapshot, rest) if rest else found

    def identity(self) -> str:
        """Return the cluster's name in the ledger, the same for every user and every address."""
        if self._identity is None:
            known = self._recall()
            self._identity = identity(self.reader) if known is None else known[0]
            self._identity_is_fresh = known is None
        return self._identity

    def read(self, known: Mapping[int, KnownGuest] = MappingProxyType({}), *, patience: float = SETTLING) -> Snapshot:
        """Return the cluster now, with what the user configured about its nodes. known are guests that need not be read
        again. Waits for guests that others are creating, at most C(patience) seconds in total; in a recording they stay
        as they are.
        """
        snapshot = read_settled(self.reader, known=known, patience=0.0 if self.offline else patience)
        self._check_identity(snapshot)
        self.known_bridges = None
        return replace(self.with_facts(snapshot), cluster=self.identity())

    def ask_if_gone(self, node: str, vmid: int) -> bool:
        """Whether it is certain that node has no VM with this VMID."""
        try:
            return read_config(self.reader, node, vmid) is None
        except UNREADABLE:
            return False

    def ask_if_another(self, guest: Guest, reservation: Reservation) -> bool:
        """Whether a guest is certainly not the one that a reservation of another run is about. One request if that is
        known.
        """
        if reservation.holder == self.holder or not (reservation.identity or reservation.task):
            return False
        try:
            config = self.reader.get(f"/nodes/{guest.node}/{guest.kind}/{guest.vmid}/config")
        except UNREADABLE:
            return False
        found = identity_of(config, guest.node, guest.kind)
        return ask_if_another(self.reader, reservation, found)

    def glance(self) -> Snapshot:
        """Return the cluster as a single request shows it. New things appear late in it, but it shows that something
        has changed.
        """
        return self.with_facts(read_snapshot(self.reader))

    def with_facts(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with what the user configured about its nodes, and with the rules that apply to its
        guests.

        Raises InvalidRequest if an option names a node that the cluster does not have.
        """
        facts = self.facts(snapshot.nodes)
        nodes = tuple(replace(node, **facts[node.name]) if node.name in facts else node for node in snapshot.nodes)
        return self.standing.add_to_guests(replace(snapshot, nodes=nodes))

    def complete(
        self,
        snapshot: Snapshot,
        requests: Sequence[Request],
        subjects: Collection[Subject],
        devices: DeviceNeeds | None,
        *,
        many: bool = False,
        fresh: bool = True,
        all_bridges: bool = True,
    ) -> Snapshot:
        """Return the snapshot with the additional data that placing these requests needs.

        subjects are the data that the enabled plugins need; the rest is not read. many: whether each request may be
        placed many times. fresh: whether to read the bounds for VMIDs, and which nodes have just gone into maintenance,
        which takes requests whatever the VMs are. all_bridges: whether to read the bridges of nodes of which nothing is
        known; otherwise these count as having all.
        """
        if fresh and any(_takes_any_vmid(request) for request in requests):
            bounds = read_next_id(self.reader)
            snapshot = replace(snapshot, next_id=(bounds.lower, bounds.upper), vmids_unseen=bounds.unseen)
        disks = [disk for request in requests for disk in request.disks]
        volumes = frozenset(volume for disk in disks for volume in (disk.volume, disk.source) if volume)
        needs = Needs(
            named=frozenset(each for request in requests for each in request.named if Subject.NAMED in subjects),
            cpu_types=Subject.CPU in subjects
            and any(request.cpu_type not in (None, *COMMON_CPU_TYPES) for request in requests),
            cpu_flags=Subject.CPU in subjects and any(request.cpu_flags for request in requests),
            pressure=Subject.PRESSURE in subjects and bool(requests),
            maintenance=fresh and bool(requests),
            ha_rules=any(request.ha for request in requests)
            or (Subject.HA_RULES in subjects and any(guest.ha_managed for guest in snapshot.guests)),
            volumes=volumes if Subject.VOLUMES in subjects else frozenset(),
            new_bytes=_new_bytes(requests, many=many) if Subject.VOLUMES in subjects else 0,
            devices=devices,
        )
        snapshot = complete_snapshot(self.reader, snapshot, needs)
        wanted = frozenset(bridge for request in requests for bridge in request.bridges)
        if wanted and Subject.BRIDGES in subjects:
            nodes = self.bridges.add_to(snapshot.nodes, wanted, of_all=all_bridges or self.offline)
            snapshot = replace(snapshot, nodes=nodes)
        if Subject.DEMAND in subjects and requests:
            from ..proxmox.inventory.usage import with_demand_of

            snapshot = with_demand_of(self.statistics, snapshot, _guests_alike(requests, snapshot))
        return snapshot

    def close(self) -> None:
        self.ledger.close()
        if self.session is not None:
            self.session.close()

    def _check_identity(self, snapshot: Snapshot) -> None:
        """Remember which cluster answers at this address. Ask again if the nodes are not the same as the last time.

        A standalone node is asked each time: many of them have the same name, and some the same address in different
        networks.
        """
        if self.endpoint is None:
            return
        names = frozenset(node.name for node in snapshot.nodes)
        known = self._recall()
        if known is not None and known[1] == names:
            return
        before = self.identity()
        found = before if known is None and self._identity_is_fresh else identity(self.reader)
        self._identity_is_fresh = True
        if len(names) > 1 and found.startswith(IDENTIFIED_BY_AUTHORITY):
            self.ledger.remember_endpoint(*self.endpoint, found, names)
        if found != before:
            self._identity = found
            raise OtherCluster(f"{self.endpoint[0]}:{self.endpoint[1]} is now a node of cluster {found}")

    def _recall(self) -> tuple[str, frozenset[str]] | None:
        """Return what the ledger stores about this address: a cluster's identity and its nodes."""
        known = self.ledger.endpoint(*self.endpoint) if self.endpoint else None
        # Earlier versions identified clusters by names and addresses.
        return known if known is not None and known[0].startswith(IDENTIFIED_BY_AUTHORITY) else None


def subjects_of(profiles: Iterable[Profile]) -> frozenset[Subject]:
    """Return the data that the plugins of these profiles need besides nodes, guests and storages."""
    return frozenset(subject for profile in profiles for plugin in profile.plugins for subject in plugin.reads)


def needs_root(options: Mapping[str, t.Any]) -> str | None:
    """Return why only C(root@pam) with its password can set these options, or None when others can: they name a file or
    a device of the node. No token will do, not even one of C(root@pam).
    """
    for option, value in sorted(options.items()):
        path = next((volume for volume in volumes_of(option, value) if volume.startswith("/")), None)
        if path is not None:
            return f"{option}: {path!r} is a path, which only root@pam with its password may set; use a volume instead"
        if re.fullmatch(r"serial\d+", option) and value not in ("", "socket"):
            return f"{option}: {str(value)!r} is a device, which only root@pam with its password may set"
        for driver, (prefix, _number) in OPTIONS.items():
            if (
                re.fullmatch(rf"{prefix}\d+", option)
                and OF_DRIVER[driver].read(str(value)).get("host", "spice").lower() != "spice"
            ):
                return (
                    f"{option}: {str(value)!r} names a device by its address, which Proxmox VE allows to root@pam with "
                    f"its password only; use a resource mapping (mapping=...) or devices instead"
                )
    return None


def _guests_alike(requests: Iterable[Request], snapshot: Snapshot) -> frozenset[int]:
    """Return the guests that tell what new VMs will use of which the user does not say it."""
    due = (request for request in requests if not {CPU, MEMORY} <= request.demand.keys())
    return frozenset(guest.vmid for request in due for guest in guests_like(request, snapshot.guests) if guest.vmid > 0)


def _new_bytes(requests: Sequence[Request], *, many: bool) -> int:
    """Return the total size of the new disks, as far as it is known before templates and images are read."""
    size = sum(disk.size for request in requests for disk in request.disks)
    if many:
        return sys.maxsize if any(map(_has_new_disks, requests)) else 0
    return size or len(requests)


def _has_new_disks(request: Request) -> bool:
    return request.clone is not None or any(disk.volume is None for disk in request.disks)


def _takes_any_vmid(request: Request) -> bool:
    wishes = (request.vmid, request.vmid_range, request.vmid_regex)
    return not any(wishes) and not any(key.startswith("vmid.") for key in request.context)


class OtherCluster(ConnectionFailed):
    """The address belongs to another cluster than before: the decisions for that one are void."""
