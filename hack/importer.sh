#!/usr/bin/env bash
# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Check the collection's tarball as Galaxy does when it is uploaded, with a Galaxy importer in an environment of its own.
# It runs ansible-lint on the tarball as well. ansible-test sanity, which needs a container there, is in `make test`.

source "$(dirname "$0")/common.sh"

IMPORTER=$CHECKOUT/.venv-importer
CORE=$("$BIN/python" -c 'from ansible.release import __version__; print(__version__)')
REQUIREMENTS=(galaxy-importer==0.4.44 "ansible-core==$CORE")

if [ "$(cat "$IMPORTER/installed" 2>/dev/null || true)" != "${REQUIREMENTS[*]}" ]; then
  rm -rf "$IMPORTER"
  "$BIN/python" -m venv "$IMPORTER"
  log=$IMPORTER/install.log
  "$IMPORTER/bin/python" -m pip install --disable-pip-version-check "${REQUIREMENTS[@]}" >"$log" 2>&1 ||
    die "galaxy-importer could not be installed, see ${log#"$CHECKOUT"/}"
  echo "${REQUIREMENTS[*]}" >"$IMPORTER/installed"
fi

cat >"$IMPORTER/galaxy-importer.cfg" <<'CFG'
[galaxy-importer]
CHECK_REQUIRED_TAGS = True
CHECK_CHANGELOG = True
REQUIRE_V1_OR_GREATER = True
RUN_ANSIBLE_DOC = True
RUN_ANSIBLE_LINT = True
RUN_ANSIBLE_TEST = False
CFG
export GALAXY_IMPORTER_CONFIG=$IMPORTER/galaxy-importer.cfg
export PATH=$IMPORTER/bin:$BIN:$PATH

source_copy=$IMPORTER/source/$COLLECTION
copy_for_tarball "$source_copy"
"$BIN/ansible-galaxy" collection build --force --output-path "$IMPORTER" "$source_copy" >/dev/null

tarball=$(echo "$IMPORTER"/qemu_scheduler-proxmox-*.tar.gz)
log=$IMPORTER/import.log
# The importer writes its result to the current folder.
cd "$IMPORTER" || exit
python -m galaxy_importer.main "$tarball" >"$log" 2>&1 || {
  cat "$log"
  die "the importer refuses $(basename "$tarball")"
}
! grep -E "WARNING|ERROR" "$log" || die "the importer has findings"
echo "accepted: $(basename "$tarball")"
