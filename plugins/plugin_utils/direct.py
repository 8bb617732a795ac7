# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a module of this collection in Ansible's worker process, without an interpreter of its own.

Ansible packs a module with its module_utils into an archive and starts a new interpreter, which compiles them again.
That takes more CPU time than most tasks of this collection need. A worker process is a fork of ansible-playbook, which
has them imported already. In both cases the same module runs with the same arguments, and Ansible parses its output.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import io
import json
import os
import signal
import sys
import types
import typing as t
from collections.abc import Iterator, Mapping

from ansible import constants as C
from ansible.errors import AnsibleActionFail
from ansible.module_utils import basic
from ansible.plugins.action.normal import ActionModule as NormalAction
from ansible.utils.display import Display

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import Interrupted, InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.stopping import SIGNALS
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.numbers import check_numbers

LIBRARIES = ("requests", "proxmoxer.backends.https")
PLUGIN_TYPE, PLUGIN_NAME = "action", "qemu_scheduler.proxmox"
OPTIONS: Mapping[str, t.Any] = {
    "execution": {
        "description": ["Where the modules of this collection run."],
        "type": "str",
        "choices": ["auto", "direct", "module"],
        "default": "auto",
        "env": [{"name": "QEMU_SCHEDULER_EXECUTION"}],
        "ini": [{"section": "qemu_scheduler", "key": "execution"}],
        "vars": [{"name": "qemu_scheduler_execution"}],
    }
}
"""Option definitions in Ansible's format. They are registered here, as Ansible reads none from action plugins."""

C.config.initialize_plugin_configuration_definitions(PLUGIN_TYPE, PLUGIN_NAME, OPTIONS)

# Ansible loads action plugins before it forks its workers, so a library that is imported here is imported only once.
for _library in LIBRARIES:
    with contextlib.suppress(ImportError, SystemExit):
        importlib.import_module(_library)


class DirectAction(NormalAction):
    """The base of the action plugins: runs C(module) in this process if the task allows it, else as Ansible does.

    Attributes:
        module: the imported module, with C(argument_spec), and C(main), which takes the class to use as AnsibleModule.
        imports: what the module imports only if a task needs it, and most tasks do. Here, it is imported once, before
            Ansible forks its workers.
    """

    module: types.ModuleType
    imports: tuple[types.ModuleType, ...] = ()

    def _execute_module(
        self,
        module_name: str | None = None,
        module_args: dict[str, t.Any] | None = None,
        tmp: t.Any = None,
        task_vars: dict[str, t.Any] | None = None,
        **kwargs: t.Any,
    ) -> dict[str, t.Any]:
        task_vars = task_vars or {}
        name = module_name or self._task.action
        args = dict(module_args or self._task.args)
        try:
            check_numbers(args, self.module.argument_spec())
        except InvalidRequest as error:
            return {"failed": True, "msg": error.message, "error_code": error.code, "error_details": error.details}
        wanted = self._execution(task_vars)
        obstacle = "execution is set to module" if wanted == "module" else self._obstacle(task_vars)
        if obstacle is None:
            Display().vvv(f"{name}: running directly in the worker process")
            return self._execute_directly(name, args, task_vars)
        if wanted == "direct":
            raise AnsibleActionFail(
                f"execution is set to direct, but {name} cannot run in the worker process: {obstacle}"
            )
        Display().vvv(f"{name}: running as a module: {obstacle}")
        result = super()._execute_module(module_name, module_args, tmp, task_vars, **kwargs)
        return t.cast("dict[str, t.Any]", result)

    def _execution(self, task_vars: Mapping[str, t.Any]) -> str:
        """Return the option C(execution); a variable that sets it may be a template."""
        names = [entry["name"] for entry in OPTIONS["execution"]["vars"]]
        variables = {name: self._templar.template(task_vars[name]) for name in names if name in task_vars}
        value = C.config.get_config_value(
            "execution", plugin_type=PLUGIN_TYPE, plugin_name=PLUGIN_NAME, variables=variables
        )
        return str(value)

    def _obstacle(self, task_vars: Mapping[str, t.Any]) -> str | None:
        """Return why the task has to run as a module; None if it can run directly."""
        if self._connection.transport != "local":
            return f"the connection is {self._connection.transport}"
        if self._play_context.become:
            return "become is set"
        if self._task.async_val:
            return "async is set"
        interpreter = self._interpreter(task_vars)
        if not (interpreter.startswith("auto") or _is_this(interpreter)):
            return f"the interpreter is {interpreter}, and ansible-playbook runs on {sys.executable}"
        missing = [library.partition(".")[0] for library in LIBRARIES if library not in sys.modules]
        return f"the Python package {missing[0]} cannot be imported by {sys.executable}" if missing else None

    def _interpreter(self, task_vars: Mapping[str, t.Any]) -> str:
        """Return the interpreter that would run the module, or C(auto...) if Ansible would discover it."""
        delegate = self._task.delegate_to
        hosts_vars = task_vars.get("ansible_delegated_vars", {}).get(delegate, {}) if delegate else task_vars
        value = C.config.get_config_value("INTERPRETER_PYTHON", variables=hosts_vars)
        return str(self._templar.template(value)).strip()

    def _execute_directly(self, name: str, args: dict[str, t.Any], task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        self._update_module_args(name, args, task_vars)
        environment: dict[str, str] = {}
        self._compute_environment_string(environment)
        warnings: list[str] = []

        class Module(basic.AnsibleModule):
            """An AnsibleModule that collects its warnings for the result, as if it ran in its own process."""

            def warn(self, warning: str, **_kwargs: t.Any) -> None:
                if warning not in warnings:
                    warnings.append(warning)

        output = io.StringIO()
        with _arguments(args), _environment(environment), _signals() as redeliver:
            with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
                self.module.main(Module)
            data = self._parsed(output.getvalue())
            if data.get("error_code") == Interrupted.code:
                redeliver()
        if warnings:
            data["warnings"] = [*warnings, *data.get("warnings", [])]
        return data

    def _parsed(self, stdout: str) -> dict[str, t.Any]:
        """Parse a module's output by Ansible's own method, whose interface differs between versions."""
        result = {"stdout": stdout, "stderr": "", "rc": 0}
        # Since 2.19 there is a second argument, the serialization profile of the output.
        profile = ("legacy",) if len(inspect.signature(self._parse_returned_data).parameters) > 1 else ()
        parsed = self._parse_returned_data(result, *profile)
        # Since 2.21 the result is an object.
        data = parsed.as_result_dict(for_round_trip=True) if hasattr(parsed, "as_result_dict") else parsed
        return t.cast("dict[str, t.Any]", data)


def _is_this(interpreter: str) -> bool:
    """Whether interpreter is the one that runs this code.

    Links are followed only within a folder: C(python) and C(python3) are the same, a venv and its base are not.
    """
    this, other = os.path.abspath(sys.executable), os.path.abspath(interpreter)
    return os.path.dirname(this) == os.path.dirname(other) and os.path.realpath(this) == os.path.realpath(other)


@contextlib.contextmanager
def _arguments(args: Mapping[str, t.Any]) -> Iterator[None]:
    """Set the arguments of the next AnsibleModule in the variables that Ansible's module archive sets."""

    def plain(value: t.Any) -> str:
        return str(value.isoformat() if hasattr(value, "isoformat") else value)

    names = ("_ANSIBLE_ARGS", "_ANSIBLE_PROFILE")
    before = {name: getattr(basic, name) for name in names if hasattr(basic, name)}
    after = {
        "_ANSIBLE_ARGS": json.dumps({"ANSIBLE_MODULE_ARGS": args}, default=plain).encode(),
        "_ANSIBLE_PROFILE": "legacy",
    }
    for name in before:
        setattr(basic, name, after[name])
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(basic, name, value)


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update({name: str(value) for name, value in variables.items()})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def _signals() -> Iterator[t.Callable[[], None]]:
    """Restore the worker's signal handlers after the block. The yielded function restores them and sends the worker
    SIGTERM, so that it ends as if the module had not caught the signal.
    """
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def redeliver() -> None:
        restore()
        os.kill(os.getpid(), signal.SIGTERM)

    try:
        yield redeliver
    finally:
        restore()
