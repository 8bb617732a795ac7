# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger's tables, and the check that a database has those of this version.

Their names have a prefix, as the database may contain other tables too.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import LedgerIncompatible
from .database import Row

VERSION = 1

VERSION_TABLE = "qemu_scheduler_schema"

SELECT_VERSION = f"SELECT version FROM {VERSION_TABLE}"

CREATE = (
    f"CREATE TABLE {VERSION_TABLE} (version BIGINT NOT NULL)",
    f"INSERT INTO {VERSION_TABLE} (version) VALUES ({VERSION})",
    """
    CREATE TABLE qemu_scheduler_leases (
        cluster TEXT PRIMARY KEY,
        token BIGINT NOT NULL,
        holder TEXT,
        acquired DOUBLE PRECISION NOT NULL,
        expires DOUBLE PRECISION NOT NULL
    )
    """,
    """
    CREATE TABLE qemu_scheduler_queue (
        cluster TEXT NOT NULL,
        ticket TEXT NOT NULL,
        holder TEXT NOT NULL,
        since DOUBLE PRECISION NOT NULL,
        expires DOUBLE PRECISION NOT NULL,
        PRIMARY KEY (cluster, ticket)
    )
    """,
    """
    CREATE TABLE qemu_scheduler_reservations (
        cluster TEXT NOT NULL,
        vmid BIGINT NOT NULL,
        name TEXT NOT NULL,
        holder_id TEXT NOT NULL,
        holder TEXT NOT NULL,
        phase TEXT NOT NULL,
        created DOUBLE PRECISION NOT NULL,
        expires DOUBLE PRECISION NOT NULL,
        resources TEXT NOT NULL,
        PRIMARY KEY (cluster, vmid),
        UNIQUE (cluster, name)
    )
    """,
    """
    CREATE TABLE qemu_scheduler_endpoints (
        host TEXT NOT NULL,
        port BIGINT NOT NULL,
        cluster TEXT NOT NULL,
        node_names TEXT NOT NULL,
        PRIMARY KEY (host, port)
    )
    """,
)


def check_version(rows: Sequence[Row], location: str) -> None:
    """Raise LedgerIncompatible unless these rows of the version table are those of this version."""
    versions = [row[0] for row in rows]
    if versions == [VERSION]:
        return
    found = "no single version" if len(versions) != 1 else f"version {versions[0]}"
    age = ""
    if len(versions) == 1 and isinstance(versions[0], int):
        age = ", which is newer" if versions[0] > VERSION else ", which is older"
    raise LedgerIncompatible(
        f"The ledger of reservations {location} has a schema of {found}{age}; this collection supports "
        f"version {VERSION}.",
        location=location,
        expected=VERSION,
        found=versions,
    )
