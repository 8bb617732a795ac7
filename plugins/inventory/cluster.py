# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guests of a Proxmox VE cluster as an inventory."""

from __future__ import annotations

DOCUMENTATION = r"""
name: cluster
short_description: Guests of a Proxmox VE cluster as an inventory
version_added: 1.0.0
description:
  - Adds the VMs and containers of a cluster as hosts. Templates and guests that are being created are left out.
  - Costs two API requests, whatever the number of guests, and one per node on which guests changed within the last 30
    seconds. The options O(configs) and O(addresses) cost one request per guest each.
  - The source is a YAML file whose key C(plugin) is V(qemu_scheduler.proxmox.cluster). Its name ends in C(.yml) or
    C(.yaml). An unknown option is an error.
  - A host is named after its guest, or by its VMID if the guest has no name. A name that also means something else gets
    the VMID as a suffix, for example C(web-1_104), with a warning. Such names are those that several guests have, those
    of groups, of hosts of sources that were read before and of the controller, addresses, and reserved words of
    Ansible.
  - The plugin changes no other host, and no group except that it adds hosts to it.
  - Users who may edit a guest choose its name, tags, notes and addresses. These are values in expressions and
    variables, and never evaluated as templates. Their control characters are escaped, for example C(\x1b).
  - Every host has the variables C(proxmox_vmid), C(proxmox_name), C(proxmox_type) (V(qemu) or V(lxc)), C(proxmox_node),
    C(proxmox_status), C(proxmox_pool), C(proxmox_tags), C(proxmox_cores), C(proxmox_memory) (MiB),
    C(proxmox_ha_state) and C(proxmox_lock). A variable without a value is null.
author:
  - the qemu_scheduler.proxmox authors (@qemu-scheduler)
options:
  plugin:
    description: The name of this plugin.
    type: str
    required: true
    choices: [qemu_scheduler.proxmox.cluster]
  types:
    description: Types of guests to add. V(qemu) are VMs, V(lxc) are containers.
    type: list
    elements: str
    choices: [qemu, lxc]
    default: [qemu, lxc]
  group_by:
    description:
      - Creates groups of hosts, for example C(proxmox_node_pve1), C(proxmox_pool_shop), C(proxmox_status_running),
        C(proxmox_tag_web) and C(proxmox_ha_started). V(ha) is the state of the guest's HA resource.
      - Characters that are invalid in a group name are replaced with underscores.
      - For other names, set this to an empty list and use O(keyed_groups).
    type: list
    elements: str
    choices: [node, pool, status, tag, ha]
    default: [node, pool, status, tag, ha]
  group_prefix:
    description: Prefix of the groups of O(group_by).
    type: str
    default: proxmox_
  filters:
    description:
      - Jinja expressions. Only hosts for which all of them are true are added.
      - Details are read only for guests that pass, except for filters that mention C(proxmox_config),
        C(proxmox_addresses) or C(ansible_host). Those are evaluated after the details were read.
      - A host for which an expression fails is left out. With O(strict), the plugin fails.
    type: list
    elements: str
    default: []
  configs:
    description:
      - Whether to read the configuration of every guest into C(proxmox_config), with the values that are in effect, not
        those that are pending. If it cannot be read, for example because the node is offline, the variable is null,
        with a warning.
    type: bool
    default: false
  addresses:
    description:
      - Where to read the IP addresses of the guests. They are returned as C(proxmox_addresses). The first one is
        C(ansible_host), if there is one.
      - V(static) takes the static addresses of the configuration, C(ipconfigN) of VMs and C(netN) of containers.
      - V(agent) queries the guest agents of running VMs. Requires the privilege C(VM.GuestAgent.Audit) on the VMs, or
        C(VM.Monitor) before Proxmox VE 9.
      - With both, addresses are in this order, without duplicates, but static ones that the agent does not report are
        last, as the guest does not use them yet. Proxmox VE shows a new address of a running VM at once, although the
        guest gets it when it boots.
    type: list
    elements: str
    choices: [static, agent]
    default: []
  networks:
    description:
      - Use only addresses in these networks, for example V(192.0.2.0/24). By default, all addresses are used
        except loopback, link-local, multicast and unspecified ones, which are never used.
      - Ansible connects to C(ansible_host), and the owner of a guest chooses what its agent and its cloud-init
        configuration say. Set the networks in which guests are, so that no guest can direct Ansible to another machine.
    type: list
    elements: str
    default: []
  details_timeout:
    description:
      - Maximum time to read the configurations and the addresses of all guests, in seconds. After that,
        hosts are added without what has not been read, with a warning.
    type: float
    default: 30
  vmid_suffix:
    description:
      - V(needed) adds the VMID only to names that also mean something else.
      - V(always) adds it to all names. Choose this if other sources are read after this one. The plugin does not know
        their hosts and groups, which may have the names of guests.
    type: str
    choices: [needed, always]
    default: needed
notes:
  - Connection options and expressions in them may be templates, for example a lookup of a secret.
  - With O(cache), Ansible's inventory cache keeps what was read, including configurations and addresses, per source,
    cluster and user. A configuration that could not be read, and an agent that did not answer, count as unknown for
    five minutes. If an option needs data that the cache lacks, the plugin reads everything again, so that all data is
    of the same time.
  - Proxmox VE shows changes of names, sizes and states up to about ten seconds late in the list of the cluster. Guests
    that tasks changed recently are read from their nodes. Without the privilege C(Sys.Audit) on C(/), the plugin does
    not see the tasks of other users, and reads the guests of every node.
  - Some minutes after a node has gone offline, Proxmox VE no longer tells the names of its guests. They are then looked
    up in the lists of backup jobs, which requires C(Sys.Audit) on C(/), or are those that the plugin has read on this
    host within the last hour. It keeps them in C(~/.local/state/qemu_scheduler/names), where tasks find them, too.
seealso:
  - module: qemu_scheduler.proxmox.qemu_schedule
  - module: qemu_scheduler.proxmox.vm_address_info
extends_documentation_fragment:
  - constructed
  - inventory_cache
  - qemu_scheduler.proxmox.proxmox
  - qemu_scheduler.proxmox.proxmox.environment
"""

EXAMPLES = r"""
# All guests, with the connection in the environment (PROXMOX_HOST, ...)
plugin: qemu_scheduler.proxmox.cluster

---
# Running VMs of a pool, by role, with their addresses
plugin: qemu_scheduler.proxmox.cluster
api_host: pve1.example.com
api_user: automation@pve
api_token_id: ansible
api_token_secret: "{{ lookup('ansible.builtin.env', 'SECRET') }}"
ca_path: pve-root-ca.pem
types: [qemu]
filters:
  - proxmox_status == 'running'
  - proxmox_pool == 'shop'
addresses: [static, agent]
networks: [192.0.2.0/24]
keyed_groups:
  - {key: proxmox_tags, prefix: role}
compose:
  ansible_user: "'admin'"
groups:
  large: proxmox_memory >= 16384
cache: true
cache_plugin: ansible.builtin.jsonfile
cache_connection: ~/.cache/proxmox-inventory
"""

import contextlib
import hashlib
import json
import os
import typing as t
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ansible.errors import AnsibleError, AnsibleParserError
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.texts import first, hint, shorten
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import CollectionError, InvalidRequest
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.foreign_text import on_one_line
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.api.session import (
    Session,
    connection_argument_spec,
    contradicted_credentials,
    endpoint_of,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.inventory.kept_names import KeptNames
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.proxmox.options.values import static_addresses
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.reservations.opening import names_folder
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.secret_options import (
    mask,
    secret_names,
    secrets_in,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.workflow.addresses import (
    parse_networks,
    reaches_a_guest,
    within,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.additions import Additions, add, is_other
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.booleans import read_booleans
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.guests import (
    GuestReader,
    NotCached,
    Variables,
    groups_of,
    is_silent,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.host_names import host_names
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.untrusted import own, untrusted

BOOLEANS = ("validate_certs", "configs", "cache", "strict", "leading_separator", "use_extra_vars")
CA_VARIABLE = "PROXMOX_CA_PATH"
NAMED = 20
"""How many guests a warning names."""

DETAILS = ("proxmox_config", "proxmox_addresses", "ansible_host")
"""Variables that cost a request per guest."""

WORDS = {"proxmox_type": ("qemu", "lxc"), "proxmox_status": ("running", "stopped", "paused", "suspended", "unknown")}
"""Variables whose values are words that no owner of a guest chooses."""


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):
    """Found by Ansible by this name."""

    NAME = "qemu_scheduler.proxmox.cluster"

    def verify_file(self, path: str) -> bool:
        return bool(super().verify_file(path)) and path.endswith((".yml", ".yaml"))

    def parse(self, inventory: InventoryData, loader: DataLoader, path: str, cache: bool = True) -> None:
        super().parse(inventory, loader, path, cache)
        try:
            source = self._read_config_data(path)
            self._refuse_unknown(source)
            self._set_booleans(source)
            self._read_cluster(inventory, path, cache=cache)
        except AnsibleError as error:
            messages, secrets = _messages_of(error), self._secret_texts(path)
            if mask(messages, secrets) == messages:
                raise
            raise AnsibleParserError(on_one_line(mask(str(error), secrets))) from None

    def _refuse_unknown(self, source: Variables) -> None:
        """Raise AnsibleParserError for an unknown option. Ansible would ignore it: a source whose filters are misspelt
        would have every guest.
        """
        unknown = sorted(map(str, source.keys() - self.option_definitions.keys()))
        if unknown:
            known = self.option_definitions
            told = (f"{name}: this plugin has no such option{hint(known, name)}" for name in unknown)
            raise AnsibleParserError(f"{InvalidRequest.code}: {'; '.join(told)}")

    def _set_booleans(self, source: Variables) -> None:
        """Set the booleans of the source as they are written. Raises AnsibleParserError for a word that is none."""
        given = {"validate_certs": os.environ.get("PROXMOX_VALIDATE_CERTS")}
        given.update((name, self.templar.template(source[name])) for name in BOOLEANS if name in source)
        try:
            for name, value in read_booleans(given).items():
                self.set_option(name, value)
        except CollectionError as error:
            raise AnsibleParserError(f"{error.code}: {error.message}") from error

    def _secret_texts(self, path: str) -> set[str]:
        """Return the texts of the source and of the environment that no message may show."""
        spec = connection_argument_spec()
        variables = {name: os.environ.get(option["fallback"][1][0]) for name, option in spec.items()}
        source: t.Any = {}
        with contextlib.suppress(AnsibleError):
            source = self.loader.load_from_file(path)
        return {text for given in (source, variables) for text in secrets_in(given, secret_names(spec))}

    def _read_cluster(self, inventory: InventoryData, path: str, *, cache: bool) -> None:
        cached = self.get_option("cache")
        key = self._cache_key(path) if cached else ""
        seconds: float = self.get_option("details_timeout")
        sessions: list[Session] = []

        def connect() -> Session:
            sessions.append(Session.connect(self._connection()))
            return sessions[0]

        def open_names() -> KeptNames:
            return KeptNames(names_folder(), endpoint_of(self._connection()))

        try:
            try:
                reader = GuestReader(connect, seconds, self._cache.get(key) if cached and cache else None, open_names)
                hosts = self._hosts(reader)
            except NotCached:
                reader = GuestReader(connect, seconds, None, open_names)
                hosts = self._hosts(reader)
        except CollectionError as error:
            raise AnsibleParserError(on_one_line(f"{error.code}: {error.message}")) from error
        finally:
            for session in sessions:
                session.close()
        if cached and sessions:
            self._cache[key] = reader.data
        for text in self._add_all(hosts, inventory):
            self._warn(text)

    def _connection(self) -> Variables:
        """Return the connection options."""
        spec = connection_argument_spec()
        options = {name: self._option(name) for name in spec}
        in_source = {name: options[name] for name in spec if not self._is_of_environment(name)}
        options.update(contradicted_credentials(in_source, spec))
        # AWX sets the variable to an empty text if there is no certificate, and Ansible makes the current directory of
        # that.
        if os.environ.get(CA_VARIABLE) == "" and options["ca_path"] == str(Path.cwd()):
            options["ca_path"] = None
        return options

    def _is_of_environment(self, name: str) -> bool:
        _value, origin = self.get_option_and_origin(name)
        return str(origin).startswith("env:")

    def _option(self, name: str) -> t.Any:
        """Return a connection option, with templates in it evaluated."""
        return self.templar.template(self.get_option(name))

    def _cache_key(self, path: str) -> str:
        """Return a key for this source and for what its answers depend on: the cluster, and what the user may see."""
        return f"{self.get_cache_key(path)}_{self._digest('api_host', 'api_port', 'api_user', 'api_token_id')}"

    def _digest(self, *names: str) -> str:
        """Return a key for the values of connection options."""
        asked = json.dumps([self._option(name) for name in names])
        return hashlib.sha256(asked.encode()).hexdigest()[:16]

    def _hosts(self, reader: GuestReader) -> list[Variables]:
        """Return the variables of each host that passes the filters."""
        networks = parse_networks(self.get_option("networks"))
        filters: list[str] = self.get_option("filters")
        late = [expression for expression in filters if any(name in expression for name in DETAILS)]
        early = [expression for expression in filters if expression not in late]
        wanted = {
            guest["proxmox_vmid"]: {**guest}
            for guest in reader.guests()
            if guest["proxmox_type"] in self.get_option("types") and self._passes(early, guest)
        }
        unnamed = [str(vmid) for vmid, each in wanted.items() if is_silent(each)]
        if unnamed:
            self._warn(f"the names of guests on offline nodes are not known: {_list_names(unnamed)}")
        sources: list[str] = self.get_option("addresses")
        configs = reader.configs(wanted.values()) if self.get_option("configs") or "static" in sources else {}
        agents = reader.agents(wanted.values()) if "agent" in sources else {}
        for what, details in (("the configurations", configs), ("the guest agents", agents)):
            unread = [guest for vmid, guest in wanted.items() if details.get(str(vmid), guest) is None]
            if unread:
                names = _list_names(str(guest["proxmox_name"] or guest["proxmox_vmid"]) for guest in unread)
                self._warn(
                    f"{what} of {len(unread)} guests could not be read within details_timeout, did not answer, or may "
                    f"not be read by this user: {names}"
                )
        for vmid, variables in wanted.items():
            config = configs.get(str(vmid))
            if self.get_option("configs"):
                variables["proxmox_config"] = config
            if sources:
                found = {
                    "static": [str(each.ip) for each in static_addresses(config or {}) if reaches_a_guest(each.ip)],
                    "agent": agents.get(str(vmid)) or [],
                }
                every = list(dict.fromkeys(address for source in sources for address in found[source]))
                used = found["agent"] or every
                addresses = [each for each in every if each in used] + [each for each in every if each not in used]
                variables["proxmox_addresses"] = [address for address in addresses if within(address, networks)]
                if variables["proxmox_addresses"]:
                    variables["ansible_host"] = variables["proxmox_addresses"][0]
        return [variables for variables in wanted.values() if self._passes(late, variables)]

    def _passes(self, filters: list[str], variables: Variables) -> bool:
        for expression in filters:
            try:
                passed = self._compose(expression, host_variables(variables))
            except Exception as error:  # An expression of the user may raise anything.
                if self.get_option("strict"):
                    name = variables["proxmox_name"] or variables["proxmox_vmid"]
                    text = f'filters: cannot evaluate "{expression}" for {name}: {error}'
                    raise AnsibleParserError(on_one_line(text)) from error
                return False
            if not passed:
                return False
        return True

    def _add_all(self, guests: list[Variables], inventory: InventoryData) -> Iterator[str]:
        """Add the guests as hosts, and yield warnings."""
        cluster = self._digest("api_host", "api_port")
        always = self.get_option("vmid_suffix") == "always"
        groups: list[str] = []

        def is_taken(name: str, vmid: int) -> bool:
            return name in groups or is_other(inventory, name, (cluster, vmid))

        # Which groups there are follows from expressions about hosts, so it is known only when these have names.
        additions = self._compose_additions(host_names(guests, is_taken, always_long=always), guests, inventory)
        # No group keeps a guest from the name that it has with its VMID: there is no such group then.
        own = {each["proxmox_name"] for each in guests}
        groups = [name for name in additions.own_groups() if name in additions.hosts and name in own]
        names = host_names(guests, is_taken, always_long=always)
        if groups:
            additions = self._compose_additions(names, guests, inventory)
        yield from _rename_warnings(guests, names, always=always)
        hosts = {name: (cluster, each["proxmox_vmid"]) for name, each in zip(names, guests, strict=True) if name}
        yield from add(additions, hosts, inventory)

    def _compose_additions(
        self, names: list[str | None], guests: list[Variables], inventory: InventoryData
    ) -> Additions:
        """Return what this source adds if the guests have these names. Guests without a name are left out."""
        additions = Additions(inventory.current_source)
        # Ansible's own methods, which evaluate the expressions, write to this attribute.
        self.inventory = additions
        try:
            for name, variables in zip(names, guests, strict=True):
                if name is not None:
                    self._compose_host(name, host_variables(variables))
        finally:
            self.inventory = inventory
        return additions

    def _compose_host(self, name: str, variables: Variables) -> None:
        self.inventory.add_host(name)
        for key, value in variables.items():
            self.inventory.set_variable(name, key, value)
        for group in groups_of(variables, self.get_option("group_by"), self.get_option("group_prefix")):
            self.inventory.add_host(name, self.inventory.add_group(self._sanitize_group_name(group)))
        strict = self.get_option("strict")
        self._set_composite_vars(self.get_option("compose"), variables, name, strict=strict)
        self._add_host_to_composed_groups(self.get_option("groups"), variables, name, strict=strict)
        self._add_host_to_keyed_groups(self.get_option("keyed_groups"), variables, name, strict=strict)

    def _warn(self, text: str) -> None:
        self.display.warning(on_one_line(text))


def _messages_of(error: BaseException | None) -> str:
    """Return the messages of an error and of what caused it: Ansible shows all of them."""
    texts = []
    while error is not None:
        texts.append(str(error))
        error = error.__cause__ or error.__context__
    return "\n".join(texts)


def host_variables(guest: Mapping[str, t.Any]) -> Variables:
    """Return the variables of a guest as Ansible gets them."""
    variables = {name: untrusted(value) for name, value in guest.items()}
    for name, words in WORDS.items():
        variables[name] = next((own(word) for word in words if word == guest[name]), variables[name])
    if "proxmox_addresses" in guest:
        # Other texts were refused when these were read.
        variables["proxmox_addresses"] = [own(address) for address in guest["proxmox_addresses"]]
    if "ansible_host" in guest:
        variables["ansible_host"] = own(guest["ansible_host"])
    return variables


def _rename_warnings(guests: list[Variables], names: list[str | None], *, always: bool) -> Iterator[str]:
    """Yield warnings about guests whose hosts are not named like them."""
    own = [each["proxmox_name"] or str(each["proxmox_vmid"]) for each in guests]
    left_out = [name for name, given in zip(own, names, strict=True) if given is None]
    if left_out:
        yield f"these guests are left out, because also their names with their VMIDs are taken: {_list_names(left_out)}"
    renamed = [name for name, given in zip(own, names, strict=True) if given not in (None, name)]
    if renamed and not always:
        yield (
            "guests whose name is not unique, or means another host, a group or something else to Ansible, get their "
            f"VMID as a suffix: {_list_names(renamed)}"
        )


def _list_names(names: Iterable[str]) -> str:
    return ", ".join(first(sorted({shorten(name) for name in names}), NAMED))
