"""What operators see and set: metrics, access log, readiness, other origins, proxies, compression, ETags."""

import gzip
import json
import re
import time

import pytest
from serve.running import QUICK, running, until

from di2pose.cli import main
from di2pose.errors import InputError
from di2pose.serve import worker
from di2pose.serve.access import client_address
from di2pose.serve.compression import ACCEPTED
from di2pose.serve.limits import Limits
from di2pose.serve.metrics import FAMILIES, Metrics, prometheus_text
from di2pose.serve.operators import OperatorOptions

SITE = "https://x.example"
ALL = OperatorOptions(True, True, True, allow_origin=(SITE,), trust_proxy=("127.0.0.0/8",))
SAMPLE = re.compile(r'(di2pose_\w+)\{((?:\w+="(?:[^"\\\n]|\\[\\"n])*",?)*)\} (\S+)')


@pytest.fixture(scope="module")
def watched(model):
    with running(model, Limits(bytes=400_000), token="t", operator=ALL) as service:
        yield service


def parsed(text):
    """Sample with labels -> value; the text is Prometheus' 0.0.4: HELP, TYPE, then samples of that family alone."""
    found, kinds = {}, {}
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("# HELP "):
            _, _, name, help_text = line.split(" ", 3)
            assert name not in kinds
            assert help_text
        elif line.startswith("# TYPE "):
            assert line.split(" ")[2] == name
            kinds[name] = line.split(" ")[3]
        else:
            sample, labels, value = SAMPLE.fullmatch(line).groups()
            ends = ("_bucket", "_sum", "_count") if kinds[name] == "histogram" else ("",)
            assert sample in {name + each for each in ends}
            key = (sample, *sorted(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels)))
            assert key not in found
            found[key] = float(value)
    assert set(kinds.values()) <= {"counter", "gauge", "histogram"}
    return found


def logged(capfd, count):
    """So many lines of the log, which come just after their answers."""
    text = ""

    def complete():
        nonlocal text
        text += capfd.readouterr().err
        return text.count("\n") >= count

    until(complete)
    assert "987654321" not in text
    return [json.loads(line) for line in text.splitlines()]


def test_metrics_count_requests_work_and_refusals(watched, photos):
    def total(name, /, **labels):
        wanted = set(labels.items())
        found = parsed(watched.get("/metrics").body.decode())
        return sum(value for (sample, *pairs), value in found.items() if sample == name and wanted <= set(pairs))

    def requests(status):
        return total("di2pose_requests_total", route="/v1/files/{format}", method="POST", status=status, worker="0")

    assert watched.get("/metrics").headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert watched.ask("GET", "/metrics", headers={"Authorization": ""}).error == "unauthorised"
    before = {name: total(f"di2pose_{name}_seconds_count", kind="photo") for name in ("wait", "work")}
    assert (requests("200"), requests("413")) == (0, 0)
    assert watched.post("/v1/files/csv", photos[0], **QUICK).status == 200
    assert watched.post("/v1/files/csv", bytes(500_000)).status == 413
    assert watched.post("/v1/files/csv", photos[0], hypotheses=64, steps=100).status == 413
    assert (requests("200"), requests("413")) == (1, 2)
    assert total("di2pose_rejected_total", reason="too_large") == 1
    assert total("di2pose_rejected_total", reason="too_dear") == 1
    for name, count in before.items():
        assert total(f"di2pose_{name}_seconds_count", kind="photo") == count + 1
        assert total(f"di2pose_{name}_seconds_bucket", kind="photo", le="+Inf") == count + 1
    assert total("di2pose_work_seconds_sum", kind="photo") > 0
    assert total("di2pose_resident_memory_bytes") > 1e8
    assert total("di2pose_model_info", name="small", kind="di2pose") == total("di2pose_ready") == 1
    with watched.held():
        assert total("di2pose_running_job_age_seconds") > 0
    assert total("di2pose_running_job_age_seconds") == total("di2pose_queue_length") == 0


def test_metrics_are_off_unless_asked_for(service):
    answer = service.get("/metrics")
    assert answer.error == "not_found"
    assert "--metrics" in answer.json["error"]["message"]


def test_histograms_are_cumulative_and_samples_of_workers_are_one_text():
    one, other = Metrics(), Metrics()
    for seconds in (0.005, 0.05, 0.06, 1e6):
        one.observe("wait_seconds", seconds, kind="photo")
    other.count("rejected_total", 2, reason='a"\\\n')
    text = prometheus_text({0: one.samples(), 1: [*one.samples(), *other.samples()]})
    found = parsed(text)
    for index in ("0", "1"):
        labels = ("kind", "photo"), ("worker", index)
        counts = [found["di2pose_wait_seconds_bucket", labels[0], ("le", le), labels[1]]
                  for le in ("0.01", "0.05", "0.1", "900.0", "+Inf")]  # fmt: skip
        assert counts == [1, 2, 3, 3, 4]
        assert found["di2pose_wait_seconds_sum", *labels] == pytest.approx(1000000.115, abs=0.001)
        assert found["di2pose_wait_seconds_count", *labels] == 4
    assert found["di2pose_rejected_total", ("reason", r'a\"\\\n'), ("worker", "1")] == 2
    assert text.count("# HELP ") == text.count("# TYPE ") == len(FAMILIES)


def test_a_line_a_request_without_what_was_asked(watched, photos, capfd):
    capfd.readouterr()
    answer = watched.post("/v1/predict?seed=987654321", photos[1], headers={"X-Request-Id": "a.B-9_"}, **QUICK)
    for wrong in ("a b", "a" * 65, "ü".encode(), '"'):
        assert re.fullmatch("[0-9a-f]{16}", watched.get("/v1/model", **{"X-Request-Id": wrong}).headers["x-request-id"])
    missing = watched.get("/v1/examples/987654321", **{"X-Request-Id": "b"})
    assert (missing.status, missing.headers["x-request-id"]) == (404, "b")
    assert watched.ask("GET", "/nowhere/987654321", headers={"Host": "x", "X-Request-Id": "c"}).status == 403
    first, *_, missed, refused = logged(capfd, 7)
    assert set(first) == {"time", "id", "method", "route", "status", "bytes", "ms", "client"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", first["time"])
    assert first["id"] == answer.headers["x-request-id"] == "a.B-9_"
    assert (first["method"], first["route"], first["status"]) == ("POST", "/v1/predict", 200)
    assert (first["bytes"], first["client"]) == (len(answer.body), "127.0.0.1")
    named = [(line["id"], line["route"], line["status"]) for line in (missed, refused)]
    assert named == [("b", "/v1/examples/{name}", 404), ("c", "other", 403)]


def test_no_log_and_no_id_unless_asked_for(service, capfd):
    assert "x-request-id" not in service.get("/v1/health", **{"X-Request-Id": "a"}).headers
    assert service.get("/v1/health").status == 200
    assert capfd.readouterr().err == ""


def test_live_and_ready(watched, service, monkeypatch):
    watched.headers, headers = {}, watched.headers
    assert watched.get("/livez").json["status"] == "alive"  # neither needs the token
    assert watched.get("/readyz").json["status"] == "ready"
    watched.headers = headers
    with service.held():
        one = service.get("/livez").json["workers"][0]["running"]
        assert (one["kind"], one["limit_s"]) == ("held", 60)
        assert 0 < one["age_s"] < service.get("/livez").json["workers"][0]["running"]["age_s"]
        monkeypatch.setattr(worker, "STUCK_S", -60.0)
        stuck, unready = service.get("/livez"), service.get("/readyz")
        assert (stuck.status, stuck.json["status"]) == (503, "stuck")
        assert (unready.status, unready.json["workers"][0]["problem"]) == (503, "the running job is stuck")
        monkeypatch.undo()
        assert service.get("/livez").status == service.get("/readyz").status == 200
        monkeypatch.setattr(service.worker, "most_waiting", 0)
        assert service.get("/readyz").json["workers"][0]["problem"] == "the queue is full"
        assert service.get("/livez").status == 200
        monkeypatch.undo()
        monkeypatch.setattr(service.worker, "_ends", time.monotonic() + 60)
        assert service.get("/readyz").json["workers"][0]["problem"] == "it ends"


def test_pages_of_allowed_origins_may_ask(watched, service, photos):
    ask = {"Access-Control-Request-Method": "POST", "Authorization": "", "Sec-Fetch-Site": "cross-site"}
    allowed = watched.ask("OPTIONS", "/v1/predict", headers=ask | {"Origin": SITE})
    assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (204, SITE)
    assert "Authorization" in allowed.headers["access-control-allow-headers"]
    assert "DELETE" in allowed.headers["access-control-allow-methods"]
    there = {"Origin": SITE, "Sec-Fetch-Site": "cross-site"}
    answer = watched.post("/v1/predict", photos[1], headers=there, **QUICK)
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, SITE)
    assert "Origin" in answer.headers["vary"]
    assert watched.post("/v1/predict", photos[1], headers=there | {"Authorization": ""}, **QUICK).status == 401
    for other, origin in ((watched, "https://y.example"), (watched, "null"), (watched, SITE + ":8"), (service, SITE)):
        for method, path, status_code in (("OPTIONS", "/v1/predict", 403), ("POST", "/v1/predict", 403),
                                          ("GET", "/v1/model", 200)):  # fmt: skip
            refused = other.ask(method, path, headers=ask | other.headers | {"Origin": origin})
            assert refused.status == status_code
            assert "access-control-allow-origin" not in refused.headers


def test_the_client_is_the_right_most_hop_that_is_no_proxy(watched, capfd):
    trusted = OperatorOptions(trust_proxy=("10.0.0.0/8", "::1")).networks()
    for forwarded, peer, client in (
        (["1.1.1.1, 2.2.2.2"], "10.0.0.1", "2.2.2.2"), (["1.1.1.1", "2.2.2.2, 10.1.1.1"], "::1", "2.2.2.2"),
        (["1.1.1.1"], "3.3.3.3", "3.3.3.3"), ([], "10.0.0.1", "10.0.0.1"), (["10.0.0.7"], "10.0.0.1", "10.0.0.7"),
        (["1.1.1.1, nonsense"], "10.0.0.1", "10.0.0.1"), (["2.2.2.2:99"], "::ffff:10.0.0.1", "2.2.2.2"),
        (["[2001:db8::1]:4"], "10.0.0.1", "2001:db8::1"),
    ):  # fmt: skip
        assert client_address(forwarded, peer, trusted) == client
    capfd.readouterr()
    watched.get("/v1/health", **{"X-Forwarded-For": "9.9.9.9, 127.0.0.5"})
    assert [line["client"] for line in logged(capfd, 1)] == ["9.9.9.9"]


def test_the_queue_counts_clients_behind_trusted_proxies(watched, service, photos):
    for other, client in ((watched, "8.8.8.8"), (service, "127.0.0.1")):
        jobs = []
        with other.noting_jobs(jobs.append):
            other.post("/v1/predict", photos[1], headers={"X-Forwarded-For": "8.8.8.8"}, **QUICK)
        assert [job.client for job in jobs] == [client]


def test_text_is_compressed_where_the_client_takes_it(service, photos):
    plain = service.get("/openapi.json")
    assert plain.headers["vary"] == "Accept-Encoding"
    small = service.get("/openapi.json", **{"Accept-Encoding": "br, gzip;q=0.5"})
    assert (small.headers["content-encoding"], small.headers["vary"]) == ("gzip", "Accept-Encoding")
    assert int(small.headers["content-length"]) == len(small.body) < len(plain.body) / 4
    assert gzip.decompress(small.body) == plain.body
    for path in ("/v1/health", "/v1/examples/astronaut"):  # too little; a JPEG
        assert "content-encoding" not in service.get(path, **{"Accept-Encoding": "gzip"}).headers
    for path, packed in (("npz", False), ("png", False), ("csv", True)):
        answer = service.post(f"/v1/files/{path}", photos[0], headers={"Accept-Encoding": "gzip"}, **QUICK)
        assert ("content-encoding" in answer.headers) == packed
    for coding in ("gzip;q=0, br", "xgzip"):
        assert "content-encoding" not in service.get("/openapi.json", **{"Accept-Encoding": coding}).headers
    for text, taken in (("gzip", True), ("deflate,gzip;q=1.0", True), ("*", True), ("gzip;q=0", False), ("", False),
                        ("gzip; q=0.000, br", False), ("xgzip", False), ("identity", False)):  # fmt: skip
        assert (ACCEPTED.search(text) is not None) == taken


@pytest.mark.parametrize(
    "path", ["/", "/static/app.js", "/docs", "/openapi.json", "/v1/model", "/v1/examples/astronaut"]
)
def test_what_the_client_has_is_not_sent_again(service, path):
    for coding in ("identity", "gzip"):
        answer = service.get(path, **{"Accept-Encoding": coding})
        assert answer.headers["cache-control"] == "private, no-cache"
        again = service.get(path, **{"Accept-Encoding": coding, "If-None-Match": f'"x", {answer.headers["etag"]}'})
        assert (again.status, again.body, again.headers["cache-control"]) == (304, b"", "private, no-cache")
        assert service.get(path, **{"If-None-Match": '"other"'}).status == 200
    assert "etag" not in service.get("/v1/health").headers
    assert service.get("/v1/health").headers["cache-control"] == "no-store"


def test_options_that_cannot_be(capsys):
    for options, message in (
        ({"trust_proxy": ("10.0.0.1/8",)}, "--trust-proxy"), ({"workers": 0}, "--workers must be 1"),
        ({"log_addresses": True}, "--access-log"), ({"allow_origin": ("*",)}, r"--allow-origin .* got '\*'"),
        ({"allow_origin": (f"{SITE}/",)}, "without a path"), ({"allow_origin": ("null",)}, "--allow-origin"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            OperatorOptions(**options).check()
    ALL.check()
    two = ["--allow-origin", SITE, "--allow-origin", "*"]
    assert main(["serve", "--port", "0", *two]) == 2
    assert "got '*'" in capsys.readouterr().err
