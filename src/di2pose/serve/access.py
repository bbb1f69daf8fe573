"""Around every request: the client's address behind proxies, the request's id, a line of the access log, its count."""

import ipaddress
import json
import re
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from starlette.datastructures import Headers, MutableHeaders
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from di2pose.serve.metrics import Metrics
from di2pose.serve.operators import Network, OperatorOptions

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
GONE = 499
"""Status where the client has gone; never sent."""
REJECTED = {503: "too_busy", 413: "too_large"}


class Access:
    """ASGI middleware. Requests without a client's address come from another worker of this service, by its Unix
    socket: they are neither counted nor logged."""

    def __init__(
        self, app: ASGIApp, routes: Sequence[BaseRoute], options: OperatorOptions, metrics: Metrics,
        count: Callable[[int], None],
    ) -> None:  # fmt: skip
        self.app, self.routes, self.options, self.trusted = app, routes, options, options.networks()
        self.metrics, self.count = metrics, count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["client"] is None:
            await self.app(scope, receive, send)
            return
        began, status, size = time.monotonic(), GONE, 0
        headers = Headers(scope=scope)
        if self.trusted:
            client = client_address(headers.getlist("x-forwarded-for"), scope["client"][0], self.trusted)
            scope["client"] = (client, 0)
        name = headers.get("x-request-id", "")
        name = name if REQUEST_ID.fullmatch(name) else secrets.token_hex(8)

        async def counting_send(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                if self.options.access_log:
                    MutableHeaders(scope=message)["X-Request-Id"] = name
            size += len(message.get("body", b""))
            await send(message)

        self.count(1)
        try:
            await self.app(scope, receive, counting_send)
        finally:
            self.count(-1)
            route = self._template(scope)
            method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST", "DELETE", "OPTIONS") else "other"
            self.metrics.count("requests_total", route=route, method=method, status=status)
            if status in REJECTED:
                too_dear = scope.get("state", {}).get("too_dear")
                self.metrics.count("rejected_total", reason="too_dear" if too_dear else REJECTED[status])
            if self.options.access_log:
                at = datetime.now(UTC).isoformat(timespec="milliseconds")
                line = {"time": at, "id": name, "method": method, "route": route, "status": status, "bytes": size,
                        "ms": round(1000 * (time.monotonic() - began))}  # fmt: skip
                line |= {"client": scope["client"][0]} if self.options.log_addresses else {}
                print(json.dumps(line), file=sys.stderr, flush=True)

    def _template(self, scope: Scope) -> str:
        """The route's path with its parameters' names: no value of a request."""
        found = (route for route in self.routes if route.matches(scope)[0] is not Match.NONE)
        return getattr(next(found, None), "path", "other")


def client_address(forwarded: Sequence[str], peer: str, trusted: Sequence[Network]) -> str:
    """The right-most address of X-Forwarded-For and the connection that is no trusted proxy; the left-most, where all
    are. What stands left of it, or of text that is no address, is the client's own claim."""
    client = peer
    for hop in (peer, *reversed(",".join(forwarded).split(","))):
        try:
            address = ipaddress.ip_address(_without_port(hop.strip()))
        except ValueError:
            break
        address = getattr(address, "ipv4_mapped", None) or address
        client = str(address)
        if not any(address in network for network in trusted):
            break
    return client


def _without_port(hop: str) -> str:
    """1.2.3.4:5 and [::1]:5, as some proxies write them."""
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop
