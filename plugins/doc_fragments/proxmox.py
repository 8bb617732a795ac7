# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the connection options."""

from __future__ import annotations


class ModuleDocFragment:
    """The fragments C(proxmox), C(proxmox.actiongroup_proxmox) and, for plugins, C(proxmox.environment)."""

    DOCUMENTATION = r"""
options:
  api_host:
    description:
      - Name or address of a node of the Proxmox VE cluster, without scheme and path, or a list of such nodes.
      - The first reachable node is used. If it fails, even in the middle of a run, the next one in the list is used. A
        write whose response was lost is never sent to another node. All nodes must belong to the same cluster.
      - An entry may include a port, as in V(pve1.example.com:443).
      - If it is not set, the environment variable E(PROXMOX_HOST) is used, in which commas separate several nodes.
    type: list
    elements: str
  api_port:
    description:
      - Port of the API.
      - If it is not set, the environment variable E(PROXMOX_PORT) is used, or else V(8006).
    type: int
  api_user:
    description:
      - The user to log in as, with the realm, for example V(ansible@pve).
      - If it is not set, the environment variable E(PROXMOX_USER) is used.
    type: str
  api_password:
    description:
      - The password of O(api_user). If a token is given as well, the password is used.
      - If it is not set, the environment variable E(PROXMOX_PASSWORD) is used.
    type: str
  api_token_id:
    description:
      - Name of an API token of O(api_user), for example V(scheduler). Requires O(api_token_secret).
      - If it is not set, the environment variable E(PROXMOX_TOKEN_ID) is used.
      - With a token, no login request is needed.
    type: str
  api_token_secret:
    description:
      - The secret of the API token.
      - If it is not set, the environment variable E(PROXMOX_TOKEN_SECRET) is used.
    type: str
  validate_certs:
    description:
      - Whether the TLS certificate of O(api_host) must be valid.
      - With V(false), an attacker between the controller and the cluster can read the credentials. For a cluster that
        uses its own certificate authority, set O(ca_path) instead.
      - If it is not set, the environment variable E(PROXMOX_VALIDATE_CERTS) is used.
    type: bool
    default: true
  ca_path:
    description:
      - File or directory with the CA certificates to trust instead of the system's.
      - Proxmox VE stores the certificate of the cluster's own authority in C(/etc/pve/pve-root-ca.pem).
      - If it is not set, the environment variable E(PROXMOX_CA_PATH) is used.
    type: path
  api_timeout:
    description:
      - Timeout of one request in seconds, from connecting to the end of the response.
      - With several nodes in O(api_host), connecting to a node may take 5 seconds, unless it is the last one.
      - If it is not set, the environment variable E(PROXMOX_TIMEOUT) is used.
    type: int
    default: 30
requirements:
  - python >= 3.11
  - proxmoxer >= 2.0
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

    ENVIRONMENT = r"""
options:
  api_host:
    env: [{name: PROXMOX_HOST}]
  api_port:
    env: [{name: PROXMOX_PORT}]
  api_user:
    env: [{name: PROXMOX_USER}]
  api_password:
    env: [{name: PROXMOX_PASSWORD}]
  api_token_id:
    env: [{name: PROXMOX_TOKEN_ID}]
  api_token_secret:
    env: [{name: PROXMOX_TOKEN_SECRET}]
  validate_certs:
    env: [{name: PROXMOX_VALIDATE_CERTS}]
  ca_path:
    env: [{name: PROXMOX_CA_PATH}]
  api_timeout:
    env: [{name: PROXMOX_TIMEOUT}]
"""
    """Ansible reads the environment variables of plugins from their documentation."""
