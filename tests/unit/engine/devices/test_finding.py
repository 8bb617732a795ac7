# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node gives to the claims of one VM, and what it says when it cannot."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState, NodeInfo
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.devices.constraints import Matcher
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.devices.finding import (
    Met,
    find_devices,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.devices.mixed import mixed_mappings
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework.status import Status
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import (
    Device,
    DeviceClaim,
    Guest,
    Node,
    Request,
    Snapshot,
)

A, B, C = "0000:01:00.0", "0000:02:00.0", "0000:03:00.0"


def pci(mapping: str, address: str, in_use: int = 0, **attributes: t.Any) -> Device:
    return Device("pci", mapping, "pve1", address, in_use=in_use, attributes=attributes)


def usb(mapping: str, port: str) -> Device:
    return Device("usb", mapping, "pve1", port)


def vgpu(card: str, type: str, capacity: int) -> Device:
    return Device("pci", "vgpu", "pve1", f"{card}/{type}", capacity=capacity, mdev=type)


def node(*devices: Device, guests: Iterable[Guest] = ()) -> NodeInfo:
    state = ClusterState(Snapshot(nodes=(Node("pve1"),), devices=devices, guests=tuple(guests)))
    found = state.by_name.get("pve1")
    assert found is not None
    return found


def claim(name: str = "c", **wanted: t.Any) -> DeviceClaim:
    return DeviceClaim(name, **wanted)


def find(where: NodeInfo, *claims: DeviceClaim, **options: t.Any) -> Met | Status:
    return find_devices(Request("vm", devices=claims, options=options), where, Matcher())


def given(where: NodeInfo, *claims: DeviceClaim, **options: t.Any) -> list[tuple[str, str]]:
    found = find(where, *claims, **options)
    assert isinstance(found, Met), found
    return [(each.claim, each.device) for each in found.allocations]


def refused(where: NodeInfo, *claims: DeviceClaim, **options: t.Any) -> Status:
    found = find(where, *claims, **options)
    assert isinstance(found, Status), found
    return found


# --- reasons ---


def test_each_pool__says_why_it_was_passed_over() -> None:
    where = node(pci("full", A, in_use=1, vendor="10de"), pci("old", B, vendor="1002"), usb("stick", "1-2"))

    unmet = refused(where, claim("gpu", driver="pci", constraints=("device.vendor == '10de'",)))

    assert unmet.reason == "couldn't satisfy device claim 'gpu'"
    assert unmet.detail == (
        "full: no available devices; old: constraints not met; stick: claim and pool driver do not match; "
        "unable to satisfy 1 of 1 device requests"
    )


def test_pool_with_too_few_devices__says_how_many_it_has() -> None:
    unmet = refused(node(pci("gpu", A), pci("gpu", B)), claim(mapping="gpu", count=3))

    assert unmet.detail == "gpu: 2 available; unable to satisfy 1 of 3 device requests"


def test_error__names_only_pools_of_the_requested_mapping() -> None:
    assert refused(node(pci("nic", A)), claim(mapping="gpu")).detail.startswith("gpu: not mapped here; unable")


def test_mapping__that_proxmox_finds_wrong_is_refused_with_what_is_wrong() -> None:
    fault = "PCI device '0000:01:00.0' not found"
    broken = Device("pci", "gpu", "pve1", A, capacity=0, fault=fault)

    unmet = refused(node(broken, pci("other", B)), claim(mapping="gpu"))
    assert unmet.detail == f"gpu: {fault}; unable to satisfy 1 of 1 device requests"
    assert not unmet.resolvable
    assert given(node(broken, pci("other", B)), claim(driver="pci")) == [("c", B)]


def test_devices_in_use__can_become_free_but_devices_that_do_not_fit_cannot() -> None:
    assert refused(node(pci("gpu", A, in_use=1)), claim(mapping="gpu")).resolvable
    assert not refused(node(pci("gpu", A, vendor="1002")), claim(constraints=("device.vendor == '10de'",))).resolvable
    assert not refused(node(pci("gpu", A, in_use=1)), claim(mapping="gpu", count=2)).resolvable


def test_claims_that_fail_only_together__say_so() -> None:
    unmet = refused(node(pci("gpu", A)), claim("one", mapping="gpu"), claim("two", mapping="gpu"))

    assert unmet.reason == "couldn't satisfy device claim 'two' beside the others"
    assert "gpu: no available devices" in unmet.detail


# --- sets of pools ---


def test_one_pool_that_has_enough__is_preferred_to_an_earlier_one_that_has_not() -> None:
    where = node(pci("a", A), pci("b", B), pci("b", C))

    assert [device for _claim, device in given(where, claim(count=2))] == [B, C]


def test_several_pools_together__serve_a_claim_that_none_serves_alone() -> None:
    where = node(pci("a", A), pci("b", B), pci("c", C))

    assert [device for _claim, device in given(where, claim(count=2))] == [A, B]


def test_pools__are_filled_in_order_of_their_names_and_addresses() -> None:
    where = node(pci("b", A), pci("a", C), pci("a", B))

    assert [device for _claim, device in given(where, claim(count=3))] == [B, C, A]


def test_matched_attributes__are_equal_among_all_devices_of_a_claim() -> None:
    where = node(pci("gpu", A, numa_node=0), pci("gpu", B, numa_node=1), pci("gpu", C, numa_node=1))

    assert [d for _claim, d in given(where, claim(count=2, match_attributes=("numa_node",)))] == [B, C]
    assert refused(where, claim(count=3, match_attributes=("numa_node",))).detail == (
        "gpu: 3 available; 2 available with equal match_attributes; unable to satisfy 1 of 3 device requests"
    )


def test_device_without_the_matched_attribute__is_not_taken() -> None:
    where = node(pci("gpu", A), pci("gpu", B, numa_node=0))

    assert given(where, claim(match_attributes=("numa_node",))) == [("c", B)]


# --- several claims ---


def test_early_claim__leaves_a_later_one_the_only_device_that_fits_it() -> None:
    where = node(pci("gpu", A, memory=48), pci("gpu", B, memory=16))

    assert given(where, claim("any", mapping="gpu"), claim("big", constraints=("device.memory > 24",))) == [
        ("any", B),
        ("big", A),
    ]


def test_first_alternative_that_can_be_met__wins() -> None:
    where = node(pci("a100", A, in_use=1), pci("l4", B), pci("l4", C))
    either = claim("gpu", one_of=(claim("gpu", mapping="a100"), claim("gpu", mapping="l4", count=2)))

    assert given(where, either) == [("gpu", B), ("gpu", C)]
    assert given(node(pci("a100", A), pci("l4", B)), either) == [("gpu", A)]


def test_later_claim__can_push_an_earlier_one_to_its_second_alternative() -> None:
    where = node(pci("a100", A), pci("l4", B))
    either = claim("either", one_of=(claim(mapping="a100"), claim(mapping="l4")))

    assert given(where, either, claim("best", mapping="a100")) == [("either", B), ("best", A)]


def test_many_claims_that_cannot_be_met_together__are_given_up_in_time() -> None:
    where = node(*(pci(f"m{i}", f"0000:{i:02x}:00.0", n=i) for i in range(14)))
    claims = [claim(f"c{i}", constraints=(f"device.n != {i}", "device.n < 12")) for i in range(13)]

    assert isinstance(find(where, *claims), Status)


def test_devices_that_no_claim_can_tell_apart__are_not_tried_one_for_the_other() -> None:
    where = node(*(pci("gpu", f"0000:{number:02x}:00.0") for number in range(16)))

    unmet = refused(where, claim("one", count=8), claim("two", count=8), claim("three"))
    assert unmet.reason == "couldn't satisfy device claim 'three' beside the others"


# --- one piece of hardware under several names ---


def test_device_of_two_mappings__is_given_out_once() -> None:
    where = node(pci("any", A), pci("first", A))

    assert refused(where, claim("x", mapping="any"), claim("y", mapping="first"))
    assert refused(where, claim("z", count=2))


def test_device_of_two_mappings__is_free_again_after_an_offer_that_has_it_twice() -> None:
    where = node(pci("any", A), pci("first", A), pci("second", B))

    assert sorted(given(where, claim("z", count=2))) == [("z", A), ("z", B)]


@pytest.mark.parametrize("whole", ["0000:01:00", "0000:01:00.0;0000:01:00.1"])
def test_whole_card_and_one_of_its_functions__are_not_given_out_together(whole: str) -> None:
    where = node(pci("card", whole), pci("function", "0000:01:00.1"))

    assert refused(where, claim("x", mapping="card"), claim("y", mapping="function"))


def test_what_another_vm_was_given__is_gone_in_every_mapping() -> None:
    holder = Guest(100, "x", "pve1", status="assumed", devices=(("pci", A),))

    assert refused(node(pci("any", A), pci("first", A), guests=[holder]), claim(mapping="first"))
    assert refused(node(pci("card", "0000:01:00"), guests=[holder]), claim(mapping="card"))


def test_more_vms_booked_on_one_device__take_the_next_one_of_the_mapping() -> None:
    holders = [Guest(vmid, f"x{vmid}", "pve1", status="assumed", devices=(("pci", A),)) for vmid in (100, 101)]

    assert refused(node(pci("gpu", A), pci("gpu", B), guests=holders), claim(mapping="gpu"))
    assert given(node(pci("gpu", A), pci("gpu", B), pci("gpu", C), guests=holders), claim(mapping="gpu")) == [("c", C)]


# --- mediated devices ---


def test_type_of_mediated_device__serves_as_many_as_are_available() -> None:
    where = node(vgpu(A, "nvidia-222", 2))

    assert given(where, claim(mdev="nvidia-222", count=2)) == [("c", f"{A}/nvidia-222")] * 2
    assert refused(where, claim(mdev="nvidia-222", count=3))
    assert "vgpu: no mdev type 'nvidia-9'" in refused(where, claim(mdev="nvidia-9")).detail


def test_claim_without_a_type__gets_no_mediated_device() -> None:
    assert "vgpu: only mdev types" in refused(node(vgpu(A, "nvidia-222", 2)), claim(mapping="vgpu")).detail


def test_card__gives_no_second_type_while_one_is_taken() -> None:
    where = node(vgpu(A, "t1", 4), vgpu(A, "t2", 2), vgpu(B, "t1", 4), vgpu(B, "t2", 2))

    assert given(where, claim("x", mdev="t1"), claim("y", mdev="t2")) == [("x", f"{A}/t1"), ("y", f"{B}/t2")]
    assert refused(node(vgpu(A, "t1", 4), vgpu(A, "t2", 2)), claim("x", mdev="t1"), claim("y", mdev="t2"))


# --- config options ---


def values(found: Met | Status) -> list[tuple[str, str]]:
    assert isinstance(found, Met)
    return [(each.option, each.value) for each in found.allocations]


def test_every_device__gets_a_config_option_of_its_kind() -> None:
    found = find(
        node(pci("gpu", A), usb("key", "1-2")),
        claim("g", mapping="gpu", options={"pcie": "1", "x-vga": "0"}),
        claim("k", mapping="key"),
    )

    assert values(found) == [("hostpci0", "mapping=gpu,pcie=1,x-vga=0"), ("usb0", "mapping=key")]


def test_type_of_a_mediated_device__stands_in_its_config_option() -> None:
    assert values(find(node(vgpu(A, "t1", 1)), claim(mdev="t1"))) == [("hostpci0", "mapping=vgpu,mdev=t1")]


def test_config_options_that_the_request_sets__are_left_alone() -> None:
    found = find(node(pci("gpu", A), pci("gpu", B)), claim(count=2), hostpci0="mapping=nic", hostpci2="mapping=nic")

    assert [option for option, _value in values(found)] == ["hostpci1", "hostpci3"]


def test_no_free_config_option__gives_no_device() -> None:
    unmet = refused(node(pci("gpu", A)), claim(), **{f"hostpci{index}": "mapping=nic" for index in range(16)})

    assert unmet.reason == "had no free config option for device claim 'c'"


def test_claim__turns_to_another_kind_of_device_when_its_options_are_used_up() -> None:
    either = claim("e", one_of=(claim(mapping="gpu"), claim(mapping="key")))

    assert given(node(pci("gpu", A), usb("key", "1-2")), either, **{f"hostpci{i}": "mapping=x" for i in range(16)}) == [
        ("e", "1-2")
    ]


# --- what cannot be promised ---


def test_mapping_that_holds_other_devices_as_well__is_named_with_them() -> None:
    devices = (pci("gpu", A, memory=48), pci("gpu", B, memory=16))
    request = Request("vm", devices=(claim("big", constraints=("device.memory > 24",)),))
    found = find_devices(request, node(*devices), Matcher())
    assert isinstance(found, Met)

    (sentence,) = mixed_mappings(request, found.allocations, devices, Matcher())
    assert "'big'" in sentence
    assert f"({B})" in sentence
    assert mixed_mappings(request, found.allocations, devices[:1], Matcher()) == []
