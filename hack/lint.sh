#!/usr/bin/env bash
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Run all linters at the same time; show the output of those that fail.

source "$(dirname "$0")/common.sh"
export PATH=$BIN:$PATH

LOGS=$(mktemp -d)
trap 'rm -rf "$LOGS"' EXIT
names=()
jobs=()

# check NAME COMMAND...: start one linter.
check() {
  local name=$1
  shift
  names+=("$name")
  "$@" >"$LOGS/$name" 2>&1 &
  jobs+=($!)
}

"$BIN/python" hack/docsite.py >/dev/null

check ansible-lint ansible-lint -q --strict --nocolor
check antsibull-changelog antsibull-changelog lint
check antsibull-docs antsibull-docs lint-collection-docs --plugin-docs .
check mypy mypy --package ansible_collections.qemu_scheduler.proxmox.plugins
# A copy without ignored files: tests that run at the same time make such files while reuse lists them.
check reuse bash -eu -o pipefail -c '
  copy=$(mktemp -d)
  trap "rm -rf $copy" EXIT
  git ls-files -z --cached --others --exclude-standard | tar -c --null -T - --ignore-failed-read | tar -x -C "$copy"
  reuse --root "$copy" lint --lines
'
check ruff ruff check --quiet --output-format concise
check yamllint yamllint --strict .

failed=()
for index in "${!names[@]}"; do
  name=${names[$index]}
  if wait "${jobs[$index]}"; then
    printf '%-20s ok\n' "$name"
  else
    printf '%-20s FAILED\n' "$name"
    sed 's/^/    /' "$LOGS/$name"
    failed+=("$name")
  fi
done
[ ${#failed[@]} -eq 0 ] || die "${failed[*]}"
