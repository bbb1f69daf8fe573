"""One row of a tokenizer ablation: train the small recipe's tokenizer with some settings changed, and measure it.

    OMP_NUM_THREADS=1 python benchmarks/tokenizer_ablation.py --data PREPARED_CMU --out RUN --iterations 800 \
        --set tokens=32 block=mixer encoder_width=128 decoder_width=128 --learning-rate 5e-3

Prints: MPJPE/PA-MPJPE upright and turned (roll to 55, tilt to 25 degrees), MPJPE turned with a tenth of the tokens
random, codes used and perplexity, on held-out subjects. A run that was stopped goes on.
"""

from pathlib import Path

import tyro

from di2pose import checkpoint
from di2pose.data.poses import crop_turns
from di2pose.evaluation.tokenizer import read_poses, reconstruction
from di2pose.noise import generator_of
from di2pose.tokenizer import PoseTokenizer
from di2pose.training.command import train_tokenizer
from di2pose.training.options import RunOptions, StageOptions


def main(
    data: Path,
    out: Path,
    iterations: int = 800,
    learning_rate: float = 5e-3,
    batch: int = 128,
    set: tuple[str, ...] = (),
    every: int = 4,
) -> None:
    settings = (*(f"tokenizer.{pair}" for pair in set), "tokenizer_training.warmup=100")
    stage = StageOptions(iterations, batch=batch, learning_rate=learning_rate, settings=settings)
    train_tokenizer((data,), out, stage=stage, options=RunOptions(threads=1, validate_every=1000, log_every=100))
    model = PoseTokenizer(checkpoint.read_config(out / "model").tokenizer).eval()
    checkpoint.load(out / "model", {"tokenizer": model})
    poses = read_poses(data, "test")[::every]
    turned = poses @ crop_turns(len(poses), generator_of(0, "turns")).mT
    upright, tilted = reconstruction(model, poses), reconstruction(model, turned)
    print("| settings | iterations | upright | turned | 10 % wrong | codes used | perplexity |")
    print("|---|---|---|---|---|---|---|")
    print(
        f"| {' '.join(set)} lr={learning_rate:g} | {iterations} | {upright.mpjpe_mm:.1f}/{upright.pa_mpjpe_mm:.1f} "
        f"| {tilted.mpjpe_mm:.1f}/{tilted.pa_mpjpe_mm:.1f} | {tilted.wrong_tokens_mm:.0f} "
        f"| {tilted.codes_used} | {tilted.perplexity:.0f} |"
    )


if __name__ == "__main__":
    tyro.cli(main)
