# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A filter that formats the result of connection_info as lines of plain text."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping

from ansible.errors import AnsibleFilterError

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.foreign_text import on_one_line
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.tables import table, width_for

HEADINGS = ("CHECK", "STATUS", "WHAT")


def connection_table(connection: Mapping[str, t.Any], width: int | None = None) -> list[str]:
    """Return a row per step, then the commands that grant what is missing, each on a line that can be copied.

    connection is the result of connection_info; width is the length of a line, by default that of the terminal.
    """
    if not isinstance(connection, Mapping) or not {"checks", "commands"} <= connection.keys():
        raise AnsibleFilterError(f"expected the result of connection_info, got {type(connection).__name__}")
    rows = [(check["name"], check["status"], check["message"]) for check in connection["checks"]]
    return [*table([HEADINGS, *rows], width_for(width)), *map(on_one_line, connection["commands"])]


class FilterModule:
    """The filter by its name."""

    def filters(self) -> dict[str, Callable[..., t.Any]]:
        return {"connection_table": connection_table}
