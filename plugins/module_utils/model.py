# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plain data that all layers share: requests, the cluster as read, and decisions.

Sizes are bytes, CPU is a number of logical CPUs, times are seconds. Nothing here reads, writes or decides.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import dataclass, field

from .demand import CONFIGURED, CPU, MEMORY, Demand

MIB = 1024**2
GIB = 1024**3

VMID_MIN = 100
VMID_MAX = 999_999_999

OFF = frozenset({"stopped", "unknown"})
"""The statuses of guests that use no CPU or memory of their node, as far as is known. QEMU has many statuses for other
guests.
"""


@dataclass(frozen=True, slots=True)
class Constraints:
    """The placement rules of a request, with the fields of Request. Proxmox stores only the HA rule."""

    affinity: tuple[AffinityTerm, ...] = ()
    topology_spread: tuple[SpreadConstraint, ...] = ()
    node_required: tuple[Expression, ...] = ()
    node_preferred: tuple[Expression, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    ha: HAIntent | None = None
    gang: GangRef | None = None


NO_CONSTRAINTS = Constraints()


# --- the cluster as read at one moment --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Taint:
    """A mark on a node that rejects VMs that do not tolerate it. effect: NoSchedule or PreferNoSchedule."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Node:
    """One cluster node.

    drained tells whether it is marked as drained, so that no guest is placed on it (see proxmox/moves/drain_marks.py).
    ha_managed tells whether the HA manager knows the node, which it does not on clusters that have never used HA.

    cores and memory are what Proxmox reports as maxcpu and maxmem (0 while the node is offline); cpu_used (0..1) and
    memory_used (bytes) are live figures. labels, taints, reserves and ratios come from the user, as Proxmox does not
    know them; a reserve or ratio of None leaves the filter's own default in force. bridges, cpu_models and cpu_flags
    are None if they were not read. has tells whether the node has what options of requests name, by (kind, name); what
    is not known is missing. pressure is the share of time (0..1) in which tasks on the node waited for CPU,
    memory or disk, whichever is the worst; None if it was not read, or if Proxmox does not report it. processor is what
    its CPUs are; None if that was not read. demand is what it uses besides the guests of which Guest.demand is known,
    by resource; empty if it was not read.
    """

    name: str
    online: bool = True
    maintenance: bool = False
    drained: bool = False
    ha_managed: bool = False
    cores: int = 0
    memory: int = 0
    cpu_used: float = 0.0
    memory_used: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    reserved_cores: float | None = None
    reserved_memory: int | None = None
    cpu_ratio: float | None = None
    memory_ratio: float | None = None
    bridges: frozenset[str] | None = None
    cpu_models: frozenset[str] | None = None
    cpu_flags: frozenset[str] | None = None
    has: Mapping[tuple[str, str], bool] = field(default_factory=dict)
    pressure: float | None = None
    processor: Processor | None = None
    demand: Mapping[str, Demand] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether guests may come to it: it is online, not in maintenance, and not drained."""
        return self.online and not self.maintenance and not self.drained


@dataclass(frozen=True, slots=True)
class Processor:
    """The CPUs of a node as its kernel sees them. machine is their architecture (x86_64); empty texts are unknown."""

    vendor: str = ""
    machine: str = ""
    flags: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Demands:
    """What the config of a guest asks of its node besides CPU, memory and disks, with the fields of Request. machine is
    the version of its machine type, if it has a fixed one.
    """

    cpu_type: str | None = None
    cpu_flags: frozenset[str] = frozenset()
    bridges: frozenset[str] = frozenset()
    devices: tuple[DeviceClaim, ...] = ()
    machine: tuple[int, int] | None = None
    named: frozenset[tuple[str, str]] = frozenset()


NO_DEMANDS = Demands()


@dataclass(frozen=True, slots=True)
class Guest:
    """One VM (kind C(qemu)) or container (kind C(lxc)) that exists, is being created, or is assumed.

    name is None while Proxmox does not show it yet. status is that of Proxmox (running, stopped, paused, unknown, ...),
    or C(assumed) for a VM that is decided and not yet shown by the cluster. storage_pending maps (storage, node) to
    bytes that this guest will take and that the storage does not yet count as used; devices are those on its node, as
    (driver, device id), that it will hold and that Device.in_use does not count yet. constraints are known only for VMs
    that a run requests or has decided. ha_state is the state of the guest in the HA manager, empty if it does not
    manage the guest. demands are known only for guests whose config was read. demand is what it uses, by resource, as
    far as that was read. uptime is how many seconds ago it was started on its node, or came there; None if that is not
    known.
    """

    vmid: int
    name: str | None
    node: str
    kind: str = "qemu"
    status: str = "stopped"
    template: bool = False
    cores: float = 0
    memory: int = 0
    tags: frozenset[str] = frozenset()
    pool: str | None = None
    lock: str | None = None
    constraints: Constraints = NO_CONSTRAINTS
    ha_managed: bool = False
    ha_state: str = ""
    storage_pending: Mapping[tuple[str, str], int] = field(default_factory=dict)
    devices: tuple[tuple[str, str], ...] = ()
    demands: Demands = NO_DEMANDS
    demand: Mapping[str, Demand] = field(default_factory=dict)
    uptime: float | None = field(default=None, compare=False)

    @property
    def running(self) -> bool:
        """Whether it uses CPU and memory of its node, now or as soon as it exists."""
        return self.status not in OFF

    @property
    def group(self) -> str | None:
        """The name of the group that it is placed with."""
        return self.constraints.gang.name if self.constraints.gang else None


@dataclass(frozen=True, slots=True)
class Identity:
    """What a guest was born as, unlike its VMID, which another guest may have tomorrow.

    ctime, uuid and vmgenid are the marks of its creation that its config shows: the time in C(meta), the UUID in
    C(smbios1), and C(vmgenid); None for those that it lacks. Containers and very old VMs have none; for these, digest
    is that of the whole config. name and node are those that it had when it was read. proxmox/identity.py says what a
    difference means.
    """

    name: str | None
    node: str
    kind: str = "qemu"
    ctime: int | None = None
    uuid: str | None = None
    vmgenid: str | None = None
    digest: str | None = None

    @property
    def is_marked(self) -> bool:
        """Whether the config shows any mark of the guest's creation."""
        return (self.ctime, self.uuid, self.vmgenid) != (None, None, None)


@dataclass(frozen=True, slots=True)
class Storage:
    """One storage as one node sees it. A shared storage appears once per node, with the same total and used.

    content contains the content types of Proxmox (images, rootdir, iso, import, ...); active is False if it is disabled
    or unreachable.
    """

    name: str
    node: str
    type: str = "dir"
    shared: bool = False
    content: frozenset[str] = frozenset({"images"})
    active: bool = True
    total: int = 0
    used: int = 0


@dataclass(frozen=True, slots=True)
class Device:
    """One passthrough device of a resource mapping on one node. driver is C(pci) or C(usb).

    id is unique on the node (the PCI address or USB path); capacity is how many VMs it can serve at once (1, or the
    number of available instances of an mdev type); attributes are those that constraints may refer to. fault is the
    reason why Proxmox would not start a VM with it, or empty.
    """

    driver: str
    mapping: str
    node: str
    id: str
    capacity: int = 1
    in_use: int = 0
    mdev: str | None = None
    attributes: Mapping[str, t.Any] = field(default_factory=dict)
    fault: str = ""


@dataclass(frozen=True, slots=True)
class HARule:
    """One rule of the HA manager (or an HA group, read as a node-affinity rule).

    type is C(node-affinity), with nodes (name to priority), strict and positive, or C(resource-affinity), with
    positive. vmids are its members. A node-affinity rule that is not positive names the nodes to avoid. from_group
    tells that the cluster still stores it as a group (before Proxmox VE 9). unknown is what this version does not know
    of the rule, as a noun: what such a rule demands is not known. planned tells that the run makes it. no_failback are
    the members that the HA manager leaves on a node that it prefers less, as far as that was read.
    """

    name: str
    type: str
    vmids: frozenset[int] = frozenset()
    nodes: Mapping[str, int] = field(default_factory=dict)
    strict: bool = False
    positive: bool = True
    disabled: bool = False
    from_group: bool = False
    unknown: str = ""
    planned: bool = False
    no_failback: frozenset[int] = frozenset()

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"HA {'group' if self.from_group else 'rule'} '{self.name}'"

    def wants(self, node: str) -> bool:
        """Whether a node-affinity rule wants its members on the node."""
        return (node in self.nodes) is self.positive


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster as read at one moment. The order within the tuples is arbitrary.

    unknown_of_ha is what this version does not know of HA resources, as nouns by VMID; empty if these were not read.
    next_id are the datacenter's bounds for automatic VMIDs, both inclusive. vmids_unseen are those taken by guests that
    this user cannot see. volumes maps the volumes that were looked for, as (node, volume), to their bytes, or to None
    if they do not exist; for a missing one, the other volumes of its kind are included. mappings are the names of the
    resource mappings that this user may use, None if they were not read. pools are those that this user may see: a
    guest in another one shows none. migrating are the guests whose migration ran when the tasks were read, as far as
    this user sees tasks. cluster is its identity, independent of the address it was read from.
    """

    nodes: tuple[Node, ...] = ()
    guests: tuple[Guest, ...] = ()
    storages: tuple[Storage, ...] = ()
    devices: tuple[Device, ...] = ()
    mappings: frozenset[str] | None = None
    ha_rules: tuple[HARule, ...] = ()
    unknown_of_ha: Mapping[int, str] = field(default_factory=dict)
    next_id: tuple[int, int] = (VMID_MIN, VMID_MAX)
    vmids_unseen: frozenset[int] = frozenset()
    volumes: Mapping[tuple[str, str], int | None] = field(default_factory=dict)
    pools: frozenset[str] = frozenset()
    migrating: frozenset[int] = frozenset()
    cluster: str = ""


# --- requests --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Disk:
    """One drive of a request.

    slot is its key in the VM's config (scsi0, efidisk0, ide2, ...). size is what it will take, in bytes; 0 for media
    that only have to exist. storage is None if one is to be chosen, within storage_class if given. content is the
    content type that the storage must have. volume is set if an existing volume (an ISO, say) is used: it restricts the
    nodes and takes no space. source is the volume that C(import-from) reads, which must exist on the node as well.
    others are the slots of drives that have to be created on the same storage; size is then the sum of all of them.
    """

    slot: str
    size: int = 0
    storage: str | None = None
    storage_class: str | None = None
    content: str = "images"
    volume: str | None = None
    source: str | None = None
    others: tuple[str, ...] = ()

    @property
    def called(self) -> str:
        """What messages call it."""
        return f"{self.slot} with {', '.join(self.others)}" if self.others else self.slot


@dataclass(frozen=True, slots=True)
class StorageClass:
    """A named set of storages, by name patterns (full match), types, and whether they are shared. overcommit multiplies
    their size, reserved is kept free.

    reserved is a fraction of the size if below 1, else bytes.
    """

    name: str
    storages: tuple[str, ...] = ()
    types: frozenset[str] = frozenset()
    shared: bool | None = None
    overcommit: float = 1.0
    reserved: float = 0.0


@dataclass(frozen=True, slots=True)
class Template:
    """A guest that a request may be cloned from.

    volumes are those that a clone copies or links: (slot, storage, bytes); copied are the slots of those that even a
    linked clone copies. media are the images in its CD-ROM drives, which a clone uses too: (slot, storage). description
    is the one that a clone inherits if it gets none of its own. identity is what its config showed when it was chosen.
    """

    vmid: int
    node: str
    name: str
    volumes: tuple[tuple[str, str, int], ...] = ()
    copied: frozenset[str] = frozenset()
    media: tuple[tuple[str, str], ...] = ()
    description: str = ""
    identity: Identity | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class CloneSource:
    """What to clone: the possible templates (of one name, at most one per node), and how.

    full is False for a linked clone. storage is the one for the disks of a full clone, storage_class the class to
    choose their storages from (both None: the storages of the template's disks).
    """

    templates: tuple[Template, ...]
    full: bool = True
    storage: str | None = None
    storage_class: str | None = None


@dataclass(frozen=True, slots=True)
class Archive:
    """The backup that a VM is restored from: its volume, and the config in it.

    unique: the VM gets MAC addresses and a UUID of its own.
    """

    volume: str
    config: Mapping[str, t.Any] = field(repr=False)
    unique: bool = True


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """A named kind of device: a driver (pci, usb), and constraints, which are Jinja2 expressions over C(device). All
    must hold.
    """

    name: str
    driver: str | None = None
    constraints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceClaim:
    """A request for passthrough devices. Of the alternatives in one_of, the first that can be met is used."""

    name: str
    driver: str | None = None
    device_class: str | None = None
    mapping: str | None = None
    count: int = 1
    constraints: tuple[str, ...] = ()
    match_attributes: tuple[str, ...] = ()
    mdev: str | None = None
    options: Mapping[str, t.Any] = field(default_factory=dict)
    one_of: tuple[DeviceClaim, ...] = ()


@dataclass(frozen=True, slots=True)
class Expression:
    """One node expression as in Kubernetes.

    operator: In, NotIn, Exists, DoesNotExist, Gt, Lt. weight (1..100) counts only in preferences.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Selector:
    """Selects VMs; every part that is given must match. name is a pattern that matches the whole name."""

    name: str | None = None
    tags: frozenset[str] = frozenset()
    pool: str | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """Affinity or anti-affinity to the selected VMs, within one domain of topology_key; if not required, a preference
    with that weight (1..100).
    """

    together: bool
    selector: Selector
    required: bool = True
    topology_key: str = "node"
    weight: int = 1


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """Limits the skew of the selected VMs over the domains of topology_key to max_skew. Required if hard, else
    preferred.
    """

    topology_key: str
    selector: Selector
    max_skew: int = 1
    hard: bool = True


@dataclass(frozen=True, slots=True)
class Toleration:
    """Tolerates taints with that key and effect; an empty one matches all. operator: Equal or Exists."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class NewRule:
    """An HA rule or group to make: as in HARule, with nodes as C(NAME) or C(NAME:PRIORITY)."""

    type: str
    positive: bool = True
    nodes: tuple[str, ...] = ()
    strict: bool = False

    @property
    def priorities(self) -> dict[str, int]:
        """The priority of each node."""
        parts = (node.partition(":") for node in self.nodes)
        return {name: int(priority or 0) for name, _separator, priority in parts}


@dataclass(frozen=True, slots=True)
class HAIntent:
    """The HA rule (Proxmox VE 9 or later) or HA group (before) that the VM joins, and the state that the HA manager
    keeps it in (None: the VM's own requested state). create is the rule or group to make if there is none.
    """

    rule: str | None = None
    group: str | None = None
    state: str | None = None
    create: NewRule | None = None

    @property
    def joins(self) -> str | None:
        """The name of the rule or group."""
        return self.rule or self.group


@dataclass(frozen=True, slots=True)
class GangRef:
    """The group of a VM: at least min_available of its members (0: all) are placed together, or none is."""

    name: str
    min_available: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """One VM that the user requests, or a guest that a plan moves (existing).

    per_node tells that other nodes may have VMs of the same name. cores is the number of vCPUs that the VM starts with,
    cores_max the number that can be plugged in (cores times
    sockets) if that is more. memory is in bytes. vmid is set if the user fixed it. running tells whether the VM will
    run after the task (state started). named is what its options name and only some nodes may have, as (kind, name): a
    mapping of a directory, PCI or USB device, a snippet, a storage. context holds the keys of the upstream scheduler.
    options are the Proxmox options by their API names: the engine passes them on and looks neither into them nor into
    archive; addresses are those of the options that were chosen from address pools, as text. created is the time of the
    request, in seconds. demand is what the VM will use, by resource; where it is missing, as much as is configured.
    siblings are existing VMs that are clones of the same template, as far as the task says so.
    """

    name: str
    cores: float = 1
    cores_max: float = 0
    memory: int = 512 * MIB
    vmid: int | None = None
    disks: tuple[Disk, ...] = ()
    clone: CloneSource | None = None
    archive: Archive | None = None
    node: str | None = None
    node_regex: str | None = None
    vmid_range: str | None = None
    vmid_regex: str | None = None
    context: Mapping[str, str] = field(default_factory=dict)
    tags: frozenset[str] = frozenset()
    pool: str | None = None
    running: bool = False
    bridges: frozenset[str] = frozenset()
    cpu_type: str | None = None
    cpu_flags: frozenset[str] = frozenset()
    named: frozenset[tuple[str, str]] = frozenset()
    devices: tuple[DeviceClaim, ...] = ()
    affinity: tuple[AffinityTerm, ...] = ()
    topology_spread: tuple[SpreadConstraint, ...] = ()
    node_required: tuple[Expression, ...] = ()
    node_preferred: tuple[Expression, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    ha: HAIntent | None = None
    gang: GangRef | None = None
    profile: str | None = None
    priority: int = 0
    scheduling_gates: tuple[str, ...] = ()
    created: float = 0.0
    options: Mapping[str, t.Any] = field(default_factory=dict)
    addresses: Mapping[str, str] = field(default_factory=dict)
    existing: bool = False
    per_node: bool = False
    demand: Mapping[str, Demand] = field(default_factory=dict)
    siblings: frozenset[int] = frozenset()

    @property
    def constraints(self) -> Constraints:
        """The part of the request that its guest keeps."""
        kept = (
            self.affinity,
            self.topology_spread,
            self.node_required,
            self.node_preferred,
            self.tolerations,
            self.ha,
            self.gang,
        )
        return Constraints(*kept) if any(kept) else NO_CONSTRAINTS


def demand_of(guest: Guest | Request, resource: str) -> Demand:
    """Return what a guest or a new VM uses of CPU or memory: as far as it is known, else as much as is configured."""
    configured = {CPU: guest.cores, MEMORY: guest.memory}
    return guest.demand.get(resource) or Demand(CONFIGURED, (float(configured[resource]),))


# --- what is decided --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeviceAllocation:
    """One device allocated to one claim: the option (hostpci0, usb1), and the config value that attaches the device."""

    claim: str
    driver: str
    device: str
    node: str
    mapping: str
    option: str
    value: str


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome for one request that could be placed.

    storages maps each drive's slot to its storage. storage_bytes maps (storage, node) to the bytes that the VM will
    take there. template is the guest to clone from, if any, and landing the storage that all drives of a full clone are
    made on, before those for other storages are moved (None: those of the template's). score (0..100) is that of the
    node. turn is the number of the decision among those of its scheduler.
    """

    request: Request
    node: str
    vmid: int
    storages: Mapping[str, str] = field(default_factory=dict)
    storage_bytes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    devices: tuple[DeviceAllocation, ...] = ()
    template: Template | None = None
    landing: str | None = None
    score: float = 0.0
    turn: int = field(default=0, compare=False)
