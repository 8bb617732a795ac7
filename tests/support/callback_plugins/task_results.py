# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the result of every task as a line of JSON to the file that TASK_RESULTS names."""

from __future__ import annotations

import json
import os
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: task_results
type: aggregate
short_description: Write task results for tests
description: Writes the result of every task as a line of JSON.
"""


class CallbackModule(CallbackBase):
    """Listens to results; prints nothing."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "task_results"

    def v2_runner_on_ok(self, result: Any) -> None:
        self._write(result, failed=False)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._write(result, failed=True)

    def _write(self, result: Any, *, failed: bool) -> None:
        path = os.environ.get("TASK_RESULTS")
        if not path:
            return
        line = {"host": result._host.get_name(), "task": result._task.get_name(), "failed": failed}
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps({**line, "result": result._result}, default=str) + "\n")
