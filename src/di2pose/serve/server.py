"""HTTP by uvicorn, with a time limit for the head of a request: clients that send it slowly hold no connection."""

import asyncio
import logging
import socket
from typing import Any

from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from di2pose.pipeline.pipeline import Di2Pose
from di2pose.serve.app import Service, build_app
from di2pose.serve.limits import Limits
from di2pose.serve.operators import OperatorOptions
from di2pose.serve.siblings import Siblings
from di2pose.serve.worker import Worker

HEAD_S = 10.0
MOST_HEAD = 32_768
"""Bytes of a request's head."""
GRACE_S = 10
"""For requests that have begun, when the service ends."""


class GracefulServer(Server):
    """When it ends (SIGTERM, Ctrl-C), waiting requests are refused at once, and begun ones are finished, or refused
    where they need longer than the grace time."""

    def __init__(self, config: Config, service: Service) -> None:
        super().__init__(config)
        self.service, self.worker = service, service.worker

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        grace_s = self.config.timeout_graceful_shutdown or 0
        self.worker.end(0.8 * grace_s)  # the rest is for their answers
        await super().shutdown(sockets)
        await self.service.jobs.close()
        await asyncio.to_thread(self.worker.close)  # here, for SIGTERM then ends the program


class TimedProtocol(H11Protocol):
    """Closes a connection whose next request has not begun, head and all, within HEAD_S of its first byte (of the first
    request: of the connection)."""

    _until: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._until = self.loop.call_later(HEAD_S, transport.close)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._disarm()
        elif self._until is None:
            self._until = self.loop.call_later(HEAD_S, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def _disarm(self) -> None:
        if self._until is not None:
            self._until.cancel()
            self._until = None


def build(
    model: Di2Pose, limits: Limits, queue: tuple[int, int], hosts: tuple[str, ...], token: str | None,
    operator: OperatorOptions = OperatorOptions(), siblings: Siblings = Siblings(),  # noqa: B008
) -> tuple[Server, Worker]:  # fmt: skip
    """The server, not started, and its worker. queue: how many requests may wait, and how many of one client."""
    logging.getLogger("uvicorn.access").disabled = True  # it would log what is asked for
    worker = Worker(*queue, limits.decode_s)
    service = Service(model, worker, limits, operator, siblings)
    config = Config(
        build_app(service, hosts, token), http=TimedProtocol, ws="none", lifespan="off",
        log_config=None, access_log=False, server_header=False, proxy_headers=False, timeout_keep_alive=15,
        timeout_graceful_shutdown=GRACE_S, h11_max_incomplete_event_size=MOST_HEAD,
    )  # fmt: skip
    return GracefulServer(config, service), worker
