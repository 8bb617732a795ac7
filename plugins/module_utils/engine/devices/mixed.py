# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a decision about devices cannot promise, because Proxmox itself picks among the devices of a mapping."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...model import Device, DeviceAllocation, DeviceClaim, Request
from .constraints import Matcher, accepts, attributes_of


def mixed_mappings(
    request: Request, allocations: Iterable[DeviceAllocation], devices: Iterable[Device], matcher: Matcher
) -> list[str]:
    """Return a sentence for each claim that was given a device of a mapping that holds others on that node which do
    not meet the claim: the VM may get one of those when it starts. Empty when every device will do.
    """
    known = list(devices)
    claims = {claim.name: claim for claim in request.devices}
    sentences = {}
    for given in allocations:
        chosen = next(
            (d for d in known if (d.node, d.mapping, d.id) == (given.node, given.mapping, given.device)), None
        )
        if chosen is None:
            continue
        others = list(_unfit_devices(claims[given.claim], chosen, known, matcher))
        if others:
            sentences[given.claim, given.mapping] = (
                f"claim {given.claim!r}: mapping {given.mapping!r} holds devices on {given.node} that do not meet it "
                f"({', '.join(sorted(others))}); Proxmox VE picks one when the VM starts, so give each kind of device "
                f"a mapping of its own"
            )
    return list(sentences.values())


def _unfit_devices(claim: DeviceClaim, chosen: Device, devices: Iterable[Device], matcher: Matcher) -> Iterator[str]:
    """Yield the devices that Proxmox may pick instead of the chosen one and that the claim does not want."""
    wanted = next((each for each in claim.one_of or (claim,) if accepts(each, claim.name, chosen, matcher)), claim)
    mine = attributes_of(chosen)
    for device in devices:
        if (device.node, device.driver, device.mapping, device.mdev) != (
            chosen.node,
            chosen.driver,
            chosen.mapping,
            chosen.mdev,
        ):
            continue
        theirs = attributes_of(device)
        alike = all(str(theirs.get(name)) == str(mine.get(name)) for name in wanted.match_attributes)
        if not (alike and accepts(wanted, claim.name, device, matcher)):
            yield device.id
