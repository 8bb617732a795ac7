# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of options and the kinds of property strings say what the schemas of the API say."""

from __future__ import annotations

import gzip
import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options import kinds
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options.conversions import (
    Boolean,
    Choice,
    Number,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options.drives import kind_of
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options.property_strings import (
    PropertyKind,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options.table import VM_OPTIONS
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.options.source_options import (
    LONGEST_ARCHIVE,
    LONGEST_SNAPSHOT,
)

SCHEMAS = Path(__file__).resolve().parents[3] / "simulated_cluster" / "data"
VERSIONS = ("8.4", "9.2")
KINDS = {
    "agent": kinds.AGENT,
    "audio0": kinds.AUDIO,
    "ivshmem": kinds.IVSHMEM,
    "spice_enhancements": kinds.SPICE_ENHANCEMENTS,
    "virtiofs[n]": kinds.VIRTIOFS,
    "machine": kinds.MACHINE,
    "net[n]": kinds.NET,
    "numa[n]": kinds.NUMA,
    "usb[n]": kinds.USB,
    "vga": kinds.VGA,
    **{key: kind_of(key.removesuffix("[n]")) for key in ("ide[n]", "sata[n]", "scsi[n]", "virtio[n]")},
    "efidisk0": kinds.EFIDISK,
    "tpmstate0": kinds.TPMSTATE,
}
TYPES = {"string": {"string", "set", "mac"}, "boolean": {"boolean"}, "integer": {"integer"}, "number": {"number"}}


def parameters(version: str, path: str, method: str) -> dict[str, t.Any]:
    with gzip.open(SCHEMAS / f"api-{version}.json.gz") as file:
        return t.cast("dict[str, t.Any]", json.load(file)[path][method]["parameters"]["properties"])


@pytest.fixture(scope="module", params=VERSIONS)
def create(request: pytest.FixtureRequest) -> dict[str, t.Any]:
    return parameters(request.param, "/nodes/{node}/qemu", "POST")


@pytest.mark.parametrize(("parameter", "kind"), KINDS.items())
def test_kind__knows_every_property_of_the_schema_with_its_type_choices_and_limits(
    create: dict[str, t.Any], parameter: str, kind: PropertyKind
) -> None:
    for name, schema in create[parameter]["format"].items():
        if schema.get("keyAlias"):
            assert kind.paired == (schema["keyAlias"], schema["alias"])
            assert name in kind.properties[schema["keyAlias"]].choices
            continue
        if "alias" in schema:
            assert kind.aliases.get(name, name) == kind.aliases.get(schema["alias"], schema["alias"])
            continue
        known = kind.properties[kind.aliases.get(name, name)]
        assert known.type in TYPES[schema["type"]], name
        assert known.choices == tuple(schema.get("enum", ())), name
        assert (known.minimum, known.maximum) == (schema.get("minimum"), schema.get("maximum")), name
        assert known.longest == schema.get("maxLength"), name
        if "default" in schema:
            assert known.default == str(schema["default"]), name
        if schema.get("default_key"):
            assert kind.default_key == name


@pytest.mark.parametrize(("parameter", "kind"), KINDS.items())
def test_kind__has_no_property_that_both_schemas_lack(parameter: str, kind: PropertyKind) -> None:
    known: set[str] = set()
    for version in VERSIONS:
        known |= set(parameters(version, "/nodes/{node}/qemu", "POST")[parameter]["format"])
    assert set(kind.properties) <= known


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("path", "method"), [("/nodes/{node}/qemu", "POST"), ("/nodes/{node}/qemu/{vmid}/config", "PUT")]
)
def test_every_option__is_a_parameter_of_create_and_of_update(version: str, path: str, method: str) -> None:
    known = parameters(version, path, method)
    families = {option.api: f"{option.api}[n]" for option in VM_OPTIONS if option.count} | {"audio": "audio0"}
    release = tuple(int(part) for part in version.split("."))
    expected = [option for option in VM_OPTIONS if option.since is None or option.since <= release]
    assert [option.name for option in expected if families.get(option.api, option.api) not in known] == []
    newer = [option for option in VM_OPTIONS if option not in expected]
    assert [option.name for option in newer if option.api in known] == []


def test_options__have_the_types_limits_and_defaults_of_the_schema(create: dict[str, t.Any]) -> None:
    for option in VM_OPTIONS:
        schema = create.get(option.api)
        if schema is None or option.name in ("agent", "hotplug", "machine", "memory"):
            continue
        conversion = option.conversion
        if isinstance(conversion, Boolean):
            assert schema["type"] == "boolean"
        elif isinstance(conversion, Number):
            assert schema["type"] == ("integer" if conversion.whole else "number")
            assert conversion.minimum == schema["minimum"], option.name
            assert conversion.maximum == schema.get("maximum"), option.name
        elif isinstance(conversion, Choice):
            assert set(conversion.choices) == set(schema["enum"]), option.name
        # Defaults that are words about a default, or that mean "not set", cannot be compared.
        if option.default is not None and "default" in schema:
            assert str(option.default) == str(schema["default"]), option.name


def test_options__have_the_lengths_of_the_schema(create: dict[str, t.Any]) -> None:
    lengths = {option.api: option.longest for option in VM_OPTIONS if option.api in create}
    assert lengths == {name: create[name].get("maxLength") for name in lengths}
    assert create["archive"]["maxLength"] == LONGEST_ARCHIVE


@pytest.mark.parametrize("version", VERSIONS)
def test_snapshots__have_the_lengths_of_the_schema(version: str) -> None:
    assert parameters(version, "/nodes/{node}/qemu/{vmid}/clone", "POST")["snapname"]["maxLength"] == LONGEST_SNAPSHOT


def test_numbers_of_drive_slots__are_those_that_resize_takes() -> None:
    slots = parameters("9.2", "/nodes/{node}/qemu/{vmid}/resize", "PUT")["disk"]["enum"]
    for family in VM_OPTIONS:
        if family.name in ("ide", "sata", "scsi", "virtio"):
            assert [slot for slot in slots if slot.rstrip("0123456789") == family.name] == [
                f"{family.name}{index}" for index in range(family.count)
            ]
