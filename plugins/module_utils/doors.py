# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every module does around its work: errors become failures with a code, everything else stays as it is."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

from ansible.module_utils.basic import AnsibleModule

from .errors import CollectionError
from .reservations.opening import passwords_in
from .workflow.schedule import RunFailed


def answer(module: AnsibleModule, work: Callable[[], dict[str, t.Any]]) -> None:
    """Do the work and leave the module with its result, or with the failure that it raised."""
    # Ansible shows the options of a task when asked to be verbose, and knows only those that are secret as a whole.
    module.no_log_values |= passwords_in(module.params.get("reservations"))
    try:
        result = work()
    except RunFailed as failure:
        module.fail_json(msg=failure.message, error_code=failure.failed_code, **failure.result)
    except CollectionError as error:
        module.fail_json(msg=error.message, error_code=error.code, error_details=error.details)
    module.exit_json(**result)
