# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What plugins work on during one scheduling cycle: the data that they store, the draft of the decision, and the
requests of the run.
"""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ...model import Decision, DeviceAllocation, Request, Template

T = t.TypeVar("T")


class CycleState(dict[t.Any, t.Any]):
    """Data of one request's scheduling cycle. A plugin stores it in PreFilter, under its own name, for its later
    extension points. Plugins do not use the entries of other plugins.
    """

    def once(self, key: t.Any, find: Callable[..., T], *args: t.Any) -> T:
        """The result of find for args. find is called once per key and cycle."""
        if key not in self:
            self[key] = find(*args)
        found: T = self[key]
        return found


@dataclass(slots=True)
class Draft:
    """A mutable model.Decision, with the same fields."""

    request: Request
    node: str
    score: float
    vmid: int = 0
    storages: dict[str, str] = field(default_factory=dict)
    storage_bytes: dict[tuple[str, str], int] = field(default_factory=dict)
    devices: list[DeviceAllocation] = field(default_factory=list)
    template: Template | None = None

    def decision(self) -> Decision:
        return Decision(
            request=self.request,
            node=self.node,
            vmid=self.vmid,
            storages=self.storages,
            storage_bytes=self.storage_bytes,
            devices=tuple(self.devices),
            template=self.template,
            score=self.score,
        )


class Requests(Collection[Request]):
    """Some requests of a run, as Permit plugins get them."""

    def __init__(self, by_number: Mapping[int, Request], groups: Mapping[str, int]) -> None:
        self._by_number = by_number
        self._groups = groups

    def in_group(self, name: str) -> int:
        """How many belong to the group."""
        return self._groups.get(name, 0)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._by_number.values())

    def __len__(self) -> int:
        return len(self._by_number)

    def __contains__(self, request: object) -> bool:
        return request in self._by_number.values()


class Numbered(dict[int, Request]):
    """Requests by their number in the run. Entries are added and removed one by one, and never replaced."""

    def __init__(self, items: Iterable[tuple[int, Request]] = ()) -> None:
        super().__init__()
        self._groups: Counter[str] = Counter()
        for number, request in items:
            self[number] = request

    def all(self) -> Requests:
        """The requests as they are at any later moment."""
        return Requests(self, self._groups)

    def __setitem__(self, number: int, request: Request) -> None:
        if number not in self and request.gang is not None:
            self._groups[request.gang.name] += 1
        super().__setitem__(number, request)

    def __delitem__(self, number: int) -> None:
        self.take(number)

    def take(self, number: int) -> Request | None:
        """Remove a request and return it, if it is there."""
        request = super().pop(number, None)
        if request is not None and request.gang is not None:
            self._groups[request.gang.name] -= 1
        return request
