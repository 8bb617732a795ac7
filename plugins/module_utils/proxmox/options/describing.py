# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the config of a VM as options of a task that changes nothing in it: the reverse of the table of options.

Every option is tried as a task would read it and compare it with the config. So what is written is what is understood.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import unquote

from ...errors import InvalidRequest
from ...foreign_text import visible
from .conversions import Boolean, Number, Password, SshKeys, Words
from .drift import compare
from .drives import is_cloudinit, is_drive, is_medium, kind_of
from .request import vm_request
from .table import VMOption, option_of
from .values import boolean, format_gib, size_in_config

Value = t.Any
_BORN_WITH = frozenset({"smbios1"})
"""What Proxmox VE makes for each VM."""


class Described(t.NamedTuple):
    """Options of an entry of C(vms), and for each parameter of the config that is none of them the reason."""

    options: dict[str, Value]
    left_out: dict[str, str]


def describe(
    identity: Mapping[str, Value], config: Mapping[str, t.Any], refusal: Callable[[str, str], str | None]
) -> Described:
    """Return the options of a VM with this config. identity are those that are known without it, such as its name.

    refusal returns why the user may not set a parameter to a value, or None.
    """
    found = Described({}, {})
    for parameter in sorted(config, key=_natural_key):
        option = option_of(parameter)
        text = str(config[parameter])
        if option is None or parameter in _BORN_WITH or parameter == "template" or not text.strip():
            continue
        if isinstance(option.conversion, Password):
            found.left_out[parameter] = "it is secret"
        elif (reason := refusal(parameter, text)) is not None:
            found.left_out[parameter] = reason
        elif visible(text) != text:
            found.left_out[parameter] = "it has control characters"
        else:
            _add(found, identity, option, parameter, config)
    return found


def _natural_key(parameter: str) -> tuple[str, int, str]:
    """Return a key that sorts scsi10 behind scsi9."""
    family = parameter.rstrip("0123456789")
    return family, len(parameter), parameter


def _add(
    found: Described, identity: Mapping[str, Value], option: VMOption, parameter: str, config: Mapping[str, t.Any]
) -> None:
    """Add an option in the first form that changes nothing of the VM, or note why there is none."""
    reason = "no value of the option means the same"
    for value in _forms(option, parameter, str(config[parameter])):
        body = {parameter: value} if option.count else value
        merged = {**found.options.get(option.name, {}), **body} if option.count else body
        try:
            request = vm_request({**identity, **found.options, option.name: merged})
            difference = compare(request.options, config)
        except InvalidRequest as error:
            reason = error.message
            continue
        if not difference and not difference.unappliable:
            found.options[option.name] = merged
            return
        reason = f"a task would change {', '.join(difference.changes)}"
    found.left_out[parameter] = reason


def _forms(option: VMOption, parameter: str, text: str) -> Iterator[Value]:
    """Yield the ways to write a value of a config as an option, the most readable one first."""
    conversion = option.conversion
    if is_drive(parameter):
        yield from _drive_forms(parameter, text)
    elif isinstance(conversion, Boolean):
        yield bool(boolean(text))
    elif isinstance(conversion, Number) and text.isascii() and text.isdecimal():
        yield int(text)
    elif isinstance(conversion, Words):
        yield conversion.words(text)
    elif isinstance(conversion, SshKeys):
        yield [line.strip() for line in unquote(text).splitlines() if line.strip()]
    yield text


def _drive_forms(slot: str, text: str) -> Iterator[Value]:
    """Yield a drive by its size and storage, as for a new VM; else by its volume."""
    properties = kind_of(slot).read(text)
    volume, size = properties.pop("file", ""), size_in_config(properties.pop("size", ""))
    storage, separator, _name = volume.partition(":")
    if slot.startswith(("efidisk", "tpmstate")):
        own: dict[str, Value] = {key.replace("-", "_"): value for key, value in properties.items() if key != "format"}
        if "pre_enrolled_keys" in own:
            own["pre_enrolled_keys"] = bool(boolean(own["pre_enrolled_keys"]))
        if "version" in own:
            own["version"] = str(own["version"]).removeprefix("v")
        yield {"storage": storage, **own}
        return
    if separator and is_cloudinit(volume):
        yield f"{storage}:cloudinit"
    elif separator and size and not is_medium({**properties, "file": volume}):
        yield ",".join([f"{storage}:{format_gib(size)}", *(f"{key}={value}" for key, value in properties.items())])
    yield ",".join([volume, *(f"{key}={value}" for key, value in properties.items())])
