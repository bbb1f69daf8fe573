"""HTTP by uvicorn, with a time limit for the head of a request: who sends it byte by byte holds no connection."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 10.0


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
