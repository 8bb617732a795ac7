# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Logins, users, tokens, roles, access control lists and effective permissions."""

from __future__ import annotations

import re
from typing import Any

from ..access import AclEntry, Identity, User
from ..authentication import active
from ..errors import ApiError, die, forbidden, parameter_error
from ..property_strings import split_list
from ..routing import Call, route

_ACL_PATHS = re.compile(
    r"/|/access(?:/groups|/realm)?(?:/[^/]+)?|/nodes(?:/[^/]+)?|/pool(?:/[^/]+){0,3}|/sdn(?:/[^/]+){0,5}"
    r"|/storage(?:/[^/]+)?|/vms(?:/[1-9]\d{2,})?|/mapping(?:/[^/]+){0,2}"
)
_CAPABILITIES = {
    "vms": ("/vms", r"VM\.|Permissions\.Modify"), "storage": ("/storage", r"Datastore\.|Permissions\.Modify"),
    "access": ("/access", r"User\.Modify|Permissions\.Modify|Group\.Allocate"),
    "nodes": ("/nodes", r"Sys\.|Permissions\.Modify"), "sdn": ("/sdn", r"SDN\.|Permissions\.Modify"),
    "dc": ("/", r"Sys\.Audit|Sys\.Modify|SDN\."), "mapping": ("/mapping", r"Mapping\.|Permissions\.Modify"),
}


@route("POST", "/access/ticket")
async def ticket(call: Call) -> dict[str, Any]:
    cluster, userid, password = call.cluster, str(call["username"]), str(call["password"])
    if "@" not in userid and call.get("realm"):
        userid = f"{userid}@{call['realm']}"
    user = cluster.access.users.get(userid)
    renewed = cluster.tickets.find(password)
    known = user is not None and user.password is not None and user.password == password
    if not active(cluster, userid) or not (known or (renewed is not None and renewed[0] == userid)):
        await cluster.clock.sleep(cluster.timing.unauthorized_seconds)
        raise ApiError(401, "authentication failure")
    text, csrf = cluster.tickets.issue(userid, int(cluster.clock.now()))
    answer: dict[str, Any] = {
        "username": userid, "ticket": text, "CSRFPreventionToken": csrf, "cap": _capabilities(call, Identity(userid)),
    }
    if cluster.access.allowed(Identity(userid), "/", "Sys.Audit"):
        answer["clustername"] = cluster.name
    return answer


def _capabilities(call: Call, who: Identity) -> dict[str, dict[str, int]]:
    held: dict[str, dict[str, int]] = {}
    for area, (path, pattern) in _CAPABILITIES.items():
        privileges = set(call.cluster.access.privileges(who, path))
        for entry in call.cluster.access.acl:
            if entry.path.startswith(path) or (area == "vms" and entry.path.startswith("/pool")):
                privileges |= call.cluster.access.privileges(who, entry.path)
        held[area] = {name: 1 for name in sorted(privileges) if re.match(pattern, name)}
    return held


@route("GET", "/access/permissions")
def permissions(call: Call) -> dict[str, dict[str, int]]:
    access, who = call.cluster.access, call.who
    wanted = call.get("userid")
    # A user may look at their tokens, and a token not at its user.
    if wanted is not None and wanted != who.full and not (who.token is None and str(wanted).startswith(f"{who.user}!")):
        call.require("/access", "Sys.Audit")
    if wanted is not None:
        userid, _, token = str(wanted).partition("!")
        who = Identity(userid, token or None)
    if call.get("path") is not None:
        return {str(call["path"]): access.effective(who, str(call["path"]))}
    result = {path: access.effective(who, path) for path in access.paths()}
    return {path: held for path, held in result.items() if held}


@route("GET", "/access/domains")
def domains(call: Call) -> list[dict[str, Any]]:
    return [
        {"realm": "pam", "type": "pam", "comment": "Linux PAM standard authentication"},
        {"realm": "pve", "type": "pve", "comment": "Proxmox VE authentication server"},
    ]


@route("GET", "/access/groups")
def groups(call: Call) -> list[dict[str, Any]]:
    return []


@route("GET", "/access/roles")
def roles(call: Call) -> list[dict[str, Any]]:
    access = call.cluster.access
    return [
        {"roleid": name, "privs": ",".join(sorted(privileges)), "special": int(name in access.builtin)}
        for name, privileges in access.roles.items()
    ]


@route("GET", "/access/roles/{roleid}")
def role(call: Call) -> dict[str, int]:
    held = call.cluster.access.roles.get(str(call["roleid"]))
    if held is None:
        raise die(f"role '{call['roleid']}' does not exist")
    return dict.fromkeys(sorted(held), 1)


def _privileges(call: Call) -> frozenset[str]:
    given = split_list(call.get("privs"))
    for name in given:
        if name not in call.cluster.access.all_privileges:
            raise parameter_error(privs=f"invalid format - invalid privilege '{name}'\n")
    return frozenset(given)


@route("POST", "/access/roles")
async def create_role(call: Call) -> None:
    access, name, held = call.cluster.access, str(call["roleid"]), _privileges(call)
    await call.cluster.need_quorum_for("create role")
    if name in access.roles:
        raise die(f"create role failed: role '{name}' already exists")
    access.roles[name] = held
    access.changed()


@route("PUT", "/access/roles/{roleid}")
async def change_role(call: Call) -> None:
    access, name, held = call.cluster.access, str(call["roleid"]), _privileges(call)
    await call.cluster.need_quorum_for("update role")
    if name not in access.roles:
        raise die(f"update role failed: role '{name}' does not exist")
    if name in access.builtin:
        raise die(f"auto-generated role '{name}' cannot be modified")
    access.roles[name] = access.roles[name] | held if call.get("append") else held
    access.changed()


@route("DELETE", "/access/roles/{roleid}")
async def delete_role(call: Call) -> None:
    access, name = call.cluster.access, str(call["roleid"])
    await call.cluster.need_quorum_for("delete role")
    if name not in access.roles:
        raise die(f"delete role failed: role '{name}' does not exist")
    if name in access.builtin:
        raise die(f"auto-generated role '{name}' cannot be deleted")
    del access.roles[name]
    access.acl = [entry for entry in access.acl if entry.role != name]
    access.changed()


@route("GET", "/access/acl")
def acl(call: Call) -> list[dict[str, Any]]:
    return [
        {"path": entry.path, "type": entry.kind, "ugid": entry.who, "roleid": entry.role,
         "propagate": int(entry.propagate)}
        for entry in call.cluster.access.acl
        if call.allowed(entry.path, "Permissions.Modify") or call.allowed("/access", "Sys.Audit")
    ]


@route("PUT", "/access/acl")
async def change_acl(call: Call) -> None:
    access = call.cluster.access
    path = "/" + "/".join(part for part in str(call["path"]).split("/") if part)
    if not _ACL_PATHS.fullmatch(path):
        raise parameter_error(path=f"invalid ACL path '{call['path']}'")
    await call.cluster.need_quorum_for("ACL update")
    holders = [("user", name) for name in split_list(call.get("users"))]
    holders += [("token", name) for name in split_list(call.get("tokens"))]
    holders += [("group", name) for name in split_list(call.get("groups"))]
    for name in split_list(call["roles"]):
        if name not in access.roles:
            raise die(f"ACL update failed: role '{name}' does not exist")
        for kind, who in holders:
            userid, _, token = who.partition("!")
            if kind == "group" or userid not in access.users:
                raise die(f"ACL update failed: {'group' if kind == 'group' else 'user'} '{who}' does not exist")
            if kind == "token" and token not in access.users[userid].tokens:
                raise die(f"ACL update failed: no such token '{who}'")
            access.acl = [
                entry for entry in access.acl
                if (entry.path, entry.kind, entry.who, entry.role) != (path, kind, who, name)
            ]
            if not call.get("delete"):
                access.acl.append(AclEntry(path, kind, who, name, bool(call.get("propagate", 1))))
    access.changed()


@route("GET", "/access/users")
def users(call: Call) -> list[dict[str, Any]]:
    access, rows = call.cluster.access, []
    audit = call.allowed("/access/groups", "User.Modify", "Sys.Audit", any_of=True)
    for user in access.users.values():
        if not audit and user.userid != call.who.user:
            continue
        if not audit and call.who.token is not None:
            continue
        row: dict[str, Any] = {
            "userid": user.userid, "enable": int(user.enable), "realm-type": user.userid.rpartition("@")[2],
        }
        if user.userid != "root@pam":
            row["expire"] = user.expire
        for key in ("comment", "email"):
            if getattr(user, key) is not None:
                row[key] = getattr(user, key)
        if call.get("full"):
            row |= {"groups": "", "tokens": [_token_row(user, name) for name in user.tokens] or None}
        rows.append(row)
    return rows


def _user(call: Call) -> User:
    user = call.cluster.access.users.get(str(call["userid"]))
    if user is None:
        raise die(f"no such user ('{call['userid']}')")
    return user


@route("GET", "/access/users/{userid}")
def user_one(call: Call) -> dict[str, Any]:
    user = _user(call)
    tokens = {name: _token_row(user, name) for name in user.tokens}
    return {"enable": int(user.enable), "expire": user.expire, "groups": [], "tokens": tokens}


@route("POST", "/access/users")
async def create_user(call: Call) -> None:
    access, userid = call.cluster.access, str(call["userid"])
    if userid.rpartition("@")[2] not in ("pam", "pve"):
        raise die(f"create user failed: domain '{userid.rpartition('@')[2]}' does not exist")
    await call.cluster.need_quorum_for("create user")
    if userid in access.users:
        raise die(f"create user failed: user '{userid}' already exists")
    access.users[userid] = User(
        userid, call.get("password"), bool(call.get("enable", 1)), int(call.get("expire", 0)), call.get("comment"),
        call.get("email"),
    )
    access.changed()


@route("DELETE", "/access/users/{userid}")
async def delete_user(call: Call) -> None:
    access, userid = call.cluster.access, _user(call).userid
    if userid == "root@pam":
        raise forbidden("/access/users/root@pam")
    await call.cluster.need_quorum_for("delete user")
    del access.users[userid]
    access.acl = [entry for entry in access.acl if entry.who.partition("!")[0] != userid]
    access.changed()


def _token_row(user: User, name: str) -> dict[str, Any]:
    token = user.tokens[name]
    row: dict[str, Any] = {"tokenid": name, "privsep": int(token.privsep), "expire": token.expire}
    return row | ({"comment": token.comment} if token.comment else {})


@route("GET", "/access/users/{userid}/token")
def tokens(call: Call) -> list[dict[str, Any]]:
    user = _user(call)
    return [_token_row(user, name) for name in user.tokens]


@route("GET", "/access/users/{userid}/token/{tokenid}")
def token_one(call: Call) -> dict[str, Any]:
    user, name = _user(call), str(call["tokenid"])
    if name not in user.tokens:
        raise die(f"no such token '{name}' for user '{user.userid}'")
    return {key: value for key, value in _token_row(user, name).items() if key != "tokenid"}


@route("POST", "/access/users/{userid}/token/{tokenid}")
async def create_token(call: Call) -> dict[str, Any]:
    user, name = _user(call), str(call["tokenid"])
    if name in user.tokens:
        raise parameter_error(tokenid="Token already exists.")
    await call.cluster.need_quorum_for("create token")
    token = call.cluster.access.add_token(
        user.userid, name, privsep=bool(call.get("privsep", 1)), expire=int(call.get("expire", 0)),
        comment=call.get("comment"),
    )
    info = {key: str(call[key]) for key in ("expire", "comment") if call.get(key) is not None}
    info["privsep"] = str(int(token.privsep))
    return {"full-tokenid": f"{user.userid}!{name}", "value": token.secret, "info": info}


@route("PUT", "/access/users/{userid}/token/{tokenid}")
async def change_token(call: Call) -> dict[str, Any]:
    user, name = _user(call), str(call["tokenid"])
    if name not in user.tokens:
        raise die(f"no such token '{name}' for user '{user.userid}'")
    await call.cluster.need_quorum_for("update token")
    token, answer = user.tokens[name], {}
    if call.get("privsep") is not None:
        token.privsep = bool(call["privsep"])
    if call.get("expire") is not None:
        token.expire = int(call["expire"])
    if call.get("regenerate"):
        token.secret = call.cluster.random_uuid()
        answer = {"full-tokenid": f"{user.userid}!{name}", "value": token.secret}
    call.cluster.access.changed()
    return {"privsep": int(token.privsep), "expire": token.expire, **answer}


@route("DELETE", "/access/users/{userid}/token/{tokenid}")
async def delete_token(call: Call) -> None:
    user, name = _user(call), str(call["tokenid"])
    if name not in user.tokens:
        raise die(f"no such token '{name}' for user '{user.userid}'")
    await call.cluster.need_quorum_for("delete token")
    del user.tokens[name]
    call.cluster.access.changed()
