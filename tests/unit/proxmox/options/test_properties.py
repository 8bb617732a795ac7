# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Property strings: parsed to one spelling, written as Proxmox takes them, compared by what they mean."""

from __future__ import annotations

import re
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options import kinds
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options.property_strings import (
    Property,
    PropertyKind,
)

ALL_KINDS = [kind for kind in vars(kinds).values() if isinstance(kind, PropertyKind)]
WORDS = st.text("abcdefghijklmnopqrstuvwxyz0123456789._-/:;+", min_size=1, max_size=8)
ADDRESSES = ["dhcp", "192.0.2.1", "192.0.2.10/24", "2001:db8::1", "2001:db8::10/64"]


def values(each: Property) -> st.SearchStrategy[str]:
    if each.choices:
        return st.sampled_from(each.choices)
    if each.type == "boolean":
        return st.sampled_from(["0", "1", "on", "off", "yes", "no", "TRUE", "False"])
    if each.type == "integer":
        return st.integers(int(each.minimum or 0), int(each.maximum or 10**6)).map(str)
    if each.type == "number":
        return st.integers(int(each.minimum or 0), int(each.maximum or 500)).map(lambda number: f"{number}.0")
    if each.valid:
        return st.sampled_from([text for text in ADDRESSES if each.valid(text)])
    if each.pattern:
        texts = st.from_regex(re.compile(each.pattern, re.ASCII), fullmatch=True)
        longest = 1000 if each.longest is None else each.longest
        return texts.filter(lambda text: bool(text.strip()) and text == text.strip() and len(text) <= longest)
    return WORDS


@st.composite
def property_strings(draw: st.DrawFn) -> tuple[PropertyKind, str]:
    kind = draw(st.sampled_from(ALL_KINDS))
    names = draw(st.lists(st.sampled_from(sorted(kind.properties)), min_size=1, unique=True))
    parts = [f"{name}={draw(values(kind.properties[name]))}" for name in names]
    return kind, ",".join(parts)


@given(property_strings())
def test_what_is_written__is_read_back_the_same(drawn: tuple[PropertyKind, str]) -> None:
    kind, text = drawn
    properties = kind.parse("option", text)
    assert kind.parse("option", kind.format(properties)) == properties


@given(property_strings(), st.randoms())
def test_order_of_properties__means_nothing(drawn: tuple[PropertyKind, str], random: t.Any) -> None:
    kind, text = drawn
    parts = text.split(",")
    random.shuffle(parts)
    assert kind.same(kind.parse("option", ",".join(parts)), kind.parse("option", text))


YAML_BOOLEANS = {"on", "off", "yes", "no", "true", "false"}


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (kinds.AGENT, "1", "enabled=1"),
        (kinds.AGENT, "True", "1"),
        (kinds.AGENT, "1,fstrim_cloned_disks=yes", "fstrim_cloned_disks=1,enabled=on"),
        (kinds.AGENT, "1", "1,type=virtio"),
        (kinds.AGENT, "1,freeze-fs-on-backup=0", "1,freeze-fs=0"),
        (kinds.NET, "model=virtio,macaddr=bc:24:11:00:00:01", "virtio=BC:24:11:00:00:01"),
        (kinds.NET, "virtio,bridge=vmbr0,firewall=0", "virtio,bridge=vmbr0"),
        (kinds.NET, "virtio,bridge=vmbr0,trunks=20;10", "virtio,trunks=10;20,bridge=vmbr0"),
        (kinds.NET, "virtio,rate=10", "virtio,rate=10.0"),
        (kinds.SCSI, "vmdata:32,ssd=1", "file=vmdata:32,ssd=true"),
        (kinds.SCSI, "volume=vmdata:32", "vmdata:32"),
        (kinds.SCSI, "vmdata:32,backup=1,replicate=1,ssd=0", "vmdata:32"),
        (kinds.CPU, "host,flags=+aes;-pcid", "cputype=host,flags=-pcid;+aes"),
        (kinds.SCSI, "vmdata:32,discard=True", "vmdata:32,discard=on"),
        (kinds.SCSI, "vmdata:32,discard=off", "vmdata:32"),
        (kinds.CPU, "", "kvm64"),
        (kinds.STARTUP, "1,up=30", "order=1,up=30"),
        (kinds.VGA, "std", "type=std"),
        (kinds.RNG, "/dev/urandom", "source=/dev/urandom,max_bytes=1024,period=1000"),
    ],
)
def test_spellings_of_one_meaning__are_the_same(kind: PropertyKind, one: str, other: str) -> None:
    assert kind.same(kind.parse("option", one), kind.parse("option", other))


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (kinds.AGENT, "1", "0"),
        (kinds.NET, "virtio,bridge=vmbr0", "virtio,bridge=vmbr1"),
        (kinds.NET, "virtio,bridge=vmbr0", "virtio,bridge=vmbr0,tag=7"),
        (kinds.NET, "virtio=BC:24:11:00:00:01", "virtio=BC:24:11:00:00:02"),
        (kinds.NET, "virtio,mtu=1", "virtio"),
        (kinds.SCSI, "vmdata:32,backup=0", "vmdata:32"),
        (kinds.BOOT, "order=scsi0;net0", "order=net0;scsi0"),
    ],
)
def test_what_differs_in_meaning__is_not_the_same(kind: PropertyKind, one: str, other: str) -> None:
    assert not kind.same(kind.parse("option", one), kind.parse("option", other))


def test_choice_that_yaml_makes_a_boolean_of__is_understood_as_one() -> None:
    each = [value for value in vars(kinds).values() if isinstance(value, PropertyKind)]
    assert len(each) > 20
    switches = [one for kind in each for one in kind.properties.values() if YAML_BOOLEANS & set(one.choices)]
    assert switches
    for one in switches:
        assert one.switch is not None
        no, yes = one.switch
        assert one.normalize("option", True) == yes
        assert one.normalize("option", False) == no
        assert {no, yes} <= set(one.choices)
    assert kinds.SCSI.of("scsi0", {"size": 8, "discard": True})["discard"] == "on"


def test_mac_address_that_proxmox_invented__is_no_difference_and_is_kept() -> None:
    wanted = kinds.NET.parse("net0", "virtio,bridge=vmbr0")
    current = kinds.NET.read("virtio=BC:24:11:A4:28:4C,bridge=vmbr0")
    assert kinds.NET.same(wanted, current)
    assert kinds.NET.format(kinds.NET.keep_generated(wanted, current)) == "virtio=BC:24:11:A4:28:4C,bridge=vmbr0"


@pytest.mark.parametrize(
    ("kind", "text", "named"),
    [
        (kinds.NET, "virtio,brigde=vmbr0", ["brigde=vmbr0", "bridge", "firewall"]),
        (kinds.NET, "virtio=01:00:00:00:00:01", ["net0.macaddr", "unicast"]),
        (kinds.NET, "foo,bridge=vmbr0", ["net0.model", "'foo'", "virtio"]),
        (kinds.NET, "virtio,tag=5000", ["net0.tag", "1 to 4094"]),
        (kinds.NET, "virtio,model=e1000", ["model", "twice"]),
        (kinds.AGENT, "maybe", ["net0.enabled", "boolean"]),
        (kinds.SCSI, "vmdata:4,format=foo", ["net0.format", "qcow2"]),
        (kinds.IPCONFIG, "dhcp", ["'dhcp'", "key=value"]),
    ],
)
def test_error__names_the_option_the_value_and_what_was_expected(
    kind: PropertyKind, text: str, named: list[str]
) -> None:
    with pytest.raises(InvalidRequest) as raised:
        kind.parse("net0", text)
    assert all(each in raised.value.message for each in ["net0", *named])


def test_property_of_a_newer_proxmox__is_read_and_kept_as_it_stands() -> None:
    properties = kinds.SCSI.read("vmdata:vm-101-disk-0,brandnew=7,ssd=1")
    assert kinds.SCSI.format(properties) == "vmdata:vm-101-disk-0,brandnew=7,ssd=1"


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (kinds.NET, "virtio,bridge=vmbr0,rate=1,5", r"x: '5' is not valid, expected key=value"),
        (kinds.NET, "virtio=BC:24:11:00:00:01,rate=1,5", r"x: '5' is not valid, expected key=value"),
        (kinds.NET, "virtio,bridge:vmbr0", r"x: 'bridge:vmbr0' is not valid, expected key=value"),
        (kinds.SCSI, "local-zfs:8,5", r"x: '5' is not valid, expected key=value"),
        (kinds.SCSI, {"size": "8,5"}, r"x\.size: '8,5' is not valid, expected a size in GiB"),
        (kinds.BOOT, {"order": ["scsi0", "net0"]}, r"x\.order: .* is not valid, expected .*: scsi0;net0"),
    ],
)
def test_comma_in_a_value__is_named_with_what_was_expected(kind: PropertyKind, value: t.Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        kind.of("x", value)
