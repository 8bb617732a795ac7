# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The frame of every module: errors become failures with a code, and no output has secrets or control characters."""

from __future__ import annotations

import contextlib
import importlib
import re
import signal
import typing as t
from collections.abc import Callable, Iterable, Iterator, Mapping

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.validation import check_type_bool, check_type_dict, check_type_float, check_type_int

# First, as it halves the cost of the imports after it.
from . import zipped  # noqa: F401  # pylint: disable=unused-import
from .engine.texts import alike, hint, kind_of, shorten
from .errors import CollectionError, Interrupted, InvalidRequest
from .foreign_text import all_visible, on_one_line, visible
from .other_words import GUARDS, OF_TYPES, OPTIONS, VALUES
from .proxmox.api.session import contradicted_credentials
from .secret_options import PLACES, got, misshapen_secret, secret_names, secrets_in, without_value
from .workflow.result import RunFailed
from .workflow.stopping import SIGNALS, Starters

_UNSUPPORTED = re.compile(
    r"(?P<start>Unsupported parameters for \(.*?\) module: )(?P<names>.*?)"
    r"(?P<rest>\. Supported parameters include: .*)",
    re.DOTALL,
)
"""Ansible's message about options that a module does not have."""

_NO_CHOICE = re.compile(
    r"value of .*? must be one (or more )?of: (?P<choices>.*?)(, got|\. Got no match for): (?P<value>.*?)"
    r"( found in .*)?",
    re.DOTALL,
)
"""Ansible's message about a value that an option cannot have."""

_register_secrets: Callable[[Iterable[str]], None] | None = None
"""From ansible-core 2.22 on, the controller hides what modules register, and modules hide nothing themselves."""
with contextlib.suppress(ImportError):
    _register_secrets = importlib.import_module("ansible.module_utils.secrets").register_secrets


def secret_hiding_class(module_class: type[AnsibleModule]) -> type[AnsibleModule]:
    """Return a module class that shows no secret option, whatever the failure, and no control characters.

    When an option has the wrong type, Ansible fails before it knows which values are secret, and shows all of them in
    C(invocation). For an option or a value that does not exist, the one that may be meant is named.
    """

    class Module(module_class):
        """Hides secrets, suggests options, and escapes the control characters in what others wrote."""

        def __init__(self, *args: t.Any, **kwargs: t.Any) -> None:
            self._secrets: set[str] = set()
            self._were_options_seen = self._are_options_checked = False
            super().__init__(*args, **kwargs)
            self._are_options_checked = True
            if not self._were_options_seen:
                self._see_options()
            # Some options come from the environment.
            self._secrets.update(secrets_in(self.params, secret_names(self.argument_spec)))
            self.no_log_values |= self._secrets
            if _register_secrets is not None:
                _register_secrets(self._secrets)

        def _set_internal_properties(self, *args: t.Any, **kwargs: t.Any) -> None:
            # The last step before Ansible checks the options. It is not documented: another release may not have it.
            super()._set_internal_properties(*args, **kwargs)
            self._see_options()

        def _see_options(self) -> None:
            """Note the secrets in the options, drop what contradicts them, and fail for those of a wrong shape."""
            self._were_options_seen = True
            names = secret_names(self.argument_spec)
            self._secrets.update(secrets_in(self.params, names))
            self.params.update(contradicted_credentials(self.params, self.argument_spec))
            message = next(_shape_errors(self.argument_spec, self.params, is_raw=not self._are_options_checked), None)
            # Ansible makes a text of a secret that is none, and masks only the whole of that.
            if secret := misshapen_secret(self.params, names):
                message = f"{secret}: expected a text"
            if message is not None:
                self.fail_json(msg=message, error_code=InvalidRequest.code)

        def fail_json(self, msg: str, **kwargs: t.Any) -> None:
            # Some options come from the environment.
            self._secrets.update(secrets_in(self.params, secret_names(self.argument_spec)))
            self.no_log_values |= self._secrets
            if _register_secrets is not None:
                _register_secrets(self._secrets)
            if not self._are_options_checked:
                # They would be shown, and what has the wrong shape may have secrets anywhere.
                self.params: dict[str, t.Any] = {}
            super().fail_json(visible(with_suggestions(msg, self.argument_spec)), **all_visible(kwargs))

        def exit_json(self, **kwargs: t.Any) -> None:
            super().exit_json(**all_visible(kwargs))

        def warn(self, warning: str, **kwargs: t.Any) -> None:
            super().warn(on_one_line(warning), **kwargs)

    return Module


def _shape_errors(
    argument_spec: Mapping[str, t.Any], given: Mapping[str, t.Any], path: str = "", *, is_raw: bool
) -> Iterator[str]:
    """Yield a text for each option that has options of its own and no mapping as its value, and for each other value
    that is not what its option expects, and for each entry that lacks an option.

    Ansible does not name the option in its messages about the former, and crashes on numbers and booleans. Of a list it
    makes a text, and of other things it says what it tried, but not in which entry of a list.
    """
    for name, option in argument_spec.items():
        value = given.get(name)
        if value is None:
            # Of a guard, nothing is what the user forgot, and not a VM that anybody may remove.
            if is_raw and name in given and name in GUARDS:
                yield f"{path}{name}: is empty, expected {GUARDS[name]}"
            elif is_raw and path and option.get("required"):
                expected = f", expected one of: {', '.join(option['choices'])}" if "choices" in option else ""
                yield f"{path}{name}: is missing{expected}{_misspelt(name, argument_spec, given)}"
            continue
        if "options" not in option or (isinstance(value, list) and option["type"] == "dict"):
            if not option.get("no_log") and not _has_shape(name, value, option.get("type", "raw")):
                yield f"{path}{name}: {_mismatch(name, option, value)}"
            elif option.get("elements") == "str" and isinstance(value, list):
                for number, item in enumerate(value):
                    if isinstance(item, _NO_NAMES):
                        yield f"{path}{name}[{number}]: {_mismatch(name, {'type': 'str'}, item)}"
            continue
        keys = ", ".join(list(option["options"])[:4])
        if option.get("type") == "list" and isinstance(value, Mapping):
            yield f"{path}{name}: expected a list of mappings with keys such as {keys}, got a mapping"
            continue
        for number, item in enumerate(value if isinstance(value, list) else [value]):
            where = f"{path}{name}[{number}]" if isinstance(value, list) else f"{path}{name}"
            if isinstance(item, str):
                with contextlib.suppress(TypeError):
                    item = check_type_dict(item)
            if isinstance(item, Mapping):
                yield from _shape_errors(option["options"], item, f"{where}.", is_raw=is_raw)
            else:
                yield f"{where}: expected a mapping with keys such as {keys}, got {kind_of(item)}"


def _misspelt(missing: str, argument_spec: Mapping[str, t.Any], given: Mapping[str, t.Any]) -> str:
    """Return the key that may be meant as the missing option, for the end of a message; nothing if there is none."""
    unknown = [str(key) for key in given if key not in argument_spec]
    meant = next((key for key in unknown if alike(argument_spec, key) == missing), None)
    return "" if meant is None else f"; {meant!r} is not an option, did you mean {missing}?"


_NO_NAMES = (bool, float, list, dict)
"""What a name or tag such as yes or 1.10 is in YAML if it has no quotes, and what Ansible would make a text of."""

_CONVERSIONS: t.Final[Mapping[str, tuple[Callable[[t.Any], t.Any], str]]] = {
    "int": (check_type_int, "a whole number"),
    "float": (check_type_float, "a number such as 1.5"),
    "bool": (check_type_bool, "true or false"),
}
"""How Ansible converts values, and what it expects."""


def _has_shape(name: str, value: t.Any, kind: str) -> bool:
    """Whether Ansible converts the value to this type as the user means it."""
    if kind == "str":
        return not isinstance(value, _NO_NAMES if name == "name" else (list, Mapping))
    if kind == "list":
        return not isinstance(value, Mapping)
    if kind in _CONVERSIONS:
        convert = _CONVERSIONS[kind][0]
        # Ansible takes true for 1.
        if isinstance(value, bool) and kind != "bool":
            return False
    elif kind == "dict" and not isinstance(value, Mapping):
        if not isinstance(value, str):
            return False
        convert = check_type_dict
    else:
        return True
    try:
        convert(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _mismatch(name: str, option: Mapping[str, t.Any], value: t.Any) -> str:
    """Return what was expected of an option, and what it was given."""
    kind = option["type"]
    if kind in _CONVERSIONS:
        expected = OF_TYPES.get(name) or _CONVERSIONS[kind][1]
        if name in PLACES:
            return f"expected {expected}{got(name, str(value))}"
        return f"{shorten(repr(value))} is not valid, expected {expected}"
    expected = OF_TYPES.get(name) or {"str": "a text", "list": "a list"}.get(kind, "a mapping")
    if kind == "dict" and name not in OF_TYPES:
        # Only an error needs the table.
        from .proxmox.options.table import VM_OPTIONS

        if any(each.name == name and each.count for each in VM_OPTIONS):
            expected = f"a mapping with keys such as {name}0"
    in_quotes = kind == "str" and isinstance(value, (bool, float))
    return f"expected {expected}, got {kind_of(value)}{'; put it in quotes' if in_quotes else ''}"


def with_suggestions(message: str, argument_spec: Mapping[str, t.Any]) -> str:
    """Return Ansible's message about unsupported options, or an unsupported value, with those that may be meant; of an
    option that may have been given a secret by mistake without the value.
    """
    message = without_value(message)
    if (found := _NO_CHOICE.fullmatch(message)) is not None:
        choices, meant = found["choices"].split(", "), VALUES.get(found["value"].lower())
        return message + (f"; did you mean {meant}?" if meant in choices else hint(choices, found["value"]))
    found = _UNSUPPORTED.fullmatch(message)
    if found is None:
        return message
    names = ", ".join(_with_suggestion(name, argument_spec) for name in found["names"].split(", "))
    return f"{found['start']}{names}{found['rest']}"


def _with_suggestion(name: str, argument_spec: Mapping[str, t.Any]) -> str:
    """Return the name of an unknown option such as C(vms.memroy), with the one that may be meant."""
    *path, last = name.split(".")
    options = argument_spec
    for part in path:
        options = options.get(part, {}).get("options") or {}
    meant = alike([each for key, spec in options.items() for each in (key, *spec.get("aliases", ()))], last)
    if last.lower() in OPTIONS and (meant is None or last.lower() not in options):
        return f"{name} (did you mean {OPTIONS[last.lower()]}?)"
    return name if meant is None else f"{name} (did you mean {'.'.join([*path, meant])}?)"


_OF_CONNECTIONS = frozenset({"AuthenticationFailed", "ConnectionFailed", "PermissionDenied"})
"""The codes of errors of which connection_info knows more."""


def _with_doctor(message: str, code: str) -> str:
    """Return the message of an error, with the playbook to find its cause if it is about connection or rights."""
    doctor = "ansible-playbook qemu_scheduler.proxmox.doctor checks the connection and the rights"
    return f"{message} ({doctor})" if code in _OF_CONNECTIONS else message


def answer(module: AnsibleModule, work: Callable[[], dict[str, t.Any]]) -> None:
    """Do the work and exit the module with its result, or with the failure that it raised."""
    result: dict[str, t.Any] = {}
    try:
        with _interruptible():
            try:
                result = work()
            finally:
                module.params = {option: _without_unset(value) for option, value in module.params.items()}
    except KeyboardInterrupt:
        if not result:
            module.fail_json(msg="interrupted before anything was written", error_code=Interrupted.code)
    except RunFailed as failure:
        message = _with_doctor(failure.message, failure.failed_code)
        module.fail_json(msg=message, error_code=failure.failed_code, **failure.result)
    except CollectionError as error:
        message = _with_doctor(error.message, error.code)
        module.fail_json(msg=message, error_code=error.code, error_details=error.details)
    module.exit_json(**result)


def _without_unset(value: t.Any) -> t.Any:
    """Return the value of an option without the options within it that are not set. Ansible adds all options to a
    result: 2 KB for each entry of C(vms).
    """
    if isinstance(value, dict):
        return {key: _without_unset(each) for key, each in value.items() if each is not None}
    return [_without_unset(each) for each in value] if isinstance(value, list) else value


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Turn the first signal into a KeyboardInterrupt and ignore the following ones: one Ctrl-C may arrive as several
    signals. The end of a process that this one works for counts as a signal.

    They stay ignored after the block: the result still has to be printed before the process ends.
    """
    starters = Starters.of_this_process()

    def ignore() -> None:
        for number in heard:
            signal.signal(number, signal.SIG_IGN)

    def interrupt(number: int, _frame: object) -> None:
        ignore()
        raise KeyboardInterrupt(signal.Signals(number).name)

    heard = [number for number in sorted(SIGNALS) if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heard:
        signal.signal(number, interrupt)
    try:
        if starters.have_ended():
            raise KeyboardInterrupt("nobody waits for the result")
        # If all of them are ignored, Stop still looks before each write.
        with starters.watch(heard[0]) if heard else contextlib.nullcontext():
            yield
    finally:
        ignore()
