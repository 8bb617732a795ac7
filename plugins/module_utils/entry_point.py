# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every module does around its work: errors become failures with a code, everything else stays as it is."""

from __future__ import annotations

import contextlib
import signal
import typing as t
from collections.abc import Callable, Iterator

from ansible.module_utils.basic import AnsibleModule

from .errors import CollectionError, Interrupted
from .reservations.opening import passwords_in
from .workflow.schedule import RunFailed
from .workflow.stopping import SIGNALS


def answer(module: AnsibleModule, work: Callable[[], dict[str, t.Any]]) -> None:
    """Do the work and leave the module with its result, or with the failure that it raised."""
    # Ansible shows the options of a task when asked to be verbose, and knows only those that are secret as a whole.
    module.no_log_values |= passwords_in(module.params.get("reservations"))
    try:
        with _interruptible():
            result = work()
    except KeyboardInterrupt:
        module.fail_json(msg="interrupted before anything was written", error_code=Interrupted.code)
    except RunFailed as failure:
        module.fail_json(msg=failure.message, error_code=failure.failed_code, **failure.result)
    except CollectionError as error:
        module.fail_json(msg=error.message, error_code=error.code, error_details=error.details)
    module.exit_json(**result)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Make of the first signal a KeyboardInterrupt, and ignore those after it: one Ctrl-C may arrive as several.

    They are ignored after the block as well: the result still has to be printed, and then the process ends.
    """

    def ignore() -> None:
        for number in heard:
            signal.signal(number, signal.SIG_IGN)

    def interrupt(number: int, _frame: object) -> None:
        ignore()
        raise KeyboardInterrupt(signal.Signals(number).name)

    heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heard:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        ignore()
