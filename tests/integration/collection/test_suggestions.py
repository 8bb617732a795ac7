# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A misspelt name or option is answered with the one that may be meant."""

from __future__ import annotations

from typing import Any

import pytest
from support.controller import Controller


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"memroy": 512}, "module: memroy (did you mean memory?). Supported"),
        ({"vms": [{"name": "a", "crores": 2}]}, "module: vms.crores (did you mean vms.cores?). Supported"),
        ({"vms": [{"name": "a", "nic": 2, "memroy": 2}]}, "vms.memroy (did you mean vms.memory?), vms.nic"),
        ({"xyzzy": 1}, "module: xyzzy. Supported"),
        ({"state": "startd"}, "got: startd; did you mean started?"),
        ({"state": "running"}, "got: running; did you mean started?"),
        ({"bios": "uefi"}, "got: uefi; did you mean ovmf?"),
        ({"ip": "192.0.2.10"}, "module: ip (did you mean ipconfig: {ipconfig0: ip=192.0.2.10/24}?). Supported"),
        ({"replicas": 3}, "replicas (did you mean an entry of vms: vms: [{name: web-{n}, count: 3}]?)"),
        ({"count": 3}, "count (did you mean an entry of vms: "),
        ({"disk": "32G"}, "disk (did you mean scsi: {scsi0: {size: 32}}?)"),
        ({"template": "debian-13"}, "expected a boolean; the template to make a VM from is named by clone"),
        ({"sshkeys": "~/.ssh/id_ed25519.pub"}, "; that of a file is {{ lookup('ansible.builtin.file', "),
        ({"nameservers": "192.0.2.1 192.0.2.2"}, "expected a list of single words, such as [192.0.2.1, 192.0.2.2]"),
        ({"cpu": 4}, "expected the name of a CPU model, such as host; the number of CPUs is cores"),
        ({"virtio": {"virtio0": ""}}, "a drive; to remove it, {remove: unused}, which keeps its volume"),
        ({"scsi": {"scsi1": "absent"}}, "a drive; to remove it, {remove: unused}, which keeps its volume"),
        ({"sata": {"sata1": {"state": "absent"}}}, "a drive; to remove it, {remove: unused}, which keeps its volume"),
        ({"net": {"net1": "Removed"}}, "net1: 'Removed' is not valid, expected properties; an empty text unsets it"),
        ({"numa": 1}, "numa: expected a mapping such as {numa0: 'cpus=0-3,memory=4096'}; NUMA is enabled by numa_ena"),
        ({"addresses": ["lan"]}, "addresses: expected a mapping such as {ipconfig0: lan}, got a list"),
        ({"addresses": "lan"}, "addresses: expected a mapping such as {ipconfig0: lan}"),
        ({"ostype": "linux"}, "got: linux; did you mean l26?"),
        ({"tags": "a;b"}, "the first a letter, a digit or _, such as [a, b]"),
        ({"net": ["virtio,bridge=vmbr0"]}, "net: expected a mapping with keys such as net0, got a list"),
        ({"scsi": "shared:4"}, "scsi: expected a mapping with keys such as scsi0, got a text"),
        ({"usb": 1}, "usb: expected a mapping with keys such as usb0, got a number"),
        ({"host_vars": ["a"]}, "host_vars: expected a mapping, got a list"),
        ({"tags": {"web": True}}, "tags: expected a list, got a mapping"),
        ({"affinity": [{"type": "apart", "name": {"a": 1}}]}, "affinity[0].name: expected a text, got a mapping"),
        ({"state": "absent", "only_pool": ""}, "only_pool: is empty, expected the name of a pool"),
        ({"state": "absent", "only_tags": []}, "only_tags: is empty, expected at least one tag"),
        ({"state": "absent", "only_tags": None}, "only_tags: is empty, expected at least one tag"),
        ({"vms": [{"name": "a", "only_pool": None}]}, "vms[0].only_pool: is empty, expected the name of a pool"),
        ({"node_regex": ["pve1", "pve2"]}, "node_regex: expected a text, got a list"),
        ({"description": ["a"]}, "description: expected a text, got a list"),
        ({"vms": [{"name": ["a", "b"]}]}, "vms[0].name: expected a text, got a list"),
        ({"vms": [{"name": False}]}, "vms[0].name: expected a text, got a boolean; put it in quotes"),
        ({"vms": [{"name": 1.10}]}, "vms[0].name: expected a text, got a number; put it in quotes"),
        ({"vms": [{"tags": ["a", True]}]}, "vms[0].tags[1]: expected a text, got a boolean; put it in quotes"),
        ({"nameservers": [["192.0.2.1"]]}, "nameservers[0]: expected a text, got a list"),
        ({"memory": [4096]}, "memory: expected a whole number of MiB, such as 4096, got a list"),
        ({"vms": [{}, {"cores": "two"}]}, "vms[1].cores: 'two' is not valid, expected a whole number"),
        ({"cores": True}, "cores: True is not valid, expected a whole number"),
        ({"vms": [{"onboot": "ja"}]}, "vms[0].onboot: 'ja' is not valid, expected true or false"),
        ({"api_port": "8006/"}, "api_port: expected a whole number"),
        ({"timeout": "5m"}, "timeout: '5m' is not valid, expected a whole number"),
        ({"vms": [{"cpulimit": "1,5"}]}, "vms[0].cpulimit: '1,5' is not valid, expected a number such as 1.5"),
        ({"cpulimit": True}, "cpulimit: True is not valid, expected a number such as 1.5"),
        ({"pool": "shop "}, "pool 'shop ' does not exist, or this user cannot see it; known: "),
        ({"virtio": {"sata1": "shared:4"}}, "with keys virtio0 to virtio15; did you mean sata: {sata1: ...}?"),
        ({"net": {"net0": {"bridge": "vmbr0"}}}, "{'bridge': 'vmbr0'} is not valid, expected properties with model"),
        ({"hostpci": {"hostpci0": {"pcie": True}}}, "expected properties with host or mapping"),
        ({"ide": {0: "shared:4"}}, "expected a mapping with keys ide0 to ide3; did you mean ide0?"),
        ({"affinity": [{"type": "appart", "name": "x"}]}, "got: appart found in affinity; did you mean apart?"),
        (
            {"vms": [{}, {"affinity": [{"typ": "apart", "name": "x"}]}]},
            "vms[1].affinity[0].type: is missing, expected one of: affinity, anti-affinity, with, apart; "
            "'typ' is not an option, did you mean type?",
        ),
        ({"affinity": [{"type": None}]}, "affinity[0].type: is missing, expected one of: affinity, anti-"),
        ({"topology_spread": [{"max_skew": 2}]}, "topology_spread[0].topology_key: is missing"),
        ({"affinity": [None]}, "as type, required, weight, topology_key, got nothing"),
        ({"tolerations": "gpu"}, "keys such as key, operator, value, effect, got a text"),
    ],
)
def test_option__that_does_not_exist(options: dict[str, Any], told: str, planner: Controller) -> None:
    assert told in planner.run("qemu_schedule", name="web", **options)["msg"]


def test_values_of_a_list__are_suggested_too(planner: Controller) -> None:
    failed = planner.run("cluster_rebalance", goals=["repair", "balanc"], check=True)
    assert failed["msg"].endswith("Got no match for: balanc; did you mean balance?")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"ha": True}, "ha: expected a mapping with keys such as rule, group, state, create, got a boolean"),
        ({"make_room": 3}, "make_room: expected a mapping with keys such as"),
        ({"tolerations": ["gpu"]}, "tolerations[0]: expected a mapping with keys such as"),
        ({"vms": [{"name": "a"}, "b"]}, "vms[1]: expected a mapping with keys such as"),
        ({"vms": [{"name": "a", "ha": "started"}]}, "vms[0].ha: expected a mapping with keys such as"),
    ],
)
def test_value_that_has_to_be_a_mapping__is_refused_with_its_place(
    options: dict[str, Any], told: str, planner: Controller
) -> None:
    failed = planner.run("qemu_schedule", **options)
    assert failed["error_code"] == "InvalidRequest"
    assert failed["msg"].startswith(told)


def test_mapping_as_text__is_a_mapping(planner: Controller) -> None:
    planned = planner.run("qemu_schedule", vms=["name=a", '{"name": "b"}'], check=True)
    assert [vm["name"] for vm in planned["vms"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"node": "pve-1"}, "no node 'pve-1', known: pve1, pve2, pve3; did you mean pve1?"),
        ({"scsi": {"scsi0": "local-lwm:8"}}, "user cannot see it, known: local, local-lvm, shared; did you mean"),
        ({"clone": "debian-31"}, "debian-13"),
        ({"pool": "wep"}, "known: web"),
        ({"profile": "balance"}, "; did you mean balanced?"),
        ({"plugin_config": {"filters": {"NodeRegx": {}}}}, "; did you mean NodeRegex?"),
        ({"plugin_config": {"filter": {}}}, "; did you mean filters?"),
        ({"nodes": {"pve11": {}}}, "the cluster's nodes: pve1, pve2, pve3; did you mean pve1?"),
        ({"net": {"net0": "virtio,brigde=vmbr0"}}, "; did you mean bridge?"),
        ({"net": {"net0": "virtoi,bridge=vmbr0"}}, "; did you mean virtio?"),
        ({"priority": "vitl", "priority_classes": {"vital": 1}}, "vital; did you mean vital?"),
        ({"storage_classes": {"fast": {}}, "scsi": {"scsi0": {"size": 8, "storage_class": "fsat"}}}, "mean fast?"),
        ({"ha": {"rule": "x"}}, "unknown HA rule 'x'; known rules: none"),
    ],
)
def test_name__that_does_not_exist(options: dict[str, Any], told: str, planner: Controller) -> None:
    failed = planner.run("qemu_schedule", **{"name": "new", **options}, check=True)
    assert failed.get("failed"), failed
    assert told in failed["msg"]


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({"PROXMOX_USER": "automation@pve!ansible"}, "the name of a token, after the !, belongs in api_token_id"),
        ({"PROXMOX_TOKEN_SECRET": None}, "api_token_secret is missing: set it, or PROXMOX_TOKEN_SECRET in"),
    ],
)
def test_part_of_a_token__that_is_missing_or_misplaced_is_named(
    env: dict[str, str | None], told: str, planner: Controller
) -> None:
    assert told in planner.run("qemu_schedule", name="web", env=env)["msg"]
