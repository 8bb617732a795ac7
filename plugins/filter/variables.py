# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A filter that finds misspelt variables of a role."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable


def unknown_variables(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return a sentence for each name that is not known, with the most similar known name."""
    there = sorted(known)
    sentences = []
    for name in sorted(set(names).difference(there)):
        alike = difflib.get_close_matches(name, there, n=1)
        hint = f"did you mean {alike[0]}?" if alike else f"known variables: {', '.join(there)}"
        sentences.append(f"unknown variable {name}; {hint}")
    return sentences


class FilterModule:
    """The filter by its name."""

    def filters(self) -> dict[str, Callable[..., list[str]]]:
        return {"unknown_variables": unknown_variables}
