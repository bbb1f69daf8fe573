"""PCT: the tokens of a pose are classified in one pass, each independently, and decoded by their probabilities.

Di2Pose's trunk, without noise and without steps, on a frozen tokenizer: PCT's own has Mixer blocks and a VQ codebook.
B crops, H hypotheses, J joints, N tokens, C codes, L image tokens of width F.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from di2pose import recipes
from di2pose.baselines.baseline import Baseline
from di2pose.config import TokenizerConfig, TrainingConfig, TrunkConfig, model_skeleton
from di2pose.diffusion.adapter import with_adapter_losses
from di2pose.diffusion.denoiser import Condition, Trunk, initialise
from di2pose.diffusion.fast_sampler import draw_codes
from di2pose.errors import InputError
from di2pose.model import Constraints, Prediction
from di2pose.noise import Noise, mirrored, uniform
from di2pose.pose.metrics import mpjpe
from di2pose.tokenizer.tokenizer import MM_PER_METRE, PoseTokenizer


@dataclass(frozen=True)
class PCTConfig:
    """The tokenizer, the classifier and its training."""

    name: str
    encoder: str
    tokenizer: TokenizerConfig
    trunk: TrunkConfig
    """`tokens` are the tokenizer's, `steps` is 1; `hint_channels` the tokenizer's, or 0 for no self-condition."""
    training: TrainingConfig
    pose_weight: float = 10.0
    """Of the softly decoded pose's mean joint error, in metres, beside the cross-entropy of the tokens."""
    regression_weight: float = 10.0
    aligned_weight: float = 10.0
    visibility_weight: float = 0.5
    sample_steps: int = 1

    def __post_init__(self) -> None:
        joints, trunk, tokenizer = model_skeleton(self.tokenizer.skeleton).count, self.trunk, self.tokenizer
        found = (trunk.tokens, trunk.steps, trunk.joints)
        if found != (tokenizer.tokens, 1, joints) or trunk.hint_channels not in (0, tokenizer.channels):
            raise InputError(
                f"trunk.tokens must be the tokenizer's {tokenizer.tokens}, trunk.steps 1, trunk.joints {joints} and "
                f"trunk.hint_channels {tokenizer.channels} or 0, got {found} and {trunk.hint_channels}"
            )

    @property
    def feature_size(self) -> tuple[int, int]:
        return self.trunk.feature_size


class PCT(Baseline):
    """A frozen tokenizer and the classifier: a `model.PoseModel`."""

    kind: ClassVar[str] = "pct"
    config_type = PCTConfig

    def __init__(self, config: PCTConfig) -> None:
        super().__init__()
        self.config = config
        self.tokenizer = PoseTokenizer(config.tokenizer).requires_grad_(False)
        self.skeleton = self.tokenizer.skeleton
        self.trunk = Trunk(config.trunk)
        self.to_logits = nn.Linear(config.trunk.width, config.tokenizer.codes)
        initialise(self.to_logits)

    @classmethod
    def token_recipe(
        cls, encoder: str, feature_tokens: int, feature_width: int, tokenizer: TokenizerConfig
    ) -> PCTConfig:
        """Of the size of `recipes.compare`."""
        base = recipes.compare(feature_width, feature_tokens)
        joints, hint = model_skeleton(tokenizer.skeleton).count, tokenizer.channels
        trunk = recipes.trunk_of(base, tokens=tokenizer.tokens, steps=1, hint_channels=hint, joints=joints)
        return PCTConfig("pct", encoder, tokenizer, trunk, base.denoiser_training)

    def loss(self, batch: dict[str, Tensor], generator: Noise) -> dict[str, Tensor]:
        """`tokens`, the cross-entropy to the true ones; `pose`, the softly decoded pose's error; the adapter's own."""
        k0 = self.tokenizer.encode(batch["joints_mm"])
        condition = self.condition(batch["features"], generator if self.training else None)
        logits = self(condition)
        soft = self.tokenizer.decode_soft(logits.softmax(-1))
        losses = {
            "tokens": F.cross_entropy(logits.flatten(0, 1), k0.flatten()),
            "pose": mpjpe(soft, batch["joints_mm"], root=0).mean() / MM_PER_METRE,
            "accuracy": (logits.argmax(-1) == k0).float().mean(),
        }
        total = losses["tokens"] + self.config.pose_weight * losses["pose"]
        return with_adapter_losses({"loss": total, **losses}, condition, batch, self.config)

    def condition(self, features: Float[Tensor, "B L F"], noise: Noise | None = None) -> Condition:
        return self.trunk.encode_condition(features, noise, self.tokenizer.latents)

    def forward(self, condition: Condition) -> Float[Tensor, "B N C"]:
        """Logits of the tokens, in one pass from their positions alone."""
        images, trunk = condition.images, self.config.trunk
        x = torch.zeros(images, trunk.tokens, trunk.width, device=condition.keys[0].device)
        s = torch.ones(images, dtype=torch.int64, device=x.device)
        return self.to_logits(self.trunk(x, s, condition)).float()

    @torch.no_grad()
    def predict(
        self, features: Float[Tensor, "B L F"], hypotheses: int, steps: int, generator: Noise,
        constraints: Constraints | None = None,
    ) -> Prediction:  # fmt: skip
        """Each token is drawn independently of the others, in one step."""
        self.check_call(hypotheses, constraints)
        condition = self.condition(features)
        p0 = self(condition).softmax(-1).repeat_interleave(hypotheses, 0)               # BH N C
        digits = self.config.tokenizer.digits
        u = mirrored(uniform((*p0.shape[:2], len(digits) or 1), generator, p0.device), generator)
        tokens = draw_codes(p0.flatten(0, 1), u.flatten(0, 1), digits).view(p0.shape[:2])
        joints_mm = self.tokenizer.decode(tokens).unflatten(0, (len(features), hypotheses))
        return Prediction(joints_mm, condition.visibility)

    @torch.no_grad()
    def point_estimates(self, features: Float[Tensor, "B L F"]) -> dict[str, Float[Tensor, "B J 3"]]:
        """The adapter's regression, and PCT's own estimate: the probabilities, decoded softly."""
        condition = self.condition(features)
        found = {} if condition.joints_mm is None else {"regression": condition.joints_mm}
        return found | {"soft decode": self.tokenizer.decode_soft(self(condition).softmax(-1))}

    @torch.no_grad()
    def certainty(self, features: Float[Tensor, "B L F"]) -> Float[Tensor, " B"]:
        """Minus the mean entropy of the tokens, in nats."""
        log_p0 = self(self.condition(features)).log_softmax(-1)
        return (log_p0.exp() * log_p0).sum(-1).mean(-1)

    def parts(self) -> dict[str, nn.Module]:
        return {"tokenizer": self.tokenizer, "trunk": self.trunk, "to_logits": self.to_logits}
