# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which requests share verdicts, and the shared verdicts that are kept between cycles."""

from __future__ import annotations

import typing as t
from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..errors import CollectionError
from ..model import Request
from .cache import ClusterState
from .framework.interface import CycleState, FilterPlugin, Plugin, ScorePlugin
from .framework.many_nodes import NOT_SHARED, SharedPlugin
from .framework.status import Code, Status
from .guard import Blame, guarded
from .profiles import Concerned, Profile
from .sharing import SharedVerdicts

P = t.TypeVar("P", bound=Plugin)

VERDICTS_KEPT = 1_000_000
"""How many verdicts on nodes are kept for all kinds of requests together, which takes about 100 MB. The kinds that were
not used for the longest time are dropped first.
"""


@dataclass(slots=True)
class Kind:
    """What requests that share verdicts have in common.

    Attributes:
        concerned: the plugins that such requests concern.
        signatures: what of the request affects the verdicts of each sharing plugin.
        alone: the sharing plugins whose verdicts on such a request are not shared.
    """

    profile: Profile
    concerned: Concerned
    signatures: Sequence[Hashable]
    alone: tuple[str, ...]

    @property
    def key(self) -> Hashable:
        return (self.profile.name, self.concerned.idle, *self.signatures)

    def plain(self, codes: Mapping[str, Code]) -> tuple[list[FilterPlugin], list[ScorePlugin]]:
        """The plain plugins that apply, given the codes that PreFilter returned."""
        divided = self.profile.divided(self.alone)
        filters = self._those(divided.plain_filters, codes, Code.SKIP_SCORE)
        return filters, self._those(divided.plain_scorers, codes, Code.SKIP_FILTER)

    def begin(
        self,
        cluster: ClusterState,
        statuses: Mapping[str, Status | None],
        refusing: Collection[str],
        codes: Mapping[str, Code],
    ) -> SharedVerdicts:
        """Begin to share verdicts. statuses and codes are those of PreFilter; refusing names the plugins that refused
        every node there.
        """
        divided = self.profile.divided(self.alone)
        sharing = [plugin for plugin in self.concerned.sharing if plugin.name not in self.alone]
        return SharedVerdicts(
            cluster,
            self.profile.weights,
            self._those(divided.shared_filters, codes, Code.SKIP_SCORE),
            self._those(divided.shared_scorers, codes, Code.SKIP_FILTER),
            {p: statuses[p.name] for p in self.profile.keeping if p in sharing and p.name not in refusing},
            codes,
            {plugin.name for plugin in sharing},
        )

    def _those(self, plugins: Iterable[P], codes: Mapping[str, Code], other: Code) -> list[P]:
        """The plugins that the requests concern, and that PreFilter did not skip. other skips only another point."""
        idle = self.concerned.idle
        return [p for p in plugins if p.name not in idle and codes.get(p.name) in (None, other)]


class KeptVerdicts:
    """The shared verdicts of those kinds of requests that were decided last."""

    def __init__(self, cluster: ClusterState, *, sharing: bool) -> None:
        """Without sharing, no verdict is shared."""
        self._cluster = cluster
        self._sharing = sharing
        self._kept: OrderedDict[Hashable, SharedVerdicts] = OrderedDict()
        self._size = 0

    def kind_of(self, profile: Profile, request: Request) -> Kind:
        """The kind of a request."""
        concerned = profile.concerned(request)
        signatures = self._signatures(concerned.sharing, request)
        told = zip(concerned.sharing, signatures, strict=True)
        return Kind(profile, concerned, signatures, tuple([p.name for p, signature in told if signature is NOT_SHARED]))

    def of(self, kind: Kind) -> SharedVerdicts | None:
        """The verdicts that are kept for a kind."""
        try:
            return self._kept.get(kind.key)
        except TypeError:
            for plugin, signature in zip(kind.concerned.sharing, kind.signatures, strict=True):
                guarded(plugin, hash, signature)
            raise

    def catch_up(self, kind: Kind, shared: SharedVerdicts, state: CycleState, request: Request) -> None:
        """Bring the verdicts of a kind up to date. If a plugin fails, they may be inconsistent, and are dropped."""
        try:
            shared.catch_up(state, request)
        except CollectionError:
            dropped = self._kept.pop(kind.key, None)
            self._size -= dropped.size if dropped is not None else 0
            raise

    def keep(self, kind: Kind, shared: SharedVerdicts) -> None:
        """Keep the verdicts for requests of the same kind, and drop those that were not used for the longest time."""
        key = kind.key
        before = self._kept.get(key)
        if before is not shared:
            self._kept[key] = shared
            self._size += shared.size - (before.size if before is not None else 0)
        self._kept.move_to_end(key)
        while self._size > VERDICTS_KEPT and len(self._kept) > 1:
            self._size -= self._kept.popitem(last=False)[1].size

    def _signatures(self, sharing: Sequence[SharedPlugin], request: Request) -> list[Hashable]:
        if not self._sharing:
            return [NOT_SHARED] * len(sharing)
        signatures: list[Hashable] = []
        with Blame() as blame:
            for plugin in sharing:
                blame.plugin = plugin
                signatures.append(plugin.signature(request, self._cluster))
        return signatures
