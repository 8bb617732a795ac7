# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the JSON Schemas in docs/schemas from the code: of plans from the tables that check them, of results from the
documentation of modules, and of lists of VMs from the argument specs.

usage: .venv/bin/python hack/generate_schemas.py [--check]
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

# This also makes the collection importable.
from generate_docs import CHECKOUT, bring_up_to_date
from vm_option_schemas import PLUGINS, TEMPLATE, Schema, known_schemas, numbered, or_null

SCHEMAS = CHECKOUT / "docs" / "schemas"

WORDS = ("y", "yes", "on", "true", "t", "n", "no", "off", "false", "f")

DRAFT = "http://json-schema.org/draft-07/schema#"

BOOLEAN = rf"^\s*({'|'.join(''.join(f'[{each.upper()}{each}]' for each in word) for word in WORDS)}|[01])\s*$"
"""A boolean as a text. Ansible does not regard its case; a pattern in a JSON Schema does."""

PLAIN: Mapping[str, Schema] = {
    "str": {"type": ["string", "number", "boolean"]},
    "path": {"type": "string"},
    "int": {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": r"^\d+$"}]},
    "float": {"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^\s*\d+(\.\d*)?\s*$"}]},
    "bool": {"anyOf": [{"type": "boolean"}, {"enum": [0, 1]}, {"type": "string", "pattern": BOOLEAN}]},
    "dict": {"type": "object"},
    "raw": {},
}
RETURNED: Mapping[str, str] = {
    "str": "string", "int": "integer", "float": "number", "bool": "boolean", "dict": "object", "list": "array",
}  # fmt: skip


# --- options ---


def option_schema(spec: Mapping[str, Any], docs: Mapping[str, Any]) -> Schema:
    """The schema of an option of a module or role."""
    schema = _value(spec, docs)
    kind = schema.get("type")
    if kind in ("array", "object"):
        # A template, and for lists a text with commas.
        schema["type"] = [kind, "string"]
    elif schema and spec.get("type") not in ("str", "path"):
        schema = {"anyOf": [*(schema["anyOf"] if list(schema) == ["anyOf"] else [schema]), TEMPLATE]}
    return {**_described(docs), **schema}


def _described(docs: Mapping[str, Any]) -> Schema:
    about = docs.get("description")
    text = _plain(about if isinstance(about, str) else " ".join(about or ()))
    return {"description": text} if text else {}


def _value(spec: Mapping[str, Any], docs: Mapping[str, Any]) -> Schema:
    if spec.get("type") == "list":
        item = {"type": spec.get("elements", "raw"), **{k: spec[k] for k in ("options", "choices") if k in spec}}
        of_one = {key: each for key, each in docs.items() if key == "suboptions"}
        return {"type": "array", "items": option_schema(item, of_one)}
    if "choices" in spec:
        # Ansible makes a text of a number such as 2.0.
        numbers = [json.loads(each) for each in map(str, spec["choices"]) if re.fullmatch(r"\d+(\.\d+)?", each)]
        return {"anyOf": [{"enum": [*spec["choices"], *numbers]}, TEMPLATE]}
    if "options" in spec:
        return options_schema(spec["options"], docs.get("suboptions") or {})
    return dict(PLAIN[spec.get("type", "str")])


def options_schema(
    specs: Mapping[str, Mapping[str, Any]], docs: Mapping[str, Any], known: Mapping[str, Schema] | None = None
) -> Schema:
    """The schema of a mapping of options, with their aliases. known are those that are defined elsewhere."""
    properties = {name: option_schema(spec, docs.get(name) or {}) for name, spec in sorted(specs.items())}
    properties = {name: each if specs[name].get("required") else or_null(each) for name, each in properties.items()}
    properties |= {name: {"$ref": f"#/definitions/{name}"} for name in properties.keys() & (known or {}).keys()}
    aliases = {alias: properties[name] for name, spec in specs.items() for alias in spec.get("aliases", ())}
    required = sorted(name for name, spec in specs.items() if spec.get("required"))
    return {
        "type": "object",
        "properties": {**properties, **aliases},
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def vms() -> Schema:
    """A file of variables with a list of VMs, for the roles provision and teardown and for the playbooks."""
    common = importlib.import_module(f"{PLUGINS}.module_utils.workflow.options.common")
    module = importlib.import_module(f"{PLUGINS}.modules.qemu_schedule")
    docs = options_of("qemu_schedule")
    known = {name: {**_described(docs.get(name) or {}), **or_null(schema)} for name, schema in known_schemas().items()}
    entry = {**options_schema({**common.ONE_VM_OPTIONS, **common.COUNT_OPTIONS}, docs, known), "allOf": numbered()}
    options = options_schema({k: v for k, v in module.argument_spec().items() if k != "vms"}, docs, known)
    role = yaml.safe_load((CHECKOUT / "roles/provision/meta/argument_specs.yml").read_text(encoding="utf-8"))
    variables = {
        name: or_null(option_schema(spec, spec))
        for name, spec in role["argument_specs"]["main"]["options"].items()
        if name.startswith("provision_")
    }
    return {
        "title": "VMs for the playbooks and roles of qemu_scheduler.proxmox",
        "type": "object",
        "definitions": {"vm": entry, **known},
        "properties": {
            "qemu_vms": {**TEMPLATE, "type": ["array", "string"], "items": {"$ref": "#/definitions/vm"}},
            "qemu_options": {**TEMPLATE, **options, "type": ["object", "string"]},
            **variables,
        },
        # A misspelt variable of the role. Files may have others.
        "patternProperties": {rf"^provision_(?!({'|'.join(name[10:] for name in variables)})$)": False},
        "required": ["qemu_vms"],
    }


def options_of(name: str) -> dict[str, Any]:
    """The documented options of a module, those of its fragments included."""
    documentation = yaml.safe_load(importlib.import_module(f"{PLUGINS}.modules.{name}").DOCUMENTATION)
    found: dict[str, Any] = {}
    for fragment in documentation.get("extends_documentation_fragment", ()):
        file, part = [*fragment.split(".")[2:], "documentation"][:2]
        text = getattr(importlib.import_module(f"{PLUGINS}.doc_fragments.{file}").ModuleDocFragment, part.upper())
        found.update(yaml.safe_load(text).get("options") or {})
    return {**found, **documentation["options"]}


# --- results ---


def returned_schema(docs: Mapping[str, Any]) -> Schema:
    """The schema of returned values. Each may be null or missing, as the documentation says in words. A result may have
    further keys: a minor release adds some.
    """
    return {"type": "object", "properties": {name: _returned(each) for name, each in docs.items()}}


def _returned(docs: Mapping[str, Any]) -> Schema:
    kind = RETURNED[docs["type"]]
    about = docs["description"]
    schema: Schema = {
        "description": _plain(about if isinstance(about, str) else " ".join(about)),
        "type": [kind, "null"],
    }
    nested = returned_schema(docs["contains"]) if "contains" in docs else None
    if kind == "array":
        schema["items"] = nested or {"type": RETURNED[docs["elements"]]}
    elif nested is not None:
        schema["properties"] = nested["properties"]
    return schema


def returns_of(name: str) -> dict[str, Any]:
    """The documented result of a module."""
    documented: dict[str, Any] = yaml.safe_load(importlib.import_module(f"{PLUGINS}.modules.{name}").RETURN)
    return documented


def decision() -> Schema:
    """The decision about a VM in the result of qemu_schedule."""
    docs = returns_of("qemu_schedule")["vms"]["contains"]["decision"]
    return {"title": "decision of qemu_scheduler.proxmox.qemu_schedule", **_returned(docs)}


def fleet() -> Schema:
    """The result of fleet_info, without what Ansible adds."""
    return {"title": "result of qemu_scheduler.proxmox.fleet_info", **returned_schema(returns_of("fleet_info"))}


# --- plans ---


def documents() -> dict[str, Schema]:
    """The schemas of the documents that the modules write and read."""
    table = importlib.import_module(f"{PLUGINS}.module_utils.workflow.documents")
    premises = importlib.import_module(f"{PLUGINS}.module_utils.workflow.moves.plan_document").PREMISES
    found = {}
    for name, module, keys in (
        ("plan-of-moves", "moves.plan_document", "PLAN"),
        ("plan-of-vms", "vm_plan", "PLAN"),
        ("tour", "maintenance.tour_document", "TOUR"),
    ):
        code = importlib.import_module(f"{PLUGINS}.module_utils.workflow.{module}")
        schema = table.document_schema(code.FORMAT, getattr(code, keys))
        schema["properties"].setdefault("assumes", table.keys_schema(premises))
        schema["required"] = sorted({*schema["required"], "assumes"})
        found[name] = {"title": code.FORMAT, **schema}
    return found


# --- files ---


def _plain(text: str) -> str:
    """A text without Ansible's markup."""
    return re.sub(r"\b[A-Z]\(((?:[^()]|\([^()]*\))*)\)", r"\1", " ".join(text.split()))


def schemas() -> dict[Path, str]:
    """The text of each file."""
    made = {**documents(), "decision": decision(), "fleet": fleet(), "vms": vms()}
    return {
        SCHEMAS / f"{name}.json": json.dumps({"$schema": DRAFT, **schema}, indent=1, ensure_ascii=False) + "\n"
        for name, schema in made.items()
    }


if __name__ == "__main__":
    sys.exit(bring_up_to_date(schemas))
