# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lets plays share what each ansible-playbook does anew otherwise: it compiles collections, and packs modules.

To pack a module of the collection, Ansible parses all that the module imports, which takes three seconds.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.plugins.callback import CallbackBase
from ansible.release import __version__
from ansible.utils.collection_loader import _collection_finder
from compiled_once import compile_once
from packaging.version import Version

DOCUMENTATION = """
name: quick_plays
type: aggregate
short_description: Start plays of tests faster
description: Lets plays share compiled collections and packed modules.
"""

_collection_finder.compile = compile_once


class CallbackModule(CallbackBase):
    """Puts a link where Ansible keeps packed modules until the play ends."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "quick_plays"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        kept = os.environ.get("KEPT_BY_TESTS")
        # Before ansible-core 2.19, several ansible-playbook would write to one file at the same time.
        if kept and "PACK_ANEW" not in os.environ and Version(__version__) >= Version("2.19"):
            Path(constants.DEFAULT_LOCAL_TMP, "ansiballz_cache").symlink_to(kept, target_is_directory=True)
