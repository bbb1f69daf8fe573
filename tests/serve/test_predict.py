"""What the service answers is what the library says; alone and in a batch."""

import base64
import gc
import json
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image
from serve.running import QUICK, file_of, opened, running, work_for_ever

from di2pose.result import Result
from di2pose.serve.limits import Limits
from di2pose.serve.worker import ExclusiveJob

BOX = [20.0, 10.0, 200.0, 250.0]


def direct(model, content, **options):
    """The bytes of `save`, by the library alone."""
    return model(opened(content), **(QUICK | options)).to_files("pose.json")["pose.json"]


def test_the_answer_is_the_file_that_save_writes(service, model, photos, tmp_path):
    answer = service.post("/v1/predict", photos[0], **QUICK)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    model(opened(photos[0]), **QUICK).save(tmp_path / "x.json")
    assert answer.body == (tmp_path / "x.json").read_bytes()
    (tmp_path / "answer.json").write_bytes(answer.body)
    assert len(Result.load(tmp_path / "answer.json").people) == 1


def test_json_with_base64_gives_the_same_as_a_form(service, photos):
    fields = QUICK | {"seed": 3, "boxes": [BOX]}
    first, second = (ask("/v1/predict", photos[0], **fields) for ask in (service.post, service.post_json))
    assert first.status == second.status == 200
    assert first.body == second.body
    assert json.loads(first.body)["seed"] == 3


def test_every_option_reaches_the_model(service, model, photos):
    options = {
        "seed": 5, "boxes": [BOX], "occluded": [[0, 150, 256, 256]], "height_m": 1.7, "field_of_view": 50.0,
        "max_people": 1, "min_score": 0.1, "pin": {"left_wrist": [200.0, 100.0, -100.0]},
    }  # fmt: skip
    answer = service.post("/v1/predict", photos[0], **QUICK | options)
    boxes = {"boxes": [tuple(BOX)], "occluded": [(0.0, 150.0, 256.0, 256.0)]}
    assert answer.body == direct(model, photos[0], **options | boxes)
    (person,) = answer.json["frames"][0]["people"]
    assert person["joints"]["left_wrist"]["state"] == "pinned"
    kept = service.post("/v1/predict", photos[0], **QUICK | {"boxes": [BOX], "keep_tokens": {"0": 3, "5": 7}})
    assert kept.body == direct(model, photos[0], boxes=[tuple(BOX)], keep_tokens={0: 3, 5: 7})


def test_requests_that_wait_together_share_a_batch_and_get_what_each_would_alone(service, model, photos):
    """Of other sizes, with nobody, with boxes of their own; one is no picture beyond its header."""
    damaged = photos[2][: len(photos[2]) // 2]
    boxes = [None, [BOX], None, None, None, None]
    contents = [photos[0], photos[1], damaged, photos[2], photos[3], photos[4]]
    batches = []
    with (
        service.noting("_predict_opened", lambda opened: batches.append(len(opened))),
        ThreadPoolExecutor(6) as pool,
        service.held(),
    ):
        asked = [
            pool.submit(service.post, "/v1/predict", content, **QUICK, boxes=box)
            for content, box in zip(contents, boxes, strict=True)
        ]
        service.wait_for(6)
    answers = [one.result() for one in asked]
    assert batches[-1] == 5  # all but the damaged one, at once
    assert [answer.status for answer in answers] == [200, 200, 422, 200, 200, 200]
    assert answers[2].error == "unusable_picture"
    people = []
    for k in (0, 1, 3, 4, 5):
        wanted = json.loads(direct(model, contents[k], boxes=boxes[k] and [tuple(BOX)]))
        assert close(answers[k].json, wanted)
        people.append(len(answers[k].json["frames"][0]["people"]))
    assert people == [1, 1, 1, 1, 0]
    assert not close(answers[0].json, answers[3].json)


def close(a, b):
    """The same answer, but for the last digits: a batch adds up in another order."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(close(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(close(x, y) for x, y in zip(a, b, strict=True))
    return bool(np.isclose(a, b, atol=0.5, rtol=0)) if isinstance(a, float) else a == b


def test_a_box_beside_its_picture_hurts_no_neighbour(service, photos):
    with ThreadPoolExecutor(2) as pool, service.held():
        fields = [QUICK | {"boxes": [BOX]}, QUICK | {"boxes": [[900, 900, 950, 960]]}]
        asked = [pool.submit(service.post, "/v1/predict", photos[0], **each) for each in fields]
        service.wait_for(2)
    good, bad = (one.result() for one in asked)
    assert good.status == 200
    assert (bad.status, bad.error) == (422, "unusable_picture")
    assert "lies outside of the picture" in bad.json["error"]["message"]


def test_a_full_queue_says_when_to_come_again(model, photos):
    with running(model, waiting=2) as service, ThreadPoolExecutor(2) as pool, service.held():
        asked = [pool.submit(service.post, "/v1/predict", photos[4], **QUICK) for _ in range(2)]
        service.wait_for(2)
        assert service.get("/v1/health").json == {"status": "ok", "waiting": 2, "busy": True}
        third = service.post("/v1/predict", photos[4], **QUICK)
        assert (third.status, third.error) == (503, "busy")
        assert int(third.headers["retry-after"]) >= 1
    assert [one.result().status for one in asked] == [200, 200]


def test_a_client_that_goes_away_leaves_the_queue(service, photos):
    with service.held():
        thread = threading.Thread(target=_ask_and_leave, args=(service, photos[0]))
        thread.start()
        service.wait_for(1)
        thread.join()  # its time is over: it has hung up
        service.wait_for(0)


def _ask_and_leave(service, content):
    body = json.dumps({"image": base64.b64encode(content).decode()})
    with pytest.raises(TimeoutError):
        service.ask("POST", "/v1/predict", body, {"Content-Type": "application/json"}, timeout=1)


def test_an_answer_that_takes_too_long_is_given_up(model, photos):
    with running(model, Limits(work_s=0.3)) as service:
        with service.held():
            late = service.post("/v1/predict", photos[0], **QUICK)
        assert (late.status, late.error) == (503, "busy")  # never begun
        assert service.worker.waiting == 0
        begun = ExclusiveJob(60, 0.3, work_for_ever)
        service.worker.submit(begun)
        assert begun.future.result(60).status == 504


def test_an_answered_request_leaves_nothing_behind(service, photos):
    """Not even until the garbage collector comes: pictures are large, and it counts objects."""
    jobs = []
    gc.disable()
    with service.noting("submit", lambda job: jobs.append(weakref.ref(job))):
        for content in (photos[4], photos[4][:400], photos[4]):
            service.post("/v1/predict", content, **QUICK)
        assert len(jobs) == 3
        service.post("/v1/predict", photos[4], **QUICK)  # the worker forgets the last one when the next comes
        end = time.monotonic() + 10
        while [1 for job in jobs[:3] if job() is not None] and time.monotonic() < end:
            time.sleep(0.05)
        left = [job() for job in jobs[:3]]
    gc.enable()
    assert left == [None] * 3


def test_a_large_file_is_read_whole(service, model):
    """More than what servers spool to the disk by default."""
    noise = np.random.default_rng(0).integers(0, 256, (700, 900, 3), np.uint8)
    content = file_of(Image.fromarray(noise))
    assert len(content) > 1_500_000
    assert service.post("/v1/predict", content, **QUICK).body == direct(model, content)
