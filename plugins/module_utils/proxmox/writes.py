# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one place that every write to an existing guest passes, and passes only with proof that it is the guest meant."""

from __future__ import annotations

import math
import typing as t
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from ..errors import ApiError, CollectionError, PermissionDenied, TaskFailed
from ..model import Identity
from .api.session import Session
from .identity import OWN, identity_of, is_changed_by_us, require_same
from .outcomes import is_modified
from .tasks import TaskFollower, TaskResult

_SENDINGS = 3

FRESH_SECONDS = 5.0
"""How long a config that was read right now proves whose the VMID is. Normally a request follows within milliseconds,
but the process may be stopped, or the ledger may answer late.
"""

R = t.TypeVar("R")

Config: t.TypeAlias = "Mapping[str, t.Any]"


def check_nothing(_config: Config) -> None:
    """Raise nothing: the default of check."""


class GuestWriter:
    """Sends writes to one guest, each only while its VMID belongs to that guest, and follows their tasks to the end.

    Proxmox VE takes the digest of the config with changes of the config and of disks: a write with the digest of the
    config that was seen last needs no other proof, and is sent again with a new one if the config has changed. Before
    all other writes, the config is read. Used by one thread.

    All methods raise NotTheSameGuest if the VMID belongs to another guest, or if there is no proof that it does not;
    nothing was written then. They raise ApiError, as Proxmox VE answers, if the guest is not on the node.

    Attributes:
        vmid: its VMID.
        identity: its identity.
    """

    def __init__(
        self,
        session: Session,
        tasks: TaskFollower,
        vmid: int,
        identity: Identity,
        *,
        digest: str | None = None,
        check: Callable[[Config], None] = check_nothing,
        is_fresh: bool = False,
    ) -> None:
        """C(digest): that of the config in which the identity was seen; is_fresh: it was read right now, which proves
        the first write if that comes soon. check takes each config that is read, and raises if nothing must be written.
        """
        self.vmid = vmid
        self.identity = identity
        self._session = session
        self._tasks = tasks
        self._check = check
        self._digest = digest
        self._proved_at = tasks.poller.clock() if is_fresh else -math.inf
        self._looks_different = False
        self._touched: set[str] = set()

    def look(self, node: str) -> dict[str, t.Any]:
        """Read the guest's config on node, prove by it that it is the guest that is meant, and return it."""
        config: dict[str, t.Any] = self._session.get(f"{self._path(node)}/config")
        found = identity_of(config, node, self.identity.kind)
        if not (self._looks_different and is_changed_by_us(self.identity, found, self._touched)):
            require_same(self.vmid, self.identity, found)
        self._check(config)
        # What an own change has made of the guest counts from now on.
        self.identity = found
        self._looks_different, self._digest = False, config.get("digest")
        self._touched.clear()
        return config

    # --- its config and its disks ---

    def configure(self, node: str, changes: Mapping[str, t.Any]) -> None:
        """Change the config in a call that does not take long."""
        path = f"{self._path(node)}/config"
        self._send_with_digest(node, lambda digest: self._session.put(path, {**changes, "digest": digest}), changes)

    def configure_by_task(self, node: str, changes: Mapping[str, t.Any]) -> None:
        """Change the config in a task: copying an image takes longer than a response may take."""
        path = f"{self._path(node)}/config"
        self._send_with_digest(
            node, lambda digest: self._follow(self._session.post(path, {**changes, "digest": digest})), changes
        )

    def resize(self, node: str, slot: str, size: int) -> None:
        """Grow a disk to size, in bytes."""
        path = f"{self._path(node)}/resize"
        self._send_with_digest(
            node, lambda digest: self._follow(self._session.put(path, disk=slot, size=size, digest=digest))
        )

    def move_disk(self, node: str, slot: str, storage: str) -> TaskResult:
        """Copy a disk to a storage, also while the guest runs, and delete the original."""
        path, params = f"{self._path(node)}/move_disk", {"disk": slot, "storage": storage, "delete": 1}
        return self._send_with_digest(
            node, lambda digest: self._tasks.wait(self._session.post(path, {**params, "digest": digest}))
        )

    # --- what takes no digest ---

    def command(self, node: str, command: str, params: Mapping[str, t.Any]) -> str:
        """Start, stop, pause or resume it, and so on. Returns the UPID of the task."""
        return self._send_and_follow(node, lambda: self._session.post(f"{self._path(node)}/status/{command}", params))

    def convert_to_template(self, node: str) -> bool:
        """Convert it to a template, and return True."""
        return bool(self._send_and_follow(node, lambda: self._session.post(f"{self._path(node)}/template")))

    def delete(self, node: str, **params: t.Any) -> bool:
        """Delete it, with the disks that its config names, and return True."""
        return bool(self._send_and_follow(node, lambda: self._session.delete(self._path(node), params)))

    def clone(self, node: str, params: Mapping[str, t.Any], fence: Callable[[], None]) -> str:
        """Begin to clone it. Returns the UPID of the task, which is not followed.

        fence is called between the proof and the request: a proof may take long enough for a reservation to expire.
        """

        def send() -> str:
            fence()
            return str(self._session.post(f"{self._path(node)}/clone", params))

        return self._send(node, send)

    def migrate(self, node: str, params: Mapping[str, t.Any]) -> str:
        """Begin to migrate it away from node. Returns the UPID of the task, which is not followed."""
        return str(self._send(node, lambda: self._session.post(f"{self._path(node)}/migrate", params)))

    def move_to_pool(self, node: str, pool: str) -> None:
        """Put it into a pool, and remove it from its present one."""
        self._send(node, lambda: self._session.put("/pools", {"poolid": pool, "vms": self.vmid, "allow-move": 1}))

    def regenerate_cloud_init(self, node: str) -> None:
        """Write its present cloud-init data to its cloud-init drive."""
        self._send(node, lambda: self._session.put(f"{self._path(node)}/cloudinit"))

    # --- high availability ---

    def add_to_ha(self, node: str, params: Mapping[str, t.Any]) -> None:
        """Add it as an HA resource."""
        self._send(node, lambda: self._session.post("/cluster/ha/resources", {"sid": f"vm:{self.vmid}", **params}))

    def change_in_ha(self, node: str, changes: Mapping[str, t.Any]) -> None:
        """Change it as an HA resource. A guest that is removed is no longer one: the digest is another then."""
        path = f"/cluster/ha/resources/vm:{self.vmid}"
        for tries_left in reversed(range(_SENDINGS)):
            given = {**changes, "digest": self._session.get(path).get("digest")}
            try:
                self._send(node, partial(self._session.put, path, given))
                return
            except ApiError as error:
                # All HA resources are in one file, which others change as well.
                if not (tries_left and is_modified(error.message)):
                    raise

    def change_ha_rule(self, node: str, name: str, read: Callable[[], Mapping[str, t.Any] | None]) -> None:
        """Change an HA rule so that it has the guest as a member. read returns the changes, None if it has already.

        The rule is read after the proof: all rules are in one file, and each change by others makes ours fail.
        """
        self.look(node)
        changes = read()
        if changes is not None:
            self._session.put(f"/cluster/ha/rules/{name}", changes)

    def create_ha_rule(self, node: str, params: Mapping[str, t.Any]) -> None:
        """Make an HA rule that has the guest as a member."""
        self._send(node, lambda: self._session.post("/cluster/ha/rules", params))

    def create_ha_group(self, node: str, params: Mapping[str, t.Any]) -> None:
        """Make an HA group that the guest joins."""
        self._send(node, lambda: self._session.post("/cluster/ha/groups", params))

    # --- the proof ---

    def _send(self, node: str, send: Callable[[], R]) -> R:
        """Send a write right after the config has proved whom it is for."""
        if self._tasks.poller.clock() - self._proved_at > FRESH_SECONDS:
            self.look(node)
        self._proved_at, self._digest = -math.inf, None
        return send()

    def _send_and_follow(self, node: str, send: Callable[[], str]) -> str:
        """Send a write, follow its task, and return the task's UPID."""
        upid = self._send(node, send)
        self._follow(upid)
        return upid

    def _send_with_digest(
        self, node: str, send: Callable[[str | None], R], changes: Mapping[str, t.Any] = MappingProxyType({})
    ) -> R:
        """Send a write with the digest of the config that was seen last, or of the present one if it has changed."""
        for tries_left in reversed(range(_SENDINGS)):
            digest = self._digest or self.look(node).get("digest")
            self._proved_at, self._digest = -math.inf, None
            try:
                result = send(digest)
            except (ApiError, PermissionDenied, TaskFailed) as error:
                if tries_left and is_modified(error.message):
                    continue
                if isinstance(error, TaskFailed):
                    self._note_change(changes)
                raise
            except CollectionError:
                # The answer was lost, or the task was not followed to its end.
                self._note_change(changes)
                raise
            self._note_change(changes)
            return result
        raise AssertionError("the last try has returned or raised")

    def _note_change(self, changes: Mapping[str, t.Any]) -> None:
        """Note that the guest may look different now because of a write that was sent."""
        self._touched |= OWN.keys() & {*changes, *str(changes.get("delete", "")).split(",")}
        self._looks_different = True

    def _follow(self, upid: str | None) -> TaskResult | None:
        return self._tasks.wait(upid) if upid else None

    def _path(self, node: str) -> str:
        return f"/nodes/{node}/{self.identity.kind}/{self.vmid}"
