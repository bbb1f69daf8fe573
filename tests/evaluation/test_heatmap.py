import numpy as np
import pytest
from PIL import Image

from di2pose.errors import InputError
from di2pose.evaluation.evaluate import evaluate_dataset
from di2pose.evaluation.heatmap import COVER, HEADER, MARGIN, ZOOM, colour, draw_heatmap
from di2pose.evaluation.protocol import parse_protocols
from di2pose.occlusion.patches import Rectangle
from di2pose.occlusion.protocols import advocc_placements

CROP = Rectangle(0, 0, 192, 256)
BLACK = Image.new("RGB", (192, 256))


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
    assert at(130) == [255, 255, 255]  # the cross on the worst


def test_brighter_is_worse_all_the_way():
    light = colour(np.linspace(0, 1, 50)).astype(float) @ [0.299, 0.587, 0.114]
    assert (np.diff(light) > 0).all()


def test_the_wrong_number_of_errors_is_refused():
    with pytest.raises(InputError, match="advocc-40 needs 391 placement errors"):
        draw_heatmap(BLACK, BLACK, CROP, 40, np.zeros(247))


def test_evaluate_draws_the_search_of_the_first_records(make_samples, write_dataset, patch_seer, tmp_path):
    """Every picture shows where its own record is weak, and a name with signs in it is no folder."""
    samples = make_samples(3, extra=lambda i: {"weak_spot": (60.0 + 40 * i, 100.0 + 30 * i)})
    dataset = write_dataset(samples, name="3dpw")
    report = evaluate_dataset(
        patch_seer(), dataset, parse_protocols("advocc-80", every=1), tmp_path / "out", batch=64, worst=0, heatmaps=2
    )
    written = sorted((tmp_path / "out/heatmaps").iterdir())
    assert [path.name for path in written] == ["advocc-80-r0.jpg", "advocc-80-r1.jpg"]
    for path, found in zip(written, report["records"]["advocc-80"]["worst_placement"], strict=False):
        worst = advocc_placements(80)[found["1"]]
        left, top = MARGIN + ZOOM * worst.x, HEADER + ZOOM * worst.y
        frame = np.asarray(Image.open(path))[top + 20 : top + 100, left : left + 2].mean()
        assert frame > 240  # the white frame of the worst patch


def test_without_a_patch_there_is_nothing_to_draw(make_samples, write_dataset, patch_seer, tmp_path):
    samples = make_samples(2, extra={"weak_spot": (100.0, 100.0)})
    evaluate_dataset(patch_seer(), write_dataset(samples), parse_protocols("limb-12"), tmp_path / "out")
    assert not (tmp_path / "out/heatmaps").exists()
