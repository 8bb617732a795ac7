# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Carries out one move, by a migration or through the HA manager, and waits until it is complete."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from ...errors import ApiError, CollectionError, MoveFailed, PlanStale, TaskFailed
from ...plans import HA, LIVE, RESTART, Move
from ..api.failures import UNREADABLE, AnswerLost, NotImplementedHere
from ..api.session import Session
from ..identity import prove
from ..inventory.rows import read_rows
from ..lifecycle import LOOK_FOR, no_fence
from ..outcomes import cause_of, is_busy, is_config_locked, is_missing, lock_named
from ..tasks import BUSY_PAUSE, MIGRATIONS, SENDINGS, TaskFollower, Upid, latest_task
from ..writes import GuestWriter
from .checks import refusals_in, unexplained_refusal
from .ha_moves import HAMoves
from .mobility_rules import storage_of
from .restarts import move_off

_LOCK_HELD = re.compile(r"can't lock file '[^']*' - got timeout")


@dataclass(frozen=True, slots=True)
class _Found:
    """A guest after a failed move: its node and config, None if they cannot be read; the names of shared storages."""

    node: str | None = None
    config: Mapping[str, t.Any] | None = None
    shared: frozenset[str] = frozenset()


Demanding = Callable[[Mapping[int, Mapping[str, t.Any]]], bool]
"""Checks what the configs of a move's guests, by VMID, ask of the target. Raises PlanStale; returns whether that took
requests.
"""


def demand_nothing(_configs: Mapping[int, Mapping[str, t.Any]]) -> bool:
    """Check nothing."""
    return False


class Mover:
    """Moves guests. May be used from many threads.

    A move waits for another task of its guest as long as for its own. If nothing fails, it takes three requests and the
    polls of its task, through the HA manager also polls of the guest. The first live move to a node takes one more.
    """

    def __init__(self, session: Session, tasks: TaskFollower, *, bwlimit: int | None = None) -> None:
        """bwlimit is the bandwidth limit of each migration in KiB/s; None: Proxmox's default."""
        self._session = session
        self._tasks = tasks
        self._poller = tasks.poller
        self._bwlimit = bwlimit
        self._ha = HAMoves(session, tasks)
        self._takes_connections: dict[str, bool] = {}

    def move(
        self, move: Move, *, fence: Callable[[], None] = no_fence, demanding: Demanding = demand_nothing
    ) -> tuple[str, ...]:
        """Check that the guest is the one that was planned for and still as the plan assumes, move it, and return when
        it has arrived: warnings for the user.

        fence is called right before each request that begins the migration, and demanding with the configs of the
        guests before that. If one of them raises, the request is not sent.

        Raises:
            PlanStale: the guest has moved, was started or stopped, is locked, or may not go there; no migration of it
                was begun by this call.
            NotTheSameGuest: its VMID belongs to another guest now; nothing was done with that one.
            MoveFailed: the migration was refused or failed; details say why, where the guest is and what was left
                behind.
            TaskTimeout: the migration still runs.
            ConnectionFailed, PermissionDenied: the migration was not begun.
            AnswerLost: it is unknown whether the migration was begun.
        """
        params = self._prepare(move, demanding)
        if move.how == RESTART and move.kind == "qemu":

            def migrate(still: Move) -> tuple[str, ...]:
                return self.move(still, fence=fence, demanding=demanding)

            return move_off(self._session, self._tasks, move, fence, migrate, label(move))
        prepared: Mapping[str, t.Any] | None = params
        ends = self._poller.clock() + self._tasks.timeout
        while True:
            since = self._session.server_time()
            try:
                upid = self._send(move, prepared, since, fence, demanding)
            except ApiError as error:
                if lock_named(error.message) is not None:
                    raise self._stale(move, error) from error
                raise self._failure(move, error.message, self._find(move), refused=True) from error
            try:
                result = self._tasks.wait(upid)
                # This task only passes the request on: the HA manager begins the move up to ten seconds later.
                if Upid.parse(upid).type == "hamigrate":
                    self._ha.follow(move, since, lambda: self._repeat(move, fence, demanding))
            except TaskFailed as error:
                if not is_config_locked(str(error.details.get("exitstatus"))) or self._poller.clock() >= ends:
                    return self._warn_or_raise(move, error)
                self._poller.sleep(BUSY_PAUSE)
                # By then, the guest may be off, or somewhere else.
                prepared = None
                continue
            return result.log if result.warnings else ()

    # --- before ---

    def _prepare(self, move: Move, demanding: Demanding) -> dict[str, t.Any]:
        """Return the parameters of the request, if the guest is the one that was planned for, and as the plan assumes.

        The proof comes last, right before the request. Raises as move does.
        """
        base = _base(move)
        try:
            # Without target: with it, Proxmox VE gives the same answer, and checks neither that the node exists nor
            # that it is online.
            check: Mapping[str, t.Any] = self._session.get(f"{base}/migrate")
        except NotImplementedHere:
            # Before 9, Proxmox VE has no such check for containers: read the lock from the config.
            check = {}
        except ApiError as error:
            raise self._stale(move, error) from error
        if check:
            _check_running(move, running=bool(int(check.get("running") or 0)))
        connections = self._keeps_connections(move, check)
        configs = self._prove(move)
        if demanding(configs):
            configs = self._prove(move)
        config = configs[move.vmid]
        if config.get("lock"):
            raise stale(move, f"it is locked ({config['lock']})")
        volumes = _volumes_of(check)
        if move.kind == "lxc":
            volumes = {slot: str(config.get(slot, "")).partition(",")[0] for slot in move.storages}
        params = self._parameters(move, self._storages(move, check, volumes))
        return {**params, "with-conntrack-state": 1} if connections else params

    def _keeps_connections(self, move: Move, check: Mapping[str, t.Any]) -> bool:
        """Whether both nodes can carry the tracked connections of a running VM over: without them, its firewall drops
        what was open. Proxmox VE can since 9, and by itself does not. One request for each target.
        """
        if move.how != LIVE or move.via == HA or not check.get("has-dbus-vmstate"):
            return False
        if move.target not in self._takes_connections:
            path = f"/nodes/{move.target}/capabilities/qemu/migration"
            with suppress(*UNREADABLE):
                self._takes_connections[move.target] = bool(self._session.get(path).get("has-dbus-vmstate"))
        return self._takes_connections.get(move.target, False)

    def _prove(self, move: Move) -> dict[int, Mapping[str, t.Any]]:
        """Return the configs of the guest that moves and of those that move along, which are the guests of the plan."""
        configs: dict[int, Mapping[str, t.Any]] = {}
        for vmid in reversed(move.vmids):
            identity = move.identities.get(vmid)
            if identity is None:
                raise stale(move, f"nothing is known of the identity of guest {vmid}")
            node = move.source if vmid == move.vmid else identity.node
            try:
                configs[vmid] = prove(self._session, node, vmid, identity)
            except ApiError as error:
                raise self._stale(move, error) from error
        return configs

    def _storages(self, move: Move, check: Mapping[str, t.Any], volumes: Mapping[str, str]) -> dict[str, str]:
        """Return the target storage of each storage that the guest's local volumes, by slot, are on. Raises
        PlanStale.
        """
        mapped = move.via != HA
        unplanned = sorted(volumes.keys() - move.storages.keys()) if mapped else []
        if unplanned:
            raise stale(move, f"{', '.join(unplanned)} would have to be copied, which the plan does not know")
        sources = {slot: storage_of(volume) for slot, volume in volumes.items()}
        pairs = {(sources[slot], target) for slot, target in move.storages.items() if slot in sources}
        storages = dict(pairs)
        if mapped and len(pairs) > len(storages):
            raise stale(move, "disks of one storage would go to several, and Proxmox VE maps whole storages")
        _check_target(move, check, set(storages) if mapped else set())
        return storages

    def _stale(self, move: Move, error: ApiError) -> CollectionError:
        lock = lock_named(error.message)
        if lock is not None:
            return stale(move, f"it is locked ({lock})")
        return stale(move, f"it is no longer on {move.source}") if is_missing(error.message) else error

    def _parameters(self, move: Move, storages: Mapping[str, str]) -> dict[str, t.Any]:
        """Return the parameters of the request that moves the guest."""
        params: dict[str, t.Any] = {"target": move.target}
        if move.how == LIVE:
            # Without it, Proxmox refuses to move a VM that runs.
            params["online"] = 1
        elif move.how == RESTART:
            params["restart"] = 1
        if move.via == HA:
            # The HA manager ignores the other parameters, and copies local disks without them.
            return params
        if move.how == LIVE and storages:
            # A stopped VM takes all its disks along anyway, also those that no slot uses.
            params["with-local-disks"] = 1
        others = {source: target for source, target in storages.items() if source != target}
        if others:
            # Proxmox VE spells the parameter in two ways.
            name = "targetstorage" if move.kind == "qemu" else "target-storage"
            params[name] = ",".join(f"{source}:{target}" for source, target in sorted(others.items()))
        if self._bwlimit is not None:
            params["bwlimit"] = self._bwlimit
        return params

    # --- under way ---

    def _send(
        self,
        move: Move,
        params: Mapping[str, t.Any] | None,
        since: float | None,
        fence: Callable[[], None],
        demanding: Demanding,
    ) -> str:
        """Send the request and return its task. After a lost answer, look for the task before sending again.

        params are those of a guest that has just been checked; None: it is to be checked.
        """
        for tries_left in reversed(range(SENDINGS)):
            params = params or self._prepare(move, demanding)
            # What the guest is was proved as the last thing that params are made of.
            guest = GuestWriter(self._session, self._tasks, move.vmid, move.identities[move.vmid], is_fresh=True)
            fence()
            try:
                return guest.migrate(move.source, params)
            except AnswerLost:
                upid = self._poller.until(lambda: self._find_task(move, since), LOOK_FOR)
                if upid is not None:
                    return upid
                if not tries_left:
                    raise
            except ApiError as error:
                if not (tries_left and is_busy(error.message)):
                    raise
                self._poller.sleep(BUSY_PAUSE)
            params = None
        raise AssertionError("the last try has returned or raised")

    def _repeat(self, move: Move, fence: Callable[[], None], demanding: Demanding) -> None:
        """Send the request once more, and wait until its task has passed it to the HA manager. A guest that has begun
        to move meanwhile is no longer as planned.
        """
        with suppress(ApiError, PlanStale):
            self._tasks.wait(self._send(move, None, self._session.server_time(), fence, demanding))

    def _find_task(self, move: Move, since: float | None) -> str | None:
        """Return the task of a request whose answer was lost, if it was begun."""
        if since is None:
            return None
        return latest_task(self._session, move.source, move.vmid, MIGRATIONS, since, self._session.user)

    # --- after ---

    def _warn_or_raise(self, move: Move, error: TaskFailed) -> tuple[str, ...]:
        """Return a warning if the guest has arrived and only the last steps of its migration failed; else raise
        MoveFailed, or PlanStale if another migration of the guest was quicker.
        """
        status = str(error.details.get("exitstatus", ""))
        if _LOCK_HELD.match(status):
            # What there is of it on the target belongs to the task that holds the lock.
            raise stale(move, "another task is working on it") from error
        if is_missing(status):
            raise stale(move, f"it is no longer on {move.source}") from error
        # The exit status of a migration says only "migration problems" or "migration aborted".
        cause = cause_of(error.details.get("log", ())) or error.message
        found = self._find(move)
        if found.node == move.target and found.config is not None and not found.config.get("lock"):
            return (f"it has arrived, but its migration ended with: {cause}",)
        raise self._failure(move, cause, found) from error

    def _failure(self, move: Move, cause: str, found: _Found, *, refused: bool = False) -> MoveFailed:
        """Return the error about a failed move, which says where the guest is and what was left behind."""
        node, lock = found.node, None if refused else (found.config or {}).get("lock")
        left = [] if refused or node != move.source else self._orphans(move, found)
        parts = [f"{label(move)} could not be moved from {move.source} to {move.target}: {cause}"]
        if node not in (None, move.source):
            parts.append(f"it is on {node} now")
        if lock:
            # A killed process leaves its lock, which only root can remove.
            tool = "qm" if move.kind == "qemu" else "pct"
            parts.append(
                f"it is still locked ({lock}): when nothing works on it, '{tool} unlock {move.vmid}' on {node}"
            )
        if left:
            volumes = ", ".join(each["volume"] for each in left)
            parts.append(f"left behind on {move.target}, and used by no config: {volumes}")
        return MoveFailed(
            "; ".join(parts),
            vmid=move.vmid,
            source=move.source,
            target=move.target,
            cause=cause,
            node=node,
            lock=lock,
            left_behind=left,
        )

    def _orphans(self, move: Move, found: _Found) -> list[dict[str, str]]:
        """Return the guest's volumes on the target that no config uses. A volume there is in use only if the storage is
        shared and the guest's config names it.
        """
        if found.config is None:
            return []
        used = {str(value).partition(",")[0] for value in found.config.values()}
        orphans: list[dict[str, str]] = []
        for storage in sorted(set(move.storages.values())):
            path = f"/nodes/{move.target}/storage/{storage}/content"
            # A copy that was broken off leaves its disk behind if its clean-up takes more than five seconds.
            content = "images" if move.kind == "qemu" else "rootdir"
            rows = read_rows(self._session, path, vmid=move.vmid, content=content) or ()
            volumes = [str(row["volid"]) for row in rows]
            kept = used if storage in found.shared else set()
            orphans += [{"volume": volume, "node": move.target} for volume in volumes if volume not in kept]
        return orphans

    def _find(self, move: Move) -> _Found:
        """Return where the guest is after a failure, as far as that can be read."""
        rows = read_rows(self._session, "/cluster/resources") or ()
        node = next((str(row["node"]) for row in rows if row.get("vmid") == move.vmid), None)
        shared = frozenset(str(row["storage"]) for row in rows if row.get("shared"))
        config: Mapping[str, t.Any] | None = None
        if node is not None:
            # Its node may be down.
            with suppress(*UNREADABLE):
                config = self._session.get(f"/nodes/{node}/{move.kind}/{move.vmid}/config")
        return _Found(node, config, shared)


def label(move: Move) -> str:
    """Return the guest of a move as messages name it."""
    word = "VM" if move.kind == "qemu" else "container"
    return f'{word} "{move.name}" ({move.vmid})' if move.name else f"{word} {move.vmid}"


def stale(move: Move, what: str) -> PlanStale:
    """Return the error about a guest that is not as the plan assumes. what completes the sentence about the guest."""
    changed = f"{label(move)}: {what}"
    return PlanStale(f"the cluster is not as planned, and the move was not begun: {changed}", changed=[changed])


def _base(move: Move) -> str:
    return f"/nodes/{move.source}/{move.kind}/{move.vmid}"


def _volumes_of(check: Mapping[str, t.Any]) -> dict[str, str]:
    """Return the attached local volumes by slot. The target of unattached ones follows from their storage."""
    rows = check.get("local_disks") or ()
    return {str(row["drivename"]): str(row["volid"]) for row in rows if row.get("drivename")}


def _check_running(move: Move, *, running: bool) -> None:
    if running != (move.how in (LIVE, RESTART)):
        raise stale(move, f"it was {'started' if running else 'stopped'} after the plan was made")


def _check_target(move: Move, check: Mapping[str, t.Any], mapped: set[str]) -> None:
    """Raise PlanStale if Proxmox VE would refuse the target. mapped are storages whose disks go to others there."""
    unknown = unexplained_refusal(check, move.kind, move.target)
    if unknown is not None:
        raise stale(move, unknown)
    reasons: Mapping[str, t.Any] = refusals_in(check).get(move.target) or {}
    # Proxmox VE writes the first of these reasons with an underscore and the others with dashes.
    storages = sorted(set(reasons.get("unavailable_storages") or ()) - mapped)
    devices = sorted(reasons.get("unavailable-resources") or ())
    enemies = sorted(str(row.get("sid")) for row in reasons.get("blocking-ha-resources") or ())
    for what, missing in (("the storage", storages), ("the mapped devices of", devices)):
        if missing:
            raise stale(move, f"{move.target} lacks {what} {', '.join(missing)}")
    if enemies:
        raise stale(move, f"an HA rule keeps it apart from {', '.join(enemies)} on {move.target}")
