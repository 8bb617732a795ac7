# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the attributes of the collection's modules."""

from __future__ import annotations


class ModuleDocFragment:
    """The fragments C(attributes), which describes them, and C(attributes.info_module), for modules that only read."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Predicts the actions and their results without performing them.
  diff_mode:
    description: Shows the state before and after the task.
  platform:
    description: The systems on which the module runs. The cluster itself is reached by its API.
    platforms: posix
    support: full
"""

    INFO_MODULE = r"""
options: {}
attributes:
  check_mode:
    support: full
    details:
      - The module only reads.
  diff_mode:
    support: none
    details:
      - The module only reads.
"""
