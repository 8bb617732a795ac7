# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A ledger in PostgreSQL: no message shows a password, its clock counts, and lost connections are made anew."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import psycopg
import pytest
from support.ledgers import CLUSTER, reservation
from support.waiting import PATIENCE

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import (
    CollectionError,
    InvalidRequest,
    LedgerIncompatible,
    LedgerUnavailable,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations import (
    Durations,
    Holder,
    Ledger,
    open_ledger,
)

SECRET = "hunter2"


def change(url: str, sql: bytes) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql)


@contextmanager
def over_tcp(url: str) -> Iterator[str]:
    """Relay one TCP connection to the server, which listens only on a Unix socket, and yield the URL for it."""
    parameters = psycopg.conninfo.conninfo_to_dict(url)
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(socket.AF_UNIX) as server:
        server.connect(f"{parameters['host']}/.s.PGSQL.5432")

        def pump(source: socket.socket, target: socket.socket) -> None:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

        def relay() -> None:
            with listener.accept()[0] as client:
                back = threading.Thread(target=pump, args=(server, client))
                back.start()
                pump(client, server)
                back.join()

        thread = threading.Thread(target=relay)
        thread.start()
        yield f"postgresql://{parameters['user']}@127.0.0.1:{listener.getsockname()[1]}/{parameters['dbname']}"
        thread.join()


@contextmanager
def losing_an_answer(url: str, to: bytes) -> Iterator[str]:
    """Relay TCP connections to the server, one after the other, and yield the URL for them. The first one ends when the
    server has answered a request that contains to; the client does not get that answer.
    """
    parameters = psycopg.conninfo.conninfo_to_dict(url)
    ready = b"Z\0\0\0\5I"

    def relay(client: socket.socket, server: socket.socket, *, losing: bool) -> None:
        lost = b""
        while not lost.endswith(ready):
            for source in select.select([client, server], [], [])[0]:
                data = source.recv(65536)
                if not data:
                    return
                if source is client:
                    server.sendall(data)
                    lost = lost or to * (losing and to in data)
                elif lost:
                    lost += data
                else:
                    client.sendall(data)

    def relay_all(listener: socket.socket) -> None:
        for number in range(2):
            with listener.accept()[0] as client, socket.socket(socket.AF_UNIX) as server:
                server.connect(f"{parameters['host']}/.s.PGSQL.5432")
                relay(client, server, losing=number == 0)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=relay_all, args=(listener,))
        thread.start()
        place = f"{parameters['user']}@127.0.0.1:{listener.getsockname()[1]}/{parameters['dbname']}"
        yield f"postgresql://{place}?options={quote(str(parameters['options']), safe='')}"
        thread.join()


@pytest.fixture
def ledger(empty_postgres: str) -> Iterator[Ledger]:
    """A ledger with a long lease, that does not get the answer when it takes the lease for the first time."""
    with (
        losing_an_answer(empty_postgres, b"INTO qemu_scheduler_leases") as url,
        open_ledger(url, durations=Durations(lease=600)) as opened,
    ):
        yield opened


@pytest.fixture
def other(empty_postgres: str) -> Iterator[Ledger]:
    """The same ledger as another process has it."""
    with open_ledger(empty_postgres, durations=Durations(lease=600)) as opened:
        yield opened


def test_lease_of_which_the_answer_was_lost__is_ours_and_nobodys_else(ledger: Ledger, other: Ledger) -> None:
    with ledger.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=60) as cycle:
        for _number in range(2):
            with pytest.raises(LedgerUnavailable, match=r"has held it for .* 0 more were waiting"):
                other.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=0).__enter__()
        cycle.reserve([reservation(100)])
    with other.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=0) as cycle:
        assert [found.vmid for found in cycle.reservations()] == [100]


def test_who_gives_up__does_not_keep_a_lease_of_which_the_answer_was_lost(ledger: Ledger, other: Ledger) -> None:
    with pytest.raises(LedgerUnavailable, match="Waited 0 s"):
        ledger.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=0).__enter__()
    other.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=0).__enter__()


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        (f"postgresql://me:{SECRET}@127.0.0.1:1/awx", LedgerUnavailable),
        (f"postgres://127.0.0.1:1/awx?user=me&password={SECRET}", LedgerUnavailable),
        (f"postgresql://me:x@{SECRET}@127.0.0.1:1/awx", InvalidRequest),
        (f"postgresql://me:{SECRET}/x@127.0.0.1:1/awx", InvalidRequest),
        (f"postgresql://me:x/{SECRET}@127.0.0.1:1/awx", InvalidRequest),
        (f"postgresql://me:%zz{SECRET}@127.0.0.1:1/awx", InvalidRequest),
        (f"postgresql://127.0.0.1:1/awx?passwort={SECRET}", InvalidRequest),
    ],
)
def test_server_out_of__reach_is_named_and_the_password_is_not(url: str, kind: type[CollectionError]) -> None:
    with pytest.raises(kind) as refused:
        open_ledger(url)
    assert SECRET not in "".join(traceback.format_exception(refused.value)) + str(refused.value.details)
    if kind is LedgerUnavailable:
        assert "postgresql://127.0.0.1:1/awx" in refused.value.message
        assert "refused" in refused.value.message


def test_location__shows_no_password(empty_postgres: str) -> None:
    with open_ledger(f"{empty_postgres}&password={SECRET}") as ledger:
        assert ledger.location.startswith("postgresql://")
        assert SECRET not in ledger.location


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (b"UPDATE qemu_scheduler_schema SET version = 2", "version 2, which is newer"),
        (b"UPDATE qemu_scheduler_schema SET version = 0", "version 0, which is older"),
        (b"DELETE FROM qemu_scheduler_schema", "no single version"),
    ],
)
def test_tables_of_another_version__are_refused(empty_postgres: str, damage: bytes, message: str) -> None:
    with open_ledger(empty_postgres) as ledger:
        change(empty_postgres, damage)
        with pytest.raises(LedgerIncompatible, match=message):
            ledger.mark_binding(CLUSTER, [], Holder.new())
    with pytest.raises(LedgerIncompatible, match=message):
        open_ledger(empty_postgres)


def test_missing_table__is_reported_and_not_made_anew(empty_postgres: str) -> None:
    open_ledger(empty_postgres).close()
    change(empty_postgres, b"DROP TABLE qemu_scheduler_reservations")
    with open_ledger(empty_postgres) as ledger, pytest.raises(LedgerIncompatible, match="are not complete"):
        ledger.reservations(CLUSTER)


def test_connection__can_be_used_after_a_write_that_failed(empty_postgres: str) -> None:
    with open_ledger(empty_postgres) as ledger:
        change(empty_postgres, b"ALTER TABLE qemu_scheduler_leases DROP COLUMN acquired")
        with pytest.raises(LedgerIncompatible, match=r"are not complete: .*acquired"):
            ledger.scheduling_cycle(CLUSTER, holder=Holder.new()).__enter__()
        assert ledger.reservations(CLUSTER) == []


def test_database_in_which_we_may_not_make_tables__is_refused(empty_postgres: str) -> None:
    change(empty_postgres, b"DROP ROLE IF EXISTS guest; CREATE ROLE guest LOGIN")
    with pytest.raises(LedgerUnavailable, match="no schema has been selected to create in"):
        open_ledger(empty_postgres.replace("postgres@", "guest@"))


def test_connection_that_was_cut_between_two_steps__is_made_anew(empty_postgres: str) -> None:
    cut = b"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'qemu_scheduler'"
    with open_ledger(empty_postgres) as ledger:
        with ledger.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=0) as cycle:
            change(empty_postgres, cut)
            cycle.reservations()
        change(empty_postgres, cut)
        assert ledger.reservations(CLUSTER) == []


def test_server_that_vanishes_during_a_statement__is_given_up_by_the_kernel(empty_postgres: str) -> None:
    """Within seconds; by default it sends the statement again for a quarter of an hour."""
    with (
        over_tcp(empty_postgres) as url,
        open_ledger(url) as ledger,
        socket.socket(fileno=os.dup(ledger.database._connection.fileno())) as connection,
    ):
        assert 0 < connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) < 20_000


@pytest.mark.parametrize("where", ["url", "environment", "database"])
def test_another_encoding__does_not_change_what_is_read(
    where: str, empty_postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = empty_postgres
    if where == "url":
        url += f"{'&' if '?' in url else '?'}client_encoding=SQL_ASCII"
    elif where == "environment":
        monkeypatch.setenv("PGCLIENTENCODING", "SQL_ASCII")
    else:
        setting = "format('ALTER DATABASE %I SET client_encoding = %L', current_database(), 'SQL_ASCII')"
        change(url, f"DO $$ BEGIN EXECUTE {setting}; END $$".encode())
    # The first one makes the tables, the second one reads their version.
    for _number in range(2):
        with open_ledger(url) as ledger:
            assert list(ledger.reservations(CLUSTER)) == []


def test_servers_clock__counts(empty_postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_ledger(empty_postgres) as ledger, ledger.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=0):
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + 3600)
        with open_ledger(empty_postgres) as fast, pytest.raises(LedgerUnavailable, match=r"has held it for \d s"):
            fast.scheduling_cycle(CLUSTER, holder=Holder.new(), wait=0).__enter__()


def test_client_that_hangs_within_a_transaction__is_cut_off(empty_postgres: str) -> None:
    with open_ledger(empty_postgres) as hung, open_ledger(empty_postgres) as other:
        inside, over = threading.Event(), threading.Event()
        failures = []

        def hang() -> None:
            try:
                with hung.database.transaction(CLUSTER):
                    inside.set()
                    over.wait(PATIENCE)
            except LedgerUnavailable as exc:
                failures.append(exc)

        thread = threading.Thread(target=hang)
        thread.start()
        inside.wait(PATIENCE)
        with other.scheduling_cycle(CLUSTER, holder=Holder.new()):
            over.set()
        thread.join()
    assert len(failures) == 1


def test_missing_driver__names_package_and_interpreter() -> None:
    program = f"""
import sys
sys.path[:] = [path for path in {sys.path!r} if "site-packages" not in path]
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import MissingLibrary
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations import open_ledger
open_ledger("none").close()
try:
    open_ledger("postgresql://me:{SECRET}@host/db")
except MissingLibrary as exc:
    print(exc.message)
"""
    result = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, check=True)
    assert f"needs the Python package psycopg[binary] >= 3.1 for {sys.executable}" in result.stdout
    assert SECRET not in result.stdout
