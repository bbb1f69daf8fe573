"""Answers of the shipped model, stored before the code is moved, and how to compute them again.

    python tests/golden/record.py            records both files anew; only when the answers are meant to change
    python tests/golden/record.py losses     records some sections of golden.json: losses, report, rest, onnx, files

golden.npz: photos, 20 frames of Pose2Sim and a clip. golden.json: losses at a fixed seed, the numbers of report.json,
an answer of the REST service, an answer of the exported ONNX networks, the names of the files that `predict` writes.
"""

import json
import platform
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from di2pose import Di2Pose, video_results
from di2pose.assets import extract
from di2pose.cli import main
from di2pose.commands.writing import endings
from di2pose.data.demo_footage import CLIP, hide_legs
from di2pose.data.demo_footage import walker as _walker
from di2pose.data.prepare import prepare
from di2pose.model import load_model
from di2pose.onnx import OnnxPredictor
from di2pose.video.stream import Stream

FILE = Path(__file__).parent / "golden.npz"
MORE = Path(__file__).parent / "golden.json"
FRAMES, CLIP_FRAMES = 20, 12


def answers(footage):
    """Name -> array: joints, states and radii of the demo's photos, 20 frames of Pose2Sim and a short clip."""
    model = Di2Pose.from_pretrained()
    walker = _walker()
    found = {"walker": model(walker), "hidden": model(hide_legs(walker))}
    for row in np.linspace(0, len(footage) - 1, FRAMES).astype(int).tolist():
        picture = footage.read_image(footage[row])
        found[f"pose2sim-{row}"] = model(picture, hypotheses=4, max_people=2)
    clip = extract("sports2d-demo", CLIP) / CLIP
    for number, result in enumerate(islice(video_results(model, clip, hypotheses=4), CLIP_FRAMES)):
        found[f"clip-{number}"] = result
    arrays = {}
    for name, result in found.items():
        people = result.people
        arrays[f"{name}/joints_mm"] = np.array([person.joints_mm for person in people]).reshape(-1, 21, 3)
        arrays[f"{name}/root_mm"] = np.array([person.root_mm for person in people]).reshape(-1, 3)
        arrays[f"{name}/r90_mm"] = np.array([person.r90_mm for person in people]).reshape(-1, 21)
        arrays[f"{name}/state"] = np.array([person.state for person in people], dtype="<U12").reshape(-1, 21)
    return arrays


def losses(folder):
    """Every named loss of the shipped network in training mode, and of its tokenizer, on drawn numbers."""
    network, random = load_model().train(), np.random.default_rng(0)
    tokens, width = network.config.feature_size
    joints_mm = random.normal(0, 200, (16, 21, 3)).astype(np.float32)
    batch = {
        "features": torch.from_numpy(random.standard_normal((16, tokens, width), dtype=np.float32)),
        "joints_mm": torch.from_numpy(joints_mm - joints_mm[:, :1]),
        "visibility": torch.from_numpy(random.integers(-1, 4, (16, 21))),
    }
    noise = torch.Generator().manual_seed(0)
    found = {"network": network.loss(batch, noise), "tokenizer": network.tokenizer.loss(batch["joints_mm"])}
    return {f"{part}/{name}": value.item() for part, each in found.items() for name, value in each.items()}


def report(folder):
    """Of report.json of the shipped model on a cache of 8 real crops: value, interval and ratio of every number."""
    prepare("pose2sim", out=folder / "few", every=50)
    words = ["--detect", "--mirrored", "--out", str(folder / "cache")]
    assert main(["features", str(folder / "few"), *words]) == 0
    words = ["--hypotheses", "1,4", "--worst", "0", "--out", str(folder / "evaluated")]
    assert main(["evaluate", "small", "--data", str(folder / "cache"), *words]) == 0
    written = json.loads((folder / "evaluated" / "report.json").read_text())
    found = {part: written[part] for part in ("spread", "calibration")}
    for line in written["numbers"]:
        name = "/".join(str(line[part]) for part in ("protocol", "hypotheses", "estimate", "metric"))
        found[name] = {part: line[part] for part in ("value", "interval", "ratio", "count")}
    return found


def rest(folder):
    """JSON of POST /v1/predict for the demo's photo."""
    from serve.running import file_of, running

    with running(Di2Pose.from_pretrained()) as service:
        answer = service.post("/v1/predict", file_of(_walker()), hypotheses=4, seed=0)
    assert answer.status == 200
    found = answer.json
    del found["model"]["version"]
    return found


def onnx(folder):
    """Joints of the demo's photo by the exported networks."""
    assert main(["export", "small", "--onnx", str(folder / "onnx")]) == 0
    people = OnnxPredictor(folder / "onnx", threads=1)(_walker(), hypotheses=4, seed=0).people
    return {
        name: [np.round(getattr(person, name), 3).tolist() for person in people]
        for name in ("joints_mm", "root_mm", "r90_mm", "score")
    } | {"state": [list(person.state) for person in people]}


def files(folder):
    """What `predict` writes of a photo and of a video, in all formats."""
    from video.films import write_film

    frames = [frame.picture for frame in islice(Stream(extract("sports2d-demo", CLIP) / CLIP), 3)]
    write_film(folder / "walk.mp4", [np.asarray(each.resize((640, 360))) for each in frames], rate=10)
    _walker().save(folder / "walker.png")
    found = {}
    for source in ("walker.png", "walk.mp4"):
        out = folder / f"out of {source}"
        words = ["--format", ",".join(endings()), "--hypotheses", "2", "--steps", "1", "-o", str(out)]
        assert main(["predict", str(folder / source), *words]) == 0
        found[source] = sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())
    return found


SECTIONS = {"losses": losses, "report": report, "rest": rest, "onnx": onnx, "files": files}


def machine():
    """What rounding depends on."""
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()} torch {torch.__version__.split('+')[0]}"


if __name__ == "__main__":
    import tempfile

    from di2pose.data.sample import Dataset

    torch.set_num_threads(1)
    sys.path.insert(0, str(Path(__file__).parents[1]))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if not sys.argv[1:]:
            prepare("pose2sim", out=folder / "set")
            arrays = answers(Dataset(folder / "set"))
            np.savez_compressed(FILE, machine=machine(), **arrays)
            print(f"{FILE}: {len(arrays)} arrays, {FILE.stat().st_size} bytes")
        stored = json.loads(MORE.read_text()) if MORE.is_file() else {}
        stored |= {name: SECTIONS[name](folder) for name in sys.argv[1:] or SECTIONS} | {"machine": machine()}
        lines = (f"{json.dumps(name)}: {json.dumps(stored[name], separators=(',', ':'))}" for name in sorted(stored))
        MORE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        print(f"{MORE}: {MORE.stat().st_size} bytes")
