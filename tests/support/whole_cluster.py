# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A recorded cluster: every answer that is needed to read it, by path."""

from __future__ import annotations

import functools
import json
from typing import Any

from .recordings import recording, recordings

NODES = ("pve1", "pve2", "pve3")
UPID = "UPID:pve1:000010DF:00058F25:6B01510A:qmcreate:111:root@pam:"
"""A task that succeeded."""


@functools.cache
def whole_cluster(version: str) -> dict[str, Any]:
    """Return the recorded answers of one release, with some additions that its cluster did not have. Do not change the
    result.
    """
    answers = _recorded(version)
    resources = recording(version, "cluster-resources-full-mix")["body"]["data"]
    return {
        **answers,
        **_configs(resources),
        "/cluster/resources": resources,
        "/cluster/resources?type=vm": [row for row in resources if row["type"] in ("qemu", "lxc")],
        "/cluster/ha/groups": [{"group": "g", "nodes": "pve1:2,pve2", "restricted": 1}],
        "/cluster/ha/rules": [{"rule": "r", "type": "node-affinity", "nodes": "pve1:2", "resources": "vm:101"}],
        "/cluster/ha/resources": [{"sid": "vm:101", "group": "g", "state": "started"}],
        "/cluster/nextid": "101",
        "/cluster/mapping/usb": [{"id": "stick", "map": ["node=pve1,id=1d6b:0002"]}],
        "/cluster/qemu/cpu-flags": [{"name": "aes", "supported-on": ["pve1"]}],
        **{
            f"/nodes/{node}/rrddata?cf=AVERAGE&timeframe=hour": [
                {"time": 1, "pressurecpusome": 1, "pressureiosome": 0.5, "pressurememorysome": "0.25"}
            ]
            for node in NODES
        },
        **{f"/nodes/{node}/network?type=any_bridge": [{"iface": "vmbr0", "type": "bridge"}] for node in NODES},
        f"/nodes/pve1/tasks/{UPID}/status": {"status": "stopped", "exitstatus": "OK"},
    }


def _recorded(version: str) -> dict[str, Any]:
    """Return every successful read of one release, by path without its query."""
    answers: dict[str, Any] = {}
    for file in sorted(recordings(version).values()):
        record = json.loads(file.read_text(encoding="utf-8"))
        if not (isinstance(record, dict) and "request" in record):
            continue
        request, body = record["request"], record.get("body")
        if request["method"] == "GET" and record.get("status") == 200 and isinstance(body, dict) and body.get("data"):
            answers.setdefault(request["path"].partition("?")[0], body["data"])
    return answers


def _configs(resources: list[Any]) -> dict[str, Any]:
    """Return configs for the VMs in a list of resources: those of the release of which most were recorded."""
    recorded = _recorded("8.4")
    configs = {}
    for row in resources:
        for what in ("config", "pending"):
            path = f"/nodes/pve1/qemu/{row.get('vmid')}/{what}"
            if row["type"] == "qemu" and path in recorded:
                configs[f"/nodes/{row['node']}/qemu/{row['vmid']}/{what}"] = recorded[path]
    return configs
