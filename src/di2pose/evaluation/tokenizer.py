"""`di2pose evaluate tokenizer`: error of poses that were encoded and decoded, and number of codes used."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import tyro
from jaxtyping import Float, Int
from torch import Tensor

from di2pose import checkpoint
from di2pose.data.poses import crop_turns, dataset_poses
from di2pose.errors import InputError
from di2pose.evaluation.records import CachedRecords, open_records
from di2pose.files import write_json
from di2pose.model import find_model
from di2pose.noise import generator_of, uniform, uniform_integers
from di2pose.pose.metrics import mpjpe, pa_mpjpe
from di2pose.pose.skeleton import H36M_17, convert
from di2pose.text_table import aligned
from di2pose.tokenizer.tokenizer import PoseTokenizer

WRONG = 0.1
TABLE = (
    ("MPJPE, mm", "{mpjpe_mm:.2f}"),
    ("PA-MPJPE, mm", "{pa_mpjpe_mm:.2f}"),
    ("95th percentile, mm", "{p95_mm:.2f}"),
    ("worst joint, mm", "{worst_joint} {worst_joint_mm:.2f}"),
    ("MPJPE, 10 % wrong tokens", "{wrong_tokens_mm:.2f}"),
    ("codes used, of {}", "{codes_used}"),
    ("- at a position", "{codes_used_per_position:.1f}"),
    ("perplexity", "{perplexity:.1f}"),
    ("- at a position", "{perplexity_per_position:.1f}"),
)
"""Label of a row, and how its figures are written."""


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
    """MPJPE when a tenth of the tokens is replaced by random ones."""
    codes_used: int
    codes_used_per_position: float
    perplexity: float
    perplexity_per_position: float


@torch.no_grad()
def reconstruction(
    tokenizer: PoseTokenizer, joints_mm: Float[Tensor, "n 17 3"], seed: int = 0, batch: int = 1024
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
    return Reconstruction(
        poses=len(joints_mm),
        mpjpe_mm=float(errors.mean()),
        pa_mpjpe_mm=float(pa_mpjpe(found, joints_mm).mean()),
        p95_mm=float(errors.quantile(0.95)),
        worst_joint=H36M_17.joints[int(by_joint.argmax())],
        worst_joint_mm=float(by_joint.max()),
        wrong_tokens_mm=float(mpjpe(broken, joints_mm).mean()),
        codes_used=usage.used,
        codes_used_per_position=usage.used_per_position,
        perplexity=usage.perplexity,
        perplexity_per_position=perplexity_per_position(tokens, tokenizer.config.codes),
    )


def perplexity_per_position(tokens: Int[Tensor, "n N"], codes: int) -> float:
    """exp of the entropy of each position's codes, mean over the positions."""
    shares = [torch.bincount(column, minlength=codes) / len(tokens) for column in tokens.T]
    return float(torch.stack([torch.special.entr(share).sum().exp() for share in shares]).mean())


def read_poses(folder: Path, split: str) -> Float[Tensor, "n 17 3"]:
    """The poses of one split of a prepared dataset, rendered people or a feature cache; `all` takes every one."""
    records = open_records(folder)
    if isinstance(records, CachedRecords):
        joints, _ = convert(records.joints_mm, records.skeleton, H36M_17)
        whole = np.isfinite(joints).all((1, 2))
        joints, splits = joints[whole] - joints[whole, :1], records.column("split")[whole]
    else:
        joints, splits, _ = dataset_poses(records)
    if split != "all":
        known = ", ".join(sorted(set(splits.tolist())))
        joints = joints[splits == split]
        if not len(joints):
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
    joints_mm = read_poses(data, split)[::every]
    turned = joints_mm @ crop_turns(len(joints_mm), generator_of(seed, "turns")).mT
    poses = {"upright": joints_mm, "turned": turned}
    results = {name: reconstruction(tokenizer, mine, seed) for name, mine in poses.items()}
    tokens, codes = config.tokenizer.tokens, config.tokenizer.codes
    print(f"{len(joints_mm)} poses, {tokens} tokens of {codes} codes, 17 joints, pelvis-aligned")
    rows = [
        [label.format(codes), *(figure.format(**asdict(result)) for result in results.values())]
        for label, figure in TABLE
    ]
    print(aligned(["", *results], rows))
    if out is not None:
        figures = {"run": run, "data": str(data), "split": split, "every": every, "seed": seed}
        write_json(out, figures | {name: asdict(result) for name, result in results.items()})
