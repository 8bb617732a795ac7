# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Opens the ledger that the option C(reservations) names."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from urllib.parse import unquote

from ..errors import InvalidRequest, LedgerUnavailable
from .database import Clock, Database
from .ledger import Ledger
from .records import Durations
from .sqlite import SQLiteDatabase

_POSTGRESQL_SCHEMES = ("postgresql://", "postgres://")
_PATHS = ("/", "~", "sqlite:///")
_SCHEME = re.compile(r"\A[\w+.-]*:/+")
_PASSWORD_PARAMETER = re.compile(r"password\s*=\s*(?:'(?P<quoted>[^']*)'|(?P<plain>[^&\s]*))", re.IGNORECASE)


def open_ledger(where: str | None, *, clock: Clock | None = None, durations: Durations | None = None) -> Ledger:
    """Open the ledger at `where`, and create it if it does not exist.

    where is None or C(default) for a file in the user's state directory; an absolute path or C(sqlite:///path); a
    C(postgresql://) URL; or C(none) for a ledger in memory, which no other process shares and which ends with the
    returned object. clock returns seconds since the epoch; without it the ledger's own clock is used: that of the
    PostgreSQL server, or of this host.

    Raises InvalidRequest, LedgerUnavailable, LedgerIncompatible or MissingLibrary, none of which shows a password.
    """
    return Ledger(_open_database(where, clock), durations or Durations())


def passwords_in(where: str | None) -> set[str]:
    """The passwords in the URL of a ledger, both as written and decoded.

    The URL may be misspelt: any text between a colon and a later C(@) may be a password.
    """
    if where is None or where.startswith(_PATHS):
        return set()
    written = {match.group("quoted") or match.group("plain") for match in _PASSWORD_PARAMETER.finditer(where)}
    for account in (_SCHEME.sub("", where), where if "://" not in where else ""):
        _user, _colon, rest = account.partition(":")
        written |= {rest[: match.start()] for match in re.finditer("@", rest)}
    return {text for password in written if password for text in (password, unquote(password))}


def _open_database(where: str | None, clock: Clock | None) -> Database:
    if where is None or where == "default":
        return SQLiteDatabase(_default_path(), clock or time.time)
    if where == "none":
        return SQLiteDatabase(None, clock or time.time)
    if where.startswith(_POSTGRESQL_SCHEMES):
        from .postgresql import PostgreSQLDatabase

        return PostgreSQLDatabase(where, clock)
    # Some write three slashes before an absolute path and some four.
    if where.startswith("sqlite:///"):
        where = "/" + unquote(where.removeprefix("sqlite://")).lstrip("/")
    path = _expanded(Path(where)) if where.startswith("~") else Path(where)
    if not path.is_absolute() or "\0" in where:
        # A relative path depends on the working directory, and processes with different ledgers share nothing.
        scheme, separator, _secret = where.replace("\0", "?").partition("://")
        shown = f"{scheme}{separator}..." if separator else scheme
        for password in sorted(passwords_in(where), key=len, reverse=True):
            shown = shown.replace(password, "...")
        raise InvalidRequest(
            f"reservations is '{shown}': expected default, none, an absolute path, sqlite:///path or "
            "postgresql://user@host/database."
        )
    return SQLiteDatabase(path, clock or time.time)


def _default_path() -> Path:
    state = os.environ.get("XDG_STATE_HOME", "")
    # The XDG standard requires that a relative path is ignored.
    folder = Path(state) if os.path.isabs(state) else _expanded(Path("~/.local/state"))
    return folder / "qemu_scheduler" / "reservations.db"


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as exc:
        raise LedgerUnavailable(
            f"The ledger of reservations {path} cannot be found: {exc}. Set `reservations` to an absolute path.",
            location=str(path),
        ) from exc
