# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plugins of one's own: from files and installed packages, with an error for whatever is wrong with them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.small_cluster import cluster, node, vm

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.builtin import builtin_registry
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.profiles import Registry, build_profiles
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.scheduling_cycle import Scheduler
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidPluginConfig
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.plugin_config import (
    load_entry_points,
    load_plugin_paths,
)

FRAMEWORK = "ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.framework"
GOOD = f'''
from __future__ import annotations

from dataclasses import dataclass

from {FRAMEWORK}.interface import FilterPlugin, Setting
from {FRAMEWORK}.status import Status, unschedulable


@dataclass
class Helper:
    """Dataclasses look their module up."""

    value: int = 0


class _Base(FilterPlugin):
    pass


class OddNodes(_Base):
    """Keeps nodes whose name ends in an odd digit."""

    name = "OddNodes"
    settings = {{"even": Setting("bool", False, "the other way round")}}

    def filter(self, state, request, node):
        odd = int(node.name[-1]) % 2 == 1
        return None if odd is not self.config["even"] else unschedulable("had the wrong digit")
'''


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("qemu_scheduler_plugin_")]:
        del sys.modules[name]


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def own(name: str, body: str = "    def filter(self, state, request, node):\n        return None\n") -> str:
    imports = f"from {FRAMEWORK}.interface import FilterPlugin, Plugin"
    return f"{imports}\n\n\nclass Own(FilterPlugin):\n    name = {name!r}\n\n{body}"


def refusal(*paths: str) -> str:
    with pytest.raises(InvalidPluginConfig) as caught:
        load_plugin_paths(builtin_registry(), paths)
    return caught.value.message


def nodes_allowed(registry: Registry, plugin_config: dict[str, object]) -> list[str]:
    state = cluster([node("pve1"), node("pve2"), node("pve3")])
    outcome = Scheduler(state, build_profiles(registry, plugin_config)).schedule(vm())
    return [verdict.node for verdict in outcome.verdicts() if verdict.status is None]


def test_plugin_from_a_file__runs_and_is_configured_like_the_built_in_ones(folder: Path) -> None:
    registry = builtin_registry()
    load_plugin_paths(registry, [write(folder / "odd.py", GOOD)])
    assert nodes_allowed(registry, {}) == ["pve1", "pve3"]
    assert nodes_allowed(registry, {"filters": {"OddNodes": {"config": {"even": True}}}}) == ["pve2"]
    assert nodes_allowed(registry, {"filters": {"OddNodes": {"enable": False}}}) == ["pve1", "pve2", "pve3"]


def test_directory__gives_its_files_but_not_hidden_or_deeper_ones(folder: Path) -> None:
    write(folder / "b.py", own("B"))
    write(folder / "a.py", own("A"))
    write(folder / "_helpers.py", "raise SystemExit")
    write(folder / "deeper" / "c.py", "raise SystemExit")
    write(folder / "notes.txt", "nothing")
    registry = Registry()
    load_plugin_paths(registry, [str(folder)])
    assert [plugin.name for plugin in registry.plugins.values()] == ["A", "B"]


def test_files_of_the_same_name__do_not_get_into_each_others_way(folder: Path) -> None:
    registry = Registry()
    load_plugin_paths(registry, [write(folder / "x" / "p.py", own("A")), write(folder / "y" / "p.py", own("B"))])
    assert [plugin.name for plugin in registry.plugins.values()] == ["A", "B"]
    assert len({plugin.__module__ for plugin in registry.plugins.values()}) == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import no_such_module_anywhere", "cannot be imported: ModuleNotFoundError: No module named"),
        ("def (", "cannot be imported: SyntaxError"),
        ("1 / 0", "cannot be imported: ZeroDivisionError"),
        ("raise SystemExit(3)", "cannot be imported: SystemExit: 3"),
        ("x = 1", "defines no plugin"),
        (own("Own", "    pass\n"), "lacks the method(s) filter"),
        (own(""), "has no name"),
        (own("NodeRegex"), "plugin name 'NodeRegex'"),
        (own("NodeRegex"), "is taken already (built in)"),
        (own("Own").replace("Own(FilterPlugin)", "Own(Plugin)"), "implements no extension point"),
        (
            own("Own", "    settings = {'limit': 3}\n\n    def filter(self, *args):\n        return None\n"),
            "settings.limit",
        ),
    ],
)
def test_what_is_wrong_with_a_file__is_told_with_its_name(folder: Path, text: str, told: str) -> None:
    path = write(folder / "broken.py", text)
    message = refusal(path)
    assert told in message
    assert path in message


def test_name_taken_by_another_file__names_both(folder: Path) -> None:
    first, second = write(folder / "one.py", own("Same")), write(folder / "two.py", own("Same"))
    told = f"plugin name 'Same' ({second}) is taken already ({first}): choose another one"
    assert refusal(first, second) == told


@pytest.mark.parametrize(
    ("path", "reason"),
    [("x" * 5000, "File name too long"), ("~nobody-of-this-name/x", "home directory")],
)
def test_path_that_cannot_be_one__is_told(path: str, reason: str) -> None:
    told = refusal(path)
    assert told.startswith(f"plugin_paths: '{path[:10]}")
    assert reason in told
    assert len(told) < 200


def test_path_that_does_not_exist__is_told() -> None:
    assert refusal("/nowhere/plugins") == "plugin_paths: '/nowhere/plugins' is neither a file nor a directory"


def test_file_that_is_not_python__is_told(folder: Path) -> None:
    assert "is not a Python file" in refusal(write(folder / "plugin.txt", GOOD))


def test_file_that_failed__is_not_partly_imported(folder: Path) -> None:
    refusal(write(folder / "broken.py", "1 / 0"))
    assert not [name for name in sys.modules if name.startswith("qemu_scheduler_plugin_")]


def test_plugin_whose_constructor_raises__is_told_when_the_profile_is_made(folder: Path) -> None:
    registry = builtin_registry()
    body = """
    def __init__(self, config):
        raise KeyError("limit")

    def filter(self, state, request, node):
        return None
"""
    load_plugin_paths(registry, [write(folder / "own.py", own("Own", body))])
    with pytest.raises(InvalidPluginConfig, match="Own: cannot be set up: KeyError: 'limit'"):
        build_profiles(registry)


# --- installed packages ---


def install(folder: Path, entry: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package as pip leaves it: its module, and the metadata that names the entry point."""
    write(folder / "site" / "own_rules.py", text)
    metadata = folder / "site" / "own_rules-1.0.dist-info"
    write(metadata / "METADATA", "Metadata-Version: 2.1\nName: own-rules\nVersion: 1.0\n")
    write(metadata / "entry_points.txt", f"[qemu_scheduler.plugins]\n{entry}\n")
    monkeypatch.syspath_prepend(str(folder / "site"))
    monkeypatch.delitem(sys.modules, "own_rules", raising=False)


@pytest.mark.parametrize("entry", ["rules = own_rules", "odd = own_rules:OddNodes"])
def test_installed_package__offers_a_class_or_a_module_of_them(
    folder: Path, entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(folder, entry, GOOD, monkeypatch)
    registry = builtin_registry()
    load_entry_points(registry)
    assert nodes_allowed(registry, {}) == ["pve1", "pve3"]


@pytest.mark.parametrize(
    ("entry", "text", "told"),
    [
        ("rules = own_rules", "1 / 0", "own_rules cannot be imported: ZeroDivisionError"),
        ("rules = own_rules:Missing", GOOD, "own_rules:Missing cannot be imported: AttributeError"),
        ("rules = own_rules", "x = 1", "own_rules is neither a plugin nor a module with plugins"),
        ("rules = own_rules:Helper", GOOD, "own_rules:Helper is neither a plugin nor a module with plugins"),
        ("rules = own_rules", own("NodeRegex"), "plugin name 'NodeRegex'"),
    ],
)
def test_what_is_wrong_with_a_package__is_told_with_its_name(
    folder: Path, entry: str, text: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(folder, entry, text, monkeypatch)
    with pytest.raises(InvalidPluginConfig) as caught:
        load_entry_points(builtin_registry())
    assert told in caught.value.message
    assert "package own-rules, entry point rules" in caught.value.message


def test_pipe_in_a_folder_of_plugins__is_left_out(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    load_plugin_paths(builtin_registry(), [str(tmp_path)])
