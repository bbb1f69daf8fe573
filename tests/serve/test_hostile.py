"""Hostile requests: nothing ends the service, none gets a 5xx but 503, and the next good one is answered."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from serve.running import QUICK

from di2pose.serve.decoding import check_picture, check_video, decode_picture
from di2pose.serve.limits import ApiError, Limits

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
BOX = [20, 10, 100, 110]


@pytest.fixture
def hostile(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import hostile

    return hostile


def test_damage_in_pictures_is_told(hostile):
    """In whatever way Pillow's readers fail."""
    arsenal = hostile.Arsenal(*hostile.real_files(), seed=2)
    seen = {True: 0, False: 0}
    for content in arsenal.files.values():
        for k in range(60):
            try:
                broken = arsenal._flip(content) if k % 2 else content[: arsenal.random.randrange(1, len(content))]
                check_picture(broken, Limits())
                seen[decode_picture(broken).size[0] > 0] += 1
            except ApiError:  # anything else fails the test
                seen[False] += 1
    assert min(seen.values()) > 20


def test_a_video_of_an_unknown_codec_is_told(hostile):
    film = hostile.real_files()[1]
    assert check_video(film, Limits())[0] == "mov"
    with pytest.raises(ApiError, match="coded in a way"):
        check_video(film.replace(b"mp4v", b"zzzz").replace(b"esds", b"zzzz"), Limits())


def test_hostile_requests_hurt_nobody(service, hostile):
    """A few of what `benchmarks/hostile.py` sends by the thousand."""
    arsenal = hostile.Arsenal(*hostile.real_files(), seed=1)
    good = arsenal.files["PNG"]
    before = service.post("/v1/predict", good, **QUICK, boxes=[BOX])
    attacks = [attack for attack in arsenal.attacks(150, slow=2) if not attack.name.startswith("bomb: PNG with")]
    assert len({attack.name.partition(":")[0] for attack in attacks}) >= 14
    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(lambda attack: hostile.strike(service.port, attack), attacks))
    wrong = [
        (attack.name, status) for attack, status in zip(attacks, told, strict=True) if not hostile.is_right(status)
    ]
    assert wrong == []
    assert {"200", "400", "413", "415", "422"} <= set(told)
    assert service.post("/v1/predict", good, **QUICK, boxes=[BOX]).body == before.body
    assert service.get("/v1/health").json["status"] == "ok"


def test_a_jpeg_of_many_scans_is_refused(service, hostile):
    """8,000 scans of 7056 x 7056 pixels would be decoded for half a minute."""
    arsenal = hostile.Arsenal(*hostile.real_files(), seed=0)
    picture = service.post("/v1/predict", arsenal.many_scans, **QUICK, boxes=[BOX])
    assert (picture.status, picture.error) == (422, "unusable_picture")
    assert "more than 100 scans" in picture.json["error"]["message"]
