# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Constraints are expressions over one device, and cannot do anything else."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.devices.constraints import (
    ConstraintError,
    Matcher,
    compile_constraint,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Device

GPU = {"vendor": "10de", "device": "1eb8", "memory": 24, "name": "Tesla T4", "items": 3, "numa_node": 0}


def device(**attributes: t.Any) -> Device:
    return Device("pci", "gpu", "pve1", "0000:01:00.0", attributes=attributes)


@pytest.mark.parametrize(
    "constraint",
    [
        "device.vendor == '10de'",
        "device.memory >= 16 and device.memory < 48",
        "'T4' in device.name",
        "device.name.lower().startswith('tesla')",
        "device['vendor'] in ['10de', '1002']",
        "device.memory * 2 == 48",
        "device.items == 3",
        "'memory' in device",
        "device.speed is not defined",
        "device.speed | default(10) > 5",
        "device.numa_node == 0",
    ],
)
def test_true_constraint_of_a_device__holds(constraint: str) -> None:
    assert compile_constraint(constraint)(GPU)


@pytest.mark.parametrize(
    "constraint",
    [
        "device.speed > 5",
        "device.speed == 5",
        "device.speed != 5",
        "not device.speed",
        "device.speed",
        "device.vendor.nothing == 1",
    ],
)
def test_what_needs_an_attribute_that_the_device_lacks__does_not_hold(constraint: str) -> None:
    assert not compile_constraint(constraint)(GPU)


@pytest.mark.parametrize(
    ("constraint", "why"),
    [
        ("device.vendor ==", "is not a Jinja2 expression"),
        ("device.vendor == '10de' }} {{ 1", "is not a Jinja2 expression"),
        ("devise.vendor == '10de'", "'devise' is not defined, only 'device' is"),
        ("range(3) == 1", "'range' is not defined"),
        ("device.name | replace('T', 'TT')", "is not a Jinja2 expression: No filter named 'replace'"),
        ("(" * 400 + "1" + ")" * 400, "is not a Jinja2 expression"),
        ("device.vendor == '" + "x" * 1000 + "'", "expected at most 1000"),
    ],
)
def test_text_that_cannot_be_a_constraint__is_told_apart_when_it_is_read(constraint: str, why: str) -> None:
    with pytest.raises(ConstraintError, match=why.replace("(", r"\(")):
        compile_constraint(constraint)


@pytest.mark.parametrize(
    "constraint",
    [
        "9 ** 9 ** 9 ** 9 > 1",
        "('x' * 999999999999) == 1",
        "[1] * 999999999 == 1",
        "'%999999999999d' % 1 == ''",
        "'{:>999999999999}'.format(1) == ''",
        "'x'.ljust(999999999999) == ''",
        "device.name.__class__.__mro__",
        "device.memory > 'x'",
        "1 / 0",
    ],
)
def test_constraint_that_fails_or_would_never_end__is_an_error(constraint: str) -> None:
    holds = compile_constraint(constraint)
    with pytest.raises(ConstraintError, match="failed with"):
        holds(GPU)


def test_error__names_the_claim_the_constraint_and_the_device() -> None:
    with pytest.raises(InvalidRequest) as caught:
        Matcher().meets(device(memory="24"), "trainer", "device.memory > 16")

    for word in ("'trainer'", "'device.memory > 16'", "0000:01:00.0", "'gpu'", "pve1"):
        assert word in caught.value.message


def test_what_a_device_is__cannot_be_overwritten_by_its_attributes() -> None:
    assert Matcher().meets(device(node="other", driver="usb"), "c", "device.node == 'pve1' and device.driver == 'pci'")


def test_each_device__is_looked_at_once_per_constraint(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    class Watched(dict[str, t.Any]):
        def keys(self) -> t.Any:
            looked.append("once")
            return super().keys()

    one = Device("pci", "gpu", "pve1", "0000:01:00.0", attributes=Watched(vendor="10de"))
    matcher = Matcher()

    assert all(matcher.meets(one, "c", "device.vendor == '10de'") for _again in range(5))
    assert len(looked) <= 1
