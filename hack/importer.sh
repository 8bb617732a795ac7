#!/usr/bin/env bash
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Check the built tarball as Galaxy does when it is uploaded, with a Galaxy importer in an environment of its own.

source "$(dirname "$0")/common.sh"

IMPORTER=$CHECKOUT/.venv-importer
REQUIREMENT=galaxy-importer==0.4.44

if [ "$(cat "$IMPORTER/installed" 2>/dev/null || true)" != "$REQUIREMENT" ]; then
  rm -rf "$IMPORTER"
  "$BIN/python" -m venv "$IMPORTER"
  "$IMPORTER/bin/python" -m pip install --quiet --disable-pip-version-check "$REQUIREMENT" "ansible-core==$("$BIN/python" -c 'import ansible.release; print(ansible.release.__version__)')"
  echo "$REQUIREMENT" >"$IMPORTER/installed"
fi

cat >"$IMPORTER/galaxy-importer.cfg" <<'CFG'
[galaxy-importer]
CHECK_REQUIRED_TAGS = True
CHECK_CHANGELOG = True
RUN_ANSIBLE_DOC = True
RUN_ANSIBLE_LINT = False
RUN_ANSIBLE_TEST = False
REQUIRE_V1_OR_GREATER = True
CFG
export GALAXY_IMPORTER_CONFIG=$IMPORTER/galaxy-importer.cfg
export PATH=$IMPORTER/bin:$PATH
log=$IMPORTER/import.log
tarball=$(ls build/qemu_scheduler-proxmox-*.tar.gz)
cd "$IMPORTER"
python -m galaxy_importer.main "$CHECKOUT/$tarball" >"$log" 2>&1 || { cat "$log"; die "the importer refuses $tarball"; }
