"""`di2pose train demo`: both stages learn eight stick figures, from nothing but this file.

The smallest whole Di2Pose: poses -> tokens -> noise -> tokens -> poses, conditioned on where each joint is seen.
"""

from dataclasses import replace
from pathlib import Path

import torch
from PIL import Image, ImageDraw
from torch import Tensor, nn

from di2pose import recipes
from di2pose.errors import InputError
from di2pose.files import replacing
from di2pose.model import save_model
from di2pose.network import Di2PoseNetwork
from di2pose.pose.metrics import mpjpe
from di2pose.pose.skeleton import H36M_17
from di2pose.randomness import generator_of, hypothesis_generators
from di2pose.training.loop import Job, train
from di2pose.training.options import RunOptions
from di2pose.training.sources import MemorySource
from di2pose.training.stages import TokenizerStage

BONES_MM = {
    "hip": (130, 10), "knee": (0, 440), "ankle": (0, 430), "spine": (0, -240), "thorax": (0, -250),
    "nose": (0, -110), "head": (0, -120), "shoulder": (150, 20), "elbow": (60, 270), "wrist": (20, 250),
}  # fmt: skip
"""From parent to joint, standing: (outwards, down)."""
RIGHT, LEFT, GHOST = (34, 139, 34), (40, 80, 200), (190, 190, 190)


def stick_figures(count: int, generator: torch.Generator) -> Tensor:
    """(count, 17, 3) mm, root-relative, camera axes: a standing figure whose every bone is turned at random."""
    joints = torch.zeros(count, H36M_17.count, 3)
    for child, parent in H36M_17.bones:
        name = H36M_17.joints[child]
        outwards, down = BONES_MM[name.removeprefix("left_").removeprefix("right_")]
        # We look at the figure's face: its left is on our right, x > 0.
        bone = torch.tensor([outwards if name.startswith("left_") else -outwards, down, 0.0])
        turned = bone / bone.norm() + 0.45 * torch.randn(count, 3, generator=generator)
        joints[:, child] = joints[:, parent] + bone.norm() * torch.nn.functional.normalize(turned, dim=-1)
    return joints


def seen_from_the_front(joints_mm: Tensor, width: int) -> Tensor:
    """(B, 17, width) features: a token per joint, which joint it is and its x and y in metres. Depth is not there."""
    features = torch.zeros(*joints_mm.shape[:2], width)
    features[..., : H36M_17.count] = torch.eye(H36M_17.count)
    features[..., H36M_17.count : H36M_17.count + 2] = joints_mm[..., :2] / 1000
    return features


def train_tiny(seed: int, out: Path) -> tuple[Di2PoseNetwork, Tensor, Tensor]:
    """A tiny Di2Pose that has learned eight poses: (model, joints_mm (8, 17, 3), features (8, 17, F)).

    The logs of its two stages are below `out`.
    """
    torch.manual_seed(seed)
    recipe = recipes.tiny()
    model = Di2PoseNetwork(replace(recipe, tokenizer=replace(recipe.tokenizer, augment=False)))
    joints_mm = stick_figures(8, generator_of(seed, "poses"))
    features = seen_from_the_front(joints_mm, model.config.denoiser.feature_width)
    figures = MemorySource(features=features, joints_mm=joints_mm)

    def fit(name: str, stage: nn.Module, iterations: int, batch: int, rate: float) -> None:
        training = replace(model.config.denoiser_training, iterations=iterations, batch=batch, learning_rate=rate)
        job = Job(name, stage, figures, training, seed, lambda *_: {}, lambda *_: None, {})
        if stopped := train(job, out / name, RunOptions(resume=False)):
            raise KeyboardInterrupt(f"stopped by signal {stopped}")

    fit("tokenizer", TokenizerStage(model.tokenizer.requires_grad_(True)), 1000, 8, 5e-3)
    model.tokenizer.requires_grad_(False)
    fit("denoiser", model, 400, 32, 3e-3)
    return model.eval(), joints_mm, features


def demo(out: Path = Path("out/demo"), seed: int = 0) -> None:
    """Train a tiny Di2Pose on eight stick figures, end to end, and draw what it recovers.

    Args:
        out: Folder for the checkpoint, the picture and the logs of both stages.
        seed: The same seed gives the same figures, weights and picture.
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"--out must be a folder, {out} is a file")
    torch.set_num_threads(1)  # so small a network is done before threads have met
    model, joints_mm, features = train_tiny(seed, out)
    stage_one = mpjpe(model.tokenizer.reconstruct(joints_mm), joints_mm).mean().item()
    noise = hypothesis_generators(seed, range(len(features)), hypotheses=4)
    found = model.predict(features, 4, model.config.sample_steps, noise).joints_mm
    stage_two = mpjpe(found[:, 0], joints_mm).mean().item()
    save_model(model, out / "model", mpjpe_mm=stage_two)
    with replacing(out / "demo.png") as temporary:
        draw_figures(joints_mm, found).save(temporary)
    print(f"tokenizer     {stage_one:6.2f} mm   eight poses through {model.config.tokenizer.tokens} tokens and back")
    print(f"whole chain   {stage_two:6.2f} mm   tokens recovered from noise in {model.config.sample_steps} steps")
    print(f"wrote {out / 'demo.png'} (truth grey; right side green, left blue) and {out / 'model'}")


def draw_figures(truth: Tensor, found: Tensor, cell: int = 240) -> Image.Image:
    """A row of figures seen from the front, and the same from the side: truth grey, hypotheses in colour."""
    scale = 2  # drawn large and shrunk: smooth lines
    picture = Image.new("RGB", (scale * cell * len(truth), scale * cell * 2), "white")
    pen = ImageDraw.Draw(picture)
    for column in range(len(truth)):
        for row, (horizontal, vertical) in enumerate([(0, 1), (2, 1)]):
            for pose, ghost in [(truth[column], True), *((p, False) for p in found[column])]:
                flat = pose[:, [horizontal, vertical]] / 2200 + torch.tensor([column + 0.5, row + 0.46])
                for child, parent in H36M_17.bones:
                    colour = LEFT if H36M_17.joints[child].startswith("left_") else RIGHT
                    line = [tuple((scale * cell * flat[j]).tolist()) for j in (child, parent)]
                    pen.line(line, fill=GHOST if ghost else colour, width=(7 if ghost else 2) * scale // 2)
    return picture.resize((picture.width // scale, picture.height // scale), Image.Resampling.LANCZOS)
