# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Device claims, classes and attributes as a user writes them, made into data; and which devices they need read."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Callable, Iterable, Mapping

from ...engine.devices.constraints import ConstraintError, Matcher, accepts, compile_constraint
from ...engine.devices.hardware import OPTIONS, PCI, USB
from ...engine.node_selection import node_matcher
from ...engine.texts import hint
from ...errors import InvalidRequest
from ...model import Device, DeviceClaim, DeviceClass, Node, Request
from ...proxmox.inventory.mappings import DeviceNeeds
from ...proxmox.options.kinds import OF_DRIVER
from ...proxmox.options.values import invalid, number

_DECIDED = frozenset({"host", "mapping", "mdev"})
"""Properties of a C(hostpciN) or C(usbN) entry that follow from the claim."""

_FIXED = frozenset({"driver", "id", "mapping", "mdev_type", "node"})
_TARGET = re.compile(r"[A-Za-z][\w-]*(@[\w.-]+)?|[0-9A-Fa-f][0-9A-Fa-f:.;-]*(/[\w-]+)?@[\w.-]+")


def device_classes(given: Mapping[str, t.Any] | None) -> dict[str, DeviceClass]:
    """Return the classes by name. Raises InvalidRequest, which names option, value and what was expected."""
    return {str(name): _class(str(name), body) for name, body in (given or {}).items()}


def device_attributes(given: Mapping[str, t.Any] | None) -> dict[str, dict[str, t.Any]]:
    """Return the attributes by mapping, C(mapping@node) or C(address@node). Raises InvalidRequest."""
    attributes = {}
    for key, body in (given or {}).items():
        if not _TARGET.fullmatch(str(key)):
            raise invalid("device_attributes", key, "a mapping, mapping@node or address@node")
        where = f"device_attributes.{key}"
        if not isinstance(body, Mapping):
            raise invalid(where, body, "a mapping of attributes to values")
        for name, value in body.items():
            if name in _FIXED or not re.fullmatch(r"[A-Za-z_][\w-]*", str(name)):
                raise invalid(
                    where, name, f"a name of letters, digits, _ and -, but none of {', '.join(sorted(_FIXED))}"
                )
            if isinstance(value, Mapping | list):
                raise invalid(f"{where}.{name}", value, "a text, a number or a boolean")
        target, at, node = str(key).partition("@")
        attributes[(target.lower() if target[0].isdigit() or ":" in target else target) + at + node] = dict(body)
    return attributes


def device_claims(
    given: Iterable[Mapping[str, t.Any]] | None, classes: Mapping[str, DeviceClass], prefix: str = ""
) -> tuple[DeviceClaim, ...]:
    """Return the claims of one VM, each with the driver and the constraints of its class.

    prefix stands before the option's name in errors (C(vms[2].)). Raises InvalidRequest.
    """
    option = f"{prefix}devices"
    claims = [_claim(option, body, classes) for body in given or ()]
    names = [claim.name for claim in claims]
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequest(f"{option}: {name!r} is given twice, expected a name for each claim", option=option)
    return tuple(claims)


def device_needs(
    requests: Iterable[Request], attributes: Mapping[str, Mapping[str, t.Any]] | None = None
) -> DeviceNeeds | None:
    """Return which devices have to be read for the requests; None when none of them claims any.

    attributes is what device_attributes returned.
    """
    claiming = [(request, may_go) for request in requests if request.devices and (may_go := _nodes_of(request))]
    if not claiming:
        return None
    matcher = Matcher()

    def node_may_do(node: Node) -> bool:
        return any(may_go(node) for _request, may_go in claiming)

    def device_may_do(device: Device, node: Node) -> bool:
        return any(
            may_go(node) and any(_may_take(claim, device, matcher) for claim in request.devices)
            for request, may_go in claiming
        )

    return DeviceNeeds(node_may_do, device_may_do, attributes or {})


def _class(name: str, body: object) -> DeviceClass:
    """Return one device class. Raises InvalidRequest."""
    where = f"device_classes.{name}"
    if not isinstance(body, Mapping):
        raise invalid(where, body, "a mapping with driver and constraints")
    unknown = sorted(set(map(str, body)) - {"driver", "constraints"})
    if unknown:
        raise invalid(where, unknown[0], "the keys driver and constraints")
    return DeviceClass(name, _driver(where, body.get("driver")), _constraints(where, body.get("constraints")))


def _claim(option: str, body: Mapping[str, t.Any], classes: Mapping[str, DeviceClass]) -> DeviceClaim:
    """Return one claim, with its alternatives. Raises InvalidRequest."""
    name = str(body.get("name") or "")
    if not name:
        raise InvalidRequest(f"{option}: a claim has no name, expected a name for each claim", option=option)
    where = f"{option}.{name}"
    alternatives = body.get("one_of")
    given = sorted(key for key, value in body.items() if value is not None and key not in ("name", "one_of"))
    if alternatives is None:
        return _parse_claim(where, name, body, classes)
    if given:
        raise invalid(f"{where}.{given[0]}", body[given[0]], "no value, because one_of is set")
    if not alternatives:
        raise invalid(f"{where}.one_of", alternatives, "at least one alternative")
    return DeviceClaim(
        name,
        one_of=tuple(
            _parse_claim(f"{where}.one_of[{index}]", name, each, classes) for index, each in enumerate(alternatives)
        ),
    )


def _parse_claim(where: str, name: str, body: Mapping[str, t.Any], classes: Mapping[str, DeviceClass]) -> DeviceClaim:
    """Return a claim or an alternative of one, with what its class sets. Raises InvalidRequest."""
    kind = body.get("class")
    if kind is not None and kind not in classes:
        known = ", ".join(sorted(classes)) or "none is defined"
        raise invalid(f"{where}.class", kind, f"one of device_classes: {known}{hint(classes, str(kind))}")
    of_class = classes[kind] if kind is not None else DeviceClass("")
    driver = _driver(where, body.get("driver"))
    if driver is not None and of_class.driver not in (None, driver):
        raise invalid(f"{where}.driver", driver, f"{of_class.driver}, the driver of class {kind!r}")
    driver = driver or of_class.driver
    if kind is None and driver is None and body.get("mapping") is None:
        raise InvalidRequest(f"{where}: expected class, mapping, driver or one_of", option=where)
    given = body.get("options") or {}
    driver = driver or _implied_driver(body.get("mdev"), given)
    if body.get("mdev") is not None and driver != PCI:
        raise invalid(f"{where}.mdev", body["mdev"], "no mdev for a USB device")
    most = OPTIONS[driver or PCI][1]
    count = 1 if body.get("count") is None else int(number(f"{where}.count", body["count"], 1, most, whole=True))
    return DeviceClaim(
        name=name,
        driver=driver,
        device_class=kind,
        mapping=body.get("mapping"),
        count=count,
        constraints=of_class.constraints + _constraints(where, body.get("constraints")),
        match_attributes=tuple(_texts(f"{where}.match_attributes", body.get("match_attributes"))),
        mdev=body.get("mdev"),
        options=_options(f"{where}.options", driver, given),
    )


def _implied_driver(mdev: str | None, options: Mapping[str, t.Any]) -> str | None:
    """Return the driver that a claim can only mean, when it names a mapping alone."""
    if mdev is None and not options:
        return None
    return USB if mdev is None and set(options) <= set(OF_DRIVER[USB].properties) else PCI


def _options(where: str, driver: str | None, given: object) -> dict[str, str]:
    """Return the properties that a claim adds to the device's option. Raises InvalidRequest."""
    if not given:
        return {}
    if not isinstance(given, Mapping):
        raise invalid(where, given, "a mapping of properties")
    for key in sorted(_DECIDED & set(given)):
        raise invalid(f"{where}.{key}", given[key], "no value, because the claim sets it")
    return OF_DRIVER[driver or PCI].of(where, given)


def _driver(where: str, value: object) -> str | None:
    if value is None:
        return None
    if value not in (PCI, USB):
        raise invalid(f"{where}.driver", value, f"{PCI} or {USB}")
    return str(value)


def _constraints(where: str, given: object) -> tuple[str, ...]:
    """Return the constraints of a claim, of which each must be an expression. Raises InvalidRequest."""
    texts = _texts(f"{where}.constraints", given)
    for text in texts:
        try:
            compile_constraint(text)
        except ConstraintError as error:
            raise InvalidRequest(
                f"{where}.constraints: {text!r} {error}, expected an expression such as device.vendor == '10de'",
                option=f"{where}.constraints",
                value=text,
            ) from None
    return tuple(texts)


def _texts(where: str, given: object) -> list[str]:
    texts = [given] if isinstance(given, str) else given or []
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) and text for text in texts):
        raise invalid(where, given, "a list of texts")
    return list(texts)


def _nodes_of(request: Request) -> Callable[[Node], bool] | None:
    """Return which nodes the request allows; None when that is unknown, which is reported where this VM is placed."""
    try:
        return node_matcher(request)
    except InvalidRequest:
        return None


def _may_take(claim: DeviceClaim, device: Device, matcher: Matcher) -> bool:
    try:
        return any(accepts(each, claim.name, device, matcher) for each in claim.one_of or (claim,))
    except InvalidRequest:
        # Reported where this VM is placed, if it comes to look at this device at all.
        return True
