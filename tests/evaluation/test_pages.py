"""worst.html."""

import base64
import io
import re

import numpy as np
from PIL import Image

from di2pose.evaluation.protocol import parse_protocols
from di2pose.evaluation.run import evaluate_dataset


class OffBy:
    """Record r<i> is off by 10 mm times i."""

    def predict(self, images, samples, hypotheses, steps, seed):
        poses = np.stack([sample.joints_mm for sample in samples])
        poses[:, 1:] += np.float32([10 * int(sample.id[1:]) for sample in samples])[:, None, None]
        return poses[:, None]


def test_the_page_shows_the_worst_records_first_and_nothing_from_elsewhere(make_samples, write_dataset, tmp_path):
    dataset = write_dataset(make_samples(4, image=lambda i: None if i == 2 else f"r{i}.png"))
    evaluate_dataset(OffBy(), dataset, parse_protocols("3dpw-14,occ-40"), tmp_path / "out", worst=2)
    page = (tmp_path / "out" / "worst.html").read_text()
    assert re.findall(r"</b> (r\d)", page) == ["r3", "r2", "r3", "r1"]  # r2 cannot be patched
    assert page.count("<svg") == 8
    assert "r2 (no picture)" in page
    assert not re.search(r'(src|href)="(?!data:)', page)
    pictures = [Image.open(io.BytesIO(base64.b64decode(code))) for code in re.findall(r"base64,([^\"]+)", page)]
    assert [picture.size for picture in pictures] == [(300, 300)] * 3
    pixels = np.asarray(pictures[0]).astype(int)
    for ink in ((0x15, 0x80, 0x3D), (0xE4, 0x57, 0x2E)):  # truth, prediction
        assert (np.abs(pixels - np.array(ink)).sum(-1) < 60).sum() > 100
