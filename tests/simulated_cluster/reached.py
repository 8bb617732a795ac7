# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which guests a request is about, at the moment when it arrives."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .ha_rules import resources_of
from .property_strings import split_list

if TYPE_CHECKING:
    from .cluster import Cluster

_GUEST = re.compile(r"/nodes/[^/]+/(?:qemu|lxc)/(\d+)(?:/|$)")
_RESOURCE = re.compile(r"/cluster/ha/resources/(?:(?:vm|ct):)?(\d+)(?:/|$)")
_RULE = re.compile(r"/cluster/ha/rules/([^/]+)$")


def reached(cluster: Cluster, path: str, values: dict[str, Any]) -> dict[int, int]:
    """The births of the guests that a request is about, by their VMIDs: those that it names, joins to an HA rule or
    puts into a pool. None when its ``digest`` is that of another state, for which Proxmox refuses it.
    """
    if _is_stale(cluster, path, values):
        return {}
    return {vmid: cluster.guests[vmid].birth for vmid in _named(cluster, path, values) if vmid in cluster.guests}


def _named(cluster: Cluster, path: str, values: dict[str, Any]) -> list[int]:
    match = _GUEST.match(path) or _RESOURCE.match(path)
    if match is not None:
        return [int(match[1])]
    if path == "/cluster/ha/resources" and "sid" in values:
        return _numbers([values["sid"]])
    if path.startswith("/cluster/ha/rules"):
        rule = _RULE.match(path)
        known = cluster.ha.rules.get(rule[1], {}) if rule else {}
        joining = set(split_list(values.get("resources"))) - set(resources_of(known) if known else ())
        return _numbers(sorted(joining))
    if path.startswith("/pools"):
        return _numbers(split_list(values.get("vms")))
    return []


def _numbers(texts: list[Any]) -> list[int]:
    numbers = [str(text).rpartition(":")[2] for text in texts]
    return [int(number) for number in numbers if number.isdigit()]


def _is_stale(cluster: Cluster, path: str, values: dict[str, Any]) -> bool:
    match, digest = _GUEST.match(path), values.get("digest")
    if not digest:
        return False
    if match is not None:
        guest = cluster.guests.get(int(match[1]))
        return guest is not None and digest != guest.digest()
    if path.startswith("/cluster/ha/resources"):
        return bool(digest != cluster.ha.digest(cluster.ha.resources))
    return path.startswith("/cluster/ha/rules") and bool(digest != cluster.ha.digest(cluster.ha.rules))
