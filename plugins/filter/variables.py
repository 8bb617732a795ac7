# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters that find misspelt variables of a role or playbook, and options in the wrong place."""

from __future__ import annotations

import difflib
import ipaddress
import re
import typing as t
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import yaml
from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.texts import kind_of

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
LIKENESS = 0.85
"""How alike, from 0 to 1, a variable and one of the role have to be so that the former is taken for a misspelling."""


WORDS = "_raw_params"
"""The variable in which Ansible keeps the words of C(-e) that are no NAME=VALUE."""


def unknown_variables(
    names: Collection[str],
    known: Iterable[str],
    prefix: str,
    mappings: Mapping[str, t.Any] | None = None,
    lists: Mapping[str, t.Any] | None = None,
    shortened: Mapping[str, Sequence[t.Any]] | None = None,
    networks: Mapping[str, t.Any] | None = None,
    elsewhere: Mapping[str, str] | None = None,
) -> list[str]:
    """Return a sentence for each name that starts with prefix or is like a known name, and is not known, and for each
    of mappings, of lists (of mappings) and of networks (lists of them), variables with their values, that is something
    else.

    shortened are names without the first word of the role, as the playbooks are called: C(drain_state) for
    C(node_drain_state). Each has a list of its value, the value of the role's variable, its default, and its other
    choices, if any. It may be a variable of the user's own, from which that of the role is set.

    elsewhere are options that none of mappings may have, with the variables that set them. The role passes these to the
    module, which would ignore the others: C(state: active) of a drain would empty the node.

    Ansible ignores variables that nobody uses, so that without this a misspelt one would have no effect. It takes the
    value of C(-e NAME=VALUE) as text. Ansible's own variables are left out: they are many, and comparing is slow.
    """
    there = sorted(known)
    folded = {each.casefold(): each for each in there}
    of_letters = {_letters(each): each for each in there}
    sentences = []
    if WORDS in names:
        sentences.append(
            "-e has a word that is not NAME=VALUE; quote a value that contains spaces, or separate the items of a list "
            "with commas"
        )
    for name, (value, own, default, *others) in (shortened or {}).items():
        if own in (None, "", default) and _asks_for_more(value, default, others):
            sentences.append(f"unknown variable {name}; did you mean {prefix.partition('_')[0]}_{name}?")
    for name in sorted(name for name in set(names).difference(there) if not name.startswith("ansible_")):
        text = name.casefold()
        ours = text.startswith(prefix)
        alike = [of_letters[_letters(name)]] if _letters(name) in of_letters else []
        alike += [
            folded[each] for each in difflib.get_close_matches(text, folded, n=1, cutoff=0.6 if ours else LIKENESS)
        ]
        if alike and (ours or not (_extends(text, alike[0]) or _extends(alike[0], text))):
            sentences.append(f"unknown variable {name}; did you mean {alike[0]}?")
        elif ours:
            sentences.append(f"unknown variable {name}; known variables: {', '.join(there)}")
    for name, value in (mappings or {}).items():
        if not isinstance(value, Mapping):
            sentences.append(f"{name}: expected a mapping, such as {{api_port: 8006}}, got {kind_of(value)}")
            continue
        for option, variable in (elsewhere or {}).items():
            if value.get(option) is not None:
                sentences.append(f"{name}: {option} has no effect there; use {variable} instead")
    for name, value in (lists or {}).items():
        sentences += _wrong_items(name, value)
    for name, value in (networks or {}).items():
        sentences += _wrong_networks(name, value)
    return sentences


def _wrong_networks(name: str, value: t.Any) -> Iterator[str]:
    """Yield a sentence for each item of a list, or of a text that separates them by commas, that is no network."""
    if value in (None, ""):
        return
    for item in _items(value, [value]):
        text = str(item).strip()
        try:
            ipaddress.ip_network(text, strict=False)
        except ValueError:
            yield f"{name}: expected networks, such as 192.0.2.0/24, got {text or 'an empty text'}"


def _items(value: t.Any, otherwise: Sequence[t.Any]) -> Sequence[t.Any]:
    """Return the items of a list, or of a text that separates them by commas; otherwise for any other value."""
    return value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else otherwise


def _wrong_items(name: str, value: t.Any) -> Iterator[str]:
    """Yield a sentence if a value is no list, and one for each item of it that is not a mapping."""
    if not isinstance(value, (list, tuple)):
        hint = "; -e NAME=VALUE always passes a string; use -e @FILE" if isinstance(value, str) else ""
        yield f"{name}: expected a list of mappings, such as [{_ITEM}], got {kind_of(value)}{hint}"
        return
    for number, item in enumerate(value):
        if not isinstance(item, Mapping):
            hint = "; put a space after the colon" if isinstance(item, str) and ":" in item else ""
            yield f"{name}[{number}]: expected a mapping, such as {_ITEM}, got {kind_of(item)}{hint}"


_ITEM = "{name: web-1, memory: 2048}"


def _asks_for_more(value: t.Any, default: t.Any, others: Collection[t.Any]) -> bool:
    """Whether a value asks for something else than the default, and can be meant for the option."""
    if isinstance(default, bool):
        try:
            return bool(boolean(value) != default)
        except TypeError:
            return False
    if isinstance(default, list):
        return any(item in others if others else isinstance(item, Mapping) for item in _items(value, ()))
    return isinstance(value, str) and value not in ("", default) and (not others or value in others)


def role_variables(path: str) -> list[str]:
    """Return the names of the variables that a role declares: the options of its argument spec, and its vars.

    path is the folder of the role. Ansible's own filter from_yaml is slow, as it records where each value comes from.
    """
    spec, own = (
        yaml.load(Path(path, *file).read_bytes(), Loader=LOADER)
        for file in (("meta", "argument_specs.yml"), ("vars", "main.yml"))
    )
    return [*spec["argument_specs"]["main"]["options"], *own]


def _letters(name: str) -> str:
    """Return the letters of a name, in order: the same for C(qemuVms), C(QEMU_VMS) and C(vms_qemu)."""
    return "".join(sorted(name.casefold().replace("_", "")))


OPTIONS = frozenset(
    (
        "ciuser",
        "cipassword",
        "clone",
        "cores",
        "hostpci",
        "ide",
        "ipconfig",
        "memory",
        "node_regex",
        "ostype",
        "sata",
        "scsi",
        "scsihw",
        "sockets",
        "sshkeys",
        "storage_class",
        "topology_spread",
        "virtio",
        "vmid_range",
        "vmid_regex",
    )
)
"""Options without which a VM is another one or is elsewhere. Those whose names are common for variables of something
else are left out, such as C(tolerations) and C(affinity) of Kubernetes, C(bios) and C(net)."""


GUARDS = frozenset(("only_pool", "only_tags"))
"""Options without which a VM is removed that must not be."""
PREFIX = re.compile(r"^(qemu|provision|proxmox)_", re.IGNORECASE)
"""What the names of guards do not start with, but those of the variables beside them do."""


def stray_options(names: Collection[str], vms: t.Any, options: t.Any, removal: bool = False) -> list[str]:
    """Return a sentence for each variable that is named like an option of VMs which none of them has, and like a guard
    that a VM to be removed does not have. With removal, all of vms are removed, and only guards matter.

    A variable that an entry takes its value from, as in C(memory: "{{ memory }}"), is none of these. What is no list of
    mappings, and no mapping, is refused elsewhere.
    """
    if not isinstance(vms, (list, tuple)) or not vms:
        return []
    common = options if isinstance(options, Mapping) else {}
    entries = [{**common, **_set_options(vm)} for vm in vms]
    stray = {}
    if not removal:
        stray = {name: name for name in OPTIONS.intersection(names).difference(*entries)}
    doomed = [entry for entry in entries if removal or "absent" in (entry.get("state"), entry.get("surplus"))]
    lost = {_letters(guard): guard for guard in GUARDS if any(entry.get(guard) is None for entry in doomed)}
    for name in names:
        # A misspelt guard protects nothing.
        if alike := difflib.get_close_matches(_letters(PREFIX.sub("", name)), lost, n=1, cutoff=0.9):
            stray[name] = lost[alike[0]]
    where = "in qemu_options or in an entry of qemu_vms"
    return [
        f"variable {name} has no effect on the VMs; expected {'it' if name == meant else meant} {where}"
        for name, meant in sorted(stray.items())
    ]


def _set_options(vm: t.Any) -> dict[str, t.Any]:
    """Return the options of an entry that it sets: those that are null leave what all entries have in common."""
    return {key: value for key, value in vm.items() if value is not None} if isinstance(vm, Mapping) else {}


def _extends(name: str, known: str) -> bool:
    """Whether name is a variable of the user's own that is called after a known one, such as my_qemu_options."""
    words = f"_{name.strip('_')}_"
    return f"_{known}_" in words and words != f"_{known}_"


class FilterModule:
    """The filters by their names."""

    def filters(self) -> dict[str, Callable[..., list[str]]]:
        return {
            "role_variables": role_variables,
            "stray_options": stray_options,
            "unknown_variables": unknown_variables,
        }
