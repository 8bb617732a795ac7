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
import multiprocessing
import os
import re
import signal
import sys
import threading
import types
import typing as t
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ansible import constants as C
from ansible.module_utils import basic
from ansible.plugins.action.normal import ActionModule as NormalAction
from ansible.utils.display import Display

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import Interrupted, InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.stopping import SIGNALS, STARTED_BY
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.ansible_core import (
    MISFITS,
    OPTIONS,
    PLUGIN_NAME,
    PLUGIN_TYPE,
    answer_of,
    misfit,
    misfit_of,
    output_of,
    pack_arguments,
    register_options,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.numbers import check_numbers

LIBRARIES = ("requests", "proxmoxer.backends.https")

NO_OPTIONS = register_options()
"""Why Ansible does not know the option C(execution); None if it does."""

# Ansible loads action plugins before it forks its workers, so a library that is imported here is imported only once.
for _library in LIBRARIES:
    with contextlib.suppress(ImportError, SystemExit):
        importlib.import_module(_library)


VARIABLES = "qemu_scheduler_variables"
"""The variable with which a role or playbook says what its users call an option: a mapping of options to variables."""


_IS_ABOUT = r"\A{0}(?=\[\d+\]|(?:\.[\w-]+(?:\[\d+\])?)*: )"
_IN_LIST = (
    r"(?:(?<= found in )|(?<= without it in )|(?<=' in )|(?<= entries of )|(?<= entry of )){0}"
    r"(?=(?:, expected different \w+| differ only in case, expected different names| -> [\w >-]+)?"
    r"(?:; did you mean [^?]*\?)?\Z)"
)
_IS_UNKNOWN = r"(?:(?<= module: )|(?<=, )|(?<=mean )){0}(?=\.\w)"
"""Where messages name an option: first, last after what is wrong with a list, and where Ansible knows no such option.
"""


def in_variables(message: str, names: Mapping[str, str]) -> str:
    """Return a message in which options have the names of the variables that they come from. What else is called like
    an option, such as a VM or a pool, keeps its name.
    """
    places = _IS_UNKNOWN if message.startswith("Unsupported parameters for (") else f"{_IS_ABOUT}|{_IN_LIST}"
    for option, variable in names.items():
        message = re.sub(places.format(option), variable, message)
    return message


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a module in this process: its packed arguments, and the environment variables of the task."""

    arguments: bytes
    environment: Mapping[str, t.Any]


class DirectAction(NormalAction):
    """The base of the action plugins: runs C(module) in this process if the task allows it, else as Ansible does.

    Attributes:
        module: the imported module, with C(argument_spec), and C(main), which takes the class to use as AnsibleModule.
        imports: what the module imports only if a task needs it, and most tasks do. Here, it is imported once, before
            Ansible forks its workers.
    """

    module: types.ModuleType
    imports: tuple[types.ModuleType, ...] = ()

    def run(self, tmp: t.Any = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run the module, and end the worker if ansible-playbook has ended meanwhile."""
        result = super().run(tmp, task_vars)
        if _playbook_process() != os.getppid():
            # Nobody reads the result: a worker that sends a long one would wait forever.
            os.kill(os.getpid(), signal.SIGKILL)
        if result.get("failed") and "msg" in result and (names := (task_vars or {}).get(VARIABLES)):
            said = str(result["msg"])
            message = in_variables(said, self._templar.template(names))
            if message != said:
                result["msg"] = message
                # It has the module's words. Without it, Ansible makes another one of the message.
                result.pop("exception", None)
        return t.cast("dict[str, t.Any]", result)

    def _execute_module(
        self,
        module_name: str | None = None,
        module_args: dict[str, t.Any] | None = None,
        tmp: t.Any = None,
        task_vars: dict[str, t.Any] | None = None,
        **kwargs: t.Any,
    ) -> dict[str, t.Any]:
        try:
            call = self._call(module_name, module_args, task_vars or {})
        except InvalidRequest as error:
            return {"failed": True, "msg": error.message, "error_code": error.code, "error_details": error.details}
        name = type(self).module.__name__.rpartition(".")[2]
        if isinstance(call, Call):
            Display().vvv(f"{name}: running directly in the worker process")
            return self._execute_directly(call)
        Display().vvv(f"{name}: running as a module: {call}")
        with self._tell_who_waits():
            result = super()._execute_module(module_name, module_args, tmp, task_vars, **kwargs)
        return t.cast("dict[str, t.Any]", result)

    def _call(
        self, module_name: str | None, module_args: dict[str, t.Any] | None, task_vars: dict[str, t.Any]
    ) -> Call | str:
        """Prepare the call of the module in this process. Returns why the task has to run as a module instead.

        Raises InvalidRequest for arguments on which Ansible fails.
        """
        wanted = "auto"
        try:
            name = module_name or self._task.action
            args = dict(module_args or self._task.args)
            check_numbers(args, self.module.argument_spec())
            wanted = self._execution(task_vars)
            obstacle = "execution is set to module" if wanted == "module" else self._obstacle(task_vars)
            if obstacle is None:
                environment: dict[str, str] = {}
                self._update_module_args(name, args, task_vars)
                self._compute_environment_string(environment)
                return Call(pack_arguments(args), environment)
        except MISFITS as error:
            obstacle = misfit_of(error)
        if wanted == "direct":
            from ansible.errors import AnsibleActionFail

            raise AnsibleActionFail(
                f"execution is set to direct, but {name} cannot run in the worker process: {obstacle}"
            )
        return obstacle

    def _execution(self, task_vars: Mapping[str, t.Any]) -> str:
        """Return the option C(execution); a variable that sets it may be a template."""
        if NO_OPTIONS is not None:
            return "auto"
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
        if missing:
            return f"the Python package {missing[0]} cannot be imported by {sys.executable}"
        if threading.current_thread() is not threading.main_thread():
            return "the worker is a thread, which cannot handle signals"
        return NO_OPTIONS or misfit(self)

    def _interpreter(self, task_vars: Mapping[str, t.Any]) -> str:
        """Return the interpreter that would run the module, or C(auto...) if Ansible would discover it."""
        delegate = self._task.delegate_to
        hosts_vars = task_vars.get("ansible_delegated_vars", {}).get(delegate, {}) if delegate else task_vars
        value = C.config.get_config_value("INTERPRETER_PYTHON", variables=hosts_vars)
        return str(self._templar.template(value)).strip()

    def _execute_directly(self, call: Call) -> dict[str, t.Any]:
        warnings: list[str] = []

        class Module(basic.AnsibleModule):
            """An AnsibleModule that collects its warnings for the result, as if it ran in its own process."""

            def warn(self, warning: str, **_kwargs: t.Any) -> None:
                if warning not in warnings:
                    warnings.append(warning)

        with _environment({**call.environment, STARTED_BY: _starter()}), _signals() as redeliver:
            data = answer_of(self, output_of(self.module.main, Module, call.arguments))
            if data.get("error_code") == Interrupted.code:
                redeliver()
        if warnings:
            data["warnings"] = [*warnings, *data.get("warnings", [])]
        return data

    @contextlib.contextmanager
    def _tell_who_waits(self) -> Iterator[None]:
        """Tell a module on this machine for which processes it works. One with async is meant to outlive them."""
        # As a module, a task runs even if some of these names have changed.
        task, connection = getattr(self, "_task", None), getattr(self, "_connection", None)
        if task is None or getattr(connection, "transport", None) != "local" or getattr(task, "async_val", True):
            yield
            return
        given = getattr(task, "environment", None)
        task.environment = [*(given or ()), {STARTED_BY: _starter()}]
        try:
            yield
        finally:
            task.environment = given


def _playbook_process() -> int:
    """Return the id of the process that has started this worker, even if it has ended since."""
    parent = multiprocessing.parent_process()
    return os.getppid() if parent is None or parent.pid is None else parent.pid


def _starter() -> str:
    return f"{_playbook_process()} {os.getpid()}"


def _is_this(interpreter: str) -> bool:
    """Whether interpreter is the one that runs this code.

    Links are followed only within a folder: C(python) and C(python3) are the same, a venv and its base are not.
    """
    this, other = os.path.abspath(sys.executable), os.path.abspath(interpreter)
    return os.path.dirname(this) == os.path.dirname(other) and os.path.realpath(this) == os.path.realpath(other)


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
