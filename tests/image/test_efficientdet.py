"""EfficientDet-Lite0: its anchors, and people in real pictures."""

import numpy as np
import pytest

from di2pose.image.boxes import iou
from di2pose.image.efficientdet import INPUT, EfficientDet, anchors, decode


def test_boxes_are_in_the_pixels_of_the_picture(walker):
    part, sizes = walker.crop((730, 430, 1330, 994)), ((300, 282), (1200, 1128))
    found = EfficientDet().begin([part.resize(size) for size in sizes], least=0.2)()
    for size, (boxes, scores) in zip(sizes, found, strict=True):
        best = boxes[scores.argmax()] / (np.array([*size, *size]) / (600, 564, 600, 564))
        assert iou(best.tolist(), (185, 85, 420, 510)) > 0.8
        assert ((scores >= 0.2) & (scores <= 1)).all()


def test_anchors_lie_on_five_grids_in_nine_shapes():
    rows = anchors()
    assert rows.shape == (19206, 4)
    assert rows[0].tolist() == pytest.approx([4, 4, 24, 24])
    assert rows[1].tolist() == pytest.approx([4, 4, 24 / 2**0.5, 24 * 2**0.5])  # wide: height, then width
    assert rows[3, 2] == pytest.approx(24 * 2 ** (1 / 3))
    assert rows[9, :2].tolist() == pytest.approx([4, 12])
    assert rows[-1, :2].tolist() == pytest.approx([INPUT * 5 / 6] * 2)


def test_boxes_are_decoded_from_their_anchors():
    """centre = t * size + centre, size = exp(t) * size."""
    ty, tx, th, tw = raw = np.random.default_rng(0).normal(size=4).astype(np.float32)
    y, x, height, width = anchors()[7000].tolist()
    wide, tall = width * np.exp(tw), height * np.exp(th)
    left, top = tx * width + x - wide / 2, ty * height + y - tall / 2
    found = decode(raw[None], anchors()[7000][None])[0].tolist()
    assert found == pytest.approx([left, top, left + wide, top + tall], abs=1e-3)
