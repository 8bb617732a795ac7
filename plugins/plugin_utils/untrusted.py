# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one constructor of Ansible variables from text that others control.

Every user who may edit a VM can write a template into its notes. Ansible must not evaluate it, whatever it contains: a
text without braces may be an expression, or begin with a header that changes the delimiters.
"""

from __future__ import annotations

import typing as t

from ansible import template

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.foreign_text import each_text, visible


def untrusted(value: t.Any) -> t.Any:
    """Return data whose texts, keys as well, Ansible never evaluates. Their control characters are escaped."""
    return each_text(value, _text, untrusted)


def own(text: str) -> str:
    """Return a text that this collection wrote itself, such as an address that it parsed, for use as a variable.

    ansible-inventory adds a mark to each text in its output that is not trusted, which programs that read it may not
    expect.
    """
    if not hasattr(template, "trust_as_template"):
        return text
    trusted: str = template.trust_as_template(text)
    return trusted


def _text(value: str) -> str:
    text = visible(value)
    if hasattr(template, "trust_as_template"):
        # Since ansible-core 2.19, text is untrusted unless it is marked as trusted.
        return text
    from ansible.utils.unsafe_proxy import AnsibleUnsafeText

    unsafe: str = AnsibleUnsafeText(text)
    return unsafe
