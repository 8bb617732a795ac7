#!/usr/bin/env bash
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Run the tests on every supported Python that is on this machine, with every supported ansible-core that runs on it,
# and print the table. Environments are kept in .venv-compat. Arguments are pytest's: hack/compat.sh tests/unit
# PYTHONS and CORES limit it to versions: PYTHONS="3.12 3.13" CORES="2.20 pre"; pre is the newest pre-release, and
# devel the branch of that name, which changes every day and is tested only if named.

source "$(dirname "$0")/common.sh"

read -ra CORES <<<"${CORES:-2.18 2.19 2.20 2.21 pre}"
ENVIRONMENTS=$CHECKOUT/.venv-compat
LOGS=$ENVIRONMENTS/logs
mkdir -p "$LOGS"

# prepare PYTHON CORE ENVIRONMENT: create the environment; if that is not possible, print why.
prepare() {
  local python=$1 core=$2 environment=$3 requirement=("ansible-core~=$2.0") wanted log
  [ "$core" != pre ] || requirement=(--pre ansible-core)
  [ "$core" != devel ] || requirement=(https://github.com/ansible/ansible/archive/devel.tar.gz)
  wanted=$(sha256sum pyproject.toml | cut -c1-16)
  log=$LOGS/$(basename "$environment")-install.log
  [ "$(cat "$environment/installed" 2>/dev/null || true)" != "$wanted" ] || return 0
  rm -rf "$environment"
  "$python" -m venv "$environment"
  if install_group "$environment/bin/python" test "${requirement[@]}" >"$log" 2>&1; then
    echo "$wanted" >"$environment/installed"
  elif grep -q "No matching distribution found for ansible-core" "$log"; then
    echo "unsupported by ansible-core"
  else
    echo "FAILED to install, see ${log#"$CHECKOUT"/}"
  fi
}

failed=0 tested=0
printf '%-8s %-14s %s\n' Python ansible-core result
for python in $(interpreters); do
  name=$(basename "$python")
  [[ -z ${PYTHONS:-} || " $PYTHONS " == *" ${name#python} "* ]] || continue
  for core in "${CORES[@]}"; do
    environment=$ENVIRONMENTS/$name-core$core
    log=$LOGS/$name-core$core.log
    result=$(prepare "$python" "$core" "$environment")
    if [ -z "$result" ]; then
      tested=1
      if "$environment/bin/python" -m pytest -q --numprocesses "${PYTEST_WORKERS:-auto}" --dist loadfile --no-loadscope-reorder "$@" >"$log" 2>&1; then
        result=$(tail -n 1 "$log")
      else
        result="FAILED, see ${log#"$CHECKOUT"/}: $(tail -n 1 "$log")"
      fi
    fi
    case $result in FAILED*) failed=1 ;; esac
    printf '%-8s %-14s %s\n' "${name#python}" "$core" "$result"
  done
done
if [ $tested = 0 ]; then
  echo "compat: nothing was tested; PYTHONS is '${PYTHONS:-}'" >&2
  exit 1
fi
exit $failed
