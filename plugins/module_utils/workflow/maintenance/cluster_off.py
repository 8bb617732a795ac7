# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shuts a whole cluster down: guests, then nodes."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace

from ...engine.texts import join_words
from ...errors import GoalsNotReached, ShutdownRefused
from ...proxmox.ceph import SHUTDOWN_FLAGS, read_flag, read_monitors, set_flag
from ...proxmox.inventory.ha_state import ask_if_ha_has_resources
from ...proxmox.moves.drain_marks import fingerprint
from ...proxmox.moves.shutdown_record import POOL, Ran
from ...proxmox.node_health import ceph_problems
from ...proxmox.node_power import (
    ARMED,
    DISARMED,
    STANDBY,
    Membership,
    disarm,
    read_armed_state,
    read_membership,
    shut_down_node,
)
from ..moves.draining import require_sight
from ..moves.results import failure_with
from .cluster_work import PowerWork, step
from .obstacles import Obstacle, missing_rights
from .power import Running


@dataclass(frozen=True, slots=True)
class ShutdownPlan:
    """What a shutdown does. waves: the guests in the order in which they start. nodes: those to shut down, in order."""

    waves: list[list[Running]]
    nodes: list[str]
    flags: list[str]
    disarms: bool
    uses_ha: bool
    refused: list[Obstacle]

    def steps(self) -> Iterator[dict[str, t.Any]]:
        if self.disarms:
            yield step("disarm HA", ["all resources"])
        for wave in reversed(self.waves):
            yield step("shut guests down", [guest.label for guest in wave])
        if self.flags:
            yield step("set flags of Ceph", self.flags)
        if self.nodes:
            yield step("shut nodes down", self.nodes)


class ClusterShutdown(PowerWork):
    """Shuts guests down, then the nodes."""

    def run(self, check_mode: bool) -> dict[str, t.Any]:
        membership = read_membership(self.session)
        plan = self._plan(membership)
        told = [asdict(each) for each in plan.refused]
        if plan.refused:
            text = "; ".join(
                f"{f'{each.node}: ' if each.node else ''}{each.why} (cure: {each.cure})" for each in plan.refused
            )
            error = ShutdownRefused(f"the shutdown is refused, and nothing was changed: {text}", refused=told)
            raise failure_with(error, self.result(plan.steps(), refused=told))
        if check_mode:
            self.done.changed = bool(list(plan.steps()))
            return self.result(plan.steps(), refused=[])
        try:
            self._carry_out(plan, membership)
        except GoalsNotReached as error:
            raise failure_with(error, self.result(plan.steps(), refused=[])) from error
        return self.result(plan.steps(), refused=[])

    def _plan(self, membership: Membership) -> ShutdownPlan:
        require_sight(self.session, (), guests=not self.options.allow_hidden, marks=False)
        guests = [guest for guest in self.read_guests(membership) if guest.running]
        state, uses_ha = read_armed_state(self.session), ask_if_ha_has_resources(self.session)
        flags = [flag for flag in SHUTDOWN_FLAGS if self.options.nodes and read_flag(self.session, flag) is False]
        disarms = uses_ha and state in (ARMED, STANDBY)
        return ShutdownPlan(
            waves=self.waves(guests, self.options.rank_of),
            nodes=self._order_nodes(membership) if self.options.nodes else [],
            flags=flags,
            disarms=disarms,
            uses_ha=uses_ha and not (disarms or state == DISARMED),
            refused=list(self._obstacles(membership, guests, disarms, bool(flags))),
        )

    def _order_nodes(self, membership: Membership) -> list[str]:
        """Return the nodes that are online: those with a monitor of Ceph after the others, and the one that answers
        last.
        """
        monitors = read_monitors(self.session)
        there = [member for member in membership.members if member.online]
        there.sort(key=lambda member: (member.answers, member.name in monitors, member.name))
        return [member.name for member in there]

    def _obstacles(
        self, membership: Membership, guests: Iterable[Running], disarms: bool, sets_flags: bool
    ) -> Iterator[Obstacle]:
        if not membership.quorate:
            yield Obstacle("", "", "the cluster has no quorum, so that nothing can be recorded", "bring nodes back")
        for name in membership.offline if not self.options.accepts("offline") else ():
            cure = "bring it back, or add offline to accept"
            yield Obstacle(name, "offline", "it is offline, so that nobody knows which of its guests should run", cure)
        for guest in guests:
            lock = guest.config.get("lock")
            if lock and not self.options.accepts("lock"):
                why = f"{guest.label} is locked ({lock}), so that it cannot be shut down"
                yield Obstacle(guest.node, "lock", why, "wait until that has ended, or add lock to accept")
        for problem in ceph_problems(self.session) if self.options.nodes else ():
            if not self.options.accepts(problem.name):
                cure = f"correct that, or add {problem.name} to accept"
                yield Obstacle("", problem.name, problem.text, cure)
        wanted = [("Pool.Allocate", f"/pool/{POOL}")]
        wanted += [("VM.PowerMgmt", f"/vms/{guest.vmid}") for guest in guests]
        wanted += [("Sys.Console", "/")] if disarms else []
        wanted += [("Sys.Modify", "/")] if sets_flags else []
        if self.options.nodes:
            wanted += [("Sys.PowerMgmt", f"/nodes/{member.name}") for member in membership.members]
        yield from missing_rights(self.session.get("/access/permissions"), wanted)

    def _carry_out(self, plan: ShutdownPlan, membership: Membership) -> None:
        ran = {
            guest.vmid: Ran(fingerprint(guest.identity), self.options.rank_of(guest))
            for wave in plan.waves
            for guest in wave
        }
        record = replace(self.record, ran={**self.record.ran, **ran}, disarmed=self.record.disarmed or plan.disarms)
        self.write(record)
        if plan.disarms:
            disarm(self.session)
            self.done.changed = True
        if record.disarmed:
            self.await_armed_state(DISARMED)
        for wave in reversed(plan.waves):
            causes = self.do_for_each(wave, self._shut_down)
            if causes:
                raise GoalsNotReached(f"guests still run, and no node was shut down: {'; '.join(causes.values())}")
        running = [guest.label for guest in self.read_guests(membership) if guest.running]
        if running:
            raise GoalsNotReached(f"guests still run, and no node was shut down: {join_words(running)}; run again")
        self.write(replace(self.record, flags=self.record.flags | set(plan.flags)))
        for flag in plan.flags:
            set_flag(self.session, flag, True)
            self.done.changed = True
        self._shut_nodes_down(plan)

    def _shut_down(self, guest: Running) -> bool:
        self.power.shut_down(guest, self.options.seconds, force=self.options.force)
        return True

    def _shut_nodes_down(self, plan: ShutdownPlan) -> None:
        """Shut the nodes down, the one that answers last, when the others are off.

        While HA is armed, a node without quorum may be reset by its watchdog, which starts it again: there is no wait.
        """
        for name in plan.nodes[:-1]:
            self._shut_node_down(name)
        others = set(plan.nodes[:-1])
        if others and not plan.uses_ha:
            left = self.poller.until(
                lambda: True if others <= set(read_membership(self.session).offline) else None, self.options.wait
            )
            if not left:
                names = join_words(sorted(others - set(read_membership(self.session).offline)))
                raise GoalsNotReached(
                    f"{names} did not go off within {self.options.wait:g} s, so that {plan.nodes[-1]} stays on;"
                    f" shut them down by hand"
                )
        for name in plan.nodes[-1:]:
            self._shut_node_down(name)

    def _shut_node_down(self, name: str) -> None:
        shut_down_node(self.session, name)
        self.done.nodes.append(name)
        self.done.changed = True
