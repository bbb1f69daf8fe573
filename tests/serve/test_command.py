"""`di2pose serve`: what it says when it cannot start, and how it ends."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from di2pose import errors
from di2pose.cli import main
from di2pose.errors import InputError
from di2pose.serve.command import bind


def test_a_port_in_use_is_told_before_the_model_is_loaded(capsys):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert main(["serve", "--port", str(port)]) == 2
    said = capsys.readouterr()
    assert f"error: cannot listen at 127.0.0.1, port {port}" in said.err
    assert "--port" in said.err
    assert "loading" not in said.out


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 99_999_999), ("no.such.host.invalid", 0), ("8.8.8.8", 0)])
def test_addresses_that_cannot_be(host, port):
    with pytest.raises(InputError, match="cannot listen at"):
        bind(host, port)


def test_a_missing_extra_says_what_to_install(monkeypatch, capsys):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(errors, "import_module", missing)
    assert main(["serve"]) == 2
    assert "pip install 'di2pose[serve]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags", [["--token", ""], ["--token", " a"], ["--max-waiting", "0"], ["--max-price", "0"], ["--device", "abacus"]]
)
def test_wrong_flags_are_told(flags, capsys):
    assert main(["serve", "--port", "0", *flags]) == 2
    assert "error: " in capsys.readouterr().err


def test_it_answers_and_ctrl_c_ends_it():
    words = [sys.executable, "-m", "di2pose", "serve", "--port", "0", "--host", "0.0.0.0"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        lines = [process.stdout.readline() for _ in range(2)]
        port = re.search(r"http://localhost:(\d+)/", lines[1])[1]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/health", timeout=60) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0
    assert out == "ended\n"
    assert err.startswith("warning: everybody who can reach 0.0.0.0 may use this service. Give it a --token")
    assert "Traceback" not in err
