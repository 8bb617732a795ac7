# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which devices there are and who holds them, from answers as recorded on real clusters and from made up ones."""

from __future__ import annotations

import copy
import typing as t
from collections.abc import Mapping

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import PermissionDenied
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Device, Snapshot
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.failures import NodeUnreachable
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.recorded import RecordedReader
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.mappings import (
    SEVERAL,
    DeviceNeeds,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.snapshot import (
    Needs,
    read_snapshot,
)

Answers = dict[str, t.Any]


class CountingReader(RecordedReader):
    """Notes the paths that were asked for; raises what is given for a path instead of answering."""

    def __init__(self, answers: Mapping[str, t.Any]) -> None:
        super().__init__({path: each for path, each in answers.items() if not isinstance(each, Exception)})
        self.failures = {path: each for path, each in answers.items() if isinstance(each, Exception)}
        self.asked: list[str] = []

    def get(self, path: str, params: Mapping[str, t.Any] | None = None, /, **more: t.Any) -> t.Any:
        self.asked.append(path)
        if path in self.failures:
            raise self.failures[path]
        return super().get(path, params, **more)


def gpu_row(address: str, **more: t.Any) -> Answers:
    return {"id": address, "vendor": "0x10de", "device": "0x2684", "class": "0x030000", "iommugroup": -1, **more}


def usb_row(bus: int, path: str, product: str = "0x6001") -> Answers:
    return {"busnum": bus, "devnum": 2, "usbpath": path, "vendid": "0x0403", "prodid": product, "serial": "A9"}


def vm(vmid: int, node: str = "pve1", **more: t.Any) -> Answers:
    return {"type": "qemu", "vmid": vmid, "node": node, "name": f"vm{vmid}", "status": "stopped", **more}


def cluster(*guests: Answers, **configs: Answers) -> Answers:
    """Two nodes: pve1 with two GPUs and a USB key, pve2 with one GPU; configs by C(vmN)."""
    entry = "node={},path=0000:{}:00.0,id=10de:2684"
    return {
        "/cluster/resources": [
            *({"type": "node", "node": node, "status": "online", "maxcpu": 8} for node in ("pve1", "pve2")),
            *guests,
        ],
        "/cluster/mapping/pci": [
            {"id": "gpu", "map": [entry.format("pve1", "42"), entry.format("pve1", "41"), entry.format("pve2", "41")]}
        ],
        "/cluster/mapping/usb": [{"id": "key", "map": ["node=pve1,id=0403:6001,path=1-2"]}],
        "/nodes/pve1/hardware/pci": [gpu_row("0000:41:00.0"), gpu_row("0000:42:00.0")],
        "/nodes/pve2/hardware/pci": [gpu_row("0000:41:00.0")],
        "/nodes/pve1/hardware/usb": [usb_row(1, "2")],
        **{
            f"/nodes/{guest['node']}/qemu/{guest['vmid']}/config": configs.get(f"vm{guest['vmid']}", {})
            for guest in guests
        },
    }


def read(answers: Answers, needs: DeviceNeeds | None = None) -> tuple[Device, ...]:
    return read_snapshot(CountingReader(answers), Needs(devices=needs or DeviceNeeds())).devices


def use(answers: Answers, node: str = "pve1") -> dict[tuple[str, str], int]:
    return {(device.mapping, device.id): device.in_use for device in read(answers) if device.node == node}


def asked(answers: Answers, needs: DeviceNeeds) -> list[str]:
    reader = CountingReader(answers)
    read_snapshot(reader, Needs(devices=needs))
    return reader.asked


# --- which devices there are ---


@pytest.mark.parametrize("hardware_shown", [True, False])
def test_mapping__has_a_fault_where_proxmox_finds_an_error_in_it(recording: t.Any, hardware_shown: bool) -> None:
    answers = {
        "/cluster/resources": recording("8.4", "cluster-resources-full-mix")["body"],
        "/cluster/mapping/pci": recording("8.4", "mapping-pci")["body"],
    }
    for node, check in (("pve1", "mapping-pci-check"), ("pve2", "mapping-pci-check-pve2")):
        answers[f"/cluster/mapping/pci?check-node={node}"] = recording("8.4", check)["body"]
        if hardware_shown:
            answers[f"/nodes/{node}/hardware/pci"] = recording("8.4", "node-hardware-pci")["body"]
    found = {(d.mapping, d.node): d for d in read(answers) if d.node != "pve3"}

    assert set(found) == {("nic", "pve1"), ("multi", "pve1"), ("multi", "pve2"), ("vgpu", "pve1")}
    for (mapping, node), device in found.items():
        checks = answers[f"/cluster/mapping/pci?check-node={node}"]["data"]
        errors = next(row["checks"] for row in checks if row["id"] == mapping)
        assert bool(device.fault) is any(error["severity"] == "error" for error in errors)
        assert (device.capacity, device.in_use) == (0, 0)
    if hardware_shown:
        assert {key: device.fault for key, device in found.items()} == {
            ("nic", "pve1"): "'subsystem-id' of 0000:00:01.0 is 1af4:1045, the mapping says none",
            ("multi", "pve1"): "'subsystem-id' of 0000:00:01.0 is 1af4:1045, the mapping says none",
            ("multi", "pve2"): "'id' of 0000:00:02.0 is 1af4:1042, the mapping says 1af4:1041",
            ("vgpu", "pve1"): "PCI device '0000:01:00.0' not found",
        }


@pytest.mark.parametrize(
    ("row", "entry", "fault"),
    [
        ({}, "", ""),
        ({"iommugroup": 7}, ",iommugroup=7", ""),
        ({"iommugroup": 7}, "", "'iommugroup' of 0000:41:00.0 is 7, the mapping says none"),
        ({}, ",iommugroup=7", "'iommugroup' of 0000:41:00.0 is none, the mapping says 7"),
        ({"mdev": 1}, "", "'mdev' of 0000:41:00.0 is 1, the mapping says 0"),
        ({}, ",subsystem-id=10de:1", "'subsystem-id' of 0000:41:00.0 is none, the mapping says 10de:1"),
        ({"subsystem_vendor": "0x10de", "subsystem_device": "0x16f4"}, ",subsystem-id=10DE:16f4", ""),
    ],
)
def test_mapping__is_compared_with_the_hardware_as_proxmox_does(row: Answers, entry: str, fault: str) -> None:
    answers = cluster()
    answers["/nodes/pve2/hardware/pci"] = [gpu_row("0000:41:00.0", **row)]
    answers["/cluster/mapping/pci"] = [{"id": "gpu", "map": [f"node=pve2,path=0000:41:00.0,id=10de:2684{entry}"]}]

    assert [device.fault for device in read(answers) if device.node == "pve2"] == [fault]


def test_mapping__with_one_wrong_entry_is_of_no_use_on_that_node() -> None:
    """Proxmox checks all entries for the node before it starts a VM with any of them."""
    answers = cluster()
    answers["/nodes/pve1/hardware/pci"] = [gpu_row("0000:42:00.0")]
    faults = {(d.node, d.id): d.fault for d in read(answers) if d.mapping == "gpu"}

    assert faults == {
        ("pve1", "0000:42:00.0"): "PCI device '0000:41:00.0' not found",
        ("pve1", "0000:41:00.0"): "PCI device '0000:41:00.0' not found",
        ("pve2", "0000:41:00.0"): "",
    }


def test_mapping__looks_at_each_function_of_an_entry() -> None:
    answers = cluster()
    path = "0000:41:00.0;0000:41:00.1"
    answers["/cluster/mapping/pci"] = [{"id": "gpu", "map": [f"node=pve1,path={path},id=10de:2684"]}]

    assert [d.fault for d in read(answers) if d.mapping == "gpu"] == ["PCI device '0000:41:00.1' not found"]


def test_usb_mapping_whose_device_is_not_plugged_in__has_a_fault(recording: t.Any) -> None:
    answers = {
        **cluster(),
        "/cluster/mapping/usb": recording("9.2", "mapping-usb")["body"],
        "/nodes/pve1/hardware/usb": recording("9.2", "node-hardware-usb")["body"],
    }
    faults = [device.fault for device in read(answers) if device.driver == "usb"]

    assert faults == ["USB device '1d6b:0002' not found"]


def test_usb_mapping__is_compared_with_the_port_that_it_names() -> None:
    answers = cluster()
    answers["/nodes/pve1/hardware/usb"] = [usb_row(1, "2", product="0x9999")]
    assert [d.fault for d in read(answers) if d.driver == "usb"] == [
        "'id' of 1-2 is 0403:9999, the mapping says 0403:6001"
    ]

    answers["/nodes/pve1/hardware/usb"] = [usb_row(1, "3")]
    assert [d.fault for d in read(answers) if d.driver == "usb"] == ["USB device '1-2' not found"]


def test_mapping_with_several_paths_on_a_node__has_as_many_devices() -> None:
    assert [(d.node, d.id) for d in read(cluster()) if d.mapping == "gpu"] == [
        ("pve1", "0000:42:00.0"),
        ("pve1", "0000:41:00.0"),
        ("pve2", "0000:41:00.0"),
    ]


def test_usb_device_known_by_its_number_alone__is_found_wherever_it_is_plugged_in() -> None:
    answers = cluster()
    answers["/cluster/mapping/usb"] = [{"id": "key", "map": ["node=pve1,id=0403:6001"]}]
    answers["/nodes/pve1/hardware/usb"] = [usb_row(1, "2"), usb_row(2, "1.3"), usb_row(2, "4", product="0x9999")]

    assert [device.id for device in read(answers) if device.driver == "usb"] == ["1-2", "2-1.3"]


def test_usb_mapping_with_two_entries_for_a_node__is_not_usable_there() -> None:
    answers = cluster()
    answers["/cluster/mapping/usb"] = [
        {"id": "key", "map": ["node=pve1,id=0403:6001,path=1-2", "node=pve1,id=0403:6001,path=1-3"]}
    ]

    found = [(device.id, device.fault) for device in read(answers) if device.driver == "usb"]
    assert found == [("1-2", SEVERAL), ("1-3", SEVERAL)]


def test_several_functions_in_one_entry__are_one_device() -> None:
    answers = cluster()
    answers["/cluster/mapping/pci"] = [
        {
            "id": "gpu",
            "map": ["node=pve1,path=0000:41:00.0;0000:41:00.1,id=10de:2684", "node=pve1,path=0000:42:00,id=10de:2684"],
        }
    ]

    assert [device.id for device in read(answers) if device.driver == "pci"] == [
        "0000:41:00.0;0000:41:00.1",
        "0000:42:00",
    ]


def test_card_of_a_class_that_lists_leave_out__is_found_by_a_second_look() -> None:
    answers = cluster()
    answers["/nodes/pve2/hardware/pci"] = []
    answers["/nodes/pve2/hardware/pci?pci-class-blacklist="] = [gpu_row("0000:41:00.0")]

    assert [device.fault for device in read(answers) if device.node == "pve2"] == [""]


def test_types_of_mediated_devices__are_counted_per_card() -> None:
    answers = cluster(vm(100), vm(101, status="running"), vm100={"hostpci0": "mapping=gpu,mdev=t1"})
    answers["/nodes/pve1/qemu/101/config"] = {"hostpci0": "mapping=gpu,mdev=t1"}
    answers["/cluster/mapping/pci"][0]["mdev"] = 1
    answers["/nodes/pve1/hardware/pci"] = [gpu_row(f"0000:{bus}:00.0", mdev=1) for bus in (41, 42)]
    answers["/nodes/pve2/hardware/pci"] = [gpu_row("0000:41:00.0", mdev=1)]
    answers["/nodes/pve1/hardware/pci/0000:42:00.0/mdev"] = [
        {"type": "t1", "available": 3, "description": "", "name": "GRID"},
        {"type": "t2", "available": 0, "description": ""},
    ]
    found = [device for device in read(answers) if device.driver == "pci"]

    # The running VM's is not among the available ones any more; the stopped VM will want one.
    assert [(d.id, d.mdev, d.capacity, d.in_use) for d in found] == [
        ("0000:42:00.0/t1", "t1", 3, 1),
        ("0000:42:00.0/t2", "t2", 0, 0),
    ]
    assert found[0].attributes["mdev_name"] == "GRID"


@pytest.mark.parametrize("refusal", [PermissionDenied("no Sys.Audit"), None])
def test_missing_hardware_list__has_the_mapping_believed(refusal: Exception | None) -> None:
    answers = cluster()
    for path in ("/nodes/pve1/hardware/pci", "/nodes/pve1/hardware/usb"):
        if refusal is None:
            del answers[path]
        else:
            answers[path] = refusal
    found = [device for device in read(answers) if device.node == "pve1"]

    assert {device.id for device in found} == {"0000:41:00.0", "0000:42:00.0", "1-2"}
    assert found[0].attributes == {"vendor": "10de", "device": "2684"}


def test_nodes_that_are_offline_or_do_not_answer__have_no_devices() -> None:
    answers = cluster(vm(100))
    answers["/nodes/pve1/qemu/100/config"] = NodeUnreachable("gone")
    assert {device.node for device in read(answers)} == {"pve2"}

    answers = cluster()
    answers["/nodes/pve2/hardware/pci"] = NodeUnreachable("gone")
    assert {device.node for device in read(answers)} == {"pve1"}

    answers = cluster()
    answers["/cluster/resources"][0]["status"] = "offline"
    assert {device.node for device in read(answers)} == {"pve2"}


# --- attributes ---


def test_pairs_in_descriptions__become_attributes_the_entrys_own_winning() -> None:
    answers = cluster()
    answers["/cluster/mapping/pci"] = [
        {
            "id": "gpu",
            "description": "the big ones\nnuma_node=0, memory=24 rack-side=left serial=0012 speed=2.5",
            "map": ["node=pve1,path=0000:41:00.0,id=10de:2684,description=numa_node=1 shared=true"],
        }
    ]
    attributes = read(answers)[0].attributes

    expected = {"numa_node": 1, "memory": 24, "rack_side": "left", "serial": "0012", "speed": 2.5, "shared": True}
    assert {key: attributes[key] for key in expected} == expected


def test_what_the_user_says__wins_the_more_particular_over_the_general() -> None:
    given = {
        "gpu": {"memory": 24, "numa-node": "7", "vendor": "ours"},
        "gpu@pve1": {"memory": 48},
        "0000:42:00.0@pve1": {"memory": 96},
    }
    found = {(d.node, d.id): d.attributes for d in read(cluster(), DeviceNeeds(attributes=given)) if d.mapping == "gpu"}

    assert {where: attributes["memory"] for where, attributes in found.items()} == {
        ("pve1", "0000:41:00.0"): 48,
        ("pve1", "0000:42:00.0"): 96,
        ("pve2", "0000:41:00.0"): 24,
    }
    assert {(a["numa_node"], a["vendor"]) for a in found.values()} == {(7, "ours")}


# --- who holds them ---


def test_each_vm_of_a_mapping__holds_one_of_its_devices_running_or_not() -> None:
    answers = cluster(vm(100), vm(101, status="running"), vm100={"hostpci0": "mapping=gpu,pcie=1"})
    assert use(answers)["gpu", "0000:42:00.0"] == 1
    assert use(answers)["gpu", "0000:41:00.0"] == 0

    answers["/nodes/pve1/qemu/101/config"] = {"hostpci3": "mapping=gpu", "usb0": "mapping=key"}
    assert set(use(answers).values()) == {1}


def test_vms_beyond_the_number_of_devices__are_counted_all_the_same() -> None:
    guests = [vm(100 + number) for number in range(3)]
    answers = cluster(*guests, **{f"vm{each['vmid']}": {"hostpci0": "mapping=gpu"} for each in guests})

    assert sum(count for (mapping, _id), count in use(answers).items() if mapping == "gpu") == 3


@pytest.mark.parametrize(
    "value", ["0000:41:00.0", "41:00.0,pcie=1", "host=0000:41:00", "0000:41:00.0;0000:41:00.1", "0000:41:00,x-vga=1"]
)
def test_device_passed_through_by_its_address__is_in_use_in_every_mapping(value: str) -> None:
    answers = cluster(vm(100), vm100={"hostpci0": value})
    answers["/cluster/mapping/pci"].append({"id": "also", "map": ["node=pve1,path=0000:41:00.0,id=10de:2684"]})

    in_use = use(answers)
    assert in_use["gpu", "0000:41:00.0"] == in_use["also", "0000:41:00.0"] == 1
    assert in_use["gpu", "0000:42:00.0"] == 0


@pytest.mark.parametrize(
    ("value", "count"),
    [("host=1-2", 1), ("0403:6001", 1), ("host=0x0403:0x6001", 1), ("spice", 0), ("host=1-9", 0)],
)
def test_usb_device__is_in_use_by_port_or_by_number(value: str, count: int) -> None:
    assert use(cluster(vm(100), vm100={"usb0": value}))["key", "1-2"] == count


def test_mapping_with_one_device__is_booked_before_one_that_has_others() -> None:
    answers = cluster(vm(100), vm(101), vm100={"hostpci0": "mapping=gpu"}, vm101={"hostpci0": "mapping=first"})
    answers["/cluster/mapping/pci"].append({"id": "first", "map": ["node=pve1,path=0000:42:00.0,id=10de:2684"]})

    in_use = use(answers)
    assert in_use["first", "0000:42:00.0"] == in_use["gpu", "0000:42:00.0"] == 1
    assert in_use["gpu", "0000:41:00.0"] == 1


def test_templates_and_containers__hold_nothing() -> None:
    guests = [vm(100, template=1), vm(101, type="lxc")]
    answers = cluster(*guests, vm100={"hostpci0": "mapping=gpu"}, vm101={"hostpci0": "mapping=gpu"})

    assert set(use(answers).values()) == {0}


# --- what it costs ---


def test_run_without_claims__reads_nothing_about_devices() -> None:
    reader = CountingReader(cluster(vm(100)))
    snapshot: Snapshot = read_snapshot(reader, Needs())

    assert snapshot.devices == ()
    assert reader.asked == ["/cluster/resources"]


def test_nodes_with_mapped_devices_and_their_guests__are_the_only_ones_read() -> None:
    answers = cluster(vm(100), vm(101, "pve3"))
    answers["/cluster/resources"].append({"type": "node", "node": "pve3", "status": "online"})

    assert not [path for path in asked(answers, DeviceNeeds()) if "pve3" in path]


def test_nodes_that_no_vm_may_go_to__are_not_read() -> None:
    paths = asked(cluster(vm(100), vm(101, "pve2")), DeviceNeeds(node=lambda node: node.name == "pve2"))

    assert sorted(paths) == [
        "/cluster/mapping/pci",
        "/cluster/mapping/usb",
        "/cluster/resources",
        "/nodes/pve2/hardware/pci",
        "/nodes/pve2/qemu/101/config",
    ]


def test_guests__are_read_only_where_there_is_a_device_that_is_wanted() -> None:
    needs = DeviceNeeds(device=lambda device, node: device.driver == "usb" and node.cores == 8)
    answers = cluster(vm(100), vm(101, "pve2"))

    assert [path for path in asked(answers, needs) if path.endswith("config")] == ["/nodes/pve1/qemu/100/config"]
    # Those of the others are known, but count as held.
    found = read(copy.deepcopy(answers), needs)
    assert {(device.node, device.in_use) for device in found} == {("pve1", 0), ("pve2", 1)}
