"""(noise, image features) -> tokens. Probability (schedule, transition, objective, sampler) apart from the network."""

from di2pose.diffusion.denoiser import Denoiser
from di2pose.diffusion.objective import diffusion_loss
from di2pose.diffusion.sampler import sample
from di2pose.diffusion.schedule import Schedule
from di2pose.diffusion.transition import forward_probs, forward_sample, posterior
from di2pose.diffusion.trunk import Condition

__all__ = [
    "Condition",
    "Denoiser",
    "Schedule",
    "diffusion_loss",
    "forward_probs",
    "forward_sample",
    "posterior",
    "sample",
]
