# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scheduling cycle: one request at a time is filtered, scored, given a VMID and what it needs on its node, and
assumed.

Everything a cycle takes is taken in memory only, and given back when a later step fails.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping

from ..errors import CollectionError, InvalidRequest, NoStorageAvailable, NoVMIDAvailable, VMIDConflict
from ..model import VMID_MAX, VMID_MIN, Decision, Request
from .batch import Batch
from .cache import ClusterState, NodeInfo
from .diagnosis import Outcome, not_reserved, unplaceable
from .evaluation import Choice, Evaluation, signature
from .framework.cycle_state import CycleState
from .framework.draft import Draft
from .framework.interface import QueueSortPlugin, ReservePlugin, VMIDPlugin
from .framework.profile import Profile
from .framework.status import Code, Status
from .guard import asked, check_request, guarded
from .profiles import profile_of
from .unknown_names import unknown_names
from .vmids.choice import InvalidVMIDChoice, VMIDChoice
from .vmids.intersection import intersection
from .vmids.ranges import AnyVMID

EVALUATIONS_KEPT = 256
"""How many kinds of request are remembered at once; the one that was not used for longest is dropped."""


class Scheduler:
    """Places requests on one cluster. Same state, same requests, same profiles: same decisions."""

    def __init__(
        self, cluster: ClusterState, profiles: Mapping[str, Profile], default_profile: str = "balanced"
    ) -> None:
        """default_profile names the profile of requests that name none; it must be among profiles."""
        self.cluster = cluster
        self._profiles = profiles
        self._default = default_profile
        self._evaluations: OrderedDict[Hashable, Evaluation] = OrderedDict()

    def observe(self, cluster: ClusterState) -> None:
        """Look at the cluster as it was read anew; what was concluded from the former state is forgotten."""
        self.cluster = cluster
        self._evaluations.clear()

    def schedule_all(
        self, requests: Iterable[Request], now: float = 0.0, present: Iterable[Request] = ()
    ) -> list[Outcome]:
        """Place many, each decision counting for the next, in the order of the queue; groups together or not at all.

        present are VMs of the same run that exist already. The outcomes are in the order of the requests.
        """
        return Batch(requests, self, present).run(self, now)

    def schedule(self, request: Request, now: float = 0.0) -> Outcome:
        """Place one request and assume the decision; Permit plugins are asked by the batch that it belongs to.

        now is in seconds, on the clock of Request.created.
        """
        choice: Choice | None = None
        evaluation: Evaluation | None = None
        try:
            profile = self.profile(request)
            check_request(profile, request)
            evaluation = self._evaluation(profile, request, now)
            choice = evaluation.best()
            if choice.index is None:
                return self._unplaceable(request, profile, evaluation, choice)
            node = self.cluster.nodes[choice.index]
            draft = Draft(request, node.name, choice.score)
            draft.vmid = self.pick_vmid(request)
            rejection = self._reserve(profile, evaluation.state, request, node, draft)
            if rejection is not None:
                return not_reserved(request, node.name, rejection, choice)
            decision = draft.decision()
            self.cluster.assume(decision)
        except NoVMIDAvailable as error:
            plugins = frozenset(plugin.name for plugin in self.profile(request).plugins("vmids"))
            return Outcome(request, error=error, choice=choice, rejected_by=plugins, resolvable=True)
        except CollectionError as error:
            self._drop(evaluation)
            return Outcome(request, error=error, choice=choice)
        return Outcome(request, decision=decision, choice=choice)

    def refusals(self, request: Request, now: float = 0.0) -> dict[str, dict[str, Status]]:
        """For each node every filter that refuses the request, by name; nothing is placed."""
        return self._evaluation(self.profile(request), request, now).refusals()

    def storages_on(self, request: Request, node: str, now: float = 0.0) -> dict[str, str]:
        """Choose a storage on one node for each drive of a request, by slot, whatever the filters say of that node.

        Raises NoStorageAvailable.
        """
        info = self.cluster.node(node)
        profile = self.profile(request)
        draft = Draft(request, node, 0.0)
        state = self._evaluation(profile, request, now).state
        rejection = self._reserve(profile, state, request, info, draft) if info is not None else None
        if info is None or rejection is not None:
            why = "is not there" if rejection is None else rejection.text
            raise NoStorageAvailable(f'no storage for VM "{request.name}": {node} {why}')
        self._unreserve(profile.plugins("reserves"), state, request, info)
        return draft.storages

    def undo(self, decision: Decision) -> None:
        """Take an assumed decision back: unreserve what its plugins hold, and forget it.

        Raises PluginFailed when an unreserve does, after everything was taken back.
        """
        request = decision.request
        node = self.cluster.node(decision.node)
        self.cluster.forget(decision.vmid)
        if node is not None:
            self._unreserve(self.profile(request).plugins("reserves"), CycleState(), request, node)

    def pick_vmid(self, request: Request) -> int:
        """The VMID that the request fixes, or the lowest free one that its range and pattern allow.

        Without either, the lowest free one within the datacenter's bounds. Raises NoVMIDAvailable, VMIDConflict,
        InvalidRequest.
        """
        taken = self.cluster.taken
        if request.vmid is not None:
            if request.vmid in taken:
                raise VMIDConflict(f'VMID {request.vmid} is taken and cannot be given to VM "{request.name}"')
            return request.vmid
        choice = self._vmid_choice(request)
        lower, upper = (VMID_MIN, VMID_MAX)
        if choice is None:
            choice, (lower, upper) = AnyVMID(), self.cluster.snapshot.next_id
        vmid = choice.lowest_free(taken, lower, upper)
        if vmid is None:
            count = choice.count(lower, upper)
            whom = f' for VM "{request.name}"' if request.name else ""
            raise NoVMIDAvailable(f"no free VMID in {choice.describe()}{whom}: all {count} are taken")
        return vmid

    def profile(self, request: Request) -> Profile:
        return profile_of(request, self._profiles, self._default)

    @property
    def sorter(self) -> QueueSortPlugin | None:
        """The plugin that orders the queue: that of the default profile, as the queue is one for all."""
        sorters: list[QueueSortPlugin] = self._profiles[self._default].plugins("queue")
        return sorters[0] if sorters else None

    # --- inside ---

    def _vmid_choice(self, request: Request) -> VMIDChoice | None:
        """What all VMID plugins together allow; None when the request asks none of them."""
        allowed: VMIDChoice | None = None
        plugins: list[VMIDPlugin] = self.profile(request).plugins("vmids")
        try:
            for plugin in plugins:
                choice = guarded(plugin, plugin.choice, request)
                if choice is not None:
                    allowed = choice if allowed is None else intersection(allowed, choice)
        except InvalidVMIDChoice as error:
            raise InvalidRequest(f'VM "{request.name}": {error}') from error
        return allowed

    def _evaluation(self, profile: Profile, request: Request, now: float) -> Evaluation:
        key = signature(profile, self.cluster, request)
        known = self._evaluations.get(key) if key is not None else None
        if known is not None:
            self._evaluations.move_to_end(key)
            return known
        made = Evaluation(profile, self.cluster, request, now)
        # What refuses a request on every node is looked up anew each time: nothing tells when it ends.
        if key is not None and made.refused is None:
            self._evaluations[key] = made
            if len(self._evaluations) > EVALUATIONS_KEPT:
                self._evaluations.popitem(last=False)
        return made

    def _reserve(
        self, profile: Profile, state: CycleState, request: Request, node: NodeInfo, draft: Draft
    ) -> Status | None:
        """Run the Reserve plugins; when one refuses or raises, unreserve those before it, last first."""
        done: list[ReservePlugin] = []
        rejection: Status | None = None
        try:
            for plugin in profile.plugins("reserves"):
                done.append(plugin)
                status = asked(plugin, plugin.reserve, state, request, node, draft)
                if status is not None and status.code is not Code.SKIP:
                    rejection = status
                    break
        except CollectionError:
            self._unreserve(done, state, request, node)
            raise
        if rejection is not None:
            self._unreserve(done, state, request, node)
        return rejection

    @staticmethod
    def _unreserve(plugins: list[ReservePlugin], state: CycleState, request: Request, node: NodeInfo) -> None:
        """Give everything back, last taken first; a plugin that raises keeps no other from it."""
        failures = []
        for plugin in reversed(plugins):
            try:
                guarded(plugin, plugin.unreserve, state, request, node)
            except CollectionError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _drop(self, evaluation: Evaluation | None) -> None:
        """Remember an evaluation no longer: a plugin failed in its midst, and its state may be half up to date."""
        for key in [key for key, known in self._evaluations.items() if known is evaluation]:
            del self._evaluations[key]

    def _unplaceable(self, request: Request, profile: Profile, evaluation: Evaluation, choice: Choice) -> Outcome:
        refusals = evaluation.refusals()
        findings = {
            plugin.name: guarded(plugin, plugin.post_filter, request, self.cluster, refusals)
            for plugin in profile.plugins("post_filters")
        }
        rejections = {info.name: r for info in self.cluster.nodes if (r := choice.rejection(info.index)) is not None}
        resolvable = any(
            all(status.resolvable for status in (rejection, *refusals[name].values()))
            for name, rejection in rejections.items()
        )
        return unplaceable(
            request,
            rejections,
            choice,
            findings,
            resolvable=resolvable,
            unknown=unknown_names(request, self.cluster),
        )
