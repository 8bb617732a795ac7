# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Authentication by login tickets with their CSRF token, and by API tokens."""

from __future__ import annotations

import urllib.parse
from typing import Any

from aiohttp import web

from .access import Identity
from .cluster import Cluster
from .errors import PlainError
from .routing import NOBODY


def _refuse(reason: str) -> PlainError:
    return PlainError(401, reason, delay="unauthorized_seconds")


async def authenticate(cluster: Cluster, request: web.Request, info: dict[str, Any] | None, path: str) -> Identity:
    """The identity behind a request; a slow, empty 401 where Proxmox gives one."""
    if path == "/access/ticket" or (info and (info.get("permissions") or {}).get("user") == "world"):
        return NOBODY
    header = request.headers.get("Authorization", "")
    if header.startswith("PVEAPIToken="):
        return _token(cluster, header.removeprefix("PVEAPIToken="))
    ticket = request.cookies.get("PVEAuthCookie")
    if not ticket:
        raise _refuse("No ticket")
    known = cluster.tickets.find(ticket) or cluster.tickets.find(urllib.parse.unquote(ticket))
    if known is None or not active(cluster, known[0]):
        raise _refuse("Authentication failed!")
    user, csrf = known
    if request.method != "GET" and request.headers.get("CSRFPreventionToken") != csrf:
        raise _refuse("Permission denied - invalid csrf token")
    return Identity(user)


def active(cluster: Cluster, userid: str) -> bool:
    """True for a user that exists, is enabled and has not expired."""
    user = cluster.access.users.get(userid)
    return user is not None and user.enable and not (user.expire and user.expire <= cluster.clock.now())


def _token(cluster: Cluster, text: str) -> Identity:
    full, _, secret = text.partition("=")
    userid, _, name = full.partition("!")
    user = cluster.access.users.get(userid)
    token = user.tokens.get(name) if user else None
    if token is None or token.secret != secret or not active(cluster, userid):
        raise _refuse("Authentication failed!")
    if token.expire and token.expire <= cluster.clock.now():
        raise _refuse("Authentication failed!")
    return Identity(userid, name)
