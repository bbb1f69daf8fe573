"""LiteRT runs the frozen networks of a default installation; threads that wait sleep."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import di2pose

ROOT = Path(__file__).parents[1]


def test_the_runtime_is_installed_with_the_package():
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert any(each.startswith("ai-edge-litert") for each in needed)


def run(code, **settings):
    """stdout and stderr of a new process, whose environment says nothing about waiting but for the given settings."""
    ours = ("OMP_WAIT_POLICY", "KMP_BLOCKTIME", "GOMP_SPINCOUNT")
    environment = {name: value for name, value in os.environ.items() if name not in ours} | settings
    environment["PYTHONPATH"] = str(Path(di2pose.__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    return done.stdout, done.stderr


SAY = "print(os.environ['OMP_WAIT_POLICY'], os.environ.get('KMP_BLOCKTIME'))"


def test_threads_that_wait_sleep_and_pytorch_is_imported_when_it_is_used():
    """ViTPose alone is PyTorch's own."""
    names = "blazepose, detect, efficientdet, encoder, merge, movenet, people_detector, region"
    code = f"import os, sys, di2pose; {SAY}; from di2pose import Di2Pose, Motion, Person, Result\n"
    code += f"from di2pose.image import {names}; print('torch' in sys.modules)"
    assert run(code)[0].split() == ["PASSIVE", "0", "False"]


@pytest.mark.skipif(sys.platform != "linux", reason="GNU's OpenMP is that of torch on Linux")
def test_torch_reads_it_before_its_threads_start():
    assert "GOMP_SPINCOUNT = '0'" in run("import di2pose, torch", OMP_DISPLAY_ENV="VERBOSE")[1]


def test_what_the_user_set_stays():
    code = f"import di2pose, os; {SAY}"
    assert run(code, OMP_WAIT_POLICY="active")[0].split() == ["active", "None"]
    assert run(code, KMP_BLOCKTIME="7")[0].split() == ["PASSIVE", "7"]
