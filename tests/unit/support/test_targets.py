# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ansible-test finds in the tests' folder."""

from __future__ import annotations

from support.pages import CHECKOUT

INTEGRATION = CHECKOUT / "tests" / "integration"
TARGETS = INTEGRATION / "targets"


def test_targets__are_one_per_module() -> None:
    targets = {path.name for path in TARGETS.iterdir() if (path / "runme.sh").exists()}
    assert targets == {path.stem for path in (CHECKOUT / "plugins" / "modules").glob("*.py")}


def test_targets__declare_the_one_that_starts_the_simulated_cluster() -> None:
    for path in TARGETS.glob("*/runme.sh"):
        assert path.stat().st_mode & 0o100
        assert (path.parent / "aliases").read_text(encoding="utf-8") == "needs/target/setup_simulated_cluster\n"


def test_integration_folder__leaves_a_name_to_ansible_test() -> None:
    assert not (INTEGRATION / "inventory").is_dir(), "ansible-test writes a file of this name"
