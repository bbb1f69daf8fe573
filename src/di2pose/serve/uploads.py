"""A request's body -> its file and its fields. In memory alone, counted while it is read, with a time limit.

Forms are split here and not by python-multipart: that is written for bodies that are streamed to files on the disk,
and a body that is whole in memory needs no parser with callbacks.
"""

import asyncio
import base64
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from email.message import Message
from typing import Any

from starlette.requests import ClientDisconnect, Request

from di2pose.serve.limits import ApiError
from di2pose.serve.schema import PICTURE, VIDEO

MOST_PARTS, MOST_HEADER, MOST_FIELD = 32, 4_000, 200_000
"""Parts of a form; bytes of one part's headers, and of a text field."""
DRAIN_BYTES, DRAIN_S = 128_000_000, 10.0
"""Read and thrown away of a refused request, for a client that is still sending does not read its answer."""
DATA_URI = re.compile(r"\Adata:[^,]{,200};base64,", re.IGNORECASE)
KINDS = (
    "send multipart/form-data with the file in the field 'image' (or 'video'), application/json with the file as "
    "base64 under 'image', or the file alone as image/... or video/..."
)
RAW = re.compile(r"(image|video)/[\w.+-]+", re.ASCII)
"""Content types of a body that is the file itself; its options are in the query string."""
Content = bytes | list[bytes]
"""A file, or several pictures."""


class UploadBudget:
    """Counts the bytes of all requests that are in memory."""

    def __init__(self, most: int) -> None:
        self.most, self.now = most, 0

    @asynccontextmanager
    async def reading(self, request: Request, seconds: float, most: int) -> AsyncIterator[bytes]:
        """The whole body, for as long as it is needed."""
        body, taken = bytearray(), 0
        try:
            try:
                async with asyncio.timeout(seconds):
                    async for chunk in request.stream():
                        self.now += len(chunk)
                        taken += len(chunk)
                        if taken > most:
                            raise ApiError(413, f"such a request may have {most} bytes, more came: send a smaller file")
                        if self.now > self.most:
                            raise ApiError(503, "too many requests are in memory: try again soon", 5)
                        body += chunk
            except TimeoutError as error:
                raise ApiError(408, f"the request did not arrive within {seconds:g} s: send it again") from error
            request.state.whole = True
            content = bytes(body)
            body.clear()  # else it would be in memory twice
            yield content
        finally:
            self.now -= taken


def check_head(request: Request, most: int) -> None:
    """Check the headers: coding, type and length of the body."""
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("identity", ""):
        raise ApiError(415, f"the body has the content encoding '{coding[:60]}': send it uncompressed")
    kind = _parse_header(request.headers.get("content-type", ""))[0]
    if kind not in ("multipart/form-data", "application/json") and not RAW.fullmatch(kind):
        raise ApiError(415, f"the content type is '{kind[:60]}': {KINDS}")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > most:
        raise ApiError(413, f"such a request may have {most} bytes, {length[:20]} were announced: send a smaller file")


async def drain(request: Request) -> None:
    """Throw away the rest of the body, so that the client reads the answer."""
    if "expect" in request.headers:  # it waits to be asked for the body
        return
    left = DRAIN_BYTES
    with suppress(TimeoutError, ClientDisconnect, RuntimeError):  # RuntimeError: all of it was read before
        async with asyncio.timeout(DRAIN_S):
            async for chunk in request.stream():
                left -= len(chunk)
                if left < 0:
                    return


def read_upload(
    request: Request, body: bytes, allowed: tuple[str, ...], most: int = 1
) -> tuple[str, Content, dict[str, Any]]:
    """The name of the field with the file, the file or several, and the other fields as JSON values. `allowed`: the
    names of the file, of which one must be there; `most`: how many files may come."""
    kind, options = _parse_header(request.headers.get("content-type", ""))
    files: dict[str, Content] = {}
    fields: list[tuple[str, Any]] = []
    if raw := RAW.fullmatch(kind):
        files = {raw[1]: body}
    elif kind == "application/json":
        files, fields = _read_json(body)
    else:
        files, fields = _read_form(body, options.get("boundary", ""), most)
    for name, text in request.query_params.multi_items():
        fields.append((name, parse_json(text.encode(), f"the option '{name[:40]}' of the query string")))
    given = dict(fields)
    if twice := Counter(name for name, _ in fields) - Counter(given.keys()):
        raise ApiError(400, f"the field '{min(twice)[:40]}' came twice: give it once")
    if wrong := sorted(files.keys() - set(allowed)):
        expected = " or ".join(allowed)
        raise ApiError(400, f"a file in the field '{wrong[0][:40]}' is not expected here, but in {expected}")
    (name, content), *more = files.items() or [("", [])]
    count = len(content) if isinstance(content, list) else 1
    if more or not count or (most == 1 and isinstance(content, list)):
        raise ApiError(400, f"one file is needed, in {' or '.join(allowed)}, got {count + len(more)}: {KINDS}")
    if count > most:
        raise ApiError(413, f"a request may have {most} pictures, {count} came: send several requests")
    if not content:
        raise ApiError(422, f"the file in '{name}' is empty: choose another")
    return name, content, given


def _parse_header(text: str) -> tuple[str, dict[str, str]]:
    """'form-data; name="image"' -> its first value, and the options behind it."""
    message = Message()
    message["content-type"] = text
    first, *options = message.get_params() or [("", "")]
    return first[0].lower(), {key.lower(): value for key, value in options if isinstance(value, str)}


def _read_json(body: bytes) -> tuple[dict[str, Content], list[tuple[str, Any]]]:
    """The files are base64, in one line or wrapped, with or without the head of a data: URI."""
    record = parse_json(body, "the request")
    if not isinstance(record, dict):
        raise ApiError(400, f"the request must be a JSON object, got {type(record).__name__}")
    files: dict[str, Content] = {}
    for name in record.keys() & {PICTURE, VIDEO}:
        try:
            given = record.pop(name)
            files[name] = list(map(_decoded, given)) if isinstance(given, list) else _decoded(given)
        except (TypeError, ValueError) as error:
            wanted = "as text, alone or as a URI (data:image/png;base64,...)"
            raise ApiError(400, f"'{name}' must be the file's bytes in base64 {wanted}") from error
    return files, list(record.items())


def _decoded(text: str) -> bytes:
    digits = DATA_URI.sub("", text, count=1).encode("ascii").translate(None, b" \t\r\n")
    return base64.b64decode(digits, validate=True)


def parse_json(text: bytes, what: str) -> Any:
    """Standard JSON: no NaN, and no depth that would overflow a stack."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no JSON")

    try:
        return json.loads(text.decode(), parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        reason = "too deep" if isinstance(error, RecursionError) else str(error)[:80]
        raise ApiError(400, f"{what} must be JSON in UTF-8: {reason}") from error


def _read_form(body: bytes, boundary: str, most: int) -> tuple[dict[str, Content], list[tuple[str, Any]]]:
    files: dict[str, list[bytes]] = {}
    fields = []
    for disposition, content in _parts(body, boundary.encode("latin-1", "replace"), MOST_PARTS - 1 + most):
        kind, options = _parse_header(disposition)
        name = options.get("name", "")
        if kind != "form-data" or not name:
            raise ApiError(400, f"every part of a form needs a Content-Disposition with a name: {KINDS}")
        if name in (PICTURE, VIDEO):
            files.setdefault(name, []).append(content)
        elif len(content) > MOST_FIELD:
            raise ApiError(413, f"the field '{name[:40]}' has {len(content)} bytes, {MOST_FIELD} are allowed")
        else:
            fields.append((name, parse_json(content, f"the field '{name[:40]}'")))
    return {name: each if len(each) > 1 else each[0] for name, each in files.items()}, fields


def _parts(body: bytes, boundary: bytes, most: int) -> Iterator[tuple[str, bytes]]:
    """(Content-Disposition, content) of every part of a complete form (RFC 7578).

        --BOUNDARY CRLF headers CRLF CRLF content CRLF --BOUNDARY ... CRLF --BOUNDARY--
    """
    damaged = ApiError(400, f"the form is damaged or was cut off: {KINDS}")
    mark = b"\r\n--" + boundary
    if not boundary or not body.startswith(mark[2:]):
        raise damaged
    at = len(mark) - 2
    for _ in range(most):
        end, head = body.find(mark, at), body.find(b"\r\n\r\n", at, at + MOST_HEADER)
        if body.startswith(b"--", at):
            return
        if not at < head < end:
            raise damaged
        lines = [line.partition(":") for line in body[at:head].decode("utf-8", "replace").split("\r\n")]
        yield next((v for name, _, v in lines if name.lower() == "content-disposition"), ""), body[head + 4 : end]
        at = end + len(mark)
    raise ApiError(400, f"a form may have {most} parts, more came")
