# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a task about VMs asks for, checked as far as that is possible without a cluster."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...engine.profiles import Profile
from ...model import Guest
from .counted import Series, expand, surplus_entries
from .devices import device_attributes
from .entries import Entry, build_entries
from .plugin_config import check_entries, profiles_in_use, profiles_of


@dataclass(frozen=True, slots=True)
class Task:
    """The options of a task, as data.

    Attributes:
        series: the entries that have a count.
    """

    entries: Sequence[Entry]
    series: Collection[Series]
    profiles: Mapping[str, Profile]
    default_profile: str
    device_attributes: Mapping[str, Mapping[str, t.Any]]

    @classmethod
    def of(cls, params: Mapping[str, t.Any], per_vm: Iterable[str], now: float) -> Task:
        """per_vm names the options of one VM. Raises InvalidRequest and InvalidPluginConfig."""
        series: Collection[Series] = ()
        if params.get("vms") is None:
            entries = build_entries(params, per_vm, now)
        else:
            expanded = expand(params["vms"], params)
            entries = build_entries({**params, "vms": expanded.vms}, per_vm, now, expanded.origins)
            series = expanded.series
        profiles, default = profiles_of(params)
        check_entries(entries, profiles, default)
        in_use = profiles_in_use(entries, profiles, default)
        return cls(entries, series, in_use, default, device_attributes(params.get("device_attributes")))

    def surplus(self, read: Callable[[], Iterable[Guest]]) -> tuple[list[Entry], list[str]]:
        """The entries that remove the VMs of formerly larger counts, and warnings. Calls read, which returns all
        guests, only if there are counts.
        """
        return surplus_entries(self.series, self.entries, read()) if self.series else ([], [])
