"""Options for operators of the service: what it shows of itself, and what stands in front of it."""

import ipaddress
import re
import socket
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import UseAppendAction, arg

from di2pose.errors import InputError

ORIGIN = re.compile(r"https?://([a-z0-9.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class OperatorOptions:
    """All off by default."""

    metrics: bool = False
    """GET /metrics: Prometheus text of requests, queue, work and memory; with a token as /v1."""
    access_log: bool = False
    """One JSON line a request to stderr, without query, body or address; answers carry X-Request-Id."""
    log_addresses: bool = False
    """The access log also has the clients' addresses."""
    workers: int = 1
    """Processes behind the port, each with a model, a queue and the limits of its own."""
    allow_origin: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="ORIGIN")] = ()
    """Another site whose pages may ask this service, e.g. https://x.example; repeated for several."""
    trust_proxy: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="CIDR")] = ()
    """Proxies whose X-Forwarded-For names the client, e.g. 127.0.0.1 or 10.0.0.0/8; repeated for several."""

    def networks(self) -> tuple[Network, ...]:
        """`trust_proxy`, read; InputError where one is no network."""
        try:
            return tuple(ipaddress.ip_network(each) for each in self.trust_proxy)
        except ValueError as error:
            raise InputError(f"--trust-proxy: {error}: give an address or a network as 10.0.0.0/8") from error

    def check(self) -> None:
        """InputError where an option cannot be."""
        self.networks()
        if self.workers < 1 or (self.workers > 1 and not hasattr(socket, "AF_UNIX")):
            raise InputError(f"--workers must be 1 or more (here without Unix sockets: 1), got {self.workers}")
        if self.log_addresses and not self.access_log:
            raise InputError("--log-addresses is about the access log: give --access-log, too")
        for origin in self.allow_origin:
            if not ORIGIN.fullmatch(origin):
                raise InputError(f"--allow-origin must be as https://x.example, without a path, got '{origin}'")
