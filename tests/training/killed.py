"""`di2pose` with a kill -9 in the middle of writing checkpoint number KILL_AT: run by test_resume.py."""

import os
import signal
import sys

from di2pose.cli import main
from di2pose.training import state

write, count = state.save_file, 0


def save_file(tensors, path, metadata):
    global count
    count += 1
    write(tensors, path, metadata)
    if count == int(os.environ["KILL_AT"]):
        with open(path, "r+b") as file:
            file.truncate(1000)
        os.kill(os.getpid(), signal.SIGKILL)


state.save_file = save_file
sys.exit(main())
