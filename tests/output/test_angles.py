"""Angles of people: intervals, states, and the files and pages that hold them."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
from output.people import H36M_19, person, pose, result, video
from PIL import Image

from di2pose.output.angles import Angle, plausible_poses
from di2pose.pose.angles import ALL, DIFFERENCES, NAMES, joint_angles
from di2pose.pose.skeleton import H36M_17, H36M_21
from di2pose.result import Result


def test_a_person_has_angles_with_intervals_and_states():
    someone = person(3)
    knee = someone.angles["left_knee_flexion"]
    assert isinstance(knee, Angle)
    assert list(someone.angles) == [*NAMES, *DIFFERENCES]
    assert knee.degrees == pytest.approx(float(joint_angles(someone.joints_mm)["left_knee_flexion"]))
    assert knee.low <= knee.degrees <= knee.high
    assert knee.high - knee.low > 5
    assert knee.state == "out_of_frame"  # the left ankle's
    assert someone.angles["left_elbow_flexion"].state == "occluded"  # the wrist's
    assert someone.angles["right_elbow_flexion"].state == "visible"
    assert someone.angles["knee_flexion_difference"].state == "out_of_frame"
    with pytest.raises(TypeError):
        someone.angles["left_knee_flexion"] = knee
    assert dict(person(4).angles) == dict(person(4).angles)


@pytest.mark.parametrize("hypotheses", [1, 8])
def test_plausible_poses_vary_as_the_calibration_says(hypotheses):
    someone = person(5, hypotheses=hypotheses)
    poses = plausible_poses(someone, count=2000)
    spread = np.sqrt(np.square(poses - someone.joints_mm).sum(-1).mean(0))
    wanted = np.sqrt(np.trace(someone.covariance_mm2, axis1=1, axis2=2))
    assert spread[1:] == pytest.approx(wanted[1:], rel=0.1)


def test_a_person_without_uncertainty_has_no_interval():
    someone = person(6, state=np.array(["pinned"] * 17))
    known = {"samples_mm": np.repeat(someone.joints_mm[None], 4, axis=0), "covariance_mm2": np.zeros((17, 3, 3))}
    for angle in replace(someone, **known).angles.values():
        assert angle.state == "pinned"
        assert (angle.low, angle.high) == pytest.approx((angle.degrees, angle.degrees), nan_ok=True)


def test_another_skeleton_has_the_angles_of_its_joints():
    more = person(3, skeleton=H36M_19)
    assert repr(dict(more.angles)) == repr(dict(more.convert(H36M_17).angles))
    someone = person(7)
    coco = someone.convert("coco17")
    assert coco.angles["left_knee_flexion"].degrees == pytest.approx(someone.angles["left_knee_flexion"].degrees)
    neck = coco.angles["neck_flexion"]  # COCO has no top of the head
    assert np.isnan([neck.degrees, neck.low, neck.high]).all()
    assert neck.state == "unknown"


def test_somebody_with_feet_has_ankle_angles_in_every_file(tmp_path):
    motion = video([person(k, track=0, skeleton=H36M_21) for k in range(3)])
    for frame, one in ((frame, frame.people[0]) for frame in motion):
        assert tuple(one.angles) == ALL
        ankle = one.angles["left_ankle_flexion"]
        assert ankle.degrees == pytest.approx(float(joint_angles(one.joints_mm, H36M_21)["left_ankle_flexion"]))
        assert -90 <= ankle.low < ankle.degrees < ankle.high <= 90
        assert ankle.state == "out_of_frame"  # the ankle's
        told = json.loads(frame.to_files("a.json")["a.json"])["frames"][0]["people"][0]["angles"]
        assert told["left_ankle_flexion"]["high"] == round(ankle.high, 1)
        assert one.convert("body_25").angles["left_ankle_flexion"] == ankle
    rows = list(csv.DictReader(motion.to_files("a.angles.csv")["a.angles.csv"].decode().splitlines()))
    wanted = [frame.people[0].angles["ankle_flexion_difference"].degrees for frame in motion]
    assert [float(row["ankle_flexion_difference_deg"]) for row in rows] == pytest.approx(wanted, abs=0.051)
    assert len(rows[0]) == 4 + 4 * len(ALL)
    assert not [name for name in person(3).angles if "ankle" in name]


def test_json_has_angles(tmp_path):
    someone = result([person(8), person(9).convert("h36m_17")])
    someone.save(tmp_path / "a.json")
    record = json.loads((tmp_path / "a.json").read_text())
    told = record["frames"][0]["people"][0]["angles"]
    knee = someone.people[0].angles["left_knee_flexion"]
    assert told["left_knee_flexion"] == {
        "degrees": round(knee.degrees, 1), "low": round(knee.low, 1), "high": round(knee.high, 1), "state": knee.state
    }  # fmt: skip
    back = Result.load(tmp_path / "a.json").people[0].angles["left_knee_flexion"]
    assert back.degrees == pytest.approx(knee.degrees, abs=0.01)
    assert back.high == pytest.approx(knee.high, abs=0.1)
    result([person(8).convert("coco17")]).save(tmp_path / "c.json")
    neck = json.loads((tmp_path / "c.json").read_text())["frames"][0]["people"][0]["angles"]["neck_flexion"]
    assert neck == {"degrees": None, "low": None, "high": None, "state": "unknown"}


def test_the_table_has_a_row_for_each_frame_and_person(tmp_path):
    frames = video([*([person(k, track=0), person(k + 50, track=3)] for k in range(3)), None], fps=10.0)
    frames.save(tmp_path / "walk.Angles.CSV")
    with (tmp_path / "walk.Angles.CSV").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["frame"], row["time_s"], row["person"]) for row in rows] == [
        (f"{k}", f"{k / 10}", track) for k in range(3) for track in ("0", "3")
    ]
    for row, someone in zip(rows, (p for frame in frames for p in frame.people), strict=True):
        for name, angle in someone.angles.items():
            cells = [row[f"{name}_{part}"] for part in ("deg", "low_deg", "high_deg")]
            wanted = [angle.degrees, angle.low, angle.high]
            assert [float(cell) if cell else np.nan for cell in cells] == pytest.approx(wanted, abs=0.051, nan_ok=True)
            assert row[f"{name}_state"] == angle.state


def moving(k):
    if k in (20, 21):
        return []
    share = np.sin(k / 5) / 2 + 0.5
    first, last = (pose(np.random.default_rng(seed)) for seed in (1, 2))
    state = np.where((np.arange(17) == 6) & (8 < k < 16), "occluded", "visible")
    joints = first * (1 - share) + last * share
    return [person(3, track=0, joints_mm=joints, state=state), person(40 + k, track=1)]


ROWS = "return [...document.querySelectorAll('#angles tbody tr')].map(r => [...r.cells].map(c => c.textContent))"


def test_the_page_of_a_photo_has_a_table_of_angles(browser, tmp_path):
    result([person(3, skeleton=H36M_21)]).save(tmp_path / "feet.html")
    browser.open(tmp_path / "feet.html")
    assert [row[0] for row in browser.run(ROWS)][:2] == ["ankle flexion", "knee flexion"]
    assert browser.run("return document.querySelector('#rows tr:last-child th').textContent") == "right toe"
    someone = person(3)
    result([someone], picture=Image.new("RGB", (640, 480))).save(tmp_path / "a.html")
    browser.open(tmp_path / "a.html")
    rows = {row[0]: row[1:] for row in browser.run(ROWS)}
    assert len(rows) == 12
    knee = someone.angles["left_knee_flexion"]
    low, high = (f"{round(value, 1) + 1e-9:.0f}".replace("-", "\u2212") for value in (knee.low, knee.high))
    assert rows["knee flexion"][0] == f"{round(knee.degrees, 1) + 1e-9:.0f}\u00b0{low} to {high}"
    assert not browser.run("return document.querySelector('#angles svg')")
    assert browser.run("return document.querySelectorAll('#angles td.guessed').length") == sum(
        angle.state != "visible" for angle in someone.angles.values()
    )
    assert browser.messages() == []


def test_the_page_of_a_video_plots_them_over_time(browser, tmp_path):
    motion = video([moving(k) for k in range(30)])
    motion.save(tmp_path / "m.html")
    browser.open(tmp_path / "m.html")
    drawn = "return [...document.querySelectorAll('#angles svg {}')].map(e => e.getAttribute('{}'))"
    assert len(browser.run(drawn.format("polygon", "points"))) == 4  # two knees, before and after the gap
    dashes = browser.run(drawn.format("polyline", "stroke-dasharray"))
    assert dashes.count("4 4") == 1  # the left knee while its ankle is hidden
    points = [p for line in browser.run(drawn.format("polyline", "points")) for p in line.split()]
    assert len(points) == 2 * 28 + 2  # and two shared at the ends of the dashes
    before = browser.run("return document.querySelector('#angles svg .now').getAttribute('x1')")
    browser.click("#angles tbody tr:nth-child(4) button")
    label = "return document.querySelector('#angles svg').getAttribute('aria-label')"
    assert browser.run(label) == "left elbow flexion, right elbow flexion, degrees over seconds"
    assert browser.run("return document.querySelector('#angles tr.shown th').textContent") == "elbow flexion"
    box = browser.run("""const svg = document.querySelector('#angles svg'); svg.scrollIntoView();
        const b = svg.getBoundingClientRect(); return [b.x, b.y, b.width]""")
    browser.drag((box[0] + box[2] - 13, box[1] + 90), (box[0] + box[2] - 13, box[1] + 90))  # a click at the end
    assert browser.run("return document.getElementById('view').dataset.frame") == "29"
    assert browser.run("return document.querySelector('#angles svg .now').getAttribute('x1')") != before
    browser.run("const s = document.getElementById('slider'); s.value = 20; s.dispatchEvent(new Event('input'))")
    assert browser.run(ROWS) == []  # nobody in this frame
    assert browser.run("return document.querySelector('#angles').textContent").count("no joint angles here") == 1
    browser.run("const s = document.getElementById('person'); s.value = 1; s.dispatchEvent(new Event('change'))")
    browser.run("const s = document.getElementById('slider'); s.value = 1; s.dispatchEvent(new Event('input'))")
    knee = motion[1].people[1].angles["right_knee_flexion"].degrees
    browser.click("#angles tbody tr:nth-child(1) button")
    assert browser.run(ROWS)[0][2].startswith(f"{round(knee, 1) + 1e-9:.0f}\u00b0")
    # The service's page shows the same table and plot of the JSON file.
    frames = json.loads(motion.to_files("m.json")["m.json"])["frames"]
    script = """const [frames] = arguments, box = document.createElement('div'), list = document.createElement('div');
        document.body.append(box, list);
        Di2PoseAngles.plot(box, frames, 0, ['trunk_lean']).mark(4);
        Di2PoseAngles.table(list, frames[0].people[0]);
        return [box.querySelectorAll('polygon').length, list.querySelectorAll('tbody tr').length]"""
    assert browser.run(script, frames) == [2, 12]
    assert browser.messages() == []
