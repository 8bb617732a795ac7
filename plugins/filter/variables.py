# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters that find misspelt variables of a role or playbook, and options in the wrong place."""

from __future__ import annotations

import difflib
import typing as t
from collections.abc import Callable, Iterable, Mapping

LIKENESS = 0.85
"""How alike, from 0 to 1, a variable and one of the role have to be so that the former is taken for a misspelling."""


def unknown_variables(
    names: Iterable[str], known: Iterable[str], prefix: str, mappings: Mapping[str, t.Any] | None = None
) -> list[str]:
    """Return a sentence for each name that starts with prefix or is like a known name, and is not known, and one for
    each of mappings, variables with their values, that is not a mapping.

    Ansible ignores variables that nobody uses, so that without this a misspelt one would have no effect. It takes the
    value of C(-e NAME=VALUE) as text.
    """
    there = sorted(known)
    folded = {each.casefold(): each for each in there}
    of_letters = {_letters(each): each for each in there}
    sentences = []
    for name in sorted(set(names).difference(there)):
        text = name.casefold()
        ours = text.startswith(prefix)
        alike = [of_letters[_letters(name)]] if _letters(name) in of_letters else []
        alike += [
            folded[each] for each in difflib.get_close_matches(text, folded, n=1, cutoff=0.6 if ours else LIKENESS)
        ]
        if alike and (ours or not _extends(text, alike[0])):
            sentences.append(f"unknown variable {name}; did you mean {alike[0]}?")
        elif ours:
            sentences.append(f"unknown variable {name}; known variables: {', '.join(there)}")
    return sentences + [
        f"{name}: expected a mapping, such as {{api_port: 8006}}"
        for name, value in (mappings or {}).items()
        if not isinstance(value, Mapping)
    ]


def _letters(name: str) -> str:
    """Return the letters of a name, in order: the same for C(qemuVms), C(QEMU_VMS) and C(vms_qemu)."""
    return "".join(sorted(name.casefold().replace("_", "")))


OPTIONS = frozenset(
    (
        "ciuser",
        "cipassword",
        "clone",
        "cores",
        "ide",
        "ipconfig",
        "memory",
        "net",
        "sata",
        "scsi",
        "sockets",
        "sshkeys",
        "virtio",
    )
)
"""Options without which a VM is another one, and whose names are hardly those of variables that mean something else."""


def stray_options(names: Iterable[str], vms: t.Any, options: t.Any) -> list[str]:
    """Return a sentence for each variable that is named like an option of VMs which none of them has.

    A variable that an entry takes its value from, as in C(memory: "{{ memory }}"), is none of these. What is no list of
    mappings, and no mapping, is refused elsewhere.
    """
    if not isinstance(vms, list) or not vms:
        return []
    had = {key for each in (*vms, options) if isinstance(each, Mapping) for key in each}
    return [
        f"variable {name} has no effect on the VMs; expected it in qemu_options or in an entry of qemu_vms"
        for name in sorted(OPTIONS.intersection(names) - had)
    ]


def _extends(name: str, known: str) -> bool:
    """Whether name is a variable of the user's own that is called after a known one, such as my_qemu_options."""
    words = f"_{name.strip('_')}_"
    return f"_{known}_" in words and words != f"_{known}_"


class FilterModule:
    """The filters by their names."""

    def filters(self) -> dict[str, Callable[..., list[str]]]:
        return {"stray_options": stray_options, "unknown_variables": unknown_variables}
