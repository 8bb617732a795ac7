# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of a VM that contradict each other, by the config that the VM has or gets: the defaults of Proxmox VE for a
new one, that of the template or backup for a clone or a restored one, its own for one that exists.
"""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

from ...errors import InvalidRequest
from .drives import SIZE_EXPECTED, Drive, is_cloudinit, is_drive, kind_of

Config = Mapping[str, t.Any]
"""Options by their API names, with the values of a config or of a request."""

_CLOUD_INIT = frozenset(
    {"cicustom", "cipassword", "citype", "ciupgrade", "ciuser", "nameserver", "searchdomain", "sshkeys"}
)
ADDRESSES = "ipconfig"
"""What the options with the addresses of cards begin with."""
_NUMBERS = ("memory", "balloon", "cores", "sockets", "vcpus")

DEFAULTS: Config = MappingProxyType({"bios": "seabios", "memory": 512, "cores": 1, "sockets": 1})


def config_with(config: Config, options: Config) -> dict[str, t.Any]:
    """Return the config with the options of a request, of which an empty text unsets one."""
    return {key: value for key, value in {**config, **options}.items() if value != ""}


def contradictions(config: Config, asked: Collection[str], defaults: Config = DEFAULTS) -> dict[str, str]:
    """Return why the requested options are impossible, by option. config is the whole that the VM will have, without
    what has its default.

    A contradiction between options that are not requested existed before.
    """
    rules = (
        [(option, reason) for option, reason in rule if option in asked] for rule in _rules({**defaults, **config})
    )
    return dict(rule[0] for rule in rules if rule)


def check_contradictions(options: Config, config: Config, made: str = "", defaults: Config = DEFAULTS) -> None:
    """Raise InvalidRequest if options are impossible for a new VM, or in one that is made from a config. made says
    from which, for the message.
    """
    for option, reason in sorted(contradictions(config_with(config, options), options.keys(), defaults).items()):
        raise InvalidRequest(f"{option}: {reason}{made}", option=option)


def check_new(options: Config) -> None:
    """Raise InvalidRequest for options that are impossible for a VM that is made from nothing."""
    check_contradictions(options, {})
    for slot, drive in options.items():
        if isinstance(drive, Drive) and drive.unsized:
            expected = f"{SIZE_EXPECTED}; only a clone has drives of its template"
            raise InvalidRequest(f"{slot}: is given without a size, expected {expected}", option=slot)


def unread_cloud_init(config: Config, requested: Collection[str]) -> dict[str, str]:
    """Return why the guest never gets some of the requested cloud-init data, by option.

    config is all that the VM has.
    """
    data = [key for key in sorted(requested) if config.get(key) and (key in _CLOUD_INIT or key.startswith(ADDRESSES))]
    if not any(is_drive(slot) and _holds_cloudinit(slot, value) for slot, value in config.items()):
        return dict.fromkeys(data, "the VM has no cloud-init drive; add one, for example ide2: STORAGE:cloudinit")
    cards = {key: f"net{key.removeprefix(ADDRESSES)}" for key in data if key.startswith(ADDRESSES)}
    return {key: f"the VM has no {card}" for key, card in cards.items() if card not in config}


def cloud_init_data(config: Config, changed: Collection[str]) -> list[str]:
    """Return which changed parameters are data on the VM's cloud-init drive; none if it has no such drive."""
    if not any(is_drive(slot) and _holds_cloudinit(slot, value) for slot, value in config.items()):
        return []
    return [key for key in sorted(changed) if key in _CLOUD_INIT or key.startswith(ADDRESSES)]


def _rules(config: Config) -> Iterator[Sequence[tuple[str, str]]]:
    """Yield each contradiction, as the options that it is between, the one to correct first, with what is wrong with
    each.
    """
    texts = {key: str(config.get(key)).removeprefix("current=") for key in _NUMBERS}
    # Memory may be no number in some configs.
    numbers = {key: int(text) for key, text in texts.items() if text.isascii() and text.isdecimal()}
    memory, balloon, cores, sockets, vcpus = map(numbers.get, _NUMBERS)
    if memory is not None and balloon is not None and balloon > memory:
        yield (
            ("balloon", f"{balloon} is not valid, expected at most memory ({memory})"),
            ("memory", f"{memory} is not valid, expected at least balloon ({balloon})"),
        )
    if cores is not None and sockets is not None and vcpus is not None and vcpus > cores * sockets:
        # Proxmox VE takes this, and cannot start the VM.
        yield (
            ("vcpus", f"{vcpus} is not valid, expected at most cores times sockets ({cores * sockets})"),
            ("cores", f"{cores} is not valid, expected at least vcpus ({vcpus}) divided by sockets ({sockets})"),
            ("sockets", f"{sockets} is not valid, expected at least vcpus ({vcpus}) divided by cores ({cores})"),
        )
    if "efidisk0" in config and config.get("bios", "ovmf") != "ovmf":
        yield (("efidisk0", f"requires bios=ovmf, and bios is {config['bios']}"),)
    slots = [slot for slot, value in sorted(config.items()) if is_drive(slot) and _holds_cloudinit(slot, value)]
    for slot in slots if len(slots) > 1 else ():
        others = ", ".join(other for other in slots if other != slot)
        yield ((slot, f"the cloud-init drive is at {others}, and Proxmox VE allows one only; request it there"),)


def _holds_cloudinit(slot: str, value: t.Any) -> bool:
    if isinstance(value, Drive):
        return value.cloudinit
    return is_cloudinit(kind_of(slot).read(str(value)).get("file", ""))
