# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which ledger an option means, and that one which cannot be used is refused with the place and the reason."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from support.ledgers import CLUSTER, reservation

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import (
    CollectionError,
    InvalidRequest,
    LedgerIncompatible,
    LedgerUnavailable,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations import (
    Durations,
    Holder,
    open_ledger,
    sqlite,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations.sqlite import network_file_system
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.secret_options import hidden_texts, mask

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /home rw,relatime shared:2 - nfs4 server:/home rw,vers=4.2
31 30 8:2 / /home/local rw - xfs /dev/sdb1 rw
32 22 0:50 / /with\\040space rw - cifs //server/share rw
33 22 0:51 / /over rw - nfs server:/over rw
34 22 0:52 / /over rw - tmpfs tmpfs rw
"""


def refuse(where: str | None, kind: type[CollectionError], *texts: str) -> None:
    with pytest.raises(kind) as refused:
        open_ledger(where)
    for text in texts:
        assert text in refused.value.message


@contextmanager
def anyone_but_root() -> Iterator[None]:
    """Be somebody to whom something can be forbidden."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def fill(path: Path) -> None:
    with open_ledger(str(path)) as ledger, ledger.scheduling_cycle(CLUSTER, holder=Holder.new()) as cycle:
        cycle.reserve([reservation(vmid, tags=frozenset({"x" * 100})) for vmid in range(100, 200)])


@pytest.mark.parametrize("where", [None, "default"])
def test_default_ledger__is_a_private_file_in_the_users_state_directory(
    where: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "state/qemu_scheduler/reservations.db"
    with open_ledger(where) as ledger:
        ledger.remember_endpoint("pve1", 8006, CLUSTER, [])
        assert ledger.location == str(path)
        modes = {stat.S_IMODE(found.stat().st_mode) for found in path.parent.iterdir()}
    assert modes == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [found.name for found in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("state", [None, "", "relative"])
def test_state_directory__is_in_the_home_unless_an_absolute_one_is_set(
    state: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    if state is not None:
        monkeypatch.setenv("XDG_STATE_HOME", state)
    with open_ledger(None) as ledger:
        assert ledger.location == str(tmp_path / ".local/state/qemu_scheduler/reservations.db")


@pytest.mark.parametrize("form", ["{}", "sqlite://{}", "sqlite:///{}"])
def test_path__can_be_given_as_such_or_as_a_url(form: str, tmp_path: Path) -> None:
    path = tmp_path / "with space/ledger.db"
    with open_ledger(form.format(path).replace(" ", "%20" if "://" in form else " ")) as ledger:
        assert ledger.location == str(path)


@pytest.mark.parametrize("where", ["ledger.db", "", "Postgres", "mysql://user:secret@host/db", "sqlite://ledger.db"])
def test_what_is_neither_a_place_nor_an_absolute_path__is_refused(where: str) -> None:
    with pytest.raises(InvalidRequest, match="expected default, none, an absolute path") as refused:
        open_ledger(where)
    assert "secret" not in refused.value.message


def test_existing_ledger__is_opened_with_what_is_in_it(tmp_path: Path) -> None:
    fill(tmp_path / "ledger.db")
    with open_ledger(str(tmp_path / "ledger.db")) as ledger:
        ledger.remember_endpoint("pve1", 8006, CLUSTER, [])
    with open_ledger(str(tmp_path / "ledger.db")) as ledger:
        assert ledger.endpoint("pve1", 8006) == (CLUSTER, frozenset())


def test_none__shares_nothing() -> None:
    with open_ledger("none") as first, open_ledger("none") as second:
        first.remember_endpoint("pve1", 8006, CLUSTER, [])
        assert second.endpoint("pve1", 8006) is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "has no table qemu_scheduler_schema"),
        (b"no database at all, but long enough to be one" * 100, "not a database"),
    ],
)
def test_file_that_is_no_ledger__is_refused_and_left_alone(content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(content)
    refuse(str(path), LedgerIncompatible, str(path), reason)
    assert path.read_bytes() == content


@pytest.mark.parametrize("kept_bytes", [100, 4096, 8192, 20480])
def test_truncated_ledger__is_refused_and_left_alone(kept_bytes: int, tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    fill(path)
    os.truncate(path, kept_bytes)
    refuse(str(path), LedgerIncompatible, str(path), "damaged")
    assert path.stat().st_size == kept_bytes


def test_ledger_with_overwritten_pages__is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    fill(path)
    with path.open("r+b") as file:
        file.seek(4096 * 3)
        file.write(os.urandom(path.stat().st_size - 4096 * 3))
    refuse(str(path), LedgerIncompatible, str(path))


def test_database_of_another_program__is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE theirs (id INTEGER)")
    refuse(str(path), LedgerIncompatible, str(path), "is no ledger of reservations")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("UPDATE qemu_scheduler_schema SET version = 2", "version 2, which is newer"),
        ("UPDATE qemu_scheduler_schema SET version = 0", "version 0, which is older"),
        ("DELETE FROM qemu_scheduler_schema", "no single version"),
    ],
)
def test_ledger_of_another_version__is_refused(change: str, found: str, tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with open_ledger(str(path)) as ledger:
        with closing(sqlite3.connect(path)) as database:
            database.execute(change)
            database.commit()
        with pytest.raises(LedgerIncompatible, match=found):
            ledger.remember_endpoint("pve1", 8006, CLUSTER, [])
    refuse(str(path), LedgerIncompatible, str(path), found, "supports version 1")


def test_path_below_a_file_and_one_to_a_directory__are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refuse(str(tmp_path / "file/ledger.db"), LedgerUnavailable, str(tmp_path), "cannot be created")
    refuse(str(tmp_path), LedgerUnavailable, str(tmp_path), "unable to open database file")


def test_link_into_the_void__is_refused_and_not_filled(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").symlink_to(tmp_path / "gone.db")
    refuse(str(tmp_path / "ledger.db"), LedgerUnavailable, "unable to open database file")
    assert not (tmp_path / "gone.db").exists()


def test_directory_or_file_without_write_permission__is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent.owner() == tmp_path.owner() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o011)
    (tmp_path / "locked").mkdir()
    path = tmp_path / "ledger.db"
    open_ledger(str(path)).close()
    (tmp_path / "locked").chmod(0o555)
    path.chmod(0o444)

    with anyone_but_root():
        refuse(str(tmp_path / "locked/ledger.db"), LedgerUnavailable, "cannot be created: Permission denied")
        with pytest.raises(LedgerUnavailable, match=str(path)), open_ledger(str(path)) as ledger:
            ledger.remember_endpoint("pve1", 8006, CLUSTER, [])


@pytest.mark.parametrize(
    ("path", "file_system"),
    [
        ("/var/ledger.db", None),
        ("/home/me/ledger.db", "nfs4"),
        ("/home/local/ledger.db", None),
        ("/homes/ledger.db", None),
        ("/with space/ledger.db", "cifs"),
        ("/over/ledger.db", None),
    ],
)
def test_network_file_systems__are_told_by_the_mount_that_is_seen(path: str, file_system: str | None) -> None:
    assert network_file_system(Path(path), MOUNTS) == file_system


def test_ledger_on_a_network_file_system__is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations import sqlite

    (tmp_path / "mountinfo").write_text("30 22 0:40 / / rw - nfs4 server:/ rw\n")
    monkeypatch.setattr(sqlite, "_MOUNTS", tmp_path / "mountinfo")
    refuse(str(tmp_path / "ledger.db"), LedgerUnavailable, "network file system (nfs4)", "PostgreSQL")
    assert not (tmp_path / "ledger.db").exists()


@pytest.mark.parametrize(
    "where",
    [
        "postgresql://me:s3cr%2Ft@db/ledger",
        "PostgreSQL://me:s3cr%2Ft@db/ledger",
        "postgres+psycopg://me:s3cr%2Ft@db/ledger",
        "mysql://me:s3cr%2Ft@db/ledger",
        "postgresql:/me:s3cr%2Ft@db/ledger",
        "postgresql//me:s3cr%2Ft@db/ledger",
        "me:s3cr%2Ft@db/ledger",
        "postgresql://me:s3cr%2Ft@db/ledger?options=a@b",
        "postgresql://me@db/ledger?password=s3cr%2Ft",
        "postgresql://db/ledger?sslpassword=s3cr%2Ft&user=me",
        "host=db user=me password=s3cr%2Ft",
        "host=db user=me password = 's3cr%2Ft' dbname=ledger",
        "postgresql://me:s3cr%2Ft",
        "postgresql://me:s3cr%2Ft/ledger",
        "postgresql://me%3As3cr%2Ft%40db/ledger",
        "postgresql://db/ledger?passw%6frd=s3cr%2Ft",
        "postgresql://db/ledger?sslmode=s3cr%2Ft",
        "postgresql://db/ledger?s3cr%2Ft",
        "postgresql://s3cr%2Ft@db/ledger",
        "postgresql://[s3cr%2Ft]/ledger",
        "sqlite:///data/ledger.db?key=s3cr%2Ft",
        "sqlite:////me:s3cr%2Ft@db/ledger.db",
        "//me:s3cr%2Ft@db/ledger",
        "/data/ledger.db?mode=rw&key=s3cr%2Ft",
        "s3cr%2Ft",
    ],
)
def test_ledger__shows_no_secret_however_the_url_is_misspelt(where: str, tmp_path: Path) -> None:
    hidden = set(hidden_texts("reservations", where))
    assert any("s3cr%2Ft" in text for text in hidden)
    assert any("s3cr/t" in text for text in hidden)
    assert "s3cr" not in mask(where, hidden)
    with pytest.raises(CollectionError) as refused:
        open_ledger(where)
    assert "s3cr" not in mask(refused.value.message + str(refused.value.details), hidden)


@pytest.mark.parametrize("password", ["a/b", "a@b", "/ab", "a:b", "a?b", "a#b@c/d"])
def test_ledger__shows_no_password_with_special_characters(password: str) -> None:
    where = f"postgresql://me:{password}@db.invalid/ledger"
    assert any(password in text for text in hidden_texts("reservations", where))
    with pytest.raises(CollectionError) as refused:
        open_ledger(where)
    assert password not in refused.value.message


@pytest.mark.parametrize(
    "where",
    [
        "default", "none", "/data/a:b@c.db", "~/a:b@c.db", "sqlite:///a:b@c.db", "postgresql://me@db/ledger",
        "postgresql:///ledger?host=/run/postgresql&port=5433&sslmode=verify-full&sslrootcert=~/ca.pem",
        "postgresql://me@a:5432,b:5433,[2001:db8::1]/ledger?target_session_attrs=read-write&connect_timeout=3",
        "ledger.db", "data/ledger",
    ],
)  # fmt: skip
def test_ledger__shows_what_holds_no_secret(where: str) -> None:
    assert list(hidden_texts("reservations", where)) == []


def test_open_ledger__refuses_a_path_that_no_file_can_have(tmp_path: Path) -> None:
    refuse(f"{tmp_path}/a\0b", InvalidRequest, "expected default, none, an absolute path")


# --- an SQLite file that is removed, or written to by a process that is stopped ---


def test_a_removed_file__stops_whoever_has_it_open(tmp_path: Path) -> None:
    path, holder = tmp_path / "ledger.db", Holder.new()
    with open_ledger(str(path)) as ledger:
        with ledger.scheduling_cycle(CLUSTER, holder=holder) as cycle:
            cycle.reserve([reservation(100)])
        for file in tmp_path.iterdir():
            file.unlink()
        for made_anew in (False, True):
            if made_anew:
                fill(path)
            for step in (
                lambda: ledger.reservations(CLUSTER),
                lambda: ledger.mark_binding(CLUSTER, [100], holder),
                lambda: ledger.renew(CLUSTER, [100], holder),
                lambda: ledger.scheduling_cycle(CLUSTER, holder=holder).__enter__(),
            ):
                with pytest.raises(LedgerUnavailable, match="was removed or replaced while it was in use"):
                    step()
    with open_ledger(str(path)) as ledger:
        assert len(ledger.reservations(CLUSTER)) == 100


def test_a_removed_file__is_not_made_anew_beside_the_remains_of_the_old(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with open_ledger(str(path)):
        path.unlink()
        refuse(str(path), LedgerUnavailable, "was removed, but ledger.db-wal and ledger.db-shm beside it were not")
        assert not path.exists()
    for file in tmp_path.iterdir():
        file.unlink()
    fill(path)


def test_a_busy_file__is_waited_for_as_long_as_a_lease_lasts() -> None:
    assert Durations().lease == sqlite._BUSY_TIMEOUT_SECONDS
