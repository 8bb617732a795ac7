#!/usr/bin/env bash
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Look at the HTML pages in a real Chromium. Screenshots go to build/browser, with UPDATE_IMAGES=1 also
# to docs/images. CHROMIUM names the browser; without it one on PATH is taken, or installed where apt-get may do that.

source "$(dirname "$0")/common.sh"

find_chromium() {
  local name
  for name in ${CHROMIUM:-chromium chromium-browser google-chrome}; do
    command -v "$name" && return
  done
  return 1
}

if ! CHROMIUM=$(find_chromium); then
  if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    echo "installing the package chromium"
    log=$(mktemp)
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y chromium; } >"$log" 2>&1 ||
      { tail -5 "$log" >&2; die "apt-get could not install chromium"; }
  fi
  CHROMIUM=$(find_chromium) || die "no Chromium: install the package chromium, or name one with CHROMIUM=/path/to/it"
fi
export CHROMIUM

install_group "$BIN/python" browser
"$BIN/python" -m pytest -q tests/browser "$@"
