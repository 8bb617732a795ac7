# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Passthrough devices, from the cluster's mappings to the configs of the VMs that get them, and back."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator

import pytest
from simulated_cluster.client import SimulatedCluster

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.batch_cycle import schedule_all
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.cache import ClusterState
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.builtin import builtin_registry
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.profiles import Profile
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import ApiError, TaskFailed
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Decision, Request
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.session import Session
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.snapshot import (
    Needs,
    read_snapshot,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.tasks import TaskFollower
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.access import needs_root
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.device_options import (
    device_attributes,
    device_claims,
    device_classes,
    device_needs,
)

from .conftest import DESCRIPTION, SCALE, calls

CARD = "node={},path=0000:{}:00.0,id=10de:2684"
CLUSTER = {
    **DESCRIPTION,
    "mappings": {
        "pci": [
            {
                "id": "gpu",
                "description": "memory=24",
                "map": [CARD.format("pve1", "41"), CARD.format("pve2", "41"), CARD.format("pve2", "42")],
            },
            {"id": "replaced", "map": ["node=pve1,path=0000:41:00.0,id=10de:2685"]},
        ],
        "usb": [{"id": "key", "map": ["node=pve2,id=0403:6001"]}],
    },
    "nodes": [
        {
            **node,
            "pci": [
                {
                    "id": f"0000:{bus}:00.0",
                    "vendor": "0x10de",
                    "device": "0x2684",
                    "class": "0x030000",
                    "iommugroup": -1,
                }
                for bus in cards
            ],
            "usb": [{"busnum": 1, "usbpath": "2", "vendid": "0x0403", "prodid": "0x6001"}] if len(cards) > 1 else [],
        }
        for node, cards in zip(DESCRIPTION["nodes"], (["41"], ["41", "42"], []), strict=True)
    ],
}
CLASSES = device_classes({"gpu": {"driver": "pci", "constraints": ["device.vendor == '10de'", "device.memory > 16"]}})


@pytest.fixture
def cluster(version: str) -> Iterator[SimulatedCluster]:
    with SimulatedCluster.start(CLUSTER, version=version, time_scale=SCALE) as running:
        yield running


def request(name: str, *claims: dict[str, t.Any], **more: t.Any) -> Request:
    return Request(name, devices=device_claims([{"name": "c", **claim} for claim in claims], CLASSES), **more)


def decided(session: Session, *requests: Request) -> list[Decision | None]:
    needs = Needs(devices=device_needs(requests, device_attributes({"gpu@pve1": {"memory": 8}})))
    scheduler = Scheduler(
        ClusterState(read_snapshot(session, needs)), {"balanced": Profile("balanced", builtin_registry())}
    )
    return [outcome.decision for outcome in schedule_all(scheduler, requests)]


def create(session: Session, decision: Decision) -> None:
    options = {device.option: device.value for device in decision.devices}
    task = session.post(f"/nodes/{decision.node}/qemu", vmid=decision.vmid, name=decision.request.name, **options)
    TaskFollower(session, timeout=60).wait(task)


def test_devices_given_out_in_one_run__are_in_use_in_the_next(session):
    first, second, third = decided(session, *(request(f"vm{n}", {"class": "gpu"}) for n in range(3)))

    assert first is not None
    assert second is not None
    assert third is None
    assert {first.node, second.node} == {"pve2"}
    create(session, first)
    again = decided(session, request("vm3", {"class": "gpu"}), request("vm4", {"class": "gpu"}))
    assert [decision is not None for decision in again] == [True, False]
    create(session, second)
    assert decided(session, request("vm5", {"class": "gpu"})) == [None]
    assert session.get(f"/nodes/pve2/qemu/{first.vmid}/config")["hostpci0"] == "mapping=gpu"


def test_claims__read_only_the_nodes_that_they_can_go_to(cluster, session):
    decided(session, request("vm", {"class": "gpu"}))

    assert sorted(calls(cluster)) == [
        "GET /cluster/mapping/pci",
        "GET /cluster/mapping/usb",
        "GET /cluster/resources",
        "GET /nodes/pve1/hardware/pci",
        "GET /nodes/pve2/hardware/pci",
        "GET /nodes/pve2/hardware/usb",
        "GET /nodes/pve2/qemu/101/config",
    ]


def test_user_who_may_not_use_a_mapping__is_given_none_of_its_devices(operator):
    assert decided(operator, request("vm", {"mapping": "key"})) == [None]


def test_mapping__that_proxmox_starts_no_vm_with_is_not_used(session):
    assert decided(session, request("vm", {"mapping": "replaced"})) == [None]

    session.put("/nodes/pve1/qemu/100/config", {"hostpci0": "mapping=replaced"})
    with pytest.raises(TaskFailed, match="PCI device mapping invalid"):
        TaskFollower(session, timeout=60).wait(session.post("/nodes/pve1/qemu/100/status/start"))


def test_address__is_refused_by_proxmox_for_the_very_requests_that_we_warn_of(session):
    raw, mapped = {"hostpci0": "0000:41:00.0"}, {"hostpci0": "mapping=gpu"}

    assert needs_root(raw) is not None
    assert needs_root(mapped) is None
    with pytest.raises(ApiError, match="only root can set"):
        session.put("/nodes/pve1/qemu/100/config", raw)
    session.put("/nodes/pve1/qemu/100/config", mapped)
