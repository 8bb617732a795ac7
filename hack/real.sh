#!/usr/bin/env bash
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Run the tests that hold on every cluster against the one that PROXMOX_HOST, PROXMOX_USER and the other variables of the
# collection name. They make small VMs, start some of them, and remove them all.

source "$(dirname "$0")/common.sh"

[ -n "${PROXMOX_HOST:-}" ] || die "PROXMOX_HOST is not set: it has to name a cluster that may be tested on"
exec "$BIN/python" -m pytest -q tests/integration/anywhere --real --numprocesses "${REAL_WORKERS:-0}" "$@"
