# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a task states that nodes and guests used."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.demand import CPU, MEMORY, Stated
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import MIB
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.metrics import stated_metrics


def test_metrics__are_numbers_as_monitoring_has_them() -> None:
    nodes = {"pve1": {"cpu": ["0.5", "NaN", None, 1e-3], "memory": 512}}

    assert stated_metrics({"metrics": {"nodes": nodes}}) == Stated(
        {"pve1": {CPU: (0.5, None, None, 0.001), MEMORY: (512 * MIB,)}}
    )
    assert stated_metrics({}) == Stated()


@pytest.mark.parametrize("given", [None, "nan", [None, "NaN"]])
def test_what_monitoring_does_not_know__is_not_zero(given: t.Any) -> None:
    guests = {105: {"cpu": given}, "web": {"cpu": given, "memory": 1}}

    assert stated_metrics({"metrics": {"guests": guests}}) == Stated(guests={"web": {MEMORY: (MIB,)}})


@pytest.mark.parametrize("given", [-1, True, "much", [], [[0.5]], {"x": 1}, float("inf"), 10**400, 93])
def test_mistake__is_named_wherever_it_is(given: t.Any) -> None:
    metrics = {"guests": {"web": {"cpu": given}}}
    for params, where in (({"metrics": metrics}, "metrics"), ({"balance": {"metrics": metrics}}, "balance.metrics")):
        with pytest.raises(InvalidRequest, match=rf"^{where}\.guests\.web\.cpu"):
            stated_metrics(params)
