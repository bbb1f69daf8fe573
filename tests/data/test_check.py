"""`di2pose data check` passes good sets and finds what is commonly wrong with bad ones."""

import re
from dataclasses import replace

import numpy as np
import pytest
from data.cmu_files import walk, write_cmu
from PIL import Image
from stick_figures import write_set

from di2pose.cli import main
from di2pose.data.bvh import read
from di2pose.data.check import LEFT, RIGHT, CheckReport, draw_tile
from di2pose.data.sample import OUT_OF_FRAME, UNKNOWN, Dataset, Sample, Sources
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import H36M_21, LSP_14, SMPL_24, convert

CAMERA = Camera(focal=(900.0, 900.0), centre=(200.0, 200.0), size=(400, 400), distortion=(0.05, 0.01, 0.001, 0.002))
ROOT = np.array([100.0, -50.0, 5000.0])


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """Samples with pictures, a camera and 2D joints."""
    folder = tmp_path_factory.mktemp("good")
    (part,) = read(Sources("bvh", write_cmu(folder / "01_01.bvh", walk(12))))
    Image.new("RGB", (400, 400), (90, 90, 90)).save(folder / "wall.png")
    return [
        replace(
            sample,
            root_mm=ROOT,
            camera=CAMERA,
            joints_2d=CAMERA.project(sample.joints_mm + ROOT).astype(np.float32),
            image=str(folder / "wall.png"),
        )
        for sample in part.samples()
    ]


def write(tmp_path, samples: list[Sample]) -> Dataset:
    return Dataset(write_set(tmp_path / "set", samples, image_root=".", skeleton=H36M_21))


def test_a_good_set_passes_and_leaves_a_contact_sheet(good, tmp_path, capsys):
    folder = write(tmp_path, good).folder
    assert main(["data", "check", str(folder), "--samples", "7"]) == 0
    printed = capsys.readouterr().out
    assert "no problem found" in printed
    assert "split (1): train 12" in printed
    assert "reprojection: median 0.000 px" in printed
    assert "knees that bend the human way: 100.0%" in printed
    assert "elbows that bend the human way: 100.0%" in printed
    sheet = np.asarray(Image.open(folder / "check/sheet.png"))
    for side in (RIGHT, LEFT):
        assert (sheet == side).all(-1).sum() > 500
    bare = [replace(s, image=None, camera=None, joints_2d=None, root_mm=None) for s in good]
    folder = write(tmp_path / "bare", bare).folder  # poses without pictures are drawn, too
    assert main(["data", "check", str(folder), "--samples", "7", "--out", str(tmp_path / "seen")]) == 0
    assert (np.asarray(Image.open(tmp_path / "seen/sheet.png")) == RIGHT).all(-1).sum() > 500


def test_most_joints_out_of_frame_is_a_warning_and_so_is_a_picture_of_another_size(good, tmp_path, capsys):
    low = replace(CAMERA, size=(400, 40))
    flat = []
    for sample in good:
        outside = (sample.joints_2d[:, 1] >= 40) | (sample.joints_2d[:, 1] < 0)
        visibility = np.where(outside, OUT_OF_FRAME, UNKNOWN).astype(np.int8)
        flat.append(replace(sample, camera=low, visibility=visibility))
    folder = write(tmp_path, flat).folder
    assert main(["data", "check", str(folder), "--samples", "5"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"WARNING: \d+% of the joints of split train lie outside of their picture", printed)
    assert "5 of 5 pictures have another size than their camera says" in printed
    assert "(400, 400), not (400, 40)" in printed


def swapped(sample: Sample) -> Sample:
    order = list(H36M_21.mirror_order)
    return replace(sample, joints_mm=sample.joints_mm[order], joints_2d=sample.joints_2d[order])


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (swapped, "most knees bend the wrong way: left and right are swapped"),
        (lambda s: replace(s, joints_mm=s.joints_mm * np.array([-1, 1, 1], np.float32)), "knees bend the wrong way"),
        (lambda s: replace(s, joints_mm=s.joints_mm / 1000), "wrong unit"),
        (lambda s: replace(s, joints_mm=s.joints_mm * np.array([1, -1, -1], np.float32)), "upside down"),
        (lambda s: replace(s, joints_mm=s.joints_mm + np.float32(40)), "the pelvis is not at 0"),
        (lambda s: replace(s, camera=replace(CAMERA, focal=(1100.0, 1100.0))), "do not project onto the 2D joints"),
        (lambda s: replace(s, root_mm=-ROOT), "behind the camera"),
        (lambda s: replace(s, image="gone.png"), r"gone\.png"),
    ],
)
def test_what_is_wrong_is_found_and_fails_the_command(good, tmp_path, capsys, spoil, problem):
    folder = write(tmp_path, [spoil(sample) for sample in good]).folder
    assert main(["data", "check", str(folder), "--samples", "2"]) == 1
    problems = [line for line in capsys.readouterr().out.splitlines() if line.startswith("PROBLEM")]
    assert any(re.search(problem, line) for line in problems), problems


def test_children_and_joints_that_are_not_annotated_are_no_problem(good, tmp_path):
    small = [replace(s, joints_mm=s.joints_mm * np.float32(0.7), joints_2d=None) for s in good]
    report = CheckReport(write(tmp_path / "small", small))
    assert not report.problems
    assert any("left hip - knee has a median of" in text for text in report.warnings)
    valid = ~np.isin(H36M_21.joints, ["spine", "nose", "head"])
    report = CheckReport(write(tmp_path / "partly", [replace(s, valid=valid) for s in good]))
    assert not report.problems
    assert "joints not annotated everywhere: spine 0%, nose 0%, head 0%" in report.lines


@pytest.mark.parametrize("skeleton", [LSP_14, SMPL_24], ids=lambda skeleton: skeleton.name)
def test_other_skeletons_are_checked_as_well(good, tmp_path, skeleton):
    converted = (convert(sample.joints_mm, H36M_21, skeleton) for sample in good)
    samples = [Sample(f"r{k}", joints, valid=known) for k, (joints, known) in enumerate(converted)]
    report = CheckReport(Dataset(write_set(tmp_path / "set", samples, skeleton=skeleton)))
    assert not report.problems
    assert not report.warnings
    assert any(line.startswith("knees that bend the human way: 100.0%") for line in report.lines)


def test_nan_that_slipped_into_the_files_is_found(good, tmp_path):
    folder = write(tmp_path, good).folder
    joints = np.load(folder / "joints_mm.npy")
    joints[3, 5] = np.nan
    np.save(folder / "joints_mm.npy", joints)
    assert any("1 records have NaN" in text for text in CheckReport(Dataset(folder)).problems)


def test_the_skeleton_is_drawn_where_the_joints_are(good):
    sample = replace(good[0], box=(0.0, 0.0, 400.0, 400.0))
    tile = np.asarray(draw_tile(sample, H36M_21, Image.new("RGB", (400, 400))))
    side = 400 * 1.3
    for name, wanted in (("right_knee", RIGHT), ("left_knee", LEFT)):
        x, y = (sample.joints_2d[H36M_21.index(name)] + 0.15 * 400) * len(tile) / side
        around = tile[round(y) - 6 : round(y) + 7, round(x) - 6 : round(x) + 7]
        assert (around == wanted).all(-1).any()
