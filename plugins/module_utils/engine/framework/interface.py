# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The extension points: what a plugin may be asked, in the order in which a request meets them.

C(PreEnqueue) and C(QueueSort) belong to the queue; C(PreFilter), C(Filter), C(PostFilter), C(PreScore), C(Score),
C(NormalizeScore), the VMID point, C(Reserve) and C(Permit) to the scheduling cycle; C(PreBind), C(Bind) and C(PostBind)
to the binding cycle. A plugin is a class that inherits from one or several of the interfaces below; it never knows the
scheduler or another plugin.
"""

from __future__ import annotations

import abc
import enum
import typing as t
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

from ...errors import InvalidRequest
from ...model import Decision, Guest, Request
from ..allocatable import Policy
from .config import Setting
from .cycle_state import CycleState
from .status import Category, Status

if t.TYPE_CHECKING:
    from ..cache import ClusterState, NodeInfo
    from ..vmids.choice import VMIDChoice
    from .draft import Draft


class Event(enum.Enum):
    """What may happen in a cluster. A plugin names the events that can change its verdict on a node."""

    NODE = "node"
    GUEST = "guest"
    STORAGE = "storage"
    DEVICE = "device"


class Subject(enum.Enum):
    """What may be read of a cluster beside its nodes, guests and storages. Each costs calls: a plugin asks for it."""

    BRIDGES = "bridges"
    CPU = "cpu"
    VOLUMES = "volumes"
    PRESSURE = "pressure"


class Scope(enum.Enum):
    """How far a plugin looks. The narrower, the less has to be looked at again after each placement."""

    NODE = "node"
    """The verdict follows from C(signature) and from this one node with its guests and devices, or C(add_vm) and
    C(remove_vm) tell when it changes."""
    STORAGES = "storages"
    """The same, and the space of storages counts, which a VM on another node changes where they are shared. Nodes of
    the same C(view) get the same verdict."""
    DOMAIN = "domain"
    """The verdict is the same for all nodes of one topology domain, and follows from what C(add_vm) has seen."""
    CLUSTER = "cluster"
    """The verdict may depend on any node; it is asked anew for each request."""


UNIQUE = object()
"""A signature that equals no other: the plugin's verdicts are never reused for another request."""


class Plugin(abc.ABC):
    """What all plugins share. The class docstring's first paragraph states the rule, its default and its units.

    Attributes:
        name: as it stands in the plugin config and in results.
        settings: the keys of its config.
        enabled: whether it runs when the plugin config does not name it.
        events: which events can change its verdict; a VM that it rejected is tried again only after one of them.
        category: what its rejections are about. When only plugins of Category.STORAGE, beside those of
            Category.PLACEMENT, reject the nodes, the error is NoStorageAvailable.
        policy: what is configured once for all plugins of the profile. Set before the plugin is asked anything.
        sets: what of the policy this plugin's config sets, by the policy's attributes.
    """

    name: t.ClassVar[str]
    settings: t.ClassVar[Mapping[str, Setting]] = {}
    enabled: t.ClassVar[bool] = True
    events: t.ClassVar[frozenset[Event]] = frozenset({Event.NODE, Event.GUEST})
    category: t.ClassVar[Category] = Category.RULE
    policy: Policy = Policy()
    sets: Mapping[str, t.Any] = {}

    def __init__(self, config: Mapping[str, t.Any]) -> None:
        """config has every key of settings, checked."""
        self.config = config

    def reads(self) -> frozenset[Subject]:
        """What it looks at beside nodes, guests and storages, as it is configured. What nobody asks for is not read."""
        return frozenset()

    def check(self, request: Request) -> None:
        """Raise InvalidRequest for what no cluster could make right. All requests are checked before one is read."""
        return

    def signature(self, request: Request) -> Hashable:
        """Everything in the request that the verdict depends on. Two requests of equal signatures get equal verdicts.

        The default shares nothing, which is always right and slow: say what you look at.
        """
        return UNIQUE

    def signature_in(self, cluster: ClusterState, request: Request) -> Hashable:
        """Like C(signature), for a plugin where it is the guests of the cluster that ask something about the request.

        Verdicts are reused only while this answer stays the same.
        """
        return self.signature(request)

    def view(self, request: Request, node: NodeInfo) -> Hashable:
        """What the verdict follows from besides C(signature) and the space of shared storages, where the scope is
        Scope.STORAGES: of nodes with equal views only one is asked. VMs that come and go do not change it.

        None where there is more to it: this very node is asked then.
        """
        return None


class PreEnqueuePlugin(Plugin):
    """May hold a request out of the active queue."""

    @abc.abstractmethod
    def pre_enqueue(self, request: Request) -> Status | None: ...


class QueueSortPlugin(Plugin):
    """Orders the active queue. Exactly one is enabled."""

    @abc.abstractmethod
    def sort_key(self, request: Request, arrival: int) -> t.Any:
        """A sortable key, smallest first; arrival is the request's number in order of arrival."""


class PreFilterPlugin(Plugin):
    """Looks at the request and the whole cluster once, before the nodes are filtered."""

    @abc.abstractmethod
    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        """Leave what Filter needs in C(state[self.name]).

        SKIP leaves this plugin's Filter out; another status refuses every node.
        """

    def add_vm(self, state: CycleState, request: Request, guest: Guest, node: NodeInfo) -> Iterable[NodeInfo] | None:
        """Bring C(state) up to date after guest was added to node.

        Return the other nodes whose verdict of C(Scope.NODE) may have changed by that; they are asked again.
        """
        return None

    def remove_vm(self, state: CycleState, request: Request, guest: Guest, node: NodeInfo) -> Iterable[NodeInfo] | None:
        """Bring C(state) up to date after guest was removed from node; return what C(add_vm) returns."""
        return None


class FilterPlugin(Plugin):
    """Says of one node whether the request may go there."""

    @abc.abstractmethod
    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        """None when the node will do, else the status with the reason."""

    def filter_scope(self, request: Request) -> Scope:
        """How far filter looks for this request. Scope.NODE, unless events tell that storages count."""
        return Scope.STORAGES if Event.STORAGE in self.events else Scope.NODE

    def domain(self, state: CycleState, request: Request, node: NodeInfo) -> Hashable:
        """The node's topology domain, where filter_scope is Scope.DOMAIN."""
        return node.node.name


class PostFilterPlugin(Plugin):
    """Called when no node passed; may add findings for the user, keyed by its name."""

    @abc.abstractmethod
    def post_filter(
        self, request: Request, cluster: ClusterState, refusals: Mapping[str, Mapping[str, Status]]
    ) -> Mapping[str, t.Any]:
        """refusals: for each node every plugin that refuses it, not only the first. C(summary) among the findings, if
        there is one, ends the error message: one sentence that says what would have to change.
        """


class PreScorePlugin(Plugin):
    """Looks at all nodes that passed before they are scored."""

    @abc.abstractmethod
    def pre_score(self, state: CycleState, request: Request, nodes: Sequence[NodeInfo]) -> Status | None:
        """Leave what Score needs in the state, under a key of the plugin's own. SKIP leaves this plugin's Score out."""


class ScorePlugin(Plugin):
    """Gives one node a number; more is better."""

    weight: t.ClassVar[float] = 1.0
    """The weight when the plugin config gives none."""

    @abc.abstractmethod
    def score(self, state: CycleState, request: Request, node: NodeInfo) -> float: ...

    def score_scope(self, request: Request) -> Scope:
        """Scope.NODE promises numbers within 0..100 that need no normalize; Scope.CLUSTER allows any unit."""
        return Scope.CLUSTER

    def normalize(self, state: CycleState, request: Request, scores: list[float]) -> list[float]:
        """The same scores brought to 0..100."""
        return scores


class VMIDPlugin(Plugin):
    """Says which VMIDs a request may have."""

    def check(self, request: Request) -> None:
        choice = self.choice(request)
        if choice is not None and request.vmid is not None and request.vmid not in choice:
            raise InvalidRequest(f"vmid: {request.vmid} contradicts {choice.describe()}", option="vmid")

    @abc.abstractmethod
    def choice(self, request: Request) -> VMIDChoice | None:
        """The allowed VMIDs, or None when the request asks this plugin for nothing. Raises InvalidRequest."""


class ReservePlugin(Plugin):
    """Takes what the request needs on the chosen node, in memory; gives it back when a later step fails."""

    @abc.abstractmethod
    def reserve(self, state: CycleState, request: Request, node: NodeInfo, draft: Draft) -> Status | None:
        """Write what was taken into draft."""

    def unreserve(self, state: CycleState, request: Request, node: NodeInfo) -> None:
        """Forget what reserve left outside the draft. Must not fail."""


class PermitPlugin(Plugin):
    """The last word before binding: yes (None), no, or WAIT for others of the run."""

    @abc.abstractmethod
    def permit(
        self,
        request: Request,
        placed: Collection[Request],
        waiting: Collection[Request],
        failed: Collection[Request],
    ) -> Status | None:
        """placed: what this run has decided so far, this request included; waiting: what may still be decided; failed:
        what could not be placed, or is held back.

        A request that was told to WAIT is asked about again when no other is left to be decided; what is not permitted
        then is taken back.
        """


class PreBindPlugin(Plugin):
    """Runs before a VM is created, in the binding cycle."""

    @abc.abstractmethod
    def pre_bind(self, decision: Decision) -> Status | None: ...


class BindPlugin(Plugin):
    """Creates the VM. The first that does not answer SKIP has done it."""

    @abc.abstractmethod
    def bind(self, decision: Decision) -> Status | None: ...


class PostBindPlugin(Plugin):
    """Told that a VM was created."""

    @abc.abstractmethod
    def post_bind(self, decision: Decision) -> None: ...
