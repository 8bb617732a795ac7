# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line: run the integration tests once each way, and print the differences between the results."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from ..support.parity import differences

TESTS = Path(__file__).resolve().parents[1] / "integration"
RUN_PLAYS = ("anywhere", "collection", "docs", "inventory_plugin", "moving", "roles")
WAYS = ("auto", "module")


def main() -> None:
    """Arguments are those of pytest."""
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        records = {way: Path(folder) / way for way in WAYS}
        for way, kept in records.items():
            kept.mkdir()
            print(f"execution: {way}", flush=True)
            subprocess.run(
                [sys.executable, "-m", "pytest", "-q", *(str(TESTS / name) for name in RUN_PLAYS), *sys.argv[1:]],
                env={**os.environ, "QEMU_SCHEDULER_EXECUTION": way, "PLAY_RECORDS": str(kept)},
                check=False,
            )
        played = len(list(records["auto"].iterdir()))
        found = differences(*records.values())
    print(*found, f"{played} plays, {len(found)} differences", sep="\n")
    sys.exit(bool(found) or not played)


if __name__ == "__main__":
    main()
