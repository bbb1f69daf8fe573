"""Worker processes of one service: each answers the others at a Unix socket, in HTTP, without the public port."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import StreamingResponse

from di2pose.serve.limits import ApiError

ANSWER_S = 2.0
PASSED_ON = ("content-type", "retry-after", "x-accel-buffering")
SILENT = {"ready": False, "alive": True, "problem": "it does not answer", "waiting": 0, "running": None}
"""State of a worker that does not answer."""


@dataclass(frozen=True)
class Siblings:
    """`index`: of this process; `paths`: of all workers' sockets, () where there is one; `count`: called with 1 and -1
    where a request begins and ends."""

    index: int = 0
    paths: tuple[str, ...] = ()
    token: str | None = None
    count: Callable[[int], None] = field(default=lambda by: None)

    @property
    def others(self) -> list[int]:
        return [index for index in range(len(self.paths)) if index != self.index]

    async def ask(self, index: int, method: str, path: str) -> StreamingResponse:
        """The answer of another worker, as a stream; ApiError where it gives none."""
        token = "" if self.token is None else f"Authorization: Bearer {self.token}\r\n"
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_unix_connection(self.paths[index])
                writer.write(f"{method} {path} HTTP/1.0\r\nHost: localhost\r\n{token}\r\n".encode())
                status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            raise ApiError(503, "the worker that has this does not answer: try again", 5) from error
        pairs = (line.split(": ", 1) for line in lines)
        headers = {name.lower(): value for name, value in pairs if name.lower() in PASSED_ON}

        async def body() -> AsyncIterator[bytes]:
            try:
                while part := await reader.read(65_536):
                    yield part
            finally:
                writer.close()

        return StreamingResponse(body(), int(status.split()[1]), headers)

    async def reports(self, own: dict[str, Any]) -> dict[int, Any]:
        """`Service.report` of every worker, by its number."""

        async def report(index: int) -> Any:
            async with asyncio.timeout(ANSWER_S):
                answer = await self.ask(index, "GET", "/readyz")
                return json.loads(b"".join([bytes(part) async for part in answer.body_iterator]))  # type: ignore[arg-type]

        found = await asyncio.gather(*map(report, self.others), return_exceptions=True)
        known = {index: each for index, each in zip(self.others, found, strict=True) if isinstance(each, dict)}
        silent = {index: {"state": {"worker": index, **SILENT}, "samples": []} for index in self.others}
        return dict(sorted((silent | known | {self.index: own}).items()))
