# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The built-in roles of each release and the privileges in them."""

from __future__ import annotations

_GUEST_AGENT = (
    "VM.GuestAgent.Audit", "VM.GuestAgent.FileRead", "VM.GuestAgent.FileSystemMgmt", "VM.GuestAgent.FileWrite",
)
_VM_CONFIG = tuple(
    f"VM.Config.{part}" for part in ("CDROM", "CPU", "Cloudinit", "Disk", "HWType", "Memory", "Network", "Options")
)
_VM_ADMIN = (
    "VM.Allocate", "VM.Audit", "VM.Backup", "VM.Clone", *_VM_CONFIG, "VM.Console", "VM.Migrate", "VM.PowerMgmt",
    "VM.Snapshot", "VM.Snapshot.Rollback",
)
_VM_USER = ("VM.Audit", "VM.Backup", "VM.Config.CDROM", "VM.Config.Cloudinit", "VM.Console", "VM.PowerMgmt")
_DATASTORE_ADMIN = (
    "Datastore.Allocate", "Datastore.AllocateSpace", "Datastore.AllocateTemplate", "Datastore.Audit",
)
_SDN_ADMIN = ("SDN.Allocate", "SDN.Audit", "SDN.Use")
_SYS_ADMIN = ("Sys.Audit", "Sys.Console", "Sys.Syslog")
_USER_ADMIN = ("Group.Allocate", "Realm.AllocateUser", "User.Modify")
_POOL_ADMIN = ("Pool.Allocate", "Pool.Audit")
_MAPPING_ADMIN = ("Mapping.Audit", "Mapping.Modify", "Mapping.Use")
_AUDIT = ("Datastore.Audit", "Mapping.Audit", "Pool.Audit", "SDN.Audit", "Sys.Audit", "VM.Audit")
_ROOT_ONLY = (
    "Permissions.Modify", "Realm.Allocate", "Sys.AccessNetwork", "Sys.Incoming", "Sys.Modify", "Sys.PowerMgmt",
    "Mapping.Modify",
)


def builtin_roles(version: str) -> dict[str, frozenset[str]]:
    """Role name to privileges for release ``8.4`` or ``9.2``."""
    old = version.startswith("8")
    vm_admin = (*_VM_ADMIN, "VM.Monitor") if old else (
        *_VM_ADMIN, *_GUEST_AGENT, "VM.GuestAgent.Unrestricted", "VM.Replicate",
    )
    admin = (
        *vm_admin, *_DATASTORE_ADMIN, *_SDN_ADMIN, *_SYS_ADMIN, *_USER_ADMIN, *_POOL_ADMIN, "Mapping.Audit",
        "Mapping.Use",
    )
    roles = {
        "Administrator": (*admin, *_ROOT_ONLY),
        "NoAccess": (),
        "PVEAdmin": admin,
        "PVEAuditor": _AUDIT if old else (*_AUDIT, "VM.GuestAgent.Audit"),
        "PVEDatastoreAdmin": _DATASTORE_ADMIN,
        "PVEDatastoreUser": ("Datastore.AllocateSpace", "Datastore.Audit"),
        "PVEMappingAdmin": _MAPPING_ADMIN,
        "PVEMappingUser": ("Mapping.Audit", "Mapping.Use"),
        "PVEPoolAdmin": _POOL_ADMIN,
        "PVEPoolUser": ("Pool.Audit",),
        "PVESDNAdmin": _SDN_ADMIN,
        "PVESDNUser": ("SDN.Audit", "SDN.Use"),
        "PVESysAdmin": _SYS_ADMIN,
        "PVETemplateUser": ("VM.Audit", "VM.Clone"),
        "PVEUserAdmin": _USER_ADMIN,
        "PVEVMAdmin": vm_admin,
        "PVEVMUser": _VM_USER if old else (*_VM_USER, *_GUEST_AGENT),
    }
    return {name: frozenset(privileges) for name, privileges in roles.items()}


PRIVILEGES = builtin_roles("8.4")["Administrator"] | builtin_roles("9.2")["Administrator"]
"""All that there are in either release."""
