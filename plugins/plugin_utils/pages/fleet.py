# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The view of a result of fleet_info, for a page."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible_collections.qemu_scheduler.proxmox.plugins.filter.fleet import OK, what_of, worst_first


def fleet(result: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the view of a result, the worst VMs first. With several clusters, nodes are named as C(cluster/node)."""
    summary = result["summary"]
    found = [*result["vms"], *result["unmanaged"]]
    return {
        "clean": result["clean"],
        "as_requested": summary[OK],
        "states": {state: count for state, count in summary.items() if count},
        "clusters": sorted({vm["cluster"] for vm in found if vm.get("cluster")}),
        "vms": [{**_placement(vm), "what": what_of(vm)} for vm in worst_first(result)],
        "unmanaged": [_placement(vm) for vm in result["unmanaged"]],
        "doubts": result.get("doubts") or [],
    }


def _placement(vm: Mapping[str, t.Any]) -> dict[str, t.Any]:
    return {**vm, "node": f"{vm['cluster']}/{vm['node']}" if vm.get("cluster") else vm["node"]}
