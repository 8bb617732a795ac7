# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes variables of data from the cluster in which Ansible evaluates no template.

Every user who may edit a VM can write a template into its name, notes or tags. Text that cannot contain a template is
marked as trusted, as ansible-inventory adds a marker to each text in its output that is not.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible import template

MARK = "{"
"""Every template contains this character."""


def untrusted(value: t.Any) -> t.Any:
    """Return the value with its texts marked so that none is ever evaluated as a template."""
    if isinstance(value, Mapping):
        return {key: untrusted(each) for key, each in value.items()}
    if isinstance(value, list):
        return [untrusted(each) for each in value]
    return _text(value) if isinstance(value, str) else value


def _text(value: str) -> t.Any:
    if hasattr(template, "trust_as_template"):
        # Since ansible-core 2.19, text from outside is untrusted unless it is marked as trusted.
        return value if MARK in value else template.trust_as_template(value)
    from ansible.utils.unsafe_proxy import wrap_var

    return wrap_var(value) if MARK in value else value
