"""`di2pose.onnx` in a fresh environment without PyTorch, beside `Di2Pose`: size, cold start, joints. One run, ratios.

    python benchmarks/onnx_predictor.py
    python benchmarks/onnx_predictor.py --folder small-onnx --rounds 5 --frames 40

Size: all files of the packages that either needs (PyTorch as it is installed here; the build for GPUs is larger),
counted in the environment that has them. Cold start: a new process,
from nothing to the first photo's people, the two taking turns, one thread each; least of the rounds, of the wall's and
of the processor's time. Joints: the demo's two photos and parts of frames of its clip, the same noise, against PyTorch
throughout (its own walk of every network), and beside it Google's runtime against PyTorch, which `Di2Pose` uses.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
import venv
from contextlib import closing
from pathlib import Path

import numpy as np
import torch
import tyro
from PIL import Image

from di2pose import Di2Pose
from di2pose.assets import extract, fetch
from di2pose.commands.demo import CLIP, REGION, hide_legs
from di2pose.data.frames import Video
from di2pose.image.efficientdet import EfficientDet
from di2pose.image.encoder import load_encoder
from di2pose.image.movenet import MultiPose
from di2pose.image.people_detector import PeopleDetector
from di2pose.model import find_model
from di2pose.onnx import OnnxPredictor
from di2pose.onnx.export import export_onnx
from di2pose.text_table import markdown

ROOT = Path(__file__).parents[1]
NEEDED = ("numpy", "pillow", "jaxtyping", "onnxruntime")
FETCHED = (
    "blazepose-heavy", "movenet-thunder", "movenet-thunder-graph", "efficientdet-lite0", "movenet-multipose",
    "movenet-multipose-graph",
)  # fmt: skip
SIZE = """
import sys, re
from importlib.metadata import distribution, PackageNotFoundError
todo, seen, total = sys.argv[1:], set(), 0
while todo:
    name = re.split(r"[ ;<>=!~\\[(]", todo.pop())[0].lower().replace("_", "-")
    if name in seen:
        continue
    seen.add(name)
    try:
        found = distribution(name)
    except PackageNotFoundError:
        continue
    paths = [each.locate() for each in found.files or ()]
    total += sum(path.stat().st_size for path in paths if path.is_file())
    todo += [each for each in found.requires or () if "extra ==" not in each]
print(total)
"""
WITH_TORCH = """
import sys, torch
torch.set_num_threads(1)
from di2pose import Di2Pose
assert Di2Pose.from_pretrained()(sys.argv[1]).people
"""
WITHOUT = """
import sys
from di2pose.onnx import OnnxPredictor
assert OnnxPredictor(sys.argv[2], threads=1)(sys.argv[1]).people
assert "torch" not in sys.modules
"""


def main(folder: Path | None = None, rounds: int = 5, frames: int = 40) -> None:
    """Measure it.

    Args:
        folder: an ONNX folder of `small`; left out, it is exported first
        rounds: how often each process starts
        frames: of the demo's clip, to compare joints on
    """
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        if folder is None:
            folder = Path(scratch) / "onnx"
            export_onnx(Di2Pose.from_pretrained(), folder)
        lean = fresh_environment(Path(scratch) / "lean")
        sizes = {
            "PyTorch": _number([sys.executable, "-c", SIZE, "di2pose"]),
            "ONNX": _number([str(lean), "-c", SIZE, *NEEDED]),
        }
        networks = {"PyTorch": torch_networks(), "ONNX": _bytes(folder)}
        whole = {name: sizes[name] + networks[name] for name in sizes}
        photo = Path(scratch) / "walker.jpg"
        pictures = demo_pictures(frames)
        pictures["walker"].save(photo, quality=92)
        commands = {
            "PyTorch": [sys.executable, "-c", WITH_TORCH, str(photo)],
            "ONNX": [str(lean), "-c", WITHOUT, str(photo), str(folder)],
        }
        wall, cpu = cold_starts(commands, rounds)
        rows = [
            ["installed packages", f"{sizes['ONNX'] / sizes['PyTorch']:.2f}", _megabytes(sizes)],
            ["packages and networks", f"{whole['ONNX'] / whole['PyTorch']:.2f}", _megabytes(whole)],
            ["cold start, one photo, wall", f"{wall['ONNX'] / wall['PyTorch']:.2f}", ""],
            ["cold start, one photo, processor", f"{cpu['ONNX'] / cpu['PyTorch']:.2f}", ""],
        ]
        print(markdown(["", "ONNX over PyTorch", ""], rows) + "\n")
        compare_joints(folder, pictures)


def fresh_environment(place: Path) -> Path:
    """A new virtual environment with what the predictor needs, and its Python."""
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), *NEEDED], check=True)
    subprocess.run([*pip, "--no-deps", str(ROOT)], check=True)
    return python


def cold_starts(commands: dict[str, list[str]], rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """Least wall and processor seconds of each, after a round that fills the caches of the disk."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
    wall: dict[str, list[float]] = {name: [] for name in commands}
    cpu: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds + 1):
        for name, words in commands.items():
            own = environment | ({"PYTHONPATH": str(ROOT / "src")} if name == "PyTorch" else {})
            began, used = time.perf_counter(), _processor()
            subprocess.run(words, check=True, env=own)
            wall[name].append(time.perf_counter() - began)
            cpu[name].append(_processor() - used)
    return {k: min(v[1:]) for k, v in wall.items()}, {k: min(v[1:]) for k, v in cpu.items()}


def demo_pictures(frames: int) -> dict[str, Image.Image]:
    """The pictures of `di2pose demo`, and parts of other frames, every third of them with hidden legs."""
    with closing(Video(extract("sports2d-demo", CLIP) / CLIP)) as video:
        walker = video.frame(120).crop(REGION)
        pictures = {"walker": walker, "walker-hidden": hide_legs(walker)}
        for number in np.linspace(70, 160, frames).astype(int).tolist():
            part = video.frame(number).crop(REGION)
            pictures[f"frame {number}"] = hide_legs(part) if number % 3 == 0 else part
    return pictures


def compare_joints(folder: Path, pictures: dict[str, Image.Image]) -> None:
    """Largest distance of a joint of the estimate, by picture: the whole road, and the same crops."""
    shipped = Di2Pose.from_pretrained()
    encoder = load_encoder(shipped.config.encoder, runtime="torch")
    detector = PeopleDetector(EfficientDet("torch"), MultiPose(runtime="torch"))
    plain = Di2Pose(shipped.model, encoder, detector, shipped.calibration).eval()
    lean = OnnxPredictor(folder, threads=1)
    table, every = [], []
    for name, picture in pictures.items():
        wanted = plain(picture)
        boxes = [person.box for person in wanted.people]
        same = [model(picture, boxes=boxes, second_look=False) for model in (plain, lean)]
        row = [apart(wanted, lean(picture)), apart(*same), apart(wanted, shipped(picture))]
        every.append(row)
        if not name.startswith("frame"):
            table.append([name, *(f"{value:.3f}" for value in row)])
    columns = np.array(every)
    for what, values in (
        ("median of all", np.median(columns, axis=0)),
        ("largest of all", columns.max(0)),
        ("share within 0.5 mm", (columns < 0.5).mean(0)),
    ):
        table.append([what, *(f"{value:.3f}" for value in values)])
    head = ["picture", "ONNX, whole road (mm)", "ONNX, same crops (mm)", "Google's runtime, whole road (mm)"]
    print(markdown(head, table) + f"\n\n{len(every)} pictures; of each the joint of the estimate that differs most")


def apart(here: object, there: object) -> float:
    """mm; infinite where the number of people differs."""
    a, b = here.people, there.people  # type: ignore[attr-defined]
    if len(a) != len(b):
        return float("inf")
    far = [float(np.linalg.norm(p.joints_mm - q.joints_mm, axis=-1).max()) for p, q in zip(a, b, strict=True)]
    return max(far, default=0.0)


def _number(words: list[str]) -> int:
    return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def torch_networks() -> int:
    """Bytes of the shipped model and of the networks that are fetched for it."""
    return _bytes(find_model()) + sum(fetch(name).stat().st_size for name in FETCHED)


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def _megabytes(sizes: dict[str, int]) -> str:
    return " over ".join(f"{size / 1e6:.0f} MB" for size in (sizes["ONNX"], sizes["PyTorch"]))


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    tyro.cli(main)
