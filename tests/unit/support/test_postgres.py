# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The throw-away PostgreSQL server is real, empty, and gone afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from support.postgres import postgres_server
from support.waiting import until


def socket_folder(url: str) -> Path:
    return Path(parse_qs(urlsplit(url).query)["host"][0])


def test_it__is_an_empty_server_that_keeps_what_is_committed() -> None:
    with postgres_server() as url:
        with psycopg.connect(url) as connection:
            tables = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
            connection.execute("CREATE TABLE kept (id integer)")
        with psycopg.connect(url) as connection:
            kept = connection.execute("SELECT count(*) FROM kept").fetchone()
    assert (tables, kept) == ((0,), (0,))


def test_two__run_side_by_side_and_share_nothing() -> None:
    with postgres_server() as first, postgres_server() as second:
        with psycopg.connect(first) as connection:
            connection.execute("CREATE TABLE only_here (id integer)")
        with psycopg.connect(second) as connection, pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("SELECT * FROM only_here")


def test_nothing__is_left_even_after_an_error_and_with_a_client_still_connected() -> None:
    clients = []

    def fail() -> None:
        with postgres_server() as url:
            clients.append((url, psycopg.connect(url)))
            raise RuntimeError("the test failed")

    with pytest.raises(RuntimeError, match="the test failed"):
        fail()
    url, client = clients[0]
    assert not socket_folder(url).exists()
    with pytest.raises(psycopg.OperationalError):
        client.execute("SELECT 1")


USING_ONE = """
import time
from support.postgres import postgres_server

with postgres_server() as url:
    print(url, flush=True)
    time.sleep(1000)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing__is_left_when_the_process_that_uses_it_is_ended(number: signal.Signals) -> None:
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, "-c", USING_ONE], env=path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as using:
        assert using.stdout is not None
        folder = socket_folder(using.stdout.readline().strip())
        postmaster = int((folder / "data" / "postmaster.pid").read_text(encoding="utf-8").split()[0])
        using.send_signal(number)
    until(lambda: not folder.exists())
    # It may have ended without its new parent having waited for it.
    status = Path(f"/proc/{postmaster}/status")
    assert not status.exists() or "State:\tZ" in status.read_text(encoding="utf-8")
