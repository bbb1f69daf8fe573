"""Di2Pose, the whole model.  B images, H hypotheses, N tokens, L image tokens of width F.

    image features y -> [denoiser: noise -> tokens] -> [tokenizer: tokens -> joints]

Training, evaluation and prediction all meet in `loss` and `predict_tokens`.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from di2pose import checkpoint
from di2pose.config import Config
from di2pose.diffusion.denoiser import Denoiser
from di2pose.diffusion.objective import StepSampler, diffusion_loss
from di2pose.diffusion.sampler import Start, sample
from di2pose.diffusion.schedule import Schedule
from di2pose.diffusion.transition import forward_sample
from di2pose.errors import InputError
from di2pose.pose.metrics import mpjpe
from di2pose.randomness import Noise
from di2pose.tokenizer.tokenizer import MM_PER_METRE, PoseTokenizer


class Di2Pose(nn.Module):
    """Owns the parts: a frozen tokenizer, the denoiser, and optionally the frozen image encoder that makes features."""

    def __init__(self, config: Config, encoder: nn.Module | None = None) -> None:
        super().__init__()
        self.config = config
        self.tokenizer = PoseTokenizer(config.tokenizer)
        self.denoiser = Denoiser(config.denoiser)
        self.encoder = encoder
        self.schedule = Schedule(config.tokenizer.codes, config.diffusion.steps, config.diffusion.final_occlude)
        self.step_sampler = StepSampler(config.diffusion.steps, config.diffusion.importance_sampling)
        self.tokenizer.requires_grad_(False)

    @classmethod
    def from_pretrained(cls, folder: Path | str) -> "Di2Pose":
        """A model from a checkpoint folder; nothing else is needed. In evaluation mode."""
        model = cls(checkpoint.read_config(folder))
        checkpoint.load(folder, model.parts())
        return model.eval()

    def save(self, folder: Path | str, **notes: str | float) -> Path:
        """Write a checkpoint folder, atomically. Notes are kept in its config.json."""
        return checkpoint.save(folder, self.config, self.parts(), notes)

    def parts(self) -> dict[str, nn.Module]:
        """The trained parts, by the names of their files. The frozen backbone is not ours to ship."""
        return {"tokenizer": self.tokenizer, "denoiser": self.denoiser}

    def loss(self, batch: dict[str, Tensor], generator: Noise) -> dict[str, Tensor]:
        """Algorithm 1 on `{"features": (B, L, F), "joints_mm": (B, 17, 3)}`: `loss`, `vlb`, `aux`, `accuracy`.

        Where `pose_weight` is above 0 (an extension), the predicted probabilities are also decoded softly by the
        frozen tokenizer: `pose`, the mean joint error in metres, joins the loss with that weight. So do the adapter's
        `regression`, where there is an adapter, and `visibility`, its cross-entropy to `batch["visibility"]` (B, 17),
        where that is given; -1 is unknown.

        The generator draws s, then the noise of k_s; with one generator per row a sample's noise is its own.
        """
        if missing := {"features", "joints_mm"} - batch.keys():
            raise InputError(f"a batch needs the keys features and joints_mm, it lacks {', '.join(sorted(missing))}")
        features, joints_mm = batch["features"], batch["joints_mm"]
        if len(features) != len(joints_mm):
            raise InputError(f"a batch needs as many features as poses, got {len(features)} and {len(joints_mm)}")
        k0 = self.tokenizer.encode(joints_mm)
        s, weights = self.step_sampler.draw(len(k0), generator)
        ks = forward_sample(k0, s, self.schedule, generator)
        condition = self.denoiser.condition(features)
        logits = self.denoiser(ks, s.to(ks.device), condition)
        losses = diffusion_loss(logits, k0, ks, s, self.schedule, self.config.diffusion.aux_weight, weights)
        per_sample = losses.pop("vlb_per_sample")
        if self.config.diffusion.pose_weight:
            errors = mpjpe(self.tokenizer.decode_soft(logits.float().softmax(-1)), joints_mm, root=0)
            losses["pose"] = (weights.to(errors) * errors).mean() / MM_PER_METRE
            losses["loss"] = losses["loss"] + self.config.diffusion.pose_weight * losses["pose"]
        if condition.joints_mm is not None:
            losses["regression"] = mpjpe(condition.joints_mm, joints_mm, root=0).mean() / MM_PER_METRE
            losses["loss"] = losses["loss"] + self.config.diffusion.regression_weight * losses["regression"]
        if condition.visibility_logits is not None and "visibility" in batch:
            losses["visibility"] = _known_cross_entropy(condition.visibility_logits, batch["visibility"])
            losses["loss"] = losses["loss"] + self.config.diffusion.visibility_weight * losses["visibility"]
        if self.training:
            self.step_sampler.update(s, per_sample.cpu())
        return losses | {"accuracy": (logits.argmax(-1) == k0).float().mean()}

    @torch.no_grad()
    def predict_tokens(
        self,
        features: Float[Tensor, "B L F"],
        hypotheses: int,
        steps: int | Sequence[int],
        generator: Noise,
        start: Start = "stationary",
    ) -> Int[Tensor, "B H N"]:
        """Algorithm 2, H times for each image. `generator`: one, or one per row (image, hypothesis), B * H in all."""
        if hypotheses < 1:
            raise InputError(f"hypotheses must be 1 or more, got {hypotheses}")
        condition = self.denoiser.condition(features)
        shape = (len(features) * hypotheses, self.config.tokenizer.tokens)

        def predict_p0(ks: Tensor, s: Tensor) -> Tensor:
            return self.denoiser(ks, s, condition).float().softmax(-1)

        for ks in sample(predict_p0, self.schedule, steps, shape, generator, start, device=features.device):
            tokens = ks
        return tokens.unflatten(0, (len(features), hypotheses))

    @torch.no_grad()
    def regress_joints(self, features: Float[Tensor, "B L F"]) -> Float[Tensor, "B 17 3"]:
        """The adapter's direct regression, for comparison: one pose an image, no hypotheses."""
        joints_mm = self.denoiser.condition(features).joints_mm
        if joints_mm is None:
            raise InputError("this model has no adapter (adapter_layers is 0), so nothing regresses joints")
        return joints_mm

    @torch.no_grad()
    def predict_joints(
        self,
        features: Float[Tensor, "B L F"],
        hypotheses: int,
        steps: int | Sequence[int],
        generator: Noise,
        start: Start = "stationary",
    ) -> Float[Tensor, "B H 17 3"]:
        """The poses of `predict_tokens`: root-relative millimetres."""
        tokens = self.predict_tokens(features, hypotheses, steps, generator, start)
        return self.tokenizer.decode(tokens.flatten(0, 1)).unflatten(0, tokens.shape[:2])


def _known_cross_entropy(logits: Float[Tensor, "B J K"], target: Int[Tensor, "B J"]) -> Float[Tensor, ""]:
    """Mean over the joints whose class is known; 0 where none is."""
    total = F.cross_entropy(logits.flatten(0, 1), target.flatten().long(), ignore_index=-1, reduction="sum")
    return total / (target >= 0).sum().clamp_min(1)
