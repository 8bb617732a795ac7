#!/usr/bin/env bash
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# hack/test.sh TARGET...: run these targets of the Makefile and, at the same time, unit and integration tests together.
# All of them run even if others fail. pytest's summary comes last; the exit status is that of all together.
# The recordings are replayed again only if they, or what answers them, have changed since they last passed, and always
# with CI set.

source "$(dirname "$0")/common.sh"

LOGS=$(mktemp -d)
jobs=() job=''
# What still runs after Ctrl-C ends, too: each job has a process group of its own.
trap 'for job in "${jobs[@]}"; do kill -- "-$job" 2>/dev/null || true; done; rm -rf "$LOGS"' EXIT
trap 'exit 130' INT TERM
set -m
for target in "$@"; do
  make "$target" >"$LOGS/$target" 2>&1 &
  jobs+=($!)
done
set +m

# Prints all lines but the last, which goes to a file. awk is no help: Debian's reads pipes in blocks of 4 KiB.
hold_last_line() {
  local line held='' first=1
  while IFS= read -r line || [ -n "$line" ]; do
    [ $first = 1 ] || printf '%s\n' "$held"
    held=$line first=0
  done
  printf '%s\n' "$held" >"$1"
}

replayed=$(find tests/recordings tests/simulated_cluster tests/simulator -type f ! -name '*.pyc' -print0 | sort -z | xargs -0 sha256sum | sha256sum)
replays=()
if [ -z "${CI:-}" ] && [ "$replayed" = "$(cat "$VENV/replayed" 2>/dev/null)" ]; then
  replays=(--ignore tests/simulator/test_recordings.py --ignore tests/simulator/test_recorded_moves.py)
fi

# In a new checkout, the processes that run the tests would each compile all of them, and what they import.
echo "collecting the tests"
"$BIN/python" -m pytest -q --collect-only >/dev/null 2>&1 || true

status=0
"$BIN/python" -m pytest -q --numprocesses "${PYTEST_WORKERS:-auto}" --dist loadfile --no-loadscope-reorder "${replays[@]}" |
  hold_last_line "$LOGS/summary" || status=$?
[ $status -ne 0 ] || echo "$replayed" >"$VENV/replayed"

for target in "$@"; do
  if wait "${jobs[0]}"; then
    echo "$target: ok"
  else
    echo "$target: FAILED"
    sed 's/^/    /' "$LOGS/$target"
    status=1
  fi
  jobs=("${jobs[@]:1}")
done
cat "$LOGS/summary"
exit "$status"
