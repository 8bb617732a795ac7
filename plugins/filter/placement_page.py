# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The data for a page of your own about a result of qemu_schedule, worked out and escaped."""

from __future__ import annotations

import html
import typing as t
from collections.abc import Callable, Mapping, Sequence

from ansible.errors import AnsibleFilterError

from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.pages.placement import placement


def placement_page(result: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """What there is to show of a result of qemu_schedule. Every text in it is escaped for HTML."""
    if not isinstance(result, Mapping) or "vms" not in result:
        raise AnsibleFilterError("expected the result of qemu_schedule, with vms")
    return t.cast("dict[str, t.Any]", escaped(placement(result)))


def escaped(data: t.Any) -> t.Any:
    """The same data with every text escaped for HTML, keys and quotes too."""
    if isinstance(data, str):
        return html.escape(data)
    if isinstance(data, Mapping):
        return {escaped(key): escaped(value) for key, value in data.items()}
    if isinstance(data, Sequence):
        return [escaped(value) for value in data]
    return data


class FilterModule:
    """The filters by their names."""

    def filters(self) -> dict[str, Callable[..., t.Any]]:
        return {"placement_page": placement_page}
