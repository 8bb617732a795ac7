# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which devices the mark of an unfinished VM says it has, as far as the claims of its request agree."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Callable, Mapping, Sequence

from ...engine.devices.constraints import Matcher, accepts
from ...engine.devices.finding import config_value
from ...engine.devices.hardware import OPTIONS
from ...errors import DriftNotApplicable
from ...model import Device, DeviceClaim, Request

_MAPPING = re.compile(r"(?:^|,)mapping=([A-Za-z][\w-]*)(?:,|$)")


def agreed_devices(
    hints: Mapping[str, t.Any],
    config: Mapping[str, t.Any],
    request: Request,
    label: str,
    read: Callable[[], Sequence[Device]],
) -> dict[str, str]:
    """Return the options that attach the devices of the request's claims, as they are already or as the hints say.

    read returns the devices of the VM's node; it is called only for claims without a driver or a mapping. Raises
    DriftNotApplicable if it is not known which device a claim has.
    """
    proposed = {
        key: str(value)
        for key, value in {**hints, **config}.items()
        if _driver_of(key) is not None and key not in request.options
    }
    judge = _Judge(read)
    found: dict[str, str] = {}
    for claim in request.devices:
        left = {key: value for key, value in proposed.items() if key not in found}
        devices = judge.devices_of(claim, left)
        if devices is None:
            raise DriftNotApplicable(
                f"{label} was begun and cannot be finished: which device claim {claim.name!r} has is not known: "
                "neither its config nor its notes name one that the claim allows. Remove the VM, and run again"
            )
        found |= devices
    return found


class _Judge:
    """Tells which of the proposed options are what the scheduler would set for a claim."""

    def __init__(self, read: Callable[[], Sequence[Device]]) -> None:
        self._read = read
        self._devices: Sequence[Device] | None = None
        self._matcher = Matcher()

    def devices_of(self, claim: DeviceClaim, proposed: Mapping[str, str]) -> dict[str, str] | None:
        """Return as many options as the claim, or one of its alternatives, wants; None if there are fewer."""
        for wanted in claim.one_of or (claim,):
            found = {
                key: value for key, given in proposed.items() if (value := self._value_of(claim, wanted, key, given))
            }
            if len(found) >= wanted.count:
                return dict(sorted(found.items(), key=lambda item: (len(item[0]), item[0]))[: wanted.count])
        return None

    def _value_of(self, claim: DeviceClaim, wanted: DeviceClaim, key: str, given: str) -> str | None:
        """Return the value of an option that the scheduler would set; None if that is not the given one."""
        named = _MAPPING.search(given)
        if named is None or not self._allows(claim, wanted, str(_driver_of(key)), named[1]):
            return None
        value = config_value(named[1], wanted.mdev, {**claim.options, **wanted.options})
        return value if set(value.split(",")) == set(given.split(",")) else None

    def _allows(self, claim: DeviceClaim, wanted: DeviceClaim, driver: str, mapping: str) -> bool:
        """Whether the claim allows a device of this driver and mapping. Reads the devices only if that depends on them.
        """
        if wanted.driver not in (None, driver) or wanted.mapping not in (None, mapping):
            return False
        if wanted.driver and wanted.mapping:
            return True
        if self._devices is None:
            self._devices = self._read()
        # A mapping of PCI devices and one of USB devices may have the same name.
        there = [each for each in self._devices if (each.driver, each.mapping) == (driver, mapping)]
        return any(wanted.mapping or accepts(wanted, claim.name, each, self._matcher) for each in there)


def _driver_of(key: str) -> str | None:
    """Return the driver whose devices an option attaches; None for another option."""
    for driver, (prefix, number) in OPTIONS.items():
        found = re.fullmatch(rf"{prefix}(\d{{1,2}})", key)
        if found is not None and int(found[1]) < number:
            return driver
    return None
