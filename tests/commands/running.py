"""The real command in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import di2pose

ENVIRONMENT = {"PYTHONPATH": str(Path(di2pose.__file__).parents[1]), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": ""}


def started(*words, **options):
    """`di2pose predict WORDS`, with its output in pipes."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    line = [sys.executable, "-m", "di2pose", "predict", *map(str, words)]
    return subprocess.Popen(line, env=os.environ | ENVIRONMENT, **pipes | options)
