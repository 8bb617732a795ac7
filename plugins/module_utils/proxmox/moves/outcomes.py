# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds out why a migration failed from the log of its task, as the exit status never says. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

_STAMP = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ")
_REMOTE = "remote command failed with exit code"
_NO_SPACE = "No space left on device"
_PATTERNS = (
    re.compile(r"^(can't migrate local disk .*)$"),
    re.compile(r"^ERROR: online migrate failure - (.*)$"),
    re.compile(r"^ERROR: storage migration for '[^']*' to storage '([^']*)' failed - (.*)$"),
    re.compile(r"^ERROR: migration aborted \(duration [\d:]+\): (.*)$"),
    re.compile(r"^ERROR: (?!migration (?:aborted|finished))(.*)$"),
)
_PERL_LINE = re.compile(r" at /\S+ line \d+\.?$")


def cause_of(log: Sequence[str]) -> str:
    """Return the line of a migration's log that names the cause, without its timestamp; empty if none does."""
    lines = [_STAMP.sub("", line).strip() for line in log]
    for index, line in enumerate(lines):
        if _REMOTE in line and index and lines[index - 1].startswith("["):
            # The message of the other node is on the line before.
            return lines[index - 1].partition("] ")[2]
    if any(_NO_SPACE in line for line in lines):
        return _NO_SPACE
    for pattern in _PATTERNS:
        for line in lines:
            match = pattern.match(line)
            if match:
                return _PERL_LINE.sub("", match[match.lastindex or 0])
    return _refusal_by_ha(lines)


def _refusal_by_ha(lines: Sequence[str]) -> str:
    """Return the reasons for which C(ha-manager) refused a move."""
    reasons = [line.removeprefix("- ") for line in lines if line.startswith("- resource ")]
    return "; ".join(reasons)
