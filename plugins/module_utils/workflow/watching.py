# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watches a cluster over time and reports changes since the last look as events."""

from __future__ import annotations

import json
import time
import typing as t
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from itertools import chain

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ..engine.cache import ClusterState
from ..engine.planner.planner import broken_guests
from ..errors import AmbiguousName, CollectionError, ConnectionFailed, InvalidRequest, MissingLibrary, TemplateNotFound
from ..foreign_text import inert
from ..model import Snapshot
from ..proxmox.api.session import contradicted_credentials
from ..proxmox.inventory.freshness import settle
from ..proxmox.inventory.snapshot import Needs, complete_snapshot, read_snapshot
from ..proxmox.options.values import check_range, check_seconds
from ..secret_options import mask, secret_names, secrets_in, without_value
from .access import Access
from .capacity import Shapes
from .counting import count_reservations
from .fleet import OK, fleet_info
from .options.common import (
    DEFAULTS,
    LIVE_OPTIONS,
    ONE_VM_OPTIONS,
    RUN_OPTIONS,
    Spec,
    vms_argument_spec,
)
from .options.plugin_config import profiles_of
from .options.rules import facts_of, standing_rules
from .options.task import Task

UNREACHABLE, REACHABLE = "cluster_unreachable", "cluster_back"
OFFLINE, BACK = "node_offline", "node_back"
CAPACITY, BROKEN, DRIFT = "capacity_below", "rule_broken", "drift"
FAILED, WORKING = "check_failed", "check_back"

TYPES = (OFFLINE, BACK, CAPACITY, BROKEN, DRIFT)
"""The types of events that can be selected. Those that tell that something could not be read are always reported."""

ENDS: Mapping[str, str] = {UNREACHABLE: REACHABLE, OFFLINE: BACK, FAILED: WORKING}
"""The event that reports the end of the condition of another event."""

SUBJECTS = ("node", "check")
"""The keys of such an event that its end has as well."""

Event = dict[str, t.Any]
EventKey = tuple[str, ...]


def watch_argument_spec() -> Spec:
    """Return the options of the event source."""
    return {
        **LIVE_OPTIONS,
        **RUN_OPTIONS,
        "interval": {"type": "float", "default": 30.0},
        "events": {"type": "list", "elements": "str", "choices": list(TYPES), "default": list(TYPES)},
        "capacity": {
            "type": "dict",
            "options": {
                "shape": {"type": "dict", "required": True, "options": ONE_VM_OPTIONS},
                "at_least": {"type": "int", "default": 1},
            },
        },
        "vms": vms_argument_spec()["vms"],
        "drift_interval": {"type": "float", "default": 900.0},
        "repeat_interval": {"type": "float", "default": 3600.0},
    }


class Reading:
    """What one look shows of the cluster.

    Attributes:
        access: the connection.
        rows: the cluster as a single request shows it.
    """

    def __init__(self, access: Access, rows: Snapshot) -> None:
        self.access = access
        self.rows = rows

    @cached_property
    def seen(self) -> Snapshot:
        """The rows with what the user configured. Raises InvalidRequest."""
        return self.access.with_facts(self.rows)

    @cached_property
    def settled_snapshot(self) -> Snapshot:
        """The cluster's list with the names, sizes and states that the nodes report now; see settle for the requests.

        Raises InvalidRequest, and what reading the cluster raises.
        """
        return self.access.with_facts(settle(self.access.reader, self.rows, patience=0))


class Watch:
    """Looks at a cluster again and again.

    Attributes:
        interval: seconds from one look to the next.
    """

    def __init__(self, args: Mapping[str, t.Any]) -> None:
        """args are the options of the event source. Raises InvalidRequest and InvalidPluginConfig if one is wrong, as
        far as that shows without the cluster.
        """
        spec = watch_argument_spec()
        checked = ArgumentSpecValidator(spec).validate({**args, **contradicted_credentials(args, spec)})
        if checked.error_messages:
            hidden = secrets_in({**args, **checked.validated_parameters}, secret_names(spec))
            raise InvalidRequest(mask("; ".join(map(without_value, checked.error_messages)), hidden))
        params: dict[str, t.Any] = {**DEFAULTS, **checked.validated_parameters}
        for option in ("interval", "drift_interval"):
            check_seconds(option, params[option])
        check_range("repeat_interval", params["repeat_interval"], 0)
        self.interval: float = params["interval"]
        self._params = params
        self._profiles, self._profile = profiles_of(params)
        self._shapes = self._shapes_of(params["capacity"])
        Task.of({**params, "vms": params["vms"] or []}, ONE_VM_OPTIONS, time.time())
        standing_rules(params)
        self._facts = facts_of(params["nodes"])
        self._access: Access | None = None
        self._known: dict[EventKey, Event] = {}
        self._sent: dict[EventKey, float] = {}
        self._drift: dict[EventKey, Event] = {}
        self._next_drift = 0.0

    def _shapes_of(self, capacity: Mapping[str, t.Any] | None) -> Shapes | None:
        """Return the shape to count; None if none is to be counted."""
        if capacity is None:
            return None
        shape = {option: value for option, value in capacity["shape"].items() if value is not None}
        try:
            return Shapes.of({**self._params, "vms": None, **shape}, ONE_VM_OPTIONS, self._profiles, self._profile)
        except InvalidRequest as error:
            raise InvalidRequest(f"capacity.shape: {error.message}", **error.details) from error

    def look(self, now: float | None = None) -> list[Event]:
        """Read the cluster once, and return the changes since the last look, with the problems that are due again; the
        first look reports all problems.

        now is in seconds, by default the clock's time. A cluster that cannot be read is an event as well, and so is a
        check that fails. Raises InvalidRequest and MissingLibrary if no connection can be tried.
        """
        return list(chain.from_iterable(self.parts(now)))

    def parts(self, now: float | None = None) -> Iterator[list[Event]]:
        """Do as look, in two parts: what the list of nodes shows, before the checks, which may take long; and the rest.
        If the cluster cannot be read, there is only one part.
        """
        now = time.time() if now is None else now
        for part, found in enumerate(self._find(now)):
            events = [event for key, event in found.items() if key not in self._known]
            ended = [event for key, event in self._known.items() if key not in found]
            events += [self._as_ended(event) for event in ended if event["type"] in ENDS]
            due = self._due_again(found, now, before_checks=part == 0)
            events += [{**found[key], "repeated": True} for key in due]
            self._known = found
            self._sent = {key: now if key in due else self._sent.get(key, now) for key in found}
            # Rulebooks pass events to playbooks as variables that Ansible trusts.
            chosen = [each for each in events if each["type"] not in TYPES or each["type"] in self._params["events"]]
            yield [inert(event) for event in chosen]

    def _due_again(self, found: Mapping[EventKey, Event], now: float, *, before_checks: bool) -> list[EventKey]:
        """Return the problems that were last sent so long ago that they are sent again. The rulebook may have dropped
        the first event, or its playbook may have failed.
        """
        every = self._params["repeat_interval"]
        certain = [key for key in found if key[0] in (OFFLINE, UNREACHABLE)] if before_checks else found
        return [key for key in certain if every and key in self._known and now - self._sent[key] >= every]

    def close(self) -> None:
        """Log out. The next look logs in again."""
        if self._access is not None:
            self._access.close()
            self._access = None

    @staticmethod
    def _as_ended(event: Event) -> Event:
        return {"type": ENDS[event["type"]], **{key: event[key] for key in SUBJECTS if key in event}}

    def _find(self, now: float) -> Iterator[dict[EventKey, Event]]:
        """Yield all problems, each with a key that stays the same as long as the problem lasts; first before the
        checks.

        What is not checked yet, or cannot be checked at present, counts as it did at the last look.
        """
        try:
            access = self._access = self._access or self._open()
            reading = Reading(access, read_snapshot(access.reader))
        except (InvalidRequest, MissingLibrary):
            raise
        except CollectionError as error:
            self.close()
            yield {**self._known, (UNREACHABLE,): {"type": UNREACHABLE, **_why(error)}}
            return
        offline = [node.name for node in reading.rows.nodes if not node.online]
        found: dict[EventKey, Event] = {(OFFLINE, name): {"type": OFFLINE, "node": name} for name in offline}
        earlier = {key: event for key, event in self._known.items() if event["type"] not in (OFFLINE, UNREACHABLE)}
        yield found | earlier
        for kind, check in self._checks(reading, now):
            try:
                found |= check()
            except CollectionError as error:
                found |= self._last_of(kind)
                found[FAILED, kind] = {"type": FAILED, "check": kind, **_why(error)}
        yield found

    def _open(self) -> Access:
        return Access.open({**self._params, "reservations": "none"}, self._facts)

    def _last_of(self, kind: str) -> dict[EventKey, Event]:
        """Return the problems of one type at the last look."""
        return {key: event for key, event in self._known.items() if event["type"] == kind}

    def _checks(self, reading: Reading, now: float) -> Iterator[tuple[str, Callable[[], dict[EventKey, Event]]]]:
        """Yield the checks that the options ask for, by the type of the events that they find."""
        chosen = self._params["events"]
        if CAPACITY in chosen and (shapes := self._shapes) is not None:
            yield CAPACITY, lambda: self._confirm(CAPACITY, partial(self._too_small, shapes), reading)
        if BROKEN in chosen:
            yield BROKEN, lambda: self._confirm(BROKEN, self._violations, reading)
        if DRIFT in chosen and self._params["vms"]:
            yield DRIFT, lambda: self._find_drift(now)

    def _confirm(
        self, kind: str, check: Callable[[Access, Snapshot], Iterator[tuple[EventKey, Event]]], reading: Reading
    ) -> dict[EventKey, Event]:
        """Return the problems that a check finds. What has changed since the last look is looked at without outdated
        rows.
        """
        try:
            found = dict(check(reading.access, reading.seen))
            if found.keys() == self._last_of(kind).keys():
                return found
        except (TemplateNotFound, AmbiguousName):
            if (FAILED, kind) in self._known:
                raise
        return dict(check(reading.access, reading.settled_snapshot))

    def _too_small(self, shapes: Shapes, access: Access, snapshot: Snapshot) -> Iterator[tuple[EventKey, Event]]:
        """Yield an event if fewer VMs of the shape fit than required."""
        least = self._params["capacity"]["at_least"]
        report = shapes.fit(access, count_reservations(snapshot, ()), most=least, fresh=False)
        if report.total < least:
            amount = {"fit": report.total, "at_least": least}
            yield (CAPACITY,), {"type": CAPACITY, **amount, "limited_by": report.limited_by, "reason": report.reason}

    def _violations(self, access: Access, snapshot: Snapshot) -> Iterator[tuple[EventKey, Event]]:
        """Yield the guests on nodes where a rule or a limit forbids them."""
        managed = any(guest.ha_managed for guest in snapshot.guests)
        whole = complete_snapshot(access.reader, snapshot, Needs(ha_rules=True)) if managed else snapshot
        guests = {guest.vmid: guest for guest in whole.guests}
        for vmid, why in broken_guests(ClusterState(whole), self._profiles, self._profile).items():
            guest = {"vmid": vmid, "name": guests[vmid].name, "node": guests[vmid].node}
            yield (BROKEN, str(vmid), why.plugin, why.reason), {"type": BROKEN, **guest, "reason": why.text}

    def _find_drift(self, now: float) -> dict[EventKey, Event]:
        """Return the VMs of the list that had drifted from it at the last comparison, which is made now if it is due.
        """
        if now >= self._next_drift:
            self._drift = dict(self._compare(now))
            self._next_drift = now + self._params["drift_interval"]
        return self._drift

    def _compare(self, now: float) -> Iterator[tuple[EventKey, Event]]:
        """Yield the VMs of the list that have drifted from it. One whose node does not answer counts as at the last
        comparison, as its node is an event of its own.
        """
        params = {**self._params, "reservations": "none", "unmanaged": False}
        for vm in fleet_info(params, ONE_VM_OPTIONS, now)["vms"]:
            error = (vm["error"] or {}).get("code")
            if error == ConnectionFailed.code:
                yield from ((key, event) for key, event in self._drift.items() if event["name"] == vm["name"])
            elif vm["state"] != OK:
                told = {
                    key: vm[key] for key in ("name", "vmid", "node", "state", "drift", "pending", "broken", "error")
                }
                # The texts and numbers in it may change while it lasts.
                about = (vm["name"], vm["vmid"], vm["state"], sorted(vm["drift"]), sorted(vm["pending"]), error)
                yield (DRIFT, json.dumps([*about, len(vm["broken"])])), {"type": DRIFT, **told}


def _why(error: CollectionError) -> dict[str, str]:
    return {"error_code": error.code, "message": error.message}
