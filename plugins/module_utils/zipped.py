# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Imports the rest of the collection from Ansible's archive at half the cost, once this module has been imported.

Outside of the worker process, Ansible sends a module and what it imports as an archive of source code. Python compiles
each file of such an archive twice: the first time only to name the file, which might be compiled already. Those of
Ansible never are.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import zipimport


class SourceImporter(zipimport.zipimporter):
    """Imports from an archive that has source code alone, and compiles each file once."""

    def get_filename(self, fullname: str) -> str:
        """Return the file of a module. Raises ZipImportError."""
        name = fullname.rpartition(".")[2]
        file = os.path.join(name, "__init__.py") if self.is_package(fullname) else f"{name}.py"
        return os.path.join(self.archive, self.prefix, file)


_loader = getattr(__spec__, "loader", None)
ARCHIVE = _loader.archive if isinstance(_loader, zipimport.zipimporter) else None
"""The path of Ansible's archive; None if this module is not from one."""

if ARCHIVE is not None:
    # Imports make much and drop little: the collector would walk through all of it again and again.
    gc.set_threshold(100_000)
    # At its end, the process would do so twice more.
    atexit.register(gc.freeze)
    sys.path_hooks[:] = [SourceImporter if hook is zipimport.zipimporter else hook for hook in sys.path_hooks]
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]
