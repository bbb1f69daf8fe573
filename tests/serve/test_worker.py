"""The queue: what a request may cost, whose turn it is, when work stops, and how the service ends."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from serve.running import BOUNDARY, QUICK, Running, form, opened, running, work_for_ever
from video.films import write_film

from di2pose.diffusion import fast_sampler
from di2pose.serve import worker as worker_module
from di2pose.serve.limits import ApiError, Limits
from di2pose.serve.worker import ExclusiveJob, PhotoJob

BOX = (20.0, 10.0, 200.0, 250.0)
DEFAULTS = {"hypotheses": 8, "steps": None, "seed": 0, "max_people": 16}
DEAR = {"hypotheses": 64, "steps": 100}


@pytest.fixture(scope="module")
def film(tmp_path_factory, astronaut):
    """The bytes of three frames."""
    frames = [np.asarray(astronaut.resize((128, 128)).crop((k, 0, 120 + k, 120))) for k in range(3)]
    return write_film(tmp_path_factory.mktemp("film") / "a.mp4", frames, rate=10).read_bytes()


@pytest.fixture
def steps(monkeypatch):
    """Diffusion steps: how many were begun, and a function that each one calls with its number."""
    jump, seen = fast_sampler.jump, SimpleNamespace(count=0, at=lambda number: None)

    def noted(*arguments):
        seen.count += 1
        seen.at(seen.count)
        return jump(*arguments)

    monkeypatch.setattr(fast_sampler, "jump", noted)
    return seen


def photo_job(content, client="", price=1, **options):
    whole = QUICK | {"seed": 0, "max_people": 1, "boxes": [BOX]} | options
    return PhotoJob(60, content, 256 * 256, whole, price, client)


def in_order(jobs):
    """The names of the jobs, in the order in which they are answered; complete when all are."""
    done = []
    for name, job in jobs.items():
        job.future.add_done_callback(lambda _, name=name: done.append(name))
    return done


# The price


def test_a_request_that_costs_too_much_is_refused_with_the_limit(service, photos):
    boxes = [[20 + k, 10, 200, 250] for k in range(16)]
    for route in ("/v1/predict", "/v1/files/csv", "/v1/reveal", "/v1/lab"):
        at = {"at": BOX} if route == "/v1/lab" else {}
        answer = service.post(route, photos[0], boxes=boxes, **DEAR, **at)
        assert (answer.status, answer.error) == (413, "too_large")
        message = answer.json["error"]["message"]
        assert message.startswith("boxes x hypotheses x steps may be 10000 at most, 16 x 64 x 100 = 102400 came: ask")
    grid = service.post("/v1/lab", photos[0], boxes=boxes[:1], grid=12, hypotheses=64)
    assert "places x hypotheses x steps may be 10000 at most, 144 x 64 x 4 = 36864" in grid.json["error"]["message"]
    assert service.worker.waiting == 0


def test_the_limit_is_an_option_of_the_service_and_counts_each_factor(model, photos, film):
    with running(model, Limits(price=48, video_price=24)) as service:
        one = QUICK | {"boxes": [BOX]}
        assert service.post("/v1/predict", photos[4], **one | {"hypotheses": 4, "steps": 12}).status == 200
        assert service.post("/v1/predict", photos[4], **one | {"hypotheses": 4, "steps": 13}).error == "too_large"
        assert service.post("/v1/predict", photos[4], hypotheses=4, steps=2, max_people=2).status == 200
        found = service.post("/v1/predict", photos[4], hypotheses=4, steps=2, max_people=3)
        assert "(max_people + 4) x hypotheses x steps may be 48 at most, 7 x 4 x 2" in found.json["error"]["message"]
        pinned = one | {"pin": {"left_wrist": [200, 100, -100]}, "hypotheses": 4}
        assert "x 8 with pins may be 48" in service.post("/v1/predict", photos[0], **pinned).json["error"]["message"]
        cheap = {"hypotheses": 2, "steps": 2}
        assert service.post("/v1/video", film, "video", **cheap, max_people=2).status == 200
        video = service.post("/v1/video", film, "video", **cheap, max_people=3).json["error"]["message"]
        assert "frames x max_people x hypotheses x steps may be 24 at most, 3 x 3 x 2 x 2 = 36" in video


def test_the_limit_stands_in_the_api_description(model):
    with running(model, Limits(price=4321, video_price=87654)) as service:
        paths = service.get("/openapi.json").json["paths"]
        for route in ("/v1/predict", "/v1/video", "/v1/files/{format}", "/v1/reveal", "/v1/lab"):
            schema = paths[route]["post"]["requestBody"]["content"]["application/json"]["schema"]
            text = schema["properties"]["hypotheses"]["description"]
            assert "people x hypotheses x steps may be 4321 at most" in text
            assert "frames x max_people x hypotheses x steps 87654" in text
        page = service.get("/docs").body.decode()
        assert "people x hypotheses x steps may be 4321 at most" in page
        assert "<td>price</td><td>4321</td>" in page
        limits = service.get("/v1/model").json["limits"]
        assert (limits["price"], limits["video_price"]) == (4321, 87654)


def test_what_the_page_asks_for_by_default_is_far_below_the_limit():
    limits = Limits()
    reveal = DEFAULTS | {"steps": 24, "boxes": [BOX]}
    requests = [
        (DEFAULTS, 0),
        (reveal, 0),
        (DEFAULTS | {"boxes": [BOX], "pin": {"nose": (0, 0, 0)}}, 0),
        (DEFAULTS, 36),
    ]
    assert max(limits.check_price(options, 4, places) for options, places in requests) < limits.price / 8
    longest = round(limits.video_seconds * limits.video_rate)
    assert limits.check_price(DEFAULTS | {"max_people": 8}, 4, frames=longest) < limits.video_price / 2


# Work that stops


def test_a_request_whose_client_has_gone_stops_within_a_step(service, photos, steps):
    jobs = []
    reached, go = threading.Event(), threading.Event()

    def at(number):
        if number == 3:
            reached.set()
            go.wait(60)

    steps.at = at
    with service.noting("submit", jobs.append):
        fields = {"boxes": [BOX], "hypotheses": 1, "steps": 50, "second_look": False}
        _ask_and_leave(service, photos[0], fields, reached)
        until(lambda: jobs[0].gone)
    go.set()
    assert jobs[0].future.result(60).message == "the client has gone"
    assert steps.count == 3
    assert service.post("/v1/predict", photos[4], **QUICK).status == 200


def _ask_and_leave(service, content, fields, reached):
    body = form({"image": content}, fields)
    head = f"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
    head += f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", service.port)) as connection:
        connection.sendall(head.encode() + body)
        assert reached.wait(60)


def until(true):
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_batch_stops_when_the_last_of_its_clients_has_gone(service, photos, steps):
    a, b = photo_job(photos[0], "a", steps=6), photo_job(photos[1], "b", steps=6)
    steps.at = lambda number: [service.worker.abandon(job) for job, at in ((a, 2), (b, 4)) if number == at]
    with service.held():
        service.worker.submit(a)
        service.worker.submit(b)
    assert b.future.result(60).status == a.future.result(60).status == 503
    assert steps.count == 4


def test_time_that_is_up_stops_the_work_within_a_step(service, photos, steps):
    job = photo_job(photos[0], steps=50)
    steps.at = lambda number: setattr(job, "work_s", 50.0 if number < 3 else 0.0)
    service.worker.submit(job)
    refusal = job.future.result(60)
    assert (refusal.status, steps.count) == (504, 3)


# Whose turn it is


def test_clients_have_one_turn_after_the_other(service, photos):
    """However many requests one of them has sent before."""
    jobs = {f"a{k}": photo_job(photos[4], "a", seed=k) for k in range(4)}
    jobs |= {f"b{k}": photo_job(photos[4], "b", seed=10 + k) for k in range(2)}
    jobs |= {"c0": photo_job(photos[4], "c", seed=20)}
    done = in_order(jobs)
    with service.held():
        for job in jobs.values():
            service.worker.submit(job)
    for job in jobs.values():
        job.future.result(60)
    assert done == ["a0", "b0", "c0", "a1", "b1", "a2", "a3"]


def test_a_batch_has_one_photo_of_each_client_while_several_wait(service, photos):
    jobs = {f"a{k}": photo_job(photos[4], "a") for k in range(4)} | {"b0": photo_job(photos[4], "b")}
    jobs |= {"dear": photo_job(photos[4], "c", price=2040), "dear too": photo_job(photos[4], "d", price=2040)}
    batches = []

    def note(opened):
        batches.append([name for name, job in jobs.items() if job in [each for each, _ in opened]])

    with service.noting("_predict_opened", note):
        with service.held():
            for job in jobs.values():
                service.worker.submit(job)
        for job in jobs.values():
            job.future.result(60)
    assert batches == [["a0", "b0", "dear"], ["a1", "dear too"], ["a2", "a3"]]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.x.x.x")
def test_no_client_fills_the_queue(model, photos):
    with running(model, waiting=4, a_client=2) as service, ThreadPoolExecutor(4) as pool, service.held():
        asked = [pool.submit(service.post, "/v1/predict", photos[4], **QUICK) for _ in range(2)]
        service.wait_for(2)
        third = service.post("/v1/predict", photos[4], **QUICK)
        assert (third.status, third.error) == (503, "busy")
        assert "2 requests of this client wait, 2 may" in third.json["error"]["message"]
        assert int(third.headers["retry-after"]) >= 1
        asked += [pool.submit(service.post, "/v1/predict", photos[4], client="127.0.0.2", **QUICK)]
        service.wait_for(3)
    assert [one.result().status for one in asked] == [200, 200, 200]


def test_a_video_gives_way_to_a_reveal_and_a_lab(service, film, photos, monkeypatch):
    """Of the same client: each of the three has waited from the beginning."""
    monkeypatch.setattr(worker_module, "SLICE_S", float("inf"))  # turns do not depend on the machine's speed
    done = []

    def ask(name, *arguments, **fields):
        return service.post(f"/v1/{name}", *arguments, hypotheses=1, steps=1, **fields).status

    def note(job):
        job.future.add_done_callback(lambda _: done.append(job.kind))

    with service.noting("submit", note), ThreadPoolExecutor(3) as pool, service.held():
        asked = [pool.submit(ask, "video", film, "video")]
        service.wait_for(1)
        asked += [pool.submit(ask, "reveal", photos[0], boxes=[BOX])]
        service.wait_for(2)
        asked += [pool.submit(ask, "lab", photos[0], boxes=[BOX], grid=2, second_look=False)]
        service.wait_for(3)
    assert [one.result(60) for one in asked] == [200] * 3
    assert done[0] == ""  # `held`
    assert done[3] == "video"


def frames_of(name, turns, count=3):
    """A long job that notes its frames."""

    def run(model, between):
        for k in range(count):
            between()
            turns.append(f"{name}{k}")

    return run


def test_long_jobs_and_photos_take_turns(service, photos):
    """Two videos and a client with many photos: a frame, a frame, a photo. The first client's second video waits for
    the end of its first."""
    turns = []
    jobs = {name: ExclusiveJob(60, 60, frames_of(name, turns), name[0], "video") for name in ("a", "b", "a'")}
    for k in range(4):
        jobs[f"photo {k}"] = photo_job(photos[4], "c", seed=k)
        jobs[f"photo {k}"].future.add_done_callback(lambda _: turns.append("photo"))
    with service.held():
        for job in jobs.values():
            service.worker.submit(job)
    for job in jobs.values():
        job.future.result(60)
    assert turns == ["photo", "a0", "b0", "photo", "a1", "b1", "photo", "a2", "b2", "photo", "a'0", "a'1", "a'2"]


def test_a_turn_that_lasts_ends_at_a_step(service, photos, steps, monkeypatch):
    """Frames of many people, hypotheses and steps are long."""
    monkeypatch.setattr(worker_module, "SLICE_S", 0.0)
    photo, other, answered = opened(photos[0]).convert("RGB"), photo_job(photos[4], "b"), []
    steps.at = lambda number: service.worker.submit(other) if number == 1 else None

    def run(model, between):
        result = model(photo, boxes=[BOX], hypotheses=1, steps=3, second_look=False)
        answered.append(other.future.done())
        return result

    job = ExclusiveJob(60, 60, run, "a")
    service.worker.submit(job)
    assert len(job.future.result(60).people) == 1
    assert answered == [True]


def test_the_clock_of_a_long_job_stands_still_while_others_work(service, monkeypatch):
    clock = SimpleNamespace(now=time.monotonic())
    monkeypatch.setattr(worker_module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    left = []

    def run(model, between):
        clock.now += 4
        left.append(job.left_s)
        between()  # `other` works for an hour
        left.append(job.left_s)
        clock.now += 7
        between()
        left.append("never")

    def hour(model, between):
        clock.now += 3600
        left.append(job.left_s)

    job = ExclusiveJob(10_000, 10, run, "a", "video")
    other = ExclusiveJob(10_000, 5_000, hour, "b", "lab")
    with service.held():
        service.worker.submit(job)
        service.worker.submit(other)
    assert job.future.result(60).status == 504
    assert other.future.result(60) is None
    assert left == pytest.approx([6, 6, 6])


# The end


SERVER = """
import sys
from di2pose.diffusion import fast_sampler
from di2pose.serve import command, server

server.GRACE_S = 60
jump, first = fast_sampler.jump, [True]

def held(*arguments):
    if first.pop() if first else False:
        print("begun", flush=True)
        sys.stdin.readline()
    return jump(*arguments)

fast_sampler.jump = held
command.serve(port=0)
"""


def test_sigterm_refuses_what_waits_at_once_and_finishes_what_has_begun(photos):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        while not (found := re.search(r"http://[^:]+:(\d+)/", line := process.stdout.readline())):
            assert line, "it did not start"
        service = Running(int(found[1]), None)
        with ThreadPoolExecutor(3) as pool:
            fields = QUICK | {"boxes": [BOX]}
            first = pool.submit(service.post, "/v1/predict", photos[0], **fields)
            assert process.stdout.readline() == "begun\n"
            others = [pool.submit(service.post, "/v1/predict", photos[4], **fields) for _ in range(2)]
            until(lambda: service.get("/v1/health").json["waiting"] == 2)
            process.send_signal(signal.SIGTERM)
            for other in others:
                answer = other.result(60)
                assert (answer.status, answer.error) == (503, "busy")
                assert "the service ends" in answer.json["error"]["message"]
            assert not first.done()
            process.stdin.write("go on\n")
            process.stdin.flush()
            answer = first.result(60)
        assert answer.status == 200
        assert len(answer.json["frames"][0]["people"]) == 1
        assert process.wait(60) == -signal.SIGTERM
    finally:
        process.kill()
        process.communicate()


def test_a_service_that_ends_refuses_what_comes_later_and_what_needs_too_long(model):
    with running(model) as service:
        job = ExclusiveJob(60, 60, work_for_ever)
        service.worker.submit(job)
        until(lambda: job.begun)
        service.worker.end(0.2)
        with pytest.raises(ApiError, match="the service ends"):
            service.worker.submit(ExclusiveJob(60, 60, work_for_ever))
        assert job.future.result(60).status == 503
