"""One row of a tokenizer ablation: train the small recipe's tokenizer with some settings changed, and measure it.

    OMP_NUM_THREADS=1 python benchmarks/tokenizer_ablation.py --data PREPARED_CMU --out RUN --iterations 800 \
        --set tokens=32 block=mixer encoder_width=128 decoder_width=128 --learning-rate 5e-3

Prints: MPJPE/PA-MPJPE upright and turned (roll to 55, tilt to 25 degrees), MPJPE turned with a tenth of the tokens
random, codes used and perplexity, on held-out subjects. A run that was stopped goes on.
"""

import json
from dataclasses import replace
from pathlib import Path

import tyro

from di2pose import checkpoint, recipes
from di2pose.data.poses import crop_turns
from di2pose.evaluation.tokenizer import read_poses, reconstruction
from di2pose.noise import generator_of
from di2pose.tokenizer import PoseTokenizer
from di2pose.training.loop import train
from di2pose.training.options import RunOptions
from di2pose.training.stages import tokenizer_job


def main(
    data: Path,
    out: Path,
    iterations: int = 800,
    learning_rate: float = 5e-3,
    batch: int = 128,
    set: tuple[str, ...] = (),
    every: int = 4,
) -> None:
    base = recipes.small()
    changes = {key: _value(text) for key, text in (pair.split("=", 1) for pair in set)}
    shape = replace(base.tokenizer, **changes)
    config = replace(
        base,
        tokenizer=shape,
        denoiser=replace(base.denoiser, tokens=shape.tokens, codes=shape.codes),
        tokenizer_training=replace(
            base.tokenizer_training, iterations=iterations, learning_rate=learning_rate, batch=batch, warmup=100
        ),
    )
    train(tokenizer_job(config, [data], out, seed=0), out, RunOptions(threads=1, validate_every=1000, log_every=100))
    model = PoseTokenizer(shape).eval()
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


def _value(text: str) -> object:
    """A JSON value, a list as a tuple, else a word."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return text
    return tuple(value) if isinstance(value, list) else value


if __name__ == "__main__":
    tyro.cli(main)
