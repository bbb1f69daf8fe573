"""`di2pose` whose tiny recipe draws steps by importance: run by test_distributed.py."""

import sys
from dataclasses import replace

from di2pose import recipes
from di2pose.cli import main


def by_importance(config):
    diffusion = replace(config.diffusion, importance_sampling=True, steps=4)
    return replace(config, diffusion=diffusion, denoiser=replace(config.denoiser, steps=4), sample_steps=2)


if __name__ == "__main__":
    config = by_importance(recipes.tiny())
    recipes.tiny = lambda: config
    sys.exit(main())
