# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The extension points: what a plugin may be asked, in the order in which a request meets them.

C(PreEnqueue) and C(QueueSort) belong to the queue; C(PreFilter), C(Filter), C(PostFilter), C(Score), C(NormalizeScore),
the VMID point, C(Reserve) and C(Permit) to the scheduling cycle. A plugin is a class that inherits from one or several
of the interfaces below; it never knows the scheduler or another plugin.

A plain plugin is asked about every node in every cycle. One that is to be fast on hundreds of nodes inherits from
PerNode or SharedPlugin as well: its verdicts are then kept, and shared by requests that are alike to it.
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
from .cycle_state import CycleState
from .requests import Requests
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


class Plugin(abc.ABC):
    """What all plugins share. The class docstring's first paragraph states the rule, its default and its units.

    Attributes:
        name: as it stands in the plugin config and in results.
        settings: the keys of its config.
        enabled: whether it runs when the plugin config does not name it.
        about: the attributes of a request that it is about. It is not asked about a request that sets none of them.
            Empty: it is asked about every request.
        events: which events can change its verdict; a VM that it rejected is tried again only after one of them.
        category: what its rejections are about. When only plugins of Category.STORAGE, beside those of
            Category.PLACEMENT, reject the nodes, the error is NoStorageAvailable.
        selective: whether, of the VMs of a run, only those that the request's own rules select can make it accept the
            request.
        reads: what it looks at beside nodes, guests and storages. What no plugin reads is not asked of Proxmox VE.
        policy: what is configured once for all plugins of the profile. Set before the plugin is asked anything.
        sets: what of the policy this plugin's config sets, by the policy's attributes.
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
        """Raise InvalidRequest for what no cluster could make right. It is asked before a cluster is read."""
        return None


def concerns(plugin: Plugin, request: Request) -> bool:
    """Whether the request sets what a plugin is about."""
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

    @abc.abstractmethod
    def sort_key(self, request: Request, arrival: int) -> t.Any:
        """A sortable key, smallest first; arrival is the request's number in order of arrival."""


class PreFilterPlugin(Plugin):
    """Looks at the request and the whole cluster once, before the nodes are filtered and scored."""

    @abc.abstractmethod
    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        """Leave what Filter and Score need in C(state[self.name]).

        SKIP leaves this plugin's Filter and Score out, SKIP_FILTER or SKIP_SCORE one of them; another status refuses
        every node.
        """


class FilterPlugin(Plugin):
    """Says of one node whether the request may go there."""

    @abc.abstractmethod
    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        """None when the node will do, else the status with the reason."""


class PostFilterPlugin(Plugin):
    """Called when no node passed; may add findings for the user, keyed by its name."""

    @abc.abstractmethod
    def post_filter(
        self, request: Request, cluster: ClusterState, refusals: Mapping[str, Mapping[str, Status]]
    ) -> Mapping[str, t.Any]:
        """refusals: for each node every plugin that refuses it, not only the first. C(summary) among the findings, if
        there is one, ends the error message: one sentence that says what would have to change.
        """


class ScorePlugin(Plugin):
    """Gives one node a number; more is better.

    Attributes:
        weight: the weight when the plugin config gives none.
        bounded: promises that score answers within 0..100. Scores in any other unit are normalized.
        by_score: promises that normalize, where a plugin has its own, looks at nothing but the scores.
    """

    weight: t.ClassVar[float] = 1.0
    bounded: t.ClassVar[bool] = False
    by_score: t.ClassVar[bool] = False

    @abc.abstractmethod
    def score(self, state: CycleState, request: Request, node: NodeInfo) -> float: ...

    def normalize(
        self, state: CycleState, request: Request, nodes: Sequence[NodeInfo], scores: list[float]
    ) -> list[float]:
        """Bring the scores of the nodes that passed to 0..100: the best node gets 100, the worst 0, those between in
        proportion; 100 where all are equal.
        """
        lowest, highest = min(scores), max(scores)
        return [100.0 * (score - lowest) / (highest - lowest) if highest > lowest else 100.0 for score in scores]


class VMIDPlugin(Plugin):
    """Says which VMIDs a request may have."""

    def pre_enqueue(self, request: Request) -> Status | None:
        choice = self.choice(request)
        if choice is not None and request.vmid is not None and request.vmid not in choice:
            raise InvalidRequest(f"vmid: {request.vmid} contradicts {choice.describe()}", option="vmid")
        return None

    @abc.abstractmethod
    def choice(self, request: Request) -> VMIDChoice | None:
        """The allowed VMIDs, or None when the request asks this plugin for nothing. Raises InvalidRequest."""


class ReservePlugin(Plugin):
    """Takes what the request needs on the chosen node."""

    @abc.abstractmethod
    def reserve(self, state: CycleState, request: Request, node: NodeInfo, draft: Draft) -> Status | None:
        """Write what is taken into draft. It counts once the decision is assumed, and is given back with it."""


class PermitPlugin(Plugin):
    """The last word before binding: yes (None), no, or WAIT for others of the run."""

    @abc.abstractmethod
    def permit(
        self,
        request: Request,
        placed: Requests,
        waiting: Requests,
        failed: Requests,
    ) -> Status | None:
        """placed: what this run has decided so far, this request included; waiting: what may still be decided; failed:
        what could not be placed, or is held back.

        A request that got WAIT is checked again when no other request is left to decide. If it is still not permitted,
        its decision is taken back.
        """


# --- sharing verdicts -------------------------------------------------------------------------------------------------

NOT_SHARED = object()
"""A signature that equals no other: the plugin is asked as a plain one about this request."""

NOT_CONCERNED = object()
"""Stands for the signature of requests that a plugin is not asked about."""


class SharedPlugin(Plugin):
    """A plugin whose verdicts are kept, and shared by requests that are alike to it.

    What is kept is the answers of C(filter) and C(score), and what C(pre_filter) left in the state; the methods below
    bring it up to date. C(normalize) is asked in each cycle, about each different score once. A score that is not
    bounded is kept only if the plugin has no C(normalize) of its own, or promises C(by_score).

    Attributes:
        regroups: whether C(group) is asked again about each node that changed or that C(update) names.
    """

    regroups: t.ClassVar[bool] = False

    @abc.abstractmethod
    def signature(self, request: Request, cluster: ClusterState) -> Hashable:
        """Everything that the verdicts depend on of the request, and of what guests ask of it. Requests of equal
        signatures get the same verdicts; NOT_SHARED is equal to none.
        """

    @abc.abstractmethod
    def group(self, state: CycleState, request: Request, node: NodeInfo) -> Hashable:
        """The group of nodes that get the same verdict: one of them is asked about in each cycle. C(group) itself is
        asked once, unless the plugin regroups. None for a node that is in no group: its verdict stands until a guest
        comes to it or leaves it, until C(update) names it, and, with Event.STORAGE among the events, until the space of
        a shared storage that it sees has changed.
        """

    @abc.abstractmethod
    def update(
        self, state: CycleState, request: Request, guest: Guest, node: NodeInfo, sign: int
    ) -> Iterable[NodeInfo]:
        """Bring C(state[self.name]) up to date after guest came to node (sign 1) or left it (-1). Return the other
        nodes of no group whose verdict may have changed by that, and the nodes whose group has, if the plugin regroups.
        """


class PerNode(SharedPlugin):
    """A plugin whose verdict on a node follows from the request's signature, from that node and its guests, and from
    what never changes while a cluster is looked at: the nodes themselves. C(pre_filter) is asked in each cycle.
    """

    def group(self, state: CycleState, request: Request, node: NodeInfo) -> Hashable:
        return None

    @t.final
    def update(
        self, state: CycleState, request: Request, guest: Guest, node: NodeInfo, sign: int
    ) -> Iterable[NodeInfo]:
        return ()
