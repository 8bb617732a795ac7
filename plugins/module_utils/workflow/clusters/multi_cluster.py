# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The walk of a task about several clusters: one scheduling cycle over all of them, then a run for the share of each.

The task repeats this with VMs that no longer fit on their cluster, and with those that fit nowhere, as soon as another
try may succeed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from ...errors import ApiError, CollectionError, ConnectionFailed, VMNotKnown
from ...model import VMID_MAX, Guest, Snapshot
from ...proxmox.api.reader import in_parallel
from ...proxmox.api.session import endpoint_of
from ...proxmox.inventory.snapshot import read_settled
from ...reservations.lease import LeaseLost
from ..access import OtherCluster
from ..job import TRIES, Job
from ..options.entries import Entry
from ..options.run_options import RunOptions
from ..options.task import Task
from ..placement import Placement, decisions_of
from ..placing import FindSurplus, Placer
from ..progress import Progress, Wait
from ..report import NodeUsage, VMReport, keep_before, report_of
from ..run import Run
from ..stopping import Stop
from ..waiting import Waiting
from .connections import Cluster, connect
from .joint_cycle import FindRemovals, JointCycle, Site, names_reserved_at
from .shares import Gate, Steps
from .whereabouts import Silent


class MultiClusterRun:
    """One run over the entries of a task, on several clusters. Attributes as in Run."""

    def __init__(
        self,
        options: RunOptions,
        clusters: Sequence[Cluster],
        task: Task,
        progress: Progress | None = None,
    ) -> None:
        """Connect to the clusters. Raises ConnectionFailed when none of them answers, InvalidRequest, ..."""
        found, self._down = connect(clusters)
        if not found:
            raise ConnectionFailed("no cluster can be reached: " + "; ".join(e.message for e in self._down.values()))
        profiles, default_profile = task.profiles, task.default_profile
        sites = [
            Site(cluster, access, Placer(access, replace(task, pools={})))
            for cluster in clusters
            if (access := found.get(cluster.name)) is not None
        ]
        self._all_sites = tuple(sites)
        self._cycle = JointCycle(sites, Silent(skip=options.skip_unreachable), profiles, default_profile)
        self._clusters = {cluster.name: cluster for cluster in clusters}
        self._options = options
        self._progress = progress or (lambda step: None)
        self._profile_of = lambda request: profiles[request.profile or default_profile]
        # Options that concern all VMs together are handled here, where all clusters are known.
        self._of_share = replace(options, all_or_nothing=False, wait_for_capacity=0.0)
        # By position of the entry.
        self._jobs: dict[int, Job] = {}
        # Each cluster as it was read or glanced at last.
        self._shown: dict[Site, Snapshot] = {}
        self.warnings: list[str] = []
        self.wrote = False
        self.interrupted = False

    @property
    def nodes(self) -> list[NodeUsage]:
        """The usage of the nodes of all clusters before and after the run."""
        return [usage for site in self._all_sites for usage in site.nodes]

    def guests(self) -> dict[str, Sequence[Guest]]:
        """Return all guests of the clusters that answer, by cluster name."""
        read = in_parallel(lambda site: read_settled(site.access.reader, patience=0).guests, self._cycle.sites)
        return {site.name: guests for site, guests in read.items()}

    def close(self) -> None:
        for site in self._all_sites:
            site.access.close()

    def execute(
        self, entries: Sequence[Entry], *, check_mode: bool, surplus: FindSurplus | None = None
    ) -> list[VMReport]:
        """Execute the run and return one report per entry, in order. As Run.execute. surplus finds further VMs, which
        the run removes, among the guests.
        """
        write = not (check_mode or any(site.access.offline for site in self._all_sites))
        self._jobs = {entry.position: Job(entry) for entry in entries}
        try:
            self._note_down()
            self._place_and_create(entries, surplus, write=write)
        except KeyboardInterrupt:
            self.interrupted = True
            for site in self._all_sites if write else ():
                # Reservations that cannot be released expire when this process ends.
                with suppress(CollectionError):
                    site.placer.give_back([job for job in site.jobs if not job.begun])
        for job in self._jobs.values() if self.interrupted else ():
            job.interrupt()
        for name, reason in self._cycle.silent.reasons.items():
            self.warnings.append(f"cluster {name!r} cannot be reached and takes no part: {reason}")
        return [report_of(job) for job in self._jobs.values()]

    def _note_down(self) -> None:
        """Note which clusters are down, and which VMs are being created there according to the ledger."""
        access = self._all_sites[0].access
        for name, error in self._down.items():
            known = access.ledger.endpoint(*endpoint_of(self._clusters[name].params))
            reserved = set() if known is None else names_reserved_at(access, known[0])
            self._cycle.silent.add(name, error.message, reserved)

    def _place_and_create(self, entries: Sequence[Entry], surplus: FindSurplus | None, *, write: bool) -> None:
        """Place the entries and carry that out, in rounds, until no VM is worth another try."""
        patience = self._options.wait_for_capacity if write else 0.0
        waiting = Waiting(patience, self._profile_of, self._glance, tell=self._tell_wait)
        due, rounds, looked = entries, 0, False
        beyond: tuple[Sequence[Entry], Sequence[str]] = ((), ())

        def find(guests: Iterable[Guest]) -> Sequence[Entry]:
            nonlocal beyond
            beyond = ((), ()) if surplus is None else surplus(guests)
            return beyond[0]

        while due or (surplus is not None and not looked):
            rounds += 1
            try:
                jobs = self._place(due, None if looked or surplus is None else find, reserve=write)
            except CollectionError as error:
                if isinstance(error, (OtherCluster, LeaseLost)) and rounds < TRIES:
                    continue
                if not looked:
                    raise
                # The outcomes of the others still have to be reported.
                for entry in due:
                    self._jobs[entry.position].fail(error)
                return
            if not looked:
                entries = [*entries, *beyond[0]]
                self.warnings.extend(beyond[1])
            looked = True
            stands = self._carry_out_unless_held_back(jobs, write=write)
            if self.interrupted:
                return
            lost = [job for job in jobs if _lost_its_place(job)] if stands and write and rounds < TRIES else []
            again = lost or self._wait_for_next_round([] if stands else jobs, waiting)
            # Entries that a cluster completed, for example with the sizes in a backup, are valid for that cluster only.
            due = [entry for entry in entries if entry.position in {job.entry.position for job in again}]

    def _place(self, due: Sequence[Entry], surplus: FindRemovals | None, *, reserve: bool) -> list[Job]:
        """Go through a scheduling cycle over all clusters and return the jobs of the entries."""
        all_or_nothing = self._options.all_or_nothing and not self.wrote
        loose = self._cycle.place(due, all_or_nothing=all_or_nothing, reserve=reserve, surplus=surplus)
        jobs = [*loose, *(job for site in self._cycle.sites for job in site.jobs)]
        for job in jobs:
            earlier = self._jobs.get(job.entry.position)
            if earlier is not None:
                job.follow(earlier)
            self._jobs[job.entry.position] = job
        return jobs

    def _carry_out_unless_held_back(self, jobs: Sequence[Job], *, write: bool) -> bool:
        """Carry the jobs out, or only report on them if one has failed that all others depend on. Returns whether they
        were carried out.
        """
        failed = any(job.error is not None for job in self._jobs.values())
        held = self._options.all_or_nothing and not self.wrote and failed
        stands = self._carry_out(write=write and not held) and not held
        for job in jobs:
            job.held_back = job.held_back or not stands
        return stands

    def _wait_for_next_round(self, held: Sequence[Job], waiting: Waiting) -> Sequence[Job]:
        """Wait for capacity, or for names that are not known, and return the jobs of the next round: those held back,
        or those that were waited for.
        """
        failed = [job for job in self._jobs.values() if job.error is not None]
        unplaced = [job for job in failed if job.is_unplaced]
        doubtful = [job for job in failed if isinstance(job.error, VMNotKnown)]
        vain = bool(held) and not all(job.is_hopeful or job in doubtful for job in failed)
        again = False
        try:
            if waiting.patience > 0 and not vain:
                seen = self._combined_snapshot()
                again = bool(doubtful) and waiting.wait_until_names_are_known(doubtful)
                again = again or waiting.wait_for_a_chance(unplaced, seen)
        except CollectionError as error:
            for job in unplaced:
                job.fail(error)
        for job in (*unplaced, *doubtful) if waiting.patience else ():
            job.note_wait(waiting.waited)
        return (held or [*unplaced, *doubtful]) if again else []

    def _carry_out(self, *, write: bool) -> bool:
        """Run the shares of all clusters at the same time. Returns whether their plans allow them to write."""
        sites = self._cycle.sites
        gate = Gate([site.name for site in sites], all_or_nothing=self._options.all_or_nothing and not self.wrote)
        steps = Steps(self._progress, {site.name: len(decisions_of(site.jobs)) for site in sites})
        shares = {site: self._share(site, site.placement, gate, steps) for site in sites if site.placement is not None}

        def carry_out(site: Site, share: Run) -> None:
            try:
                share.execute(check_mode=not write)
            finally:
                gate.arrive(site.name, failed=bool(share.failed_jobs()))

        with Stop().threads(max(len(shares), 1)) as pool:
            futures = [pool.submit(carry_out, site, share) for site, share in shares.items()]
            try:
                for future in futures:
                    future.result()
            except KeyboardInterrupt:
                self.interrupted = True
                # Signals reach only this thread.
                for share in shares.values():
                    share.end_early()
                for future in futures:
                    future.result()
        for site, share in shares.items():
            site.lessons = share.lessons
            site.nodes = keep_before(site.nodes, share.nodes)
            for usage in site.nodes:
                usage.cluster = site.name
            self.warnings.extend(f"cluster {site.name!r}: {text}" for text in share.warnings)
            self.wrote = self.wrote or share.wrote
        return gate.wait()

    def _share(self, site: Site, placement: Placement, gate: Gate, steps: Steps) -> Run:
        """Return the run of one cluster. Its first scheduling cycle was gone through together with those of the others.
        """
        return Run(
            self._of_share,
            site.access,
            site.placer,
            site.jobs,
            steps.of(site.name),
            lessons=site.lessons,
            placement=placement,
            wait_for_others=partial(gate.pass_through, site.name),
        )

    def _combined_snapshot(self) -> Snapshot:
        """Return all clusters as the latest cycle read them, combined into one snapshot."""
        self._shown = {site: site.placement.seen.snapshot for site in self._cycle.sites if site.placement is not None}
        return _as_one(self._shown)

    def _glance(self) -> Snapshot:
        """Return all clusters as a single request each shows them, combined into one snapshot: enough to notice
        changes. One that does not answer counts as it was shown last.
        """

        def look(site: Site) -> None:
            with suppress(ApiError, ConnectionFailed):
                self._shown[site] = site.access.glance()

        in_parallel(look, self._shown)
        return _as_one(self._shown)

    def _tell_wait(self, jobs: Collection[Job], waited: float) -> None:
        self._progress(Wait.of(jobs, waited, self._options.wait_for_capacity))


def _as_one(snapshots: Mapping[Site, Snapshot]) -> Snapshot:
    """Combine several clusters into one snapshot, to compare it with the same clusters at another time."""
    nodes, guests, storages = [], [], []
    for number, (site, snapshot) in enumerate(snapshots.items()):
        prefix, offset = f"{site.name}/", number * (VMID_MAX + 1)
        nodes += [replace(node, name=prefix + node.name) for node in snapshot.nodes]
        guests += [replace(guest, vmid=guest.vmid + offset) for guest in snapshot.guests]
        storages += [replace(storage, name=prefix + storage.name) for storage in snapshot.storages]
    return Snapshot(tuple(nodes), tuple(guests), tuple(storages))


def _lost_its_place(job: Job) -> bool:
    """Whether a VM no longer fits on its chosen cluster, and certainly was not created there."""
    return (
        job.cluster is not None
        and job.is_unplaced
        and not job.begun
        and not isinstance(job.requeued_by, ConnectionFailed)
    )
