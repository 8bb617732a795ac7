# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a handler is attached to a path of Proxmox's schema, and what it is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .access import Identity
from .errors import die, forbidden
from .faults import Effects
from .tasks import Task

if TYPE_CHECKING:
    from .cluster import Cluster

NOBODY = Identity("")


@dataclass
class Reply:
    """Data with further keys beside it (``total``)."""

    data: Any
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass
class Call:
    """One request after authentication, permission check and validation."""

    cluster: Cluster
    who: Identity
    method: str
    path: str
    values: dict[str, Any]
    worker: int
    effects: Effects

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self.values.get(name, default)

    @property
    def node(self) -> str:
        return str(self.values["node"])

    def require(self, path: str, *privileges: str, any_of: bool = False) -> None:
        self.cluster.access.require(self.who, path, *privileges, any_of=any_of)

    def allowed(self, path: str, *privileges: str, any_of: bool = False) -> bool:
        return self.cluster.access.allowed(self.who, path, *privileges, any_of=any_of)

    def require_pool(self, name: str) -> None:
        if name not in self.cluster.access.pools:
            raise forbidden(f"pool '{name}' does not exist")

    def task(self, kind: str, id: object, body: Callable[[Task], Awaitable[None]], node: str | None = None) -> str:
        """Start a worker for this call; the UPID."""
        if self.effects.no_worker:
            raise die("got no worker upid - start worker failed")
        return self.cluster.tasks.start(node or self.node, kind, id, self.who, body, self.effects.orders)


Handler = Callable[[Call], Any]
HANDLERS: dict[tuple[str, str], Handler] = {}


def route(method: str, *templates: str) -> Callable[[Handler], Handler]:
    """Register a handler (plain or async) for paths as the schema spells them."""

    def register(handler: Handler) -> Handler:
        for template in templates:
            HANDLERS[method, template] = handler
        return handler

    return register
