"""Photos, files, videos, the reveal, the lab: each answer is what the library gives, none goes over the disk; hostile
requests are refused, and the next good one is answered."""

import asyncio
import gc
import io
import sys
import time
import weakref
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from output.people import person, result
from PIL import Image
from serve.running import QUICK, file_of, opened, running
from video.films import grey_jpeg, write_film, write_jpegs, write_latin_1

from di2pose import estimate_video
from di2pose.result import WRITERS, Result
from di2pose.serve.decoding import check_picture, check_video, decode_picture
from di2pose.serve.jobs import patched, placements
from di2pose.serve.limits import ApiError, Limits
from di2pose.serve.media import formats
from di2pose.serve.store import ResultStore

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
BOX = (20.0, 10.0, 200.0, 250.0)
FAST = {"hypotheses": 1, "steps": 1}
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
    """The bytes of two frames of somebody who moves a little."""
    frames = [np.asarray(astronaut.crop((4 * k, 0, 400 + 4 * k, 400)).resize((256, 256))) for k in range(2)]
    return write_film(tmp_path_factory.mktemp("film") / "a.mp4", frames, rate=10).read_bytes()


@pytest.fixture(scope="module")
def hostile():
    """The module of the benchmark, a video, and hostile requests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        import hostile
    photo, film = hostile.real_files()
    return hostile, film, hostile.Arsenal(photo, film, seed=1)


def test_a_photo_is_answered_by_the_file_that_save_writes(service, model, photos, tmp_path):
    """With every option, of a form and of JSON."""
    options = {
        "seed": 5, "boxes": [BOX], "occluded": [(0.0, 150.0, 256.0, 256.0)], "height_m": 1.7, "field_of_view": 50.0,
        "max_people": 1, "min_score": 0.1, "pin": {"left_wrist": [200.0, 100.0, -100.0]},
    }  # fmt: skip
    kept = {"boxes": [BOX], "keep_tokens": {"0": 3, "5": 7}}
    for ask, fields in ((service.post, {}), (service.post_json, options), (service.post, kept)):
        answer = ask("/v1/predict", photos[0], **QUICK | fields)
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        call = fields | {"keep_tokens": {0: 3, 5: 7}} if "keep_tokens" in fields else fields
        model(opened(photos[0]), **QUICK | call).save(tmp_path / "x.json")
        assert answer.body == (tmp_path / "x.json").read_bytes()
        (person,) = Result.load(tmp_path / "x.json").people
        assert (person["left_wrist"].state == "pinned") == ("pin" in fields)


def test_an_answered_request_leaves_nothing_behind(service, photos):
    """Not even until the garbage collector comes: pictures are large, and it counts objects."""
    jobs = []
    gc.disable()
    with service.noting_jobs(lambda job: jobs.append(weakref.ref(job))):
        for content in (photos[1], photos[1][:400], photos[1]):
            service.post("/v1/predict", content, **QUICK)
        assert len(jobs) == 3
        service.post("/v1/predict", photos[1], **QUICK)  # the worker forgets the last one when the next comes
        end = time.monotonic() + 60
        while [1 for job in jobs[:3] if job() is not None] and time.monotonic() < end:
            time.sleep(0.05)
        left = [job() for job in jobs[:3]]
    gc.enable()
    assert left == [None] * 3


def test_files_are_what_save_writes_and_stay_in_memory(service, model, photos, no_disk):
    assert formats() == [ending[1:] for ending in WRITERS]
    quick = FAST | {"second_look": False, "boxes": [BOX]}
    result = model(opened(photos[0]), **quick)
    large = photos[0] + bytes(1_500_000)  # more than what servers spool to the disk by default
    for ending in formats():
        answer = service.post(f"/v1/files/{ending}", large, **quick)
        assert answer.status == 200, answer.body
        assert answer.headers["content-disposition"] == f'attachment; filename="pose.{ending}"'
        if ending == "npz":  # an archive holds the time
            with np.load(io.BytesIO(answer.body)) as arrays:
                np.testing.assert_array_equal(arrays["joints_mm"], result.people[0].joints_mm[None])
        else:
            assert answer.body == result.to_files(f"pose.{ending}")[f"pose.{ending}"]
    two = [BOX, (100.0, 20.0, 250.0, 250.0)]
    answer = service.post("/v1/files/bvh", photos[0], **quick | {"boxes": two})
    assert answer.headers["content-disposition"] == 'attachment; filename="pose_bvh.zip"'
    with zipfile.ZipFile(io.BytesIO(answer.body)) as archive:
        assert archive.namelist() == ["pose_p0.bvh", "pose_p1.bvh"]
        assert archive.read("pose_p1.bvh").startswith(b"HIERARCHY")


def test_a_file_of_an_answer_is_written_without_the_model(service, photos):
    fields = QUICK | {"seed": 11, "boxes": [BOX]}
    whole = service.post("/v1/predict", photos[0], **fields).body
    with ThreadPoolExecutor() as pool:
        with service.held():
            assert service.post("/v1/files/json", photos[0], **fields).body == whole
            other = pool.submit(service.post, "/v1/files/json", photos[0], client="127.0.0.2", **fields)
            service.wait_for(1)  # it is not this client's answer
        assert other.result().body == whole


def test_kept_results_have_limits():
    async def kept(**limits):
        store = ResultStore(Limits(**limits))
        for name in (b"a", b"b", b"a", b"c"):
            await store.keep(name, result([person(1)], picture=Image.new("RGB", (9, 9))))
        return {name for name in (b"a", b"b", b"c") if await store.get(name)}, await store.get(b"c")

    found, last = asyncio.run(kept(results=2))
    assert found == {b"a", b"c"}
    assert last.picture is None
    assert asyncio.run(kept(results_bytes=1))[0] == asyncio.run(kept(result_kept_s=-1.0))[0] == set()


def test_files_that_cannot_be(service, photos):
    assert service.post("/v1/files/trc", photos[1], **QUICK).error == "unusable_picture"
    assert service.post("/v1/files/../../etc/passwd", photos[1]).error == "not_found"
    assert service.post("/v1/files/exe", photos[1]).error == "not_found"


def test_a_video_is_what_estimate_video_gives(service, model, film, tmp_path, no_disk):
    answer = service.post("/v1/video", film, "video", **FAST, seed=1)
    page = service.post("/v1/files/html", film, "video", **FAST)
    WATCH["on"] = False
    (tmp_path / "a.mp4").write_bytes(film)
    wanted = estimate_video(model, tmp_path / "a.mp4", **FAST, seed=1).to_files("x.json")["x.json"]
    assert len(answer.json["frames"]) == 2
    assert all(frame["people"] for frame in answer.json["frames"])
    assert answer.body == wanted.replace(f'"image":"{tmp_path}/a.mp4"'.encode(), b'"image":null')
    assert page.body.count(b"data:image/jpeg;base64,") == 2
    assert service.post("/v1/video", film, "video", boxes=[BOX]).error == "bad_request"
    assert service.post("/v1/video", film, "image").error == "bad_request"


def test_videos_have_limits_of_their_own(model, film, tmp_path):
    for limits in ({"video_seconds": 0.05}, {"video_seconds": 1.0, "video_rate": 1.0}, {"pixels": 256 * 255}):
        with pytest.raises(ApiError, match=r"^413: .* may (have|last) "):
            check_video(film, Limits(**limits))
    with running(model, Limits(video_bytes=len(film) + 1000, video_price=4, pixels=64_000)) as service:
        assert service.post("/v1/video", bytes(len(film) + 1000), "video").error == "too_large"
        title = write_latin_1(tmp_path / "a.mp4").read_bytes()  # not in UTF-8
        assert len(service.post("/v1/video", title, "video", **FAST, max_people=1).json["frames"]) == 3
        dear = service.post("/v1/video", title, "video", **FAST, max_people=2).json["error"]["message"]
        assert "frames x max_people x hypotheses x steps may be 4 at most, 3 x 2 x 1 x 1 = 6 came" in dear
        small = grey_jpeg(64, 32)
        path = write_jpegs(tmp_path / "a.avi", [small, small, grey_jpeg(600, 600), small])
        answer = service.post("/v1/video", path.read_bytes(), "video", **FAST, max_people=1)
        assert (answer.status, answer.error) == (413, "too_large")
        assert "a frame may have 64000 pixels" in answer.json["error"]["message"]


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
def test_what_is_no_video_is_refused(content):
    with pytest.raises(ApiError, match=r"^4(15|22): "):
        check_video(content, Limits())


def test_the_reveal_ends_at_the_tokens_of_hypothesis_0(service, model, photos):
    fields = QUICK | {"seed": 2, "steps": 4}
    answer = service.post("/v1/reveal", photos[0], **fields)
    assert answer.status == 200, answer.body
    steps = answer.json["steps"]
    person = model(opened(photos[0]), **fields).people[0]
    assert [each["step"] for each in steps] == [100, 75, 50, 25, 0]
    decided = np.array([each["decided"] for each in steps])
    assert decided.shape == (5, person.tokens.shape[1])
    assert decided[-1].all()
    assert decided[0].mean() < 0.3
    assert (np.diff(decided.sum(1)) >= 0).all()
    raw_mm = model.model.tokenizer.decode(torch.from_numpy(person.tokens[:1]))[0].detach().numpy()
    turned_mm = np.array(steps[-1]["joints_mm"])  # from the crop to the camera
    assert np.allclose(distances(turned_mm), distances(raw_mm), atol=0.1)
    assert np.allclose(answer.json["box_px"], person.box, atol=1e-3)


def distances(joints_mm):
    return np.linalg.norm(joints_mm[:, None] - joints_mm[None], axis=-1)


def test_the_lab_says_what_each_patch_does(service, model, photos):
    found = service.post("/v1/lab", photos[0], **QUICK, boxes=[BOX], patch=0.3, grid=2).json
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


def test_reveal_and_lab_are_of_one_person(service, photos):
    two = [BOX, (100.0, 20.0, 250.0, 250.0)]
    assert service.post("/v1/reveal", photos[1], **QUICK).error == "unusable_picture"
    assert service.post("/v1/lab", photos[1], **QUICK, grid=2).error == "unusable_picture"
    assert service.post("/v1/lab", photos[0], boxes=two, grid=2).error == "bad_request"
    assert service.post("/v1/lab", photos[0], at=[0, 0, 9, 9], grid=2).error == "bad_request"
    assert service.post("/v1/lab", photos[0], at=[1000, 1000, 1009, 1009]).error == "unusable_picture"


def test_a_picture_that_takes_too_long_is_refused_and_the_service_goes_on(service, photos, monkeypatch):
    """The picture is large, the limit far below what any machine needs for it."""
    large = file_of(Image.new("RGB", (2000, 2000), "grey"), "JPEG", progressive=True)
    monkeypatch.setattr(service.worker.decoder, "seconds", 0.001)
    answers = [service.post(f"/v1/{route}", large, boxes=[BOX]) for route in ("predict", "reveal", "lab")]
    monkeypatch.undo()
    assert [(answer.status, answer.error) for answer in answers] == [(422, "unusable_picture")] * 3
    assert all("longer than 0.001 s" in answer.json["error"]["message"] for answer in answers)
    assert service.post("/v1/predict", photos[0], **QUICK, boxes=[BOX]).status == 200


def test_damage_in_files_is_told(hostile):
    """In whatever way Pillow's readers fail."""
    _, film, arsenal = hostile
    arsenal.random.seed(2)
    seen = {True: 0, False: 0}
    for content in arsenal.files.values():
        for k in range(30):
            try:
                broken = arsenal._flip(content) if k % 2 else content[: arsenal.random.randrange(1, len(content))]
                check_picture(broken, Limits())
                seen[decode_picture(broken).size[0] > 0] += 1
            except ApiError:  # anything else fails the test
                seen[False] += 1
    assert min(seen.values()) > 10
    with pytest.raises(ApiError, match="422: a picture needs"):
        check_picture(file_of(Image.new("RGB", (40, 8))), Limits())
    with pytest.raises(ApiError, match=r"422: .*more than 100 scans"):  # it would be decoded for half a minute
        decode_picture(arsenal.many_scans)
    with pytest.raises(ApiError, match="coded in a way"):
        check_video(film.replace(b"mp4v", b"zzzz").replace(b"esds", b"zzzz"), Limits())


def test_hostile_requests_hurt_nobody(service, hostile):
    """A few of what `benchmarks/hostile.py` sends by the thousand."""
    hostile, _, arsenal = hostile
    good, box = arsenal.files["PNG"], [20, 10, 100, 110]
    before = service.post("/v1/predict", good, **QUICK, boxes=[box])
    arsenal.random.seed(1)
    one = {attack.name.partition(":")[0]: attack for attack in arsenal.attacks(100, slow=1)}
    assert len(one) >= 14  # one of each kind
    attacks = list(one.values())
    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(lambda attack: hostile.strike(service.port, attack), attacks))
    wrong = [
        (attack.name, status) for attack, status in zip(attacks, told, strict=True) if not hostile.is_right(status)
    ]
    assert wrong == []
    assert {"400", "415", "422"} <= set(told)
    assert service.post("/v1/predict", good, **QUICK, boxes=[box]).body == before.body
