"""worst.html and the heat maps of AdvOcc's search."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from di2pose.errors import InputError
from di2pose.evaluation.pages import COVER, HEADER, MARGIN, ZOOM, colour, draw_heatmap
from di2pose.evaluation.protocol import parse_protocols
from di2pose.evaluation.run import evaluate_dataset
from di2pose.occlusion.patches import Rectangle
from di2pose.occlusion.protocols import advocc_placements

CROP = Rectangle(0, 0, 192, 256)
BLACK = Image.new("RGB", (192, 256))


class OffBy:
    """Record r<i> is off by 10 mm times i."""

    def predict(self, images, samples, hypotheses, steps, seed):
        poses = np.stack([sample.joints_mm for sample in samples])
        poses[:, 1:] += np.float32([10 * int(sample.id[1:]) for sample in samples])[:, None, None]
        return poses[:, None]


def test_the_page_shows_the_worst_records_first_and_nothing_from_elsewhere(make_samples, write_dataset, tmp_path):
    dataset = write_dataset(make_samples(6))
    evaluate_dataset(OffBy(), dataset, parse_protocols("3dpw-14,occ-40"), tmp_path / "out", worst=3)
    page = (tmp_path / "out" / "worst.html").read_text()
    assert re.findall(r"</b> (r\d)", page) == ["r5", "r4", "r3"] * 2
    assert page.count("<svg") == 12
    assert not re.search(r'(src|href)="(?!data:)', page)
    assert not (tmp_path / "out/heatmaps").exists()
    pictures = [Image.open(io.BytesIO(base64.b64decode(code))) for code in re.findall(r"base64,([^\"]+)", page)]
    assert [picture.size for picture in pictures] == [(300, 300)] * 6
    pixels = np.asarray(pictures[0]).astype(int)
    for ink in ((0x15, 0x80, 0x3D), (0xE4, 0x57, 0x2E)):  # truth, prediction
        assert (np.abs(pixels - np.array(ink)).sum(-1) < 60).sum() > 100


def test_poses_without_pictures_still_have_a_page(make_samples, write_dataset, tmp_path):
    dataset = write_dataset(make_samples(2, image=None))
    evaluate_dataset(OffBy(), dataset, parse_protocols("limb-12"), tmp_path / "out")
    page = (tmp_path / "out" / "worst.html").read_text()
    assert (page.count("<figure>"), page.count("<img")) == (2, 0)
    assert "no picture" in page


def test_each_placements_error_is_painted_at_the_centre_of_its_patch():
    placements = advocc_placements(80)
    errors = np.full(len(placements), 50.0)
    errors[100], errors[130], errors[101] = 80.0, 90.0, np.nan
    picture = np.asarray(draw_heatmap(BLACK, BLACK, CROP, 80, errors))

    def at(index):
        x = MARGIN + ZOOM * (placements[index].x + 40)
        return picture[HEADER + ZOOM * (placements[index].y + 40), x].tolist()

    assert at(100) == (COVER * colour(np.asarray(0.75))).astype(np.uint8).tolist()
    assert at(99) == (COVER * colour(np.asarray(0.0))).astype(np.uint8).tolist()
    assert at(101) == [0, 0, 0]
    assert at(130) == [255, 255, 255]  # the mark on the worst
    light = colour(np.linspace(0, 1, 50)).astype(float) @ [0.299, 0.587, 0.114]
    assert (np.diff(light) > 0).all()  # brighter is worse all the way
    with pytest.raises(InputError, match="advocc-40 needs 391 placement errors"):
        draw_heatmap(BLACK, BLACK, CROP, 40, np.zeros(247))


def test_evaluate_draws_the_search_of_the_first_records(make_samples, write_dataset, patch_seer, tmp_path):
    samples = make_samples(3, extra=lambda i: {"weak_spot": (60.0 + 40 * i, 100.0 + 30 * i)})
    protocols, out = parse_protocols("advocc-80", every=1), tmp_path / "out"
    dataset = write_dataset(samples, name="3dpw")
    report = evaluate_dataset(patch_seer(), dataset, protocols, out, batch=64, worst=0, heatmaps=2)
    written = sorted((out / "heatmaps").iterdir())
    assert [path.name for path in written] == ["advocc-80-r0.jpg", "advocc-80-r1.jpg"]
    for path, found in zip(written, report["records"]["advocc-80"]["worst_placement"], strict=False):
        worst = advocc_placements(80)[found["1"]]
        left, top = MARGIN + ZOOM * worst.x, HEADER + ZOOM * worst.y
        frame = np.asarray(Image.open(path))[top + 20 : top + 100, left : left + 2].mean()
        assert frame > 240  # the white frame of the worst patch
