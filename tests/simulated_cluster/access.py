# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Users, tokens, roles and access control lists, resolved as Proxmox resolves them."""

from __future__ import annotations

import secrets
import uuid
from dataclasses import dataclass, field
from typing import Any

from .errors import forbidden
from .privileges import builtin_roles


@dataclass(frozen=True)
class Identity:
    """The sender of a request: a user, or one of a user's tokens."""

    user: str
    token: str | None = None

    @property
    def full(self) -> str:
        return f"{self.user}!{self.token}" if self.token else self.user

    @property
    def is_root(self) -> bool:
        """True for root's own login only: a token of root is never root."""
        return self.user == "root@pam" and self.token is None


@dataclass
class Token:
    secret: str
    privsep: bool = True
    expire: int = 0
    comment: str | None = None


@dataclass
class User:
    userid: str
    password: str | None = None
    enable: bool = True
    expire: int = 0
    comment: str | None = None
    email: str | None = None
    tokens: dict[str, Token] = field(default_factory=dict)


@dataclass
class AclEntry:
    path: str
    kind: str
    who: str
    role: str
    propagate: bool = True


class Access:
    """The user database. After a change, call ``changed()`` to discard privileges that were resolved before."""

    def __init__(self, version: str) -> None:
        self.roles: dict[str, frozenset[str]] = builtin_roles(version)
        self.builtin = frozenset(self.roles)
        self.users: dict[str, User] = {}
        self.acl: list[AclEntry] = []
        self.pools: dict[str, dict[str, Any]] = {}
        self._cache: dict[tuple[str, str], frozenset[str]] = {}
        self._pool_of: dict[str, str] | None = None

    @property
    def all_privileges(self) -> frozenset[str]:
        return self.roles["Administrator"]

    def changed(self) -> None:
        self._cache.clear()
        self._pool_of = None

    def add_token(self, userid: str, name: str, secret: str | None = None, **options: Any) -> Token:
        token = Token(secret or str(uuid.uuid4()), **options)
        self.users[userid].tokens[name] = token
        self.changed()
        return token

    def pool_of(self, vmid: int) -> str | None:
        """The pool that a guest is a member of."""
        return self._members().get(f"/vms/{vmid}")

    def _members(self) -> dict[str, str]:
        if self._pool_of is None:
            self._pool_of = {}
            for name, pool in self.pools.items():
                for vmid in pool["vms"]:
                    self._pool_of[f"/vms/{vmid}"] = name
                for storage in pool["storages"]:
                    self._pool_of[f"/storage/{storage}"] = name
        return self._pool_of

    def privileges(self, who: Identity, path: str) -> frozenset[str]:
        """What ``who`` may do at ``path``; a privilege-separated token never exceeds its user."""
        key = (who.full, path)
        if key not in self._cache:
            self._cache[key] = self._resolve(who, path)
        return self._cache[key]

    def effective(self, who: Identity, path: str) -> dict[str, int]:
        """The privileges at a path, each with whether it is inherited by the paths below."""
        below = self.privileges(who, f"{path.rstrip('/')}/-")
        return {privilege: int(privilege in below) for privilege in sorted(self.privileges(who, path))}

    def _resolve(self, who: Identity, path: str) -> frozenset[str]:
        user = self.users.get(who.user)
        if user is None:
            return frozenset()
        own = self.all_privileges if who.user == "root@pam" else self._of_roles("user", who.user, path)
        if who.token is None or not user.tokens[who.token].privsep:
            return own
        return own & self._of_roles("token", who.full, path)

    def _of_roles(self, kind: str, name: str, path: str) -> frozenset[str]:
        roles = self._roles(kind, name, path)
        pool = self._members().get(path)
        if pool is not None and "NoAccess" not in roles:
            from_pool = self._roles(kind, name, f"/pool/{pool}")
            roles = {"NoAccess"} if "NoAccess" in from_pool else roles | from_pool
        if "NoAccess" in roles:
            return frozenset()
        return frozenset().union(*(self.roles.get(role, frozenset()) for role in roles))

    def _roles(self, kind: str, name: str, path: str) -> set[str]:
        found: set[str] = set()
        for level in _levels(path):
            here = {
                entry.role
                for entry in self.acl
                if entry.path == level and entry.kind == kind and entry.who == name
                and (entry.propagate or level == path)
            }
            if here:
                found = here
        return found

    def allowed(self, who: Identity, path: str, *privileges: str, any_of: bool = False) -> bool:
        """True if ``who`` holds all (or any) of the privileges at ``path``."""
        if who.is_root:
            return True
        held = self.privileges(who, path)
        return not held.isdisjoint(privileges) if any_of else held.issuperset(privileges)

    def require(self, who: Identity, path: str, *privileges: str, any_of: bool = False) -> None:
        """403 in Proxmox's words unless allowed."""
        if any_of:
            if not self.allowed(who, path, *privileges, any_of=True):
                raise forbidden(f"{path}, {'|'.join(privileges)}")
            return
        for privilege in privileges:
            if not self.allowed(who, path, privilege):
                raise forbidden(f"{path}, {privilege}")

    def paths(self) -> list[str]:
        """Paths that ``/access/permissions`` reports: the fixed ones and those with an entry, parents included."""
        fixed = {"/", "/vms", "/sdn", "/access", "/nodes", "/access/groups", "/storage", "/pool"}
        for entry in self.acl:
            fixed.update(_levels(entry.path))
        return sorted(fixed)


class Tickets:
    """Login tickets; their lifetime is real time, whatever the time scale."""

    def __init__(self) -> None:
        self._issued: dict[str, tuple[str, str]] = {}

    def issue(self, user: str, stamp: int) -> tuple[str, str]:
        """A fresh ticket and its CSRF token."""
        ticket = f"PVE:{user}:{stamp:08X}::{secrets.token_urlsafe(48)}"
        csrf = f"{stamp:08X}:{secrets.token_urlsafe(32)}"
        self._issued[ticket] = (user, csrf)
        return ticket, csrf

    def find(self, ticket: str) -> tuple[str, str] | None:
        return self._issued.get(ticket)

    def revoke(self) -> None:
        self._issued.clear()


def _levels(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part]
    return ["/"] + ["/" + "/".join(parts[: i + 1]) for i in range(len(parts))]
