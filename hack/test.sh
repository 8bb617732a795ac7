#!/usr/bin/env bash
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# hack/test.sh TARGET...: run these targets of the Makefile at the same time, then unit and integration tests together.
# All of them run even if others fail. pytest's summary comes last; the exit status is that of all together.

source "$(dirname "$0")/common.sh"

LOGS=$(mktemp -d)
trap 'rm -rf "$LOGS"' EXIT
jobs=()
for target in "$@"; do
  make "$target" >"$LOGS/$target" 2>&1 &
  jobs+=($!)
done

failed=()
for target in "$@"; do
  if wait "${jobs[0]}"; then
    echo "$target: ok"
  else
    echo "$target: FAILED"
    sed 's/^/    /' "$LOGS/$target"
    failed+=("$target")
  fi
  jobs=("${jobs[@]:1}")
done

# Delays each line until the next one, to print other failures above the last line.
last_word() {
  awk -v failed="${failed[*]}" '
    NR > 1 { print held; fflush() }
    { held = $0 }
    END { if (failed) print "also FAILED, see above: " failed; print held }'
}

status=0
"$BIN/python" -m pytest -q --numprocesses "${PYTEST_WORKERS:-auto}" --dist loadfile | last_word || status=$?
[ "$status" -eq 0 ] && [ ${#failed[@]} -eq 0 ]
