# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must hold whatever is asked of the cluster: space is accounted for exactly, and nothing is left behind."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_cluster.property_strings import parse
from simulator.lab import Lab, in_lab

VMIDS = st.integers(min_value=150, max_value=153)
NODES = st.sampled_from(["pve1", "pve2"])
STORAGES = st.sampled_from(["vmdata", "shared", "only1", "off"])
STEPS = st.one_of(
    st.tuples(st.just("create"), VMIDS, NODES, STORAGES),
    st.tuples(st.just("clone"), VMIDS, st.sampled_from([0, 1]), st.none()),
    st.tuples(st.just("attach"), VMIDS, STORAGES, st.none()),
    st.tuples(st.just("detach"), VMIDS, st.sampled_from(["scsi0", "scsi1", "unused0"]), st.none()),
    st.tuples(st.just("resize"), VMIDS, st.sampled_from(["+1G", "5G", "1M"]), st.none()),
    st.tuples(st.just("migrate"), VMIDS, NODES, st.none()),
    st.tuples(st.just("template"), VMIDS, st.none(), st.none()),
    st.tuples(st.just("delete"), VMIDS, st.none(), st.none()),
)


def request(lab: Lab, step: tuple[Any, ...]) -> tuple[str, str, dict[str, Any] | None]:
    """Method, path and parameters of a step; the VM's real node, so that some of it succeeds."""
    what, vmid, first, second = step
    guest = lab.cluster.guests.get(vmid)
    path = f"/nodes/{guest.node if guest else 'pve1'}/qemu/{vmid}"
    return {
        "create": ("POST", f"/nodes/{first}/qemu", {"vmid": vmid, "scsi0": f"{second}:2", "scsi1": "vmdata:1"}),
        "clone": ("POST", "/nodes/pve1/qemu/9000/clone", {"newid": vmid, "full": first}),
        "attach": ("PUT", f"{path}/config", {"scsi1": f"{first}:3"}),
        "detach": ("PUT", f"{path}/config", {"delete": first}),
        "resize": ("PUT", f"{path}/resize", {"disk": "scsi0", "size": first}),
        "migrate": ("POST", f"{path}/migrate", {"target": first}),
        "template": ("POST", f"{path}/template", None),
        "delete": ("DELETE", path, None),
    }[what]


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEPS, max_size=14))
def test_space__is_accounted_for_and_every_disk_has_its_volume(steps: list[tuple[Any, ...]]) -> None:
    async def work(lab: Lab) -> None:
        untouched = {volume.volid for volume in lab.cluster.volumes}
        for step in steps:
            answer = await (await lab.ask(*request(lab, step))).json()
            if isinstance(answer["data"], str) and answer["data"].startswith("UPID:"):
                ended = (await lab.finish(answer["data"]))["exitstatus"]
                assert not ended.startswith("simulator error")
            check(lab)
        for vmid in range(150, 154):
            if vmid in lab.cluster.guests:
                answer = await (await lab.ask("DELETE", f"/nodes/{lab.cluster.guests[vmid].node}/qemu/{vmid}")).json()
                await lab.finish(answer["data"])
        assert {volume.volid for volume in lab.cluster.volumes} == untouched

    in_lab("9.2", work)


def check(lab: Lab) -> None:
    cluster = lab.cluster
    sizes: Counter[tuple[str, str | None]] = Counter()
    for volume in cluster.volumes:
        sizes[volume.storage, volume.place] += volume.size
    for storage in cluster.storages.values():
        for place, allocated in storage.allocated.items():
            assert allocated == sizes[storage.name, place]
    owned: Counter[str] = Counter()
    for guest in cluster.guests.values():
        for key, value in guest.config.items():
            if key.startswith(("scsi", "unused")) and key not in ("scsihw",):
                volid = parse(str(value))["file"]
                owned[f"{guest.node}/{volid}"] += 1
                assert cluster.volumes.find(volid, guest.node) is not None, (guest.vmid, key, value)
    assert set(owned.values()) <= {1}
