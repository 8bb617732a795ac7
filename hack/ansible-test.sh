#!/usr/bin/env bash
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Run the unit tests, and one integration target per module, by ansible-test, with the packages of .venv, in a copy
# of the checkout: ansible-test requires a git repository at .../ansible_collections/qemu_scheduler/proxmox.

source "$(dirname "$0")/common.sh"

copy=build/ansible-test/$COLLECTION
copy_checkout "$copy"
cd "$copy" || exit
git init --quiet
export PATH=$BIN:$PATH LC_ALL=C.UTF-8
unset ANSIBLE_COLLECTIONS_PATH
version=$("$BIN/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
ansible-test units --color no --python "$version"
ansible-test integration --color no --python "$version"
