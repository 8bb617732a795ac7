# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the user must know about the HA manager before guests move: it moves guests, too, or has words for it that are
unknown.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...demand import ALLOCATED
from ...engine.texts import join_words
from ...model import Guest, Snapshot
from ...plans import Goals
from ...proxmox.api.reader import Reader
from ...proxmox.inventory.ha_state import read_crs


def ha_cautions(reader: Reader, snapshot: Snapshot, goals: Goals) -> tuple[str, ...]:
    """Return warnings, as sentences, for a snapshot with HA rules and resources. One request if HA manages guests."""
    if not any(guest.ha_managed for guest in snapshot.guests):
        return ()
    rules = [rule for rule in snapshot.ha_rules if rule.unknown and not rule.disabled]
    texts = [
        f"{rule.label} has {rule.unknown}, which this version of the collection does not know: its guests are not moved"
        for rule in rules
    ]
    texts += [
        f"the HA resource of guest {vmid} has {what}, which this version of the collection does not know: it stays"
        for vmid, what in sorted(snapshot.unknown_of_ha.items())
    ]
    crs = read_crs(reader)
    if crs.unknown:
        texts.append(
            f"the cluster resource scheduling (crs) of the datacenter has {crs.unknown}, which this version of the "
            "collection does not know: the HA manager may move guests by itself"
        )
    emptied = sorted(node.name for node in snapshot.nodes if node.name in goals.drain and not node.maintenance)
    if crs.auto_rebalance and emptied:
        texts.append(
            "the HA manager rebalances by itself (crs: ha-auto-rebalance), and will move guests back to "
            f"{join_words(emptied)}, which look empty to it; put these nodes into HA maintenance, or switch that off"
        )
    elif crs.auto_rebalance and goals.balance is not None and goals.balance.by != ALLOCATED:
        texts.append(
            "the HA manager rebalances by itself (crs: ha-auto-rebalance): the guests that it manages are left to it"
        )
    elif crs.auto_rebalance and (goals.balance is not None or goals.consolidate):
        texts.append(
            "the HA manager rebalances by itself (crs: ha-auto-rebalance), and may undo these moves; leave the guests "
            "that it manages to it, or switch that off"
        )
    return tuple(texts)


def guests_balanced_by_ha(reader: Reader, guests: Iterable[Guest]) -> frozenset[int]:
    """Return the guests that the HA manager balances by itself. One request if it manages any."""
    managed = frozenset(guest.vmid for guest in guests if guest.ha_managed)
    return managed if managed and read_crs(reader).auto_rebalance else frozenset()
