"""Host, origin and token are checked before a body is read; every answer gets its safety headers."""

import hmac
import ipaddress
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from di2pose.serve.limits import CODES, ApiError, TooDear
from di2pose.serve.uploads import drain

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' blob: data:; style-src 'self' 'unsafe-inline'; media-src 'self' blob:; "
        "connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "camera=(self), microphone=(), geolocation=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
OPEN = ("/v1/health", "/livez", "/readyz")
"""Routes of the API that need no token."""
PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST, DELETE",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, X-Request-Id",
    "Access-Control-Max-Age": "600",
}
EXPOSED = "Content-Disposition, ETag, Location, Retry-After, X-Request-Id"
"""Headers that pages of allowed origins may read."""
HOST = re.compile(r"([\w.-]+|\[[0-9A-Fa-f:.]+\])(:\d+)?", re.ASCII)


class Guard:
    """ASGI middleware. `hosts`: the host names of the service; numeric addresses are always accepted, for no foreign
    page can have one as its name. `origins`: other sites whose pages may ask."""

    def __init__(
        self, app: ASGIApp, hosts: Iterable[str] = (), token: str | None = None, origins: Iterable[str] = ()
    ) -> None:
        self.app, self.origins = app, frozenset(origins)
        self.hosts = {host.lower().strip("[]") for host in ("localhost", *hosts)}
        self.token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def safe_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if self.origins:
                    headers.add_vary_header("Origin")
                if self._is_allowed(request):
                    headers["Access-Control-Allow-Origin"] = request.headers["origin"]
                    headers["Access-Control-Expose-Headers"] = EXPOSED
            await send(message)

        request = Request(scope, receive)
        asks_first = request.method == "OPTIONS" and "access-control-request-method" in request.headers
        answer: ASGIApp = self.app
        try:
            self.check(request, preflight := asks_first and self._is_allowed(request))
            if preflight:
                answer = Response(status_code=204, headers=PREFLIGHT)
        except ApiError as error:
            answer = await error_response(request, error)
        await answer(scope, receive, safe_send)

    def check(self, request: Request, preflight: bool = False) -> None:
        """ApiError where the headers are not acceptable. A preflight has no token."""
        host = request.headers.get("host", "")
        if not self._is_own(host):
            raise ApiError(403, f"this service is not called '{host[:60]}': start it with --allow-host {host[:60]}")
        if request.method not in ("GET", "HEAD") and not self._from_here(request):
            raise ApiError(403, "a page of another site may not ask this service")
        path = request.scope["path"]  # by which the routes are found; that of `request.url` has the Host header in it
        closed = path.startswith("/v1/") or path == "/metrics"
        if self.token is not None and closed and path not in OPEN and not preflight:
            kind, _, given = request.headers.get("authorization", "").partition(" ")
            if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self.token):
                raise ApiError(401, "a token is needed, and it must be the right one: Authorization: Bearer TOKEN")

    def _is_own(self, host: str) -> bool:
        """Whether a Host header, with or without a port, names this service."""
        found = HOST.fullmatch(host)
        name = found[1].strip("[]").lower() if found else ""
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self.hosts
        return True

    def _is_allowed(self, request: Request) -> bool:
        """Whether a page of an allowed origin sends this; browsers set Origin themselves."""
        return request.headers.get("origin") in self.origins

    def _from_here(self, request: Request) -> bool:
        """Whether the request comes from no page, or from a page of this service. Sec-Fetch-Site is set by the browser,
        no page can forge it; browsers leave it out for plain http, where Origin must name the requested host."""
        if self._is_allowed(request):
            return True
        origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site", "none")
        if site != "none":
            return site == "same-origin"
        return origin is None or urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()


async def error_response(request: Request, error: Any) -> JSONResponse:
    """The answer to an HTTPException; the rest of the request is thrown away, and the connection ends."""
    status, headers = error.status_code, dict(error.headers or {})
    message = error.detail if isinstance(error, ApiError) else f"{error.detail}: GET /docs shows what there is"
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status == 415 and "content-encoding" in request.headers:
        headers["Accept-Encoding"] = "identity"
    request.state.too_dear = isinstance(error, TooDear)
    has_body = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
    if has_body and not getattr(request.state, "whole", False):
        await drain(request)
        headers["Connection"] = "close"
    return JSONResponse({"error": {"code": CODES.get(status, CODES[400]), "message": message}}, status, headers)
