# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CPU models and flags that Proxmox VE knows, as its capabilities calls list them."""

from __future__ import annotations

import re
from typing import Any

INTEL = (
    "486", "Broadwell", "Broadwell-IBRS", "Broadwell-noTSX", "Broadwell-noTSX-IBRS", "Cascadelake-Server",
    "Cascadelake-Server-noTSX", "Cascadelake-Server-v2", "Cascadelake-Server-v4", "Cascadelake-Server-v5",
    "ClearwaterForest", "Conroe", "Cooperlake", "Cooperlake-v2", "GraniteRapids", "GraniteRapids-v2",
    "GraniteRapids-v3", "Haswell", "Haswell-IBRS", "Haswell-noTSX", "Haswell-noTSX-IBRS", "Icelake-Client",
    "Icelake-Client-noTSX", "Icelake-Server", "Icelake-Server-noTSX", "Icelake-Server-v3", "Icelake-Server-v4",
    "Icelake-Server-v5", "Icelake-Server-v6", "Icelake-Server-v7", "IvyBridge", "IvyBridge-IBRS", "KnightsMill",
    "Nehalem", "Nehalem-IBRS", "Penryn", "SandyBridge", "SandyBridge-IBRS", "SapphireRapids", "SapphireRapids-v2",
    "SapphireRapids-v3", "SapphireRapids-v4", "SierraForest", "SierraForest-v2", "SierraForest-v3",
    "Skylake-Client", "Skylake-Client-IBRS", "Skylake-Client-noTSX-IBRS", "Skylake-Client-v4", "Skylake-Server",
    "Skylake-Server-IBRS", "Skylake-Server-noTSX-IBRS", "Skylake-Server-v4", "Skylake-Server-v5", "Westmere",
    "Westmere-IBRS", "core2duo", "coreduo", "pentium", "pentium2", "pentium3",
)

AMD = (
    "EPYC", "EPYC-Genoa", "EPYC-Genoa-v2", "EPYC-IBPB", "EPYC-Milan", "EPYC-Milan-v2", "EPYC-Milan-v3", "EPYC-Rome",
    "EPYC-Rome-v2", "EPYC-Rome-v3", "EPYC-Rome-v4", "EPYC-Rome-v5", "EPYC-Turin", "EPYC-v3", "EPYC-v4", "EPYC-v5",
    "Opteron_G1", "Opteron_G2", "Opteron_G3", "Opteron_G4", "Opteron_G5", "athlon", "phenom",
)

GENERIC = (
    "host", "kvm32", "kvm64", "max", "qemu32", "qemu64", "x86-64-v2", "x86-64-v2-AES", "x86-64-v3", "x86-64-v4",
)

NEW_IN_9 = (
    "ClearwaterForest", "EPYC-Genoa-v2", "EPYC-Milan-v3", "EPYC-Rome-v5", "EPYC-Turin", "EPYC-v5",
    "GraniteRapids-v2", "GraniteRapids-v3", "Icelake-Server-v7", "SapphireRapids-v3", "SapphireRapids-v4",
    "SierraForest", "SierraForest-v2", "SierraForest-v3",
)

CPU_FLAGS = (
    "3dnowprefetch", "apic", "arat", "arch-capabilities", "clflush", "clflushopt", "clwb", "clzero", "cmov",
    "cmp-legacy", "cr8legacy", "cx16", "cx8", "de", "fpu", "fxsr", "fxsr-opt", "gfni", "hypervisor", "kvm-asyncpf",
    "kvm-asyncpf-int", "kvm-nopiodelay", "kvm-poll-control", "kvm-pv-eoi", "kvm-pv-ipi", "kvm-pv-sched-yield",
    "kvm-pv-tlb-flush", "kvm-pv-unhalt", "kvm-steal-time", "kvmclock", "kvmclock-stable-bit", "lahf-lm", "lm",
    "mca", "mce", "mds-no", "misalignsse", "mmx", "mmxext", "msr", "mtrr", "nx", "osvw", "pae", "pat", "pge",
    "pschange-mc-no", "pse", "pse36", "rdctl-no", "sep", "skip-l1dfl-vmentry", "sse", "sse2", "syscall", "tsc",
    "tsc-adjust", "tsc-deadline", "umip", "vme", "x2apic", "xsaveerptr",
)

ARM = (
    "a64fx", "cortex-a35", "cortex-a53", "cortex-a55", "cortex-a57", "cortex-a710", "cortex-a72", "cortex-a76", "host",
    "max", "neoverse-n1", "neoverse-n2", "neoverse-v1",
)

VENDORS = {
    **dict.fromkeys(INTEL, "GenuineIntel"),
    **dict.fromkeys(AMD, "AuthenticAMD"),
    **dict.fromkeys(GENERIC, "default"),
}
MODELS = frozenset(VENDORS)
VM_FLAGS = (
    "aes", "amd-no-ssb", "amd-ssbd", "hv-evmcs", "hv-tlbflush", "ibpb", "md-clear", "nested-virt", "pcid",
    "pdpe1gb", "spec-ctrl", "ssbd", "virt-ssbd",
)

OF_ITS_NODE = ("host", "max")


def misfit(config: dict[str, Any], cpu: dict[str, Any], machine: str = "x86_64") -> str | None:
    """Why QEMU does not start a VM on a node of which this is described, or None."""
    parts = [part.partition("=") for part in str(config.get("cpu", "")).split(",")]
    given = {key if is_pair else "cputype": value or key for key, is_pair, value in parts}
    model, flags = given.get("cputype", ""), given.get("flags", "")
    if cpu.get("machine", "x86_64") != machine:
        return f"KVM virtualisation configured, but not available for {machine}"
    if model and model not in OF_ITS_NODE and model in MODELS and "models" in cpu and model not in cpu["models"]:
        return f"Host doesn't support requested features of {model}"
    version = re.search(r"-(\d+)\.(\d+)", str(config.get("machine", "")))
    known = [tuple(map(int, each.split("."))) for each in cpu.get("machines", ())]
    if version and known and (int(version[1]), int(version[2])) > max(known):
        return "unsupported machine type"
    wanted = {flag[1:] for flag in flags.split(";") if flag.startswith("+") and not flag.startswith("+hv-")}
    lacking = sorted(wanted - set(cpu["flags"])) if "flags" in cpu else []
    return f"Host doesn't support requested feature: {lacking[0]}" if lacking else None


def crashes(config: dict[str, Any], source: dict[str, Any], target: dict[str, Any]) -> bool:
    """Whether a VM that moved live uses what the CPU of the target lacks. QEMU itself does not notice."""
    if str(config.get("cpu", "")).removeprefix("cputype=").split(",")[0] not in OF_ITS_NODE:
        return False
    vendors = {cpu.get("vendor", "AuthenticAMD") for cpu in (source, target)}
    return len(vendors) > 1 or bool(set(source.get("flags", CPU_FLAGS)) - set(target.get("flags", CPU_FLAGS)))


def models(version: str) -> dict[str, str]:
    """Model name to vendor, as the release has them."""
    if version.startswith("8"):
        return {name: vendor for name, vendor in VENDORS.items() if name not in NEW_IN_9}
    return VENDORS
