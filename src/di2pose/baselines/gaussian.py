"""Continuous diffusion on root-relative joints: DDPM's training, DDIM's sampling, Di2Pose's trunk over the joints.

    x_s = signal[s] x_0 + noise[s] eps,     signal^2 + noise^2 = 1,     eps ~ N(0, 1),     steps 0..S, step 0 is data

B crops, H hypotheses, J joints, L image tokens of width F.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from di2pose import recipes
from di2pose.baselines.baseline import Baseline
from di2pose.config import TrainingConfig, TrunkConfig, added, model_skeleton
from di2pose.diffusion.adapter import with_adapter_losses
from di2pose.diffusion.denoiser import Condition, Trunk, initialise
from di2pose.errors import InputError
from di2pose.interruption import check
from di2pose.model import Constraints, Prediction
from di2pose.noise import Noise, normal, uniform_integers
from di2pose.pose.skeleton import H36M_17
from di2pose.tokenizer.tokenizer import MM_PER_METRE

Shape = Literal["cosine", "linear"]
Target = Literal["x0", "eps"]
PredictX0 = Callable[[Tensor, Tensor], Tensor]
"""(x_s (B, ...), s (B,)) -> x_0 (B, ...)."""
COSINE_OFFSET, LARGEST_BETA = 0.008, 0.999
BOUND = 6.0
"""Largest coordinate of an x_0 that follows from a predicted noise, in standard deviations."""


@dataclass(frozen=True)
class GaussianSchedule:
    """alpha-bar[s] = signal[s]^2, float64, S + 1 entries.

    cosine: cos^2 of s/S (Nichol and Dhariwal), 1 at step 0. linear: DDPM's betas from 1e-4 to 0.02 for 1000
    steps, scaled by 1000 / S so that the last step is as noisy for every S.
    """

    steps: int = 100
    shape: Shape = "cosine"
    alpha_bar: Tensor = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        passed = torch.arange(self.steps + 1, dtype=torch.float64, device="cpu") / self.steps
        if self.shape == "cosine":
            angle = (passed + COSINE_OFFSET) / (1 + COSINE_OFFSET) * math.pi / 2
            beta = 1 - (angle[1:].cos() / angle[:-1].cos()) ** 2
        else:
            beta = torch.linspace(1e-4, 0.02, self.steps, dtype=torch.float64) * 1000 / self.steps
        kept = (1 - beta.clamp(max=LARGEST_BETA)).cumprod(0)
        object.__setattr__(self, "alpha_bar", torch.cat([torch.ones_like(kept[:1]), kept]))

    def levels(self, s: Int[Tensor, " B"] | int, like: Tensor) -> tuple[Tensor, Tensor]:
        """(signal, noise) of the steps, shaped to multiply rows of `like`."""
        squared = self.alpha_bar[torch.as_tensor(s).cpu()].reshape(-1, *[1] * (like.ndim - 1))
        return squared.sqrt().to(like), (1 - squared).sqrt().to(like)

    def noised(self, x0: Float[Tensor, "B *rest"], s: Int[Tensor, " B"], eps: Tensor) -> Float[Tensor, "B *rest"]:
        """x_s ~ q(x_s | x_0)."""
        signal, noise = self.levels(s, x0)
        return signal * x0 + noise * eps


def x0_of(output: Tensor, xs: Tensor, s: Tensor, schedule: GaussianSchedule, target: Target) -> Tensor:
    """x_0 from the output of a network that predicts x_0 or the noise."""
    if target == "x0":
        return output
    signal, noise = schedule.levels(s, xs)
    return ((xs - noise * output) / signal).clamp(-BOUND, BOUND)


def ddim(
    predict_x0: PredictX0,
    schedule: GaussianSchedule,
    steps: int,
    shape: tuple[int, ...],
    generator: Noise,
    eta: float = 0.0,
    device: torch.device | str = "cpu",
) -> Tensor:
    """x_0, drawn in any number of steps from x_S ~ N(0, 1).

    eta 0: all randomness is in the start; eta 1: DDPM's own posterior. Each row's draws are its generator's alone.
    """
    if not 1 <= steps <= schedule.steps:
        raise InputError(f"the count of reverse steps must lie in 1..{schedule.steps}, got {steps}")
    x = normal(shape, generator, device, mirrors=True)
    for i in range(steps, 0, -1):
        check()
        s, r = (round(schedule.steps * each / steps) for each in (i, i - 1))
        x0 = predict_x0(x, torch.full(shape[:1], s, device=x.device))
        signal, noise = schedule.levels(s, x)
        eps = (x - signal * x0) / noise
        there, left = schedule.levels(r, x)  # at r = 0: 1 and 0
        fresh = eta * left / noise * (1 - (signal / there) ** 2).clamp_min(0).sqrt()
        x = there * x0 + (left**2 - fresh**2).clamp_min(0).sqrt() * eps
        if eta and r:
            x = x + fresh * normal(shape, generator, device, mirrors=True)
    return x


@dataclass(frozen=True)
class GaussianConfig:
    """The network, its noise and its training."""

    name: str
    encoder: str
    trunk: TrunkConfig
    """`tokens` are the joints, `steps` the diffusion's; `hint_channels` is 3, or 0 for no self-condition."""
    training: TrainingConfig
    schedule: Shape = "cosine"
    target: Target = "x0"
    """What the network predicts. x0: a small error stays small at every step, and the self-condition is a pose, too.
    From a predicted noise x_0 follows by a division by the signal, which is nearly 0 in the last steps."""
    eta: float = 0.0
    """0: all randomness is in the start (DDIM); 1: DDPM's posterior."""
    scale_mm: float = 300.0
    """Unit of a coordinate: about the deviation over the poses, so that noise of deviation 1 covers them."""
    regression_weight: float = 10.0
    aligned_weight: float = 10.0
    visibility_weight: float = 0.5
    sample_steps: int = 10
    skeleton: str = added(H36M_17.name)

    def __post_init__(self) -> None:
        joints, trunk = model_skeleton(self.skeleton).count, self.trunk
        if (trunk.tokens, trunk.joints) != (joints, joints) or trunk.hint_channels not in (0, 3):
            raise InputError(
                f"trunk.tokens and trunk.joints must be {joints}, and trunk.hint_channels 3, or 0 for no hint, "
                f"got {trunk.tokens}, {trunk.joints} and {trunk.hint_channels}"
            )
        if not 0 <= self.eta <= 1 or self.scale_mm <= 0:
            raise InputError(f"eta must lie in [0, 1] and scale_mm above 0, got {self.eta} and {self.scale_mm}")
        if not 1 <= self.sample_steps <= self.trunk.steps:
            raise InputError(f"sample_steps must lie in 1..{self.trunk.steps}, got {self.sample_steps}")

    @property
    def feature_size(self) -> tuple[int, int]:
        return self.trunk.feature_size


class Gaussian(Baseline):
    """A `model.PoseModel`: noise -> joints, in DDIM's steps."""

    kind: ClassVar[str] = "gaussian"
    config_type = GaussianConfig

    def __init__(self, config: GaussianConfig) -> None:
        super().__init__()
        self.config = config
        self.skeleton = model_skeleton(config.skeleton)
        self.schedule = GaussianSchedule(config.trunk.steps, config.schedule)
        self.joint_embed = nn.Linear(3, config.trunk.width)
        self.to_joints = nn.Linear(config.trunk.width, 3)
        initialise(self.to_joints)
        self.trunk = Trunk(config.trunk)

    @classmethod
    def recipe(cls, encoder: str, feature_tokens: int, feature_width: int) -> GaussianConfig:
        """Of the size of `recipes.compare`."""
        base = recipes.compare(feature_width, feature_tokens)
        trunk = recipes.trunk_of(base, tokens=base.skeleton.count, hint_channels=3)
        return GaussianConfig("gaussian", encoder, trunk, base.denoiser_training)

    def loss(self, batch: dict[str, Tensor], generator: Noise) -> dict[str, Tensor]:
        """`diffusion`, the mean square error of the network's target, and the adapter's losses."""
        joints_mm = batch["joints_mm"]
        x0 = (joints_mm - joints_mm[:, :1]) / self.config.scale_mm                      # B J 3
        s = 1 + uniform_integers((len(x0),), self.schedule.steps, generator, x0.device)
        eps = normal(x0.shape, generator, x0.device)                                    # B J 3
        condition = self.condition(batch["features"], generator if self.training else None)
        output = self(self.schedule.noised(x0, s, eps), s, condition)                   # B J 3
        loss = ((output - (x0 if self.config.target == "x0" else eps)) ** 2).mean()
        return with_adapter_losses({"loss": loss, "diffusion": loss}, condition, batch, self.config)

    def condition(self, features: Float[Tensor, "B L F"], noise: Noise | None = None) -> Condition:
        """Self-conditioned on the adapter's own pose, joint by joint, in metres."""
        return self.trunk.encode_condition(features, noise, lambda joints_mm: joints_mm / MM_PER_METRE)

    def forward(
        self, xs: Float[Tensor, "BH J 3"], s: Int[Tensor, " BH"], condition: Condition
    ) -> Float[Tensor, "BH J 3"]:
        return self.to_joints(self.trunk(self.joint_embed(xs), s, condition)).float()

    @torch.no_grad()
    def predict(
        self, features: Float[Tensor, "B L F"], hypotheses: int, steps: int, generator: Noise,
        constraints: Constraints | None = None,
    ) -> Prediction:  # fmt: skip
        self.check_call(hypotheses, constraints)
        condition = self.condition(features)

        def predict_x0(xs: Tensor, s: Tensor) -> Tensor:
            return x0_of(self(xs, s, condition), xs, s, self.schedule, self.config.target)

        shape = (len(features) * hypotheses, self.skeleton.count, 3)
        x = ddim(predict_x0, self.schedule, steps, shape, generator, self.config.eta, features.device)
        joints_mm = ((x - x[:, :1]) * self.config.scale_mm).unflatten(0, (len(features), hypotheses))
        return Prediction(joints_mm, condition.visibility)

    @torch.no_grad()
    def point_estimates(self, features: Float[Tensor, "B L F"]) -> dict[str, Float[Tensor, "B J 3"]]:
        joints_mm = self.trunk.encode_condition(features).joints_mm
        return {} if joints_mm is None else {"regression": joints_mm}

    def parts(self) -> dict[str, nn.Module]:
        return {"joint_embed": self.joint_embed, "to_joints": self.to_joints, "trunk": self.trunk}
