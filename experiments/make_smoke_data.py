"""Small stand-ins for what the paper's road needs: data in Human3.6M's layout, a ViTPose, a photo.

    python experiments/make_smoke_data.py out/smoke

H36M/            the processed layout (mmpose's): stick figures of S1, S5 (train) and S9, S11 (test), two actions
vitpose/         a ViTPose with random weights, 192 tokens of width 32
photo.jpg, boxes.json
"""

import json
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import tyro
from PIL import Image, ImageDraw

from di2pose.noise import generator_of
from di2pose.pose.skeleton import H36M_17

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from stick_figures import stick_figures

SIZE, FOCAL, CAMERA = 256, 290.0, "54138969"
NEAR_MM, FAR_MM = torch.tensor([-200.0, -50, 2700]), torch.tensor([200.0, 50, 3200])
"""Between them stand the figures' hips, in the camera frame."""
CLIPS = {"train": {"S1": ("Directions", "Walking"), "S5": ("Directions", "Walking")},
         "test": {"S9": ("Directions",), "S11": ("Walking",)}}  # fmt: skip


def main(out: tyro.conf.Positional[Path], frames: int = 16, seed: int = 0) -> None:
    """Write all of it below `out`, with so many frames a clip; nothing where it is there already."""
    last = out / "boxes.json"
    if last.is_file():
        print(f"{out} holds the data already")
        return
    annotations = out / "H36M" / "annotation_body3d"
    (annotations / "fps50").mkdir(parents=True, exist_ok=True)
    for split, subjects in CLIPS.items():
        rows = [row for subject, actions in subjects.items() for action in actions
                for row in clip(out / "H36M" / "images", subject, action, frames, seed)]  # fmt: skip
        table = {key: np.array([row[key] for row in rows]) for key in rows[0]}
        np.savez(annotations / "fps50" / f"h36m_{split}.npz", **table)
    lens = {"f": [[FOCAL]] * 2, "c": [[SIZE / 2]] * 2, "k": np.zeros((3, 1)), "p": np.zeros((2, 1))}
    camera = {name: np.array(value) for name, value in lens.items()} | {"w": SIZE, "h": SIZE}
    cameras = {(subject, CAMERA): camera for subjects in CLIPS.values() for subject in subjects}
    (annotations / "cameras.pkl").write_bytes(pickle.dumps(cameras, protocol=2))
    write_vitpose(out / "vitpose")
    row = rows[0]
    Image.open(out / "H36M" / "images" / str(row["imgname"])).save(out / "photo.jpg")
    half = 100 * float(row["scale"])
    last.write_text(json.dumps({"photo.jpg": [[float(c) + d for d in (-half, half) for c in row["center"]]]}))
    print(f"wrote {out}")


def clip(images: Path, subject: str, action: str, frames: int, seed: int) -> Iterator[dict[str, np.ndarray | str]]:
    """The rows of one video, and its pictures."""
    noise = generator_of(seed, subject, action)
    name = f"{subject}_{action}_1.{CAMERA}"
    (images / subject / name).mkdir(parents=True, exist_ok=True)
    root_mm = NEAR_MM + (FAR_MM - NEAR_MM) * torch.rand(frames, 1, 3, generator=noise)
    for frame, joints_mm in enumerate((stick_figures(frames, noise) + root_mm).numpy()):
        pixels = FOCAL * joints_mm[:, :2] / joints_mm[:, 2:] + SIZE / 2
        file = f"{subject}/{name}/{name}_{frame + 1:06d}.jpg"
        draw(pixels, np.random.default_rng((seed, frame))).save(images / file)
        low, high = pixels.min(0), pixels.max(0)
        yield {
            "imgname": file,
            "S": np.c_[joints_mm / 1000, np.ones(17)],
            "part": np.c_[pixels, np.ones(17)],
            "center": (low + high) / 2,
            "scale": np.float64(1.2 * (high - low).max() / 200),
        }


def draw(pixels: np.ndarray, rng: np.random.Generator) -> Image.Image:
    """A figure before a coloured wall, its left limbs in another colour than its right ones."""
    picture = Image.new("RGB", (SIZE, SIZE), tuple(rng.integers(120, 200, 3).tolist()))
    pen = ImageDraw.Draw(picture)
    for child, parent in H36M_17.bones:
        left = H36M_17.joints[child].startswith("left_")
        pen.line([*map(tuple, pixels[[child, parent]].tolist())], (40, 60, 160) if left else (150, 50, 40), 9)
    return picture


def write_vitpose(folder: Path) -> None:
    """As `transformers` saves one, so that it is loaded as the real one is."""
    from transformers import VitPoseBackboneConfig, VitPoseConfig, VitPoseForPoseEstimation

    torch.manual_seed(0)
    backbone = VitPoseBackboneConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2)
    VitPoseForPoseEstimation(VitPoseConfig(backbone_config=backbone)).save_pretrained(folder)


if __name__ == "__main__":
    tyro.cli(main)
