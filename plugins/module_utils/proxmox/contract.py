# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which keys of Proxmox's answers about HA and moves this version knows.

What it does not know is never read as the usual: the code that reads such an answer calls unknown_in, and treats what
the answer is about as neither movable nor placeable.

Each key is USED, or has the reason why it can be ignored. A test compares the tables with Proxmox's API description.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

USED = ""

_ADMINISTRATIVE: Mapping[str, str] = {
    "comment": "text of the user",
    "digest": "the binder does not change these sections by digest",
    "order": "the rules are sorted by name",
    "state": "repeats disable and errors",
}

RULES: Mapping[str, Mapping[str, str]] = {
    "node-affinity": {
        **_ADMINISTRATIVE,
        **dict.fromkeys(("rule", "type", "resources", "nodes", "affinity", "strict", "disable", "errors"), USED),
    },
    "resource-affinity": {
        **_ADMINISTRATIVE,
        **dict.fromkeys(("rule", "type", "resources", "affinity", "disable", "errors"), USED),
    },
}
"""The keys of HA rules by the types of rules."""

AFFINITIES = frozenset({"positive", "negative"})

GROUP: Mapping[str, str] = {
    **_ADMINISTRATIVE,
    **dict.fromkeys(("group", "nodes", "restricted", "nofailback"), USED),
    "type": "there is one type only",
}

RESOURCE: Mapping[str, str] = {
    **_ADMINISTRATIVE,
    **dict.fromkeys(("sid", "group", "failback", "state"), USED),
    "type": "sid begins with it",
    "errors": "a group that is missing: the HA manager then moves it as if it had none",
    "max_relocate": "concerns failed starts, not moves",
    "max_restart": "concerns failed starts, not moves",
}

REQUESTED_STATES = frozenset({"started", "stopped", "enabled", "disabled", "ignored"})

CRS_MODES = frozenset({"basic", "static", "dynamic"})

CRS: Mapping[str, str] = {
    "ha-auto-rebalance": USED,
    "ha": USED,
    "ha-rebalance-on-start": "concerns guests that start, not moves",
    **dict.fromkeys(
        (
            "ha-auto-rebalance-hold-duration",
            "ha-auto-rebalance-margin",
            "ha-auto-rebalance-method",
            "ha-auto-rebalance-threshold",
        ),
        "when and how the HA manager rebalances: that it does is what matters",
    ),
}
"""The keys of crs in the datacenter's options."""

CHECK: Mapping[str, Mapping[str, str]] = {
    "qemu": {
        **dict.fromkeys(
            (
                "allowed_nodes",
                "dependent-ha-resources",
                "has-dbus-vmstate",
                "local_disks",
                "local_resources",
                "mapped-resource-info",
                "not_allowed_nodes",
                "running",
            ),
            USED,
        ),
        "mapped-resources": "mapped-resource-info has the same names",
    },
    "lxc": dict.fromkeys(("allowed-nodes", "dependent-ha-resources", "not-allowed-nodes", "running"), USED),
}
"""The keys of the check that Proxmox makes before a move, by the kind of the guest."""

NOT_ALLOWED: Mapping[str, str] = dict.fromkeys(
    ("unavailable_storages", "unavailable-resources", "blocking-ha-resources"), USED
)
"""The reasons for which that check refuses a node."""

LOCAL_DISK: Mapping[str, str] = {
    **dict.fromkeys(("volid", "size", "cdrom", "drivename", "is_unused", "referenced_in_snapshot", "replicate"), USED),
    **dict.fromkeys(
        ("is_attached", "is_cloudinit", "is_tpmstate", "is_vmstate", "shared", "bootorder", "format"),
        "what the move does with the volume does not depend on it, or its name shows the same",
    ),
}
"""The keys of a row of local_disks in that check."""

MIGRATION: Mapping[str, Mapping[str, str]] = {
    "qemu": {
        **dict.fromkeys(("node", "vmid", "target", "online", "targetstorage", "bwlimit", "with-local-disks"), USED),
        "with-conntrack-state": USED,
        **dict.fromkeys(("force", "migration_network", "migration_type"), "for root only"),
    },
    "lxc": {
        **dict.fromkeys(("node", "vmid", "target", "restart", "target-storage", "bwlimit"), USED),
        "online": "containers cannot move live",
        "timeout": "the default of Proxmox VE for the shutdown is used",
    },
}
"""The parameters of migrations, by the kind of the guest."""


def unknown_in(row: Mapping[str, t.Any], known: Mapping[str, str]) -> str:
    """Return a key of the row that this version does not know, as a noun for messages, or nothing.

    An empty value says nothing, whatever its key.
    """
    key = next((key for key in sorted(row) if key not in known and row[key] not in (None, "", 0, False, [], {})), None)
    return "" if key is None else f"the key {key!r}"
