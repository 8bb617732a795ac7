# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Placement rules that guests carry as tags, in the convention of ProxLB. Pure functions.

Proxmox stores tags with the guest, so these rules last longer than the run that set them, and hold for guests that
another tool or a person made.

========================= ==================================================================
C(plb_affinity_NAME)      the guests with this tag are on one node
C(plb_anti_affinity_NAME) no two guests with this tag are on one node
C(plb_pin_NODE)           the guest is on this node; with several such tags, on one of them
C(plb_ignore), ..._NAME   the guest is never moved
========================= ==================================================================

Proxmox writes tags in lower case, so case is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..model import AffinityTerm, Selector

AFFINITY = "plb_affinity_"
ANTI_AFFINITY = "plb_anti_affinity_"
PIN = "plb_pin_"
IGNORE = "plb_ignore"


def ignored(tags: Iterable[str]) -> str | None:
    """Return the tag that keeps a guest from being moved, or None."""
    return next((tag for tag in sorted(tags) if tag.lower() == IGNORE or tag.lower().startswith(f"{IGNORE}_")), None)


def terms_of(tags: Iterable[str]) -> tuple[AffinityTerm, ...]:
    """Return the affinity rules of a guest with these tags, in the order of the tags."""
    terms = []
    for tag in sorted(tag.lower() for tag in tags):
        for prefix, together in ((AFFINITY, True), (ANTI_AFFINITY, False)):
            if tag.startswith(prefix) and len(tag) > len(prefix):
                terms.append(AffinityTerm(together, Selector(tags=frozenset({tag}))))
    return tuple(terms)


def pins_of(tags: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the nodes that the tags pin a guest to, in lower case."""
    pins = (tag.lower().removeprefix(PIN) for tag in tags if tag.lower().startswith(PIN))
    return tuple(sorted(pin for pin in pins if pin))
