# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads which nodes are due for maintenance, and what forbids it apart from their guests."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ...proxmox.api.reader import in_parallel
from ...proxmox.ceph import nodes_with_ceph, read_flag
from ...proxmox.datacenter import ask_if_ha_balances
from ...proxmox.moves.tour_record import NOOUT, TourRecord, read_record
from ...proxmox.node_health import read_health, require_members
from ...proxmox.node_needs import read_needs
from ...proxmox.quorum import Quorum, read_quorum
from ..access import Access
from .obstacles import Obstacle, backup_obstacles, ceph_obstacles, health_obstacles, quorum_obstacles
from .tour_options import TourOptions

NO_NEED, DONE = "it needs no maintenance", "it was maintained a short while ago"


@dataclass(slots=True)
class Survey:
    """What was read before the tour is planned.

    Attributes:
        due: the nodes to maintain.
        done: those that were maintained a short while ago.
        needs: why a node needs maintenance.
        skipped: the nodes that are not maintained, each with the reason.
        unfinished: nodes of the task that an earlier run has begun, and that need no maintenance any more.
        sets_options: whether the tour changes settings of the whole cluster.
        with_ceph: the nodes with Ceph, read only if several nodes may be away at once.
    """

    quorum: Quorum
    record: TourRecord
    due: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    needs: dict[str, list[str]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    unfinished: tuple[str, ...] = ()
    obstacles: list[Obstacle] = field(default_factory=list)
    sets_options: bool = False
    with_ceph: frozenset[str] = frozenset()

    def may_be_away(self, names: frozenset[str]) -> bool:
        """Whether these nodes may be away at once: the cluster keeps its quorum, and at most one has copies of Ceph's
        data or a monitor.
        """
        return len(self.with_ceph & names) <= 1 and not self.quorum.objection(names)


def read_survey(access: Access, names: Iterable[str], options: TourOptions) -> Survey:
    """Read which nodes are due, and what forbids their maintenance. Raises InvalidRequest for an unknown node."""
    reader, session = access.reader, access.writer()
    members = _members(reader.get("/cluster/status"))
    survey = Survey(read_quorum(reader), read_record(session, members) or TourRecord())
    wanted = list(dict.fromkeys(names)) or sorted(members)
    require_members(wanted, members)
    now, within = time.time(), options.resume * 3600
    # A time far in the future, which only an edited record has, is no reason to leave a node out for ever.
    survey.done = tuple(name for name in wanted if now - within < survey.record.done.get(name, 0) < now + within)
    left = [name for name in wanted if name not in survey.done]
    if options.tests_needs:
        require_members(options.needed, members, "needed")
        online = [name for name in left if options.only_if and name in survey.quorum.online]
        found = in_parallel(lambda name: read_needs(reader, name, options.only_if), online)
        survey.needs = {name: [*found.get(name, []), *options.needed.get(name, [])] for name in left}
    survey.due = tuple(name for name in left if not options.tests_needs or survey.needs[name])
    survey.skipped = {name: NO_NEED for name in left if name not in survey.due}
    survey.skipped |= dict.fromkeys(survey.done, DONE)
    # Whether another node is fit, whose maintenance may have failed, is not for this task to say.
    survey.unfinished = tuple(name for name in survey.record.begun if name in wanted and name not in survey.due)
    if survey.due:
        survey.obstacles += health_obstacles(read_health(reader, sorted(members), options.accept))
        survey.obstacles += quorum_obstacles(survey.quorum, survey.due, options.accept)
        survey.obstacles += ceph_obstacles(reader, survey.due, options.accept)
        if options.backup_window:
            at = reader.server_time() or now
            survey.obstacles += backup_obstacles(reader, options.backup_window, at, options.accept)
        if options.parallel_nodes > 1:
            survey.with_ceph = nodes_with_ceph(reader, survey.due)
        survey.sets_options = ask_if_ha_balances(session) or (options.noout and read_flag(session, NOOUT) is False)
    return survey


def _members(rows: Iterable[Mapping[str, t.Any]]) -> set[str]:
    return {str(row["name"]) for row in rows if row.get("type") == "node"}
