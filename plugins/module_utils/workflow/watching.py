# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watches a cluster over time and reports changes since the last look as events."""

from __future__ import annotations

import json
import time
import typing as t
from collections.abc import Iterator, Mapping

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ..engine.cache import ClusterState
from ..engine.capacity import how_many
from ..engine.planner.planner import broken_guests
from ..errors import CollectionError, InvalidRequest
from ..model import Snapshot
from ..proxmox.inventory.snapshot import Needs, completed
from ..proxmox.options.values import check_seconds
from .access import Access
from .fleet import OK, fleet_info
from .options.common import (
    DEFAULTS,
    Spec,
    live_argument_spec,
    one_vm_argument_spec,
    run_argument_spec,
    vms_argument_spec,
)
from .options.entries import build_entries
from .options.plugin_config import check_entries, profiles_of
from .options.rules import facts_of

UNREACHABLE, REACHABLE = "cluster_unreachable", "cluster_back"
OFFLINE, BACK = "node_offline", "node_back"
CAPACITY, BROKEN, DRIFT = "capacity_below", "rule_broken", "drift"

TYPES = (OFFLINE, BACK, CAPACITY, BROKEN, DRIFT)
"""The types of events that can be selected. Those about the cluster as a whole are always reported."""

ENDS: Mapping[str, str] = {UNREACHABLE: REACHABLE, OFFLINE: BACK}
"""The event that reports the end of the condition of another event."""

SHAPE = "shape"

Event = dict[str, t.Any]
Key = tuple[str, ...]


def watch_argument_spec() -> Spec:
    """The options of the event source."""
    return {
        **live_argument_spec(),
        **run_argument_spec(),
        "interval": {"type": "float", "default": 30.0},
        "events": {"type": "list", "elements": "str", "choices": list(TYPES), "default": list(TYPES)},
        "capacity": {
            "type": "dict",
            "options": {
                "shape": {"type": "dict", "required": True, "options": one_vm_argument_spec()},
                "at_least": {"type": "int", "default": 1},
            },
        },
        "vms": vms_argument_spec()["vms"],
        "drift_interval": {"type": "float", "default": 900.0},
    }


class Watch:
    """Looks at a cluster again and again.

    Attributes:
        interval: seconds from one look to the next.
    """

    def __init__(self, args: Mapping[str, t.Any]) -> None:
        """args are the options of the event source. Raises InvalidRequest and InvalidPluginConfig."""
        checked = ArgumentSpecValidator(watch_argument_spec()).validate(args)
        if checked.error_messages:
            raise InvalidRequest("; ".join(checked.error_messages))
        params: dict[str, t.Any] = {**DEFAULTS, **checked.validated_parameters}
        for option in ("interval", "drift_interval"):
            check_seconds(option, params[option])
        self.interval: float = params["interval"]
        self._params = params
        self._per_vm = one_vm_argument_spec()
        self._profiles, self._profile = profiles_of(params)
        capacity = params["capacity"] or {"shape": {}, "at_least": 0}
        shape = {"vms": [{"name": SHAPE, **{k: v for k, v in capacity["shape"].items() if v is not None}}]}
        self._shape = build_entries({**params, **shape}, self._per_vm, time.time())
        self._at_least: int = capacity["at_least"]
        check_entries(self._shape, self._profiles, self._profile)
        self._access: Access | None = None
        self._known: dict[Key, Event] = {}
        self._drift: dict[Key, Event] = {}
        self._next_drift = 0.0

    def look(self, now: float | None = None) -> list[Event]:
        """Read the cluster once, and return the changes since the last look; the first look reports all problems.

        now is in seconds, by default the clock's time. A cluster that cannot be read is an event as well.
        """
        try:
            found = dict(self._found(time.time() if now is None else now))
        except CollectionError as error:
            self.close()
            text = {"error_code": error.code, "message": error.message}
            found = {**self._known, (UNREACHABLE,): {"type": UNREACHABLE, **text}}
        events = [event for key, event in found.items() if key not in self._known]
        ended = [event for key, event in self._known.items() if key not in found]
        events += [self._ended(event) for event in ended if event["type"] in ENDS]
        self._known = found
        return [event for event in events if event["type"] not in TYPES or event["type"] in self._params["events"]]

    def close(self) -> None:
        """Log out. The next look logs in again."""
        if self._access is not None:
            self._access.close()
            self._access = None

    @staticmethod
    def _ended(event: Event) -> Event:
        return {"type": ENDS[event["type"]], **({"node": event["node"]} if "node" in event else {})}

    def _found(self, now: float) -> Iterator[tuple[Key, Event]]:
        """All problems, each with a key that stays the same as long as the problem lasts."""
        if self._access is None:
            self._access = Access.open({**self._params, "reservations": "none"}, facts_of(self._params["nodes"]))
        snapshot = self._access.glance()
        for node in snapshot.nodes:
            if not node.online:
                yield (OFFLINE, node.name), {"type": OFFLINE, "node": node.name}
        if CAPACITY in self._params["events"] and self._at_least:
            yield from self._too_small(snapshot)
        if BROKEN in self._params["events"]:
            yield from self._broken(snapshot, self._access)
        if DRIFT in self._params["events"] and self._params["vms"]:
            if now >= self._next_drift:
                self._drift = dict(self._drifted(now))
                self._next_drift = now + self._params["drift_interval"]
            yield from self._drift.items()

    def _too_small(self, snapshot: Snapshot) -> Iterator[tuple[Key, Event]]:
        """Reports that fewer VMs of the shape fit than required."""
        shapes = [entry.request for entry in self._shape]
        report = how_many(
            ClusterState(snapshot), self._profiles, shapes, default_profile=self._profile, most=self._at_least
        )
        if report.total < self._at_least:
            amount = {"fit": report.total, "at_least": self._at_least}
            yield (CAPACITY,), {"type": CAPACITY, **amount, "limited_by": report.limited_by, "reason": report.reason}

    def _broken(self, snapshot: Snapshot, access: Access) -> Iterator[tuple[Key, Event]]:
        """The guests on nodes where a rule or a limit forbids them."""
        managed = any(guest.ha_managed for guest in snapshot.guests)
        whole = completed(access.reader, snapshot, Needs(ha_rules=True)) if managed else snapshot
        guests = {guest.vmid: guest for guest in whole.guests}
        for vmid, why in broken_guests(ClusterState(whole), self._profiles, self._profile).items():
            guest = {"vmid": vmid, "name": guests[vmid].name, "node": guests[vmid].node}
            yield (BROKEN, str(vmid), why), {"type": BROKEN, **guest, "reason": why}

    def _drifted(self, now: float) -> Iterator[tuple[Key, Event]]:
        """The VMs of the list that have drifted from it."""
        params = {**self._params, "reservations": "none", "unmanaged": False}
        for vm in fleet_info(params, self._per_vm, now)["vms"]:
            if vm["state"] != OK:
                told = {
                    key: vm[key] for key in ("name", "vmid", "node", "state", "drift", "pending", "broken", "error")
                }
                yield (DRIFT, json.dumps(told, sort_keys=True, default=str)), {"type": DRIFT, **told}
