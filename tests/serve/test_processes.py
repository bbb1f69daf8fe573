"""Two worker processes behind one port: one service, whichever of them answers."""

import os
import re
import signal
import subprocess
import sys

from serve.running import QUICK, Running, until

SERVER = """
from di2pose.serve.command import serve
from di2pose.serve.operators import OperatorOptions

if __name__ == "__main__":
    serve(port=0, token="t", operator=OperatorOptions(metrics=True, workers=2))
"""
BOX = (20.0, 10.0, 200.0, 250.0)


def test_workers_are_one_service_and_end_together(photos, tmp_path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": str(tmp_path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", SERVER], env=environment, text=True, **pipes)
    try:
        while not (found := re.search(r"http://127.0.0.1:(\d+)/", line := process.stdout.readline())):
            assert line, process.stderr.read()
        service = Running(int(found[1]), None, headers={"Authorization": "Bearer t"})

        def counted(sample):
            """Worker -> value of a sample with that beginning."""
            text = service.get("/metrics").body.decode()
            return dict(re.findall(rf'^{re.escape(sample)}{{worker="(\d)"[^}}]*}} (\S+)$', text, re.MULTILINE))

        assert counted("di2pose_model_info") == {"0": "1", "1": "1"}
        states = service.get("/readyz").json["workers"]
        assert [(each["worker"], each["ready"]) for each in states] == [(0, True), (1, True)]
        path = service.job(photos[0], boxes=[BOX], **QUICK)  # the worker that has it is asked by the other
        jobs = rf'worker="(\d)",route="{re.escape("/v1/jobs/{job}")}"'

        def asked_of_both():
            assert service.get(path).status == 200
            return set(re.findall(jobs, service.get("/metrics").body.decode())) == {"0", "1"}

        until(asked_of_both)
        until(lambda: service.get(path).json["state"] == "done")
        whole = service.post("/v1/predict", photos[0], boxes=[BOX], **QUICK).body
        results = [service.get(f"{path}/result").body for _ in range(4)]
        events = [service.get(f"{path}/events").body for _ in range(4)]
        assert set(results) == {whole}
        assert len(set(events)) == 1
        assert events[0].startswith(b"event: done\n")
        assert service.get(path.replace("jobs/0-", "jobs/7-").replace("jobs/1-", "jobs/7-")).error == "not_found"
        service.headers = {}
        assert service.get(path).error == service.get("/metrics").error == "unauthorised"
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (-signal.SIGTERM, "", "")
        assert list(tmp_path.glob("di2pose-*")) == []
    finally:
        process.kill()
        process.communicate()
