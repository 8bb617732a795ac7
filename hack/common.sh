# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# shellcheck shell=bash
#
# What the scripts in this folder share. Sourced, never run; leaves the caller at the root of the checkout.

# shellcheck disable=SC2034  # the variables are for the scripts that source this one

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

CHECKOUT=$PWD
VENV=$CHECKOUT/.venv
BIN=$VENV/bin
COLLECTION=ansible_collections/qemu_scheduler/proxmox

# The oldest pip that installs dependency groups is 25.1.
PIP_VERSION=25.3

# install_group PYTHON GROUP [REQUIREMENT...]: install a dependency group of pyproject.toml, quietly unless it fails.
# Python compiles the half of it that is imported.
install_group() {
  local python=$1 group=$2
  shift 2
  "$python" -m pip install --quiet --disable-pip-version-check "pip==$PIP_VERSION"
  "$python" -m pip install --quiet --disable-pip-version-check --no-compile --group "$group" "$@"
}

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# interpreters: the path of every usable CPython 3.11 or later, newest last, one per minor version.
# An entry on PATH may be a shim of a version manager that is switched off: only what runs counts.
interpreters() {
  local minor candidate
  for minor in 11 12 13 14; do
    for candidate in "python3.$minor" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3."$minor".*/bin/python3."$minor"; do
      if "$candidate" -c "import ensurepip, venv" >/dev/null 2>&1; then
        "$candidate" -c "import os, sys; print(os.path.join(sys.base_prefix, 'bin', f'python3.{sys.version_info[1]}'))"
        break
      fi
    done
  done
}

# copy_checkout DIR: the files that git knows or would add, as they are now, into DIR (emptied first).
copy_checkout() {
  local to=$1
  rm -rf "$to"
  mkdir -p "$to"
  git ls-files -z --cached --others --exclude-standard --deduplicate |
    while IFS= read -r -d '' file; do [ ! -e "$file" ] || printf '%s\0' "$file"; done |
    tar --null --files-from=- -cf - | tar -xf - -C "$to"
}

# copy_for_tarball DIR: the same, as the tarball has it: with the pages for documentation sites, and full links in each README.md.
copy_for_tarball() {
  copy_checkout "$1"
  "$BIN/python" hack/docsite.py "$1" >/dev/null
  "$BIN/python" hack/full_links.py "$1"
}
