"""What the shipped model said before the house was moved, and the way to ask it again.

    python tests/golden/record.py        writes golden.npz anew; only when the answers are meant to change
"""

import platform
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from di2pose import Di2Pose, video_results
from di2pose.assets import extract
from di2pose.commands.demo import CLIP, _walker, hide_legs

FILE = Path(__file__).parent / "golden.npz"
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
        arrays[f"{name}/joints_mm"] = np.array([person.joints_mm for person in people]).reshape(-1, 17, 3)
        arrays[f"{name}/root_mm"] = np.array([person.root_mm for person in people]).reshape(-1, 3)
        arrays[f"{name}/r90_mm"] = np.array([person.r90_mm for person in people]).reshape(-1, 17)
        arrays[f"{name}/state"] = np.array([person.state for person in people], dtype="<U12").reshape(-1, 17)
    return arrays


def machine():
    """What rounding depends on."""
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()} torch {torch.__version__.split('+')[0]}"


if __name__ == "__main__":
    import tempfile

    from di2pose.data.prepare import prepare
    from di2pose.data.sample import Dataset

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        prepare("pose2sim", out=Path(folder) / "set")
        arrays = answers(Dataset(Path(folder) / "set"))
    np.savez_compressed(FILE, machine=machine(), **arrays)
    print(f"{FILE}: {len(arrays)} arrays, {FILE.stat().st_size} bytes")
