"""Compressed answers, and 304 for those that the client has."""

import asyncio
import gzip
import re
from hashlib import blake2b

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LEAST_BYTES = 1024
LEVEL = 5
KINDS = re.compile(r"application/(json|javascript)|text/(?!event-stream)")
"""Media types that become smaller; pictures, archives and model files are compressed already."""
ACCEPTED = re.compile(r"(?:^|,)\s*(?:gzip|\*)\s*(?:;\s*q=(?!0(?:\.0*)?\s*(?:,|$))[0-9.]+\s*)?(?=,|$)")
KEPT = {"Cache-Control": "private, no-cache"}
"""Of answers with an ETag: a copy may be kept, and is used after a question."""


class Compress:
    """ASGI middleware: gzip where the client takes it, of whole answers from LEAST_BYTES on."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] == "HEAD":
            await self.app(scope, receive, send)
            return
        accepted = ACCEPTED.search(Headers(scope=scope).get("accept-encoding", "").lower()) is not None
        start: Message = {}
        parts: list[bytes] = []

        async def compressing_send(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                headers = Headers(raw=message["headers"])
                if message["status"] in (204, 206, 304) or not KINDS.match(headers.get("content-type", "")):
                    await send(message)
                else:
                    start = message
                return
            if not start:
                await send(message)
                return
            parts.append(message.get("body", b""))
            if message.get("more_body"):
                return
            body, headers = b"".join(parts), MutableHeaders(scope=start)
            if len(body) >= LEAST_BYTES:
                headers.add_vary_header("Accept-Encoding")
            if accepted and len(body) >= LEAST_BYTES:
                body = await asyncio.to_thread(gzip.compress, body, LEVEL, mtime=0)
                headers["Content-Encoding"], headers["Content-Length"] = "gzip", str(len(body))
                if headers.get("etag", "W/").startswith('"'):
                    headers["ETag"] = f"W/{headers['etag']}"  # the same content in other bytes
            await send(start)
            await send({"type": "http.response.body", "body": body})

        await self.app(scope, receive, compressing_send)


def revalidated(request: Request, answer: Response) -> Response:
    """The answer with an ETag, or 304 where the request names it."""
    if answer.status_code == 304:  # of a static file
        answer.headers.update(KEPT)
    if answer.status_code != 200:
        return answer
    tag = answer.headers.get("etag") or f'W/"{blake2b(answer.body, digest_size=12).hexdigest()}"'
    headers = {"ETag": tag, **KEPT}
    known = [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]
    if tag.removeprefix("W/") in known or known == ["*"]:
        return Response(status_code=304, headers=headers)
    answer.headers.update(headers)
    return answer
