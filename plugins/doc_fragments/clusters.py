# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options about several clusters."""

from __future__ import annotations


class ModuleDocFragment:
    """The fragment C(clusters)."""

    DOCUMENTATION = r"""
options:
  clusters:
    description:
      - Several clusters to choose from for each VM. All of them are read at the same time. Each cluster decides by
        itself whether and where a VM fits.
      - Of the clusters where a VM fits, preferred rules between clusters decide, then the highest score of a node. An
        existing VM stays on its cluster.
      - Rules with the C(topology_key) V(cluster), or with one of the labels of the clusters, hold between clusters.
      - VMIDs and reservations are separate for each cluster. The result and the tables name the cluster of each VM.
      - The connection options at the top level are defaults for all clusters, except O(api_host).
      - Cannot be combined with O(snapshot), O(nodes), O(metrics), O(address_pools), and O(rules) of the type
        V(node-affinity).
    type: list
    elements: dict
    suboptions:
      name:
        description: Name of the cluster in this task, also its value of the label C(cluster).
        type: str
        required: true
      labels:
        description: Labels of the cluster. All of its nodes have them, so that C(node_affinity) can refer to them.
        type: dict
      nodes:
        description: As O(nodes), for the nodes of this cluster.
        type: dict
      metrics:
        description: As O(metrics), for the nodes and guests of this cluster.
        type: dict
        suboptions:
          nodes:
            description: As O(metrics.nodes).
            type: dict
          guests:
            description: As O(metrics.guests).
            type: dict
      snapshot:
        description: As O(snapshot), a recording of this cluster. Either all clusters have one, or none.
        type: raw
      api_host:
        description: As O(api_host), for this cluster. Required without O(clusters[].snapshot).
        type: list
        elements: str
      api_port:
        description: As O(api_port), for this cluster.
        type: int
      api_user:
        description: As O(api_user), for this cluster.
        type: str
      api_password:
        description: As O(api_password), for this cluster. A token at the top level is not used then.
        type: str
      api_token_id:
        description: As O(api_token_id), for this cluster. A password at the top level is not used then.
        type: str
      api_token_secret:
        description: As O(api_token_secret), for this cluster. A password at the top level is not used then.
        type: str
      validate_certs:
        description: As O(validate_certs), for this cluster.
        type: bool
      ca_path:
        description: As O(ca_path), for this cluster.
        type: path
      api_timeout:
        description:
          - As O(api_timeout), for this cluster. The timeout for the first connection to each host is 2 seconds.
        type: int
  when_unreachable:
    description:
      - What to do with a VM that was not found, while some of the O(clusters) that it may be on cannot be reached.
      - With V(fail), the VM fails with C(ClusterUnreachable), as it may exist there. This does not affect existing VMs
        on the other clusters, or VMs whose C(cluster) names only clusters that can be reached.
      - With V(skip), the VM is placed on the other clusters. Set it only if none of the VMs of the task can be on the
        cluster that cannot be reached. A VM that is being created there according to the ledger still fails.
    type: str
    choices: [fail, skip]
    default: fail
"""
