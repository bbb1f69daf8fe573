"""What is written is read back; and no text, however odd, gets anything but an answer or an InputError."""

import json
import pickle
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from output.people import person, result

from di2pose import recipes
from di2pose.calibration import Calibration
from di2pose.commands.inputs import BoxFile, read_camera
from di2pose.commands.writing import endings, parse_formats
from di2pose.config import Config, TokenizerConfig, from_json, to_json
from di2pose.data.bvh import Bvh
from di2pose.data.pickles import load_npz, load_pickle
from di2pose.data.pose2sim import read_camera as read_toml
from di2pose.data.pose2sim import read_trc
from di2pose.data.sample import Sample
from di2pose.errors import InputError
from di2pose.evaluation.predictors import PredictionFile
from di2pose.evaluation.records import RecordLog
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import H36M_17
from di2pose.result import Motion, Result
from di2pose.training.log import read_rows
from di2pose.training.state import read_state, write_state

quick = settings(
    max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
wide = settings(quick, max_examples=40)
lengths = st.floats(-1e4, 1e4)
words = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=12)


@quick
@given(st.integers(0, 10**6), st.integers(1, 3), words, st.none() | st.integers(0, 9))
def test_a_result_comes_back_from_json(tmp_path, seed, hypotheses, name, track):
    before = result([person(seed, track=track, hypotheses=hypotheses)], image=name, seed=seed)
    before.save(tmp_path / "r.json")
    after = Result.load(tmp_path / "r.json")
    assert (after.image, after.seed, after.camera) == (name, seed, before.camera)
    one, two = before.people[0], after.people[0]
    for field in ("joints_mm", "samples_mm", "covariance_mm2", "r90_mm", "joints_2d", "root_mm"):
        np.testing.assert_allclose(getattr(two, field), getattr(one, field), atol=5.1e-4)
    assert two.track == track
    assert two.state.tolist() == one.state.tolist()


@quick
@given(st.integers(0, 10**6), st.floats(1, 500))
def test_markers_come_back_from_trc_and_joints_from_bvh(tmp_path, seed, fps):
    frames = [result([person(seed + k, track=0, hypotheses=1)], frame_index=k, time_s=k / fps) for k in range(2)]
    motion = Motion(frames, fps)
    motion.save(tmp_path / "m.trc")
    names, places = read_trc(tmp_path / "m.trc")
    assert names == list(H36M_17.joints)
    ours = np.stack([frame.people[0].joints_mm + frame.people[0].root_mm for frame in frames])
    np.testing.assert_allclose(places[..., [1, 2, 0]], ours * (1, -1, -1), atol=1e-3)
    motion.save(tmp_path / "m.bvh")
    bvh = Bvh.read(tmp_path / "m.bvh", 1.0)
    assert bvh.frames == 2
    assert bvh.frame_time == pytest.approx(1 / fps, rel=1e-3)
    at = bvh.positions()[:, bvh.nodes(*H36M_17.joints)]
    assert np.abs(at - ours * (1, -1, -1)).max() < 11  # mm; docs/guide.md


@quick
@given(st.data())
def test_a_calibration_comes_back(tmp_path, data):
    table = st.lists(st.floats(0, 1e5), min_size=17, max_size=17).map(tuple)
    tables = {
        name: (data.draw(table), data.draw(table)) for name in ("floor_mm2", "gain", "radius_factor", "trace_mm2")
    }
    chance, count = data.draw(st.floats(0, 1)), data.draw(st.integers(2, 64))
    before = Calibration(**tables, seen_threshold=chance, hypotheses=count, fitted_on=data.draw(words))
    before.write(tmp_path)
    assert Calibration.read(tmp_path) == before


@quick
@given(
    st.integers(1, 5000), st.lists(st.integers(2, 30), min_size=1, max_size=6), st.floats(0.1, 1), st.sampled_from("ab")
)
def test_a_configuration_comes_back(tokens, levels, weight, name):
    part = TokenizerConfig(tokens=tokens, levels=tuple(levels), commitment=weight)
    assert from_json(TokenizerConfig, json.loads(json.dumps(to_json(part)))) == part
    whole = replace(recipes.tiny(), name=name)
    assert from_json(Config, json.loads(json.dumps(to_json(whole)))) == whole


@quick
@given(st.tuples(*[st.floats(1, 1e5)] * 2), st.tuples(lengths, lengths), st.lists(st.floats(-1, 1), max_size=8))
def test_a_camera_comes_back(tmp_path, focal, centre, distortion):
    sizes = (0, 4, 5, 8)
    bent = tuple((distortion + [0.0] * 8)[: max(k for k in sizes if k <= len(distortion))])
    camera = Camera(focal, centre, (640, 480), bent)
    record = json.loads(json.dumps(camera.to_json()))
    assert Camera.from_json(record) == camera
    (tmp_path / "c.json").write_text(json.dumps(record))
    assert read_camera(tmp_path / "c.json") == camera


boxes = st.tuples(st.floats(0, 500), st.floats(0, 500), st.floats(1, 500), st.floats(1, 500)).map(
    lambda b: (b[0], b[1], b[0] + b[2], b[1] + b[3])
)


@quick
@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}\.jpg", fullmatch=True), st.lists(boxes, min_size=1, max_size=3)))
def test_boxes_come_back_from_json_and_csv(tmp_path, given_boxes):
    (tmp_path / "b.json").write_text(json.dumps(given_boxes))
    lines = [f"{name},{','.join(map(repr, box))}" for name, several in given_boxes.items() for box in several]
    (tmp_path / "b.csv").write_text("\n".join(["file,x0,y0,x1,y1", *lines]))
    for file in ("b.json", "b.csv"):
        found = BoxFile(tmp_path / file)
        for name, several in given_boxes.items():
            assert found.of(Path(name)) == several
        assert found.unused(map(Path, given_boxes)) == []


@quick
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 3))
def test_predictions_come_back(tmp_path, seed, count, hypotheses):
    poses = np.random.default_rng(seed).normal(0, 400, (count, hypotheses, 17, 3)).astype(np.float32)
    poses[:, :, H36M_17.indices("left_hip", "right_hip")] = 0
    np.savez(tmp_path / "p.npz", ids=np.array([f"r{k}" for k in range(count)]), joints_mm=poses)
    file = PredictionFile(tmp_path / "p.npz")
    samples = [Sample(f"r{k}", poses[k, 0]) for k in reversed(range(count))]
    np.testing.assert_array_equal(file.predict([], samples, hypotheses, None, 0), poses[::-1])


kinds = st.one_of(arrays.floating_dtypes(sizes=(32, 64)), arrays.integer_dtypes(), st.just(np.dtype("U5")))
things = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9), st.binary(max_size=9))
    | arrays.arrays(kinds, arrays.array_shapes(max_dims=3, max_side=3)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def same(a, b):
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.tobytes() == b.tobytes() and a.shape == b.shape
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return type(a) is type(b) and (a == b or a != a)


@wide
@given(things, st.integers(0, 5))
def test_plain_pickles_come_back(tmp_path, value, protocol):
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(value, protocol))
    loaded = load_pickle(tmp_path / "x.pkl")
    if protocol > 2:  # before, bytes are text in Python 2's sense
        assert same(value, loaded)
    np.savez(tmp_path / "x.npz", a=np.array([value, None], object))
    assert same(value, load_npz(tmp_path / "x.npz", ["a"])["a"][0])


@quick
@given(
    st.dictionaries(st.from_regex(r"[a-z]{1,6}", fullmatch=True), st.integers(0, 5), max_size=3), st.integers(0, 10**9)
)
def test_a_training_state_comes_back(tmp_path, sizes, iteration):
    import torch

    before = {"model": {name: torch.arange(size, dtype=torch.float32) for name, size in sizes.items()}}
    write_state(tmp_path / "last.safetensors", before, {"iteration": iteration})
    groups, facts = read_state(tmp_path / "last.safetensors")
    assert facts["iteration"] == iteration
    for name, value in before["model"].items():
        assert torch.equal(groups["model"][name], value)


# No text gets anything but an answer or an InputError.

TOKENS = ("HIERARCHY", "ROOT", "JOINT", "End Site", "{", "}", "OFFSET", "CHANNELS", "3", "6", "Xrotation", "Zposition",
          "MOTION", "Frames:", "1", "Frame Time:", "0.01", "-1", "1e999", "nan", "x", "\n", "\t")  # fmt: skip
LINES = ("[cam_01]", "size = [1, 2]", "matrix = 3", "{",
         "[]", '{"row": 1}', '{"iteration": 1}', "null", "file,x0,y0,x1,y1", "a,1,2,3,4", "PathFileType\t4",
         "1\t1\t1\t1\tmm")  # fmt: skip
texts = st.one_of(
    st.text(max_size=200),
    st.lists(st.sampled_from(TOKENS), max_size=40).map(" ".join),
    st.lists(st.sampled_from(LINES), max_size=9).map("\n".join),
)
READERS = {
    "bvh": lambda path: Bvh.read(path, 1.0).positions(),
    "trc": read_trc,
    "boxes": lambda path: BoxFile(path).boxes,
    "camera": read_camera,
    "toml": lambda path: read_toml(path, "cam_01", (640, 480)),
    "result": Result.load,
    "pickle": load_pickle,
    "predictions": PredictionFile,
    "log": read_rows,
    "records": lambda path: RecordLog(path.parent, "t", 1).read(),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", READERS)
def test_no_text_gets_anything_but_an_answer_or_an_input_error(tmp_path, name):
    path = tmp_path / "t.rank0000.jsonl"

    @wide
    @given(texts)
    def try_one(text):
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        with suppress(InputError):
            READERS[name](path)

    try_one()


@wide
@given(st.text(max_size=30) | st.lists(st.sampled_from([*endings(), ",", " "]), max_size=6).map("".join))
def test_formats_are_known_ones_or_refused(text):
    try:
        names = parse_formats(text)
    except InputError:
        return
    assert names
    assert set(names) <= set(endings())


@wide
@given(st.text(st.sampled_from("0123456789.,;+- "), max_size=30))
def test_typed_boxes_are_boxes_or_refused(text):
    try:
        found = BoxFile(Path(text)).everywhere
    except InputError:
        return
    assert found is not None
    assert all(x0 < x1 and y0 < y1 for x0, y0, x1, y1 in found)
