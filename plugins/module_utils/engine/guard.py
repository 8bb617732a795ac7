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
from array import array
from collections.abc import Callable, Iterable, Sequence

from ..errors import CollectionError, PluginFailed
from ..model import Request
from .cache import NodeInfo
from .framework.interface import CycleState, FilterPlugin, Plugin, ScorePlugin
from .framework.status import SKIPS, Code, Status
from .profiles import Concerned

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


def check_request(plugins: Concerned, request: Request) -> Status | None:
    """Let all plugins check a request; return the first status that holds it back. Raises InvalidRequest and
    PluginFailed.
    """
    held: Status | None = None
    for plugin in plugins.checking:
        status = ask(plugin, plugin.pre_enqueue, request)
        held = held or status
    return held


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


def score_nodes(
    plugin: ScorePlugin, state: CycleState, request: Request, nodes: Sequence[NodeInfo]
) -> tuple[array[float], array[float]]:
    """Return the scores of the nodes in the plugin's own unit, and the same within 0..100. Raises PluginFailed for
    scores that cannot be compared.
    """
    given = call_plugin(plugin, plugin.score_all, state, request, nodes)
    if len(given) != len(nodes):
        raise failure_of(plugin, f"score_all() returned {len(given)} scores for {len(nodes)} nodes")
    # One number that is not finite makes the sum so.
    if not math.isfinite(sum(given)):
        for score in given:
            if not math.isfinite(score):
                raise failure_of(plugin, f"score() answered {score!r}, expected a finite number")
    raw = scores = array("d", given)
    if not plugin.bounded:
        made = call_plugin(plugin, plugin.normalize, state, request, nodes, list(raw))
        if len(made) != len(raw):
            raise failure_of(plugin, f"normalize() returned {len(made)} scores for {len(raw)} nodes")
        scores = array("d", made)
    if [score for score in scores if not 0.0 <= score <= 100.0]:
        scores = _without_rounding(plugin, scores)
    return raw, scores


def _without_rounding(plugin: ScorePlugin, scores: array[float]) -> array[float]:
    """Return scores within 0..100, which rounding may have pushed a little beyond. Raises PluginFailed if it was more,
    as such scores would outweigh or cancel all others.
    """
    for score in scores:
        if not -_SLACK <= score <= 100.0 + _SLACK:
            method = "score" if plugin.bounded else "normalize"
            cure = "; leave out 'bounded = True', and scores of any unit are normalized" if plugin.bounded else ""
            raise failure_of(plugin, f"{method}() answered {score!r}, expected 0..100{cure}")
    return array("d", [max(score, 0.0) for score in scores])


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
    for plugin in filters:
        # As call_plugin does, with one frame less: this is on the way of every request.
        try:
            statuses = plugin.filter_all(state, request, nodes)
            if statuses.count(None) != len(nodes):
                nodes = _drop_rejected(plugin, nodes, statuses, rejections)
        except CollectionError:
            raise
        except Exception as error:  # a plugin may be anybody's code and raise anything
            raise failure_by(plugin, error) from error
    return nodes


def _drop_rejected(
    plugin: FilterPlugin,
    nodes: Sequence[NodeInfo],
    statuses: Sequence[Status | None],
    rejections: dict[int, Status],
) -> Sequence[NodeInfo]:
    """Store the rejections among the statuses; return the nodes that are left."""
    accepted = []
    last: Status | None = None
    rejection: Status | None = None
    for info, status in zip(nodes, statuses, strict=True):
        # Many nodes may share one status.
        if status is not None and status is not last:
            last, rejection = status, check_answer(plugin, status)
        if status is None or rejection is None:
            accepted.append(info)
        else:
            rejections[info.index] = rejection
    return accepted


def failure_by(plugin: Plugin, error: Exception) -> PluginFailed:
    """Return the error for an exception that a plugin raised, with the line in the plugin's own file if known."""
    own = getattr(sys.modules.get(type(plugin).__module__), "__file__", None)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == own]
    where = f" ({os.path.basename(own)}, line {lines[-1]})" if own and lines else ""
    return failure_of(plugin, f"{type(error).__name__}: {error}{where}")


def failure_of(plugin: Plugin, what: str) -> PluginFailed:
    """Return the error for a plugin that failed."""
    return PluginFailed(f"plugin {plugin.name} failed: {what}", plugin=plugin.name)
