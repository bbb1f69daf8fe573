"""Safe by default: who may ask, what every answer carries, and what no request can reach."""

import base64
import gzip
import json
import socket
import time

import pytest
from serve.running import BOUNDARY, QUICK, form, running

from di2pose.serve import server
from di2pose.serve.limits import Limits
from di2pose.serve.schema import ROUTES

FORM = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}


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


def test_other_names_of_the_machine_are_refused(service, model):
    assert service.get("/v1/health", Host="evil.example").error == "forbidden"
    assert service.get("/v1/health", Host="127.0.0.1.evil.example:80").error == "forbidden"
    assert service.get("/v1/health", Host="[bad").error == "forbidden"
    for name in ("localhost", "127.0.0.1:1", "[::1]:8000", "192.168.7.7"):
        assert service.get("/v1/health", Host=name).status == 200
    with running(model, hosts=("pose.example",)) as named:
        assert named.get("/v1/health", Host="pose.example").status == 200


def test_pages_of_other_sites_may_not_ask(service, photos):
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}):
        assert service.post("/v1/predict", photos[4], headers=headers, **QUICK).error == "forbidden"
    own = f"http://127.0.0.1:{service.port}"
    assert service.post("/v1/predict", photos[4], headers={"Origin": own}, **QUICK).status == 200
    assert service.post("/v1/predict", photos[4], headers={"Origin": own, "Sec-Fetch-Site": "same-site"}).status == 403
    # Behind a proxy that passes on another Host, the browser's own word counts.
    here = {"Origin": "https://pose.example:8443", "Sec-Fetch-Site": "same-origin"}
    assert service.post("/v1/predict", photos[4], headers=here, **QUICK).status == 200


def test_a_token_is_asked_of_all_but_health_and_the_page(model, photos):
    with running(model, token="open sesame") as service:
        assert service.get("/v1/model").status == 200
        for given in ({}, {"Authorization": "Bearer open"}, {"Authorization": "Basic open sesame"}):
            service.headers = given
            for path in ("/v1/model", "/v1/examples", "/v1/nowhere"):
                assert service.get(path).error == "unauthorised"
            answer = service.post("/v1/predict", photos[4], **QUICK)
            assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
            for host in ("127.0.0.1/a?", "127.0.0.1/a#", "localhost/v1/health?", "127.0.0.1\\"):  # no way round it
                assert service.get("/v1/model", **given, Host=host).status in (401, 403)
            assert service.get("/v1/health").status == service.get("/").status == service.get("/docs").status == 200


@pytest.mark.parametrize(
    "path",
    ["/static/..%2fapp.py", "/static/%2e%2e/app.py", "/static//etc/passwd", "/static/app.py", "/v1/examples/..%2f..",
     "/%00"],
)  # fmt: skip
def test_no_path_leads_out(service, path):
    assert service.get(path).error == "not_found"
    page = service.get("/static/index.html")
    assert page.headers["content-type"].startswith("text/html")
    assert page.body == service.get("/").body


def test_a_wrong_method_is_told_the_right_ones(service):
    own = [("GET", "/"), ("GET", "/static/app.js"), ("GET", "/docs"), ("GET", "/openapi.json")]
    for right, path in own + [(entry.method, entry.path) for entry in ROUTES]:
        path = path.replace("{name}", "walker").replace("{format}", "json")
        allowed = {"POST"} if right == "POST" else {"GET", "HEAD"}
        for method in {"DELETE", "PUT", "OPTIONS", "POST", "GET"} - {right}:
            answer = service.ask(method, path)
            assert (answer.status, answer.error) == (405, "method")
            assert set(answer.headers["allow"].split(", ")) == allowed


def test_compressed_bodies_are_refused_as_such(service, photos):
    body = gzip.compress(json.dumps({"image": base64.b64encode(photos[4]).decode()}).encode())
    for coding in ("gzip", "br", "identity, gzip"):
        kind = {"Content-Type": "application/json", "Content-Encoding": coding}
        answer = service.ask("POST", "/v1/predict", body, kind)
        assert (answer.status, answer.error) == (415, "unsupported_media")
        assert "uncompressed" in answer.json["error"]["message"]
        assert answer.headers["accept-encoding"] == "identity"
    plain = service.post("/v1/predict", photos[4], headers={"Content-Encoding": "identity"}, **QUICK)
    assert plain.status == 200


def test_base64_may_be_wrapped_and_a_data_uri(service, photos):
    one = base64.b64encode(photos[4]).decode()
    wanted = service.post_json("/v1/predict", photos[4], **QUICK)
    wrapped = base64.encodebytes(photos[4]).decode()
    for text in (wrapped, wrapped.replace("\n", "\r\n"), f"data:image/png;base64,{one}", f"DATA:;base64,{wrapped}"):
        body = json.dumps({"image": text, **QUICK}).encode()
        answer = service.ask("POST", "/v1/predict", body, {"Content-Type": "application/json"})
        assert (answer.status, answer.body) == (200, wanted.body)
    for text in (f"data:image/png,{one}", f"{one[:40]}*{one[40:]}", one[:-1], f"image/png;base64,{one}"):
        answer = service.ask("POST", "/v1/predict", json.dumps({"image": text}), {"Content-Type": "application/json"})
        assert (answer.status, answer.error) == (400, "bad_request")


def test_pins_need_exactly_one_person(service, photos):
    pin, two = {"nose": [0, -500, 0]}, [[20, 10, 200, 150], [100, 20, 190, 150]]
    boxes = service.post("/v1/predict", photos[4], **QUICK, pin=pin, boxes=two)
    assert (boxes.status, boxes.error) == (400, "bad_request")
    assert "give one box in 'boxes', got 2" in boxes.json["error"]["message"]
    nobody = service.post("/v1/predict", photos[4], **QUICK, pin=pin)
    assert (nobody.status, nobody.error) == (422, "unusable_picture")
    assert "one person in one picture, got 0 people" in nobody.json["error"]["message"]


def test_what_is_too_large_is_told_before_and_while_it_is_read(model, photos):
    with running(model, Limits(bytes=100_000, pixels=200 * 159)) as service:
        announced = service.ask("POST", "/v1/predict", form({"image": bytes(150_000)}, {}), FORM)
        assert (announced.status, announced.error) == (413, "too_large")

        def parts():
            for _ in range(40):
                yield bytes(10_000)

        streamed = service.ask("POST", "/v1/predict", parts(), FORM)  # chunked: nobody said how much comes
        assert (streamed.status, streamed.error) == (413, "too_large")
        assert service.post("/v1/predict", photos[4]).error == "too_large"
        assert "200x160" in service.post("/v1/predict", photos[4]).json["error"]["message"]
    with running(model, Limits(held_bytes=300)) as service:
        full = service.post("/v1/predict", photos[4])
        assert (full.status, full.error) == (503, "busy")
        assert "retry-after" in full.headers
        assert service.get("/v1/health").status == 200


def test_slow_requests_are_given_up(model, monkeypatch):
    monkeypatch.setattr(server, "HEAD_S", 0.5)
    with running(model, Limits(upload_s=0.5)) as service:
        for sent in (b"", b"POST /v1/predict HTTP/1.1\r\nHost: loc"):  # no head in time: closed
            with socket.create_connection(("127.0.0.1", service.port), timeout=20) as connection:
                connection.sendall(sent)
                assert connection.recv(100) == b""
        with socket.create_connection(("127.0.0.1", service.port), timeout=20) as connection:
            for byte in b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n":  # byte by byte does not help
                time.sleep(0.05)
                try:
                    connection.sendall(bytes([byte]))
                except OSError:
                    break
            else:
                pytest.fail("the connection was kept")
        head = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        monkeypatch.setattr("di2pose.serve.uploads.DRAIN_S", 0.2)
        with socket.create_connection(("127.0.0.1", service.port), timeout=20) as connection:
            connection.sendall(head + b"Content-Length: 9\r\n\r\n{")
            assert connection.recv(100).startswith(b"HTTP/1.1 408")


def test_wrong_requests_are_told_what_is_wrong(service, photos):
    def said(answer):
        return answer.status, answer.json["error"]["message"]

    assert said(service.post("/v1/predict", photos[0], detector="auto"))[1].startswith("no field 'detector'")
    assert service.post("/v1/predict", photos[4], **QUICK, seed=2**70).error == "bad_request"
    wanted = "'hypotheses' must be a whole number from 1 to 64, got '8'"
    assert said(service.post("/v1/predict", photos[0], hypotheses="8")) == (400, wanted)
    status, message = said(service.post("/v1/predict", photos[0], pin={"left_hand": [1, 2, 3]}))
    assert (status, "left_wrist" in message) == (400, True)
    assert service.ask("POST", "/v1/predict", b"x", {"Content-Type": "text/plain"}).error == "unsupported_media"
    assert service.ask("POST", "/v1/predict", b"x").error == "unsupported_media"
    assert service.post("/v1/predict", b"GIF, but not really").error == "unsupported_media"
    assert service.post("/v1/predict", b"").error == "unusable_picture"
    assert service.post("/v1/predict", photos[0], "picture").status == 400
    for body in (b"[]", b"{", b'{"image": 3}', b'{"image": "a,b"}', b'{"seed": 1}', b'{"image": "", "seed": NaN}'):
        assert service.ask("POST", "/v1/predict", body, {"Content-Type": "application/json"}).status in (400, 422)


def test_nothing_of_a_request_is_logged(service, photos, capfd, caplog):
    caplog.set_level(0)
    service.post("/v1/predict?name=secret-name", photos[4], **QUICK)
    service.post("/v1/predict?name=secret-name", photos[0][:3000], **QUICK)
    out, err = capfd.readouterr()
    assert "secret" not in out + err + caplog.text
    assert "predict" not in out + err + caplog.text
