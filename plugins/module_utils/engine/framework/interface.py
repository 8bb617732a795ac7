# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plugin is made of: the extension points, its settings, and what it works on during a scheduling cycle.

The extension points are in the order in which a request passes them. C(PreEnqueue) and C(QueueSort) belong to the
queue; C(PreFilter), C(Filter), C(PostFilter), C(Score), C(NormalizeScore), the VMID point, C(Reserve) and C(Permit) to
the scheduling cycle. A plugin is a class that inherits from one or several of these interfaces; it never knows the
scheduler or another plugin.

A plugin evaluates every node in every cycle, one per call. C(many_nodes) is for plugins that evaluate many in one call.
"""

from __future__ import annotations

import abc
import enum
import typing as t
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...errors import InvalidPluginConfig, InvalidRequest
from ...model import Decision, DeviceAllocation, Request, Template
from ..allocatable import Policy
from ..texts import hint
from .status import Category, Status

if t.TYPE_CHECKING:
    from ..cache import ClusterState, NodeInfo
    from ..vmids.choice import VMIDChoice


class Event(enum.Enum):
    """A kind of change in the cluster. A plugin names the events that can change its verdict on a node."""

    NODE = "node"
    GUEST = "guest"
    STORAGE = "storage"
    DEVICE = "device"


class Subject(enum.Enum):
    """Data that is read only if a plugin names it in C(reads), because it costs API requests. Nodes, guests and
    storages are always read.
    """

    BRIDGES = "bridges"
    NAMED = "named"
    CPU = "cpu"
    VOLUMES = "volumes"
    PRESSURE = "pressure"
    HA_RULES = "ha rules"
    DEMAND = "demand"


class Plugin(abc.ABC):
    """The base class of all plugins. The first paragraph of the class docstring states the rule, its default and its
    units.

    Attributes:
        name: its name in the plugin config and in results.
        settings: the keys of its config.
        enabled: whether it runs when the plugin config does not name it.
        about: the attributes of a request that the plugin evaluates. It is not called for a request that sets none of
            them, unless the cluster has one of about_cluster. If both are empty, it is called for every request.
        about_cluster: attributes of ClusterState, the same for clusters.
        idle_without: keys of its config. It is not called if none of them is set.
        events: which events can change its verdict; a VM that it rejected is tried again only after one of them.
        category: what its rejections are about. If only plugins of Category.STORAGE and Category.PLACEMENT reject the
            nodes, the error is NoStorageAvailable.
        cure: what lets a guest move that it keeps off all nodes; if empty, what its category suggests.
        selective: whether a request that it rejected can fit only after a VM was placed that the request's own rules
            select.
        reads: the data that it needs besides nodes, guests and storages.
        policy: the settings that all plugins of the profile share. Set before the plugin is called.
        sets: the values that this plugin's config sets in the policy, by attribute of the policy.
    """

    name: t.ClassVar[str]
    settings: t.ClassVar[Mapping[str, Setting]] = {}
    enabled: t.ClassVar[bool] = True
    about: t.ClassVar[tuple[str, ...]] = ()
    about_cluster: t.ClassVar[tuple[str, ...]] = ()
    idle_without: t.ClassVar[tuple[str, ...]] = ()
    events: t.ClassVar[frozenset[Event]] = frozenset({Event.NODE, Event.GUEST})
    category: t.ClassVar[Category] = Category.RULE
    cure: t.ClassVar[str] = ""
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


class PreEnqueuePlugin(Plugin):
    """Can hold a request back before it enters the active queue."""

    @abc.abstractmethod
    def pre_enqueue(self, request: Request) -> Status | None:
        """Return the status that holds the request back, or None. Raises InvalidRequest as in Plugin."""


class QueueSortPlugin(Plugin):
    """Orders the active queue. Exactly one is enabled."""

    @property
    def packs(self) -> bool:
        """Whether the largest requests arrive first, if all of them can be placed in that order."""
        return False

    @abc.abstractmethod
    def sort_key(self, request: Request, arrival: int) -> t.Any:
        """Return a sortable key, smallest first; arrival is the request's number in order of arrival."""


class PreFilterPlugin(Plugin):
    """Evaluates the request and the whole cluster once, before the nodes are filtered and scored."""

    @abc.abstractmethod
    def pre_filter(self, state: CycleState, request: Request, cluster: ClusterState, now: float) -> Status | None:
        """Store what Filter and Score need in C(state[self.name]).

        Return None, SKIP to skip this plugin's Filter and Score, SKIP_FILTER or SKIP_SCORE to skip one of them, or a
        status that rejects every node. now is the time in seconds, on the clock of Request.created.
        """


class FilterPlugin(Plugin):
    """Decides whether the request may be placed on a node."""

    @abc.abstractmethod
    def filter(self, state: CycleState, request: Request, node: NodeInfo) -> Status | None:
        """Return None if the node is suitable, else the status with the reason."""

    def filter_all(self, state: CycleState, request: Request, nodes: Sequence[NodeInfo]) -> list[Status | None]:
        """Return the answers of C(filter) for the nodes."""
        return [self.filter(state, request, node) for node in nodes]


class PostFilterPlugin(Plugin):
    """Called when no node passed; may add findings for the user, keyed by its name."""

    @abc.abstractmethod
    def post_filter(
        self, request: Request, cluster: ClusterState, refusals: Mapping[str, Mapping[str, Status]]
    ) -> Mapping[str, t.Any]:
        """Return findings by key. The error message ends with C(summary), if present: one sentence that states what
        would make the VM fit.

        refusals maps each node to the statuses of all plugins that reject it, by the name of the plugin.
        """


class ScorePlugin(Plugin):
    """Gives one node a number; more is better.

    Attributes:
        weight: the default weight.
        bounded: whether score returns only values within 0..100, which are not normalized.
    """

    weight: t.ClassVar[float] = 1.0
    bounded: t.ClassVar[bool] = False

    @abc.abstractmethod
    def score(self, state: CycleState, request: Request, node: NodeInfo) -> float:
        """Return a number in any unit, or within 0..100 if the plugin is bounded. More is better."""

    def score_all(self, state: CycleState, request: Request, nodes: Sequence[NodeInfo]) -> list[float]:
        """Return the scores of the nodes."""
        return [self.score(state, request, node) for node in nodes]

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
        """Return the allowed VMIDs, or None if the request sets nothing for this plugin. Raises InvalidRequest."""


class ReservePlugin(Plugin):
    """Chooses what the request takes on the chosen node, for example storages or devices."""

    @abc.abstractmethod
    def reserve(self, state: CycleState, request: Request, node: NodeInfo, draft: Draft) -> Status | None:
        """Write what the request takes into draft. It counts as soon as the decision is assumed, and is released with
        it. Return None, or a status that rejects the request.
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
        """Return None, WAIT, or a status that rejects the decision.

        placed are the requests that this run has placed so far, this one included; waiting those that may still be
        placed; failed those that could not be placed, or are held back. After WAIT, permit is called again when no
        other request is left to decide. If it still does not return None, the decision is taken back.
        """


# --- settings: declared as data, checked here, documented from the same declaration ---

_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "bool": ((bool,), "true or false"),
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "str": ((str,), "a text"),
    "list": ((list,), "a list"),
    "dict": ((dict,), "a mapping"),
}
"""The types of a setting's value, and what a message calls them, by the kind of the setting."""

# Beyond it floats are not exact to the whole number. NaN is on no side of it.
_LARGEST = 1e15


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of a plugin's config.

    Attributes:
        kind: bool, int, float, str, list or dict.
        default: used when the key is absent; None is allowed for every kind and means "not set".
        help: one sentence with the unit.
        values: for dict, what each of its values is.
        minimum: smallest number allowed, for int and float.
        choices: the only values allowed, for str.
    """

    kind: str
    default: t.Any
    help: str
    minimum: float | None = None
    choices: tuple[str, ...] = ()
    values: Setting | None = None

    def check(self, where: str, value: t.Any) -> t.Any:
        """Return value as this setting's kind, or raise InvalidPluginConfig; where names the plugin and key."""
        if value is None:
            return self.default
        value = _from_text(self.kind, value)
        types, expected = _KINDS[self.kind]
        fits: bool = isinstance(value, types)
        if not fits or (isinstance(value, bool) and self.kind != "bool"):
            raise InvalidPluginConfig(f"{where}: expected {expected}, got {value!r}")
        if self.kind in ("int", "float") and not -_LARGEST < value < _LARGEST:
            raise InvalidPluginConfig(f"{where}: expected a number below 1e15, got {str(value)[:20]}")
        if self.minimum is not None and value < self.minimum:
            raise InvalidPluginConfig(f"{where}: expected at least {self.minimum:g}, got {value!r}")
        if self.choices and value not in self.choices:
            raise InvalidPluginConfig(f"{where}: expected one of {', '.join(self.choices)}, got {value!r}")
        if self.values is not None:
            return {key: self.values.check(f"{where}.{key}", each) for key, each in value.items()}
        return float(value) if self.kind == "float" else value


def check_settings(where: str, settings: Mapping[str, Setting], given: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return all settings with the given ones checked and the others at their defaults; where is their place."""
    if not isinstance(given, Mapping):
        raise InvalidPluginConfig(f"{where}: expected a mapping, got {given!r}")
    if not given:
        return {key: setting.default for key, setting in settings.items()}
    unknown = sorted(set(given) - set(settings))
    if unknown:
        known = ", ".join(sorted(settings)) or "none: it takes no config"
        meant = hint(settings, str(unknown[0]))
        raise InvalidPluginConfig(f"{where}: unknown key {unknown[0]!r}; known keys: {known}{meant}")
    return {
        key: setting.check(f"{where}.{key}", given[key]) if key in given else setting.default
        for key, setting in settings.items()
    }


def _from_text(kind: str, value: t.Any) -> t.Any:
    """Convert a number or a boolean that may arrive as text: Jinja2 templates make strings."""
    if isinstance(value, str):
        try:
            if kind in ("int", "float"):
                return int(value) if kind == "int" else float(value)
        except ValueError:
            return value
        if kind == "bool" and value.lower() in ("true", "yes", "on", "1", "false", "no", "off", "0"):
            return value.lower() in ("true", "yes", "on", "1")
    return value


# --- what plugins work on: their data, the draft of the decision, the requests of the run ---

T = t.TypeVar("T")


class CycleState(dict[t.Any, t.Any]):
    """Data of one request's scheduling cycle. A plugin stores it in PreFilter, under its own name, for its later
    extension points. Plugins do not use the entries of other plugins.
    """

    def once(self, key: t.Any, find: Callable[..., T], *args: t.Any) -> T:
        """Return the result of find for args. find is called once per key and cycle."""
        if key not in self:
            self[key] = find(*args)
        found: T = self[key]
        return found


@dataclass(slots=True)
class Draft:
    """A mutable model.Decision, with the same fields."""

    request: Request
    node: str
    score: float
    vmid: int = 0
    storages: dict[str, str] = field(default_factory=dict)
    storage_bytes: dict[tuple[str, str], int] = field(default_factory=dict)
    devices: list[DeviceAllocation] = field(default_factory=list)
    template: Template | None = None
    landing: str | None = None

    def decision(self, turn: int = 0) -> Decision:
        """Return the draft as a decision. turn is its place among the decisions of the run."""
        return Decision(
            request=self.request,
            node=self.node,
            vmid=self.vmid,
            storages=self.storages,
            storage_bytes=self.storage_bytes,
            devices=tuple(self.devices),
            template=self.template,
            landing=self.landing,
            score=self.score,
            turn=turn,
        )


class Requests(Collection[Request]):
    """Some requests of a run, as Permit plugins get them."""

    def __init__(self, requests: Collection[Request] = ()) -> None:
        self._requests = requests

    def in_group(self, name: str) -> int:
        """Return how many belong to the group."""
        return sum(request.gang is not None and request.gang.name == name for request in self)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, request: object) -> bool:
        return request in self._requests
