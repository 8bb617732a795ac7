# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Proxmox's own API schema of one release, and request validation with Proxmox's wording.

fakepve brings the path matching, the scalar checks and the named formats; what it words differently from a
real cluster (strict booleans, unknown keys in property strings, typed HA rules, CPU models) is done here.
"""

from __future__ import annotations

import functools
import gzip
import json
import re
from pathlib import Path
from typing import Any

from fakepve import formats
from fakepve import schema as fakepve_schema

from .cpu_models import MODELS, VM_FLAGS

DATA = Path(__file__).with_name("data")
UNKNOWN = "property is not defined in schema and the schema does not allow additional properties"
MISSING = "property is missing and it is not optional"

PCI_FORMAT: dict[str, Any] = {
    "host": {"type": "string", "optional": 1, "default_key": 1},
    "mapping": {"type": "string", "optional": 1, "format": "pve-configid"},
    "driver": {"type": "string", "optional": 1, "enum": ["vfio", "keep"]},
    "rombar": {"type": "boolean", "optional": 1},
    "romfile": {"type": "string", "optional": 1},
    "pcie": {"type": "boolean", "optional": 1},
    "x-vga": {"type": "boolean", "optional": 1},
    "legacy-igd": {"type": "boolean", "optional": 1},
    "mdev": {"type": "string", "optional": 1},
    "vendor-id": {"type": "string", "optional": 1},
    "device-id": {"type": "string", "optional": 1},
    "sub-vendor-id": {"type": "string", "optional": 1},
    "sub-device-id": {"type": "string", "optional": 1},
}
CPU_FORMAT: dict[str, Any] = {
    "cputype": {"type": "string", "optional": 1, "default_key": 1},
    "reported-model": {"type": "string", "optional": 1},
    "hidden": {"type": "boolean", "optional": 1},
    "hv-vendor-id": {"type": "string", "optional": 1},
    "flags": {"type": "string", "optional": 1},
    "phys-bits": {"type": "string", "optional": 1},
    "guest-phys-bits": {"type": "integer", "optional": 1},
}
TDX_FORMAT: dict[str, Any] = {
    "type": {"type": "string", "default_key": 1, "enum": ["tdx"]},
    "attestation": {"type": "boolean"},
    "vsock-cid": {"type": "integer", "optional": 1},
    "vsock-port": {"type": "integer", "optional": 1},
}
LOCATION_FORMAT: dict[str, Any] = {
    "name": {"type": "string", "optional": 1},
    "latitude": {"type": "number", "optional": 1},
    "longitude": {"type": "number", "optional": 1},
}
NAMED_STRINGS = {
    "pve-qm-hostpci": PCI_FORMAT, "pve-qemu-tdx-fmt": TDX_FORMAT, "pve-node-location": LOCATION_FORMAT,
}


class Schema(fakepve_schema.Schema):
    """The paths of one Proxmox VE release."""

    @classmethod
    @functools.cache
    def load(cls, version: str) -> Schema:
        """The schema recorded for ``8.4`` or ``9.2``."""
        text = gzip.decompress((DATA / f"api-{version}.json.gz").read_bytes()).decode()
        # Perl prints its patterns with a prefix that Python does not know.
        paths = json.loads(text.replace("(?^:", "(?:"))
        for path, method in (("/cluster/ha/rules", "POST"), ("/cluster/ha/rules/{rule}", "PUT")):
            _add_affinity(paths.get(path, {}).get(method, {}).get("parameters", {}))
        return cls(paths)

    @functools.lru_cache(maxsize=4096)  # noqa: B019 - each release is loaded once, for good
    def match(self, path: str) -> Any:
        """What a path is called in the schema. Clients poll the same paths again and again."""
        return super().match(path)


def _add_affinity(parameters: dict[str, Any]) -> None:
    """Node-affinity rules have an affinity since pve-ha-manager 5.2.5, which is newer than the recorded schema."""
    for part in parameters.get("allOf", ()):
        for variant in part.get("oneOf", ()):
            if variant["instance-type"] == "node-affinity":
                variant["properties"]["affinity"] = {"enum": ["positive", "negative"], "optional": 1, "type": "string"}


class Validator:
    """Checks parameters of one cluster's requests; knows the custom CPU models that this cluster has."""

    def __init__(self, custom_cpus: dict[str, Any]) -> None:
        self._custom_cpus = custom_cpus

    def validate(self, spec: dict[str, Any] | None, values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """The coerced values and one message per offending parameter."""
        spec, typed = _flatten(spec or {}, values)
        properties = spec.get("properties", {})
        out: dict[str, Any] = {}
        errors: dict[str, str] = {}
        for name, value in values.items():
            declared = fakepve_schema._prop(properties, name)
            if declared is None:
                if spec.get("additionalProperties", 1) in (0, "0", False):
                    errors[name] = UNKNOWN
                else:
                    out[name] = value
                continue
            out[name] = self._check(declared, value, typed.get(name, name), errors)
        for name, declared in properties.items():
            if name not in values and not declared.get("optional") and "[n]" not in name:
                errors[typed.get(name, name)] = MISSING
        for name in values:
            needed = (fakepve_schema._prop(properties, name) or {}).get("requires")
            if needed and needed not in values:
                errors[needed] = f"missing property required by '{name}'"
        return out, errors

    def _check(self, declared: dict[str, Any], value: Any, path: str, errors: dict[str, str]) -> Any:
        kind = declared.get("type")
        if kind == "array":
            items = value if isinstance(value, list) else [value]
            checked = [
                self._check(declared.get("items") or {}, item, f"{path}[{number}]", errors)
                for number, item in enumerate(items)
            ]
            return checked
        if kind == "boolean":
            if value in (0, 1, "0", "1", True, False):
                return int(value)
            errors[path] = f"type check ('boolean') failed - got '{value}'"
            return value
        fields = self._fields(declared.get("format"))
        if fields is not None and not isinstance(value, (list, dict)):
            text = str(int(value)) if isinstance(value, bool) else str(value)
            why = self._property_string(fields, text, path)
            if why is None and declared.get("format") == "pve-vm-cpu-conf":
                why = self._cpu(text)
            if why is not None:
                errors[path] = "invalid format - " + why
            return text
        why = _list_format(declared.get("format"), value)
        if why is not None:
            errors[path] = why
            return value
        checked, error = fakepve_schema.check_value(declared, value)
        if error is not None:
            errors[path] = error
        return checked

    @staticmethod
    def _fields(named: Any) -> dict[str, Any] | None:
        if isinstance(named, dict):
            return named
        if not isinstance(named, str):
            return None
        if named == "pve-vm-cpu-conf":
            return CPU_FORMAT
        return NAMED_STRINGS.get(named) or fakepve_schema.registered(named)

    def _property_string(self, fields: dict[str, Any], text: str, path: str) -> str | None:
        """Proxmox's message (with its line end) if the string breaks its format."""
        given: dict[str, str] = {}
        unknown: dict[str, str] = {}
        default_key = next((key for key, entry in fields.items() if entry.get("default_key")), None)
        for part in text.split(","):
            if not part.strip():
                continue
            key, separator, value = part.partition("=")
            if not separator:
                if default_key is None:
                    return "value without key, but schema does not define a default key\n"
                key, value = default_key, part
            entry = fields.get(key)
            if entry is None:
                unknown[f"{path}.{key}"] = UNKNOWN
                continue
            if entry.get("alias"):
                if entry.get("keyAlias"):
                    given[entry["keyAlias"]] = key
                key = entry["alias"]
            if key in given:
                return f"duplicate key in comma-separated list property: {key}\n"
            given[key] = value
        errors = dict(unknown)
        for key, entry in fields.items():
            if entry.get("alias"):
                continue
            where = f"{path}.{key}"
            if key not in given:
                if not entry.get("optional"):
                    errors[where] = MISSING
                continue
            text_given = given[key]
            is_boolean = entry.get("type") == "boolean"
            self._check(
                entry, (fakepve_schema.parse_boolean(text_given) or text_given) if is_boolean else text_given, where,
                errors,
            )
            needed = entry.get("requires")
            if needed and needed not in given:
                errors[f"{path}.{needed}"] = f"missing property required by '{where}'"
        if errors:
            return "format error\n" + "".join(f"{key}: {errors[key]}\n" for key in sorted(errors))
        return None

    def _cpu(self, text: str) -> str | None:
        parts = dict(part.partition("=")[::2] if "=" in part else ("cputype", part) for part in text.split(","))
        model = parts.get("cputype", "")
        if model.startswith("custom-"):
            if model.removeprefix("custom-") not in self._custom_cpus:
                return f"Custom cputype '{model.removeprefix('custom-')}' not found\n"
        elif model and model not in MODELS:
            return f"Built-in cputype '{model}' is not defined (missing 'custom-' prefix?)\n"
        flags = [flag.lstrip("+-") for flag in parts.get("flags", "").split(";") if flag]
        if any(flag not in VM_FLAGS for flag in flags):
            return f"VM-specific CPU flags must be a subset of: {', '.join(VM_FLAGS)}\n"
        return None


def _list_format(named: Any, value: Any) -> str | None:
    """Formats of the HA manager, which fakepve does not know."""
    if named in ("pve-ha-node-list", "pve-ha-group-node-list"):
        for item in formats.split_list(str(value)):
            node, _, priority = item.partition(":")
            if formats.check("pve-node", node) or (":" in item and not priority.isdigit()):
                return "invalid format - value does not look like a valid ha node\n"
    if named == "pve-ha-resource-id-list":
        for item in formats.split_list(str(value)):
            if not re.fullmatch(r"(?:vm|ct|fa):[A-Za-z0-9]+", item):
                return "invalid format - value does not look like a valid ha resource id\n"
    if named == "pve-ha-resource-or-vm-id" and not re.fullmatch(r"(?:(?:vm|ct|fa):)[A-Za-z0-9]+|\d+", str(value)):
        return "invalid format - value does not look like a valid ha resource id\n"
    return None


def _flatten(spec: dict[str, Any], values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """A plain parameter list from ``allOf``/``oneOf``, and how errors name the properties of the chosen variant."""
    if "allOf" not in spec and "oneOf" not in spec:
        return spec, {}
    properties: dict[str, Any] = {}
    typed: dict[str, str] = {}
    for part in spec.get("allOf", [spec]):
        properties.update(part.get("properties", {}))
        if "oneOf" in part:
            key = part["type-property"]
            properties[key] = part["type-property-schema"]
            for variant in part["oneOf"]:
                if variant.get("instance-type") == values.get(key):
                    properties.update(variant["properties"])
                    typed.update({name: f"oneOf[{values[key]}].{name}" for name in variant["properties"]})
    return {"properties": properties, "additionalProperties": 0}, typed
