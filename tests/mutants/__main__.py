# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plant each fault in a copy of the checkout, run its tests there, and print which test caught it.

The exit status is 1 when the tests do not pass without a fault, or when a fault survives.
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .mutant import CHECKOUT, Mutant, mutants

SECONDS = 180
"""For the tests of one fault. A fault may make a test wait without end, which is a way of being caught."""

COPIED = ("plugins", "tests", "meta", "roles", "playbooks", "docs", "galaxy.yml", "pyproject.toml")
_FIRST_FAILURE = re.compile(r"^(?:FAILED|ERROR) tests/(\S+)", re.MULTILINE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the faults that match the arguments and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m mutants", description=__doc__)
    parser.add_argument("words", nargs="*", help="only faults whose description or file contains one of these")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="how many run side by side")
    options = parser.parse_args(arguments)
    chosen = [
        mutant
        for mutant in mutants()
        if not options.words or any(word in f"{mutant.file}: {mutant.breaks}" for word in options.words)
    ]
    for mutant in chosen:
        mutant.applied((CHECKOUT / mutant.path).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(options.workers):
            copies.put(copy_of_checkout(Path(folder, str(number))))

        def unharmed(tests: str) -> str | None:
            copy = copies.get()
            try:
                return first_failure(copy, [tests])
            finally:
                copies.put(copy)

        def caught(mutant: Mutant) -> tuple[str | None, float]:
            copy = copies.get()
            try:
                with mutant.planted(copy):
                    began = time.monotonic()
                    return first_failure(copy, mutant.tests), time.monotonic() - began
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(options.workers) as pool:
            tests = sorted({each for mutant in chosen for each in mutant.tests})
            broken = [failure for failure in pool.map(unharmed, tests) if failure is not None]
            if broken:
                print("without a fault, these tests fail:", *broken, sep="\n    ")
                return 1
            return told(zip(chosen, pool.map(caught, chosen), strict=True))


def copy_of_checkout(to: Path) -> Path:
    """Copy what the tests need, without what earlier runs have left."""
    to.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", "output")
    for name in COPIED:
        source = CHECKOUT / name
        if source.is_dir():
            shutil.copytree(source, to / name, ignore=ignored)
        else:
            shutil.copy2(source, to / name)
    return to


def first_failure(copy: Path, tests: Sequence[str]) -> str | None:
    """Run tests in a copy until the first one fails, and return its name; None when all pass."""
    for test in tests:
        path, *options = shlex.split(test)
        command = [
            *(sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-rfE", "-p", "no:cacheprovider"),
            *(f"tests/{path}", *options),
        ]
        # A fault has to be caught each time, so examples are the same each time.
        environment = {**os.environ, "CI": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                command, cwd=copy, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return f"{path} does not end"
        if done.returncode:
            found = _FIRST_FAILURE.search(done.stdout)
            if found is None:
                raise RuntimeError(f"pytest failed on {test}:\n{done.stdout}{done.stderr}")
            return found[1]
    return None


def told(tried: Iterable[tuple[Mutant, tuple[str | None, float]]]) -> int:
    """Print the table as it comes, with the seconds that each fault took, and return the exit status."""
    total, survivors = 0, 0
    for mutant, (failure, seconds) in tried:
        total += 1
        survivors += failure is None
        print(f"{'SURVIVES' if failure is None else 'caught  '} {seconds:4.0f} s  {mutant.file}: {mutant.breaks}")
        by = "none of " + ", ".join(mutant.tests) if failure is None else failure
        print(f"                 by {by}", flush=True)
    print(f"{total - survivors} of {total} faults were caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
