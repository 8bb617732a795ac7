# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls into plugins, which may be third-party code: an error in a plugin fails the VM and nothing else."""

from __future__ import annotations

import math
import os
import sys
import traceback
import typing as t
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from ..errors import CollectionError, PluginFailed
from ..model import Request
from .cache import NodeInfo
from .framework.interface import CycleState, FilterPlugin, Plugin, ScorePlugin
from .framework.many_nodes import FilterOfMany, ScoreOfMany
from .framework.status import SKIPS, Code, Status
from .profiles import Profile

T = t.TypeVar("T")

_SLACK = 1e-6
"""How far rounding may push a score beyond 0..100."""


def call_plugin(plugin: Plugin, call: Callable[..., T], *args: t.Any) -> T:
    """Call into a plugin. Any exception becomes PluginFailed, except a CollectionError, which is meant for the user."""
    try:
        return call(*args)
    except CollectionError:
        raise
    except Exception as error:  # a plugin may be anybody's code and raise anything
        raise failure_by(plugin, error) from error


class Blame:
    """Does the same for a block of calls, a little faster: attribute plugin names the plugin that is being called."""

    plugin: Plugin | None = None

    def __enter__(self) -> Blame:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self.plugin is not None and isinstance(error, Exception) and not isinstance(error, CollectionError):
            raise failure_by(self.plugin, error) from error


def check_request(profile: Profile, request: Request) -> None:
    """Let the plugins check a request. Raises InvalidRequest and PluginFailed."""
    with Blame() as blame:
        for plugin in profile.plugins_about(request).checking:
            blame.plugin = plugin
            status = plugin.pre_enqueue(request)
            if status is not None:
                check_answer(plugin, status)


def ask(plugin: Plugin, call: Callable[..., Status | None], *args: t.Any) -> Status | None:
    """Call a method that returns a status, and check the status."""
    return check_answer(plugin, call_plugin(plugin, call, *args))


def check_answer(plugin: Plugin, answer: object) -> Status | None:
    """Return the answer as a status with the plugin's name, or None for success. Raises PluginFailed for any other
    type.
    """
    if answer is None:
        return None
    if not isinstance(answer, Status):
        raise failure_of(plugin, f"expected a Status or None, got {answer!r}")
    if answer.code is Code.SUCCESS:
        return None
    if answer.code in SKIPS:
        return answer
    # Faster than _replace: on a large cluster, many nodes are rejected.
    return Status(*answer[:5], plugin.name, plugin.category)


def finite(plugin: Plugin, score: float) -> float:
    """Return the score. Raises PluginFailed if it is not finite, as such scores cannot be compared."""
    if not math.isfinite(score):
        raise failure_of(plugin, f"score() answered {score!r}, expected a finite number")
    return score


def in_range(plugin: ScorePlugin, score: float) -> float:
    """Return the score. Raises PluginFailed if it is not within 0..100, where it would outweigh or cancel all
    others.
    """
    if not -_SLACK <= score <= 100.0 + _SLACK:
        if plugin.bounded:
            cure = "leave out 'bounded = True', and scores of any unit are normalized"
            raise failure_of(plugin, f"score() answered {score!r}, expected 0..100; {cure}")
        raise failure_of(plugin, f"normalize() answered {score!r}, expected 0..100")
    return score if score > 0.0 else 0.0


def all_in_range(plugin: ScorePlugin, scores: Sequence[float]) -> Sequence[float]:
    """Check many scores; fast if all are valid."""
    invalid = [score for score in scores if not 0.0 <= score <= 100.0]
    return [in_range(plugin, score) for score in scores] if invalid else scores


def score_all(plugin: ScorePlugin, state: CycleState, request: Request, nodes: Sequence[NodeInfo]) -> list[float]:
    """Return the scores that any score plugin gives the nodes."""
    if isinstance(plugin, ScoreOfMany):
        return plugin.score_all(state, request, nodes)
    return [plugin.score(state, request, node) for node in nodes]


def raw_scores(plugin: ScorePlugin, state: CycleState, request: Request, nodes: Sequence[NodeInfo]) -> list[float]:
    """Return the scores of the nodes in the plugin's own unit."""
    scores = call_plugin(plugin, score_all, plugin, state, request, nodes)
    # One number that is not finite makes the sum so.
    return scores if math.isfinite(sum(scores)) else [finite(plugin, score) for score in scores]


def normalize_scores(
    plugin: ScorePlugin, state: CycleState, request: Request, nodes: Sequence[NodeInfo], raw: Sequence[float]
) -> Sequence[float]:
    """Return the same scores within 0..100."""
    made = call_plugin(plugin, plugin.normalize, state, request, nodes, list(raw))
    if len(made) != len(raw):
        raise failure_of(plugin, f"normalize() made {len(made)} scores of {len(raw)}")
    return all_in_range(plugin, made)


def run_filters(
    state: CycleState,
    request: Request,
    filters: Iterable[FilterPlugin],
    nodes: Sequence[NodeInfo],
    rejections: dict[int, Status],
) -> Sequence[NodeInfo]:
    """Let each filter evaluate the nodes that those before it accept. Store the rejections by the index of the node;
    return the nodes that all filters accept.
    """
    with Blame() as blame:
        for plugin in filters:
            blame.plugin = plugin
            if isinstance(plugin, FilterOfMany):
                statuses = plugin.filter_all(state, request, nodes)
            else:
                statuses = list(map(partial(plugin.filter, state, request), nodes))
            if statuses.count(None) == len(nodes):
                continue
            left = []
            last: Status | None = None
            rejection: Status | None = None
            for info, status in zip(nodes, statuses, strict=True):
                # Many nodes may share one status.
                if status is not None and status is not last:
                    last, rejection = status, check_answer(plugin, status)
                if status is None or rejection is None:
                    left.append(info)
                else:
                    rejections[info.index] = rejection
            nodes = left
    return nodes


def failure_by(plugin: Plugin, error: Exception) -> PluginFailed:
    """Return the error for an exception that a plugin raised, with the line in the plugin's own file if known."""
    own = getattr(sys.modules.get(type(plugin).__module__), "__file__", None)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == own]
    where = f" ({os.path.basename(own)}, line {lines[-1]})" if own and lines else ""
    return failure_of(plugin, f"{type(error).__name__}: {error}{where}")


def failure_of(plugin: Plugin, what: str) -> PluginFailed:
    """Return the error for a plugin that failed."""
    return PluginFailed(f"plugin {plugin.name} failed: {what}", plugin=plugin.name)
