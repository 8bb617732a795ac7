# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The extension points, in the order in which a request passes them.

C(PreEnqueue) and C(QueueSort) belong to the queue; C(PreFilter), C(Filter), C(PostFilter), C(Score), C(NormalizeScore),
the VMID point, C(Reserve) and C(Permit) to the scheduling cycle. A plugin is a class that inherits from one or several
of the interfaces below; it never knows the scheduler or another plugin.

A plain plugin evaluates every node in every cycle. A plugin that has to be fast on hundreds of nodes also inherits from
PerNode or SharedPlugin: its verdicts are kept, and shared by requests with the same signature.
"""

from __future__ import annotations

import abc
import enum
import typing as t
from collections.abc import Hashable, Iterable, Mapping, Sequence

from ...errors import InvalidRequest
from ...model import Guest, Request
from ..allocatable import Policy
from .config import Setting
from .cycle_state import CycleState, Requests
from .status import Category, Status

if t.TYPE_CHECKING:
    from ..cache import ClusterState, NodeInfo
    from ..vmids.choice import VMIDChoice
    from .cycle_state import Draft


class Event(enum.Enum):
    """A kind of change in the cluster. A plugin names the events that can change its verdict on a node."""

    NODE = "node"
    GUEST = "guest"
    STORAGE = "storage"
    DEVICE = "device"


class Subject(enum.Enum):
    """Data that is read only if a plugin asks for it, as each costs API requests. Nodes, guests and storages are always
    read.
    """

    BRIDGES = "bridges"
    CPU = "cpu"
    VOLUMES = "volumes"
    PRESSURE = "pressure"


class Plugin(abc.ABC):
    """The base class of all plugins. The first paragraph of the class docstring states the rule, its default and its
    units.

    Attributes:
        name: its name in the plugin config and in results.
        settings: the keys of its config.
        enabled: whether it runs when the plugin config does not name it.
        about: the attributes of a request that the plugin evaluates. It is not called for a request that sets none of
            them. If empty, it is called for every request.
        events: which events can change its verdict; a VM that it rejected is tried again only after one of them.
        category: what its rejections are about. If only plugins of Category.STORAGE and Category.PLACEMENT reject the
            nodes, the error is NoStorageAvailable.
        selective: whether only those VMs of a run can make it accept a request that the request's own rules select.
        reads: what it needs besides nodes, guests and storages. What no plugin needs is not read from Proxmox VE.
        policy: the settings that all plugins of the profile share. Set before the plugin is called.
        sets: the values that this plugin's config sets in the policy, by attribute of the policy.
    """

    name: t.ClassVar[str]
    settings: t.ClassVar[Mapping[str, Setting]] = {}
    enabled: t.ClassVar[bool] = True
    about: t.ClassVar[tuple[str, ...]] = ()
    events: t.ClassVar[frozenset[Event]] = frozenset({Event.NODE, Event.GUEST})
    category: t.ClassVar[Category] = Category.RULE
    selective: t.ClassVar[bool] = False
    reads: frozenset[Subject] = frozenset()
    policy: Policy = Policy()
    sets: Mapping[str, t.Any] = {}

    def __init__(self, config: Mapping[str, t.Any]) -> None:
        """config has every key of settings, checked."""
        self.config = config

    def pre_enqueue(self, request: Request) -> Status | None:
        """Raise InvalidRequest for a request that no cluster could fulfil. Called before a cluster is read."""
        return None


def concerns(plugin: Plugin, request: Request) -> bool:
    """Whether the request sets an attribute that the plugin evaluates."""
    for attribute in plugin.about:
        if getattr(request, attribute):
            return True
    return not plugin.about


class PreEnqueuePlugin(Plugin):
    """May hold a request out of the active queue."""

    @abc.abstractmethod
    def pre_enqueue(self, request: Request) -> Status | None:
        """The status that holds the request back; None lets it in."""


class QueueSortPlugin(Plugin):
    """Orders the active queue. Exactly one is enabled."""

    @property
    def packs(self) -> bool:
        """Whether the largest requests arrive first, if all of them can be placed in that order."""
        return False

    @abc.abstractmethod
    def sort_key(self, request: Request, arrival: int) -> t.Any:
        """A sortable key, smallest first; arrival is the request's number in order of arrival."""


class PreFilterPlugin(Plugin):
    """Evaluates the request and the whole cluster once, before the nodes are filtered and scored."""

    @abc.abstractmethod
    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        """Store what Filter and Score need in C(state[self.name]).

        SKIP skips this plugin's Filter and Score, SKIP_FILTER or SKIP_SCORE one of them; another status refuses every
        node.
        """


class FilterPlugin(Plugin):
    """Decides whether the request may be placed on a node."""

    @abc.abstractmethod
    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        """None if the node is suitable, else the status with the reason."""


class PostFilterPlugin(Plugin):
    """Called when no node passed; may add findings for the user, keyed by its name."""

    @abc.abstractmethod
    def post_filter(
        self, request: Request, cluster: ClusterState, refusals: Mapping[str, Mapping[str, Status]]
    ) -> Mapping[str, t.Any]:
        """Return findings by key. C(summary), if it is among them, ends the error message: one sentence that says what
        would have to change.

        refusals has, for each node, the statuses of all plugins that refuse it, not only of the first.
        """


class ScorePlugin(Plugin):
    """Gives one node a number; more is better.

    Attributes:
        weight: the weight when the plugin config gives none.
        bounded: promises that score returns values within 0..100. Scores in any other unit are normalized.
        by_score: promises that normalize, if the plugin overrides it, depends on nothing but the scores.
    """

    weight: t.ClassVar[float] = 1.0
    bounded: t.ClassVar[bool] = False
    by_score: t.ClassVar[bool] = False

    @abc.abstractmethod
    def score(self, state: CycleState, request: Request, node: NodeInfo) -> float: ...

    def normalize(
        self, state: CycleState, request: Request, nodes: Sequence[NodeInfo], scores: list[float]
    ) -> list[float]:
        """Scale the scores of the nodes that passed to 0..100: the best node gets 100, the worst 0, the others in
        proportion. If all are equal, each gets 100.
        """
        lowest, highest = min(scores), max(scores)
        return [100.0 * (score - lowest) / (highest - lowest) if highest > lowest else 100.0 for score in scores]


class VMIDPlugin(Plugin):
    """Decides which VMIDs a request may have."""

    def pre_enqueue(self, request: Request) -> Status | None:
        choice = self.choice(request)
        if choice is not None and request.vmid is not None and request.vmid not in choice:
            raise InvalidRequest(f"vmid: {request.vmid} contradicts {choice.describe()}", option="vmid")
        return None

    @abc.abstractmethod
    def choice(self, request: Request) -> VMIDChoice | None:
        """The allowed VMIDs, or None if the request sets nothing for this plugin. Raises InvalidRequest."""


class ReservePlugin(Plugin):
    """Chooses what the request takes on the chosen node, for example storages or devices."""

    @abc.abstractmethod
    def reserve(self, state: CycleState, request: Request, node: NodeInfo, draft: Draft) -> Status | None:
        """Write what the request takes into draft. It counts as soon as the decision is assumed, and is released with
        it.
        """


class PermitPlugin(Plugin):
    """Accepts a decision before binding (None), rejects it, or returns WAIT for other requests of the run."""

    @abc.abstractmethod
    def permit(
        self,
        request: Request,
        placed: Requests,
        waiting: Requests,
        failed: Requests,
    ) -> Status | None:
        """placed: the requests that this run has placed so far, this one included; waiting: those that may still be
        placed; failed: those that could not be placed, or are held back.

        A request that got WAIT is checked again when no other request is left to decide. If it is still not permitted,
        its decision is taken back.
        """


# --- sharing verdicts -------------------------------------------------------------------------------------------------

NOT_SHARED = object()
"""A signature that equals no other: for this request, the plugin is evaluated like a plain one."""

NOT_CONCERNED = object()
"""The signature of requests that do not concern the plugin."""


class SharedPlugin(Plugin):
    """A plugin whose verdicts are kept, and shared by requests with the same signature.

    The results of C(filter) and C(score) are kept, and what C(pre_filter) stored in the state; the methods below keep
    them up to date. C(normalize) is called in each cycle, with each different score once. A score that is not bounded
    is kept only if the plugin does not override C(normalize), or promises C(by_score).

    Attributes:
        regroups: whether C(group) is called again for each node that changed or that C(update) returns.
    """

    regroups: t.ClassVar[bool] = False

    @abc.abstractmethod
    def signature(self, request: Request, cluster: ClusterState) -> Hashable:
        """Everything in the request, and in the rules of guests about it, that the verdicts depend on. Requests with
        equal signatures get the same verdicts; NOT_SHARED equals no other signature.
        """

    @abc.abstractmethod
    def group(self, state: CycleState, request: Request, node: NodeInfo) -> Hashable:
        """The group of nodes that get the same verdict: in each cycle, one node of each group is evaluated. C(group)
        itself is called once per node, unless the plugin regroups.

        None for a node in no group. Its verdict is kept until a guest comes to it or leaves it, until C(update) returns
        it or, with Event.STORAGE among the events, until the space of a shared storage that it sees has changed.
        """

    @abc.abstractmethod
    def update(
        self, state: CycleState, request: Request, guest: Guest, node: NodeInfo, sign: int
    ) -> Iterable[NodeInfo]:
        """Update C(state[self.name]) after guest came to node (sign 1) or left it (-1). Return the other nodes in no
        group whose verdict may have changed, and the nodes whose group has changed if the plugin regroups.
        """


class PerNode(SharedPlugin):
    """A plugin whose verdict on a node depends only on the request's signature, on that node with its guests, and on
    the properties of nodes, which never change during a cycle. C(pre_filter) is called in each cycle.
    """

    def group(self, state: CycleState, request: Request, node: NodeInfo) -> Hashable:
        return None

    @t.final
    def update(
        self, state: CycleState, request: Request, guest: Guest, node: NodeInfo, sign: int
    ) -> Iterable[NodeInfo]:
        return ()
