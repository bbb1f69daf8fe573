"""Safe by default: who may ask, what every answer carries, and what no request can reach; also behind a real nginx."""

import base64
import gzip
import json
import logging
import os
import shutil
import socket
import time
from dataclasses import asdict

import pytest
from serve.proxy import behind_nginx
from serve.running import BOUNDARY, QUICK, Running, form, running

from di2pose import assets
from di2pose.serve import media, server
from di2pose.serve.limits import Limits
from di2pose.serve.media import Examples
from di2pose.serve.schema import ROUTES

FORM = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize("path", ["/", "/docs", "/openapi.json", "/v1/health", "/v1/model", "/nowhere", "/static/x"])
def test_every_answer_has_its_safety_headers(service, path):
    headers = service.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "script-src" not in policy  # so that it is default-src: no inline script
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["permissions-policy"].startswith("camera=(self)")
    assert not [name for name in headers if name.startswith("access-control") or name == "server"]


def test_other_names_of_the_machine_are_refused(service):
    for name in ("evil.example", "127.0.0.1.evil.example:80", "[bad"):
        assert service.get("/v1/health", Host=name).error == "forbidden"
    for name in ("localhost", "127.0.0.1:1", "[::1]:8000", "192.168.7.7", "pose.example"):
        assert service.get("/v1/health", Host=name).status == 200


def test_pages_of_other_sites_may_not_ask(service, photos):
    own = f"http://127.0.0.1:{service.port}"
    for headers, status in (
        ({"Origin": "https://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": own, "Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": own}, 415),  # it may, but sends nothing that can be read
        # Behind a proxy that passes on another Host, the browser's own word counts.
        ({"Origin": "https://pose.example:8443", "Sec-Fetch-Site": "same-origin"}, 415),
    ):
        assert service.post("/v1/predict", b"no picture", headers=headers).status == status


def test_a_token_is_asked_of_all_but_health_and_the_page(model, photos):
    with running(model, token="open sesame") as service:
        assert service.get("/v1/model").status == 200
        for given in ({}, {"Authorization": "Bearer open"}, {"Authorization": "Basic open sesame"}):
            service.headers = given
            for path in ("/v1/model", "/v1/examples", "/v1/nowhere"):
                assert service.get(path).error == "unauthorised"
            answer = service.post("/v1/predict", photos[1], **QUICK)
            assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
            for host in ("127.0.0.1/a?", "127.0.0.1/a#", "localhost/v1/health?", "127.0.0.1\\"):  # no way round it
                assert service.get("/v1/model", **given, Host=host).status in (401, 403)
            assert service.get("/v1/health").status == service.get("/").status == service.get("/docs").status == 200


@pytest.mark.parametrize("path", ["/", "/pose/"])
def test_the_page_may_ask_through_the_documented_proxy(service, photos, tmp_path, path):
    """nginx with the block of docs/serve.md, on a port that is not 80 or 443."""
    with behind_nginx(tmp_path, service.port, path) as port:
        proxy = Running(port, service.worker, headers={"Host": f"pose.example:{port}"})
        assert proxy.get(path).body == service.get("/").body
        assert proxy.get(f"{path}static/app.js").body == service.get("/static/app.js").body
        for origin, status in ((f"http://pose.example:{port}", 200), ("http://evil.example", 403)):
            answer = proxy.post(f"{path}v1/predict", photos[1], headers={"Origin": origin}, **QUICK)
            assert answer.status == status
        if path != "/":
            moved = proxy.get(path.rstrip("/"))
            assert (moved.status, moved.headers["location"]) == (301, f"http://pose.example:{port}{path}")


def test_no_path_leads_out(service):
    for path in ("/static/..%2fapp.py", "/static/%2e%2e/app.py", "/static//etc/passwd", "/static/app.py",
                 "/v1/examples/..%2f..", "/%00"):  # fmt: skip
        assert service.get(path).error == "not_found"
    page = service.get("/static/index.html")
    assert page.headers["content-type"].startswith("text/html")
    assert page.body == service.get("/").body


def test_a_wrong_method_is_told_the_right_ones(service):
    allowed_at = {path: {"GET", "HEAD"} for path in ("/", "/static/app.js", "/docs", "/openapi.json")}
    for entry in ROUTES:
        path = entry.path.replace("{name}", "walker").replace("{format}", "json").replace("{job}", "0-a")
        allowed_at.setdefault(path, set()).update({"GET", "HEAD"} if entry.method == "GET" else {entry.method})
    for path, allowed in allowed_at.items():
        for method in {"DELETE", "OPTIONS", "POST", "GET"} - allowed:
            answer = service.ask(method, path)
            assert (answer.status, answer.error) == (405, "method")
            assert set(answer.headers["allow"].split(", ")) == allowed


def test_compressed_bodies_are_refused_as_such(service, photos):
    body = gzip.compress(json.dumps({"image": base64.b64encode(photos[1]).decode()}).encode())
    for coding in ("gzip", "identity, gzip"):
        answer = service.ask("POST", "/v1/predict", body, JSON | {"Content-Encoding": coding})
        assert (answer.status, answer.error) == (415, "unsupported_media")
        assert "uncompressed" in answer.json["error"]["message"]
        assert answer.headers["accept-encoding"] == "identity"
    assert service.post("/v1/predict", b"", headers={"Content-Encoding": "identity"}).status == 422


def test_base64_may_be_wrapped_and_a_data_uri(service, photos):
    one = base64.b64encode(photos[1]).decode()
    wrapped = base64.encodebytes(photos[1]).decode()
    for text, status in (
        (f"data:image/png;base64,{one}", 200), (f"DATA:;base64,{wrapped}".replace("\n", "\r\n"), 200),
        (f"data:image/png,{one}", 400), (f"{one[:40]}*{one[40:]}", 400), (one[:-1], 400),
        (f"image/png;base64,{one}", 400),
    ):  # fmt: skip
        answer = service.ask("POST", "/v1/predict", json.dumps({"image": text, **QUICK}), JSON)
        assert answer.status == status


def test_what_is_too_large_is_told_before_and_while_it_is_read(model, photos):
    with running(model, Limits(bytes=100_000, pixels=200 * 159, held_bytes=500_000)) as service:
        announced = service.ask("POST", "/v1/predict", form({"image": bytes(150_000)}, {}), FORM)
        assert (announced.status, announced.error) == (413, "too_large")
        parts = (bytes(10_000) for _ in range(40))
        streamed = service.ask("POST", "/v1/predict", parts, FORM)  # chunked: nobody said how much comes
        assert (streamed.status, streamed.error) == (413, "too_large")
        many = service.post("/v1/predict", photos[1])
        assert many.error == "too_large"
        assert "200x160" in many.json["error"]["message"]
        full = service.post("/v1/video", bytes(600_000), "video")
        assert (full.status, full.error) == (503, "busy")
        assert "retry-after" in full.headers
        assert service.get("/v1/health").status == 200


def test_slow_requests_are_given_up(model, monkeypatch):
    monkeypatch.setattr(server, "HEAD_S", 0.5)
    with running(model, Limits(upload_s=0.5)) as service:
        for sent in (b"", b"POST /v1/predict HTTP/1.1\r\nHost: loc"):  # no head in time: closed
            with socket.create_connection(("127.0.0.1", service.port), timeout=60) as connection:
                connection.sendall(sent)
                assert connection.recv(100) == b""
        with socket.create_connection(("127.0.0.1", service.port), timeout=60) as connection:
            for byte in b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n":  # byte by byte does not help
                time.sleep(0.05)
                try:
                    connection.sendall(bytes([byte]))
                except OSError:
                    break
            else:
                pytest.fail("the connection was kept")
        monkeypatch.setattr("di2pose.serve.uploads.DRAIN_S", 0.2)
        monkeypatch.setattr(server, "HEAD_S", 60.0)
        with socket.create_connection(("127.0.0.1", service.port), timeout=60) as connection:
            head = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            connection.sendall(head + b"Content-Length: 9\r\n\r\n{")
            assert connection.recv(100).startswith(b"HTTP/1.1 408")


def test_wrong_requests_are_told_what_is_wrong(service, photos):
    two = [[20, 10, 200, 150], [100, 20, 190, 150]]
    for fields, status, message in (
        ({"detector": "auto"}, 400, "no field 'detector' here"),
        ({"seed": 2**70}, 400, "'seed': Input should be"),
        ({"hypotheses": "8"}, 400, "'hypotheses': Input should be a valid integer, got '8'"),
        ({"hypotheses": 65}, 400, "'hypotheses': Input should be less than or equal to 64, got 65"),
        ({"pin": {"left_hand": [1, 2, 3]}}, 400, "or 'right_toe', got 'left_hand'"),
        ({"pin": {"nose": [0, -500, 0]}, "boxes": two}, 400, "give one box in 'boxes', got 2"),
        ({"pin": {"nose": [0, -500, 0]}}, 422, "one person in one picture, got 0 people"),
    ):
        answer = service.post("/v1/predict", photos[1], **QUICK | fields)
        assert answer.status == status
        assert message in answer.json["error"]["message"]
    assert service.ask("POST", "/v1/predict", b"x", {"Content-Type": "text/plain"}).error == "unsupported_media"
    assert service.ask("POST", "/v1/predict", b"x").error == "unsupported_media"
    assert service.post("/v1/predict", b"GIF, but not really").error == "unsupported_media"
    assert service.post("/v1/predict", b"").error == "unusable_picture"
    assert service.post("/v1/predict", photos[0], "picture").status == 400
    for body in (b"[]", b"{", b'{"image": 3}', b'{"image": "a,b"}', b'{"seed": 1}', b'{"image": "", "seed": NaN}'):
        assert service.ask("POST", "/v1/predict", body, JSON).error == "bad_request"


def test_nothing_of_a_request_is_logged(service, photos, capfd, caplog):
    caplog.set_level(0)
    service.post("/v1/predict?seed=987654321", photos[1], **QUICK)
    service.post("/v1/predict?seed=987654321", photos[0][:3000], **QUICK)
    out, err = capfd.readouterr()
    assert "987654321" not in out + err + caplog.text
    assert "predict" not in out + err + caplog.text


def test_the_model_tells_what_a_page_needs(service, model):
    about = service.get("/v1/model").json
    assert (about["name"], about["kind"], about["diffusion_steps"]) == ("small", "di2pose", 100)
    assert about["defaults"] == {"hypotheses": 8, "steps": model.config.sample_steps, "seed": 0, "max_people": 8}
    assert (len(about["joints"]), len(about["bones"])) == (21, 20)
    assert about["limits"] == asdict(Limits())
    assert about["formats"] == media.formats()


def test_examples_are_fetched_once_and_can_be_predicted(tmp_path, monkeypatch, service):
    downloads = {"extract": assets.extract("sports2d-demo", media.CLIP), "fetch": assets.fetch("astronaut")}
    cache = assets.cache_dir()
    for name, path in downloads.items():

        def copied(*_, path=path):
            copy = shutil.copytree if path.is_dir() else shutil.copy
            target = tmp_path / path.relative_to(cache)
            target.parent.mkdir(parents=True, exist_ok=True)
            return target if target.exists() else copy(path, target)

        monkeypatch.setattr(media, name, copied)
    monkeypatch.setenv("DI2POSE_CACHE", str(tmp_path))
    examples = Examples()
    examples.fetching.join(60)
    assert list(examples.all()) == ["walker", "walker-hidden", "astronaut"]
    again = Examples()
    assert again.fetching.ident is None  # never started
    assert again.all() == examples.all()
    monkeypatch.undo()
    shown = service.get("/v1/examples").json
    assert shown[2] == {"name": "astronaut", "title": "an astronaut, cut by the picture"}
    picture = service.get("/v1/examples/astronaut")
    assert picture.headers["content-type"] == "image/jpeg"
    assert len(service.post("/v1/predict", picture.body, **QUICK).json["frames"][0]["people"]) == 1
    assert service.get("/v1/examples/nobody").error == "not_found"


def test_offline_there_are_no_examples_and_that_is_logged(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("DI2POSE_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")
    for variable in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "0")
    with caplog.at_level(logging.WARNING):
        examples = Examples()
        examples.fetching.join(300)
    assert examples.all() == {}
    assert "the page has no examples, or not all of them: could not download asset 'sports2d-demo'" in caplog.text
