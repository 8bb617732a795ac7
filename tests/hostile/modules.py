# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a module in this process as Ansible does: arguments in, the JSON that it prints out."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import signal
import traceback
import typing as t
from collections.abc import Iterator, Mapping
from unittest import mock

from ansible.module_utils import basic
from support.masking import as_shown

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils import entry_point
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api import transport
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.stopping import SIGNALS

MODULES = "ansible_collections.qemu_scheduler.proxmox.plugins.modules"
_OURS = "ansible_collections/qemu_scheduler/proxmox/plugins/module_utils/"
_PASSED = "entry_point.py"
"""Hands on to Ansible what it says when it refuses an argument."""


class Specified(BaseException):
    """Ends a module as soon as its argument spec is known."""


def spec_of(module: str) -> dict[str, t.Any]:
    """Return the argument spec of a module."""
    found: dict[str, t.Any] = {}

    class Capture(basic.AnsibleModule):
        def __init__(self, argument_spec: dict[str, t.Any], **_options: t.Any) -> None:
            found.update(argument_spec)
            raise Specified

    with contextlib.suppress(Specified):
        importlib.import_module(f"{MODULES}.{module}").main(Capture)
    return found


def run_module(module: str, arguments: Mapping[str, t.Any], *, check_mode: bool = True) -> dict[str, t.Any]:
    """Run a module and return its result; whatever else it raises is raised.

    An exception in which none of our code takes part is Ansible's refusal of an argument: then the result is a failure.
    """
    given = {**arguments, "_ansible_check_mode": check_mode, "_ansible_tmpdir": "/nonexistent"}
    output = io.StringIO()
    basic._ANSIBLE_ARGS = json.dumps({"ANSIBLE_MODULE_ARGS": given}).encode()
    basic._ANSIBLE_PROFILE = "legacy"
    secrets: set[str] = set()
    with _signals(), _no_pauses(), _kept(secrets), contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        try:
            importlib.import_module(f"{MODULES}.{module}").main()
        except Exception as error:
            files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
            if any(_OURS in file and not file.endswith(_PASSED) for file in files):
                raise
            return {"failed": True, "msg": f"refused by Ansible: {error!r}"}
    return as_shown(output.getvalue(), secrets)


def _kept(secrets: set[str]) -> contextlib.AbstractContextManager[t.Any]:
    """Keep the secrets that a module registers, which Ansible would hide in the results of other modules as well."""
    can_register = entry_point._register_secrets is not None
    return mock.patch.object(entry_point, "_register_secrets", secrets.update if can_register else None)


def _no_pauses() -> contextlib.AbstractContextManager[t.Any]:
    """Let requests that fail be repeated at once."""
    return mock.patch.object(transport, "READ_AGAIN_AFTER", [0.0] * len(transport.READ_AGAIN_AFTER))


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
