#!/usr/bin/env bash
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Bring the generated parts of docs/ and the JSON Schemas up to date, and render the reference of modules and roles, as Ansible's own site will
# show it, into build/docs.

source "$(dirname "$0")/common.sh"
export PATH=$BIN:$PATH

"$BIN/python" hack/generate_docs.py
"$BIN/python" hack/generate_schemas.py
rm -rf build/docs
mkdir -p build/docs
antsibull-docs collection --use-current --squash-hierarchy --fail-on-error \
  --output-format simplified-rst --dest-dir build/docs qemu_scheduler.proxmox
printf '%s\n' build/docs/*
