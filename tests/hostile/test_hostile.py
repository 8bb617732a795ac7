# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever comes from outside, the collection does its work or says what is wrong.

HOSTILE_CASES is how many cases are tried in all. One half is always the same, the other half comes from a hash of the
code. HOSTILE_CASE repeats one.
"""

from __future__ import annotations

import functools
import json
import os
import random
from pathlib import Path

import pytest
from support.code_seeds import code_digest, new_seeds

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory import freshness

from .cases import KINDS, SECRET, TASKS, run_module, whole_cluster

CASES = int(os.environ.get("HOSTILE_CASES", "200"))
ONE = os.environ.get("HOSTILE_CASE")
BATCHES = 8
TESTS = Path(__file__).resolve().parents[1]
CODE = (TESTS.parent / "plugins", TESTS / "hostile")


@functools.cache
def seeds() -> tuple[int, ...]:
    """The cases of this run."""
    if ONE is not None:
        return (int(ONE),)
    return (*range(CASES // 2), *new_seeds(code_digest(CODE), range(CASES - CASES // 2)))


def kind_of(seed: int) -> str:
    """Which input is changed in a case: answers and options have by far the most ways of being wrong."""
    return random.Random(seed).choices(list(KINDS), weights=[8, 8, 1, 1, 1, 1, 2, 1, 2, 1, 2])[0]


@pytest.mark.parametrize("batch", range(1 if ONE is not None else BATCHES))
def test_hostile__input_of_any_kind_is_refused_in_our_words_or_taken(
    batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in seeds()[batch::BATCHES]:
        kind = kind_of(seed)
        try:
            KINDS[kind](random.Random(seed), tmp_path)
        except Exception as error:
            raise AssertionError(f"changed {kind}: see it again by HOSTILE_CASE={seed} make hostile") from error


@pytest.mark.parametrize("module", TASKS)
def test_hostile__the_task_that_is_changed_goes_well_unchanged(module: str, tmp_path: Path) -> None:
    result = run_module(module, {**TASKS[module], "snapshot": whole_cluster("9.2")})
    assert not result.get("failed"), result["msg"]


def test_recording__is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setitem(freshness.settle.__kwdefaults__, "sleep", waits.append)
    result = run_module("qemu_schedule", {**TASKS["qemu_schedule"], "snapshot": whole_cluster("9.2")})
    assert (result["changed"], waits) == (True, [])


@pytest.mark.parametrize("vms", [[1], [{"name": "a", "cipassword": SECRET, "devices": [1]}], {"cipassword": SECRET}])
def test_secret__is_masked_when_a_nested_option_has_the_wrong_type(vms: object) -> None:
    result = run_module("qemu_schedule", {**TASKS["qemu_schedule"], "vms": vms})
    assert result["failed"]
    # A value that is no mapping ends the task before it is known what is secret: then no option is shown. From 2.21 on,
    # ansible-core shows none anyway.
    shown = result.get("invocation", {}).get("module_args")
    assert not shown or shown["api_token_secret"] == "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER"
    assert SECRET not in json.dumps(result)
