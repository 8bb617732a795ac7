# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power: start, stop, shutdown, reboot, reset, suspend and resume, by the node or by the HA manager."""

from __future__ import annotations

import re
from typing import Any

from ..access import Identity
from ..cluster import Cluster
from ..cpu_models import misfit
from ..errors import TaskError, die
from ..ha_manager import MANAGER
from ..model import Guest
from ..property_strings import MIB, is_drive, parse
from ..routing import Call, route
from ..tasks import Orders, Task
from .drives import as_applied
from .mapping import mapping_problem
from .qemu_read import of


def start_guest(cluster: Cluster, guest: Guest, who: Identity, orders: Orders | None = None) -> str:
    """Start a ``qmstart`` worker on the guest's node."""

    async def work(task: Task) -> None:
        await _run(cluster, guest, task)

    return cluster.tasks.start(guest.node, "qmstart", guest.vmid, who, work, orders)


async def _run(cluster: Cluster, guest: Guest, task: Task) -> None:
    if cluster.guests.get(guest.vmid) is not guest:
        raise TaskError(f"Configuration file 'nodes/{guest.node}/qemu-server/{guest.vmid}.conf' does not exist")
    await cluster.hold(guest, task=task)
    try:
        hibernated = guest.config_lock == "suspended"
        if guest.config_lock and not hibernated:
            raise TaskError(f"VM is locked ({guest.config_lock})")
        if guest.template:
            raise TaskError("you can't start a vm if it's a template")
        if guest.running:
            raise TaskError(f"VM {guest.vmid} already running")
        _check_config(cluster, guest, task)
        cluster.touch(guest)
        _apply_pending(guest)
        guest.write_cloud_init()
        # QEMU's process is there, and shown as running, before its bridge scripts have run and its memory is allocated.
        guest.status = guest.qmpstatus = "running"
        guest.started_at = cluster.clock.now()
        guest.pid = task.pid
        try:
            await task.work(cluster.clock, cluster.timing.start_seconds)
            _check_host(cluster, guest, task)
        except BaseException:
            cluster.touch(guest)
            guest.status = guest.qmpstatus = "stopped"
            raise
        if hibernated:
            cluster.set_config(guest, lock=None, vmstate=None, runningmachine=None, runningcpu=None)
    finally:
        guest.lock.release()


def _apply_pending(guest: Guest) -> None:
    for key, value in guest.pending.items():
        if value is None:
            guest.config.pop(key, None)
        else:
            guest.config[key] = as_applied(key, str(guest.config.get(key, "")), value)
    guest.pending.clear()


def _check_config(cluster: Cluster, guest: Guest, task: Task) -> None:
    """What Proxmox accepts in a config and refuses before it starts QEMU."""
    node = cluster.nodes[guest.node]
    cpus = int(guest.config.get("sockets", 1)) * int(guest.config.get("cores", 1))
    if cpus > node.cores:
        raise TaskError(f"MAX {node.cores} vcpus allowed per VM on this node")
    if int(guest.config.get("vcpus", cpus)) > cpus:
        raise TaskError("start failed: QEMU exited with code 1")
    for drive in guest.drives().values():
        # Proxmox makes a cloud-init drive again when the VM starts.
        is_disk = drive.get("media") != "cdrom" and "cloudinit" not in drive["file"]
        if is_disk and cluster.volumes.find(drive["file"], guest.node) is None:
            raise TaskError(f"volume '{drive['file']}' does not exist")
    for key, value in guest.config.items():
        if re.fullmatch(r"virtiofs\d+", key):
            _check_directory(cluster, guest, parse(str(value), "dirid")["dirid"])
        if key == "cicustom":
            _check_snippets(cluster, guest, parse(str(value), "user"))
        match = re.fullmatch(r"(hostpci|usb)\d+", key)
        if match:
            _check_mapping(cluster, guest, key, parse(str(value), "host").get("mapping"), task)


def _check_directory(cluster: Cluster, guest: Guest, name: str) -> None:
    entries = [parse(text, "node") for text in cluster.mappings["dir"].get(name, {}).get("map", [])]
    if not any(entry["node"] == guest.node for entry in entries):
        raise TaskError(f"directory mapping invalid: No mapping for node {guest.node}.")


def _check_snippets(cluster: Cluster, guest: Guest, volumes: dict[str, str]) -> None:
    """Proxmox reads them for the cloud-init drive, if the VM has one, when it starts."""
    drives = [parse(str(value)).get("file", "") for key, value in guest.config.items() if is_drive(key)]
    if not any(file.endswith(("cloudinit", "cloudinit.qcow2")) for file in drives):
        return
    for volume in volumes.values():
        if volume.partition(":")[0] not in cluster.storages:
            raise TaskError(f"storage '{volume.partition(':')[0]}' does not exist")
        if cluster.volumes.find(volume, guest.node) is None:
            path = f"/var/lib/vz/{volume.partition(':')[2]}"
            raise TaskError(f"can't open '{path}' - No such file or directory")


def _check_host(cluster: Cluster, guest: Guest, task: Task) -> None:
    """What QEMU itself finds out once it runs."""
    node = cluster.nodes[guest.node]
    for key, value in guest.config.items():
        if re.fullmatch(r"net\d+", key):
            bridge = parse(str(value), "model").get("bridge")
            if bridge and bridge not in node.bridges and bridge not in node.vnets:
                if cluster.modern:
                    raise TaskError(f"bridge '{bridge}' does not exist")
                task.say(f"bridge '{bridge}' does not exist")
                raise TaskError("start failed: QEMU exited with code 1")
    problem = misfit(guest.config, node.cpu, node.cpu.get("machine", "x86_64"))
    if problem is not None:
        task.say(f"kvm: {problem}")
        raise TaskError("start failed: QEMU exited with code 1")
    running = [other for other in cluster.guests.values() if other.node == guest.node and other.running]
    if sum(other.maxmem for other in running) > 3 * node.memory + 8 * 1024 * MIB:
        raise TaskError("start failed: QEMU exited with code 1")


def _check_mapping(cluster: Cluster, guest: Guest, option: str, name: str | None, task: Task) -> None:
    if name is None:
        return
    driver, what = ("pci", "PCI") if option.startswith("hostpci") else ("usb", "USB")
    entries = [parse(text, "node") for text in cluster.mappings[driver].get(name, {}).get("map", [])]
    here = [entry for entry in entries if entry["node"] == guest.node]
    if driver == "usb" and len(here) > 1:
        raise TaskError("More than one USB mapping per host not supported")
    for entry in here:
        problem = mapping_problem(cluster, driver, name, guest.node, entry)
        if problem is not None:
            invalid = "PCI device mapping" if driver == "pci" else "USB Mapping"
            raise TaskError(f"{invalid} invalid (hardware probably changed): {problem}")
    users = _users_of(cluster, guest, name) if driver == "pci" else []
    if here and len(users) >= len(here) and not any("mdev" in entry for entry in here):
        raise TaskError(f"could not find a free device for '{option}'")
    if here:
        return
    text = f"{what} device mapping not found for '{name}'"
    if cluster.modern:
        task.say(text)
    raise TaskError(text)


def _users_of(cluster: Cluster, guest: Guest, name: str) -> list[int]:
    """The other running VMs on the guest's node that have a PCI device of a mapping."""
    return [
        other.vmid
        for other in cluster.guests.values()
        if other is not guest and other.node == guest.node and other.running and other.kind == "qemu"
        for key, value in other.config.items()
        if re.fullmatch(r"hostpci\d+", key) and parse(str(value), "host").get("mapping") == name
        and "mdev" not in parse(str(value), "host")
    ]


def stop_guest(cluster: Cluster, guest: Guest, who: Identity, orders: Orders | None = None) -> str:
    """Start a ``qmstop`` worker; stopping what is stopped is fine."""

    node = guest.node

    async def work(task: Task) -> None:
        await cluster.hold(guest, task=task)
        try:
            _check_node(cluster, guest, node)
            if guest.running and guest.config_lock:
                raise TaskError(f"VM is locked ({guest.config_lock})")
            await task.work(cluster.clock, cluster.timing.stop_seconds if guest.running else 0)
            off(cluster, guest)
        finally:
            guest.lock.release()

    return cluster.tasks.start(node, "qmstop", guest.vmid, who, work, orders)


def _check_node(cluster: Cluster, guest: Guest, node: str) -> None:
    """Check, as a task that stops a VM does once it has the lock, that the VM is still on its node."""
    if cluster.guests.get(guest.vmid) is not guest or guest.node != node:
        raise TaskError(f"unable to find configuration file for VM {guest.vmid} on node '{node}'")


def _expected(call: Call) -> Guest:
    """The VM of the path, or a placeholder for a VM that does not exist: only the task notices that."""
    guest = call.cluster.guests.get(int(call["vmid"]))
    there = guest is not None and guest.node == call.node and guest.kind == "qemu"
    return guest if there else Guest(int(call["vmid"]), call.node)


def off(cluster: Cluster, guest: Guest) -> None:
    """The QEMU process ends; what was pending becomes the config."""
    cluster.touch(guest)
    guest.half_mirrored = False
    guest.status = guest.qmpstatus = "stopped"
    _apply_pending(guest)


def _by_manager(call: Call, guest: Guest, state: str, verb: str) -> str:
    """Pass the request to the HA manager: the worker ends at once, the guest changes later."""
    ha = call.cluster.ha

    async def work(task: Task) -> None:
        task.say(f"Requesting HA {verb} for VM {guest.vmid}")
        sid, failed = ha.sid(guest), not call.cluster.quorate
        if failed:
            await call.cluster.clock.sleep(call.cluster.timing.noquorum_seconds)
        else:
            await task.work(call.cluster.clock, 0.5)
        if failed or sid not in ha.resources:
            change = f"set {sid} --state started" if verb == "start" else f"crm-command stop {sid} 0"
            raise TaskError(f"command 'ha-manager {change}' failed: exit code 255")
        ha.set_state(sid, state)

    return call.task(f"ha{verb}", guest.vmid, work)


def _manager_cares(call: Call, guest: Guest) -> bool:
    ha = call.cluster.ha
    if ha.manager.disarmed == "ignore":
        return False
    return ha.managed(guest) and ha.resources[ha.sid(guest)].get("state") != "ignored"


@route("POST", "/nodes/{node}/qemu/{vmid}/status/start")
def start(call: Call) -> str:
    cluster = call.cluster
    cluster.need_quorum()
    guest = _expected(call)
    if _manager_cares(call, guest) and not guest.running:
        return _by_manager(call, guest, "started", "start")
    return start_guest(cluster, guest, call.who, call.effects.orders)


@route("POST", "/nodes/{node}/qemu/{vmid}/status/stop")
def stop(call: Call) -> str:
    guest = _expected(call)
    if _manager_cares(call, guest) and guest.running:
        return _by_manager(call, guest, "stopped", "stop")
    return stop_guest(call.cluster, guest, call.who, call.effects.orders)


@route("POST", "/nodes/{node}/qemu/{vmid}/status/shutdown")
def shutdown(call: Call) -> str:
    cluster, guest = call.cluster, _expected(call)
    if guest.qmpstatus == "paused" and not call.get("forceStop"):
        raise die("VM is paused - cannot shutdown")
    if _manager_cares(call, guest) and guest.running:
        return _by_manager(call, guest, "stopped", "stop")
    timeout = float(call.get("timeout", 60))

    async def work(task: Task) -> None:
        await cluster.hold(guest, task=task)
        try:
            _check_node(cluster, guest, call.node)
            if guest.running and guest.config_lock:
                raise TaskError(f"VM is locked ({guest.config_lock})")
            if guest.running:
                if guest.qmpstatus == "paused":
                    task.say("VM is paused - stop instead of shutdown")
                else:
                    await powerdown(cluster, guest, task, timeout, bool(call.get("forceStop")))
                off(cluster, guest)
            else:
                await task.work(cluster.clock, 0)
        finally:
            guest.lock.release()

    return call.task("qmshutdown", guest.vmid, work)


async def powerdown(cluster: Cluster, guest: Guest, task: Task, timeout: float, force: bool) -> None:
    needed = cluster.timing.shutdown_seconds
    if guest.acpi and needed <= timeout:
        await task.work(cluster.clock, needed)
        return
    await task.work(cluster.clock, timeout)
    if not force:
        raise TaskError("VM quit/powerdown failed - got timeout")
    task.say("VM still running - terminating now with SIGTERM")


@route("POST", "/nodes/{node}/qemu/{vmid}/status/reboot")
def reboot(call: Call) -> str:
    cluster, guest = call.cluster, _running(call)

    async def work(task: Task) -> None:
        await cluster.hold(guest, task=task)
        try:
            await powerdown(cluster, guest, task, float(call.get("timeout", 60)), False)
            off(cluster, guest)
        finally:
            guest.lock.release()
        # The node's event daemon notices that QEMU has ended, and starts it again: a task of its own.
        start_guest(cluster, guest, MANAGER)

    return call.task("qmreboot", guest.vmid, work)


def _running(call: Call) -> Guest:
    guest = of(call)
    if not guest.running:
        raise die(f"VM {guest.vmid} not running")
    return guest


def _simple(call: Call, kind: str, locks: tuple[str | None, ...] = (None,), **state: Any) -> str:
    """A change that is possible with these locks only."""
    cluster, guest = call.cluster, _running(call)

    async def work(task: Task) -> None:
        await cluster.hold(guest, task=task)
        try:
            if guest.config_lock not in locks:
                raise TaskError(f"VM is locked ({guest.config_lock})")
            await task.work(cluster.clock, 0)
            cluster.touch(guest)
            for name, value in state.items():
                setattr(guest, name, value)
        finally:
            guest.lock.release()

    return call.task(kind, guest.vmid, work)


@route("POST", "/nodes/{node}/qemu/{vmid}/status/reset")
def reset(call: Call) -> str:
    return _simple(call, "qmreset", started_at=call.cluster.clock.now())


@route("POST", "/nodes/{node}/qemu/{vmid}/status/suspend")
def suspend(call: Call) -> str:
    if call.get("todisk"):
        call.require(f"/vms/{call['vmid']}", "VM.Config.Disk")
        return _hibernate(call)
    return _simple(call, "qmpause", (None, "backup"), qmpstatus="paused")


def _hibernate(call: Call) -> str:
    """The memory goes to a volume; until the next start the guest is stopped and locked."""
    cluster, guest = call.cluster, _running(call)

    async def work(task: Task) -> None:
        await cluster.hold(guest, task=task)
        try:
            if guest.config_lock == "backup":
                raise TaskError("cannot suspend to disk during backup")
            if guest.config_lock:
                raise TaskError(f"VM is locked ({guest.config_lock})")
            cluster.set_config(guest, lock="suspending")
            await task.work(cluster.clock, cluster.timing.stop_seconds)
            off(cluster, guest)
            cluster.set_config(
                guest, lock="suspended", vmstate=f"local:{guest.vmid}/vm-{guest.vmid}-state-suspend.raw",
                runningmachine="pc-i440fx-10.0+pve0", runningcpu=guest.config.get("cpu", "kvm64"))
        finally:
            guest.lock.release()

    return call.task("qmsuspend", guest.vmid, work)


@route("POST", "/nodes/{node}/qemu/{vmid}/status/resume")
def resume(call: Call) -> str:
    return _simple(call, "qmresume", (None, "backup"), qmpstatus="running")

