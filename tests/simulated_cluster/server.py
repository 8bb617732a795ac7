# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The HTTPS front: what pveproxy and pvedaemon do before and after a handler runs."""

from __future__ import annotations

import asyncio
import email.utils
import inspect
import json
import ssl
import time
import urllib.parse
import weakref
from typing import Any

from aiohttp import web
from fakepve.generic import GenericApi
from fakepve.schema import Match

from . import api, control
from .access import Identity
from .authentication import authenticate
from .cluster import Cluster
from .errors import ApiError, PlainError, forbidden, not_simulated, parameter_error
from .faults import Effects
from .pvestatd import WORKERS
from .reached import reached
from .request_log import redact
from .routing import HANDLERS, Call, Reply

PREFIXES = ("/api2/json", "/api2/extjs")
METHODS = frozenset({"GET", "POST", "PUT", "DELETE"})
FORM, JSON = "application/x-www-form-urlencoded", "application/json"
_COMPACT = json.JSONEncoder(separators=(",", ":"))


class PermissionRules(GenericApi):
    """fakepve's reading of the schema's permission rules, on this cluster's access control."""

    acl = ()

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def _has(self, user: Identity, path: str, priv: str) -> bool:
        return self._cluster.access.allowed(user, path, priv)

    def check(self, who: Identity, rules: dict[str, Any] | None, values: dict[str, Any], declared: Any) -> None:
        """403 unless the rule of a method is satisfied."""
        if who.is_root or (rules or {}).get("user") in ("all", "world"):
            return
        check = (rules or {}).get("check")
        passed, why = (False, "user != root@pam") if check is None else self._check(who, check, values, declared)
        if not passed:
            raise forbidden(why)

    def _check(self, user: Any, check: list[Any], values: dict[str, Any], declared: Any = None) -> tuple[bool, str]:
        if check[0] == "userid-param" and check[1] == "self":
            return values.get("userid") == user.user, ""
        return super()._check(user, check, values, declared)


LARGEST_BODY = 512 * 1024
"""The longest request that pveproxy reads."""


class Server:
    """One listening cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._rules = PermissionRules(cluster)
        self._workers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._runner: web.AppRunner | None = None
        api.load()

    def application(self) -> web.Application:
        """The API and the control plane, not yet listening."""
        app = web.Application(client_max_size=64 * 1024**2)
        app.on_response_prepare.append(self._tell_the_time)
        control.add_routes(app, self.cluster)
        app.router.add_route("*", "/{tail:.*}", self._serve)
        return app

    async def start(self, host: str, port: int, certificate: str, key: str) -> int:
        """Listen; the port in use."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        self._runner = web.AppRunner(self.application(), access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port, ssl_context=context, backlog=1024).start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        self.cluster.ha.stop_jobs()
        await self.cluster.tasks.cancel_all()
        if self._runner is not None:
            await self._runner.cleanup()
        self.cluster.log.close()

    def _worker(self, request: web.Request) -> int:
        """A connection stays with the API worker that accepted it."""
        transport = request.transport
        if transport not in self._workers:
            self._workers[transport] = self.cluster.rng.randrange(WORKERS)
        return self._workers[transport]

    async def _tell_the_time(self, _request: web.Request, response: web.StreamResponse) -> None:
        """Send the clock of the node with each answer: by it, clients determine how long ago a task ended."""
        response.headers["Date"] = email.utils.formatdate(self.cluster.clock.now(), usegmt=True)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        started = time.perf_counter()
        path = _api_path(request)
        if path is None:
            return web.Response(status=404, text="no such file")
        cluster = self.cluster
        effects = cluster.faults.for_request(request.method, path)
        entry: dict[str, Any] = {
            "method": request.method, "path": path, "params": {}, "user": None, "status": None, "ms": None,
            "at": cluster.clock.now(), "guests": {},
        }
        cluster.log.begin(entry)
        try:
            response = await self._with_faults(request, path, effects, entry)
            entry["status"] = response.status
        finally:
            entry["ms"] = round((time.perf_counter() - started) * 1000, 3)
            cluster.log.end(entry)
        return response

    async def _with_faults(
        self, request: web.Request, path: str, effects: Effects, entry: dict[str, Any]
    ) -> web.StreamResponse:
        cluster = self.cluster
        await cluster.clock.sleep(effects.delay + cluster.timing.request_seconds)
        for released in effects.held:
            await released.wait()
        if effects.hang:
            await asyncio.sleep(3600)
        if "before" in effects.drops:
            return _drop(request)
        if effects.refusal is not None:
            fault = effects.refusal
            if fault.status in (401, 595, 596):
                return _plain(PlainError(int(fault.status), fault.message or "No route to host"))
            return _error(ApiError(int(fault.status or 500), fault.message or "injected failure"))
        if (request.content_length or 0) > LARGEST_BODY:
            return _error(ApiError(501, "for data too large"))
        response = await self._answer(request, path, effects, entry)
        return _drop(request) if "after" in effects.drops else response

    async def _answer(
        self, request: web.Request, path: str, effects: Effects, entry: dict[str, Any]
    ) -> web.StreamResponse:
        try:
            reply = await self._call(request, path, effects, entry)
        except ApiError as error:
            response = _error(error)
        except PlainError as error:
            if error.delay is not None:
                await self.cluster.clock.sleep(getattr(self.cluster.timing, error.delay))
            response = _plain(error)
        else:
            body = {"data": reply.data, **reply.extra} if isinstance(reply, Reply) else {"data": reply}
            response = _json(200, "OK", body)
        return _extjs(response) if request.path.startswith("/api2/extjs/") else response

    async def _call(self, request: web.Request, path: str, effects: Effects, entry: dict[str, Any]) -> Any:
        cluster, method = self.cluster, request.method
        if method not in METHODS:
            raise PlainError(501, f"method '{method}' not available")
        match = cluster.schema.match(path)
        info = match.methods.get(method) if match else None
        who = await authenticate(cluster, request, info, path)
        entry["user"] = who.full or None
        values = await _parameters(request)
        entry["params"] = redact(values)
        if match is None or info is None:
            raise PlainError(501, f"Method '{method} {path}' not implemented", body="json")
        declared = (info.get("parameters") or {}).get("properties", {})
        self._rules.check(who, info.get("permissions"), {**values, **match.params}, declared)
        self._reach_node(match)
        for name, value in match.params.items():
            if str(values.get(name, value)) != value:
                raise parameter_error(**{name: "duplicate parameter (already defined in URI with conflicting values!)"})
        values |= match.params
        checked, errors = cluster.validator.validate(info.get("parameters"), values)
        if errors:
            raise ApiError(400, "Parameter verification failed.", errors)
        handler = HANDLERS.get((method, match.template))
        if handler is None:
            raise not_simulated(method, path)
        call = Call(cluster, who, method, path, checked, self._worker(request), effects)
        if effects.vmid_taken:
            control.take_vmid(cluster, checked)
        entry["guests"] = reached(cluster, path, checked)
        result = handler(call)
        return await result if inspect.iscoroutine(result) else result

    def _reach_node(self, match: Match) -> None:
        """Requests for another node are handed on to it, if it can be reached."""
        name = match.params.get("node")
        if name is None or not match.template.startswith("/nodes/{node}"):
            return
        if name == "localhost" and match.template == "/nodes/{node}/certificates/info":
            return
        if match.template == "/nodes/{node}/wakeonlan":
            # The node that answers handles it.
            return
        node = self.cluster.nodes.get(name)
        if node is None:
            raise ApiError(
                500, f"hostname lookup '{name}' failed - failed to get address info for: {name}: "
                "Name or service not known",
            )
        if not node.online:
            # The proxy keeps its connections to a node for a while after the node has died.
            noticed = self.cluster.statistics.offline_known(node)
            status, reason = (595, "No route to host") if noticed else (596, "Connection timed out")
            raise PlainError(status, reason, delay="node_down_seconds")


def _api_path(request: web.Request) -> str | None:
    raw = request.rel_url.raw_path
    for prefix in PREFIXES:
        if raw == prefix or raw.startswith(prefix + "/"):
            decoded = [urllib.parse.unquote(part) for part in raw[len(prefix):].split("/") if part]
            return "/" + "/".join(decoded)
    return None


async def _parameters(request: web.Request) -> dict[str, Any]:
    """Query string and body together, as Proxmox merges them."""
    values: dict[str, Any] = _collect(request.query.items())
    body = await request.read()
    if not body:
        return values
    if request.method == "DELETE":
        raise PlainError(501, "Unexpected content for method 'DELETE'", "Unexpected content for method 'DELETE'")
    kind = request.content_type
    if kind == JSON:
        try:
            data = json.loads(body)
        except json.JSONDecodeError as error:
            text = (
                "malformed JSON string, neither tag, array, object, number, string or atom, at character offset "
                f'{error.pos} (before "(end of string)") at /usr/share/perl5/PVE/APIServer/AnyEvent.pm line 931.'
            )
            raise PlainError(500, text, text + "\n") from None
        return values | {name: int(value) if isinstance(value, bool) else value for name, value in data.items()}
    if kind == FORM or "Content-Type" not in request.headers:
        return values | _collect(urllib.parse.parse_qsl(body.decode(), keep_blank_values=True))
    text = f"upload 'Content-Type '{request.headers['Content-Type']}' not implemented"
    raise PlainError(506, text, text)


def _collect(pairs: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            values[name] = [*values[name], value] if isinstance(values[name], list) else [values[name], value]
        else:
            values[name] = value
    return values


def _reason(text: str) -> str:
    line = text.splitlines()[0] if text else ""
    return line.encode("ascii", "replace").decode()


def _json(status: int, reason: str, body: dict[str, Any]) -> web.Response:
    return web.Response(status=status, reason=_reason(reason), text=_COMPACT.encode(body), content_type=JSON)


def _error(error: ApiError) -> web.Response:
    message = error.message if error.message.endswith("\n") else error.message + "\n"
    body: dict[str, Any] = {"data": None, "message": message}
    if error.errors:
        body["errors"] = error.errors
    return _json(error.status, error.message, body)


def _plain(error: PlainError) -> web.Response:
    if error.body == "json":
        return _json(error.status, error.reason, {"data": None, "message": error.reason})
    return web.Response(status=error.status, reason=_reason(error.reason), text=error.body)


def _extjs(response: web.Response) -> web.Response:
    """The same answer in the envelope that the web interface reads: always 200."""
    if response.content_type != JSON:
        return response
    body = json.loads(response.text or "{}")
    failed = response.status >= 400
    return _json(200, "OK", {**body, "success": int(not failed), **({"status": response.status} if failed else {})})


def _drop(request: web.Request) -> web.Response:
    """Cut the connection instead of answering."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=499, reason="connection dropped")
