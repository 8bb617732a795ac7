# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""People who have VMs of their own in the cluster: by ill will or bad luck, they are in the way of controllers.

They use VMIDs again, forge notes, give their VMs and templates the names that controllers ask for, and hide guests.
Others restore VMs and roll them back, and replace the official template by a new one.
"""

from __future__ import annotations

import json
import random
import typing as t

from simulated_cluster import identity
from simulated_cluster.access import AclEntry
from simulated_cluster.model import Guest
from simulated_cluster.property_strings import is_drive

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.unfinished import MARK

from .wishes import NAMES, NODES, TEMPLATE, TENANT

if t.TYPE_CHECKING:
    from .history import History

CONTROLLER = "automation@pve"
FORGERIES: tuple[t.Any, ...] = (
    {"devices": {"net5": "virtio,bridge=vmbr9", "force": "1"}},
    {"devices": {"scsi7": "shared:vm-9000-disk-0"}, "storages": {"scsi7": "shared"}},
    {"devices": {"delete": "net5", "hostpci3": "mapping=gpu"}},
    {"addresses": {"net5": "virtio,bridge=vmbr9"}},
)
"""What a tenant would like to have, as the notes of a VM that is not finished have it."""

OWN = ("smbios1", "vmgenid", "meta", "lock")
"""What a VM does not have in common with one that replaces it."""

OFFICIAL = 9000
"""The VMID of the template that controllers clone."""

FREE_VMIDS = range(700, 900)
HIDES = 0.3
SAME_NAME = 0.2
CONTAINERS = 0.15
AT_ONCE = 0.15
"""The share of the requests of controllers right after which somebody uses a VMID again."""


class Tenants:
    """Makes trouble until it ends.

    Attributes:
        exist: whether there are such people.
        are_busy: whether there are, and they have not come to an end.
        moving: the VMIDs of the guests that a controller has planned to move last.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._cluster = history.cluster
        # Of its own, so that the other draws of a seed do not depend on it.
        self._rng = random.Random(history.seed + 3)
        self.exist = self.are_busy = self._rng.random() < 0.6
        self.moving: t.Sequence[int] = ()
        self._often = self._rng.choice([2.0, 6.0, 15.0])
        acts = [self._reuse, self._reuse, self._forge, self._make, self._make_template, self._rename, self._change_pool,
                self._tag, self._configure]  # fmt: skip
        self._acts = self._rng.sample(acts, k=self._rng.randint(1, len(acts)))
        # Of its own as well: these came later.
        later = random.Random(history.seed + 5)
        self._acts += later.sample([self._roll_back, self._restore, self._forge_sibling, self._replace_template], k=2)
        self._hides = self._rng.random() < HIDES
        self._hurried = self._reuse in self._acts
        self._next = self._later()
        self._rushes: list[tuple[float, tuple[str, ...]]] = []
        self._notes: dict[int, tuple[str, str | None]] = {}

    def step(self) -> None:
        """Do what is due."""
        now = self._history.actors.now
        if not self.are_busy:
            return
        for rush in [rush for rush in self._rushes if rush[0] <= now]:
            self._rushes.remove(rush)
            self._reuse(rush[1])
        if now >= self._next:
            self._next = self._later()
            self._rng.choice(self._acts)()

    def next_time(self) -> float | None:
        """When something is to be done."""
        return min([self._next, *(due for due, _names in self._rushes)]) if self.are_busy else None

    def notice(self, method: str) -> None:
        """A controller has written something: somebody may use a VMID again while it goes on."""
        if method != "GET":
            self._rush(AT_ONCE)

    def notice_plan(self, names: tuple[str, ...]) -> None:
        """A controller has kept a plan: somebody may replace one of its VMs by another one of that name."""
        self._rush(0.5, names)

    def _rush(self, share: float, names: tuple[str, ...] = ()) -> None:
        if self.are_busy and self._hurried and self._rng.random() < share:
            self._rushes.append((self._history.actors.now + self._rng.choice([0.0, 0.1, 0.5, 2.0]), names))

    def hidden_on(self, nodes: t.Collection[str]) -> set[int]:
        """The births of the guests on these nodes that controllers cannot see."""
        access = self._cluster.access
        vmids = {int(entry.path.removeprefix("/vms/")) for entry in access.acl if entry.role == "NoAccess"}
        guests = self._cluster.guests
        return {guests[vmid].birth for vmid in vmids & guests.keys() if guests[vmid].node in nodes}

    def end(self) -> None:
        """Let all that stands in the way of the controllers' goals be mended."""
        self.are_busy = False
        access = self._cluster.access
        access.acl = [entry for entry in access.acl if entry.role != "NoAccess"]
        access.changed()
        for guest in list(self._cluster.guests.values()):
            if self._history.permits.is_foreign(guest) and guest.name in (*NAMES, TEMPLATE):
                self._remove(guest)
            forged = self._notes.get(guest.birth)
            if forged is not None and guest.config.get("description") == forged[0]:
                self._set(guest, description=forged[1])

    # --- guests of theirs, and of others ---

    def _reuse(self, names: tuple[str, ...] = ()) -> None:
        """Remove a guest, and use its VMID for another one at once: one of the same name if that is in names."""
        old = self._to_replace(names)
        if old is None:
            return
        if not self._is_foreign(old) and (old.name in names or self._rng.random() < SAME_NAME):
            config = {key: value for key, value in old.config.items() if not (key in OWN or is_drive(key))}
            config["boot"] = " "
            name, node, kind, pool = old.name, old.node, "qemu", self._cluster.access.pool_of(old.vmid)
        else:
            name, pool = f"payroll-{old.vmid}", TENANT
            node = old.node if self._rng.random() < 0.6 else self._node()
            kind = "lxc" if self._rng.random() < CONTAINERS else "qemu"
            config = {"hostname": name} if kind == "lxc" else {"name": name, "boot": " "}
        self._history.log(f"a human uses VMID {old.vmid} ({old.name}) again for {name} on {node}")
        self._remove(old)
        self._add(old.vmid, node, {"memory": "16", **config}, pool, kind, running=old.running)

    def _to_replace(self, names: tuple[str, ...]) -> Guest | None:
        """A VM of these names, or else one that a controller is about to move, or else any."""
        moving = self.moving if self._rng.random() < 0.5 else ()
        vms = [guest for guest in self._cluster.guests.values() if guest.kind == "qemu" and not guest.template]
        for wanted in (
            [guest for guest in vms if guest.name in names and not self._is_foreign(guest)],
            [guest for guest in vms if guest.vmid in moving],
            vms,
        ):
            found = self._any_idle(wanted.__contains__)
            if found is not None:
                return found
        return None

    def _make(self) -> None:
        """Make a VM with a name that controllers ask for."""
        name = self._rng.choice([*NAMES, TEMPLATE, f"tenant-{self._rng.randrange(9)}"])
        self._add_new({"name": name, "memory": "16", "boot": " "}, running=self._rng.random() < 0.5)

    def _make_template(self) -> None:
        """Make a template of the name of the official one, as a copy on another node would be."""
        name = self._rng.choice([TEMPLATE, TEMPLATE, *NAMES])
        self._add_new({"name": name, "memory": "2048", "boot": " ", "template": 1}, running=False)

    def _rename(self) -> None:
        guest = self._any_idle(self._is_foreign)
        if guest is not None:
            self._set(guest, name=self._rng.choice([*NAMES, TEMPLATE, f"tenant-{guest.vmid}"]))

    def _change_pool(self) -> None:
        """Take a VM of nobody's name out of the pool, or put it back."""
        pool = self._cluster.access.pools[TENANT]["vms"]
        guest = self._any_idle(lambda guest: guest.name.startswith(("tenant-", "payroll-")))
        if guest is not None:
            pool.symmetric_difference_update({guest.vmid})
            self._cluster.access.changed()

    def _forge(self) -> None:
        """Write into the notes of a VM what a controller would write there to go on with it later."""
        guest = self._any_idle(lambda guest: guest.kind == "qemu" and not guest.template)
        if guest is not None:
            notes = f"{MARK} {json.dumps(self._rng.choice(FORGERIES))}"
            before = guest.config.get("description")
            self._notes[guest.birth] = (notes, self._notes.get(guest.birth, ("", before))[1])
            self._set(guest, description=notes)

    def _tag(self) -> None:
        guest = self._any_idle(lambda guest: True)
        if guest is not None:
            self._set(guest, tags=self._rng.choice(["prod", "qemu-scheduler", None]))

    def _configure(self) -> None:
        """Give a VM other options than its task says."""
        guest = self._any_idle(lambda guest: guest.name in NAMES)
        if guest is not None:
            self._set(guest, cores=2)

    def _roll_back(self) -> None:
        """Roll a VM back to a snapshot: it has another generation then."""
        guest = self._any_idle(lambda guest: guest.kind == "qemu" and guest.status == "stopped")
        if guest is not None:
            self._set(guest, vmgenid=identity.rolled_back(self._cluster, guest.config).get("vmgenid"))

    def _restore(self) -> None:
        """Remove a VM, and restore it from its backup under its VMID."""
        self._put_back(lambda config: identity.restored(self._cluster, config, unique=False), "restores")

    def _forge_sibling(self) -> None:
        """Remove a VM, and put a clone of its template in its place, to which its owner gives name and UUID of it."""

        def sibling(config: dict[str, t.Any]) -> dict[str, t.Any]:
            return {**identity.cloned(self._cluster, config), "smbios1": config.get("smbios1")}

        self._put_back(sibling, "makes a sibling of")

    def _put_back(self, changed: t.Callable[[dict[str, t.Any]], dict[str, t.Any]], word: str) -> None:
        """Put another guest with a similar config in the place of a VM that controllers have made."""
        old = self._any_idle(lambda guest: guest.name in NAMES and not self._is_foreign(guest))
        if old is None:
            return
        config = changed({key: value for key, value in old.config.items() if not is_drive(key)})
        self._history.log(f"a human {word} VM {old.vmid} ({old.name})")
        pool = self._cluster.access.pool_of(old.vmid)
        self._remove(old)
        self._add_to_pool(Guest(old.vmid, old.node, "qemu", {**config, "boot": " "}), pool)

    def _replace_template(self) -> None:
        """Put a newer official template in the place of the old one."""
        old = next((guest for guest in self._cluster.guests.values() if guest.vmid == OFFICIAL), None)
        if old is None or old.config_lock or old.lock.locked():
            return
        self._history.log("a human replaces the template")
        config = {key: value for key, value in old.config.items() if key not in OWN}
        new = Guest(old.vmid, old.node, "qemu", identity.created(self._cluster, config))
        self._do(lambda: self._cluster.guests.pop(old.vmid))
        self._do(lambda: self._cluster.add_guest(new))
        self._history.permits.note_template(new)

    # --- how ---

    def _later(self) -> float:
        return self._history.actors.now + self._rng.expovariate(1 / self._often)

    def _node(self) -> str:
        return self._rng.choice(NODES)

    def _is_foreign(self, guest: Guest) -> bool:
        return self._history.permits.is_foreign(guest)

    def _any_idle(self, wanted: t.Callable[[Guest], bool]) -> Guest | None:
        originals = self._history.referee.originals
        idle = [
            guest
            for guest in self._cluster.guests.values()
            if guest.vmid not in originals and not guest.config_lock and not guest.lock.locked() and wanted(guest)
        ]
        return self._rng.choice(idle) if idle else None

    def _set(self, guest: Guest, **options: t.Any) -> None:
        self._history.log(f"a human sets {options} of VM {guest.vmid} ({guest.name})")
        self._do(lambda: self._cluster.set_config(guest, **options))

    def _remove(self, guest: Guest) -> None:
        self._history.chaos.remove(guest)

    def _add_new(self, config: dict[str, t.Any], *, running: bool) -> None:
        vmid, node = next(vmid for vmid in FREE_VMIDS if vmid not in self._cluster.guests), self._node()
        what = "template" if config.get("template") else "VM"
        self._history.log(f"a human creates {what} {vmid} ({config['name']}) on {node}")
        self._add(vmid, node, config, TENANT, running=running)
        if self._hides and self._rng.random() < 0.5:
            self._history.log(f"a human hides VM {vmid} from the controllers")
            self._cluster.access.acl.append(AclEntry(f"/vms/{vmid}", "user", CONTROLLER, "NoAccess"))
            self._cluster.access.changed()

    def _add(
        self, vmid: int, node: str, config: dict[str, t.Any], pool: str | None, kind: str = "qemu", *, running: bool
    ) -> None:
        guest = Guest(vmid, node, kind, identity.created(self._cluster, config) if kind == "qemu" else config)
        if running:
            guest.status = guest.qmpstatus = "running"
            guest.started_at = self._history.actors.now
        self._add_to_pool(guest, pool)

    def _add_to_pool(self, guest: Guest, pool: str | None) -> None:
        if pool is not None:
            self._cluster.access.pools[pool]["vms"].add(guest.vmid)
            self._cluster.access.changed()
        self._do(lambda: self._cluster.add_guest(guest))

    def _do(self, action: t.Callable[[], object]) -> None:
        """Do something in the simulated cluster."""
        self._history.loop.call_soon(action)
        self._history.loop.settle()
