# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters that find misspelt variables of a role or playbook, and options in the wrong place."""

from __future__ import annotations

import difflib
import typing as t
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

import yaml

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
) -> list[str]:
    """Return a sentence for each name that starts with prefix or is like a known name, and is not known, and for each
    of mappings and of lists (of mappings), variables with their values, that is something else.

    Ansible ignores variables that nobody uses, so that without this a misspelt one would have no effect. It takes the
    value of C(-e NAME=VALUE) as text. Ansible's own variables are left out: they are many, and comparing is slow.
    """
    there = sorted(known)
    folded = {each.casefold(): each for each in there}
    of_letters = {_letters(each): each for each in there}
    # Playbooks leave out the first word of the role: drain.yml, and not node_drain.yml.
    first = prefix.partition("_")[0] if prefix.count("_") > 1 else ""
    shortened = {each.removeprefix(f"{first}_"): each for each in there if first and each.startswith(prefix)}
    sentences = []
    if WORDS in names:
        sentences.append("-e has a word that is not NAME=VALUE; put quotes around a value with spaces, or use commas")
    for name in sorted(name for name in set(names).difference(there) if not name.startswith("ansible_")):
        text = name.casefold()
        ours = text.startswith(prefix)
        alike = [of_letters[_letters(name)]] if _letters(name) in of_letters else []
        alike += [shortened[text]] if text in shortened else []
        alike += [
            folded[each] for each in difflib.get_close_matches(text, folded, n=1, cutoff=0.6 if ours else LIKENESS)
        ]
        if alike and (ours or not _extends(text, alike[0])):
            sentences.append(f"unknown variable {name}; did you mean {alike[0]}?")
        elif ours:
            sentences.append(f"unknown variable {name}; known variables: {', '.join(there)}")
    for name, value in (mappings or {}).items():
        if not isinstance(value, Mapping):
            sentences.append(f"{name}: expected a mapping, such as {{api_port: 8006}}, got {_kind(value)}")
    for name, value in (lists or {}).items():
        sentences += _wrong_items(name, value)
    return sentences


def _wrong_items(name: str, value: t.Any) -> Iterator[str]:
    """Yield a sentence if a value is no list, and one for each item of it that is not a mapping."""
    if not isinstance(value, (list, tuple)):
        hint = "; -e NAME=VALUE gives a text, and -e @FILE what the file has" if isinstance(value, str) else ""
        yield f"{name}: expected a list of mappings, such as [{_ITEM}], got {_kind(value)}{hint}"
        return
    for number, item in enumerate(value):
        if not isinstance(item, Mapping):
            hint = "; a space belongs behind the colon" if isinstance(item, str) and ":" in item else ""
            yield f"{name}[{number}]: expected a mapping, such as {_ITEM}, got {_kind(item)}{hint}"


_ITEM = "{name: web-1, memory: 2048}"


def _kind(value: t.Any) -> str:
    kinds = {str: "a text", list: "a list", dict: "a mapping", bool: "a boolean", type(None): "nothing"}
    return next((text for kind, text in kinds.items() if isinstance(value, kind)), "a number")


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
        "affinity",
        "bios",
        "ciuser",
        "cipassword",
        "clone",
        "cores",
        "hostpci",
        "ide",
        "ipconfig",
        "memory",
        "net",
        "node_affinity",
        "node_regex",
        "only_pool",
        "only_tags",
        "ostype",
        "sata",
        "scsi",
        "scsihw",
        "sockets",
        "sshkeys",
        "storage_class",
        "tolerations",
        "topology_spread",
        "virtio",
        "vmid_range",
        "vmid_regex",
    )
)
"""Options without which a VM is another one, is elsewhere, or is removed although it is none of those that may be, and
whose names are hardly those of variables that mean something else."""


GUARDS = frozenset(("only_pool", "only_tags"))
"""Options without which a VM is removed that must not be."""


def stray_options(names: Iterable[str], vms: t.Any, options: t.Any) -> list[str]:
    """Return a sentence for each variable that is named like an option of VMs which none of them has.

    A variable that an entry takes its value from, as in C(memory: "{{ memory }}"), is none of these. What is no list of
    mappings, and no mapping, is refused elsewhere.
    """
    if not isinstance(vms, list) or not vms:
        return []
    had = {key for each in (*vms, options) if isinstance(each, Mapping) for key in each}
    stray = {name: name for name in OPTIONS.intersection(names) - had}
    guards = {_letters(each): each for each in GUARDS - had}
    for name in set(names).difference(GUARDS):
        # A misspelt guard protects nothing.
        if alike := difflib.get_close_matches(_letters(name), guards, n=1, cutoff=0.9):
            stray[name] = guards[alike[0]]
    where = "in qemu_options or in an entry of qemu_vms"
    return [
        f"variable {name} has no effect on the VMs; expected {'it' if name == meant else meant} {where}"
        for name, meant in sorted(stray.items())
    ]


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
