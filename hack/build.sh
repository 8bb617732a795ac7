#!/usr/bin/env bash
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Build the collection's tarball from the files that git knows or would add, and say where it is.

source "$(dirname "$0")/common.sh"

source_copy=build/source/$COLLECTION
copy_for_tarball "$source_copy"
"$BIN/ansible-galaxy" collection build --force --output-path build "$source_copy" >/dev/null
for tarball in build/qemu_scheduler-proxmox-*.tar.gz; do
  printf '%s (%s)\n' "$tarball" "$(du -h "$tarball" | cut -f1)"
done
