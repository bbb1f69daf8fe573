"""A real server of the service on a free port, and a client of the standard library."""

import asyncio
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
from di2pose.serve.operators import OperatorOptions
from di2pose.serve.server import build
from di2pose.serve.worker import Job

QUICK = {"hypotheses": 2, "steps": 2, "second_look": False}
"""Options of a request that is answered soon."""
NONE = OperatorOptions()
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
    loop: object = None
    headers: dict = field(default_factory=dict)

    def submit(self, job, work):
        """The future of a job's answer."""
        return asyncio.run_coroutine_threadsafe(self.worker.run(job, work), self.loop)

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
        """A form, every other field as JSON text; `content`: the file, or a list of several."""
        kind = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
        return self.ask("POST", path, form({name: content}, fields), kind | dict(headers), client=client)

    def job(self, content, name="image", **fields):
        """The path of a job that was started."""
        answer = self.post("/v1/jobs", content, name, **fields)
        assert answer.status == 202, answer.body
        return answer.headers["location"]

    def post_json(self, path, content, name="image", **fields):
        one = not isinstance(content, list)
        coded = [base64.b64encode(each).decode() for each in ([content] if one else content)]
        body = json.dumps({name: coded[0] if one else coded, **fields})
        return self.ask("POST", path, body.encode(), {"Content-Type": "application/json"})

    @contextmanager
    def held(self):
        """The worker is busy for as long as the block runs."""
        begun, end = threading.Event(), threading.Event()

        def work(between):
            begun.set()
            end.wait(60)

        done = self.submit(Job("", "held", 60, 60), work)
        assert begun.wait(60)
        try:
            yield
        finally:
            end.set()
            done.result(60)

    @contextmanager
    def noting_jobs(self, note):
        """Calls `note` with every job that comes."""
        run = self.worker.run
        self.worker.run = lambda job, work: (note(job), run(job, work))[1]
        try:
            yield
        finally:
            self.worker.run = run

    def wait_for(self, count):
        """Until so many requests wait."""
        until(lambda: self.worker.waiting == count)


def until(condition):
    """Wait for a condition, for at most a minute."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def form(files, fields):
    lines = []
    each_file = ((name, each) for name, it in files.items() for each in (it if isinstance(it, list) else [it]))
    for name, content in each_file:
        lines += [f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"; filename="a.b"'.encode()]
        lines += [b"Content-Type: application/octet-stream\r\n", content]
    for name, value in fields.items():
        lines += [f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n'.encode()]
        lines += [json.dumps(value).encode()]
    return b"\r\n".join([*lines, f"--{BOUNDARY}--\r\n".encode()])


@contextmanager
def running(model, limits=None, waiting=64, a_client=64, token=None, hosts=(), operator=NONE):
    with bind("127.0.0.1", 0) as listening:
        queue, names = (waiting, a_client), ("127.0.0.1", *hosts)
        server, worker = build(model, limits or Limits(), queue, names, token, operator)
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_until_complete, args=(server.serve([listening]),), daemon=True)
        port = listening.getsockname()[1]
        thread.start()
        try:
            yield Running(port, worker, loop, {} if token is None else {"Authorization": f"Bearer {token}"})
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()
            worker.close()


def file_of(picture, kind="PNG", **options):
    """The bytes of a picture's file."""
    data = io.BytesIO()
    picture.save(data, kind, **options)
    return data.getvalue()


def opened(content):
    return Image.open(io.BytesIO(content))
