"""`di2pose` with a table of three cells that `tiny` can train; the third fails. Run by test_ablate.py as a process.

Its runs are forked instead of started anew: the same commands without loading torch each time.
"""

import os
import signal
import sys
import time

from di2pose_experiments import runner
from di2pose_experiments.tables import TABLES, Cell, Table, di2pose

from di2pose.cli import main

CELLS = (
    Cell("batch 8", di2pose("--batch", "8")),
    Cell("batch 4", di2pose("--batch", "4"), steps=3),
    Cell("broken", di2pose("--share", "2")),
)
TABLES["batch"] = Table("Batches", CELLS)


class Forked:
    """What the runner uses of subprocess.Popen."""

    def __init__(self, run, out, launch, lock):
        log = runner._log(run, out)
        log.parent.mkdir(parents=True, exist_ok=True)
        self.code = None
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(file, 1)
            os.dup2(file, 2)
            try:
                code = main(list(run.words))
            except SystemExit as stopped:
                code = stopped.code
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code if isinstance(code, int) else int(code is not None))

    def wait(self, timeout=None):
        while self.code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self.code = os.waitstatus_to_exitcode(status) if pid else None
            except ChildProcessError:  # another thread has it
                break
            time.sleep(0.02)
        return self.code

    def send_signal(self, number):
        os.kill(self.pid, number)


if __name__ == "__main__":
    runner._start = Forked
    sys.exit(main())
