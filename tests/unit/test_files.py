# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that a task names."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import (
    InvalidPluginConfig,
    InvalidRequest,
    InvalidSnapshot,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.files import (
    read_text,
    recall_json,
    write_json,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.recorded import RecordedReader
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.documents import read_document
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.plugin_config import (
    read_plugin_config,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.progress import LineFile


def test_file__is_written_whole_for_its_owner(tmp_path: Path) -> None:
    write_json("dest", str(tmp_path / "plan.json"), {"a": 1})
    assert json.loads((tmp_path / "plan.json").read_text(encoding="utf-8")) == {"a": 1}
    assert (tmp_path / "plan.json").stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


@pytest.mark.parametrize("name", ["a" * 300, ".", "missing/plan.json"])
def test_file_that_cannot_be_written__leaves_nothing_behind(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequest, match="dest: cannot write"):
        write_json("dest", str(tmp_path / name), {"a": 1})
    assert list(tmp_path.iterdir()) == []


def test_name_that_is_taken_meanwhile__leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(_old: str, _new: str) -> None:
        raise IsADirectoryError(21, "Is a directory")

    monkeypatch.setattr("os.replace", taken)
    with pytest.raises(InvalidRequest, match="Is a directory"):
        write_json("dest", str(tmp_path / "plan.json"), {"a": 1})
    assert list(tmp_path.iterdir()) == []


def test_full_disk__leaves_nothing_behind(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1][1]))
    try:
        with pytest.raises(InvalidRequest, match="dest: cannot write"):
            write_json("dest", str(tmp_path / "plan.json"), {"a": "x" * 100_000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before[1])
        signal.signal(signal.SIGXFSZ, before[0])
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def odd_files(tmp_path: Path) -> Iterator[list[str]]:
    """Files that keep a reader waiting, never end, or are none."""
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        yield [str(tmp_path / "pipe"), str(tmp_path / "socket"), "/dev/zero", "/dev/tty", str(tmp_path), "/dev/full"]


def test_odd_files__are_neither_read_nor_waited_for(odd_files: list[str]) -> None:
    for path in odd_files:
        with pytest.raises((OSError, ValueError)):
            read_text(path, 100)
        with pytest.raises(InvalidRequest, match="cannot read"):
            read_document(path, "apply")
        with pytest.raises(InvalidPluginConfig, match="cannot read"):
            read_plugin_config(path)
        with pytest.raises(InvalidSnapshot, match="cannot read"):
            RecordedReader.from_file(path)


def test_odd_files__are_not_written(odd_files: list[str], tmp_path: Path) -> None:
    for path in odd_files:
        with pytest.raises(InvalidRequest, match=r"progress_file: .* cannot be written"):
            LineFile(path)
        with pytest.raises(InvalidRequest, match="cannot write"):
            write_json("dest", path, {})
    assert sorted(each.name for each in tmp_path.iterdir()) == ["pipe", "socket"]


def test_what_an_earlier_run_has_kept__is_not_that_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kept.json"
    path.write_text('{"guests": {}}')
    assert recall_json(path, 100) == {"guests": {}}

    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)

    assert recall_json(path, 100) == {}
    assert read_text(str(path), 100) == '{"guests": {}}'


def test_progress__follows_no_link_that_somebody_else_has_put_there(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("kept", encoding="utf-8")
    for name, target in (("link", "theirs"), ("dangling", "new")):
        (tmp_path / name).symlink_to(tmp_path / target)
        with pytest.raises(InvalidRequest, match="progress_file"):
            LineFile(str(tmp_path / name))
    assert (tmp_path / "theirs").read_text(encoding="utf-8") == "kept"
    assert not (tmp_path / "new").exists()


def test_large_files__are_read_up_to_the_limit(tmp_path: Path) -> None:
    sparse = tmp_path / "sparse"
    with sparse.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(ValueError, match="larger than 1 MiB"):
        read_text(str(sparse), 2**20)
    with pytest.raises(InvalidPluginConfig, match="larger than 1 MiB"):
        read_plugin_config(str(sparse))
    with pytest.raises(InvalidRequest, match="larger than 64 MiB"):
        read_document(str(sparse), "apply")
    sparse.write_text("x" * 100, encoding="utf-8")
    assert read_text(str(sparse), 100) == "x" * 100
