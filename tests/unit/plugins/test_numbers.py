# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers on which Ansible fails are found wherever they stand in the arguments of a task."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.modules.qemu_schedule import argument_spec
from ansible_collections.qemu_scheduler.proxmox.plugins.modules.vmid_pick import argument_spec as spec_of_pick
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.numbers import check_numbers

DIGITS = "9" * 5000
NUMBER = 10**5000


@pytest.mark.parametrize(
    ("args", "where"),
    [
        ({"cores": DIGITS}, "cores"),
        ({"cores": f" -{DIGITS} "}, "cores"),
        ({"cores": NUMBER}, "cores"),
        ({"cores": "1e7000"}, "cores"),
        ({"cores": float("inf")}, "cores"),
        ({"cores": "-Infinity"}, "cores"),
        ({"newid": DIGITS}, "newid"),
        ({"api_timeout": DIGITS}, "api_timeout"),
        ({"vms": [{"name": "a"}, {"name": "b", "vmid": DIGITS}]}, "vms[1].vmid"),
        ({"context": {"a": {"b": [1, NUMBER]}}}, "context.a.b[1]"),
    ],
)
def test_check__a_number_of_too_many_digits_is_named(args: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        check_numbers(args, argument_spec())
    assert raised.value.message.startswith(f"{where}: ")
    assert raised.value.message.endswith(" is not possible, expected a number of at most 100 digits")
    assert len(raised.value.message) < 120
    assert raised.value.details == {"option": where}


def test_check__items_of_a_list_as_a_text_are_numbers() -> None:
    with pytest.raises(InvalidRequest, match=r"exclude: 99999999999999999999\.\.\. is"):
        check_numbers({"exclude": f"100,{DIGITS}"}, spec_of_pick())


@pytest.mark.parametrize(
    "args",
    [
        {"cores": 4, "vmid": "100", "api_timeout": 1.5, "onboot": True, "name": None},
        # Ansible itself says what is wrong with these.
        {"cores": "lots", "vmid": "nan", "sockets": "1e99999999999999999999999", "no_such_option": DIGITS},
        {"description": DIGITS, "context": {"a": DIGITS}, "vms": "all of them"},
    ],
)
def test_check__other_values_are_none_of_its_business(args: dict[str, Any]) -> None:
    check_numbers(args, argument_spec())
