# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Constraints on devices: Jinja2 expressions over C(device), in a sandbox that leaves nothing to loop or to grow in."""

from __future__ import annotations

import functools
import sys
import typing as t
from collections.abc import Callable, Iterator, Mapping

from ...errors import InvalidRequest, MissingLibrary
from ...model import Device, DeviceClaim

if t.TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment

LONGEST = 1000
"""The most characters that a constraint may have."""

FILTERS = frozenset(
    {"abs", "count", "d", "default", "first", "float", "int", "last", "length", "lower", "max", "min", "string"}
    | {"trim", "upper"}
)
METHODS = frozenset(
    {"count", "endswith", "find", "isdigit", "lower", "lstrip", "removeprefix", "removesuffix", "rstrip", "split"}
    | {"startswith", "strip", "upper"}
)
"""What may be called of a text. Whatever makes a text or list longer is left out: it could fill the memory."""

# What an expression can raise over data of any kind, beside the template engine's own errors.
_RUN_ERRORS = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError, MemoryError)


class ConstraintError(ValueError):
    """The text says what is wrong with a constraint, without naming the claim."""


class Matcher:
    """Answers which devices meet which constraint; each pair is worked out once."""

    def __init__(self) -> None:
        # The device is kept beside its id, so that no other can get the same id.
        self._known: dict[tuple[int, str], tuple[Device, bool]] = {}

    def meets(self, device: Device, claim: str, constraint: str) -> bool:
        """Whether the constraint holds; what needs an attribute that the device lacks does not.

        claim is named in errors. Raises InvalidRequest, MissingLibrary.
        """
        key = (id(device), constraint)
        if key not in self._known:
            try:
                met = compile_constraint(constraint)(attributes_of(device))
            except ConstraintError as error:
                raise InvalidRequest(
                    f"claim {claim!r}: constraint {constraint!r}: {error} (device {device.id} of mapping "
                    f"{device.mapping!r} on {device.node})",
                    claim=claim,
                    constraint=constraint,
                ) from None
            self._known[key] = (device, met)
        return self._known[key][1]


def accepts(wanted: DeviceClaim, claim: str, device: Device, matcher: Matcher) -> bool:
    """Whether a claim, or an alternative of it, can be met by the device, regardless of which guest holds it.

    claim is named in errors. Raises InvalidRequest as Matcher does.
    """
    return (
        not device.fault
        and wanted.driver in (None, device.driver)
        and wanted.mapping in (None, device.mapping)
        and wanted.mdev == device.mdev
        and all(matcher.meets(device, claim, constraint) for constraint in wanted.constraints)
    )


def attributes_of(device: Device) -> dict[str, t.Any]:
    """Return what a constraint sees of a device: its attributes, and under fixed names what the device is."""
    fixed = {"driver": device.driver, "mapping": device.mapping, "node": device.node, "id": device.id}
    return {**device.attributes, **fixed, **({"mdev_type": device.mdev} if device.mdev else {})}


@functools.lru_cache(maxsize=256)
def compile_constraint(constraint: str) -> Callable[[Mapping[str, t.Any]], bool]:
    """Return a function from a device's attributes to whether the constraint holds.

    Raises:
        ConstraintError: the text is no expression, or names something that does not exist; and from the function, when
            the expression fails over these attributes.
        MissingLibrary: Jinja2 is not installed.
    """
    if len(constraint) > LONGEST:
        raise ConstraintError(f"has {len(constraint)} characters, expected at most {LONGEST}")
    environment = _environment()
    from jinja2 import meta
    from jinja2.exceptions import TemplateError, UndefinedError

    try:
        names = meta.find_undeclared_variables(environment.parse("{{ " + constraint + " }}"))
        expression = environment.compile_expression(constraint, undefined_to_none=False)
    except (TemplateError, SyntaxError, RecursionError, MemoryError) as error:
        raise ConstraintError(f"is not a Jinja2 expression: {error or type(error).__name__}") from None
    unknown = sorted(names - {"device"})
    if unknown:
        raise ConstraintError(f"{unknown[0]!r} is not defined, only 'device' is")

    def holds(attributes: Mapping[str, t.Any]) -> bool:
        try:
            return bool(expression(device=_DeviceView(attributes)))
        except UndefinedError:
            return False
        except (TemplateError, *_RUN_ERRORS) as error:
            raise ConstraintError(f"failed with {type(error).__name__}: {error}") from None

    return holds


class _DeviceView:
    """Attributes by name or key, and nothing else: C(device.items) is an attribute like any other."""

    __slots__ = ("_attributes",)

    def __init__(self, attributes: Mapping[str, t.Any]) -> None:
        self._attributes = attributes

    def __getitem__(self, name: str) -> t.Any:
        return self._attributes[name]

    def __contains__(self, name: str) -> bool:
        return name in self._attributes

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._attributes))


@functools.lru_cache(maxsize=1)
def _environment() -> SandboxedEnvironment:
    """Return the sandbox in which constraints are evaluated: no attributes of objects, few filters and methods."""
    try:
        from jinja2 import StrictUndefined
        from jinja2.exceptions import SecurityError
        from jinja2.sandbox import SandboxedEnvironment
    except ImportError:
        raise MissingLibrary(
            f"constraints of device claims need the Python package Jinja2 for {sys.executable}", package="Jinja2"
        ) from None

    class Sandbox(SandboxedEnvironment):
        intercepted_binops = frozenset({"*", "%", "**"})

        def call_binop(self, context: t.Any, operator: str, left: t.Any, right: t.Any) -> t.Any:
            if operator == "**" or not (isinstance(left, int | float) and isinstance(right, int | float)):
                raise SecurityError(f"{operator} requires numbers" if operator != "**" else "** is not allowed")
            return super().call_binop(context, operator, left, right)

        def is_safe_callable(self, obj: t.Any) -> bool:
            return isinstance(getattr(obj, "__self__", None), str) and getattr(obj, "__name__", "") in METHODS

    # Without the optimizer nothing is worked out while a constraint is only read.
    environment = Sandbox(undefined=StrictUndefined, optimized=False)
    environment.globals.clear()
    environment.filters = {name: each for name, each in environment.filters.items() if name in FILTERS}
    return environment
