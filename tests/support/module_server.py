# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs modules, each in its own process as Ansible does, but forked from one that has imported everything.

A request is a module's name, its arguments, its environment and the file that its output goes to.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import os
import pkgutil
import sys
import threading
import types
import typing as t
from multiprocessing.connection import Connection
from pathlib import Path

from ansible.module_utils import basic

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.plugins.builtin import builtin_registry
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.profiles import build_profiles

from .every_module import import_every_module
from .forking import serve

MODULES = "ansible_collections.qemu_scheduler.proxmox.plugins.modules"
LIBRARIES = (
    "proxmoxer.backends.https",
    "proxmoxer.core",
    "psycopg",
    "ansible.module_utils._internal._json._profiles._module_legacy_c2m",
    "ansible.module_utils._internal._json._profiles._module_legacy_m2c",
    "encodings.ascii",
    "encodings.idna",
)
"""What modules import besides; not every release has all of it."""

WITHOUT = "TEST_WITHOUT_PACKAGES"
"""An environment variable of a module: packages, separated by spaces, that it should find not installed."""

WALK = "TEST_WALK"
"""An environment variable of a module: the file to which it writes, as JSON, which functions of the collection it calls
(C(functions)), and the frames from its main() to the first filter (C(to_filter)).
"""

FILTERS = ("filter", "filter_all")
"""The methods by which a plugin filters nodes."""


def run(module: str, arguments: dict[str, t.Any], environment: dict[str, str], output: Path) -> None:
    """Run the module in this process."""
    os.environ.clear()
    os.environ.update(environment)
    with output.open("wb") as stream, output.with_suffix(".stderr").open("wb") as errors:
        os.dup2(stream.fileno(), 1)
        os.dup2(errors.fileno(), 2)
    for package in environment.get(WITHOUT, "").split():
        sys.modules[package] = t.cast("types.ModuleType", None)
    basic._ANSIBLE_ARGS = json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode()
    # From ansible-core 2.19 on, how values are written. Before it, an attribute that nobody reads.
    basic._ANSIBLE_PROFILE = "legacy"
    walk = environment.get(WALK)
    with following(Path(walk)) if walk else contextlib.nullcontext():
        importlib.import_module(f"{MODULES}.{module}").main()


@contextlib.contextmanager
def following(target: Path) -> t.Iterator[None]:
    """Write which functions of the collection were called, in whichever thread, and the way to the first filter."""
    seen: set[types.CodeType] = set()
    to_filter: list[str] = []

    def note_call(frame: types.FrameType, event: str, _argument: t.Any) -> None:
        code = frame.f_code
        # The bodies of modules and classes are called, too, when they are imported.
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED:
            seen.add(code)
            if not to_filter and code.co_name in FILTERS and "/engine/plugins/" in code.co_filename:
                to_filter.extend(_way_to(frame))

    threading.setprofile(note_call)
    sys.setprofile(note_call)
    try:
        yield
    finally:
        sys.setprofile(None)
        names = {_name(code) for code in seen if "/qemu_scheduler/" in code.co_filename and code.co_name[0] != "<"}
        walk = {"functions": sorted(names), "to_filter": to_filter}
        target.write_text(json.dumps(walk), encoding="utf-8")


def _way_to(frame: types.FrameType | None) -> list[str]:
    """The frames from the module's main() to this one, those of other libraries included."""
    way: list[str] = []
    while frame is not None and not (way and way[-1].endswith(":main")):
        way.append(_name(frame.f_code))
        frame = frame.f_back
    return way[::-1]


def _name(code: types.CodeType) -> str:
    file = code.co_filename.rpartition("/proxmox/plugins/")[2]
    return f"{file}:{getattr(code, 'co_qualname', code.co_name)}"


def load() -> None:
    """Import what modules use, also what they import only when they need it, and the libraries that are installed."""
    for module in pkgutil.iter_modules(importlib.import_module(MODULES).__path__, f"{MODULES}."):
        importlib.import_module(module.name)
    import_every_module()
    for library in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(library)
    # Which interfaces a plugin has is looked up once per process.
    build_profiles(builtin_registry())


if __name__ == "__main__":
    load()
    serve(Connection(int(sys.argv[1])), run)
