"""Jobs that go on without a connection: their states, events, ends and bounds; several pictures and raw bodies."""

import asyncio
import http.client
import json
import threading

import numpy as np
import pytest
from serve.running import QUICK, running, until
from video.films import write_film

from di2pose.serve import background
from di2pose.serve.background import BackgroundJob
from di2pose.serve.limits import ApiError, Limits
from di2pose.serve.operators import OperatorOptions

BOX = (20.0, 10.0, 200.0, 250.0)
FAST = QUICK | {"boxes": [BOX]}


@pytest.fixture(scope="module")
def film(tmp_path_factory, astronaut):
    """The bytes of three frames of somebody who moves a little."""
    frames = [np.asarray(astronaut.crop((4 * k, 0, 400 + 4 * k, 400)).resize((128, 128))) for k in range(3)]
    return write_film(tmp_path_factory.mktemp("film") / "a.mp4", frames, rate=10).read_bytes()


def state(service, path):
    return service.get(path).json["state"]


def events(service, path):
    """(name, data) of a stream of events, until it ends."""
    answer = service.get(f"{path}/events", **{"Accept-Encoding": "gzip"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert "content-encoding" not in answer.headers
    found = [block.split("\n") for block in answer.body.decode().strip().split("\n\n") if block != ":"]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in found]


def test_a_video_as_a_job_is_answered_as_the_direct_request(service, film):
    fields = {"hypotheses": 1, "steps": 1, "seed": 3}
    with service.held():
        path = service.job(film, "video", **fields)
        waiting = service.get(path).json
        assert waiting == {"id": path.removeprefix("/v1/jobs/"), "state": "waiting", "frames_done": 0, "frames": 3,
                           "error": None}  # fmt: skip
        early = service.get(f"{path}/result")
        assert (early.status, early.error, early.headers["retry-after"]) == (409, "not_finished", "1")
    seen = events(service, path)
    assert seen[-1] == ("done", waiting | {"state": "done", "frames_done": 3})
    counts = [data["frames_done"] for name, data in seen if name != "frame"]
    assert counts == sorted(counts)
    (*_, frame) = (data["frames"] for name, data in seen if name == "frame")
    assert [(each["frame_index"], len(each["people"])) for each in frame] == [(2, 1)]
    result = service.get(f"{path}/result")
    assert (result.status, result.headers["cache-control"]) == (200, "no-store")
    assert result.body == service.post("/v1/video", film, "video", **fields).body
    assert service.ask("DELETE", path).status == 204
    assert service.get(path).error == service.get(f"{path}/result").error == "not_found"


def test_a_photo_as_a_job_and_one_that_fails(service, photos):
    path, failing = service.job(photos[0], **FAST), service.job(photos[1], **FAST | {"boxes": [[900, 900, 950, 950]]})
    until(lambda: state(service, path) == "done")
    assert service.get(f"{path}/result").body == service.post("/v1/predict", photos[0], **FAST).body
    assert [name for name, _ in events(service, failing)][-1] == "failed"
    assert service.get(failing).json["error"]["code"] == "unusable_picture"
    assert service.get(f"{failing}/result").status == 422
    for wrong in ({"hypotheses": 64, "steps": 100}, {"grid": 2}):
        assert service.post("/v1/jobs", photos[0], **wrong).status in (400, 413)
    for path in ("0-", "0-" + 24 * "a", "1-" + 24 * "a", "a%0d%0ab"):
        assert service.get(f"/v1/jobs/{path}").error == "not_found"


def test_a_cancelled_job_leaves_the_queue_or_stops_and_its_upload_is_freed(model, film, monkeypatch):
    with running(model, operator=OperatorOptions(metrics=True)) as service:
        with service.held():
            path = service.job(film, "video", hypotheses=1, steps=1)
            service.wait_for(1)
            assert service.ask("DELETE", path).status == 204
            service.wait_for(0)
        begun, go, counted = threading.Event(), threading.Event(), []
        counting = BackgroundJob.counting

        def held(job, work, frames):
            def slow(between):
                def each():
                    between()
                    counted.append(1)
                    begun.set()
                    go.wait(60)

                return work(each)

            return counting(job, slow, frames)

        monkeypatch.setattr(BackgroundJob, "counting", held)
        path = service.job(film, "video", hypotheses=1, steps=1)
        assert begun.wait(60)
        assert state(service, path) == "running"
        assert service.ask("DELETE", path).status == 204
        go.set()
        until(lambda: not service.worker.busy)
        assert len(counted) == 1
        until(lambda: b'di2pose_held_bytes{worker="0"} 0\n' in service.get("/metrics").body)


def test_a_job_that_is_not_asked_for_is_lost(model, photos):
    with running(model, Limits(job_kept_s=0.05)) as service, service.held():
        path = service.job(photos[0], **FAST)
        service.wait_for(0)
        assert service.get(path).error == "not_found"


def test_jobs_are_bounded_in_number(model, photos):
    def ask():
        return service.post("/v1/jobs", photos[0], **FAST)

    limits = Limits(jobs=3, jobs_a_client=2)
    with running(model, limits, a_client=1, operator=OperatorOptions(trust_proxy=("127.0.0.1",))) as service:
        with service.held():
            assert ask().status == 202
            full = ask()  # the queue's bounds hold, too, and such a request is no job
            assert "1 requests of this client wait, 1 may" in full.json["error"]["message"]
            service.headers = {"X-Forwarded-For": "8.8.8.8"}
            assert ask().status == 202
        service.headers = {}
        until(lambda: service.worker.waiting == 0 and not service.worker.busy)
        assert ask().status == 202
        many = ask()
        assert (many.status, many.error) == (503, "busy")
        assert "3 jobs are kept, 2 of this client; 3 may be, 2 of a client" in many.json["error"]["message"]


def test_a_stream_of_events_keeps_the_job_and_the_connection(model, photos, monkeypatch):
    monkeypatch.setattr(background, "HEARTBEAT_S", 0.0)
    monkeypatch.setattr(background, "POLL_S", 0.02)
    with running(model, Limits(job_kept_s=0.1)) as service:
        with service.held():
            path = service.job(photos[0], **FAST)
            connection = http.client.HTTPConnection("127.0.0.1", service.port, 60)
            connection.request("GET", f"{path}/events")
            stream = connection.getresponse()
            lines = [stream.readline() for _ in range(20)]
        assert lines[0] == b"event: waiting\n"
        assert lines.count(b": \n") >= 7
        rest = stream.read()
        connection.close()
        assert b"event: done" in rest


def test_several_pictures_have_each_an_answer_or_an_error(service, model, photos):
    body = {"image": [photos[0], b"no picture", photos[0][:3000], b"", photos[1]]}
    answer = service.post("/v1/predict", body["image"], **QUICK)
    assert answer.status == 200, answer.body
    whole, no_picture, cut, empty, nobody = answer.json
    assert whole == service.post("/v1/predict", photos[0], **QUICK).json
    assert nobody == service.post("/v1/predict", photos[1], **QUICK).json
    codes = [each["error"]["code"] for each in (no_picture, cut, empty)]
    assert codes == ["unsupported_media", "unusable_picture", "unsupported_media"]
    assert service.post_json("/v1/predict", [photos[0]], **QUICK).json == [whole]
    for content, fields, status_code in (
        ([photos[1]] * 17, {}, 413), ([photos[1]] * 2, {"boxes": [BOX]}, 400),
        ([photos[1]] * 16, {"hypotheses": 14, "steps": 4}, 413),  # 12 x 14 x 4 x 16 = 10752; one would be 672
    ):  # fmt: skip
        assert service.post("/v1/predict", content, **fields).status == status_code
    assert service.post("/v1/reveal", [photos[0]] * 2).error == "bad_request"
    assert service.post_json("/v1/video", [photos[0]], "video").error == "bad_request"


def test_a_raw_body_takes_its_options_from_the_query(service, photos, film):
    options = "&".join(f"{name}={json.dumps(value).replace(' ', '')}" for name, value in FAST.items())
    answer = service.ask("POST", f"/v1/predict?{options}", photos[0], {"Content-Type": "image/png"})
    assert answer.status == 200, answer.body
    assert answer.body == service.post("/v1/predict", photos[0], **FAST).body
    video = service.ask("POST", "/v1/video?hypotheses=1&steps=1", film, {"Content-Type": "video/mp4; codecs=x"})
    assert video.body == service.post("/v1/video", film, "video", hypotheses=1, steps=1).body
    for path, kind, status_code in (
        ("/v1/predict?seed=1&seed=2", "image/png", 400), ("/v1/predict?seed=x", "image/png", 400),
        ("/v1/predict?name=1", "image/png", 400), ("/v1/predict", "video/mp4", 400), ("/v1/predict", "text/x", 415),
    ):  # fmt: skip
        assert service.ask("POST", path, photos[1], {"Content-Type": kind}).status == status_code
    assert service.post("/v1/predict?seed=1", photos[1], seed=2).error == "bad_request"


def test_the_oldest_result_is_forgotten_first():
    async def run():
        jobs = background.BackgroundJobs(Limits(jobs_bytes=25), 0)

        async def work(job):
            await asyncio.sleep(0)
            return bytes(10)

        made = []
        for _ in range(4):
            made.append(await jobs.start("a", work))
            await asyncio.sleep(0.01)
        kept = list(jobs.jobs.values())
        await jobs.close()
        with pytest.raises(ApiError, match=r"^404: no job"):
            jobs.find(made[0].id)
        return [job in kept for job in made]

    assert asyncio.run(run()) == [False, False, True, True]
