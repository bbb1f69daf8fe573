"""The peer on real footage: BlazePose's own 3D, found, cropped and turned as any predictor of ours."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from di2pose.errors import InputError
from di2pose.evaluation.predictors import Predictor, load_predictor
from di2pose.evaluation.protocol import parse_protocols
from di2pose.evaluation.run import evaluate_dataset
from di2pose.image.detect import PersonMatcher
from di2pose.pose.metrics import mpjpe, pa_mpjpe
from di2pose.pose.skeleton import BLAZEPOSE_33, H36M_17, LIMB_12


@pytest.fixture(scope="module")
def peer():
    return load_predictor("blazepose-full")


def error_of(peer, samples, footage):
    """(MPJPE with the middle of the hips aligned, PA-MPJPE) of each record, over the twelve limb joints."""
    found = peer.predict([footage.read_image(sample) for sample in samples], samples, hypotheses=2, steps=1, seed=0)
    assert found.shape == (len(samples), 2, 33, 3)
    assert np.array_equal(found[:, 0], found[:, 1])
    pred = torch.from_numpy(found[:, 0][:, BLAZEPOSE_33.indices(*LIMB_12)])
    true = torch.from_numpy(np.stack([s.joints_mm for s in samples])[:, H36M_17.indices(*LIMB_12)]).double()
    hips = (LIMB_12.index("left_hip"), LIMB_12.index("right_hip"))
    return mpjpe(pred, true, root=hips), pa_mpjpe(pred, true)


def test_the_finder_centres_on_the_hips(footage):
    for row in (10, 310):
        sample = footage[row]
        roi = PersonMatcher()(sample, footage.read_image(sample))
        hips = sample.joints_2d[H36M_17.indices("left_hip", "right_hip"),].mean(0)
        assert np.hypot(*(hips - roi.centre)) < 0.1 * roi.side


def test_it_sees_the_man_in_all_four_views_and_turns_him_into_camera_axes(footage, peer):
    assert isinstance(peer, Predictor)
    errors, aligned = error_of(peer, [footage[row] for row in (10, 110, 210, 310)], footage)
    assert errors.median() < 130  # this smaller network may read one of them wrong, by what few pixels decide
    assert errors.mean() < 180
    assert aligned.mean() < 120


def test_an_evaluation_reports_its_error(footage, peer, tmp_path):
    report = evaluate_dataset(
        peer, footage, parse_protocols("limb-12", every=100, split=None), tmp_path, name="peer", worst=0
    )
    assert report is not None
    numbers = {row["metric"]: row for row in report["numbers"]}
    errors, aligned = error_of(peer, [footage[row] for row in (0, 100, 200, 300)], footage)
    assert numbers["mpjpe"]["count"] == 4
    assert numbers["mpjpe"]["value"] == pytest.approx(errors.mean().item(), rel=1e-4)
    assert numbers["pa_mpjpe"]["value"] == pytest.approx(aligned.mean().item(), rel=1e-4)


def test_what_it_cannot_do_is_named(footage, peer, tmp_path):
    sample = footage[0]
    with pytest.raises(InputError, match="has no picture"):
        peer.predict([None], [sample], 1, 1, 0)
    with pytest.raises(InputError, match="none of the peers blazepose-heavy"):
        load_predictor(str(tmp_path / "nothing"))
    blank = footage.read_image(sample).crop((0, 0, 64, 64))
    with pytest.raises(InputError, match="finds no person"):
        PersonMatcher()(replace(sample, box=None), blank)
