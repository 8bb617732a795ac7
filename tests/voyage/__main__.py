# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run histories: one with its log, or many. The exit status is 1 when one fails."""

from __future__ import annotations

import argparse
import gc
import importlib
import itertools
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
CODE = (TESTS.parent / "plugins", TESTS / "voyage", TESTS / "simulated_cluster")
"""What decides a history besides its seed."""
PACKAGES = ("ansible_collections.qemu_scheduler.proxmox.", "simulated_cluster.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.voyage", description=__doc__)
    parser.add_argument("--seed", type=int, help="show this history")
    parser.add_argument("--first", type=int, default=0, help="the first of many")
    parser.add_argument("--count", type=int, default=100, help="how many, one after the other")
    parser.add_argument("--more", type=int, nargs="*", default=(), metavar="SEED", help="further ones")
    parser.add_argument("--new", type=int, default=0, help="how many more, of seeds that only this code has")
    parser.add_argument("--workers", type=int, default=1, help="in how many processes")
    parser.add_argument("--go-on", action="store_true", help="do not stop at the first that fails")
    options = parser.parse_args(arguments)
    if options.seed is None and options.workers > 1:
        return in_processes(options.workers, options.first, options.count, options.go_on)
    from support.code_seeds import code_digest, new_seeds
    from support.every_module import import_every_module

    from . import substitutes
    from .history import History

    # What tasks import later would keep the real time and threads.
    import_every_module()
    substitutes.substitute(PACKAGES)
    if options.seed is not None:
        History(options.seed, print).sail()
        return 0
    new = new_seeds(code_digest(CODE), range(options.first, options.first + options.new)) if options.new else ()
    return many([*range(options.first, options.first + options.count), *options.more, *new], go_on=options.go_on)


def many(seeds: Sequence[int], *, go_on: bool) -> int:
    """Run these histories, and name those that fail."""
    from .history import History

    # Between histories there is little left that the collector has to look at.
    gc.disable()
    began, failed = time.monotonic(), 0
    for number, seed in enumerate(seeds):
        try:
            History(seed).sail()
        except Exception:  # noqa: BLE001 - whatever it is, it is a finding
            failed += 1
            reason = traceback.format_exc().strip().splitlines()[-1]
            print(f"seed {seed}: {reason}\n    see it by: make voyage SEED={seed}", flush=True)
            if not go_on:
                return 1
        gc.collect()
        if not number:
            # What is loaded by now stays.
            gc.freeze()
    each = (time.monotonic() - began) / max(len(seeds), 1)
    print(f"{len(seeds)} histories, {failed} failed, {each * 1000:.0f} ms each", flush=True)
    return 1 if failed else 0


def in_processes(workers: int, first: int, count: int, go_on: bool) -> int:
    """Share many histories out among processes."""
    bounds = [first + count * number // workers for number in range(workers + 1)]
    shares = itertools.pairwise(bounds)
    command = [sys.executable, "-m", "tests.voyage", *(["--go-on"] if go_on else [])]
    running = [
        subprocess.Popen([*command, "--first", str(start), "--count", str(stop - start)]) for start, stop in shares
    ]
    return max(ended(running))


def ended(running: Iterable[subprocess.Popen[bytes]]) -> Iterable[int]:
    """Wait for all, and yield how they ended."""
    for process in running:
        yield process.wait()


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets is a part of the history.
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})
    sys.path.insert(0, str(TESTS))
    importlib.import_module("conftest")  # makes the collection importable
    sys.exit(main())
