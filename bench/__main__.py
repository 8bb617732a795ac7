# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line: measure, print, and refresh the page in docs/."""

from __future__ import annotations

import argparse
import sys
import time

from . import (
    api_requests,
    batch,
    clusters,
    engine,
    forks,
    inventory,
    ledger,
    load,
    loads,
    machine,
    modules,
    page,
    plans,
    replay,
    schedules,
    tasks,
    tours,
)

SECTIONS = {
    "requests": api_requests.measure,
    "tasks": tasks.measure,
    "batch": batch.measure,
    "forks": forks.measure,
    "clusters": clusters.measure,
    "inventory": inventory.measure,
    "modules": modules.measure,
    "ledger": ledger.measure,
    "engine": engine.measure,
    "plans": plans.measure,
    "tours": tours.measure,
    "schedules": schedules.measure,
    "workloads": loads.measure,
    "replay": replay.measure,
}


def _parts(text: str) -> list[str]:
    """The names of parts. Raises ArgumentTypeError."""
    names = text.split(",")
    for name in names:
        if name not in SECTIONS and name != "load":
            raise argparse.ArgumentTypeError(f"{name!r} is no part, expected {', '.join(SECTIONS)} or load")
    return names


def main() -> None:
    """Run the chosen parts one after the other."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="everything small, in about a minute")
    parser.add_argument(
        "--only",
        type=_parts,
        action="extend",
        metavar="PART",
        help=f"these parts, with commas between (may be given again): {', '.join(SECTIONS)}, load (only so)",
    )
    parser.add_argument("--write-docs", action="store_true", help="put the results into docs/benchmarks.md")
    parser.add_argument("--profile", metavar="SCENARIO", choices=engine.SCENARIOS, help="where the engine's time goes")
    parser.add_argument("--seconds", type=float, default=load.SECONDS, help="for how long the controllers of load work")
    options = parser.parse_args()
    if options.write_docs and options.quick:
        parser.error("--write-docs wants the whole measurement, not --quick")
    if options.profile:
        engine.profile(options.profile)
        return
    print(machine.described())
    for name in options.only or SECTIONS:
        began, watch = time.monotonic(), machine.Watch()
        section = load.measure(options.quick, options.seconds) if name == "load" else SECTIONS[name](options.quick)
        for table in section.tables:
            print(f"\n{table.as_text()}", flush=True)
        load_of_others = f"other processes used {watch.others():.0%} of the CPU time"
        print(f"\n({name}: {time.monotonic() - began:.0f} s, {load_of_others})", file=sys.stderr)
        if options.write_docs:
            page.write(section, f"{machine.described()}; {load_of_others}")


if __name__ == "__main__":
    main()
