"""The rendered set: geometry of the labels, the same pictures from any run, and what a user can do wrong."""

import io
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from di2pose_people.motion import CLASSES, library
from di2pose_people.render import render_people
from di2pose_people.sampling import Plan, picture, picture_path
from di2pose_people.view import SIZE
from PIL import Image

from di2pose.cli import main
from di2pose.data.sample import Dataset
from di2pose.errors import InputError
from di2pose.image.crop import Roi, crop, crop_camera
from di2pose.pose.skeleton import H36M_21, bone_lengths

KILLED = """
import os, sys
from pathlib import Path
from di2pose_people import sampling
from di2pose_people.render import Plan, render_people

draw = sampling.picture

def die_in_the_third_shard(plan, index):
    if index == 10:
        os.kill(os.getpid(), 9)
    return draw(plan, index)

sampling.picture = die_in_the_third_shard
render_people(Plan(Path(sys.argv[1]), "train", 3, settled=0.0), Path(sys.argv[2]), 12, shard=4)
"""


def same(a: Dataset, b: Dataset) -> bool:
    """Records and pictures, bit for bit."""
    names = [
        *(f"{name}.npy" for name in ("joints_mm", "root_mm", "joints_2d", "valid", "visibility", "box")),
        "index.jsonl",
        "cameras.json",
    ]
    pictures = [line["image"] for line in a.index]
    return all((a.folder / name).read_bytes() == (b.folder / name).read_bytes() for name in names + pictures)


def test_pictures_are_square_and_their_camera_takes_3d_joints_to_2d(people):
    for sample in people:
        image = np.asarray(people.read_image(sample))
        assert (image.shape, image.dtype) == ((256, 256, 3), np.uint8)
        assert image.std() > 10
        assert sample.fault(H36M_21) is None
        pixels = sample.camera.project(sample.joints_mm.astype(np.float64) + sample.root_mm)
        assert np.abs(pixels - sample.joints_2d).max() < 0.1


def test_bones_are_those_of_adults(people):
    lengths = dict(zip(H36M_21.bones, bone_lengths(people.joints_mm, H36M_21).T, strict=True))
    for child, parent, low, high in (
        ("right_knee", "right_hip", 340, 510), ("right_ankle", "right_knee", 360, 520),
        ("left_elbow", "left_shoulder", 220, 320), ("left_wrist", "left_elbow", 185, 305),
        ("right_hip", "pelvis", 80, 140), ("left_shoulder", "thorax", 135, 235),
        ("spine", "pelvis", 180, 310), ("head", "nose", 115, 185),
        ("left_heel", "left_ankle", 50, 110), ("right_toe", "right_ankle", 160, 270),
    ):  # fmt: skip
        found = lengths[H36M_21.index(child), H36M_21.index(parent)]
        assert low < found.min() <= found.max() < high, (child, parent, found)


def test_limbs_are_equally_long_and_the_pelvis_is_the_middle_of_the_hips(people):
    joints = people.joints_mm
    mirrored = joints[:, list(H36M_21.mirror_order)]
    limbs = ["_" in H36M_21.joints[parent] for _, parent in H36M_21.bones]  # collar bones move: shoulders may differ
    assert sum(limbs) == 12
    assert np.abs(bone_lengths(joints, H36M_21) - bone_lengths(mirrored, H36M_21))[:, limbs].max() < 1
    assert np.abs(joints[:, 0]).max() == 0
    assert np.abs(joints[:, H36M_21.indices("left_hip", "right_hip")].mean(axis=1)).max() < 0.01


def test_two_workers_and_other_shards_make_the_same_set(plan, people, tmp_path):
    render_people(plan, tmp_path, 12, workers=2, shard=6)
    assert same(people, Dataset(tmp_path))


def test_a_killed_run_resumes_to_the_identical_set_or_to_another_count(plan, motion, people, tmp_path):
    whole, shorter = tmp_path / "whole", tmp_path / "shorter"
    run = subprocess.run([sys.executable, "-c", KILLED, str(motion), str(whole)], capture_output=True)
    assert run.returncode == -9, run.stderr
    with pytest.raises(InputError, match="unfinished"):
        Dataset(whole)
    assert len(list(whole.rglob("*.npz"))) == 2
    shutil.copytree(whole, shorter)
    with pytest.raises(InputError, match="unfinished preparation with other settings"):
        render_people(replace(plan, seed=5), shorter, 12)
    (whole / picture_path(10)).write_bytes(b"half a file")  # what a kill in the middle of writing leaves
    assert render_people(plan, whole, 12, shard=4) == 4
    assert same(people, Dataset(whole))
    assert render_people(plan, shorter, 6, shard=4) == 2
    assert [line["id"] for line in Dataset(shorter).index] == [line["id"] for line in people.index][:6]


def test_a_larger_count_extends_and_a_whole_set_is_left_alone(plan, people, tmp_path):
    assert render_people(plan, tmp_path, 3, shard=2) == 3
    assert render_people(plan, tmp_path, 3, shard=2) == 0
    assert render_people(plan, tmp_path, 4, shard=2) == 2
    longer = Dataset(tmp_path)
    assert np.array_equal(longer.joints_mm, people.joints_mm[:4])
    assert list(longer.index) == list(people.index)[:4]


def test_rendered_people_are_a_prepared_dataset_without_faults(folder, tmp_path, capsys):
    """`data check` reads it like any other; the crop that a record asks for is the picture itself."""
    assert main(["data", "check", str(folder), "--out", str(tmp_path), "--samples", "4"]) == 0
    report = capsys.readouterr().out
    assert "people: 12 records, h36m_21, 0 skipped" in report
    assert "no problem found" in report
    dataset = Dataset(folder)
    for sample in (dataset[i] for i in range(4)):
        x, y, side, angle = sample.extra["roi"]
        picture = dataset.read_image(sample)
        assert np.array_equal(crop(picture, Roi((x, y), side, angle), SIZE), np.asarray(picture))
        _, rotation = crop_camera(sample.camera, Roi((x, y), side, angle), SIZE)
        assert np.allclose(rotation, np.eye(3), atol=1e-12)
        assert sample.action == sample.extra["pose_class"]


def test_another_seed_gives_other_people(plan):
    first, other = picture(plan, 0), picture(replace(plan, seed=4), 0)
    assert first.jpeg != other.jpeg
    assert not np.allclose(first.sample.extra["sliders"], other.sample.extra["sliders"])


def test_test_split_shows_held_out_subjects_only(plan, people):
    held_out = replace(plan, split="test")
    assert {picture(held_out, i).sample.subject for i in range(2)} == {"060"}
    assert "060" not in people.column("subject")


def test_wrong_folders_and_shares_are_named(plan, motion, folder, tmp_path):
    with pytest.raises(InputError, match="is not a folder"):
        render_people(Plan(tmp_path / "nothing"), tmp_path / "out", 4)
    with pytest.raises(InputError, match=r"no \.bvh file below"):
        render_people(Plan(tmp_path), tmp_path / "out", 4)
    with pytest.raises(InputError, match="wants a folder of photos"):
        render_people(Plan(motion, backgrounds=motion), tmp_path / "out", 4)
    with pytest.raises(InputError, match=r"holds another set \(seed 3, not 5"):
        render_people(replace(plan, seed=5), folder, 12)
    with pytest.raises(InputError, match=r"natural False, not True; standing 0\.3, not 0\.0"):
        render_people(replace(plan, attacked=1.0, natural=True), folder, 12)
    with pytest.raises(InputError, match="at most 1 together"):
        Plan(motion, settled=0.8, standing=0.4)
    for name in ("attacked", "settled", "standing"):
        with pytest.raises(InputError, match=rf"--{name} is a share of the people, 0 to 1, got 1\.5"):
            Plan(motion, **{name: 1.5})


@pytest.mark.parametrize("command", ["render", "features"])
def test_the_commands_take_the_options_of_a_plan(motion, tmp_path, capsys, command):
    assert main(["people", command, "--motion", str(motion), "--out", str(tmp_path / "out"), "--settled", "2"]) != 0
    assert "--settled is a share of the people, 0 to 1, got 2" in capsys.readouterr().err
    assert main(["people", command, "--motion", str(motion), "--out", str(tmp_path / "out"), "--count", "0"]) != 0
    assert "1 or more, got 0" in capsys.readouterr().err


def test_photos_stand_behind_people(plan, tmp_path):
    Image.new("RGB", (640, 480), (0, 255, 0)).save(tmp_path / "green.png")
    jpegs = [io.BytesIO(picture(replace(plan, backgrounds=tmp_path), i).jpeg) for i in range(4)]
    made = [np.asarray(Image.open(jpeg)).astype(int) for jpeg in jpegs]
    green = [((image[..., 1] > image[..., 0] + 60) & (image[..., 1] > image[..., 2] + 60)).mean() for image in made]
    assert max(green) > 0.3


def test_attacked_people_stand_behind_large_patches(plan, people):
    attacked = [picture(replace(plan, attacked=1.0), i).sample.extra for i in range(8)]
    assert {extra["occlusion"] for extra in attacked} == {"patch"}
    hidden = [[extra["hidden"] for extra in some] for some in (attacked, [sample.extra for sample in people])]
    assert np.mean(hidden[0]) > 2 * np.mean(hidden[1])


def test_natural_poses_are_as_often_as_in_the_motion(motion):
    poses, generator = library(motion, "train"), np.random.default_rng(0)
    for natural in (True, False):
        drawn = [CLASSES[poses.classes[poses.draw(generator, natural)]] for _ in range(2000)]
        most = max(poses.members, key=lambda name: len(poses.members[name][0]))
        share = len(poses.members[most][0]) / sum(len(frames) for frames, _ in poses.members.values())
        assert (abs(drawn.count(most) / 2000 - share) < 0.05) == natural
    assert (Plan(motion, natural=True).settled_share, Plan(motion).settled_share) == (0.0, 0.1)


ORPHANED = """
import multiprocessing, os, signal, time
from di2pose_people.render import begin_worker

def work():
    begin_worker()
    print(os.getpid(), flush=True)
    time.sleep(120)

if __name__ == "__main__":
    multiprocessing.get_context("spawn").Process(target=work).start()
    time.sleep(120)
"""


def test_a_worker_ends_with_its_parent(tmp_path):
    script = tmp_path / "orphaned.py"
    script.write_text(ORPHANED)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as parent:
        worker = int(parent.stdout.readline())
        os.kill(worker, 0)  # it lives
        parent.kill()
        assert parent.stdout.read() == ""  # the worker held the pipe: it is read to its end when both are gone


def test_the_benchmark_of_angles_measures_rendered_people(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    import angles

    angles.main(folder, limit=3, hypotheses=2, out=tmp_path / "a.json")
    assert "| knee flexion " in capsys.readouterr().out
    report = json.loads((tmp_path / "a.json").read_text())
    assert report["poses"] == 3
    knees = report["angles"]["knee_flexion"]["all"]
    assert 0 < knees["count"] <= 2 * (report["poses"] - report["missed"])
    assert 0 <= knees["median"] < 90
    assert 0 <= knees["held"] <= 1
