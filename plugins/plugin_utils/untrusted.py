# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Data from the cluster as variables in which Ansible evaluates no template.

Every user who may edit a VM writes its name, notes and tags. ansible-inventory marks text that is not trusted as such
in its output, so text that cannot hold a template is trusted: the variables are then plain.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible import template

MARK = "{"
"""Every template has one."""


def untrusted(value: t.Any) -> t.Any:
    """Return the value such that no text in it is ever evaluated."""
    if isinstance(value, Mapping):
        return {key: untrusted(each) for key, each in value.items()}
    if isinstance(value, list):
        return [untrusted(each) for each in value]
    return _text(value) if isinstance(value, str) else value


def _text(value: str) -> t.Any:
    if hasattr(template, "trust_as_template"):
        # Since ansible-core 2.19 text from outside is not trusted unless it is said to be.
        return value if MARK in value else template.trust_as_template(value)
    from ansible.utils.unsafe_proxy import wrap_var

    return wrap_var(value) if MARK in value else value
