# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scheduling cycle of a run: read the cluster, match existing VMs, place the others and reserve their places.

The lease keeps other processes from deciding about the same cluster meanwhile. A run may go through several cycles, for
example if a VMID was taken before its VM was created.
"""

from __future__ import annotations

import contextlib
import time
import typing as t
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from ..engine.cache import ClusterState
from ..engine.framework.interface import Subject
from ..engine.framework.status import Category
from ..engine.profiles import Profile
from ..engine.scheduling_cycle import Scheduler
from ..engine.usual import with_demand
from ..engine.verdicts import Outcome
from ..errors import CollectionError
from ..model import Guest, Request, Snapshot
from ..proxmox.inventory.freshness import SETTLING
from ..proxmox.making import TEMPLATE
from ..proxmox.options.contradictions import check_new, config_with
from ..reservations.ledger import LeasedCycle
from .access import Access, subjects_of
from .address_claims import Claims, original_of
from .bridges import ask_if_bridges_lack
from .cautions import allocation_cautions
from .counting import (
    cluster_state,
    count_reservations,
    known_guests,
    requests_of_existing,
    reservation_of,
    with_moves,
    with_rules_of,
)
from .existing.matching import Match, doubts, is_silent, match_entries
from .job import Job, State
from .options.entries import NOT_CREATED, RUNNING, Entry, require_creatable
from .options.task import Task
from .placement import Lessons, Placement, Seen, decisions_of
from .report import note_after, usage_before

if t.TYPE_CHECKING:
    from .address_book import AddressBook
    from .archives import Archives
    from .templates import Templates


FindSurplus = Callable[[Iterable[Guest]], tuple[Sequence[Entry], Sequence[str]]]
"""Returns the entries that remove VMs beyond their count, of these guests, and warnings about others."""


class Placer:
    """Decides for one run.

    Attributes:
        addresses: the static addresses of the run's VMs; None if the task has no address pools.
        device_attributes: those that the task gives to devices.
    """

    def __init__(self, access: Access, task: Task, steps: int | None = None) -> None:
        """steps limits a search for places; None: the default."""
        self._access = access
        self._profiles = task.profiles
        self._default = task.default_profile
        self.device_attributes = task.device_attributes
        self.addresses: AddressBook | None = None
        if task.pools:
            from .address_book import AddressBook

            self.addresses = AddressBook(task.pools, access.reader)
        self._steps = steps
        self._subjects = subjects_of(task.profiles.values())
        # The requests of this run by VMID, for the VMs that it has found or placed so far.
        self._asked: dict[int, Request] = {}
        # The names of the existing VMs that rounds have found, by VMID.
        self._found: dict[int, str] = {}

    @cached_property
    def _archives(self) -> Archives:
        from .archives import Archives

        return Archives(self._access.reader)

    @cached_property
    def _templates(self) -> Templates:
        from .templates import Templates

        return Templates(self._access.reader)

    def place(
        self,
        jobs: Sequence[Job],
        lessons: Lessons,
        *,
        all_or_nothing: bool,
        reserve: bool,
        surplus: FindSurplus | None = None,
    ) -> Placement:
        """Run one scheduling cycle: read the cluster, match existing VMs, place the others, and reserve their places.

        Without reserve, as in check mode, nothing is reserved. With all_or_nothing, nothing is reserved if a job
        failed. surplus finds further VMs, which the run removes, among the guests: their jobs follow those given.

        Raises OtherCluster and LeaseLost if the cycle has to be repeated, and what reading raises.
        """
        with self.lease() if reserve else contextlib.nullcontext() as cycle:
            seen = self.read(jobs, lessons, cycle, surplus)
            jobs = list(seen.matches)
            for all_bridges in (False, True):
                placement = self.prepare(jobs, seen, all_bridges=all_bridges)
                clones = any(job.entry.clone is not None for job in placement.new)
                for wave in self._wave_by_wave(placement) if clones else [placement.new]:
                    if not wave:
                        continue
                    # Runs that find all VMs as they should be place none, and most runs are such. Others compile this
                    # under the lease where the module is not in the worker process (5 ms).
                    from ..engine.batch import place_batch

                    requests, present = self.complete_requests(placement, wave), self.requests_for_existing(placement)
                    with placement.with_starting() if placement.starting else contextlib.nullcontext():
                        outcomes = place_batch(
                            placement.scheduler, list(requests.values()), time.time(), present, self._steps
                        )
                    for job, outcome in zip(requests, outcomes, strict=True):
                        self.note(job, outcome, placement)
                    if len(wave) < len(placement.new):
                        self._foretell_templates(placement, requests)
                known = all_bridges or self._access.known_bridges is None
                if known or not ask_if_bridges_lack(self._access, placement):
                    break
                self.take_back(placement.new, seen)
            self.conclude(placement)
            if cycle is not None:
                if self._access.claimed:
                    self._access.give_up_claims()
                if not (all_or_nothing and any(job.error for job in jobs)):
                    self.reserve(jobs, cycle)
            return placement

    def _wave_by_wave(self, placement: Placement) -> Iterable[Sequence[Job]]:
        """Return the new VMs in the order of their decisions: templates of the task before their clones."""
        new = placement.new
        templates = [job for job in placement.jobs if job.entry.request.options.get(TEMPLATE)]
        if not templates:
            return [new]
        from .own_templates import in_waves

        self._templates.begin([job.guest.vmid for job in templates if job.guest is not None])
        return in_waves(new, placement.scheduler.cluster)

    def _foretell_templates(self, placement: Placement, jobs: Iterable[Job]) -> None:
        """Let the VMs that are decided later be clones of these templates, which do not exist yet."""
        for job in jobs:
            if job.decision is not None and job.entry.request.options.get(TEMPLATE):
                made_from = self.base_of(job.decision.request, job.entry)
                node = placement.scheduler.cluster.by_name.get(job.decision.node)
                self._templates.foretell(job.decision, made_from, {} if node is None else node.volumes)

    def lease(self) -> contextlib.AbstractContextManager[LeasedCycle]:
        """Hold the lease of the cluster: no other process decides about it meanwhile."""
        access = self._access
        return access.ledger.scheduling_cycle(access.identity(), holder=access.holder)

    def reserve(self, jobs: Iterable[Job], cycle: LeasedCycle) -> None:
        """Reserve the decisions about jobs, so that other processes see them."""
        cycle.reserve([reservation_of(decision, self._access.identity()) for decision in decisions_of(jobs)])

    def give_back(self, jobs: Iterable[Job]) -> None:
        """Release the reservations of jobs whose binding has not begun."""
        access = self._access
        access.ledger.release(access.identity(), [decision.vmid for decision in decisions_of(jobs)], access.holder)

    def profile_of(self, request: Request) -> Profile:
        return self._profiles[request.profile or self._default]

    def check_created(self, jobs: Sequence[Job]) -> None:
        """Note in the jobs of created VMs which limits of their nodes are exceeded: without a shared ledger, another
        process may have placed VMs there, too.
        """
        try:
            self._check_limits(jobs)
        except CollectionError as error:
            for job in jobs:
                job.warn(f"its node's limits could not be checked: {error.message}")

    def _check_limits(self, jobs: Iterable[Job]) -> None:
        """Compare the limits of the nodes with what is there now that the VMs were created."""
        # Capacity only: Proxmox itself refuses VMs that lack storage space or devices.
        snapshot = self._access.read()
        for job, decision in [(job, job.decision) for job in jobs if job.decision is not None]:
            others = tuple(guest for guest in snapshot.guests if guest.vmid != decision.vmid)
            state = ClusterState(replace(snapshot, guests=others))
            scheduler = Scheduler(state, self._profiles, self._default)
            # HA rules are not read here.
            refusals = scheduler.refusals(replace(decision.request, ha=None)).get(decision.node, {})
            reasons = [status.text for status in refusals.values() if status.category is Category.CAPACITY]
            if reasons:
                job.limit_broken = " and ".join(reasons)
                job.warnings.append(f"{job.entry.label} on {decision.node} {job.limit_broken}")

    def read(
        self,
        jobs: Sequence[Job],
        lessons: Lessons,
        cycle: LeasedCycle | None,
        surplus: FindSurplus | None = None,
    ) -> Seen:
        """Read the cluster and match the jobs, and those of surplus, with existing VMs."""
        access = self._access
        entries = [job.entry for job in jobs]
        present = access.ledger.reservations(access.identity()) if cycle is None else cycle.reservations()
        reservations = access.of_others(present)
        known = known_guests(reservations, entries)
        if surplus is not None:
            # What may be removed is read, and not only known from reservations. What others are creating is not waited
            # for.
            known = {vmid: guest for vmid, guest in known.items() if guest.proven or not guest.whole}
        # Only a run that just deletes VMs may ignore the VMs that others are creating.
        settling = SETTLING if any(entry.state != "absent" for entry in entries) else 0.0
        snapshot = access.read(known, patience=settling)
        beyond: Sequence[str] = ()
        more: Sequence[Job] = ()
        if surplus is not None:
            late = {vmid: guest.name for vmid, guest in known.items() if guest.proven}
            removals, beyond = surplus(
                replace(guest, name=late.get(guest.vmid)) if guest.name is None else guest for guest in snapshot.guests
            )
            more, entries = [Job(entry) for entry in removals], [*entries, *removals]
        real_nodes = {guest.vmid: guest.node for guest in snapshot.guests if guest.vmid in lessons.moved}
        of_others = {each.vmid for each in reservations}
        own = {each.vmid: each.name for each in present if not each.source and each.vmid not in of_others}
        found = {vmid: name for vmid, name in self._found.items() if vmid not in of_others}
        if lessons.unreachable or lessons.moved:
            snapshot = lessons.as_shown(snapshot)
        online = set() if access.offline else {node.name for node in snapshot.nodes if node.online}
        silent = {g.vmid for g in snapshot.guests if is_silent(g) and (g.vmid not in known or g.node not in online)}
        snapshot = self._with_names(snapshot, silent, entries, {**found, **own})
        counted = count_reservations(snapshot, reservations, known, access.ask_if_gone, access.ask_if_another)
        if cycle is not None and not cycle.confirm(counted.fulfilled):
            # What is about to be created by a reservation that was renewed, this snapshot does not show.
            return self.read(jobs, lessons, cycle, surplus)
        jobs = [*jobs, *more]
        matches = match_entries(
            entries,
            counted.snapshot.guests,
            counted.pending,
            {guest.vmid: guest for guest in snapshot.guests},
            # The run does not wait for the names of guests on nodes that do not answer.
            lessons.abandoned | {guest.vmid for guest in snapshot.guests if guest.node not in online},
        )
        for job, match in zip(jobs, matches, strict=True):
            self._take_over(job, match)
        matched = dict(zip(jobs, matches, strict=True))
        begun = {job: (job.vmid, job.decision) for job in jobs}
        return Seen(snapshot, reservations, counted, matched, begun, real_nodes, lessons, beyond)

    def take_back(self, jobs: Iterable[Job], seen: Seen) -> None:
        """Take back what was decided about jobs since the cluster was read, to decide again."""
        for job in jobs:
            job.attempts -= job.outcome is not None
            job.vmid, job.decision = seen.begun[job]
            self._take_over(job, seen.matches[job])

    def prepare(self, jobs: Sequence[Job], seen: Seen, *, all_bridges: bool = True) -> Placement:
        """Read what else the new VMs need, and count the reservations of others. all_bridges is that of
        Access.complete.
        """
        counted = seen.counted
        for job in jobs:
            if job.state is State.QUEUED and job.entry.backup is not None:
                self._restore(job, seen.snapshot)
        new = [job for job in jobs if job.state is State.QUEUED]
        whole = self._complete(counted.snapshot, jobs, all_bridges=all_bridges)
        if any(job.entry.request.ha is not None and job.entry.request.ha.create is not None for job in jobs):
            from .new_ha_rules import with_new_rules

            whole = with_new_rules(whole, jobs)
        taken_over = {seen.matches[job].take_over for job in jobs}
        stand_ins = [guest for guest in counted.stand_ins if guest.vmid not in taken_over]
        shown = with_moves(whole, counted.under_way) if counted.under_way else whole
        if self._asked:
            shown = with_rules_of(self._asked, shown)
        taken = seen.lessons.taken
        state = cluster_state(shown, stand_ins, taken)
        if self.addresses is not None:
            self.addresses.begin(seen.snapshot.guests, counted.pending, [job.entry for job in jobs])
        return Placement(
            jobs,
            seen,
            new,
            before=replace(
                shown, guests=(*shown.guests, *stand_ins), vmids_unseen=shown.vmids_unseen.union(taken)
            ),
            scheduler=Scheduler(state, self._profiles, self._default),
            nodes=[usage_before(info, self._profiles[self._default]) for info in state.nodes],
            starting=[job.guest.vmid for job in jobs if job.guest is not None and job.entry.state in RUNNING],
            claims=Claims.of(counted.pending, jobs),
        )

    def _complete(self, snapshot: Snapshot, jobs: Sequence[Job], *, all_bridges: bool) -> Snapshot:
        """Return the snapshot with what placing the new VMs among the jobs needs."""
        new = [job.entry for job in jobs if job.state is State.QUEUED]
        requests, devices = [entry.request for entry in new], None
        if any(entry.clone is not None for entry in new):
            if Subject.DEMAND in self._subjects:
                made = ((job.entry.clone, job.guest) for job in jobs if job.guest is not None)
                self._templates.note_clones((clone, guest.vmid) for clone, guest in made if clone is not None)
            requests = self._needs_of(new, snapshot)
        if any(request.devices for request in requests):
            from .options.device_options import device_needs

            devices = device_needs(requests, self.device_attributes)
        whole = self._access.complete(snapshot, requests, self._subjects, devices, all_bridges=all_bridges)
        if any(entry.backup is not None for entry in new):
            whole = replace(whole, volumes={**whole.volumes, **self._archives.volumes})
        return whole

    def _needs_of(self, entries: Sequence[Entry], snapshot: Snapshot) -> list[Request]:
        """Return the requests with what clones need of their nodes because of their templates. A source that cannot be
        resolved is an error of its VM later.
        """
        state, needs = ClusterState(snapshot), []
        for entry in entries:
            request = entry.request
            if entry.clone is not None:
                with contextlib.suppress(CollectionError):
                    request = self._templates.resolve(entry, state)
            needs.append(request)
        return needs

    def conclude(self, placement: Placement) -> None:
        """Note the result of the cycle."""
        note_after(placement.nodes, placement.scheduler.cluster)
        entries, seen = [job.entry for job in placement.jobs], placement.seen
        placement.doubts = seen.beyond
        if any(entry.accept_unknown for entry in entries):
            matches = [seen.matches[job] for job in placement.jobs]
            placement.doubts = [*seen.beyond, *doubts(entries, matches, seen.counted.snapshot.guests)]

    def _take_over(self, job: Job, match: Match) -> None:
        """Note in a job what matching found. A requested VM that does not exist stays in the queue."""
        job.begin()
        job.vmid = match.take_over or job.vmid
        job.nameless = match.nameless
        try:
            if match.error is not None:
                raise match.error
            if job.entry.state == "absent":
                if match.guest is None:
                    job.state = State.DONE
                else:
                    job.exists(match.guest)
                return
            self._access.check_release(job.entry.request)
            if match.guest is not None:
                self._asked[match.guest.vmid] = job.entry.request
                self._found[match.guest.vmid] = job.entry.request.name or match.guest.name or ""
                job.exists(match.guest)
            else:
                if job.entry.state in NOT_CREATED:
                    require_creatable(job.entry.label, job.entry.state)
                # What a new VM does not have needs not be unset; a clone or a restored VM may have it.
                made_from = job.entry.clone is not None or job.entry.backup is not None
                options = job.entry.request.options
                self._access.check_rights({k: value for k, value in options.items() if made_from or value != ""})
        except CollectionError as error:
            job.fail(error)

    def _restore(self, job: Job, snapshot: Snapshot) -> None:
        """Read the backup that a new VM is restored from."""
        try:
            job.entry = self._archives.resolve(job.entry, snapshot)
            archive = job.entry.request.archive
            if archive is not None and archive.volume in self._archives.doubts:
                job.warn(self._archives.doubts[archive.volume])
        except CollectionError as error:
            job.fail(error)

    def complete_requests(self, placement: Placement, jobs: Sequence[Job]) -> dict[Job, Request]:
        """Return the requests of new VMs with template, standing rules and addresses. Jobs that lack one of them fail.
        """
        state = placement.scheduler.cluster
        requests: dict[Job, Request] = {}
        for job in jobs:
            try:
                request = job.entry.request
                if job.entry.clone is not None:
                    request = self._templates.resolve(job.entry, state)
                elif job.entry.backup is None:
                    check_new(request.options)
                request = self._access.standing.add_to_request(request, state.snapshot.nodes)
                if Subject.DEMAND in self._subjects:
                    request = with_demand(request, state.guests.values())
                inherited = self.base_of(request, job.entry)
                if self.addresses is not None:
                    request = self.addresses.assign(job.entry, request, inherited)
                config = config_with(inherited, request.options)
                if job.entry.addresses or any(key.startswith("ipconfig") for key in config):
                    original = original_of(job.entry, request, inherited, state, self._access.reader)
                    placement.claims.claim(job.entry, config, original)
            except CollectionError as error:
                job.fail(error)
            else:
                requests[job] = request if job.vmid is None else replace(request, vmid=job.vmid)
        return requests

    def base_of(self, request: Request, entry: Entry) -> Mapping[str, t.Any]:
        """Return the config that a new VM is made from: that of its template or backup."""
        if request.archive is not None:
            return request.archive.config
        return {} if request.clone is None else self._templates.base_of(request, entry)

    def requests_for_existing(self, placement: Placement) -> Collection[Request]:
        """Return the run's requests for VMs that exist already."""
        if not self._asked:
            return ()
        return requests_of_existing(self._asked, placement.scheduler.cluster.guests.values()).values()

    def note(self, job: Job, outcome: Outcome, placement: Placement) -> None:
        """Note what was decided about a new VM."""
        job.schedule(outcome)
        if outcome.decision is not None:
            self._asked[outcome.decision.vmid] = outcome.decision.request
            if outcome.decision.devices:
                job.warn(*allocation_cautions(outcome.decision, placement.scheduler.cluster))

    def _with_names(
        self, snapshot: Snapshot, silent: Collection[int], entries: Sequence[Entry], own: Mapping[int, str]
    ) -> Snapshot:
        """Return the snapshot with the names of the silent VMs, if one of them may be a VM that is not found by name.
        own are the VMs that this run has found or created: what it only decided says nothing, as another one may have
        its VMID by now.
        """
        names = {guest.name for guest in snapshot.guests}
        # It does not matter which VM has the name of an entry that names a VMID and renames nothing.
        asked = {entry.request.name for entry in entries if entry.request.vmid is None or entry.rename}
        if not silent or asked <= names:
            return snapshot
        found = {vmid: own[vmid] for vmid in silent if own.get(vmid)}
        rest = set(silent) - found.keys()
        if rest:
            found |= self._access.names_of(snapshot, rest)
        guests = (replace(g, name=found[g.vmid]) if g.vmid in found else g for g in snapshot.guests)
        return replace(snapshot, guests=tuple(guests))
