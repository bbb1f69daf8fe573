"""`di2pose serve`: what it says when it cannot start, and how it ends."""

import os
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from serve.running import QUICK, Running, until

from di2pose import errors
from di2pose.cli import main
from di2pose.errors import InputError
from di2pose.serve.command import bind

BOX = (20.0, 10.0, 200.0, 250.0)
SERVER = """
import sys
from di2pose.diffusion import fast_sampler
from di2pose.serve import command, server

server.GRACE_S = 60
jump, first = fast_sampler.jump, [True]

def held(*arguments):
    if first.pop() if first else False:
        print("begun", flush=True)
        sys.stdin.readline()
    return jump(*arguments)

if __name__ == "__main__":
    fast_sampler.jump = held
    command.serve(port=0, host="0.0.0.0")
"""


def test_what_keeps_it_from_starting_is_told(capsys, monkeypatch):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert main(["serve", "--port", str(port)]) == 2
    said = capsys.readouterr()
    assert f"error: cannot listen at 127.0.0.1, port {port}" in said.err
    assert "--port" in said.err
    assert "loading" not in said.out
    for flag, value in (("token", ""), ("token", " a"), ("max-waiting", "0"), ("max-price", "0"), ("device", "abacus")):
        assert main(["serve", "--port", "0", f"--{flag}", value]) == 2
        assert "error: " in capsys.readouterr().err

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(errors, "import_module", missing)
    assert main(["serve"]) == 2
    assert "pip install 'di2pose[serve]'" in capsys.readouterr().err


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 99_999_999), ("no.such.host.invalid", 0), ("8.8.8.8", 0)])
def test_addresses_that_cannot_be(host, port):
    with pytest.raises(InputError, match="cannot listen at"):
        bind(host, port)


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_what_waits_is_refused_at_once_and_what_has_begun_is_finished(photos, ending):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", SERVER], env=environment, text=True, **pipes)
    try:
        while not (found := re.search(r"http://localhost:(\d+)/", line := process.stdout.readline())):
            assert line, "it did not start"
        service = Running(int(found[1]), None)
        with ThreadPoolExecutor(3) as pool:
            fields = QUICK | {"boxes": [BOX]}
            first = pool.submit(service.post, "/v1/predict", photos[0], **fields)
            assert process.stdout.readline() == "begun\n"
            others = [pool.submit(service.post, "/v1/predict", photos[1], **fields) for _ in range(2)]
            until(lambda: service.get("/v1/health").json["waiting"] == 2)
            process.send_signal(ending)
            for other in others:
                answer = other.result(60)
                assert (answer.status, answer.error) == (503, "busy")
                assert "the service ends" in answer.json["error"]["message"]
            assert not first.done()
            process.stdin.write("go on\n")
            process.stdin.flush()
            answer = first.result(60)
        assert answer.status == 200
        assert len(answer.json["frames"][0]["people"]) == 1
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, out) == ((0, "ended\n") if ending == signal.SIGINT else (-signal.SIGTERM, ""))
    assert err.startswith("warning: everybody who can reach 0.0.0.0 may use this service. Give it a --token")
    assert "Traceback" not in err
