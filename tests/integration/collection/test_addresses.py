# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Static addresses from pools: chosen, kept, never used twice."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest
from simulated_cluster.client import SimulatedCluster
from support.controller import Controller
from support.versions import both_versions
from support.waiting import until

POOLS: dict[str, Any] = {
    "lan": {
        "network": "192.0.2.0/24",
        "ranges": ["192.0.2.50-192.0.2.99"],
        "exclude": ["192.0.2.51"],
        "gateway": "192.0.2.1",
        "nameservers": ["192.0.2.53"],
        "searchdomains": ["example.com"],
    },
    "lan6": {"network": "2001:db8::/64", "ranges": ["2001:db8::50-2001:db8::99"]},
}
FROM_LAN = {"address_pools": POOLS, "addresses": {"ipconfig0": "lan"}}
CLOUD_INIT = {"net": {"net0": "virtio,bridge=vmbr0"}, "ide": {"ide2": "shared:cloudinit"}}
CLOUD_CONFIG = {"net0": "virtio,bridge=vmbr0", "ide2": "shared:cloudinit"}
LAN: dict[str, Any] = {**FROM_LAN, **CLOUD_INIT}
CLONE = {"clone": "debian-13", **FROM_LAN}


def config_of(cluster: SimulatedCluster, name: str) -> dict[str, Any]:
    (found,) = (g["config"] for g in cluster.state()["guests"].values() if g["config"].get("name") == name)
    return dict(found)


def addresses(cluster: SimulatedCluster) -> dict[str, str]:
    configs = (guest["config"] for guest in cluster.state()["guests"].values())
    return {config["name"]: config["ipconfig0"] for config in configs if "ipconfig0" in config}


def writes(cluster: SimulatedCluster) -> list[str]:
    return [f"{r['method']} {r['path']}" for r in cluster.requests() if r["method"] != "GET"]


@both_versions
def test_addresses__are_chosen_for_new_vms_and_kept(controller: Controller, cluster: SimulatedCluster) -> None:
    asked = {**LAN, "addresses": {"ipconfig0": ["lan", "lan6"]}, "vms": [{"name": "web-{n}", "count": 2}]}
    planned = controller.schedule(**asked, check=True)
    assert writes(cluster) == []
    made = controller.schedule(**asked)
    assert [vm["host"]["vars"]["ansible_host"] for vm in made["vms"]] == ["192.0.2.50", "192.0.2.52"]
    assert [vm["host"] for vm in made["vms"]] == [vm["host"] for vm in planned["vms"]]
    config = config_of(cluster, "web-2")
    assert config["ipconfig0"] == "gw=192.0.2.1,ip=192.0.2.52/24,ip6=2001:db8::51/64"
    assert (config["nameserver"], config["searchdomain"]) == ("192.0.2.53", "example.com")

    again = controller.schedule(**asked)
    assert again["changed"] is False
    assert [vm["host"] for vm in again["vms"]] == [vm["host"] for vm in made["vms"]]
    grown = controller.schedule(**{**asked, "vms": [{"name": "web-{n}", "count": 3}]})
    assert grown["vms"][2]["host"]["vars"]["ansible_host"] == "192.0.2.54", "192.0.2.53 is a name server"


def test_addresses__of_all_guests_are_in_use(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.set_guest(101, config={"ipconfig3": "ip=192.0.2.50/24"})
    cluster.set_guest(110, config={"net0": "name=eth0,bridge=vmbr0,ip=192.0.2.52/24"})
    cluster.set_guest(9000, config={"ipconfig0": "ip=192.0.2.55/24"})
    result = controller.schedule(**LAN, vms=[{"name": "a"}, {"name": "b", "addresses": {}, "ipconfig": {
        "ipconfig0": "ip=192.0.2.54/24"}}, {"name": "c"}])  # fmt: skip
    found = [vm["host"]["vars"]["ansible_host"] for vm in result["vms"]]
    assert found == ["192.0.2.55", "192.0.2.54", "192.0.2.56"], "that of a template is free, that of an entry is not"


@both_versions
def test_addresses__of_a_running_container_are_in_use_until_it_has_taken_others(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    """A card that could not be changed while the container runs: the former value is the one in use."""
    card = "name=eth0,bridge=vmbr0,ip={}/24"
    cluster.set_guest(110, config={"net0": card.format("192.0.2.50")}, pending={"net0": card.format("192.0.2.52")})
    result = controller.schedule(name="a", **LAN)
    assert result["vms"][0]["host"]["vars"]["ansible_host"] == "192.0.2.54", "53 is a name server"
    for taken in ("192.0.2.50", "192.0.2.52"):
        static = {"address_pools": POOLS, "ipconfig": {"ipconfig0": f"ip={taken}/24"}}
        failed = controller.fail("AddressConflict", name="b", **static, **CLOUD_INIT)
        assert failed["msg"] == f'VM "b": {taken} is the address of proxy (110 on pve3)'
    cluster.set_guest(110, status="stopped")
    cluster.advance(60)
    assert controller.schedule(name="c", **LAN)["vms"][0]["host"]["vars"]["ansible_host"] == "192.0.2.50"


def test_addresses__change_with_their_pool(controller: Controller, cluster: SimulatedCluster) -> None:
    controller.schedule(name="web", **LAN)
    moved = {**LAN, "address_pools": {"lan": {**POOLS["lan"], "gateway": "192.0.2.254", "ranges": ["192.0.2.200"]}}}
    drifted = controller.schedule(name="web", **moved)
    new = "gw=192.0.2.254,ip=192.0.2.50/24"
    assert drifted["vms"][0]["drift"] == {"ipconfig0": {"old": "gw=192.0.2.1,ip=192.0.2.50/24", "new": new}}
    controller.schedule(name="web", **moved, update=True)
    assert config_of(cluster, "web")["ipconfig0"] == new


def test_addresses__are_missed_where_a_vm_has_none(controller: Controller) -> None:
    result = controller.schedule(name="app-1", **FROM_LAN)
    assert result["vms"][0]["drift"] == {}
    assert 'VM "app-1": ipconfig0 has no static address, expected one of pool lan (192.0.2.0/24)' in result["warnings"]


def test_addresses__run_out(controller: Controller, cluster: SimulatedCluster) -> None:
    small = {**LAN, "address_pools": {"lan": {"network": "192.0.2.0/24", "ranges": ["192.0.2.50"]}}}
    failed = controller.fail("NoAddressAvailable", vms=[{"name": "a"}, {"name": "b"}], **small)
    assert 'VM "b": all addresses of pool lan (192.0.2.0/24) are taken or excluded' in failed["msg"]
    assert writes(cluster) == []


def test_addresses__that_others_have_are_refused(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.set_guest(101, config={"ipconfig0": "ip=192.0.2.7/24"})
    static = {"address_pools": POOLS, "ipconfig": {"ipconfig0": "ip=192.0.2.7/24"}}
    failed = controller.fail("AddressConflict", name="web", **static)
    assert failed["msg"] == 'VM "web": 192.0.2.7 is the address of app-2 (101 on pve2)'
    failed = controller.fail("AddressConflict", name="app-1", update=True, **static)
    assert failed["msg"] == 'VM "app-1": 192.0.2.7 is the address of app-2 (101 on pve2)'
    static["ipconfig"] = {"ipconfig0": "ip=192.0.2.8/24"}
    failed = controller.fail("AddressConflict", vms=[{"name": "a"}, {"name": "b"}], **static)
    assert 'VM "b": 192.0.2.8 is the address of VM "a"' in failed["msg"]
    assert writes(cluster) == []
    controller.schedule(name="app-2", address_pools=POOLS, ipconfig={"ipconfig0": "ip=192.0.2.7/24"})


def test_addresses__of_two_guests_are_told(controller: Controller, cluster: SimulatedCluster) -> None:
    for vmid in (100, 102):
        cluster.set_guest(vmid, config={"ipconfig0": "ip=192.0.2.7/24"})
    result = controller.schedule(name="web", **LAN, check=True)
    told = "192.0.2.7 is the address of several guests: app-1 (100 on pve1), spare (102 on pve2)"
    assert told in result["warnings"]


def test_addresses__are_unknown_while_a_node_is_offline(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.set_node("pve3", online=False)
    cluster.advance(60)
    failed = controller.fail("NoAddressAvailable", name="web", **LAN)
    assert "the configurations of proxy (110 on pve3) cannot be read" in failed["msg"]
    risky = {**LAN, "address_pools": {"lan": {**POOLS["lan"], "ignore_unread": True}}}
    assert controller.schedule(name="web", **risky)["vms"][0]["host"]["vars"]["ansible_host"] == "192.0.2.50"


def test_addresses__differ_for_tasks_at_the_same_time(
    control: Callable[..., Controller], cluster: SimulatedCluster
) -> None:
    shared = control(cluster)
    running = [shared.start("qemu_schedule", name=f"web-{number}", **CLONE) for number in range(6)]
    results = [each.result() for each in running]
    assert not any(result.get("failed") for result in results), results
    assert len(set(addresses(cluster).values())) == 6


def test_address__of_an_unfinished_clone_is_kept(control: Callable[..., Controller], cluster: SimulatedCluster) -> None:
    cluster.fault(method="PUT", path="/qemu/[0-9]+/config", hang=True, count=1)
    killed = control(cluster)
    running = killed.start("qemu_schedule", name="web", reservations="none", **CLONE)
    until(lambda: any(r["method"] == "PUT" for r in cluster.requests()))
    running.interrupt(signal.SIGKILL)
    cluster.clear_faults()
    other = control(cluster)
    assert other.schedule(name="db", **LAN)["vms"][0]["host"]["vars"]["ansible_host"] == "192.0.2.52"
    finished = other.schedule(name="web", **CLONE)
    assert finished["vms"][0]["actions"] == ["finish"]
    assert config_of(cluster, "web")["ipconfig0"] == "gw=192.0.2.1,ip=192.0.2.50/24"


@pytest.mark.parametrize(
    ("card", "told"),
    [
        ("ip=10.0.0.5/24,gw=10.9.0.1", ["gw=10.9.0.1 is not in the network of ip=10.0.0.5/24"]),
        ("ip=10.0.0.5/24,gw=10.0.0.1", []),
        ("ip=10.0.0.5/32,gw=10.9.0.1", []),
        ("ip=10.0.0.0/24", ["10.0.0.0 is the network address of 10.0.0.0/24, which no guest can have"]),
        ("ip=10.0.0.255/24", ["10.0.0.255 is the broadcast address of 10.0.0.0/24, which no guest can have"]),
        ("ip=10.0.0.4/31,ip6=2001:db8::/127", []),
        ("ip6=2001:db8::5/64,gw6=fe80::1", []),
        ("ip6=2001:db8::5/64,gw6=2001:db9::1", ["gw6=2001:db9::1 is not in the network of ip6=2001:db8::5/64"]),
    ],
)
def test_gateway_or_address_that_cannot_work__is_told(controller: Controller, card: str, told: list[str]) -> None:
    made = {"name": "web", "net": {"net0": "virtio"}, "ide": {"ide2": "shared:cloudinit"}}
    warnings = controller.schedule(**made, ipconfig={"ipconfig0": card}, check=True)["warnings"]
    assert warnings == [f'VM "web": ipconfig0: {text}' for text in told]


# --- what is taken, and what nobody gets ---


@both_versions
def test_address_of_a_running_vm__is_not_changed_before_it_boots(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    """Proxmox VE shows a new address at once, and the one with which the guest runs nowhere."""
    cluster.set_guest(100, config={"ipconfig0": "ip=192.0.2.50/24", **CLOUD_CONFIG})
    moved: dict[str, Any] = {"name": "app-1", "ipconfig": {"ipconfig0": "ip=192.0.2.52/24"}}
    told, pools = "the guest uses 192.0.2.50 until it boots", {"address_pools": POOLS}
    for check in (True, False):
        failed = controller.fail(
            "DriftNotApplicable", vms=[{**moved, "cores": 3}, {"name": "new"}], update=True, check=check, **pools
        )
        assert f'VM "app-1" cannot be updated: ipconfig0: {told}' in failed["msg"]
        assert "ansible_host" not in failed["vms"][0]["host"]["vars"]
    assert writes(cluster) == []
    drifted = controller.schedule(**moved, **pools)
    assert told in str(drifted["warnings"])
    assert drifted["vms"][0]["host"]["vars"]["ansible_host"] == "192.0.2.50", "without an update it stays there"
    assert controller.schedule(name="web", **LAN)["vms"][0]["host"]["vars"]["ansible_host"] == "192.0.2.52"

    again = {**moved, "ipconfig": {"ipconfig0": "ip=192.0.2.54/24"}, "update": True, "apply_pending": "reboot"}
    done = controller.schedule(**again, **pools)["vms"][0]
    assert (done["actions"], done["host"]["vars"]["ansible_host"]) == (["update", "reboot"], "192.0.2.54")
    guest = cluster.state()["guests"][100]
    assert (guest["config"]["ipconfig0"], guest["cloud_init"]["ipconfig0"]) == ("ip=192.0.2.54/24",) * 2
    assert controller.schedule(name="free", **LAN)["vms"][0]["host"]["vars"]["ansible_host"] == "192.0.2.50"


@both_versions
def test_address_outside_of_pools__is_changed_and_told(controller: Controller, cluster: SimulatedCluster) -> None:
    cluster.set_guest(100, config={"ipconfig0": "ip=198.51.100.7/24", **CLOUD_CONFIG})
    changed = {"name": "app-1", "ipconfig": {"ipconfig0": "ip=198.51.100.8/24"}, "update": True, "address_pools": POOLS}
    result = controller.schedule(**changed)
    assert result["vms"][0]["host"]["vars"]["ansible_host"] == "198.51.100.7", "the guest is still reached there"
    assert "the guest reads ipconfig0 when it boots the next time" in str(result["warnings"])
    guest = cluster.state()["guests"][100]
    assert (guest["config"]["ipconfig0"], guest["pending"]) == ("ip=198.51.100.8/24", {})
    assert guest["cloud_init"]["ipconfig0"] == "ip=198.51.100.8/24", "the drive is written again"


@both_versions
def test_clones_of_a_template_with_an_address__do_not_share_it(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.set_guest(9000, config={"ipconfig0": "ip=192.0.2.60/24"})
    for pools in ({"address_pools": POOLS}, {}):
        failed = controller.fail("AddressConflict", clone="debian-13", vms=[{"name": "a"}, {"name": "b"}], **pools)
        assert 'VM "b": 192.0.2.60 is the address of VM "a"' in failed["msg"]
    assert writes(cluster) == []
    controller.schedule(**CLONE, vms=[{"name": "a"}, {"name": "b"}])
    assert len(set(addresses(cluster).values()) - {"ip=192.0.2.60/24"}) == 2


@both_versions
def test_copy_of_a_vm__does_not_get_its_address(controller: Controller, cluster: SimulatedCluster) -> None:
    card = {"ipconfig0": "ip=192.0.2.60/24"}
    cluster.set_guest(102, config={**card, "net0": "virtio,bridge=vmbr0"})
    for check in (True, False):
        failed = controller.fail("AddressConflict", name="copy", clone="spare", cores=3, check=check)
        assert "192.0.2.60 is the address of spare (102 on pve2), of which it would be a copy" in failed["msg"]
    assert writes(cluster) == []
    elsewhere = {"net": {"net0": "virtio,bridge=vmbr0,tag=7"}}
    moved = {"ipconfig": {"ipconfig0": "ip=dhcp"}}
    made = controller.schedule(clone="spare", vms=[{"name": "a", **elsewhere}, {"name": "b", **moved}])
    assert [vm["actions"] for vm in made["vms"]] == [["clone"], ["clone"]]
    before = {"old": {**card, "net0": "virtio,bridge=vmbr0", "memory": "512"}}
    cluster.add_guest(vmid=150, name="db", node="pve1", memory=512, snapshots=before)
    cluster.advance(60)
    assert controller.schedule(name="c", clone="db", snapname="old", check=True)["changed"] is True, "it had it then"


def test_vms_of_a_task__do_not_share_an_address_without_pools_either(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    static = {"ipconfig": {"ipconfig0": "ip=192.0.2.8/24"}, **CLOUD_INIT}
    failed = controller.fail("AddressConflict", vms=[{"name": "a"}, {"name": "b"}], **static)
    assert 'VM "b": 192.0.2.8 is the address of VM "a"' in failed["msg"]
    assert writes(cluster) == []
    elsewhere = {"name": "b", "net": {"net0": "virtio,bridge=vmbr0,tag=7"}}
    assert controller.schedule(vms=[{"name": "a"}, elsewhere], **static)["changed"] is True


def test_vm_of_a_task__does_not_get_the_address_that_an_existing_one_of_it_has(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    static = {"ipconfig": {"ipconfig0": "ip=192.0.2.8/24"}, **CLOUD_INIT}
    controller.schedule(name="a", **static)
    cluster.requests(reset=True)
    failed = controller.fail("AddressConflict", vms=[{"name": "a"}, {"name": "b"}], **static)
    assert 'VM "b": 192.0.2.8 is the address of VM "a"' in failed["msg"]
    assert writes(cluster) == []


@both_versions
def test_vm__does_not_get_an_address_that_the_config_of_another_vm_of_the_task_has(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.set_guest(100, config={"ipconfig0": "ip=192.0.2.8/24"})
    static = {"ipconfig": {"ipconfig0": "ip=192.0.2.8/24"}}
    new: dict[str, Any] = {"name": "b", **static, **CLOUD_INIT}
    for other in (new, {"name": "app-2", **static, "update": True}):
        for check in (True, False):
            failed = controller.fail("AddressConflict", vms=[{"name": "app-1"}, other], check=check)
            assert f'VM "{other["name"]}": 192.0.2.8 is the address of VM "app-1"' in failed["msg"]
    assert writes(cluster) == []
    assert "ipconfig0" not in {**cluster.state()["guests"][101]["config"], **cluster.state()["guests"][101]["pending"]}
    elsewhere = {**new, "net": {"net0": "virtio,bridge=vmbr0,tag=7"}}
    assert controller.schedule(vms=[{"name": "app-1"}, elsewhere])["changed"] is True
    controller.schedule(vms=[{"name": "app-1"}, {**elsewhere, "name": "c", "state": "absent"}])


@both_versions
def test_address_that_a_running_vm_gives_up_later__is_still_taken(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.set_guest(100, config={"ipconfig0": "ip=192.0.2.8/24"})
    moved = {"name": "app-1", "ipconfig": {"ipconfig0": "ip=192.0.2.9/24"}, "update": True}
    new = {"name": "b", "ipconfig": {"ipconfig0": "ip=192.0.2.8/24"}, **CLOUD_INIT}
    failed = controller.fail("AddressConflict", vms=[moved, new])
    assert 'VM "b": 192.0.2.8 is the address of VM "app-1"' in failed["msg"]
    assert writes(cluster) == []
    assert "b" not in {guest["name"] for guest in cluster.state()["guests"].values()}


def test_gateways_name_servers_and_the_ends_of_networks__are_never_given(
    controller: Controller, cluster: SimulatedCluster
) -> None:
    cluster.set_guest(101, config={"ipconfig0": "ip=198.51.100.9/24,gw=192.0.2.5", "nameserver": "192.0.2.6"})
    pools = {
        "lan": {"network": "192.0.2.0/24", "ranges": ["192.0.2.1-192.0.2.9"], "nameservers": ["192.0.2.2"]},
        "other": {"network": "192.0.2.0/29", "gateway": "192.0.2.1", "nameservers": ["192.0.2.3"]},
    }
    result = controller.schedule(
        vms=[{"name": "a", "nameservers": ["192.0.2.4"]}, {"name": "b"}], **{**LAN, "address_pools": pools}
    )
    found = [vm["host"]["vars"]["ansible_host"] for vm in result["vms"]]
    assert found == ["192.0.2.8", "192.0.2.9"], "7 is the broadcast address of 192.0.2.0/29"


# --- data that no guest reads ---


@both_versions
@pytest.mark.parametrize(
    ("drives", "told"),
    [
        ({}, "the guest does not get ciuser, ipconfig0: the VM has no cloud-init drive"),
        ({"ide": {"ide2": "shared:cloudinit"}}, "the guest does not get ipconfig0: the VM has no net0"),
    ],
)
def test_cloud_init_data_that_no_drive_or_card_carries__is_warned_of(
    controller: Controller, cluster: SimulatedCluster, drives: dict[str, Any], told: str
) -> None:
    asked = {"name": "web", "ciuser": "admin", "ipconfig": {"ipconfig0": "ip=dhcp"}, **drives}
    for check in (True, False):
        assert told in str(controller.schedule(**asked, check=check)["warnings"])
    assert told in str(controller.schedule(**asked)["warnings"]), "an existing VM as well"


@both_versions
@pytest.mark.parametrize("source", [{}, {"clone": "plain"}])
def test_address_that_the_guest_would_not_get__is_refused(
    controller: Controller, cluster: SimulatedCluster, source: dict[str, Any]
) -> None:
    cluster.add_guest(vmid=9001, name="plain", node="pve1", template=True, disks={"scsi0": "shared:4"})
    cluster.advance(60)
    failed = controller.fail("InvalidRequest", name="web", **FROM_LAN, **source)
    assert "addresses.ipconfig0: the guest would not get the address: the VM has no cloud-init drive" in failed["msg"]
    assert writes(cluster) == []


def test_clone_of_a_template_with_a_drive__is_not_warned_of(controller: Controller) -> None:
    made = controller.schedule(name="web", clone="debian-13", ciuser="admin", ipconfig={"ipconfig0": "ip=dhcp"})
    assert made["warnings"] == []
