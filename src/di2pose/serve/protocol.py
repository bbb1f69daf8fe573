"""HTTP by uvicorn, with a time limit for the head of a request: who sends it byte by byte holds no connection."""

import asyncio
import socket
from typing import Any

from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from di2pose.serve.worker import Worker

HEAD_S = 10.0


class GracefulServer(Server):
    """When it ends (SIGTERM, Ctrl-C), requests that wait are refused at once, and those that have begun are finished,
    or refused where they need longer than the grace time."""

    def __init__(self, config: Config, worker: Worker) -> None:
        super().__init__(config)
        self.worker = worker

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        grace_s = self.config.timeout_graceful_shutdown or 0
        self.worker.end(0.8 * grace_s)  # the rest is for their answers
        await super().shutdown(sockets)


class TimedProtocol(H11Protocol):
    """Closes a connection whose next request has not begun, head and all, within HEAD_S of its first byte (of the first
    request: of the connection)."""

    _until: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._arm()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._disarm()
        elif self._until is None:
            self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def _arm(self) -> None:
        self._until = self.loop.call_later(HEAD_S, self._close)

    def _disarm(self) -> None:
        if self._until is not None:
            self._until.cancel()
            self._until = None

    def _close(self) -> None:
        self._until = None
        if not self.transport.is_closing():
            self.transport.close()
