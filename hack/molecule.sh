#!/usr/bin/env bash
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Run the molecule scenarios: the cluster is started once, each role's scenario uses it, and it is always stopped at the
# end. Arguments are passed on to `molecule test`: hack/molecule.sh --scenario-name provision

source "$(dirname "$0")/common.sh"
export PATH=$BIN:$PATH
export ANSIBLE_COLLECTIONS_PATH=$VENV/collections

install_group "$BIN/python" molecule

cd "$CHECKOUT" || exit
trap 'molecule destroy >/dev/null 2>&1' EXIT
molecule test "${@:---all}"
