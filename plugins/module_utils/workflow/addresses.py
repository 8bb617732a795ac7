# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The addresses of VMs, as their guest agents report them after the boot."""

from __future__ import annotations

import functools
import ipaddress
import time
import typing as t
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ..errors import ApiError, ConnectionFailed, InvalidRequest
from ..proxmox.api.failures import NodeUnreachable, OddAnswer, WrongConnection
from ..proxmox.api.reader import Reader, in_parallel
from ..proxmox.api.session import Session

Address: t.TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"
Network: t.TypeAlias = "ipaddress.IPv4Network | ipaddress.IPv6Network"

PAUSE = 2.0

NOT_THERE = "there is no such VM"
NOT_ENABLED = "its guest agent is not enabled"
SILENT = "its guest agent did not answer"
ODD = "its guest agent gave an answer that cannot be read"
UNSUPPORTED = "its guest agent does not report addresses"
NO_ADDRESS = "its guest agent reported no matching address"
LASTING = (NOT_ENABLED, UNSUPPORTED)
"""Reasons that do not change while a VM runs."""
_REFUSAL_WITHOUT_AGENT = "No QEMU guest agent configured"


def address_info(params: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the module's result. Raises InvalidRequest, and what reading raises apart from an agent that does not
    answer.
    """
    networks = parse_networks(params["networks"])
    session = Session.connect(params)
    try:
        found = wait_for_addresses(session, params["vmids"], networks, float(params["wait"]))
    finally:
        session.close()
    return {"changed": False, "vms": found}


def wait_for_addresses(
    reader: Reader,
    vmids: Sequence[int],
    networks: Sequence[Network],
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[dict[str, t.Any]]:
    """Return for each VM its C(vmid), C(name), C(node), C(addresses), the first of them as C(address), and C(reason) if
    it has none.

    The guests are asked again until each has an address or the time is over. Guests without an agent, or whose agent
    does not report addresses, are not asked again: that does not change while they run. A reading that fails brings no
    news; if none succeeds until the time is over, the error of the last one is raised.
    """
    found: dict[int, dict[str, t.Any]] = {}
    names: dict[int, str | None] = {}
    missing = list(vmids)
    deadline = clock() + seconds
    while True:
        failure: ApiError | ConnectionFailed | None = None
        try:
            rows = reader.get("/cluster/resources", type="vm")
            nodes = {row["vmid"]: row["node"] for row in rows}
            names = {row["vmid"]: row.get("name") for row in rows}
            ask = functools.partial(agent_addresses, reader, nodes, networks)
            found.update(in_parallel(ask, missing))
        except WrongConnection:
            raise
        except (ApiError, ConnectionFailed) as error:
            failure = error
        else:
            missing = [vmid for vmid in missing if found[vmid]["reason"] not in (None, *LASTING)]
        if not missing or clock() >= deadline:
            if failure is not None and not found:
                raise failure
            return [{**found[vmid], "name": names.get(vmid)} for vmid in vmids]
        sleep(max(min(PAUSE, deadline - clock()), 0.0))


def agent_addresses(
    reader: Reader, nodes: Mapping[int, str], networks: Sequence[Network], vmid: int
) -> dict[str, t.Any]:
    """Return one VM's entry of the result, as it is now. nodes: where VMs are, by VMID."""
    node = nodes.get(vmid)
    addresses: list[str] = []
    reason: str | None = NOT_THERE
    if node is not None:
        try:
            answer = reader.get(f"/nodes/{node}/qemu/{vmid}/agent/network-get-interfaces")
        except (ApiError, NodeUnreachable) as error:
            reason = NOT_ENABLED if _REFUSAL_WITHOUT_AGENT in error.message else SILENT
        except OddAnswer:
            reason = ODD
        else:
            interfaces = answer.get("result")
            if isinstance(interfaces, Mapping):
                # An agent that does not know the command, or may not carry it out, answers with an error of its own.
                reason = UNSUPPORTED
            else:
                addresses = usable_addresses(interfaces, networks)
                reason = None if addresses else NO_ADDRESS
    first = addresses[0] if addresses else None
    return {"vmid": vmid, "node": node, "address": first, "addresses": addresses, "reason": reason}


def usable_addresses(interfaces: t.Any, networks: Sequence[Network]) -> list[str]:
    """Return the addresses by which others can reach the guest, IPv4 before IPv6, else in the guest's order.

    Loopback, link-local, multicast and unspecified addresses are left out; with networks, also those outside of all of
    them. What is no address is left out, too: the owner of the guest decides what its agent reports.
    """
    usable = [
        address for address in _reported_addresses(interfaces) if reaches_a_guest(address) and within(address, networks)
    ]
    return [str(address) for address in sorted(usable, key=lambda address: address.version)]


def reaches_a_guest(address: Address) -> bool:
    """Whether others can reach a guest by an address: a loopback address, for example, is always the own machine."""
    mapped = getattr(address, "ipv4_mapped", None) or address
    return not (mapped.is_loopback or mapped.is_link_local or mapped.is_multicast or mapped.is_unspecified)


def _reported_addresses(interfaces: t.Any) -> Iterator[Address]:
    """Yield the addresses that an agent reports. What is none is left out: the guest wrote it."""
    for interface in _mappings(interfaces):
        for row in _mappings(interface.get("ip-addresses")):
            try:
                address = ipaddress.ip_address(str(row.get("ip-address")).partition("%")[0])
            except ValueError:
                continue
            yield address


def _mappings(value: t.Any) -> list[Mapping[str, t.Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def within(address: Address | str, networks: Sequence[Network]) -> bool:
    """Whether an address is in one of the networks; without networks each is."""
    return not networks or any(ipaddress.ip_address(address) in network for network in networks)


def parse_networks(texts: Iterable[str]) -> list[Network]:
    """Return the networks of the option of that name. Raises InvalidRequest."""
    networks = []
    for text in texts:
        try:
            networks.append(ipaddress.ip_network(text.strip(), strict=False))
        except ValueError as error:
            raise InvalidRequest(f"networks: {error}") from error
    return networks
