# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every API request that the cluster saw, for tests and benchmarks to count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TextIO

SECRETS = frozenset({
    "password", "cipassword", "new-password", "confirmation-password", "ticket", "vncticket", "otp", "value",
    "tfa-challenge", "keyring", "encryption-key", "master-pubkey",
})


def redact(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters with secrets redacted."""
    return {name: "REDACTED" if name in SECRETS else value for name, value in params.items()}


class RequestLog:
    """Requests in memory and, when asked, as JSON lines in a file."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self._file: TextIO | None = None

    def open(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def begin(self, entry: dict[str, Any]) -> None:
        """Count a request when it arrives, so that one without an answer counts too."""
        self.entries.append(entry)

    def end(self, entry: dict[str, Any]) -> None:
        """Log a request with its result."""
        if self._file is not None and not self._file.closed:
            self._file.write(json.dumps(entry, default=str) + "\n")

    def reset(self) -> None:
        self.entries.clear()
