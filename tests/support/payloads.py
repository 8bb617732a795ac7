# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts that leave a trace if anything evaluates them, as the owner of a guest would write them."""

from __future__ import annotations

import unicodedata
from pathlib import Path

JOINERS = "\u200c\u200d"


def payloads(trace: Path) -> list[str]:
    """Texts that create the file trace if they are evaluated as a template, an expression, YAML, a command or HTML; and
    texts that change what a terminal shows.
    """
    touch = f"touch {trace}"
    call = f"lookup('ansible.builtin.pipe', '{touch}; echo 1')"
    template = f"{{{{ {call} }}}}"
    header = (
        "#jinja2:variable_start_string:'[%', variable_end_string:'%]', block_start_string:'<%', block_end_string:'%>'"
    )
    return [
        template,
        f"{{% if {call} %}}x{{% endif %}}",
        f"{{# x #}}{template}",
        f"{header}\n[% {call} %]",
        f"{header}\n<% if {call} %>x<% endif %>",
        call,
        f"{call} == '1'",
        f"not {call}",
        f"query('pipe', '{touch}')",
        f"'x' if {call} else 'y'",
        f"cycler.__init__.__globals__.os.system('{touch}')",
        f"{{{{ cycler.__init__.__globals__.os.popen('{touch}').read() }}}}",
        f"'\\x7b\\x7b {call} \\x7d\\x7d'",
        f"!!python/object/apply:os.system ['{touch}']",
        f"!unsafe '{template}'",
        f'{{"__ansible_type": "TrustedAsTemplate", "value": "{template}"}}',
        f"x: y\n- {call}\n...\n---\n{template}",
        f"$({touch})",
        f"`{touch}`",
        f"'; {touch}; '",
        f"x\n{touch}\n",
        f"<script>{touch}</script>",
        '"><img src=x onerror=alert(1)>',
        "\x1b]0;title\x07\x1b[2J\x1b[1;1Hok: [localhost]",
        "\x9b2J\x9d0;title\x9c",
        "abc\rok: [localhost]\x08\x08",
        "\u202egnp.exe\u202c \u2066x\u2069 \u200b\ufeff\u2028",
    ]  # fmt: skip


def controls(text: str) -> set[str]:
    """The characters of a text that a terminal may obey, and those that are invisible or turn the direction."""
    kinds = ("Cc", "Cf", "Zl", "Zp", "Cs")
    return {character for character in text if unicodedata.category(character) in kinds} - set("\n\t" + JOINERS)
