"""Feature caches as records: every estimate of a tiny model, peers, flip test, groups, by the commands."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

from di2pose.baselines.regression import Regression
from di2pose.cli import main
from di2pose.data.sample import SEEN
from di2pose.errors import InputError
from di2pose.evaluation.predictors import load_predictor
from di2pose.evaluation.records import CachedRecords, open_records
from di2pose.evaluation.run import Run, evaluate
from di2pose.model import load_model, save_model
from di2pose.noise import hypothesis_generators
from di2pose.pose.metrics import joint_errors, mpjpe, procrustes
from di2pose.pose.skeleton import BLAZEPOSE_33, H36M_17, LIMB_12, mirror

COUNT = 12
LIMBS = list(H36M_17.indices(*LIMB_12))
HIPS = H36M_17.indices("left_hip", "right_hip")
IDS = [f"id{i}" for i in range(COUNT)]


def parts_of(joints):
    """What an encoder sees of poses: features that are made of the joints, and an own 3D that is 10 % too large."""
    world = np.zeros((len(joints), BLAZEPOSE_33.count, 3), np.float32)
    world[:, list(BLAZEPOSE_33.indices(*LIMB_12))] = 1.1 * joints[:, list(H36M_17.indices(*LIMB_12))]
    return {"tokens": np.concatenate([joints, joints**2 / 500], -1).astype(np.float32) / 1000, "world_mm": world}


@pytest.fixture(scope="module")
def poses(standing):
    return standing(COUNT)


@pytest.fixture(scope="module")
def features(tmp_path_factory, write_cache, poses):
    here = parts_of(poses)
    rng, number = np.random.default_rng(0), np.arange(COUNT)
    labels = {"joints_mm": poses, "visibility": rng.integers(0, 4, (COUNT, 17)).astype(np.int8)}
    labels |= {"occlusion": (number % 3).astype(np.int8), "truncated": (number % 2).astype(np.int8)}
    folder = tmp_path_factory.mktemp("features") / "crops"
    actions = ["seated" if i % 2 else "upright" for i in range(COUNT)]
    return write_cache(folder, {**labels, "world_mm": here["world_mm"]}, here["tokens"], actions=actions)


@pytest.fixture(scope="module")
def flipped(tmp_path_factory, write_cache, poses):
    here, there = parts_of(poses), parts_of(mirror(poses, H36M_17))
    columns = {"joints_mm": poses, "world_mm": here["world_mm"]}
    columns |= {f"flipped_{name}": values for name, values in there.items()}
    return write_cache(tmp_path_factory.mktemp("features") / "both", columns, here["tokens"])


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_model):
    folder = tmp_path_factory.mktemp("run")
    save_model(tiny_model(6), folder / "model")
    return folder


@pytest.fixture(scope="module")
def regression(tmp_path_factory):
    torch.manual_seed(0)
    return save_model(Regression(Regression.recipe("none", 17, 6)), tmp_path_factory.mktemp("regression") / "plain")


def value(report, key, protocol="limb-12", part="value"):
    hypotheses, estimate, metric = key.split("/")
    wanted = {"protocol": protocol, "hypotheses": int(hypotheses), "estimate": estimate, "metric": metric}
    (found,) = [n[part] for n in report["numbers"] if wanted.items() <= n.items()]
    return found


def evaluated(model, data, out, **options):
    """The report of the command."""
    assert evaluate((str(model),), data=data, out=out, **{"steps": "1", "worst": 0, **options}) == 0
    return json.loads((out / "report.json").read_text())


def errors_of(joints, truth):
    """MPJPE and PA-MPJPE of every limb joint, aligned at the middle of the hips, as metric -> (n, 12)."""
    joints, truth = (pose - pose[:, HIPS].mean(1, keepdim=True) for pose in (joints, truth))
    pred, target = joints[:, LIMBS].double(), truth[:, LIMBS].double()
    return {"mpjpe": joint_errors(pred, target), "pa_mpjpe": joint_errors(procrustes(pred, target), target)}


def test_records_of_a_cache_are_samples_without_pictures(features, poses):
    records = open_records(features)
    assert isinstance(records, CachedRecords)
    assert (len(records), records.name, records.skeleton) == (COUNT, "crops", H36M_17)
    sample = records[11]
    assert (sample.id, sample.split, sample.frame, sample.image, sample.row) == ("id11", "test", 11, None, 11)
    np.testing.assert_array_equal(sample.joints_mm, poses[11])
    assert records.select(action="seated").tolist() == list(range(1, COUNT, 2))
    assert not records.only_hidden_labelled
    with pytest.raises(InputError, match="no picture"):
        records.read_image(sample)


def test_every_estimate_is_a_row_of_one_table(run, features, poses, tmp_path, capsys):
    """Its own errors, over all joints, over groups of them and by action, against plain sums."""
    options = {"protocol": "limb-12,all-17", "hypotheses": "3", "steps": "2", "seeds": "0,5"}
    report = evaluated(run, features, tmp_path, **options)
    text = capsys.readouterr().out
    for words in ("mean of 3 (p-agg)", "best of 3 (p-best, oracle)", "(peer)", "regression", "rank corr", "seeds 0, 5"):
        assert words in text
    model, records, truth = load_model(run), CachedRecords(features), torch.from_numpy(poses)
    y = records.cache.features(np.arange(COUNT))
    at_hips = truth - truth[:, HIPS].mean(1, keepdim=True)
    assert value(report, "0/peer/mpjpe") == pytest.approx(float(0.1 * at_hips[:, LIMBS].norm(dim=-1).mean()), rel=1e-4)
    assert value(report, "0/peer/pa_mpjpe") < 0.1
    assert not [n for n in report["numbers"] if n["protocol"] == "all-17" and n["estimate"] == "peer"]
    points = model.point_estimates(y)
    assert set(points) == {"regression", "soft decode"}
    for name, pose in points.items():
        assert value(report, f"0/{name}/mpjpe", "all-17") == pytest.approx(float(mpjpe(pose, truth).mean()), rel=1e-4)

    drawn = [model.predict(y, 3, 2, hypothesis_generators(seed, IDS, 3)).joints_mm for seed in (0, 5)]
    means = [float(errors_of(samples.mean(1), truth)["pa_mpjpe"].mean()) for samples in drawn]
    assert value(report, "3/p-agg/pa_mpjpe") == pytest.approx(np.mean(means), rel=1e-4)
    assert value(report, "3/p-agg/pa_mpjpe", part="deviation") == pytest.approx(np.std(means, ddof=1), rel=1e-3)
    assert value(report, "0/peer/mpjpe", part="deviation") is None
    ratio = value(report, "3/p-agg/mpjpe") / value(report, "0/peer/mpjpe")
    assert value(report, "3/p-agg/mpjpe", part="ratio") == pytest.approx(ratio)
    each = [errors_of(samples[:, h], truth)["mpjpe"].mean() for samples in drawn for h in range(3)]
    assert value(report, "3/sample/mpjpe") == pytest.approx(float(np.mean(each)), rel=1e-4)
    assert value(report, "3/p-best/mpjpe", part="oracle") is True

    visibility = torch.from_numpy(records.visibility[:, LIMBS].astype(int))
    masks = {"hidden": visibility > SEEN, "seen": visibility == SEEN}
    for key, estimates in (("3/p-agg", [s.mean(1) for s in drawn]), ("0/regression", [points["regression"]])):
        found = [errors_of(pose, truth) for pose in estimates]
        for metric in ("mpjpe", "pa_mpjpe"):
            for group, mask in masks.items():  # the joints of all records are pooled
                expected = np.mean([float(errors[metric][mask].mean()) for errors in found])
                assert value(report, f"{key}/{metric}_{group}") == pytest.approx(expected, rel=1e-4)
                assert value(report, f"{key}/{metric}_{group}", part="count") == int(mask.sum())
    assert np.array(report["states"]["all-17"]["counts"]).sum() == COUNT * 17
    spread = report["spread"]["limb-12"]
    assert spread["all"]["joints"] == 2 * COUNT * 12
    aligned = [samples - samples[:, :, HIPS].mean(2, keepdim=True) for samples in drawn]
    trace = [float(s[:, :, LIMBS].double().var(1).sum(-1).sqrt()[visibility > SEEN].mean()) for s in aligned]
    assert spread["hidden"]["spread_mm"] == pytest.approx(np.mean(trace), rel=1e-3)

    table = report["actions"]["limb-12"]
    assert (table["names"], table["counts"]) == (["seated", "upright"], [6, 6])
    seated = errors_of(points["regression"], truth)["mpjpe"][1::2]
    assert table["mean_mm"]["0/regression/mpjpe"][0] == pytest.approx(float(seated.mean()), rel=1e-4)
    text = (tmp_path / "report.md").read_text()
    for words in ("## Seen and hidden joints", "said occluded", "## By action: seated, upright"):
        assert words in text


def test_with_mirror_images_estimates_are_flip_tested(run, flipped, poses):
    records, rows = CachedRecords(flipped), np.arange(COUNT)
    samples = [records[row] for row in rows.tolist()]
    predictors = (load_predictor(str(run), records, flip_test=flip_test) for flip_test in (True, False))
    both, alone = (predictor.predict([None] * COUNT, samples, 4, 1, 0) for predictor in predictors)
    assert set(both.others) - set(alone.others) == {"peer, flip test"}
    # This peer is not misled by mirrors.
    np.testing.assert_allclose(both.others["peer, flip test"][0], both.others["peer"][0], atol=1e-3)
    model, y, there = load_model(run), records.cache.features(rows), records.cache.features(rows, flipped=True)
    assert (y - there).abs().max() > 0.01
    read = [model.point_estimates(part)["regression"] for part in (y, there)]
    np.testing.assert_allclose(alone.others["regression"][0], read[0], atol=1e-3)
    mean = (read[0] + mirror(read[1], H36M_17)) / 2
    np.testing.assert_allclose(both.others["regression"][0], mean, atol=1e-3)
    first, second = (
        model.predict(part, 2, 1, [noise[4 * i + h] for i in rows for h in half]).joints_mm
        for part, half in ((y, (0, 1)), (there, (2, 3)))
        for noise in [hypothesis_generators(0, IDS, 4)]
    )
    drawn = torch.cat([first, mirror(second, H36M_17)], 1)
    np.testing.assert_allclose(both.samples_mm.mean(1), drawn.mean(1), atol=1e-2)


def test_plain_crops_have_nothing_before_them_and_nothing_outside(run, features, flipped, tmp_path):
    options = {"protocol": "all-17", "hypotheses": "1", "plain": True}
    report = evaluated(run, features, tmp_path, limit=2, **options)
    assert report["records"]["all-17"]["ids"] == ["id0", "id6"]
    with pytest.raises(InputError, match="does not say what stands before its people"):
        evaluated(run, flipped, tmp_path / "other", **options)


def test_footage_that_labels_only_what_a_patch_hides_counts_all_other_joints_as_seen(run, write_cache, poses, tmp_path):
    visibility = np.full((COUNT, 17), -1, np.int8)
    visibility[::2, H36M_17.index("left_wrist")] = 2  # in every other record the patch hides nothing that counts
    folder = write_cache(tmp_path / "occ", {"joints_mm": poses, "visibility": visibility}, parts_of(poses)["tokens"])
    report = evaluated(run, folder, tmp_path / "out", hypotheses="2")
    assert value(report, "2/p-agg/mpjpe_hidden", part="count") == COUNT // 2
    assert value(report, "2/p-agg/mpjpe_seen", part="count") == COUNT * 12 - COUNT // 2
    assert report["states"] == {}


def test_several_models_and_numbers_of_steps_are_rows_of_one_table(run, regression, features, tmp_path, capsys):
    for name in ("model", "best"):
        shutil.copytree(run / "model", tmp_path / "paper" / name)
    models, out = (str(tmp_path / "paper"), str(tmp_path / "paper" / "best"), str(regression)), tmp_path / "out"
    evaluate(models, data=features, out=out, hypotheses="1", steps="1,2", limit=2)
    text, joint = capsys.readouterr().out, json.loads((out / "report.json").read_text())["models"]
    names = [f"{name}-{steps}-steps" for name in ("paper", "paper-best", "plain") for steps in (1, 2)]
    assert list(joint) == names
    assert [report["run"]["steps"] for report in joint.values()] == [1, 2] * 3
    for name in names:
        assert json.loads((out / name / "report.json").read_text()) == joint[name]
        assert f"| {name}" in text
    one, two, same = (joint[name]["numbers"] for name in names[:3])
    assert one == same != two  # the same weights
    y = CachedRecords(features).cache.features(np.arange(2))
    read = load_model(regression).predict(y, 1, 1, torch.Generator()).joints_mm[:, 0]
    expected = errors_of(read, torch.from_numpy(CachedRecords(features).joints_mm[:2]))["mpjpe"].mean()
    assert value(joint["plain-1-steps"], "1/single/mpjpe") == pytest.approx(float(expected), rel=1e-4)


def test_what_a_cache_cannot_do_is_named(run, features, write_cache, poses, tmp_path):
    other = write_cache(tmp_path / "wide", {"joints_mm": poses}, np.zeros((COUNT, 5, 9)), encoder="vitpose:x")
    train = write_cache(tmp_path / "train", {"joints_mm": poses}, parts_of(poses)["tokens"], split="train")
    for model, data, protocol, message in (
        (run, features, "occ-80", r"occ-80 put patches on the pictures.*features --occlusion"),
        ("blazepose-heavy", features, "limb-12", "needs pictures; its 3D of cached crops is the row 'peer'"),
        (run, other, "limb-12", r"wants 17 image tokens of width 6; .*\(vitpose:x\) holds 5 of width 9"),
        (run, train, "limb-12", "another split is chosen by --split"),
    ):
        with pytest.raises(InputError, match=message):
            evaluated(model, data, tmp_path / "out", protocol=protocol)
    evaluated(run, train, tmp_path / "all", hypotheses="1", split="all", limit=2)
    with pytest.raises(InputError, match="--no-fit is for feature caches"):
        load_predictor(str(run), fit=False)


def test_hypotheses_are_fitted_to_landmarks_unless_told_otherwise(run, write_cache, poses, tmp_path):
    here = parts_of(poses)
    focal, depth = 300.0, 4000.0
    seen = 128 + focal * poses[..., :2] / (poses[..., 2:] + depth)
    marks = np.full((COUNT, BLAZEPOSE_33.count, 2), 128.0, np.float32)
    marks[:, list(BLAZEPOSE_33.indices(*LIMB_12))] = seen[:, LIMBS]
    sure = np.ones((COUNT, BLAZEPOSE_33.count, 5), np.float32)
    columns = {"joints_mm": poses, "landmarks_2d": marks, "landmarks": sure, "focal": np.full(COUNT, focal, np.float32)}
    cache = write_cache(tmp_path / "landmarks", columns, here["tokens"])
    records = CachedRecords(cache)
    fitted, drawn = (
        load_predictor(str(run), records, fit=fit).predict([None] * 4, [records[k] for k in range(4)], 2, 1, 0)
        for fit in (True, False)
    )
    assert drawn.fitted_mm is None
    plain = load_model(run).predict(records.cache.features(np.arange(4)), 2, 1, hypothesis_generators(0, IDS[:4], 2))
    np.testing.assert_allclose(drawn.samples_mm, plain.joints_mm, atol=1e-2)
    # An untrained network knows nothing: what the picture shows is all that there is, but its limbs must be possible.
    error = {name: np.linalg.norm(each.samples_mm.mean(1) - poses[:4], axis=-1).mean()
             for name, each in (("fitted", fitted), ("drawn", drawn))}  # fmt: skip
    assert error["fitted"] < 0.85 * error["drawn"]
    report = evaluated(run, cache, tmp_path / "out", protocol="all-17", hypotheses="2", limit=1)
    assert "fitted" in {number["estimate"] for number in report["numbers"]}


def test_precision_temperature_and_top_r_are_chosen_and_named(features, run, regression, tmp_path):
    options = {"limit": 4, "hypotheses": "2"}
    plain = evaluated(run, features, tmp_path / "plain", **options)
    assert "bfloat16" not in plain["run"]["predictor"]  # on a processor
    sharp = evaluated(run, features, tmp_path / "sharp", temperature=0.1, top_r=0.5, fit=False, **options)
    assert "not fitted, temperature 0.1, top_r 0.5" in sharp["run"]["predictor"]
    assert value(plain, "0/regression/mpjpe") == value(sharp, "0/regression/mpjpe")
    assert value(plain, "2/p-agg/mpjpe") != value(sharp, "2/p-agg/mpjpe")
    half = evaluated(run, features, tmp_path / "half", precision="bfloat16", **options)
    assert half["run"]["predictor"].endswith("bfloat16)")
    values = [value(each, "0/regression/mpjpe") for each in (plain, half)]
    assert values[0] != values[1] == pytest.approx(values[0], rel=0.01)
    with pytest.raises(InputError, match="of kind 'regression'"):
        evaluated(regression, features, tmp_path / "none", temperature=0.1, **options)


def test_ranks_that_each_finish_another_model_last_write_the_report_of_one_process(
    features, run, tmp_path, monkeypatch
):
    words = [*map(str, ("evaluate", run, "--data", features, "--hypotheses", 1, "--steps", "1,2", "--limit", 4))]
    words += ["--batch", "1"]
    assert main([*words, "--out", str(tmp_path / "one")]) == 0
    words += ["--out", str(tmp_path / "two")]
    monkeypatch.setenv("WORLD_SIZE", "2")
    begun, real = [], Run.write

    def overtaken(self, out):
        """Rank 1 does all of its work after rank 0 has done its records of the first model."""
        monkeypatch.setenv("RANK", "0")
        begun.append(found := real(self, out))
        if len(begun) == 1:
            monkeypatch.setenv("RANK", "1")
            with monkeypatch.context() as other:
                other.setattr(Run, "write", real)
                assert main(words) == 0
            monkeypatch.setenv("RANK", "0")
        return found

    monkeypatch.setattr(Run, "write", overtaken)
    assert main(words) == 0
    assert begun[0] is None  # rank 1 finished the first model last
    assert (tmp_path / "two" / "report.json").read_bytes() == (tmp_path / "one" / "report.json").read_bytes()


def test_two_processes_under_torchrun_give_the_report_of_one(features, run, tmp_path):
    words = ("evaluate", run, "--data", features, "--hypotheses", "1", "--steps", 2, "--limit", 4, "--batch", 1)
    assert main([*map(str, words), "--out", str(tmp_path / "one")]) == 0
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "di2pose")
    command, env = [*torchrun, *map(str, words), "--out", str(tmp_path / "two")], os.environ | {"OMP_NUM_THREADS": "1"}
    two = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert two.returncode == 0, two.stderr[-3000:]
    assert (tmp_path / "two" / "report.json").read_bytes() == (tmp_path / "one" / "report.json").read_bytes()
