# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How every module of the collection reaches the Proxmox VE API, as documentation."""

from __future__ import annotations


class ModuleDocFragment:
    """The connection options, and the action group that sets them once for a whole play."""

    DOCUMENTATION = r"""
options:
  api_host:
    description:
      - Name or address of a node of the Proxmox VE cluster, without scheme and path, or a list of such nodes.
      - The first one that can be reached is used. When it fails, the next one of the list takes its place, also in the
        middle of a run. A write whose answer was lost is never sent to another node. All of them must belong to one
        cluster.
      - An entry may have a port of its own, as in V(pve1.example.com:443).
      - Taken from the environment variable E(PROXMOX_HOST) when it is not set, where commas separate several nodes.
    type: list
    elements: str
  api_port:
    description:
      - Port of the API.
      - Taken from the environment variable E(PROXMOX_PORT) when it is not set, and V(8006) without that.
    type: int
  api_user:
    description:
      - The user who logs in, with the realm, for example V(ansible@pve).
      - Taken from the environment variable E(PROXMOX_USER) when it is not set.
    type: str
  api_password:
    description:
      - The password of O(api_user). Where a token is given as well, the password is used.
      - Taken from the environment variable E(PROXMOX_PASSWORD) when it is not set.
    type: str
  api_token_id:
    description:
      - Name of an API token of O(api_user), for example V(scheduler). Used together with O(api_token_secret).
      - Taken from the environment variable E(PROXMOX_TOKEN_ID) when it is not set.
      - A token saves the request that a login with a password takes.
    type: str
  api_token_secret:
    description:
      - The secret of the API token.
      - Taken from the environment variable E(PROXMOX_TOKEN_SECRET) when it is not set.
    type: str
  validate_certs:
    description:
      - Whether the TLS certificate of O(api_host) must be valid.
      - With V(false) anybody between the controller and the cluster can read the credentials. For a cluster with
        certificates of its own authority, set O(ca_path) instead.
      - Taken from the environment variable E(PROXMOX_VALIDATE_CERTS) when it is not set.
    type: bool
    default: true
  ca_path:
    description:
      - File or directory with the certificates of the authorities to trust instead of the system's.
      - Proxmox VE keeps the certificate of a cluster's own authority in C(/etc/pve/pve-root-ca.pem).
      - Taken from the environment variable E(PROXMOX_CA_PATH) when it is not set.
    type: path
  api_timeout:
    description:
      - The longest time that one request may take, from connecting to the end of its answer, in seconds.
      - With several nodes in O(api_host), a connection to one of them is waited for no longer than 5 seconds while
        there is another one to try.
      - Taken from the environment variable E(PROXMOX_TIMEOUT) when it is not set.
    type: int
    default: 30
requirements:
  - python >= 3.11
  - requests
"""

    ACTIONGROUP_PROXMOX = r"""
options: {}
attributes:
  action_group:
    description: Use C(group/qemu_scheduler.proxmox.proxmox) in C(module_defaults) to set the connection options once.
    support: full
    membership:
      - qemu_scheduler.proxmox.proxmox
"""
