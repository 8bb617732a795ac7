# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads booleans of an inventory source strictly: Ansible takes each word that does not mean true for false, also a
template. So a typo in C(validate_certs) would end the verification of certificates without a word.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.secret_options import PLACES, got


def read_booleans(given: Mapping[str, t.Any]) -> dict[str, bool]:
    """Return the options that are given, whose templates have been evaluated. Raises InvalidRequest."""
    return {name: _read(name, value) for name, value in given.items() if value is not None}


def _read(name: str, value: t.Any) -> bool:
    try:
        return bool(boolean(value))
    except TypeError:
        told = got(name, str(value)) if name in PLACES else ""
        raise InvalidRequest(f"{name}: expected true or false{told}") from None
