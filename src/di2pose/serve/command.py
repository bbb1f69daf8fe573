"""`di2pose serve`: the page and the REST service, in one process or in several."""

import logging
import os
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import torch
import tyro

from di2pose.device import usable_device
from di2pose.errors import InputError, MissingExtra, require
from di2pose.serve.limits import Limits
from di2pose.serve.operators import OperatorOptions
from di2pose.serve.processes import SharedListener, run_workers
from di2pose.serve.siblings import Siblings

LOOPBACK = ("127.0.0.1", "localhost", "::1")
TOKEN = "DI2POSE_TOKEN"
"""Of the environment: a flag could be read in the list of processes."""


def serve(
    model: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    allow_host: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME...")] = (),
    device: str = "auto",
    max_waiting: int = 64,
    max_per_client: int = 16,
    limits: Annotated[Limits, tyro.conf.arg(name="")] = Limits(),  # noqa: B008  # frozen
    operator: Annotated[OperatorOptions, tyro.conf.arg(name="")] = OperatorOptions(),  # noqa: B008
) -> int:
    """Open the page and the REST service; Ctrl-C ends them. docs/serve.md describes both.

    Pictures stay in memory and are forgotten with the answer; nothing about them is logged.

    Args:
        model: Name or folder of a model (left out: the one inside the package).
        host: Address to listen at. 127.0.0.1: this machine alone; 0.0.0.0: everybody who can reach it.
        port: Port to listen at; 0: any free one.
        token: What callers of /v1 must send as `Authorization: Bearer TOKEN` (left out: $DI2POSE_TOKEN, else none).
        allow_host: Names under which the service is reached, e.g. behind a proxy. Addresses in numbers always count.
        device: auto, cpu, cuda or mps.
        max_waiting: Requests that may wait; more get 503.
        max_per_client: Requests of one client (its address) that may wait.
    """
    for package in ("starlette", "uvicorn", "pydantic"):
        require(package, extra="serve")
    token = os.environ.get(TOKEN) if token is None else token
    if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token != ""):
        raise InputError("the token must be printable ASCII without spaces at its ends, and not empty")
    counts = {"max-waiting": max_waiting, "max-per-client": max_per_client}
    counts |= {"max-hypotheses": limits.hypotheses, "max-price": limits.price, "max-video-price": limits.video_price}
    counts |= {"max-pictures": limits.pictures, "max-jobs": limits.jobs}
    for flag, value in counts.items():
        if value < 1:
            raise InputError(f"--{flag} must be 1 or more, got {value}")
    operator.check()
    device = usable_device(device)
    with bind(host, port) as listening:  # before the model is loaded, so that a port in use is an error at once
        address, port = listening.getsockname()[:2]
        if host not in LOOPBACK and token is None:
            warning = f"everybody who can reach {address} may use this service. Give it a --token, or --host 127.0.0.1"
            print(f"warning: {warning}", file=sys.stderr)
        print("loading the model", flush=True)
        shown = "localhost" if address in ("0.0.0.0", "::") else f"[{address}]" if ":" in address else address
        ready = f"di2pose: http://{shown}:{port}/  (Ctrl-C ends it)"
        run = partial(_run, model, device, limits=limits, queue=(max_waiting, max_per_client),
                      hosts=(host, *allow_host), token=token, operator=operator)  # fmt: skip
        if operator.workers > 1:
            return run_workers(operator.workers, listening, partial(_run_worker, run, token), ready)
        run([listening], lambda: print(ready, flush=True))
    return 0


def _run_worker(
    run: Callable[..., None], token: str | None, public: SharedListener, paths: tuple[str, ...], own: socket.socket
) -> None:
    """One of several processes, with its share of the processors."""
    torch.set_num_threads(max(1, torch.get_num_threads() // len(paths)))
    try:
        run([public, own], public.begin, siblings=Siblings(public.index, paths, token, public.count))
    except (InputError, MissingExtra) as error:
        sys.exit(f"error: {error}")


def _run(
    model: str | None, device: str, sockets: list[socket.socket], say: Callable[[], None], **settings: Any
) -> None:
    """Load the model and answer until SIGTERM or Ctrl-C; `say` is called before."""
    from di2pose.pipeline.pipeline import Di2Pose
    from di2pose.serve.server import build

    pipeline = Di2Pose.from_pretrained(model, device)
    pipeline.load_detector()
    pipeline.encoder  # noqa: B018  # missing files are an error before the first request
    server, worker = build(pipeline, **settings)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # it warns of every request that is no HTTP
    say()
    try:
        server.run(sockets=sockets)
    except KeyboardInterrupt:
        if "siblings" not in settings:
            print("ended", flush=True)
    finally:
        worker.close()


def bind(host: str, port: int) -> socket.socket:
    """A listening socket."""
    if not 0 <= port < 2**16:
        raise InputError(f"cannot listen at {host}, port {port}: a port is a number from 0 to 65535")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address, family=family, backlog=128)
    except (OSError, UnicodeError) as error:
        advice = "choose another with --port, or 0 for any free one"
        raise InputError(f"cannot listen at {host}, port {port}: {error}; {advice}") from error
