"""EfficientDet-Lite0: the walk in PyTorch against Google's runtime, its anchors, and people in real pictures."""

import numpy as np
import pytest
import torch

from di2pose.image.boxes import iou
from di2pose.image.efficientdet import EfficientDet, anchors
from di2pose.image.glance import BOX_INPUT


@pytest.fixture(scope="module")
def detector():
    return EfficientDet("torch")


def test_the_walk_agrees_with_the_runtime(detector, astronaut, walker):
    """To a few of the levels that 8 bits can tell: a score has 256 of them, and errors of rounding add up."""
    theirs = EfficientDet("litert")
    for picture in (astronaut, walker):
        (our_boxes, our_scores), (their_boxes, their_scores) = detector.look(picture), theirs.look(picture)
        assert np.abs(our_scores - their_scores).max() < 0.1
        assert np.abs(our_scores - their_scores).mean() < 0.001
        assert our_scores.max() == pytest.approx(their_scores.max(), abs=0.03)
        ours, others = our_boxes[our_scores.argmax()], their_boxes[their_scores.argmax()]
        assert iou(ours.tolist(), others.tolist()) > 0.9


def test_boxes_are_in_the_pixels_of_the_picture(detector, walker):
    part = walker.crop((730, 430, 1330, 994))
    for size in ((600, 564), (300, 282), (1200, 1128)):
        boxes, scores = detector.look(part.resize(size))
        best = boxes[scores.argmax()] / (np.array([*size, *size]) / (600, 564, 600, 564))
        assert iou(best.tolist(), (185, 85, 420, 510)) > 0.8


def test_anchors_lie_on_five_grids_in_nine_shapes():
    rows = anchors()
    assert tuple(rows.shape) == (19206, 4)
    assert rows[0].tolist() == pytest.approx([4, 4, 24, 24])
    assert rows[1].tolist() == pytest.approx([4, 4, 24 / 2**0.5, 24 * 2**0.5])  # wide: height, then width
    assert rows[3, 2].item() == pytest.approx(24 * 2 ** (1 / 3))
    assert rows[9, :2].tolist() == pytest.approx([4, 12])
    assert rows[-1, :2].tolist() == pytest.approx([BOX_INPUT * 5 / 6] * 2)


def test_boxes_are_decoded_from_their_anchors(detector):
    """The formulae on the network's own numbers: centre = t * size + centre, size = exp(t) * size."""
    pixels = torch.full((1, BOX_INPUT, BOX_INPUT, 3), 127, dtype=torch.uint8)
    with torch.inference_mode():
        boxes, scores = detector(pixels)
        _, raw = detector.graph(torch.zeros(1, BOX_INPUT, BOX_INPUT, 3))
    y, x, height, width = anchors()[7000].tolist()
    ty, tx, th, tw = raw[0, 7000].tolist()
    wide, tall = width * np.exp(tw), height * np.exp(th)
    left, top = tx * width + x - wide / 2, ty * height + y - tall / 2
    assert boxes[0, 7000].tolist() == pytest.approx([left, top, left + wide, top + tall], abs=1e-3)
    assert ((scores >= 0) & (scores <= 1)).all()
