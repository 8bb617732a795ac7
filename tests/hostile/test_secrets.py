# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of a wrong shape, with a secret in them: no output of a module shows it."""

from __future__ import annotations

import json
import random
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.secret_options import secret_names

from .modules import run_module, spec_of

MODULES = [
    "capacity_info", "ceph_flag", "cluster_power", "cluster_rebalance", "cluster_snapshot_info", "fleet_info",
    "maintenance_tour", "node_drain", "node_health_info", "qemu_schedule", "vm_address_info", "vmid_pick",
]  # fmt: skip
SECRET = "Zq9-shape-secret"
CONNECTION = {"api_host": ["127.0.0.1:1"], "api_user": "root@pam", "api_token_id": "t", "api_timeout": 1}


def shapes(name: str) -> Iterator[t.Any]:
    """A secret option of this name with its value, in every shape."""
    pair = {name: SECRET}
    text = json.dumps(pair)
    yield from (pair, {"x1": pair}, {"x1": [pair]}, [[pair]], [{"x": {"y": [pair]}}], {1: {"x": pair}})
    yield from ([pair, 5], [5, pair], text, [text], f"[{text}]", f"{name}: {SECRET}")
    yield from (f"{name}={SECRET}", f"x=1 {name}='{SECRET}'", [f"x=1,{name}={SECRET}"])
    yield from ({name: [SECRET]}, {name: {SECRET: 1}}, {name: {"x": [SECRET]}}, [{name: [[SECRET]]}])


def values(spec: dict[str, t.Any]) -> Iterator[tuple[str, t.Any]]:
    """Options with a value that contains the secret."""
    names = sorted(secret_names(spec))
    own = ([SECRET], {SECRET: 1}, {"x": SECRET}, [[SECRET]], [{"x": SECRET}])
    for option, details in spec.items():
        found = own if details.get("no_log") else (shape for name in names for shape in shapes(name))
        yield from ((option, shape) for shape in found)


def nested(spec: dict[str, t.Any]) -> Iterator[tuple[str, t.Any]]:
    """The options of options, each in every shape, where they belong; beside them, a secret that has the right one."""
    for option, details in spec.items():
        inner_spec = details.get("options") or {}
        beside = {name: SECRET for name in inner_spec if inner_spec[name].get("no_log")}
        for inner, shape in values(inner_spec):
            body = {"name": "x", **beside, inner: shape}
            yield option, [body] if details["type"] == "list" else body


@pytest.fixture(autouse=True)
def _in_an_own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options that name files get shapes that are names of files, too."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("module", MODULES)
def test_secret__is_never_shown_whatever_the_shape(module: str) -> None:
    spec = spec_of(module)
    cases = [*values(spec), *nested(spec)]
    # All of them take minutes.
    for option, value in random.Random(module).sample(cases, min(len(cases), 150)):
        result = run_module(module, {**CONNECTION, "api_token_secret": "other", option: value})
        assert SECRET not in json.dumps(result), (option, value, result)


@pytest.mark.parametrize(
    "given",
    [
        {"clusters": {"a": {"api_token_secret": SECRET, "api_host": "x"}}},
        {"vms": {"x1": {"cipassword": SECRET}}},
        {"vms": f"x1 cipassword={SECRET}"},
        {"api_host": f"https://root:{SECRET}@127.0.0.1"},
        {"api_host": [f"root:{SECRET}@127.0.0.1:1"]},
        {"api_host": f"https://{SECRET}@127.0.0.1/"},
        {"api_host": f"https://root:pass@{SECRET}@127.0.0.1"},
        {"api_token_id": f"ansible={SECRET}"},
        {"api_token_id": f"root@pam!ansible={SECRET}"},
        {"api_token_id": f"PVEAPIToken=root@pam!ansible={SECRET}"},
        {"api_token_id": f"ansible {SECRET}"},
        {"api_token_id": f"ansible:{SECRET}"},
        {"api_token_id": f"root@pam!ansible!{SECRET}"},
        {"api_token_id": f"ansible,{SECRET}"},
        {"api_token_id": ["ansible", SECRET]},
        {"api_user": f"root@pam,{SECRET}"},
        {"api_user": f"root/{SECRET}@pam"},
        {"api_user": f"root@pam!ansible={SECRET}"},
        {"api_user": f"root:{SECRET}@pam"},
        {"api_host": f"root%40pam:{SECRET}%40127.0.0.1"},
        {"api_host": f"127.0.0.1?password={SECRET}"},
        {"api_host": ["127.0.0.1", f"root:{SECRET}"]},
        {"api_host": f"root:a,{SECRET}@127.0.0.1"},
        {"api_host": {"root": SECRET}},
        {"api_port": SECRET},
        {"api_port": [SECRET]},
        {"api_timeout": SECRET},
        {"api_port": f"a\\'{SECRET}\n\x1b"},
        {"api_port": {f"a\\'{SECRET}\n": 1}},
        {"validate_certs": f"a\0{SECRET}'"},
        {"progress_file": f"//me:a/{SECRET}@x"},
        {"validate_certs": SECRET},
        {"ca_path": SECRET},
        {"ca_path": f"https://root:{SECRET}@127.0.0.1/ca.pem"},
        {"ca_path": f"/{SECRET}@x"},
        {"api_user": {"root": SECRET}},
        {"reservations": SECRET},
        {"reservations": {"postgresql": SECRET}},
        {"reservations": f"postgresql://me:{SECRET}"},
        {"reservations": f"postgresql://me:{SECRET}@127.0.0.1:1/x"},
        {"reservations": f"postgresql://127.0.0.1:1/x?passw%6frd={SECRET}"},
        {"reservations": f"postgresql://127.0.0.1:1/x?sslpassword={SECRET}"},
        {"reservations": f"postgresql://127.0.0.1:1/x?{SECRET}=1"},
        {"reservations": f"sqlite:///x?key={SECRET}"},
        {"reservations": f"https://me:{SECRET}"},
        {"snapshot": f"https://me:{SECRET}@x/y"},
        {"snapshot": f"https://x/y?key={SECRET}"},
        {"apply": f"https://me:{SECRET}@x/{'y' * 200}"},
        {"apply": f"me:{SECRET}@x:/y"},
        {"plan_file": f"https://me:{SECRET}@x/y"},
        {"progress_file": f"https://me:{SECRET}@x/y"},
        {"plugin_config": f"https://me:{SECRET}'@x/y"},
        {"plugin_paths": f"https://me:{SECRET}@x/y"},
        {"clusters": [{"name": "a", "api_host": ["a"], "api_port": SECRET}, {"name": "b", "api_host": ["b"]}]},
        {"clusters": [{"name": "a", "api_host": [f"https://root:{SECRET}@a"]}, {"name": "b", "api_host": ["b"]}]},
        {"clusters": [{"name": "a", "api_host": ["a"], "api_token_id": f"t={SECRET}"}]},
    ],
)
def test_secret__in_an_option_that_is_none_is_not_quoted(given: dict[str, t.Any]) -> None:
    for module in ("qemu_schedule", "fleet_info"):
        options = {**CONNECTION, "api_token_secret": "other", **({} if "vms" in given else {"vms": [{"name": "x"}]})}
        if "clusters" in given:
            options.pop("api_host")
        if given.keys() - spec_of(module).keys():
            continue
        result = run_module(module, {**options, **given}, check_mode="plan_file" not in given)
        assert result["failed"]
        assert SECRET not in json.dumps(result), result


@pytest.mark.parametrize(
    "variable",
    ["PROXMOX_HOST", "PROXMOX_PORT", "PROXMOX_USER", "PROXMOX_TOKEN_ID", "PROXMOX_CA_PATH", "PROXMOX_TIMEOUT"],
)
def test_secret__in_the_wrong_variable_of_the_environment_is_not_quoted(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, f"root@pam:{SECRET}@x")
    option = variable.lower().replace("proxmox_", "api_").replace("api_ca_path", "ca_path")
    given = {key: value for key, value in CONNECTION.items() if key != option}
    result = run_module("vmid_pick", {**given, "api_token_secret": "other"})
    assert result["failed"]
    assert SECRET not in json.dumps(result), result


def test_secret__alone_as_the_name_of_a_token_is_not_quoted() -> None:
    secret = "0f3bd1ac-2c1f-4c4e-9d9b-0a1b2c3d4e5f"
    result = run_module("vmid_pick", {**CONNECTION, "api_token_secret": "other", "api_token_id": secret})
    assert result["msg"].startswith("api_token_id: expected the name of a token")
    assert secret not in json.dumps(result)
