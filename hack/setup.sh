#!/usr/bin/env bash
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Make .venv what this checkout needs: the development tools, and the checkout itself as an installed collection.
# PYTHON chooses the interpreter (default: python3, or the oldest supported one that is found).

source "$(dirname "$0")/common.sh"

usable() {
  "$1" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

choose_python() {
  local python
  for python in ${PYTHON:-python3 $(interpreters)}; do
    if usable "$python"; then
      echo "$python"
      return
    fi
  done
  die "Python 3.11 or later with its venv module is needed (Debian and Ubuntu: apt install python3-venv)." \
    "Name one with: make setup PYTHON=/path/to/python3"
}

link=$VENV/collections/$COLLECTION
wanted=$({ echo "$CHECKOUT"; cat pyproject.toml; } | sha256sum | cut -c1-16)
stamp=$VENV/.setup-$wanted

if [ ! -e "$stamp" ]; then
  # Scripts in a venv name its absolute path: one that was moved here from elsewhere is of no use.
  if [ -e "$VENV" ] && ! { usable "$BIN/python" && "$BIN/pip" --version >/dev/null 2>&1; }; then
    rm -rf "$VENV"
  fi
  if [ ! -e "$VENV" ]; then
    python=$(choose_python)
    echo "setup: making .venv with $("$python" --version)"
    "$python" -m venv "$VENV"
  fi
  echo "setup: installing the development tools (a minute, once)"
  log=$VENV/setup.log
  if ! install_group "$BIN/python" dev >"$log" 2>&1; then
    cat "$log" >&2
    die "pip could not install the dependency group dev of pyproject.toml"
  fi
  rm -f "$VENV"/.setup-*
  touch "$stamp"
fi

# Git leaves the compiled code of packages that are gone. Ansible takes such a folder for the module of the same name.
find plugins -depth -type d ! -name __pycache__ | while read -r folder; do
  [ -n "$(find "$folder" -type f ! -path '*/__pycache__/*' -print -quit)" ] || rm -rf "$folder"
done

if [ "$(readlink "$link" || true)" != "$CHECKOUT" ]; then
  mkdir -p "$(dirname "$link")"
  ln -sfn "$CHECKOUT" "$link"
fi
