# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which differences between two configs mean another guest, and the identity as plain data."""

from __future__ import annotations

import json

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import ApiError, NotTheSameGuest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.model import Identity
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.identity import (
    Sameness,
    as_json,
    compare,
    from_json,
    identity_of,
    prove,
)

UUID = "11111111-2222-4333-8444-555555555555"
OTHER_UUID = "99999999-2222-4333-8444-555555555555"
GENERATION = "aaaaaaaa-2222-4333-8444-555555555555"
NEXT_GENERATION = "bbbbbbbb-2222-4333-8444-555555555555"

APP = {
    "name": "app",
    "meta": "creation-qemu=9.2.0,ctime=1700000000",
    "smbios1": f"uuid={UUID}",
    "vmgenid": GENERATION,
    "digest": "d1",
}
OLD = {"name": "old", "memory": "512", "digest": "d1"}


def sameness(before: dict[str, str], now: dict[str, str], kind: str = "qemu") -> Sameness:
    return compare(identity_of(before, "pve1", kind), identity_of(now, "pve2", kind))


@pytest.mark.parametrize(
    ("what", "now", "expected"),
    [
        ("nothing", APP, Sameness.SAME),
        ("the config was changed", {**APP, "cores": "8", "digest": "d2"}, Sameness.SAME),
        ("it was renamed", {**APP, "name": "web", "digest": "d2"}, Sameness.SAME),
        ("rolled back, or another clone with its UUID", {**APP, "vmgenid": NEXT_GENERATION}, Sameness.UNKNOWN),
        ("its vmgenid was switched off", {**APP, "vmgenid": "0"}, Sameness.UNKNOWN),
        ("its UUID was changed", {**APP, "smbios1": f"uuid={OTHER_UUID}"}, Sameness.SAME),
        ("letters became large", {**APP, "vmgenid": GENERATION.upper()}, Sameness.SAME),
        (
            "another VM was created",
            {**APP, "meta": "ctime=1700000001", "smbios1": f"uuid={OTHER_UUID}", "vmgenid": NEXT_GENERATION},
            Sameness.OTHER,
        ),
        ("an owner has copied all but the time", {**APP, "meta": "ctime=1700000001"}, Sameness.OTHER),
        ("the other one is older than meta", {**APP, "meta": ""}, Sameness.OTHER),
        (
            "another clone of the same template",
            {**APP, "smbios1": f"uuid={OTHER_UUID}", "vmgenid": NEXT_GENERATION},
            Sameness.OTHER,
        ),
        (
            "a copy of its backup, with another name",
            {**APP, "name": "copy", "vmgenid": NEXT_GENERATION},
            Sameness.OTHER,
        ),
        ("a guest without any of it", OLD, Sameness.OTHER),
    ],
)
def test_a_difference_between_two_configs__means_another_guest_or_not(
    what: str, now: dict[str, str], expected: Sameness
) -> None:
    assert sameness(APP, now) is expected


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (OLD, Sameness.SAME),
        ({**OLD, "digest": "d2"}, Sameness.UNKNOWN),
        ({**OLD, "name": "payroll"}, Sameness.OTHER),
        (APP, Sameness.OTHER),
    ],
)
def test_guests_without_marks__are_compared_by_name_and_digest(now: dict[str, str], expected: Sameness) -> None:
    assert sameness(OLD, now) is expected


def test_guests_without_marks_and_digest__are_not_known_to_be_the_same() -> None:
    assert sameness({"name": "old"}, {"name": "old"}) is Sameness.UNKNOWN


def test_a_vmgenid_alone_that_differs__means_another_guest() -> None:
    before, now = {"name": "a", "vmgenid": GENERATION}, {"name": "a", "vmgenid": NEXT_GENERATION}

    assert sameness(before, now) is Sameness.OTHER


def test_a_container__is_never_a_vm() -> None:
    container = identity_of({"hostname": "app", "digest": "d1"}, "pve1", "lxc")

    assert container == Identity("app", "pve1", "lxc", digest="d1")
    assert compare(container, container) is Sameness.SAME
    assert compare(container, identity_of({"name": "app", "digest": "d1"}, "pve1")) is Sameness.OTHER


@pytest.mark.parametrize("identity", [identity_of(APP, "pve1"), identity_of(OLD, "pve1"), Identity("x", "pve1")])
def test_an_identity_that_was_kept_as_json__is_the_same(identity: Identity) -> None:
    assert from_json(json.loads(json.dumps(as_json(identity)))) == identity


@pytest.mark.parametrize(
    "data",
    [None, [], "app", {}, {"node": "pve1"}, {"node": "pve1", "kind": "qemu", "ctime": "1"}, {"node": 1, "kind": "qemu"},
     {"node": "pve1", "kind": "qemu", "ctime": True}, {"node": "pve1", "kind": "qemu", "vmid": 100}],
)  # fmt: skip
def test_other_json__is_no_identity(data: object) -> None:
    with pytest.raises(ValueError, match="expected an identity"):
        from_json(data)


class Cluster:
    """Answers the config of VM 100 on pve1."""

    def __init__(self, config: dict[str, str]) -> None:
        self.config = config

    def get(self, path: str, **_params: object) -> dict[str, str]:
        if path != "/nodes/pve1/qemu/100/config":
            raise ApiError("Configuration file 'nodes/pve2/qemu-server/100.conf' does not exist")
        return self.config

    def server_time(self) -> None:
        return None


def test_the_proof__returns_the_config_with_its_digest() -> None:
    assert prove(Cluster(APP), "pve1", 100, identity_of(APP, "pve1")) == APP


def test_the_error__names_both_guests() -> None:
    payroll = {"name": "payroll", "meta": "ctime=1700000001"}

    with pytest.raises(NotTheSameGuest) as caught:
        prove(Cluster(payroll), "pve1", 100, identity_of(APP, "pve1"))

    for part in ("100", 'VM "app" on pve1', 'VM "payroll" on pve1'):
        assert part in caught.value.message
    assert caught.value.details["found"] == {"name": "payroll", "node": "pve1", "kind": "qemu", "ctime": 1700000001}


def test_a_guest_that_is_elsewhere__is_refused_with_the_words_of_proxmox() -> None:
    with pytest.raises(ApiError, match="does not exist"):
        prove(Cluster(APP), "pve2", 100, identity_of(APP, "pve1"))
