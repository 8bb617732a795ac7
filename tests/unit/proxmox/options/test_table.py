# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The argument spec and the parameters of the API that follow from the table of options."""

from __future__ import annotations

import typing as t
from urllib.parse import unquote

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options.drives import Drive
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options.table import (
    VM_ARGUMENT_SPEC,
    VM_OPTIONS,
    option_of,
    to_api,
)


@pytest.mark.parametrize(
    ("params", "api"),
    [
        ({"onboot": True, "kvm": False, "numa_enabled": True}, {"onboot": 1, "kvm": 0, "numa": 1}),
        ({"cores": 2, "memory": 2048, "cpulimit": 1.5}, {"cores": 2, "memory": 2048, "cpulimit": "1.5"}),
        ({"cpulimit": 2.0}, {"cpulimit": 2}),
        ({"agent": "True"}, {"agent": "1"}),
        ({"agent": "enabled=1,fstrim_cloned_disks=1"}, {"agent": "1,fstrim_cloned_disks=1"}),
        ({"smbios": "family=QQ=="}, {"smbios1": "family=QQ=="}),
        ({"nameservers": ["1.1.1.1", "8.8.8.8"]}, {"nameserver": "1.1.1.1 8.8.8.8"}),
        ({"searchdomains": ["lab.example"]}, {"searchdomain": "lab.example"}),
        ({"tags": ["Web", "db", "web"]}, {"tags": "db;web"}),
        ({"tags": []}, {"tags": ""}),
        ({"description": ""}, {"description": ""}),
        ({"net": {"net0": "virtio,bridge=vmbr0", "net1": None}}, {"net0": "virtio,bridge=vmbr0"}),
        ({"net": {"net0": {"model": "virtio", "link_down": True}}}, {"net0": "virtio,link_down=1"}),
        ({"numa": {"numa0": "cpus=0-1,memory=512"}}, {"numa0": "cpus=0-1,memory=512"}),
        ({"audio": {"audio0": "device=AC97"}}, {"audio0": "device=AC97"}),
        ({"hostpci": {"hostpci0": "01:00.0,pcie=yes"}}, {"hostpci0": "01:00.0,pcie=1"}),
        ({"boot": "order=scsi0;net0"}, {"boot": "order=scsi0;net0"}),
        ({"startup": "order=1,up=30"}, {"startup": "1,up=30"}),
        ({"name": "web", "vmid": 100, "cores": None, "state": "started"}, {}),
    ],
)
def test_options__become_parameters_of_the_api(params: dict[str, t.Any], api: dict[str, t.Any]) -> None:
    assert to_api(params) == api


def test_keys__are_url_encoded_once_without_blank_lines() -> None:
    encoded = to_api({"sshkeys": "ssh-ed25519 AAAA+/= me@host\n\nssh-rsa AAAAB\n"})["sshkeys"]
    assert isinstance(encoded, str)
    assert not set(encoded) & set(" +/=\n@")
    assert unquote(encoded) == "ssh-ed25519 AAAA+/= me@host\nssh-rsa AAAAB"


def test_list_of_keys__is_the_same_as_a_line_each() -> None:
    keys = ["ssh-ed25519 AAAAC3Nz me@host\n", 'from="192.0.2.0/24" sk-ssh-ed25519@openssh.com AAAAGnNr', "  "]
    assert to_api({"sshkeys": keys}) == to_api({"sshkeys": "\n".join(keys)})
    assert to_api({"sshkeys": []}) == to_api({"sshkeys": ""}) == {"sshkeys": ""}


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("['ssh-ed25519 AAAAC3Nz hush']", 1),
        ("ssh-ed25519 AAAAC3Nz me\n\nAAAAC3Nz hush", 3),
        (["ssh-rsa AAAAB3Nz", "ssh-rsa hush"], 2),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nhush", 1),
        ("ssh-rsa hush", 1),
        ({"key": "hush"}, 1),
    ],
)
def test_what_is_no_public_key__is_refused_by_its_line_and_never_shown(keys: t.Any, line: int) -> None:
    with pytest.raises(InvalidRequest, match=f"^sshkeys: line {line} is not valid, expected a public key") as raised:
        to_api({"sshkeys": keys})
    assert "hush" not in raised.value.message + str(raised.value.details)


def test_drives__stay_objects_until_their_storage_is_known() -> None:
    assert isinstance(to_api({"scsi": {"scsi30": ":32"}})["scsi30"], Drive)


def test_password__is_sent_as_it_is_but_never_printed() -> None:
    api = to_api({"cipassword": "s3cret"})
    assert api["cipassword"] == "s3cret"
    assert "s3cret" not in repr(api)


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"scsi": {"scsi31": "vmdata:32"}}, ["scsi.scsi31", "scsi0 to scsi30"]),
        ({"scsi": {"scsi01": "vmdata:32"}}, ["scsi.scsi01", "scsi0 to scsi30"]),
        ({"net": {"net_0": "virtio"}}, ["net.net_0", "net0 to net31"]),
        ({"scsi": {"virtio0": "vmdata:32"}}, ["scsi.virtio0", "scsi0 to scsi30"]),
        ({"ide": {"ide4": "vmdata:1"}}, ["ide.ide4", "ide0 to ide3"]),
        ({"audio": {"audio1": "device=AC97"}}, ["audio.audio1", "audio0"]),
        ({"net": ["virtio"]}, ["net", "mapping"]),
        ({"cores": 0}, ["cores", "0", "at least 1"]),
        ({"cores": "1.5"}, ["cores", "1.5", "whole number"]),
        ({"cores": True}, ["cores", "True", "whole number"]),
        ({"memory": 8}, ["memory", "8", "at least 16", "in MiB"]),
        ({"memory": "4G"}, ["memory", "'4G'", "in MiB: 4096 for 4 GiB"]),
        ({"balloon": "1G"}, ["balloon", "'1G'", "in MiB: 4096 for 4 GiB"]),
        ({"ipconfig": {"ip": "dhcp"}}, ["ipconfig.ip", "such as {ipconfig0: 'ip=192.0.2.10/24,gw=192.0.2.1'}"]),
        ({"ipconfig": {"ipconfig0": "dhcp"}}, ["ipconfig0", "'dhcp'", "such as ip=192.0.2.10/24,gw=192.0.2.1"]),
        ({"ipconfig": {"ipconfig0": "ip=192.0.2.10"}}, ["ipconfig0", "'192.0.2.10'", "prefix: 192.0.2.10/24"]),
        ({"ipconfig": {"ipconfig0": f"ip=192.0.2.10/{'9' * 5000}"}}, ["ipconfig0", "prefix: 192.0.2.10/24"]),
        ({"ipconfig": {"ipconfig0": "ip6=2001:db8::1"}}, ["ipconfig0", "'2001:db8::1'", "auto, dhcp, or"]),
        ({"ipconfig": {"ipconfig0": "ipv4=dhcp"}}, ["ipconfig0", "gw, gw6, ip, ip6, such as ip=192.0.2.10/24"]),
        ({"sockets": 0}, ["sockets", "at least 1"]),
        ({"shares": 50001}, ["shares", "0 to 50000"]),
        ({"cpulimit": 129}, ["cpulimit", "0 to 128"]),
        ({"onboot": "maybe"}, ["onboot", "maybe", "boolean"]),
        ({"bios": "efi"}, ["bios", "efi", "seabios, ovmf"]),
        ({"tags": ["a:b"]}, ["tags", "a:b", "letters"]),
        ({"tags": ["a,b"]}, ["tags", "a,b"]),
        ({"nameservers": ["1.1.1.1 8.8.8.8"]}, ["nameservers", "single words"]),
        ({"net": {"net0": "bridge=vmbr0"}}, ["net0", "model"]),
        ({"hostpci": {"hostpci0": "pcie=1"}}, ["hostpci0", "host or mapping"]),
        ({"machine": "foo"}, ["machine", "foo", "q35"]),
        ({"boot": "order"}, ["boot", "order=DEVICE"]),
        ({"hotplug": "cpu,disks"}, ["hotplug", "network"]),
        ({"serial": {"serial0": "tty"}}, ["serial0", "socket"]),
        ({"startdate": "tomorrow"}, ["startdate", "now"]),
        ({"args": "-no-reboot\n-no-shutdown"}, ["args", "'-no-reboot\\n-no-shutdown'", "a text of one line"]),
    ],
)
def test_wrong_value__is_refused_by_option_value_and_expectation(params: dict[str, t.Any], named: list[str]) -> None:
    with pytest.raises(InvalidRequest) as raised:
        to_api(params)
    assert all(each in raised.value.message for each in named), raised.value.message


def test_spec__hides_the_password_and_nothing_else() -> None:
    spec = VM_ARGUMENT_SPEC
    assert [name for name, each in spec.items() if each.get("no_log")] == ["cipassword"]


def test_each_option_and_each_parameter__stands_in_the_table_once() -> None:
    assert len({option.name for option in VM_OPTIONS}) == len(VM_OPTIONS)
    assert len({(option.api, bool(option.count)) for option in VM_OPTIONS}) == len(VM_OPTIONS)


def test_switch_numa_and_the_nodes_of_numa__are_two_options() -> None:
    switch, node = option_of("numa"), option_of("numa0")
    assert switch is not None
    assert node is not None
    assert (switch.name, node.name) == ("numa_enabled", "numa")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"description": "x" * 8193}, "expected at most 8192 characters, and it has 8193"),
        ({"smbios": "family=" + "x" * 506}, "expected at most 512 characters, and it has 513"),
        ({"scsi": {"scsi0": {"storage": "a", "size": 1, "serial": "x" * 61}}}, "expected at most 60 characters"),
        ({"ide": {"ide0": {"storage": "a", "size": 1, "model": "x" * 121}}}, "expected at most 120 characters"),
        ({"tags": [f"tag-{number}" for number in range(100_000)]}, "tags: all options of a VM together take"),
        ({"sshkeys": "ssh-ed25519 AAAA" + "x" * 2**19}, "sshkeys: all options of a VM together take"),
        ({"args": "ä" * 2**17}, "args: all options of a VM together take"),
    ],
)
def test_text__that_is_longer_than_proxmox_takes_it_is_refused(params: dict[str, t.Any], message: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        to_api(params)
    assert message in raised.value.message
    assert len(raised.value.message) < 400


def test_text__of_the_greatest_length_is_taken() -> None:
    assert to_api({"description": "ä" * 8192}) == {"description": "ä" * 8192}
