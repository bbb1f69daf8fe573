"""The queue: whose turn it is, when work stops, how the service ends; and what a request may cost."""

import asyncio
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from serve.running import BOUNDARY, QUICK, form, running, until
from video.films import write_film

from di2pose.diffusion import fast_sampler
from di2pose.interruption import check
from di2pose.serve import worker as worker_module
from di2pose.serve.limits import ApiError, Limits
from di2pose.serve.schema import check_price
from di2pose.serve.worker import PHOTO, Job, Worker

BOX = (20.0, 10.0, 200.0, 250.0)
DEFAULTS = {"hypotheses": 8, "steps": None, "seed": 0, "max_people": 16}


@pytest.fixture(scope="module")
def worker():
    worker = Worker(64, 64)
    yield worker
    worker.close()


@pytest.fixture(autouse=True)
def whole_turns(monkeypatch):
    """Turns do not depend on the machine's speed."""
    monkeypatch.setattr(worker_module, "SLICE_S", float("inf"))


def answers(worker, *jobs):
    """What comes of (job, work) that wait together: answers and errors."""

    async def run():
        end = threading.Event()
        held = asyncio.ensure_future(worker.run(Job("", "held", 60, 60), lambda between: end.wait(60)))
        await asyncio.sleep(0)
        tasks = [asyncio.ensure_future(worker.run(job, work)) for job, work in jobs]
        await asyncio.sleep(0)
        assert worker.waiting == len(jobs)
        end.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert await held
        assert (worker.waiting, worker.busy) == (0, False)
        return found

    return asyncio.run(run())


# The price


def test_a_request_that_costs_too_much_is_refused_with_the_limit(service, photos):
    boxes = [[20 + k, 10, 200, 250] for k in range(16)]
    for route in ("/v1/predict", "/v1/files/csv", "/v1/reveal", "/v1/lab"):
        at = {"at": BOX} if route == "/v1/lab" else {}
        answer = service.post(route, photos[0], boxes=boxes, hypotheses=64, steps=100, **at)
        assert (answer.status, answer.error) == (413, "too_large")
        message = answer.json["error"]["message"]
        assert message.startswith("boxes x hypotheses x steps may be 10000 at most, 16 x 64 x 100 = 102400 came: ask")


def test_the_price_counts_each_factor():
    limits = Limits(price=48)
    assert check_price(limits, {"hypotheses": 4, "steps": None, "boxes": [BOX]}, own_steps=12) == 48
    assert check_price(limits, {"hypotheses": 4, "steps": 2, "max_people": 2}, own_steps=12) == 48
    pinned = {"hypotheses": 4, "steps": 2, "boxes": [BOX], "pin": {"left_wrist": (200, 100, -100)}}
    for options, places, message in (
        ({"hypotheses": 4, "steps": 2, "max_people": 3}, 0, r"\(max_people \+ 4\) x hypotheses x steps may be 48"),
        (pinned, 0, "boxes x hypotheses x steps x 8 with pins may be 48 at most, 1 x 4 x 2 x 8 = 64 came"),
        ({"hypotheses": 4, "steps": None}, 4, "places x hypotheses x steps may be 48 at most, 4 x 4 x 12 = 192"),
    ):
        with pytest.raises(ApiError, match=message):
            check_price(limits, options, 12, places)


def test_what_the_page_asks_for_by_default_is_far_below_the_limit():
    limits = Limits()
    one = DEFAULTS | {"boxes": [BOX]}
    requests = [(DEFAULTS, 0), (one | {"steps": 24}, 0), (one | {"pin": {"nose": (0, 0, 0)}}, 0), (DEFAULTS, 36)]
    assert max(check_price(limits, options, 4, places) for options, places in requests) < limits.price / 8
    longest = round(limits.video_seconds * limits.video_rate)
    assert check_price(limits, DEFAULTS | {"max_people": 8}, 4, frames=longest) < limits.video_price / 2


# Work that stops


@contextmanager
def connected(service, photo, **fields):
    """A client that has asked, and goes away at the end of the block."""
    body = form({"image": photo}, fields)
    head = f"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
    head += f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", service.port)) as connection:
        connection.sendall(head.encode() + body)
        yield


def test_a_request_whose_client_has_gone_leaves_the_queue_or_stops_within_a_step(service, photos, monkeypatch):
    with service.held():
        with connected(service, photos[0]):
            service.wait_for(1)
        service.wait_for(0)
    jump, steps, jobs = fast_sampler.jump, [], []
    reached, go = threading.Event(), threading.Event()

    def held(*arguments):
        steps.append(1)
        if len(steps) == 3:
            reached.set()
            go.wait(60)
        return jump(*arguments)

    monkeypatch.setattr(fast_sampler, "jump", held)
    with service.noting_jobs(jobs.append):
        with connected(service, photos[0], boxes=[BOX], hypotheses=1, steps=50, second_look=False):
            assert reached.wait(60)
        until(lambda: jobs[0].gone)
    go.set()
    until(lambda: not service.worker.busy)
    assert len(steps) == 3
    assert service.post("/v1/predict", photos[1], **QUICK).status == 200


def test_time_that_is_up_stops_the_work_within_a_step(worker):
    job, steps = Job("", PHOTO, 60, 60), []

    def work(between):
        for step in range(50):
            check()
            steps.append(step)
            job.until = 0.0 if step == 2 else job.until

    (error,) = answers(worker, (job, work))
    assert (error.status_code, len(steps)) == (504, 3)


def test_a_request_that_waits_too_long_is_given_up(service):
    with service.held():
        late = service.submit(Job("a", PHOTO, 0.1, 60), photo("never", []))
        assert late.exception(60).status_code == 503
        assert service.worker.waiting == 0


def test_a_bug_is_an_answer_and_the_next_job_is_answered(worker, caplog):
    bug, good = answers(
        worker, (Job("a", PHOTO, 60, 60), lambda between: 1 / 0), (Job("a", PHOTO, 60, 60), lambda between: "good")
    )
    assert (bug.status_code, good) == (500, "good")
    assert "a request failed in the program" in caplog.text


# Whose turn it is


def frames(name, turns, count=3):
    """Work that notes its frames."""

    def work(between):
        for k in range(count):
            between()
            turns.append(f"{name}{k}")

    return work


def photo(name, turns):
    return lambda between: turns.append(name)


def test_clients_have_one_turn_after_the_other(worker):
    """However many requests one of them has sent before."""
    turns, names = [], ["a0", "a1", "a2", "a3", "b0", "b1", "c0"]
    answers(worker, *[(Job(name[0], PHOTO, 60, 60), photo(name, turns)) for name in names])
    assert turns == ["a0", "b0", "c0", "a1", "b1", "a2", "a3"]


def test_long_jobs_and_photos_take_turns(worker):
    """Two videos and a client with many photos: a frame, a frame, a photo. The first client's second video waits for
    the end of its first; so does a third client's, for no more than two of a kind have begun."""
    turns = []
    videos = [(Job(name[0], "video", 60, 60), frames(name, turns)) for name in ("a", "b", "a'")]
    answers(worker, *videos, *[(Job("c", PHOTO, 60, 60), photo("photo", turns)) for _ in range(4)])
    assert turns == ["photo", "a0", "b0", "photo", "a1", "b1", "photo", "a2", "b2", "photo", "a'0", "a'1", "a'2"]
    turns.clear()
    answers(worker, *[(Job(name, "video", 60, 60), frames(name, turns, 2)) for name in "abc"])
    assert turns == ["a0", "b0", "a1", "b1", "c0", "c1"]


def test_a_turn_that_lasts_ends_at_a_step(worker, monkeypatch):
    """Frames, and photos, of many people, hypotheses and steps are long."""
    monkeypatch.setattr(worker_module, "SLICE_S", 0.0)
    turns = []

    def long(between):
        for step in range(3):
            check()
            turns.append(step)

    answers(worker, (Job("a", PHOTO, 60, 60), long), (Job("b", PHOTO, 60, 60), photo("other", turns)))
    assert turns == ["other", 0, 1, 2]


def test_the_clock_of_a_long_job_stands_still_while_others_work(worker, monkeypatch):
    clock = SimpleNamespace(now=time.monotonic())
    monkeypatch.setattr(worker_module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    left = []

    def work(between):
        between()
        clock.now += 4
        left.append(job.until - clock.now)
        between()  # `other` works for an hour
        left.append(job.until - clock.now)
        assert job.worked_s() == pytest.approx(4)
        clock.now += 7
        between()
        left.append("never")

    def hour(between):
        between()
        clock.now += 3600

    job, other = Job("a", "video", 10_000, 10), Job("b", "lab", 10_000, 5_000)
    late, done = answers(worker, (job, work), (other, hour))
    assert (late.status_code, done) == (504, None)
    assert left == pytest.approx([6, 6])


def test_a_video_gives_way_to_a_reveal_and_a_lab(service, astronaut, photos, tmp_path):
    """Of the same client: each of the three has waited from the beginning."""
    pictures = [np.asarray(astronaut.resize((128, 128)).crop((k, 0, 120 + k, 120))) for k in range(3)]
    film = write_film(tmp_path / "a.mp4", pictures, rate=10).read_bytes()
    done = []

    def ask(name, *arguments, **fields):
        answer = service.post(f"/v1/{name}", *arguments, hypotheses=1, steps=1, **fields)
        done.append(name)
        return answer.status

    with ThreadPoolExecutor(3) as pool, service.held():
        asked = [pool.submit(ask, "video", film, "video")]
        service.wait_for(1)
        asked += [pool.submit(ask, "reveal", photos[0], boxes=[BOX], second_look=False)]
        service.wait_for(2)
        asked += [pool.submit(ask, "lab", photos[0], boxes=[BOX], grid=2, second_look=False)]
        service.wait_for(3)
    assert [one.result(60) for one in asked] == [200] * 3
    assert done[-1] == "video"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.x.x.x")
def test_a_full_queue_says_when_to_come_again(model, photos):
    def ask(client="127.0.0.1"):
        return service.post("/v1/predict", photos[1], client=client, **QUICK)

    with running(model, waiting=3, a_client=2) as service, ThreadPoolExecutor(3) as pool, service.held():
        asked = [pool.submit(ask) for _ in range(2)]
        service.wait_for(2)
        mine = ask()
        asked += [pool.submit(ask, "127.0.0.2")]
        service.wait_for(3)
        assert service.get("/v1/health").json == {"status": "ok", "waiting": 3, "busy": True}
        full = ask("127.0.0.3")
        for answer, message in (
            (mine, "2 requests of this client wait, 2 may"), (full, "3 requests wait already"),
        ):  # fmt: skip
            assert (answer.status, answer.error) == (503, "busy")
            assert message in answer.json["error"]["message"]
            assert int(answer.headers["retry-after"]) >= 1
    assert [one.result().status for one in asked] == [200, 200, 200]


def test_a_service_that_ends_refuses_what_comes_later_and_what_needs_too_long():
    worker, begun = Worker(64, 64), threading.Event()

    def work(between):
        begun.set()
        while True:
            between()

    async def run():
        job = asyncio.ensure_future(worker.run(Job("a", "video", 60, 60), work))
        await asyncio.to_thread(begun.wait, 60)
        worker.end(0.2)
        return await asyncio.gather(job, worker.run(Job("b", PHOTO, 60, 60), work), return_exceptions=True)

    for error in asyncio.run(run()):
        assert (error.status_code, error.detail) == (503, "the service ends: try another")
    worker.close()
