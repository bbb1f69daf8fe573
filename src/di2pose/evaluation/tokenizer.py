"""`di2pose evaluate tokenizer`: error of poses that were encoded and decoded, and number of codes used."""

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import tyro
from jaxtyping import Float
from torch import Tensor

from di2pose import checkpoint
from di2pose.data.poses import crop_turns, whole_poses
from di2pose.errors import InputError
from di2pose.evaluation.records import open_records
from di2pose.files import write_json
from di2pose.model import find_model
from di2pose.noise import generator_of, uniform, uniform_integers
from di2pose.pose.metrics import mpjpe, pa_mpjpe
from di2pose.pose.skeleton import H36M_17, SKELETONS, Skeleton
from di2pose.text_table import aligned
from di2pose.tokenizer.tokenizer import PoseTokenizer

WRONG = 0.1
"""Share of the tokens that are replaced by random ones."""


@dataclass(frozen=True)
class Reconstruction:
    """Errors in mm over all 17 joints, the pelvis at 0 in both poses (it counts, with error 0); codes without noise."""

    poses: int
    mpjpe_mm: float
    pa_mpjpe_mm: float
    p95_mm: float
    """95 of 100 poses have a smaller MPJPE."""
    worst_joint: str
    worst_joint_mm: float
    wrong_tokens_mm: float
    """MPJPE when a share WRONG of the tokens is replaced."""
    codes_used: int
    codes_used_per_position: float
    perplexity: float
    perplexity_per_position: float
    """exp of the entropy of each position's codes, mean over the positions."""


@torch.no_grad()
def reconstruction(
    tokenizer: PoseTokenizer, joints_mm: Float[Tensor, "n J 3"], seed: int = 0, batch: int = 1024
) -> Reconstruction:
    """decode(encode(P)) against P."""
    tokens = torch.cat([tokenizer.encode(some) for some in joints_mm.split(batch)])
    generator = generator_of(seed, "wrong tokens")
    other = uniform_integers(tokens.shape, tokenizer.config.codes, generator)
    spoilt = torch.where(uniform(tokens.shape, generator) < WRONG, other, tokens)
    found, broken = (torch.cat([tokenizer.decode(some) for some in t.split(batch)]) for t in (tokens, spoilt))
    errors = mpjpe(found, joints_mm)
    by_joint = (found - joints_mm).norm(dim=-1).mean(0)
    usage = tokenizer.usage(tokens)
    shares = [torch.bincount(column, minlength=tokenizer.config.codes) / len(tokens) for column in tokens.T]
    return Reconstruction(
        poses=len(joints_mm),
        mpjpe_mm=float(errors.mean()),
        pa_mpjpe_mm=float(pa_mpjpe(found, joints_mm).mean()),
        p95_mm=float(errors.quantile(0.95)),
        worst_joint=SKELETONS[tokenizer.config.skeleton].joints[int(by_joint.argmax())],
        worst_joint_mm=float(by_joint.max()),
        wrong_tokens_mm=float(mpjpe(broken, joints_mm).mean()),
        codes_used=usage.used,
        codes_used_per_position=usage.used_per_position,
        perplexity=usage.perplexity,
        perplexity_per_position=float(torch.stack([torch.special.entr(each).sum().exp() for each in shares]).mean()),
    )


def read_poses(folder: Path, split: str, skeleton: Skeleton = H36M_17) -> Float[Tensor, "n J 3"]:
    """The whole poses of one split of a prepared dataset, rendered people or a feature cache; `all` takes every one."""
    records = open_records(folder)
    joints, rows = whole_poses(records.joints_mm, records.skeleton, skeleton)
    if not len(rows):
        wanted = f"all {skeleton.count} joints of {skeleton.name}"
        raise InputError(f"no record of {folder} has {wanted} ({records.skeleton.name})")
    splits = records.column("split")[rows]
    if split != "all":
        joints = joints[splits == split]
        if not len(joints):
            known = ", ".join(sorted(set(splits.tolist())))
            raise InputError(f"{folder} has no pose of split '{split}'; its splits are {known}, or take --split all")
    return torch.from_numpy(np.ascontiguousarray(joints, dtype=np.float32))


def evaluate_tokenizer(
    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")],
    data: Path,
    split: str = "test",
    every: int = 1,
    seed: int = 0,
    out: Path | None = None,
) -> None:
    """Measure a tokenizer on held-out poses: as they are, and turned as crops are.

    Turned: roll uniform to +-55 degrees and tilt to +-25 about x and y, of a fixed seed.

    Args:
        run: run of `di2pose train`, checkpoint folder, or name of a model in the package
        data: prepared dataset, rendered people or feature cache
        split: of the data; `all` takes every pose
        every: take one pose of so many
        seed: of the turns and of the wrong tokens
        out: write the figures to this JSON file, too
    """
    folder = find_model(run)
    config = checkpoint.read_config(folder)
    tokenizer = PoseTokenizer(config.tokenizer)
    checkpoint.load(folder, {"tokenizer": tokenizer})
    tokenizer.eval()
    joints_mm = read_poses(data, split, config.skeleton)[::every]
    turned = joints_mm @ crop_turns(len(joints_mm), generator_of(seed, "turns")).mT
    poses = {"upright": joints_mm, "turned": turned}
    results = {name: reconstruction(tokenizer, mine, seed) for name, mine in poses.items()}
    tokens, codes = config.tokenizer.tokens, config.tokenizer.codes
    print(f"{len(joints_mm)} poses, {tokens} tokens of {codes} codes, {config.skeleton.count} joints, pelvis-aligned")
    figures = {name: asdict(result) for name, result in results.items()}
    names = [field.name for field in fields(Reconstruction)][1:]
    texts = [[f"{each[name]:.2f}" if isinstance(each[name], float) else str(each[name]) for each in figures.values()]
             for name in names]  # fmt: skip
    print(aligned(["", *figures], [[name.replace("_", " "), *row] for name, row in zip(names, texts, strict=True)]))
    if out is not None:
        about = {"run": run, "data": str(data), "split": split, "every": every, "seed": seed}
        write_json(out, about | figures)
