# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs commands of Ansible, each in its own process, but forked from one that has imported Ansible and the collection.

A request is a command, its arguments, its environment, and the files for its output and its errors, which may be one.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import sys
from multiprocessing.connection import Connection
from pathlib import Path

from ansible import constants
from ansible.cli import inventory, playbook
from ansible.plugins import loader
from ansible.utils.collection_loader import AnsibleCollectionConfig

from .ansible_commands import READ_AGAIN
from .forking import serve

COMMANDS = {"ansible-playbook": playbook.PlaybookCLI, "ansible-inventory": inventory.InventoryCLI}
PACKAGES = tuple(
    f"ansible_collections.qemu_scheduler.proxmox.plugins.{name}"
    for name in ("action", "filter", "inventory", "module_utils", "plugin_utils")
)
MODULE_UTILS = "ansible_collections.qemu_scheduler.proxmox.plugins.module_utils"
LIBRARIES = (
    "ansible.module_utils._internal._json._profiles._module_legacy_c2m",
    "ansible.module_utils._internal._json._profiles._module_legacy_m2c",
    "proxmoxer.backends.https",
    "proxmoxer.core",
)
"""What tasks import besides; not every release has all of it."""
KINDS = ("action", "cache", "callback", "filter", "inventory", "lookup", "shell", "strategy", "test")
"""The kinds of plugins of which all are loaded. What takes most of the time is to read what each of them documents.
Ansible loads those for variables (C(vars)) itself, and only if nobody has done so.
"""


def run(command: str, arguments: list[str], environment: dict[str, str], out: Path, err: Path) -> None:
    """Run the command in this process. This does not return."""
    os.environ.clear()
    os.environ.update(environment)
    for number, path in ((1, out), (2, err)):
        with path.open("ab") as stream:
            os.dup2(stream.fileno(), number)
    definitions = constants.config.get_configuration_definitions()
    for setting, definition in definitions.items():
        names = {variable["name"] for variable in definition.get("env") or ()}
        # A new one each time: it is removed when the command ends.
        if setting == "DEFAULT_LOCAL_TMP" or not names.isdisjoint(READ_AGAIN):
            value = constants.config.get_config_value(setting, variables=vars(constants))
            constants.set_constant(setting, value)
    sys.argv = [command, *arguments]
    COMMANDS[command].cli_executor(sys.argv)


def load() -> None:
    """Import what commands import, as Ansible imports collections."""
    loader.init_plugin_loader()
    for package in PACKAGES:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)
    for library in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(library)
    for kind in KINDS:
        list(getattr(loader, f"{kind}_loader").all(class_only=True))
    loader.connection_loader.get("local", class_only=True)
    # Which interfaces a plugin has is looked up once per process.
    profiles = importlib.import_module(f"{MODULE_UTILS}.engine.profiles")
    profiles.build_profiles(importlib.import_module(f"{MODULE_UTILS}.engine.plugins.builtin").builtin_registry())
    # A command looks for collections itself, and finds these modules imported.
    AnsibleCollectionConfig._collection_finder = None


if __name__ == "__main__":
    load()
    serve(Connection(int(sys.argv[1])), run)
