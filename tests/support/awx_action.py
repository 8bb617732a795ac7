# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An action plugin in place of every module of awx.awx: it checks the options as the module does, and records the call.

It knows the options from awx_modules.json beside the tests, and writes a line of JSON to the file that AWX_CALLS names.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Found by Ansible by this name."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Check and record the options."""
        module = self._task.action.rpartition(".")[2]
        specs = json.loads(Path(os.environ["AWX_MODULES"]).read_text(encoding="utf-8"))["modules"]
        checked = ArgumentSpecValidator(specs[module]).validate(dict(self._task.args))
        if checked.error_messages:
            return {"failed": True, "msg": f"{module}: {'; '.join(checked.error_messages)}"}
        options = {key: value for key, value in checked.validated_parameters.items() if value is not None}
        with open(os.environ["AWX_CALLS"], "a", encoding="utf-8") as file:
            file.write(json.dumps({"module": module, "options": options}, default=str) + "\n")
        return {"changed": True}
