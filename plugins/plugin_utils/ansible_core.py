# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What direct execution needs of ansible-core beyond its documented interface. Any release may change it.

All of it is tried before a module runs directly. If something does not fit, the task runs as a module, which needs none
of this. Once a module has run, its answer is returned in any case.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import typing as t
from collections.abc import Callable, Iterator, Mapping

from ansible import constants as C
from ansible.module_utils import basic
from ansible.release import __version__

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

MISFITS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    NameError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What Python raises when a name, an argument or a value is not as expected. Ansible's own errors are for the user."""

Main = Callable[[type[basic.AnsibleModule]], object]
Action = t.Any

_CHANGED_BY_ANSIBLE = ("warnings", "deprecations", "exception")


def register_options() -> str | None:
    """Register OPTIONS with Ansible. Returns why that is not possible."""
    try:
        C.config.initialize_plugin_configuration_definitions(PLUGIN_TYPE, PLUGIN_NAME, OPTIONS)
    except MISFITS as error:
        return misfit_of(error)
    return None


def misfit_of(error: Exception | str) -> str:
    """Return what to say about a part of ansible-core that is not as expected."""
    what = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return f"ansible-core {__version__} is not as expected: {what}"


def misfit(action: Action) -> str | None:
    """Try all that direct execution needs, with a module that does nothing. Returns what does not fit."""
    given = {"text": "\N{SNOWMAN}", "numbers": [1, 2.5, None], "flag": True}
    try:
        inspect.signature(action._update_module_args).bind("name", {}, {})
        inspect.signature(action._compute_environment_string).bind({})
        # no_log keeps it from writing to the system's log.
        args = {"given": given, "_ansible_check_mode": True, "_ansible_no_log": True}
        answer = _parse(action, output_of(_do_nothing, basic.AnsibleModule, pack_arguments(args)))
    except Exception as error:  # noqa: BLE001 - another release may raise anything
        return misfit_of(error)
    fits = isinstance(answer, dict) and {"changed": True, "check": True, "given": given}.items() <= answer.items()
    return None if fits else misfit_of("a module that does nothing gave another answer")


def _do_nothing(module_class: type[basic.AnsibleModule]) -> None:
    module = module_class({"given": {"type": "raw"}}, supports_check_mode=True)
    module.exit_json(changed=True, check=module.check_mode, given=module.params["given"])


def pack_arguments(args: Mapping[str, t.Any]) -> bytes:
    """Return the arguments of a module as Ansible's module archive passes them."""

    def plain(value: t.Any) -> str:
        return str(value.isoformat() if hasattr(value, "isoformat") else value)

    return json.dumps({"ANSIBLE_MODULE_ARGS": args}, default=plain).encode()


def output_of(main: Main, module_class: type[basic.AnsibleModule], arguments: bytes) -> str:
    """Run the main function of a module in this process, and return what it prints."""
    output = io.StringIO()
    with _arguments(arguments), contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        main(module_class)
    return output.getvalue()


@contextlib.contextmanager
def _arguments(arguments: bytes) -> Iterator[None]:
    """Set the arguments of the next AnsibleModule in the variables that Ansible's module archive sets."""
    after = {"_ANSIBLE_ARGS": arguments, "_ANSIBLE_PROFILE": "legacy"}
    # The second one exists since 2.19. Without the first one, the module would read its arguments from stdin.
    before = {"_ANSIBLE_ARGS": basic._ANSIBLE_ARGS}
    if hasattr(basic, "_ANSIBLE_PROFILE"):
        before["_ANSIBLE_PROFILE"] = basic._ANSIBLE_PROFILE
    for name in before:
        setattr(basic, name, after[name])
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(basic, name, value)


def answer_of(action: Action, output: str) -> dict[str, t.Any]:
    """Return the answer of a module that has printed this: as Ansible reads it or, if it cannot, as it is."""
    plain = _plain(output)
    try:
        answer = _parse(action, output)
    except Exception as error:  # noqa: BLE001 - another release may raise anything
        answer = {"failed": True, "msg": misfit_of(error), "module_stdout": output}
    if plain is None:
        return answer
    missing = (key for key in plain if key not in answer and not key.startswith("_") and key not in _CHANGED_BY_ANSIBLE)
    return plain if any(missing) else answer


def _plain(output: str) -> dict[str, t.Any] | None:
    """Return the last object in the output of a module; None if there is none."""
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                return t.cast("dict[str, t.Any]", json.loads(line))
    return None


def _parse(action: Action, output: str) -> dict[str, t.Any]:
    """Parse a module's output by Ansible's own method, whose interface differs between versions."""
    result = {"stdout": output, "stderr": "", "rc": 0}
    # Since 2.19 there is a second argument, the serialization profile of the output.
    profile = ("legacy",) if len(inspect.signature(action._parse_returned_data).parameters) > 1 else ()
    parsed = action._parse_returned_data(result, *profile)
    # Since 2.21 the result is an object.
    data = parsed if isinstance(parsed, dict) else parsed.as_result_dict(for_round_trip=True)
    return t.cast("dict[str, t.Any]", data)
