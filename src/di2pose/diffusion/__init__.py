"""(noise, image features) -> tokens. Probability (schedule, transition, objective, samplers) apart from the network."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from di2pose.diffusion.denoiser import Condition, Denoiser
    from di2pose.diffusion.objective import diffusion_loss
    from di2pose.diffusion.sampler import sample
    from di2pose.diffusion.schedule import Schedule
    from di2pose.diffusion.transition import forward_probs, forward_sample, posterior

__all__ = [
    "Condition", "Denoiser", "Schedule", "diffusion_loss", "forward_probs", "forward_sample", "posterior", "sample",
]  # fmt: skip
_MODULES = ("denoiser", "denoiser", "schedule", "objective", "transition", "transition", "transition", "sampler")


def __getattr__(name: str) -> object:
    """Public names on first use: `schedule` and `fast_sampler` run without PyTorch, which the others need."""
    if name in __all__:
        return getattr(import_module(f"di2pose.diffusion.{_MODULES[__all__.index(name)]}"), name)
    raise AttributeError(f"module 'di2pose.diffusion' has no attribute {name!r}")
