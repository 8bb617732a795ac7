# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One scheduling cycle over several clusters: read all of them, match existing VMs, place the others and reserve their
places.

The task holds the leases of all clusters meanwhile. It acquires them in the order of the clusters' identities, which is
the same on every controller, so that two tasks never wait for each other.
"""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

from ...engine.batch_cycle import schedule_all
from ...engine.profiles import Profile
from ...engine.several_clusters import Member, MultiClusterScheduler
from ...engine.texts import join_words
from ...errors import CollectionError, ConnectionFailed, NoQuorum
from ...model import Guest, Request
from ...proxmox.api.reader import in_parallel
from ...proxmox.tasks import QuorumGuard
from ...reservations.ledger import LeasedCycle
from ..access import Access, OtherCluster
from ..bridges import ask_if_bridges_lack
from ..job import Job
from ..options.entries import Entry
from ..placement import Lessons, Placement, Seen
from ..placing import Placer
from ..report import NodeUsage
from .connections import Cluster
from .whereabouts import Finding, Silent, whereabouts

T = t.TypeVar("T")

FindRemovals = Callable[[Iterable[Guest]], Sequence[Entry]]


class SiteLost(Exception):
    """A cluster no longer answers. The cycle starts again with the others."""


@dataclass(slots=True, eq=False)
class Site:
    """One cluster that answers.

    Attributes:
        jobs: the jobs of VMs that the latest cycle found there or placed there; placement is the result of that cycle.
        nodes: the usage of its nodes before and after the task.
        lessons: what the runs on it have learnt.
    """

    cluster: Cluster
    access: Access
    placer: Placer
    jobs: list[Job] = field(default_factory=list)
    placement: Placement | None = None
    nodes: list[NodeUsage] = field(default_factory=list)
    lessons: Lessons = field(default_factory=Lessons)

    @property
    def name(self) -> str:
        return self.cluster.name


@dataclass(slots=True)
class JointCycle:
    """The cycle of one task.

    Attributes:
        sites: the clusters that answer. One that stops answering is moved to silent.
    """

    sites: list[Site]
    silent: Silent
    profiles: Mapping[str, Profile]
    default_profile: str

    def place(
        self, entries: Sequence[Entry], *, all_or_nothing: bool, reserve: bool, surplus: FindRemovals | None = None
    ) -> list[Job]:
        """Run the cycle, and return the jobs of VMs that belong to no cluster: they failed, or shall be absent and are.
        The other jobs are stored in the sites.

        reserve and all_or_nothing as in Placer.place. surplus returns entries that remove further VMs, of the guests of
        all clusters; it may be called several times, and the last call counts. Raises OtherCluster and LeaseLost if the
        cycle has to be repeated, and what reading raises.
        """
        with ExitStack() as leases:
            cycles: dict[str, LeasedCycle | None] = {}
            for site in sorted(self.sites, key=lambda site: site.access.identity()):
                cycles[site.name] = leases.enter_context(site.placer.lease()) if reserve else None
            loose = None
            while loose is None:
                with suppress(SiteLost):
                    loose = self._decide(entries, cycles, surplus)
            jobs = [*loose, *(job for site in self.sites for job in site.jobs)]
            if not (all_or_nothing and any(job.error for job in jobs)):
                self._reserve(cycles)
            return loose

    def _decide(
        self, entries: Sequence[Entry], cycles: Mapping[str, LeasedCycle | None], surplus: FindRemovals | None
    ) -> list[Job]:
        """Read all clusters, find the cluster of each existing VM, and decide about the others."""
        guests: dict[Site, Sequence[Guest]] = {}

        def note(site: Site, shown: Iterable[Guest]) -> tuple[Sequence[Entry], Sequence[str]]:
            guests[site] = tuple(shown)
            return (), ()

        def read(site: Site) -> Seen:
            jobs = [Job(entry, cluster=site.name) for entry in entries]
            find = None if surplus is None else partial(note, site)
            return site.placer.read(jobs, site.lessons, cycles[site.name], find)

        seen = self._call_each(read)
        if surplus is not None and (removals := surplus(chain.from_iterable(guests[site] for site in seen))):
            entries = [*entries, *removals]
            seen = self._call_each(read)
        whole: set[Site] = set()
        while True:
            loose = self._place_all(entries, seen, whole)
            lacks = self._call_each(lambda site: site not in whole and _ask_if_bridges_lack(site))
            if not any(lacks.values()):
                return loose
            whole.update(site for site in lacks if lacks[site])
            for site, each in seen.items():
                site.placer.take_back(each.matches, each)

    def _place_all(self, entries: Sequence[Entry], seen: Mapping[Site, Seen], whole: Collection[Site]) -> list[Job]:
        """Find the cluster of each existing VM, and place the others. The bridges of all nodes are read of clusters in
        whole.
        """
        loose: list[Job] = []
        for site in self.sites:
            site.jobs = []
        by_name = {site.name: site for site in self.sites}
        shown = {site: _findings(seen[site]) for site in self.sites}
        candidates: dict[str, list[tuple[Site, Job]]] = {}
        for number, entry in enumerate(entries):
            found = {site.name: shown[site][number] for site in self.sites}
            where = whereabouts(entry, found, self.silent)
            if isinstance(where, Job):
                (by_name[where.cluster].jobs if where.cluster is not None else loose).append(where)
                continue
            elsewhere = [name for name, each in found.items() if each.match.guest is not None]
            for name in where if elsewhere else ():
                found[name].job.warn(
                    f"exists on cluster {join_words(elsewhere)} as well, which its entry does not name"
                )
            candidates[entry.request.name] = [(by_name[name], found[name].job) for name in where]
        return loose + self._schedule(seen, candidates, whole)

    def _call_each(self, work: Callable[[Site], T]) -> dict[Site, T]:
        """Call work for all clusters at the same time. Raises SiteLost if one of them did not answer."""

        def answer_of(site: Site) -> T | ConnectionFailed:
            try:
                return work(site)
            except OtherCluster:
                raise
            except ConnectionFailed as error:
                return error

        answers = in_parallel(answer_of, self.sites)
        found = {site: answer for site, answer in answers.items() if not isinstance(answer, ConnectionFailed)}
        for site, answer in answers.items():
            if isinstance(answer, ConnectionFailed):
                self.sites.remove(site)
                self.silent.add(site.name, answer.message, names_reserved_at(site.access, site.access.identity()))
        if len(found) < len(answers):
            raise SiteLost
        return found

    def _schedule(
        self,
        seen: Mapping[Site, Seen],
        candidates: Mapping[str, Sequence[tuple[Site, Job]]],
        whole: Collection[Site],
    ) -> list[Job]:
        """Place the new VMs, each on one of its candidates, by name. Returns the jobs that fit nowhere."""
        new: dict[Site, list[Job]] = {site: [] for site in self.sites}
        for options in candidates.values():
            for site, job in options:
                new[site].append(job)

        def prepare(site: Site) -> tuple[Placement, dict[Job, Request]]:
            _require_quorum(site, new[site])
            placement = site.placer.prepare([*site.jobs, *new[site]], seen[site], all_bridges=site in whole)
            return placement, site.placer.complete_requests(placement, placement.new)

        prepared = self._call_each(prepare)
        placements = {site: placement for site, (placement, _requests) in prepared.items()}
        members = [_member(site, placement, new[site], requests) for site, (placement, requests) in prepared.items()]
        scheduler = MultiClusterScheduler(members, self.profiles, self.default_profile, self.silent.reasons)
        wanted = [options[0][1].entry.request for options in candidates.values()]
        present = [request for site, each in placements.items() for request in site.placer.requests_for_existing(each)]
        with ExitStack() as counted:
            for placement in placements.values():
                counted.enter_context(placement.with_starting())
            outcomes = schedule_all(scheduler, wanted, time.time(), present)
        loose: list[Job] = []
        for (name, options), outcome in zip(candidates.items(), outcomes, strict=True):
            chosen = scheduler.chosen.get(name)
            if chosen is None:
                job = Job(options[0][1].entry)
                job.schedule(outcome)
                loose.append(job)
                for site, each in options:
                    if each in prepared[site][1]:
                        each.schedule(replace(outcome, request=prepared[site][1][each]))
            else:
                site, job = next(each for each in options if each[0].name == chosen.member.name)
                site.placer.note(job, outcome, placements[site])
                site.jobs.append(job)
            job.tried = scheduler.verdicts.get(name, ())
        for site, placement in placements.items():
            site.placer.conclude(placement)
            site.placement = placement
        return loose

    def _reserve(self, cycles: Mapping[str, LeasedCycle | None]) -> None:
        """Reserve the decisions about all clusters, or none."""
        reserved: list[Site] = []
        try:
            for site in self.sites:
                cycle = cycles[site.name]
                if cycle is not None:
                    site.placer.reserve(site.jobs, cycle)
                    reserved.append(site)
        except BaseException:
            for site in reserved:
                with suppress(CollectionError):
                    site.placer.give_back(site.jobs)
            raise


def names_reserved_at(access: Access, identity: str) -> set[str]:
    """Return the names of the VMs that are being created on a cluster, by the ledger of any cluster."""
    return {reservation.name for reservation in access.ledger.reservations(identity)}


def _ask_if_bridges_lack(site: Site) -> bool:
    access, placement = site.access, site.placement
    return placement is not None and access.known_bridges is not None and ask_if_bridges_lack(access, placement)


def _require_quorum(site: Site, new: Collection[Job]) -> None:
    """Fail the new VMs of a cluster that answers, but to which nothing can be written."""
    try:
        if new and not site.access.offline:
            QuorumGuard(site.access.reader, time.monotonic).require("no VM can be created")
    except NoQuorum as error:
        for job in new:
            job.fail(error)


def _member(site: Site, placement: Placement, new: Collection[Job], requests: Mapping[Job, Request]) -> Member:
    obstacles = {job.entry.request.name: job.error for job in new if job.error is not None}
    by_name = {job.entry.request.name: request for job, request in requests.items()}
    return Member(site.name, site.cluster.labels, placement.scheduler, by_name, obstacles)


def _findings(seen: Seen) -> list[Finding]:
    """Return what one cluster shows about each VM, in the order of the entries."""
    names = {guest.name for guest in seen.counted.snapshot.guests}
    return [Finding(job, match, job.entry.request.name in names) for job, match in seen.matches.items()]
