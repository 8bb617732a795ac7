# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes a request from a playbook's options, and the parameters that create the VM from a decided request."""

from __future__ import annotations

import ipaddress
import re
import typing as t
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from ...engine.texts import alike, hint
from ...errors import InvalidRequest
from ...model import MIB, VMID_MAX, VMID_MIN, Decision, Request, Storage
from .contradictions import ADDRESSES, check_contradictions, unread_cloud_init
from .conversions import tags_of
from .drives import Drive
from .kinds import CICUSTOM, CPU, HOSTPCI, IPCONFIG, NET, USB, VIRTIOFS, absent_boot_devices
from .table import to_api
from .values import invalid, number, such_as

_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_OWN_KEY = re.compile(r"([^/]*\.)?qemu-scheduler(/.*)?")
_OWN_WORD = re.compile(r"q?emu|sched", re.IGNORECASE)
"""What a misspelt prefix of the scheduler still has, and one of a plugin of the user hardly."""
# Options and the context keys with the same meaning.
_CONTEXT_KEYS = {
    "node_regex": "node.qemu-scheduler/regex",
    "vmid_range": "vmid.qemu-scheduler/range",
    "vmid_regex": "vmid.qemu-scheduler/regex",
}

_GATEWAYS = {"gw": "ip", "gw6": "ip6"}
"""The address that each gateway belongs to."""

_OF_MAPPING = {"hostpci": ("pci", HOSTPCI), "usb": ("usb", USB)}
"""The kind of mapping that devices name, and how they name it."""

_NEVER_EMPTY = {
    "node": "the name of a node",
    "node_regex": "a regular expression",
    "storage": "the name of a storage",
    "vmid_range": "VMIDs and ranges of them such as 100-199,300",
    "vmid_regex": "a regular expression",
}


def vm_request(params: Mapping[str, t.Any]) -> Request:
    """Return the request for a VM's options, without placement rules and clone source.

    params are VM options and name, vmid, pool, state, node, node_regex, vmid_range, vmid_regex, context, clone,
    archive; None if not given. name may be missing if vmid is given, and is then empty. The request's options are those
    of to_api. If cores and memory are not given, they are Proxmox's defaults, even for a VM that has its own or gets
    those of a template or a backup, which are not known here. So only options that contradict each other are refused
    here.

    Raises InvalidRequest, which names option, value and what was expected.
    """
    for option, expected in _NEVER_EMPTY.items():
        if params.get(option) == "":
            raise invalid(option, "", f"{expected}, or leave it out")
    options = to_api(params)
    if params.get("state") != "absent":
        # What else the VM has or gets is not known yet.
        check_contradictions(options, {}, defaults={})
        for option, value in options.items():
            if option.startswith(ADDRESSES):
                _check_gateways(option, value)
    vmid, cores_max = params.get("vmid"), pluggable_vcpus(options)
    disks = [value.to_disk() for value in options.values() if isinstance(value, Drive)]
    return Request(
        name=_name(params),
        vmid=None if vmid is None else int(number("vmid", vmid, VMID_MIN, VMID_MAX, whole=True)),
        cores=int(t.cast(int, options.get("vcpus") or cores_max)),
        cores_max=cores_max,
        memory=int(t.cast(int, options.get("memory", 512))) * MIB,
        disks=tuple(disk for disk in disks if disk is not None),
        node=params.get("node"),
        node_regex=params.get("node_regex"),
        vmid_range=params.get("vmid_range"),
        vmid_regex=params.get("vmid_regex"),
        context=_context(params) if params.get("context") else {},
        pool=params.get("pool"),
        running=params.get("state") in ("started", "restarted"),
        options=options,
        **traits_of(options),
    )


class Traits(t.TypedDict):
    """Fields of a request."""

    tags: frozenset[str]
    bridges: frozenset[str]
    cpu_type: str | None
    cpu_flags: frozenset[str]
    named: frozenset[tuple[str, str]]


def traits_of(options: Mapping[str, t.Any]) -> Traits:
    """Return the fields of a request that depend on a VM's options or config and matter for placement."""
    cpu = CPU.read(str(options.get("cpu", "")))
    nets = [NET.read(str(value)) for key, value in options.items() if re.fullmatch(r"net\d+", key)]
    return {
        "tags": tags_of(options.get("tags")),
        "bridges": frozenset(net["bridge"] for net in nets if "bridge" in net),
        "cpu_type": cpu.get("cputype"),
        "cpu_flags": frozenset(flag[1:] for flag in cpu.get("flags", "").split(";") if flag.startswith("+")),
        "named": frozenset(names_in(options)),
    }


def cards_in(options: Mapping[str, t.Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the network cards among options, as (option, properties)."""
    for option, value in options.items():
        if re.fullmatch(r"net\d+", option):
            yield option, NET.read(str(value))


def names_in(options: Mapping[str, t.Any]) -> Iterator[tuple[str, str]]:
    """Yield what options name that only some nodes may have, as (kind, name)."""
    for key, value in options.items():
        family, text = key.rstrip("0123456789"), str(value)
        if family == "virtiofs" and text:
            yield "dir", VIRTIOFS.read(text).get("dirid", "")
        elif family in _OF_MAPPING and text:
            kind, properties = _OF_MAPPING[family]
            device = properties.read(text)
            if "mapping" in device:
                yield kind, device["mapping"]
            elif device.get("host", "spice").lower() != "spice":
                yield f"{kind}-device", device["host"]
        elif key == "cicustom":
            yield from (("snippet", volume) for volume in CICUSTOM.read(text).values())
        elif key == "hookscript" and text:
            yield "snippet", text
        elif key == "vmstatestorage" and text:
            yield "storage", text


def create_parameters(request: Request, decision: Decision) -> dict[str, str | int]:
    """Return the parameters of C(POST /nodes/NODE/qemu) for a decided request, without start and options to unset.

    Raises InvalidRequest when an allocated device needs a parameter that the request sets.
    """
    parameters: dict[str, str | int] = {"vmid": decision.vmid}
    if request.name:
        parameters["name"] = request.name
    if request.pool:
        parameters["pool"] = request.pool
    for key, value in request.options.items():
        if isinstance(value, Drive):
            parameters[key] = value.to_api(decision.storages.get(key, value.storage))
        elif value != "":
            parameters[key] = value
    for device in decision.devices:
        if device.option in parameters:
            raise InvalidRequest(f"{device.option}: is set, but claim {device.claim!r} needs it", option=device.option)
        parameters[device.option] = device.value
    return parameters


def import_resizes(request: Request) -> dict[str, int]:
    """Return the requested sizes (bytes) of imported drives, by slot. Proxmox creates them in the size of the image."""
    return {slot: drive.size for slot, drive in drives_of(request.options).items() if drive.source and drive.size}


def drives_of(options: Mapping[str, t.Any]) -> dict[str, Drive]:
    """Return the drives among the options of a request, by slot."""
    return {slot: value for slot, value in options.items() if isinstance(value, Drive)}


def _name(params: Mapping[str, t.Any]) -> str:
    """Return the requested name, empty for a VM that is named by its VMID alone. Raises InvalidRequest."""
    name = params.get("name")
    if name is None:
        if params.get("vmid") is None:
            raise InvalidRequest("name: is missing, give name or vmid", option="name")
        return ""
    if not _NAME.fullmatch(str(name)):
        expected = "letters, digits and dashes, with dots only between parts that begin and end with a letter or digit"
        raise invalid("name", name, expected)
    return str(name)


def _context(params: Mapping[str, t.Any]) -> dict[str, str]:
    """Return the context of a request, with the keys of qemu-scheduler. Raises InvalidRequest."""
    given = {str(key): value for key, value in params["context"].items() if value is not None}
    for key, value in given.items():
        if isinstance(value, (list, Mapping)):
            kind = "list" if isinstance(value, list) else "mapping"
            raise InvalidRequest(f"context: {key!r} has a {kind}, expected a text", option="context")
    context = {key: str(value) for key, value in given.items()}
    known = sorted(_CONTEXT_KEYS.values())
    for key in context:
        if _OWN_KEY.fullmatch(key) and key not in known:
            raise InvalidRequest(
                f"context: unknown key {key!r}; known keys: {', '.join(known)}{hint(known, key)}", option="context"
            )
        if key not in known and (meant := alike(known, key)) is not None and _OWN_WORD.search(key):
            raise InvalidRequest(f"context: unknown key {key!r}; did you mean {meant}?", option="context")
    for option, key in _CONTEXT_KEYS.items():
        own = params.get(option)
        if own is not None and key in context and context[key] != own:
            raise InvalidRequest(f"{option}: {own!r} contradicts {context[key]!r} of context {key}", option=option)
    return context


def pluggable_vcpus(options: Mapping[str, t.Any]) -> int:
    """Return how many vCPUs the VM can have: cores times sockets."""
    return int(options.get("cores") or 1) * int(options.get("sockets") or 1)


def _check_gateways(card: str, value: t.Any) -> None:
    """Raise InvalidRequest if a card's cloud-init addresses have a gateway without an address."""
    properties = IPCONFIG.read(str(value))
    for gateway, address in _GATEWAYS.items():
        if gateway in properties and address not in properties:
            raise invalid(card, value, f"{address} together with {gateway}{such_as(IPCONFIG.example)}")


def option_cautions(wanted: Mapping[str, t.Any], config: Mapping[str, t.Any]) -> list[str]:
    """Return warnings about options that Proxmox VE accepts but that are probably a mistake, given the config that the
    VM has or gets.
    """
    cautions = []
    if "bios" in wanted and config.get("bios") == "ovmf" and "efidisk0" not in config:
        cautions.append("bios is ovmf and there is no efidisk0: the VM forgets its EFI settings when it stops")
    if "ostype" in wanted and config.get("ostype") == "win11":
        if "tpmstate0" not in config:
            cautions.append("ostype is win11 and there is no tpmstate0: Windows 11 requires a TPM of version 2.0")
        if config.get("bios") != "ovmf":
            cautions.append("ostype is win11 and bios is not ovmf: Windows 11 requires UEFI")
    if "boot" in wanted:
        missing = absent_boot_devices(config.get("boot"), config.keys())
        if missing:
            cautions.append(f"boot names {', '.join(missing)}, which the VM does not have")
    gaps = unread_cloud_init(config, wanted.keys())
    for reason in dict.fromkeys(gaps.values()):
        options = ", ".join(option for option, why in gaps.items() if why == reason)
        cautions.append(f"the guest does not get {options}: {reason}")
    for option, value in wanted.items():
        if option.startswith(ADDRESSES):
            cautions += _address_cautions(option, value)
    return cautions


def _address_cautions(card: str, value: t.Any) -> Iterator[str]:
    """Yield warnings about a card's cloud-init addresses."""
    properties = IPCONFIG.read(str(value))
    for gateway, key in _GATEWAYS.items():
        address = properties.get(key)
        if gateway in properties and address in ("dhcp", "auto"):
            yield (
                f"{card} has {gateway} together with {key}={address}: Proxmox VE then configures no address on the "
                f"card; remove {gateway}"
            )
        elif gateway in properties and _is_off_link(properties[gateway], str(address)):
            yield f"{card}: {gateway}={properties[gateway]} is not in the network of {key}={address}"
    for text in _faults_of_ipv4(properties.get("ip", "")):
        yield f"{card}: {text}"


def _faults_of_ipv4(text: str) -> Iterator[str]:
    """Yield why no guest can have an IPv4 address."""
    with suppress(ValueError):
        interface = ipaddress.IPv4Interface(text)
        network = interface.network
        ends = {network.network_address: "network", network.broadcast_address: "broadcast"}
        if network.num_addresses > 2 and interface.ip in ends:
            yield f"{interface.ip} is the {ends[interface.ip]} address of {network}, which no guest can have"


def _is_off_link(gateway: str, address: str) -> bool:
    """Whether a gateway is outside of the network of an address. Networks of one address only have such gateways."""
    try:
        network = ipaddress.ip_interface(address).network
        return (
            network.num_addresses > 2
            and ipaddress.ip_address(gateway) not in network
            and not (ipaddress.ip_address(gateway).is_link_local)
        )
    except ValueError:
        return False


def device_cautions(request: Request) -> list[str]:
    """Return a warning if a new VM names devices, which only some nodes have, and does not say which nodes."""
    if request.node is not None or request.node_regex is not None or request.node_required:
        return []
    named = [
        option
        for option, value in sorted(request.options.items())
        if value
        and (
            (re.fullmatch(r"hostpci\d+", option) and "mapping" not in HOSTPCI.read(str(value)))
            or (re.fullmatch(r"usb\d+", option) and USB.read(str(value)).get("host", "spice").lower() != "spice")
        )
    ]
    if not named:
        return []
    return [
        f"the node was chosen without regard to who uses the device of {', '.join(named)} there: claim it with devices "
        "instead, or set node"
    ]


def ha_cautions(decision: Decision, storages: Iterable[Storage]) -> list[str]:
    """Return a warning if the VM becomes an HA resource with disks on local storages. storages are those of the
    cluster.
    """
    request, template = decision.request, decision.template
    if request.ha is None or request.ha.state in ("disabled", "ignored"):
        return []
    # Proxmox VE creates a missing cloud-init drive when it starts the VM.
    made_anew = {slot for slot, drive in drives_of(request.options).items() if drive.cloudinit}
    made_anew |= template.copied if template is not None else frozenset()
    local = {each.name for each in storages if each.node == decision.node and not each.shared}
    disks = [
        f"{slot} on {storage}"
        for slot, storage in sorted(decision.storages.items())
        if storage in local and slot not in made_anew
    ]
    if not disks:
        return []
    return [
        "local disks keep the HA manager from recovering the VM on another node: "
        f"{', '.join(disks)}; use a shared storage, or set up replication"
    ]
