"""Compressed answers, and 304 for those that the client has."""

import re
from hashlib import blake2b

from starlette.datastructures import MutableHeaders
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

ACCEPTED = re.compile(r"(?:^|,)\s*(?:gzip|\*)\s*(?:;\s*q=(?!0(?:\.0*)?\s*(?:,|$))[0-9.]+\s*)?(?=,|$)")
KEPT = {"Cache-Control": "private, no-cache"}
"""Of answers with an ETag: a copy may be kept, and is used after a question."""


class Compress(GZipMiddleware):
    """gzip of text from 1 kB on; pictures, archives and model files are compressed already. Starlette's takes any
    Accept-Encoding with 'gzip' in it, also 'gzip;q=0': it gets one that is read."""

    def __init__(self, app: ASGIApp) -> None:
        packed = (*DEFAULT_EXCLUDED_CONTENT_TYPES, "application/octet-stream", "image/*")
        super().__init__(app, minimum_size=1024, compresslevel=5, exclude_content_types=packed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = MutableHeaders(scope=scope)
            taken = ACCEPTED.search(", ".join(headers.getlist("accept-encoding")).lower())
            headers["accept-encoding"] = "gzip" if taken else "identity"
        await super().__call__(scope, receive, send)


def revalidated(request: Request, answer: Response) -> Response:
    """The answer with an ETag, or 304 where the request names it. The ETag is weak, for gzip is the same content."""
    if answer.status_code not in (200, 304):
        return answer
    tag = answer.headers.get("etag") or f'"{blake2b(answer.body, digest_size=12).hexdigest()}"'
    headers = {"ETag": f"W/{tag.removeprefix('W/')}", **KEPT}
    known = [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]
    if answer.status_code == 304 or tag.removeprefix("W/") in known or known == ["*"]:  # 304: of a static file
        return Response(status_code=304, headers=headers)
    answer.headers.update(headers)
    return answer
