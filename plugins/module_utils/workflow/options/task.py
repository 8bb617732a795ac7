# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a task about VMs asks for, checked as far as that is possible without a cluster.

An entry of C(vms) with a count stands for several VMs with numbered names. A task also says what becomes of the VMs of
formerly larger counts.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...engine.profiles import Profile
from ...engine.texts import first, join_words
from ...errors import InvalidRequest
from ...model import Guest, Snapshot
from ...proxmox.options.request import vm_request
from ...proxmox.options.values import check_range
from ..existing.matching import is_silent, silent_text
from .entries import Entry, Guard, build_entries, pools_of
from .plugin_config import check_entries, profiles_in_use, profiles_of

if t.TYPE_CHECKING:
    from .address_pools import Pools


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
    pools: Pools

    @classmethod
    def of(cls, params: Mapping[str, t.Any], per_vm: Iterable[str], now: float) -> Task:
        """Return the task. per_vm names the options of one VM. Raises InvalidRequest and InvalidPluginConfig."""
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
        attributes: Mapping[str, Mapping[str, t.Any]] = {}
        if params.get("device_attributes"):
            from .device_options import device_attributes

            attributes = device_attributes(params["device_attributes"])
        pools = pools_of(params) if params.get("address_pools") else {}
        return cls(entries, series, in_use, default, attributes, pools)

    def on_each_node(self, read: Callable[[], Snapshot]) -> tuple[Task, list[str]]:
        """Return the task with one entry for each copy of a template per node, and warnings. read returns the cluster;
        without such templates, it is not called.
        """
        if not any(entry.request.per_node and entry.request.node is None for entry in self.entries):
            return self, []
        from .per_node import on_each_node

        entries, cautions = on_each_node(self.entries, read())
        return replace(self, entries=entries), cautions

    def surplus(self, read: Callable[[], Iterable[Guest]]) -> tuple[list[Entry], list[str]]:
        """Return the entries that remove VMs of formerly larger counts, and warnings. Without counts, read is not
        called.
        """
        return surplus_entries(self.series, self.entries, read()) if self.series else ([], [])


# --- entries with a count ---

KEEP, ABSENT = "keep", "absent"
MOST = 1000
"""The largest count."""

MOST_VMS = 5000
"""The most VMs of a task: its result has about 3 KB for a VM that does not fit, and Ansible copies it several times."""

_NUMBER = re.compile(r"\{n(?::0([1-9]))?\}")
_TOLD = 10


COUNT_OPTIONS: t.Final[dict[str, dict[str, t.Any]]] = {
    "count": {"type": "int"},
    "count_start": {"type": "int"},
    "surplus": {"type": "str", "choices": [KEEP, ABSENT]},
}
"""The options that an entry of C(vms) has in addition to those of a VM."""


@dataclass(frozen=True, slots=True)
class Series:
    """VMs with numbered names, from one entry.

    Attributes:
        pattern: their name, with C({n}) or C({n:02}) for the number.
        surplus: what to do with VMs of other numbers: C(keep) or C(absent).
        tags, pool: those that the entry sets; VMs without them do not belong to it.
        guard: the tags and pool that its VMs must have to be removed.
    """

    pattern: str
    surplus: str
    tags: frozenset[str]
    pool: str | None
    guard: Guard

    def name(self, number: int) -> str:
        return _NUMBER.sub(lambda found: f"{number:0{found[1] or 1}}", self.pattern)

    def numbers(self, name: str) -> bool:
        """Whether a name is one of this series, whatever its number."""
        number = self._number(name)
        return number is not None and self.name(number) == name

    def _number(self, name: str, between: str = "") -> int | None:
        """Return the number in a name like those of the series; between is what may be before and after it besides."""
        before, after = _NUMBER.split(self.pattern)[::2]
        if between:
            before, after = before.rstrip("-."), after.lstrip("-.")
        found = re.fullmatch(rf"{re.escape(before)}{between}(\d{{1,18}}){between}{re.escape(after)}", name, re.ASCII)
        return None if found is None else int(found[1])

    def owns(self, guest: Guest) -> bool:
        """Whether a guest is a VM of this series, whatever its number."""
        return self.numbers(guest.name or "") and self._has(guest)

    def had(self, guest: Guest, begun: bool) -> bool:
        """Whether a guest was probably a VM of this series when its names had numbers of another width or another
        separator. Once the series has begun to have VMs, another separator counts only where tags or a pool tell whose
        VMs are whose.
        """
        between = "[-.]?" if self.tags or self.pool or not begun else ""
        return self._number(guest.name or "", between) is not None and not self.owns(guest) and self._has(guest)

    def _has(self, guest: Guest) -> bool:
        return (
            guest.kind == "qemu" and not guest.template and self.tags <= guest.tags and self.pool in (None, guest.pool)
        )


class Expanded(t.NamedTuple):
    """The entries of a task, one per VM; for each the position of the one that the user wrote; those with a count."""

    vms: list[dict[str, t.Any]]
    origins: list[int]
    series: list[Series]


def expand(vms: Sequence[Mapping[str, t.Any]], defaults: Mapping[str, t.Any], option: str = "vms") -> Expanded:
    """Return the entries with each that has a count replaced by one per VM. Raises InvalidRequest.

    defaults are the options at the top of the task; option is what messages call the list.
    """
    expanded = Expanded([], [], [])
    for position, body in enumerate(vms):
        own = {key: value for key, value in body.items() if key not in COUNT_OPTIONS}
        bodies = [own]
        if body.get("count") is not None:
            series = _series(f"{option}[{position}].", body, {**defaults, **_given_options(body)})
            start = 1 if body.get("count_start") is None else int(body["count_start"])
            bodies = [{**own, "name": series.name(start + offset)} for offset in range(body["count"])]
            expanded.series.append(series)
        else:
            if _NUMBER.search(str(body.get("name") or "")):
                name = body["name"]
                raise InvalidRequest(f"{option}[{position}].count: is missing; name {name!r} has a place for a number")
            for key in ("count_start", "surplus"):
                if body.get(key) is not None:
                    raise InvalidRequest(f"{option}[{position}].{key}: {body[key]!r} requires count, which is not set")
        expanded.vms.extend(bodies)
        if len(expanded.vms) > MOST_VMS:
            raise InvalidRequest(f"{option}: more than {MOST_VMS} VMs are not possible in one task; use several tasks")
        expanded.origins.extend([position] * len(bodies))
    return expanded


def surplus_entries(
    series: Collection[Series], entries: Sequence[Entry], guests: Iterable[Guest]
) -> tuple[list[Entry], list[str]]:
    """Return entries that remove the VMs of formerly larger counts, and warnings about those that are kept."""
    wanted = {entry.request.name for entry in entries}
    guests = sorted(guests, key=lambda guest: guest.vmid)
    left = [
        (owner, guest)
        for guest in guests
        if guest.name not in wanted and (owner := next((each for each in series if each.owns(guest)), None))
    ]
    doomed = [(owner, guest) for owner, guest in left if owner.surplus == ABSENT]
    removals = [
        Entry(position, vm_request({"name": guest.name, "vmid": guest.vmid}), ABSENT, guard=owner.guard)
        for position, (owner, guest) in enumerate(doomed, len(entries))
    ]
    warnings = []
    kept = [f"{guest.name} ({guest.vmid})" for owner, guest in left if owner.surplus == KEEP]
    if kept:
        warnings.append(f"beyond count, and kept: {', '.join(first(kept, _TOLD))}; remove them with surplus=absent")
    pools = {each.pool for each in series}
    silent = [guest for guest in guests if is_silent(guest) and (None in pools or guest.pool in {None, *pools})]
    if silent:
        warnings.append(f"{silent_text(silent)}: VMs beyond count may be among them, and are not removed")
    others = [g for g in guests if g.name not in wanted and not any(each.owns(g) for each in series)]
    begun = {each: any(each.owns(guest) for guest in guests) for each in series}
    former = [f"{g.name} ({g.vmid})" for g in others if any(each.had(g, has) for each, has in begun.items())]
    if former:
        patterns = join_words(sorted({each.pattern for each in series}))
        told = ", ".join(first(sorted(former), _TOLD))
        kept_ones = f"numbered in another way than {patterns}, and kept: {told}"
        warnings.append(f"{kept_ones}; rename or remove those of this task")
    return removals, warnings


def _series(where: str, body: Mapping[str, t.Any], merged: Mapping[str, t.Any]) -> Series:
    """Return the series of an entry with a count. Raises InvalidRequest."""
    count, start, name = body["count"], body.get("count_start"), body.get("name")
    check_range(f"{where}count", count, 0, MOST)
    if start is not None:
        check_range(f"{where}count_start", start, 0)
    if body.get("vmid") is not None:
        raise InvalidRequest(f"{where}vmid: {body['vmid']} cannot be combined with count; use vmid_range")
    if len(_NUMBER.findall(name or "")) != 1:
        raise InvalidRequest(
            f"{where}name: {name!r} has no place for the number; with count, expected one {{n}}, for example web-{{n}} "
            "or web-{n:02}"
        )
    tags = vm_request({"name": "any", "tags": merged.get("tags")}).tags
    guard = Guard.of(merged)
    if body.get("surplus") == ABSENT and not (tags or merged.get("pool") or guard.tags or guard.pool):
        raise InvalidRequest(
            f"{where}surplus: 'absent' would remove every VM that has a name like {name!r}; set pool, tags, only_pool "
            "or only_tags, which tell the VMs of this task from others"
        )
    return Series(str(name), body.get("surplus") or KEEP, tags, merged.get("pool"), guard)


def _given_options(body: Mapping[str, t.Any]) -> dict[str, t.Any]:
    return {key: value for key, value in body.items() if value is not None}
