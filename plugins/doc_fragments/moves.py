# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options and the results of modules that move guests."""

from __future__ import annotations

import textwrap

_SELECTION = textwrap.indent(
    r"""
vmid:
  description: The VMIDs of the guests.
  type: list
  elements: int
name:
  description: A regular expression that matches the whole name.
  type: str
tags:
  description: Tags that the guest has.
  type: list
  elements: str
  aliases: [tag]
status:
  description: The status of the guest. A hibernated VM is V(stopped).
  type: str
  choices: [running, paused, stopped]
type:
  description: VMs (V(qemu)) or containers (V(lxc)).
  type: str
  choices: [qemu, lxc]
""".lstrip("\n"),
    " " * 6,
)


class ModuleDocFragment:
    """The fragment C(moves), C(moves.stays) and C(moves.guests) about guests that are not moved, and C(moves.order)."""

    DOCUMENTATION = r"""
options:
  containers:
    description:
      - Whether running containers are moved. Proxmox VE cannot migrate them live.
      - With V(restart), a container is shut down, moved and started again. With V(skip), it stays and is reported as
        stuck.
    type: str
    choices: [skip, restart]
    default: skip
  vms_not_live:
    description:
      - Whether running VMs are moved that cannot move live, because of the CPU that they see, mapped devices or
        snapshots on local storages, for example.
      - With V(restart), such a VM is shut down, moved and started again. It gets 300 seconds to shut down, and stays
        where it is if it does not. If its move fails, it is started on its present node. Nodes to which it can move
        live come first. A task that is killed while it moves such a VM leaves it off.
      - VMs that the HA manager manages are not moved this way. With V(skip), they stay and are reported as stuck.
    type: str
    choices: [skip, restart]
    default: skip
  offline:
    description:
      - Whether guests that are stopped are moved. With V(false), they are reported as stuck.
    type: bool
    default: true
  local_disks:
    description:
      - Whether guests with disks on local storages are moved. Their disks are copied to a storage of the target.
    type: bool
    default: true
  max_moves:
    description:
      - Maximum number of moves of the plan. Unlimited by default.
    type: int
  max_transfer:
    description:
      - Maximum amount of data that the moves of the plan send, memory and disks, in GiB. Unlimited by default.
    type: float
  parallel:
    description:
      - Maximum number of moves at the same time.
    type: dict
    suboptions:
      cluster:
        description: Maximum number of moves in the whole cluster.
        type: int
        default: 4
      per_node_in:
        description: Maximum number of moves to the same node.
        type: int
        default: 2
      per_node_out:
        description: Maximum number of moves from the same node.
        type: int
        default: 2
      per_link:
        description: Maximum number of moves between any two nodes, both directions counted together.
        type: int
        default: 2
  bwlimit:
    description:
      - Bandwidth limit of each migration, in KiB/s. Defaults to the limit of the datacenter.
        The HA manager ignores it.
    type: int
  timeout:
    description:
      - Timeout of one move, in seconds. After the timeout the migration continues. The error names its UPID.
      - Also the maximum total time to wait for moves that other tasks or users have started. Guests that are still
        being moved after that are reported as stuck.
    type: int
    default: 3600
  on_failure:
    description:
      - What to do if a move fails, or if the cluster is not as planned. No new move starts, and the task waits for
        those that are under way.
      - With V(replan), a new plan is made from the present state. With V(stop), the task ends.
    type: str
    choices: [replan, stop]
    default: replan
  plan_file:
    description:
      - File to write the plan to, as JSON, also in check mode.
    type: path
  apply:
    description:
      - A plan to carry out exactly. Either the path of a file that was written with O(plan_file), or RV(plan) of
        another task, also as JSON text.
      - The task fails with C(PlanStale) before anything is written if the cluster is no longer as the plan assumes. The
        message states what changed.
      - Moves that have been made already are not made again. To complete an interrupted plan, apply it again.
    type: raw
  progress_file:
    description:
      - File on the host that runs the module. The module appends a line of JSON when a move has ended. Its keys are
        C(done), C(total), C(name), C(vmid), C(identity) (what shows that it is the same guest), C(from), C(to),
        C(outcome), C(seconds) and C(error) (a code, or null).
      - If the module runs on the controller, the task output shows a line for each move in any case.
    type: path
attributes:
  check_mode:
    support: full
    details:
      - Returns the complete plan. Writes nothing to the cluster and reserves nothing in the ledger.
  diff_mode:
    support: full
    details:
      - Shows the node of each guest that moves.
"""

    STAYS: str = (
        r"""
options:
  stays:
    description:
      - Guests that may stay on nodes that are drained. An entry concerns the guests for which everything holds that it
        says. They are not moved, count as done, and are listed in RV(stays).
      - For a reboot of the node, for example, a large VM that is stopped need not be copied.
    type: list
    elements: dict
    default: []
    suboptions:
"""
        + _SELECTION
    )

    GUESTS: str = (
        r"""
options:
  guests:
    description:
      - Guests that are not moved. An entry concerns the guests for which everything holds that it says. The first entry
        that concerns a guest counts. Without one, a guest that cannot be moved is a reason to refuse the tour.
    type: list
    elements: dict
    default: []
    suboptions:
      action:
        description:
          - V(shut_down) shuts the guest down before the maintenance of its node, in the reverse order of its option
            C(startup), and starts it again afterwards.
          - V(stay) leaves it as it is, for guests that are off, or if the maintenance does not reboot the node.
        type: str
        choices: [shut_down, stay]
        required: true
      immovable:
        description: Whether the entry concerns only guests that cannot be moved.
        type: bool
        default: false
"""
        + _SELECTION
    )

    ORDER: str = (
        r"""
options:
  order:
    description:
      - Which guests others depend on. Guests of the first entry start first and are shut down last. Those that no entry
        selects start last. Within an entry, C(startup) of the guests counts, on all nodes together.
      - Guests of the same order are shut down and started at the same time, as many as O(parallel) says.
    type: list
    elements: dict
    default: []
    suboptions:
"""
        + _SELECTION
    )

    SHUTDOWN: str = r"""
options:
  shutdown:
    description: How guests are shut down.
    type: dict
    default: {}
    suboptions:
      timeout:
        description: Seconds that a guest gets. By default, C(down) of its option C(startup), or 180.
        type: int
      force:
        description: Whether a guest that still runs after that time is stopped. Otherwise, the task fails.
        type: bool
        default: false
"""
