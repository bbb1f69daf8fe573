"""Photos, files, videos, the reveal, the lab: each answer is what the library gives, none goes over the disk."""

import base64
import gc
import io
import json
import sys
import threading
import time
import weakref
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image
from serve.running import QUICK, file_of, opened, running
from video.films import write_film

from di2pose import estimate_video
from di2pose.result import WRITERS, Result
from di2pose.serve.decoding import check_video
from di2pose.serve.jobs import patched, placements
from di2pose.serve.limits import ApiError, Limits
from di2pose.serve.media import formats

BOX = (20.0, 10.0, 200.0, 250.0)
WATCH = {"on": False, "written": []}


def _note(event, arguments):
    if WATCH["on"] and event == "open" and isinstance(arguments[0], str):
        path, mode, flags = arguments
        writes = (mode is not None and set(mode) & set("wax+")) or flags & 0b11  # O_WRONLY, O_RDWR
        if writes and path != "/dev/null":
            WATCH["written"].append(path)
    elif WATCH["on"] and event.startswith("tempfile."):
        WATCH["written"].append(event)


sys.addaudithook(_note)


@pytest.fixture
def no_disk():
    """Whatever this process opens for writing meanwhile is an error."""
    WATCH.update(on=True, written=[])
    yield
    WATCH["on"] = False
    assert WATCH["written"] == []


@pytest.fixture(scope="module")
def film(tmp_path_factory, astronaut):
    """The bytes of four frames of somebody who moves a little."""
    frames = [np.asarray(astronaut.crop((4 * k, 0, 400 + 4 * k, 400)).resize((320, 320))) for k in range(4)]
    return write_film(tmp_path_factory.mktemp("film") / "a.mp4", frames, rate=10).read_bytes()


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


def test_a_request_that_waits_too_long_is_given_up(model, photos):
    with running(model, Limits(work_s=0.3)) as service, service.held():
        late = service.post("/v1/predict", photos[0], **QUICK)
        assert (late.status, late.error) == (503, "busy")
        assert service.worker.waiting == 0


def test_an_answered_request_leaves_nothing_behind(service, photos):
    """Not even until the garbage collector comes: pictures are large, and it counts objects."""
    jobs = []
    gc.disable()
    with service.noting_jobs(lambda job: jobs.append(weakref.ref(job))):
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


def test_files_are_what_save_writes_and_stay_in_memory(service, model, photos, no_disk):
    assert formats() == [ending[1:] for ending in WRITERS]
    quick = QUICK | {"hypotheses": 1, "steps": 1, "boxes": [BOX]}
    result = model(opened(photos[0]), **quick)
    for ending in formats():
        answer = service.post(f"/v1/files/{ending}", photos[0], **quick)
        assert answer.status == 200, answer.body
        assert answer.headers["content-disposition"] == f'attachment; filename="pose.{ending}"'
        if ending == "npz":  # an archive holds the time
            with np.load(io.BytesIO(answer.body)) as arrays:
                np.testing.assert_array_equal(arrays["joints_mm"], result.people[0].joints_mm[None])
        else:
            assert answer.body == result.to_files(f"pose.{ending}")[f"pose.{ending}"]


def test_several_people_who_have_a_file_each_come_as_an_archive(service, photos):
    two = [BOX, (100.0, 20.0, 250.0, 250.0)]
    answer = service.post("/v1/files/bvh", photos[0], **QUICK, boxes=two)
    assert answer.headers["content-disposition"] == 'attachment; filename="pose_bvh.zip"'
    with zipfile.ZipFile(io.BytesIO(answer.body)) as archive:
        assert archive.namelist() == ["pose_p0.bvh", "pose_p1.bvh"]
        assert archive.read("pose_p1.bvh").startswith(b"HIERARCHY")


def test_files_that_cannot_be(service, photos):
    nobody = service.post("/v1/files/trc", photos[4], **QUICK)
    assert (nobody.status, nobody.error) == (422, "unusable_picture")
    unknown = service.post("/v1/files/../../etc/passwd", photos[4])
    assert unknown.status == 404
    assert service.post("/v1/files/exe", photos[4]).error == "not_found"


def test_a_video_is_what_estimate_video_gives(service, model, film, tmp_path, no_disk):
    answer = service.post("/v1/video", film, "video", hypotheses=2, steps=2, seed=1)
    assert answer.status == 200, answer.body
    WATCH["on"] = False
    (tmp_path / "a.mp4").write_bytes(film)
    wanted = estimate_video(model, tmp_path / "a.mp4", hypotheses=2, steps=2, seed=1).to_files("x.json")["x.json"]
    assert len(answer.json["frames"]) == 4
    assert all(frame["people"] for frame in answer.json["frames"])
    assert answer.body == wanted.replace(f'"image":"{tmp_path}/a.mp4"'.encode(), b'"image":null')


def test_a_video_has_a_page_with_its_pictures_but_no_overlay(service, film, no_disk):
    page = service.post("/v1/files/html", film, "video", hypotheses=1, steps=1)
    assert page.body.count(b"data:image/jpeg;base64,") == 4
    assert service.post("/v1/files/jpg", film, "video", hypotheses=1, steps=1).status == 422
    assert service.post("/v1/video", film, "video", boxes=[BOX]).error == "bad_request"
    assert service.post("/v1/video", film, "image").error == "bad_request"


def test_videos_have_limits_of_their_own(model, film):
    for limits in ({"video_seconds": 0.2}, {"video_seconds": 1.0, "video_rate": 3.0}, {"pixels": 320 * 319}):
        with pytest.raises(ApiError, match=r" may (have|last) ") as refused:
            check_video(film, Limits(**limits))
        assert refused.value.status == 413
    with running(model, Limits(video_bytes=1000)) as service:
        assert service.post("/v1/video", film, "video").error == "too_large"


@pytest.mark.parametrize(
    "content",
    [
        b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n",
        b"ffconcat version 1.0\nfile /etc/passwd\n",
        b"\0\0\0\x18ftypmp42" + bytes(500),
        b"\x1aE\xdf\xa3" + bytes(500),
        b"RIFF\0\0\0\0AVI " + bytes(500),
    ],
)
def test_what_is_no_video_is_refused(service, content):
    answer = service.post("/v1/video", content, "video")
    assert answer.error in ("unsupported_media", "unusable_picture")


def test_the_reveal_ends_at_the_tokens_of_hypothesis_0(service, model, photos):
    answer = service.post("/v1/reveal", photos[0], steps=4, hypotheses=2, seed=2)
    assert answer.status == 200, answer.body
    steps = answer.json["steps"]
    person = model(opened(photos[0]), steps=4, hypotheses=2, seed=2).people[0]
    assert [each["step"] for each in steps] == [100, 75, 50, 25, 0]
    decided = np.array([each["decided"] for each in steps])
    assert decided.shape == (5, person.tokens.shape[1])
    assert decided[-1].all()
    assert decided[0].mean() < 0.3
    assert (np.diff(decided.sum(1)) >= 0).all()
    poses = np.array([each["joints_mm"] for each in steps])
    assert poses.shape == (5, 17, 3)
    raw_mm = model.model.tokenizer.decode(torch.from_numpy(person.tokens[:1]))[0].detach().numpy()
    assert np.allclose(distances(poses[-1]), distances(raw_mm), atol=0.1)  # turned from the crop to the camera
    assert np.allclose(answer.json["box_px"], person.box, atol=1e-3)


def distances(joints_mm):
    return np.linalg.norm(joints_mm[:, None] - joints_mm[None], axis=-1)


def test_nobody_has_no_tokens(service, photos):
    assert service.post("/v1/reveal", photos[4]).error == "unusable_picture"
    assert service.post("/v1/lab", photos[4], grid=2).error == "unusable_picture"


def test_the_lab_says_what_each_patch_does(service, model, photos):
    answer = service.post("/v1/lab", photos[0], **QUICK, boxes=[BOX], patch=0.3, grid=2)
    assert answer.status == 200, answer.body
    found = answer.json
    assert np.shape(found["grid"]) == (2, 2)
    assert len(found["boxes"]) == 4
    worst = int(np.argmax(found["grid"]))
    assert found["worst"] == found["boxes"][worst]
    assert found["worst_mm"] == max(map(max, found["grid"])) > 1.0
    clean, covered = (
        np.array(model(picture, **QUICK, boxes=[BOX]).people[0].joints_mm)
        for picture in (opened(photos[0]), patched(opened(photos[0]), tuple(found["worst"]), 0))
    )
    assert np.linalg.norm(clean - covered, axis=-1).mean() == pytest.approx(found["worst_mm"], abs=0.01)
    at = service.post("/v1/lab", photos[0], **QUICK, boxes=[BOX], at=found["worst"]).json["frames"][0]["people"][0]
    assert np.allclose([joint["xyz_mm"] for joint in at["joints"].values()], covered, atol=0.01)


def test_patches_lie_over_the_box_and_in_the_picture():
    places = np.array(placements((10, 20, 110, 220), 40, 3))
    assert places[0].tolist() == [10, 20, 50, 60]
    assert places[-1].tolist() == [70, 180, 110, 220]
    assert np.array(placements((10, 20, 30, 220), 40, 2))[:, 0].tolist() == [0, 0, 0, 0]
    picture = Image.new("RGB", (100, 80))
    far = np.asarray(patched(picture, (90.0, 70.0, 1e6, 1e6), 0))
    assert far[:70].max() == far[:, :90].max() == 0 < far[70:, 90:].max()
    assert np.array_equal(far, np.asarray(patched(picture, (90.0, 70.0, 1e6, 1e6), 0)))


def test_a_lab_is_of_one_person(service, photos):
    two = [BOX, (100.0, 20.0, 250.0, 250.0)]
    assert service.post("/v1/lab", photos[0], boxes=two, grid=2).error == "bad_request"
    assert service.post("/v1/lab", photos[0], at=[0, 0, 9, 9], grid=2).error == "bad_request"
    assert service.post("/v1/lab", photos[0], at=[1000, 1000, 1009, 1009]).error == "unusable_picture"
    assert service.post("/v1/predict", file_of(Image.new("RGB", (40, 8)))).error == "unusable_picture"
