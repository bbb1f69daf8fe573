"""Which code embedding should the decoder use? Reconstruction error of linear, mlp and table on real poses.

    python benchmarks/code_embedding.py --data PREPARED_CMU

Trains a recipe's tokenizer, narrowed to fit a CPU, on the train split of a prepared BVH set and prints the MPJPE on
the test split (other subjects), for each embedding and seed.
"""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import tyro

from di2pose import recipes
from di2pose.data.sample import Dataset
from di2pose.pose.metrics import mpjpe
from di2pose.tokenizer import PoseTokenizer


def main(
    data: Path,
    recipe: Literal["paper", "small"] = "paper",
    iterations: int = 1200,
    width: int = 128,
    batch: int = 128,
    seeds: int = 1,
) -> None:
    dataset = Dataset(data)
    poses = torch.from_numpy(np.array(dataset.joints_mm))
    train, test = (torch.from_numpy(dataset.select(split=s)) for s in ("train", "test"))
    held_out = poses[test[:: max(1, len(test) // 2000)]]
    print(f"recipe {recipe}, {width} channels, {iterations} iterations of {batch} poses")
    print(f"{len(train)} training poses, tested on {len(held_out)} of other subjects")
    print(f"{'embedding':<10} {'seed':>4} {'MPJPE mm':>9} {'codes used':>10} {'perplexity':>10}")
    for seed in range(seeds):
        for kind in ("linear", "mlp", "table"):
            torch.manual_seed(seed)
            shape = getattr(recipes, recipe)().tokenizer
            model = PoseTokenizer(replace(shape, encoder_width=width, decoder_width=width, code_embed=kind))
            optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
            schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=iterations)
            order = torch.Generator().manual_seed(seed)
            for _ in range(iterations):
                rows = train[torch.randint(len(train), (batch,), generator=order)]
                loss = model.loss(poses[rows])["loss"]
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                schedule.step()
            tokens = model.encode(held_out)
            with torch.no_grad():
                error = mpjpe(model.decode(tokens), held_out).mean().item()
            usage = model.usage(tokens)
            print(f"{kind:<10} {seed:>4} {error:>9.1f} {usage.used:>10} {usage.perplexity:>10.0f}", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
