# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes lines of JSON: when each task began and ended on each host, and what its module returned."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: record
type: notification
short_description: Writes times and results of tasks as lines of JSON
description: The environment variable E(BENCH_RECORD) names the file.
"""


class CallbackModule(CallbackBase):
    """Each line has event (start or end) and at (monotonic seconds); that of an end also has the result."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "record"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        self._write(event="start")

    def v2_runner_on_ok(self, result: Any) -> None:
        self._write(event="end", result=result._result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._write(event="end", result={**result._result, "failed": True})

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._write(event="end", result={**result._result, "failed": True})

    def _write(self, **event: Any) -> None:
        with open(os.environ["BENCH_RECORD"], "a", encoding="utf-8") as file:
            file.write(json.dumps({**event, "at": time.monotonic()}, default=str) + "\n")
