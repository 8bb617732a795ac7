# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A filter that prepares the result of qemu_schedule for a custom HTML page."""

from __future__ import annotations

import html
import typing as t
from collections.abc import Callable, Mapping, Sequence

from ansible.errors import AnsibleFilterError

from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.pages.placement import placement


def placement_page(result: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the view of a result of qemu_schedule, with every text escaped for HTML."""
    if not isinstance(result, Mapping) or "vms" not in result:
        raise AnsibleFilterError("expected the result of qemu_schedule, with vms")
    return t.cast("dict[str, t.Any]", escape(placement(result)))


def escape(data: t.Any) -> t.Any:
    """Return the data with every text escaped for HTML, including keys and quotes."""
    if isinstance(data, str):
        return html.escape(data)
    if isinstance(data, Mapping):
        return {escape(key): escape(value) for key, value in data.items()}
    if isinstance(data, Sequence):
        return [escape(value) for value in data]
    return data


class FilterModule:
    """The filters by their names."""

    def filters(self) -> dict[str, Callable[..., t.Any]]:
        return {"placement_page": placement_page}
