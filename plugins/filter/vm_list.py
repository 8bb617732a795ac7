# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A filter that writes the result of vm_list_info as a file of variables."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Callable, Iterator, Mapping

import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.foreign_text import on_one_line

_HARMLESS = re.compile(r"[\w.,:;=/+@ -]*|<<|~", re.ASCII)
"""Texts that are certainly no template. With the tag C(!unsafe), Ansible would not read C(<<), and C(~) as null."""


class _Foreign(str):
    """A text that Ansible must not evaluate when it reads the file."""


class _Dumper(yaml.SafeDumper):
    """Writes lists as their parents, indented."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, indentless=False)


_Dumper.add_representer(_Foreign, lambda dumper, text: dumper.represent_scalar("!unsafe", str(text), style='"'))


def vms_yaml(listed: Mapping[str, t.Any], schema: str | None = None) -> str:
    """Return YAML with the variable C(qemu_vms), and comments about what is left out.

    Texts that could be templates have the tag C(!unsafe): owners of VMs choose them. schema is the address of the JSON
    Schema for editors.
    """
    if not isinstance(listed, Mapping) or not {"vms", "left_out"} <= listed.keys():
        raise AnsibleFilterError("expected the result of vm_list_info")
    body = yaml.dump(
        {"qemu_vms": _plain(listed["vms"])}, Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=120
    )
    return "\n".join([*_head(listed, schema), body])


def _head(listed: Mapping[str, t.Any], schema: str | None) -> Iterator[str]:
    """Yield the lines above the VMs: the schema for editors, and what was left out."""
    if schema:
        yield f"# yaml-language-server: $schema={on_one_line(schema)}"
    yield "---"
    for each in listed["left_out"]:
        vm = f"{each['name'] or 'VM'} ({each['vmid']})"
        what = f", {each['parameter']}" if each["parameter"] else ""
        yield on_one_line(f"# left out: {vm}{what}: {each['reason']}")


def _plain(value: t.Any) -> t.Any:
    """Return data of plain types, as the YAML library knows no others."""
    if isinstance(value, Mapping):
        return {_text(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, bool):
        return bool(value)
    if isinstance(value, int | float):
        return type(value + 0)(value)
    return _text(value)


def _text(value: t.Any) -> str:
    text = "".join(str(value))
    return text if _HARMLESS.fullmatch(text) else _Foreign(text)


class FilterModule:
    """The filter by its name."""

    def filters(self) -> dict[str, Callable[..., t.Any]]:
        return {"vms_yaml": vms_yaml}
