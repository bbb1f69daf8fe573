"""LiteRT runs the frozen networks of a default installation; threads that wait sleep."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import di2pose

ROOT = Path(__file__).parents[1]


def test_encoders_and_detectors_import_no_pytorch():
    """ViTPose is PyTorch's own."""
    names = "blazepose, detect, efficientdet, encoder, merge, movenet, people_detector, region"
    assert run(f"import sys; from di2pose.image import {names}; print('torch' in sys.modules)")[0].split() == ["False"]


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


def test_threads_that_wait_sleep():
    code = "import di2pose, os; print(os.environ['OMP_WAIT_POLICY'], os.environ['KMP_BLOCKTIME'])"
    assert run(code)[0].split() == ["PASSIVE", "0"]


@pytest.mark.skipif(sys.platform != "linux", reason="GNU's OpenMP is that of torch on Linux")
def test_torch_reads_it_before_its_threads_start():
    assert "GOMP_SPINCOUNT = '0'" in run("from di2pose import network", OMP_DISPLAY_ENV="VERBOSE")[1]


def test_what_the_user_set_stays():
    code = "import di2pose, os; print(os.environ['OMP_WAIT_POLICY'], os.environ.get('KMP_BLOCKTIME'))"
    assert run(code, OMP_WAIT_POLICY="active")[0].split() == ["active", "None"]
    assert run(code, KMP_BLOCKTIME="7")[0].split() == ["PASSIVE", "7"]
