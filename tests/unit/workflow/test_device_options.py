# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What users write about devices: made into data, or refused with the option, the value and what was expected."""

from __future__ import annotations

import typing as t

import pytest
import yaml

from ansible_collections.qemu_scheduler.proxmox.plugins.doc_fragments.devices import ModuleDocFragment
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Device, DeviceClaim, Node, Request
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.access import needs_root
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.common import (
    DEVICE_CLASS_OPTIONS,
    DEVICE_OPTIONS,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.device_options import (
    device_attributes,
    device_claims,
    device_classes,
    device_needs,
)

CLASSES = device_classes(
    {"gpu": {"driver": "pci", "constraints": ["device.vendor == '10de'"]}, "any": {"constraints": "device.good"}}
)


def claim(**body: t.Any) -> DeviceClaim:
    (made,) = device_claims([{"name": "c", **body}], CLASSES)
    return made


def test_claim__has_the_driver_and_the_constraints_of_its_class_and_its_own() -> None:
    made = claim(**{"class": "gpu"}, count="2", constraints=["device.memory > 16"], match_attributes=["numa_node"])

    assert made == DeviceClaim(
        name="c",
        driver="pci",
        device_class="gpu",
        count=2,
        constraints=("device.vendor == '10de'", "device.memory > 16"),
        match_attributes=("numa_node",),
    )


def test_options_that_are_not_given__are_not_missed() -> None:
    empty = dict.fromkeys(DEVICE_OPTIONS["devices"]["options"])

    assert claim(**{**empty, "name": "c", "mapping": "gpu"}) == DeviceClaim("c", mapping="gpu")
    assert device_claims(None, {}) == ()
    assert device_classes(None) == {}


def test_alternatives__keep_their_order_and_the_claims_name() -> None:
    made = claim(one_of=[{"class": "gpu", "count": 2}, {"mapping": "old"}])

    assert [(each.name, each.mapping, each.driver, each.count) for each in made.one_of] == [
        ("c", None, "pci", 2),
        ("c", "old", None, 1),
    ]


def test_properties__get_proxmoxs_spelling_and_tell_the_kind_of_device() -> None:
    pci = claim(mapping="gpu", options={"pcie": True, "x_vga": "no"})
    assert (pci.driver, dict(pci.options)) == ("pci", {"pcie": "1", "x-vga": "0"})

    usb = claim(mapping="key", options={"usb3": True})
    assert (usb.driver, dict(usb.options)) == ("usb", {"usb3": "1"})

    assert claim(mapping="vgpu", mdev="nvidia-222").driver == "pci"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, ["devices.c", "expected class, mapping, driver or one_of"]),
        ({"class": "tpu"}, ["devices.c.class", "'tpu'", "any, gpu"]),
        ({"class": "gpu", "driver": "usb"}, ["devices.c.driver", "'usb'", "pci"]),
        ({"mapping": "gpu", "count": 0}, ["devices.c.count", "0", "from 1 to 16"]),
        ({"driver": "usb", "count": 15}, ["devices.c.count", "15", "from 1 to 14"]),
        ({"mapping": "gpu", "constraints": ["device.vendor =="]}, ["devices.c.constraints", "'device.vendor =='"]),
        ({"mapping": "gpu", "constraints": [5]}, ["devices.c.constraints", "[5]", "a list of texts"]),
        ({"mapping": "gpu", "match_attributes": [""]}, ["devices.c.match_attributes", "a list of texts"]),
        (
            {"mapping": "gpu", "options": {"mapping": "x"}},
            ["devices.c.options.mapping", "'x'", "the claim sets it"],
        ),
        ({"mapping": "gpu", "options": {"pci": 1}}, ["devices.c.options", "pci", "pcie"]),
        ({"mapping": "gpu", "options": {"pcie": "maybe"}}, ["devices.c.options.pcie", "'maybe'", "boolean"]),
        ({"driver": "usb", "mdev": "t1"}, ["devices.c.mdev", "'t1'"]),
        ({"driver": "gpio"}, ["devices.c.driver", "'gpio'", "pci or usb"]),
        ({"mapping": "gpu", "one_of": [{"mapping": "x"}]}, ["devices.c.mapping", "'gpu'", "one_of"]),
        ({"one_of": []}, ["devices.c.one_of", "at least one"]),
        ({"one_of": [{"class": "tpu"}]}, ["devices.c.one_of[0].class", "'tpu'"]),
    ],
)
def test_mistake_in_a_claim__is_named_with_its_value(body: dict[str, t.Any], words: list[str]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        claim(**body)
    assert [word for word in words if word not in caught.value.message] == []


def test_mistake_in_an_entry_of_vms__is_named_with_the_entry() -> None:
    with pytest.raises(InvalidRequest, match=r"^vms\[2\]\.devices\.c\.class: "):
        device_claims([{"name": "c", "class": "tpu"}], {}, prefix="vms[2].")


def test_two_claims_of_one_name__are_refused() -> None:
    with pytest.raises(InvalidRequest, match="'c' is given twice"):
        device_claims([{"name": "c", "mapping": "a"}, {"name": "c", "mapping": "b"}], {})


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (["pci"], ["device_classes.gpu", "a mapping with driver and constraints"]),
        ({"drivers": "pci"}, ["device_classes.gpu", "'drivers'", "driver and constraints"]),
        ({"driver": "gpio"}, ["device_classes.gpu.driver", "'gpio'", "pci or usb"]),
        ({"constraints": ["nodes.x"]}, ["device_classes.gpu.constraints", "'nodes.x'", "'nodes' is not defined"]),
    ],
)
def test_mistake_in_a_class__is_named_with_its_value(body: t.Any, words: list[str]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        device_classes({"gpu": body})
    assert [word for word in words if word not in caught.value.message] == []


def test_attributes__are_given_for_mappings_for_mappings_on_nodes_and_for_devices() -> None:
    given = {"gpu": {"memory": 24}, "gpu@pve1": {"numa-node": 0}, "0000:AF:00.0@pve1": {"x": "y"}, "1-2@pve1": {"z": 1}}

    assert device_attributes(given) == {
        "gpu": {"memory": 24},
        "gpu@pve1": {"numa-node": 0},
        "0000:af:00.0@pve1": {"x": "y"},
        "1-2@pve1": {"z": 1},
    }


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"0000:01:00.0": {"memory": 1}}, ["0000:01:00.0", "address@node"]),
        ({"gpu": 5}, ["device_attributes.gpu", "5", "a mapping of attributes"]),
        ({"gpu": {"node": "x"}}, ["device_attributes.gpu", "'node'", "none of"]),
        ({"gpu": {"two words": "x"}}, ["device_attributes.gpu", "'two words'"]),
        ({"gpu": {"sizes": [1]}}, ["device_attributes.gpu.sizes", "[1]"]),
    ],
)
def test_mistake_in_attributes__is_named_with_its_value(given: dict[str, t.Any], words: list[str]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        device_attributes(given)
    assert [word for word in words if word not in caught.value.message] == []


# --- what has to be read ---


def wanting(*claims: DeviceClaim, **more: t.Any) -> Request:
    return Request("vm", devices=claims, **more)


def test_request_without_claims__reads_no_device() -> None:
    assert device_needs([Request("vm")]) is None


def test_nodes__are_read_that_some_vm_with_claims_may_go_to() -> None:
    gpu = DeviceClaim("c", mapping="gpu")
    needs = device_needs([wanting(gpu, node="pve1"), wanting(gpu, node_regex="pve[23]"), Request("free")])

    assert needs is not None
    assert [n for n in ("pve1", "pve2", "pve3", "pve4") if needs.node(Node(n))] == ["pve1", "pve2", "pve3"]


def test_devices__are_wanted_that_some_alternative_of_a_vm_accepts_on_that_node() -> None:
    either = DeviceClaim(
        "c",
        one_of=(DeviceClaim("c", mapping="gpu", constraints=("device.memory > 16",)), DeviceClaim("c", mapping="old")),
    )
    needs = device_needs([wanting(either, node="pve1"), wanting(DeviceClaim("k", driver="usb"), node="pve2")])
    assert needs is not None

    def wanted(device: Device) -> bool:
        return needs.device(device, Node(device.node))

    assert wanted(Device("pci", "gpu", "pve1", "a", attributes={"memory": 24}))
    assert not wanted(Device("pci", "gpu", "pve1", "a", attributes={"memory": 8}))
    assert not wanted(Device("pci", "gpu", "pve2", "a", attributes={"memory": 24}))
    assert wanted(Device("pci", "old", "pve1", "a"))
    assert wanted(Device("usb", "old", "pve2", "1-2"))


def test_what_is_wrong_with_one_vm__does_not_keep_others_from_being_read() -> None:
    fine = wanting(DeviceClaim("c", mapping="gpu"), node="pve1")
    broken = wanting(DeviceClaim("c", mapping="gpu", constraints=("device.id > 5",)), node="pve2")
    needs = device_needs([wanting(DeviceClaim("c"), node_regex="("), broken, fine])

    assert needs is not None
    assert not needs.node(Node("pve3"))
    assert needs.device(Device("pci", "gpu", "pve2", "a"), Node("pve2"))
    assert needs.device(Device("pci", "gpu", "pve1", "a"), Node("pve1"))


# --- rights ---


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("hostpci0", "0000:01:00.0,pcie=1"),
        ("hostpci3", "host=01:00"),
        ("usb0", "host=1-2"),
        ("serial1", "/dev/ttyS0"),
    ],
)
def test_device_by_its_address__needs_root_with_a_password(option: str, value: str) -> None:
    reason = needs_root({option: value})

    assert reason is not None
    assert reason.startswith(f"{option}: ")
    assert "root@pam with its password" in reason


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("hostpci0", "mapping=gpu"),
        ("usb0", "spice"),
        ("usb0", "SPICE,usb3=1"),
        ("usb0", "mapping=key"),
        ("serial0", "socket"),
        ("serial0", ""),
    ],
)
def test_mapped_devices__need_no_root(option: str, value: str) -> None:
    assert needs_root({option: value, "memory": 512}) is None


# --- documentation ---


def test_every_option__is_documented_as_it_is_declared() -> None:
    documented = yaml.safe_load(ModuleDocFragment.DOCUMENTATION)["options"]
    declared = {**DEVICE_OPTIONS, **DEVICE_CLASS_OPTIONS}

    assert shape(documented, "suboptions") == shape(declared, "options")
    assert yaml.safe_load(ModuleDocFragment.VMS_TEXT)["options"] == {"devices": documented["devices"]}


def shape(options: dict[str, t.Any], below: str) -> dict[str, t.Any]:
    keys = ("type", "elements", "required", "choices")
    return {
        name: ({key: body[key] for key in keys if key in body}, shape(body.get(below, {}), below))
        for name, body in options.items()
    }
