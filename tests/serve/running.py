"""A real server of the service on a free port, and a client of the standard library."""

import base64
import http.client
import io
import json
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field

from PIL import Image

from di2pose.serve.command import bind
from di2pose.serve.limits import Limits
from di2pose.serve.server import build
from di2pose.serve.worker import ExclusiveJob

QUICK = {"hypotheses": 2, "steps": 2, "second_look": False}
"""Options of a request that is answered soon."""
BOUNDARY = "----a-boundary-of-the-tests"


@dataclass
class Answer:
    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]["code"]


@dataclass
class Running:
    """The service, and how to ask it."""

    port: int
    worker: object
    headers: dict = field(default_factory=dict)

    def ask(self, method, path, body=None, headers=(), timeout=120, client="127.0.0.1"):
        """`client`: the address that it comes from; on Linux any of 127.x.x.x."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout, source_address=(client, 0))
        try:
            connection.request(method, path, body, self.headers | dict(headers))
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path, **headers):
        return self.ask("GET", path, headers=headers)

    def post(self, path, content, name="image", headers=(), client="127.0.0.1", **fields):
        """A form, every other field as JSON text."""
        kind = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
        return self.ask("POST", path, form({name: content}, fields), kind | dict(headers), client=client)

    def post_json(self, path, content, name="image", **fields):
        body = json.dumps({name: base64.b64encode(content).decode(), **fields})
        return self.ask("POST", path, body.encode(), {"Content-Type": "application/json"})

    @contextmanager
    def held(self):
        """The worker is busy for as long as the block runs."""
        begun, end = threading.Event(), threading.Event()

        def run(model, between):
            begun.set()
            end.wait(60)

        job = ExclusiveJob(60, 60, run)
        self.worker.submit(job)
        assert begun.wait(60)
        try:
            yield
        finally:
            end.set()
            job.future.result(60)

    @contextmanager
    def noting(self, method, note):
        """Calls `note` with the argument of each call of a method of the worker."""
        real = getattr(self.worker, method)
        setattr(self.worker, method, lambda argument: (note(argument), real(argument))[1])
        try:
            yield
        finally:
            setattr(self.worker, method, real)

    def wait_for(self, count, timeout=60):
        """Until so many requests wait."""
        end = time.monotonic() + timeout
        while self.worker.waiting != count:
            assert time.monotonic() < end, f"{self.worker.waiting} requests wait, not {count}"
            time.sleep(0.01)


def form(files, fields):
    lines = []
    for name, content in files.items():
        lines += [f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"; filename="a.b"'.encode()]
        lines += [b"Content-Type: application/octet-stream\r\n", content]
    for name, value in fields.items():
        lines += [f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n'.encode()]
        lines += [json.dumps(value).encode()]
    return b"\r\n".join([*lines, f"--{BOUNDARY}--\r\n".encode()])


@contextmanager
def running(model, limits=None, waiting=64, a_client=64, batch=8, token=None, hosts=()):
    with bind("127.0.0.1", 0) as listening:
        server, worker = build(model, limits or Limits(), (waiting, a_client, batch), ("127.0.0.1", *hosts), token)
        worker.start()
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        port = listening.getsockname()[1]
        thread.start()
        try:
            yield Running(port, worker, {} if token is None else {"Authorization": f"Bearer {token}"})
        finally:
            server.should_exit = True
            thread.join(30)
            worker.close()
            assert not thread.is_alive()


def work_for_ever(model, between):
    """The work of a long job."""
    while True:
        between()
        time.sleep(0.01)


def file_of(picture, kind="PNG", **options):
    """The bytes of a picture's file."""
    data = io.BytesIO()
    picture.save(data, kind, **options)
    return data.getvalue()


def opened(content):
    return Image.open(io.BytesIO(content))
