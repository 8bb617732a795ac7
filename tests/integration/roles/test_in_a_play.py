# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The roles inside somebody else's play: where they run, what they leave for later tasks, and how they fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simulated_cluster.client import SimulatedCluster
from support.playbook import EMPTY

from .conftest import VMS, Play

PROVISION = {"ansible.builtin.include_role": {"name": "qemu_scheduler.proxmox.provision"}}


def somebodys_play(*tasks: dict[str, Any], hosts: str = "localhost", **more: Any) -> dict[str, Any]:
    return {"hosts": hosts, "gather_facts": False, "tasks": list(tasks), **more}


def seen(*expressions: str) -> dict[str, Any]:
    return {"name": "seen", "ansible.builtin.debug": {"msg": {text: "{{ " + text + " }}" for text in expressions}}}


def test_vms__are_hosts_of_the_plays_that_follow(cluster: SimulatedCluster, play: Play) -> None:
    variables = {**VMS, "provision_wait_for_address": True, "provision_groups": "fresh, nightly,"}
    run = play(
        [
            somebodys_play(PROVISION),
            somebodys_play(seen("group_names | sort", "ansible_host", "proxmox_node", "proxmox_vmid"), hosts="fresh"),
        ],
        variables,
    )
    assert run.code == 0, run.output
    hosts = {task.host: task.result["msg"] for task in run.tasks if task.task == "seen"}
    assert hosts["web-1"]["group_names | sort"] == ["fresh", "front_end", "nightly", "web"]
    assert hosts["db-1"]["group_names | sort"] == ["db", "fresh", "nightly"]
    web = cluster.state()["guests"][int(hosts["web-1"]["proxmox_vmid"])]
    assert web["config"]["name"] == "web-1"
    assert hosts["web-1"]["proxmox_node"] == web["node"]
    assert hosts["web-1"]["ansible_host"].startswith("192.0.2.")
    assert hosts["db-1"]["ansible_host"] == "db-1"


def test_hosts__have_the_groups_and_variables_of_their_entries(play: Play) -> None:
    host = {"host_groups": ["apps"], "host_vars": {"http_port": 8080, "limits": {"cpu": 2}}}
    vms = [
        {"name": "app-{n}", "count": 2, **host},
        {"name": "static", "ciuser": "admin", "ipconfig": {"ipconfig0": "ip=192.0.2.77/24,gw=192.0.2.1"}},
    ]
    variables = {**VMS, "qemu_vms": vms, "provision_groups": ["fresh"], "provision_wait_for_address": True}
    # ansible-core 2.18 makes text of a number that stands alone.
    told = seen("groups['apps'] | sort", "[hostvars['app-2'].http_port, hostvars['app-2'].limits.cpu]",
                "hostvars['static'].ansible_host", "hostvars['static'].ansible_user",
                "[provision_addresses.vms | length]", "groups['fresh'] | sort")  # fmt: skip
    run = play([somebodys_play(PROVISION, told)], variables)
    assert run.code == 0, run.output
    apps, fresh = ["app-1", "app-2"], ["app-1", "app-2", "static"]
    assert list(run.of("seen")["msg"].values()) == [apps, [8080, 2], "192.0.2.77", "admin", [2], fresh]


def test_addresses__are_not_those_of_a_vm_that_had_the_vmid_before(play: Play) -> None:
    teardown = {"ansible.builtin.include_role": {"name": "qemu_scheduler.proxmox.teardown"}}
    old, new = {"name": "old", "vmid": 7001}, {"name": "new", "vmid": 7001, "state": "stopped"}
    run = play(
        [
            somebodys_play(
                {**PROVISION, "vars": {"qemu_vms": [old]}},
                {**teardown, "vars": {"qemu_vms": [old]}},
                {**PROVISION, "vars": {"qemu_vms": [new]}},
                seen(
                    "[provision_vms[0].address]",
                    "provision_vms[0].addresses",
                    "hostvars['new'].ansible_host | default('unset')",
                ),
            )
        ],
        {"qemu_options": {**VMS["qemu_options"], "force": True}, "provision_wait_for_address": True},
    )
    assert run.code == 0, run.output
    assert list(run.of("seen")["msg"].values()) == [[None], [], "unset"]


def test_it__runs_once_on_the_controller_whatever_the_play_is_for(cluster: SimulatedCluster, play: Play) -> None:
    before = set(cluster.state()["guests"])
    far = {"name": "{{ item }}", "groups": "far", "ansible_host": "192.0.2.254", "ansible_connection": "ssh"}
    away = {"ansible.builtin.add_host": far, "loop": ["far-1", "far-2"]}
    no_way = {"ansible_become_exe": "/bin/false", "ansible_become_user": "nobody"}
    names = seen("provision_vms | map(attribute='name') | list")
    run = play(
        [
            somebodys_play(away),
            somebodys_play(PROVISION, names, hosts="far", become=True, vars=no_way),
        ],
        VMS,
    )
    assert run.code == 0, run.output
    assert len(set(cluster.state()["guests"]) - before) == 2
    facts = {task.host: task.result["msg"] for task in run.tasks if task.task == "seen"}
    assert set(facts) == {"far-1", "far-2"}
    for fact in facts.values():
        assert fact["provision_vms | map(attribute='name') | list"] == ["web-1", "db-1"]


def test_connection__can_come_from_the_plays_module_defaults(cluster: SimulatedCluster, play: Play) -> None:
    defaults = {"group/qemu_scheduler.proxmox.proxmox": {"api_host": cluster.host}}
    elsewhere = {"PROXMOX_HOST": "nowhere.invalid"}
    run = play([somebodys_play(PROVISION, module_defaults=defaults, environment=elsewhere)], VMS)
    assert run.code == 0, run.output
    assert play([somebodys_play(PROVISION, environment=elsewhere)], VMS).code != 0


def test_statistics__have_a_key_of_their_own_and_no_reasons(play: Play) -> None:
    run = play([somebodys_play(PROVISION)], VMS)
    stats = next(task.result for task in run.tasks if task.task.endswith("Set the statistics"))
    data = stats["ansible_stats"]["data"]
    assert list(data) == ["qemu_scheduler_vms"]
    assert [vm["name"] for vm in data["qemu_scheduler_vms"]] == ["web-1", "db-1"]
    assert "decision" not in data["qemu_scheduler_vms"][0]


def test_missing_vms__name_the_missing_variable(play: Play) -> None:
    for role in ("provision", "teardown"):
        run = play(role)
        assert run.code != 0
        assert "missing required arguments: qemu_vms" in run.output


def test_misspelt_option_of_a_vm__is_named(cluster: SimulatedCluster, play: Play) -> None:
    run = play("provision", {"qemu_vms": [{"name": "x", "memroy": 512}]})
    assert run.code != 0
    assert "vms.memroy" in run.last["msg"]


def test_one_vm_that_cannot_be_placed__has_all_explained_and_none_made(cluster: SimulatedCluster, play: Play) -> None:
    before = set(cluster.state()["guests"])
    run = play("provision", {**VMS, "qemu_vms": [*VMS["qemu_vms"], {"name": "huge", "memory": 9999999}]})
    assert run.code != 0
    assert set(cluster.state()["guests"]) == before
    assert run.last["msg"].startswith('NoNodesAvailable: 0/5 nodes are available for VM "huge"')
    assert "not done, because another VM failed" in run.output
    assert "rejected by memory" in run.output


def test_what_could_be_made__is_told_although_the_run_fails(cluster: SimulatedCluster, play: Play) -> None:
    options = {**VMS["qemu_options"], "all_or_nothing": False}
    vms = [*VMS["qemu_vms"], {"name": "huge", "memory": 9999999}]
    run = play("provision", {"qemu_vms": vms, "qemu_options": options})
    assert run.code != 0
    added = [task.result for task in run.tasks if task.task.endswith("Add the VMs to the inventory")]
    assert "web-1" in str(added)
    assert "huge" not in str(added)


def test_vm_whose_agent_keeps_silent__fails_the_run_by_name(play: Play) -> None:
    options = {**VMS["qemu_options"], "agent": "0"}
    variables = {**VMS, "qemu_options": options, "provision_wait_for_address": True, "provision_address_timeout": 600}
    run = play("provision", variables)
    assert run.code != 0
    assert "up to 600 s: web-1 (its guest agent is not enabled)." in run.last["msg"]


def test_vms_without_an_address__are_reported_and_added_all_the_same(play: Play) -> None:
    options = {**VMS["qemu_options"], "all_or_nothing": False}
    vms = [*VMS["qemu_vms"], {"name": "mute", "agent": "0"}, {"name": "huge", "memory": 9999999}]
    variables = {"qemu_vms": vms, "qemu_options": options, "provision_wait_for_address": True}
    told = seen("provision_vms | map(attribute='name') | list", "groups['web']", "hostvars['web-1'].ansible_host")
    failure = {"ansible.builtin.debug": {"msg": "{{ ansible_failed_result.msg }}"}, "name": "failure"}
    run = play([somebodys_play({"block": [PROVISION], "rescue": [failure, told]})], variables)
    assert run.code == 0, run.output
    facts = run.of("seen")["msg"]
    assert facts["provision_vms | map(attribute='name') | list"] == ["web-1", "db-1", "mute"]
    assert facts["groups['web']"] == ["web-1"]
    assert facts["hostvars['web-1'].ansible_host"].startswith("192.0.2.")
    message = run.of("failure")["msg"]
    assert message.startswith("NoNodesAvailable: ")
    assert "up to 300 s: mute (its guest agent is not enabled)." in message


def test_addresses_that_cannot_be_asked_for__do_not_hide_what_was_made(cluster: SimulatedCluster, play: Play) -> None:
    cluster.fault(method="GET", path="/agent/network-get-interfaces$", status=401)
    variables = {**VMS, "provision_wait_for_address": True}
    told = seen("provision_vms | map(attribute='name') | list")
    run = play([somebodys_play({"block": [PROVISION], "rescue": [told]})], variables)
    assert run.code == 0, run.output
    assert run.of("seen")["msg"]["provision_vms | map(attribute='name') | list"] == ["web-1", "db-1"]
    assert "AuthenticationFailed: " in run.output


def test_network_that_is_none__is_told_before_anything_is_made(cluster: SimulatedCluster, play: Play) -> None:
    before = set(cluster.state()["guests"])
    run = play("provision", {**VMS, "provision_address_networks": ["192.0.2.0/24", "10.0.0.0/33"]})
    assert run.code != 0
    assert run.last["msg"] == "provision_address_networks: expected networks, such as 192.0.2.0/24, got 10.0.0.0/33"
    assert set(cluster.state()["guests"]) == before


def test_page_that_cannot_be_written__is_told_before_anything_is(cluster: SimulatedCluster, play: Play) -> None:
    before = set(cluster.state()["guests"])
    for page in ("/no/such/folder/page.html", "/"):
        run = play("provision", {**VMS, "provision_page": page})
        assert run.code != 0
        assert run.last["msg"].startswith(f"provision_page: {page} cannot be written")
    assert set(cluster.state()["guests"]) == before


def test_vm_that_is_requested_by_its_vmid_alone__has_its_name_in_the_inventory(play: Play) -> None:
    vms = [{"vmid": 124, "tags": ["lab", "2nd"]}]
    nothing = {"provision_page": EMPTY, "provision_snapshot": EMPTY}
    run = play([somebodys_play(PROVISION, seen("groups['lab']", "groups['_2nd']"))], {**nothing, "qemu_vms": vms})
    assert run.code == 0, run.output
    assert run.of("seen")["msg"] == {"groups['lab']": ["lab-4"], "groups['_2nd']": ["lab-4"]}
    assert "Invalid characters" not in run.output


def test_recording_among_the_options_of_the_task__writes_nothing_either(play: Play, tmp_path: Path) -> None:
    record = {"qemu_scheduler.proxmox.cluster_snapshot_info": {"dest": str(tmp_path / "cluster.json")}}
    variables = {
        "qemu_vms": [{"name": "web-1", "memory": 512}],
        "qemu_options": {"snapshot": str(tmp_path / "cluster.json")},
        "provision_wait_for_address": True,
        "provision_page": str(tmp_path / "page.html"),
    }
    run = play([somebodys_play(record, PROVISION, seen("provision_vms", "groups['all']"))], variables)
    assert run.code == 0, run.output
    assert run.of("seen")["msg"] == {"provision_vms": [], "groups['all']": []}
    assert "Plan: nothing was written" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_wrong_credentials__fail_with_the_code(play: Play) -> None:
    for role in ("provision", "teardown"):
        run = play(role, {**VMS, "qemu_options": {"api_token_secret": "wrong"}})
        assert run.code != 0
        assert run.last["error_code"] == "AuthenticationFailed"


def test_check_mode_of_the_play__writes_nothing_either(cluster: SimulatedCluster, play: Play, tmp_path: Path) -> None:
    before = cluster.state()["guests"]
    page = tmp_path / "page.html"
    archive = "nfs-iso:backup/vzdump-qemu-240-2026_11_01-02_00_00.vma.zst"
    new = [*VMS["qemu_vms"], {"name": "restored", "archive": archive}]
    provision = {"role": "qemu_scheduler.proxmox.provision", "vars": {"qemu_vms": new, "provision_page": str(page)}}
    teardown = {"name": "qemu_scheduler.proxmox.teardown"}
    drain = {"name": "qemu_scheduler.proxmox.node_drain"}
    run = play(
        [
            somebodys_play(seen("provision_vms", "groups['all']"), check_mode=True, roles=[provision]),
            somebodys_play(
                {
                    "check_mode": True,
                    "block": [
                        {"ansible.builtin.include_role": teardown, "vars": {"qemu_vms": [{"name": "lab-4"}]}},
                        {"ansible.builtin.include_role": drain, "vars": {"node_drain_nodes": "pve2"}},
                    ],
                }
            ),
        ],
        {"qemu_options": {**VMS["qemu_options"], "force": True}, "provision_wait_for_address": True},
    )
    assert cluster.state()["guests"] == before, run.output
    assert run.of("seen")["msg"] == {"provision_vms": [], "groups['all']": []}
    assert "Plan: nothing was written" in page.read_text(encoding="utf-8")
    stats = run.of("qemu_scheduler.proxmox.node_drain : Set the statistics")["ansible_stats"]["data"]
    assert "qemu_scheduler_plan" in stats
