# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads what a module prints as the controller does, which from ansible-core 2.22 on hides the secrets in it."""

from __future__ import annotations

import functools
import json
from collections.abc import Collection
from typing import Any

HIDDEN = "$REDACTED$"


def as_shown(text: str, registered: Collection[str] = ()) -> dict[str, Any]:
    """Return the result of a module without the secrets that it tells the controller, and without those that are known
    to be registered: a process tells each only once.
    """
    result: dict[str, Any] = json.loads(text)
    return dict(_masked(result, {*registered, *result.pop("_ansible_new_secrets", ())} - {""}))


def _masked(value: Any, secrets: Collection[str]) -> Any:
    if isinstance(value, dict):
        return {_masked(key, secrets): _masked(each, secrets) for key, each in value.items()}
    if isinstance(value, list):
        return [_masked(each, secrets) for each in value]
    if not isinstance(value, str):
        return value
    return functools.reduce(lambda text, secret: text.replace(secret, HIDDEN), sorted(secrets, key=len)[::-1], value)
