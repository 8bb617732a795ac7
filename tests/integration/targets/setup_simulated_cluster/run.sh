#!/usr/bin/env bash
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# run.sh PLAYBOOK [ARGUMENT...]: run a playbook on a simulated cluster, which ends with this script.

set -euo pipefail

FOLDER=$(mktemp -d)
CLUSTER=
# ansible-test waits for whoever holds its output, and so for the cluster.
trap '[ -z "$CLUSTER" ] || kill "$CLUSTER"; rm -rf "$FOLDER"' EXIT
TESTS=${ANSIBLE_COLLECTIONS_PATH%%:*}/ansible_collections/qemu_scheduler/proxmox/tests

python "$TESTS/simulated_cluster" "$TESTS/simulated_cluster/clusters/demo.yml" \
  --time-scale 0.05 --exit-with-parent $$ >"$FOLDER/connection" &
CLUSTER=$!
touch "$FOLDER/connection"
until grep -q PROXMOX_CA_PATH "$FOLDER/connection"; do
  kill -0 "$CLUSTER"
  sleep 0.1
done
# shellcheck disable=SC1091  # the program has just written it
source "$FOLDER/connection"
export XDG_STATE_HOME=$FOLDER/state

ansible-playbook "$@"
