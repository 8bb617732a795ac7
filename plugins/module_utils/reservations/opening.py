# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Opens the ledger that the option C(reservations) names."""

from __future__ import annotations

import os
import time
from pathlib import Path
from urllib.parse import unquote

from ..errors import InvalidRequest, LedgerUnavailable
from ..secret_options import got, is_shown
from .database import Clock, Database
from .ledger import Ledger
from .records import Durations
from .sqlite import SQLiteDatabase, check_creatable

_POSTGRESQL_SCHEMES = ("postgresql://", "postgres://")


def open_ledger(where: str | None, *, clock: Clock | None = None, durations: Durations | None = None) -> Ledger:
    """Open the ledger at `where`, and create it if it does not exist.

    where is None or C(default) for a file in the user's state directory; an absolute path or C(sqlite:///path); a
    C(postgresql://) URL; or C(none) for a ledger in memory, which no other process shares and which ends with the
    returned object. clock returns seconds since the epoch; without it the ledger's own clock is used: that of the
    PostgreSQL server, or of this host.

    Raises InvalidRequest, LedgerUnavailable, LedgerIncompatible or MissingLibrary, none of which shows a password.
    """
    database: Database
    if where == "none":
        database = SQLiteDatabase(None, clock or time.time)
    elif where is not None and where.startswith(_POSTGRESQL_SCHEMES):
        from .postgresql import PostgreSQLDatabase

        database = PostgreSQLDatabase(where, clock)
    else:
        database = SQLiteDatabase(_path_of(where), clock or time.time)
    return Ledger(database, durations or Durations())


def folder_of(where: str | None) -> Path | None:
    """Return the folder for what runs on this host keep beside the ledger; None if they keep nothing."""
    if where == "none":
        return None
    in_file = where is None or not where.startswith(_POSTGRESQL_SCHEMES)
    return _path_of(where if in_file else None).parent / "usage"


def names_folder() -> Path | None:
    """Return the folder for names that the inventory plugin has read on this host; None if this user has no home."""
    try:
        return _path_of(None).parent / "names"
    except LedgerUnavailable:
        return None


def look_at_ledger(where: str | None) -> str:
    """Return the state of the ledger at `where` as a sentence, without creating it.

    Raises what open_ledger raises.
    """
    if where == "none":
        return "not shared with any other process (reservations is none)"
    if where is not None and where.startswith(_POSTGRESQL_SCHEMES):
        from .postgresql import PostgreSQLDatabase

        database = PostgreSQLDatabase(where, None, create=False)
        try:
            missing = "" if database.ask_if_tables_exist() else ", whose tables the first run creates"
            return f"{database.location}{missing}"
        finally:
            database.close()
    path = _path_of(where)
    if path.exists():
        open_ledger(where).close()
        return str(path)
    check_creatable(path)
    return f"{path}, which the first run creates"


def _path_of(where: str | None) -> Path:
    """Return the path of a ledger in a file. Raises InvalidRequest and LedgerUnavailable."""
    if where is None or where == "default":
        state = os.environ.get("XDG_STATE_HOME", "")
        # The XDG standard requires that a relative path is ignored.
        folder = Path(state) if os.path.isabs(state) else _expand(Path("~/.local/state"))
        return folder / "qemu_scheduler" / "reservations.db"
    # Some write three slashes before an absolute path and some four.
    is_url = where.startswith("sqlite:///")
    text = "/" + unquote(where.removeprefix("sqlite://")).lstrip("/") if is_url else where
    path = _expand(Path(text)) if text.startswith("~") else Path(text)
    if not path.is_absolute() or "\0" in text or not is_shown("reservations", where):
        # A relative path depends on the working directory, and processes with different ledgers share nothing.
        raise InvalidRequest(
            "reservations: expected default, none, an absolute path, sqlite:///path or "
            f"postgresql://user@host/database{got('reservations', where)}"
        )
    return path


def _expand(path: Path) -> Path:
    """Expand the home directory in a path. Raises LedgerUnavailable."""
    try:
        return path.expanduser()
    except RuntimeError as exc:
        raise LedgerUnavailable(
            f"The ledger of reservations {path} cannot be found: {exc}. Set `reservations` to an absolute path.",
            location=str(path),
        ) from exc
