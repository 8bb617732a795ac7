# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plugin config in a file: what cannot be read is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidPluginConfig
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.plugin_config import (
    read_plugin_config,
)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("none.yml", "cannot read 'none.yml': No such file or directory"),
        ("\0", r"cannot read '\\x00': (open: )?embedded null"),
        ("~no-such-user/a.yml", "cannot read '~no-such-user/a.yml': Could not determine home directory"),
        ("latin.yml", "cannot read 'latin.yml': it is not UTF-8"),
        ("broken.yml", "'broken.yml' is not YAML"),
        ("list.yml", "'list.yml' holds list, expected a mapping of sections"),
    ],
)
def test_file__that_is_no_plugin_config_is_named(
    path: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("latin.yml").write_bytes(b"filters: \xe9")
    Path("broken.yml").write_text("{", encoding="utf-8")
    Path("list.yml").write_text("[1]", encoding="utf-8")
    with pytest.raises(InvalidPluginConfig, match=f"plugin_config: {why}"):
        read_plugin_config(path)
