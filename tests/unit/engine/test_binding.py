# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PreBind, Bind and PostBind: who is asked, and what is made of the answers."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest
from support.small_cluster import profile, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.binding import (
    run_bind,
    run_post_bind,
    run_pre_bind,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.interface import (
    BindPlugin,
    Plugin,
    PostBindPlugin,
    PreBindPlugin,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.status import (
    SKIP,
    Status,
    unschedulable,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import PluginFailed
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Decision

DECISION = Decision(vm(), "pve1", 100)
NO = unschedulable("is not to be")


@pytest.fixture
def called() -> list[str]:
    return []


def plugin(point: type[Plugin], name_: str, answer: t.Any, called: list[str]) -> type[Plugin]:
    """A plugin at one point that answers so, or raises what it is given."""

    class Answering(point):  # type: ignore[misc, valid-type]
        name = name_

        def pre_bind(self, decision: Decision) -> Status | None:
            called.append(name_)
            if isinstance(answer, Exception):
                raise answer
            return t.cast("Status | None", answer)

        bind = pre_bind
        post_bind = pre_bind

    return Answering


def test_pre_bind_asks_all_while_they_agree(called: list[str]) -> None:
    own = [plugin(PreBindPlugin, "A", None, called), plugin(PreBindPlugin, "B", SKIP, called)]
    assert run_pre_bind(profile(own=own), DECISION) is None
    assert called == ["A", "B"]


def test_the_first_pre_bind_that_refuses_ends_it(called: list[str]) -> None:
    own = [plugin(PreBindPlugin, "A", NO, called), plugin(PreBindPlugin, "B", None, called)]
    assert run_pre_bind(profile(own=own), DECISION) == replace(NO, plugin="A")
    assert called == ["A"]


def test_a_pre_bind_or_bind_that_raises_names_its_plugin(called: list[str]) -> None:
    for point, run in ((PreBindPlugin, run_pre_bind), (BindPlugin, run_bind)):
        with pytest.raises(PluginFailed, match="plugin A failed: OSError: disk"):
            run(profile(own=[plugin(point, "A", OSError("disk"), called)]), DECISION)


def test_the_first_bind_that_does_not_skip_has_done_it(called: list[str]) -> None:
    own = [plugin(BindPlugin, name, answer, called) for name, answer in (("A", SKIP), ("B", None), ("C", None))]
    assert run_bind(profile(own=own), DECISION) is None
    assert called == ["A", "B"]


def test_a_bind_that_could_not_is_not_tried_with_another(called: list[str]) -> None:
    own = [plugin(BindPlugin, "A", NO, called), plugin(BindPlugin, "B", None, called)]
    assert run_bind(profile(own=own), DECISION) == replace(NO, plugin="A")
    assert called == ["A"]


def test_when_no_plugin_binds_the_caller_has_to(called: list[str]) -> None:
    for own in ([], [plugin(BindPlugin, "A", SKIP, called)]):
        rejection = run_bind(profile(own=own), DECISION)
        assert rejection is not None
        assert rejection.code is SKIP.code


def test_every_post_bind_is_told_and_failures_are_only_returned(called: list[str]) -> None:
    own = [plugin(PostBindPlugin, "A", KeyError("x"), called), plugin(PostBindPlugin, "B", None, called)]
    failures = run_post_bind(profile(own=own), DECISION)
    assert called == ["A", "B"]
    assert [failure.message for failure in failures] == ["plugin A failed: KeyError: 'x'"]
