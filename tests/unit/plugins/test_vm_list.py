# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of variables with the VMs of others: Ansible reads every text as it is, and evaluates none."""

from __future__ import annotations

from pathlib import Path

from ansible.parsing.dataloader import DataLoader
from support.payloads import payloads

from ansible_collections.qemu_scheduler.proxmox.plugins.filter.vm_list import vms_yaml

ODD = ("<<", "=", "~", "yes", "null", "0x10", "12:30:00", "1_000", "---", "...", "- a\n- b", "a: b", "# c")


def test_vms_yaml__is_read_as_it_was_written(tmp_path: Path) -> None:
    texts = [*ODD, *payloads(tmp_path / "trace")]
    vms = [{"name": text, "description": [text, {text: text}]} for text in texts]
    left_out = [{"name": text, "vmid": 100, "parameter": text, "reason": text} for text in texts]

    read = DataLoader().load(vms_yaml({"vms": vms, "left_out": left_out}))

    assert read == {"qemu_vms": vms}
