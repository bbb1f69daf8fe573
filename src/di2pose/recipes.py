"""Full configurations, each a function: the paper's, one for CPUs, one to compare methods, one for tests."""

from dataclasses import fields, replace
from typing import Literal, get_args

from di2pose.config import (
    Config,
    DenoiserConfig,
    DiffusionConfig,
    TokenizerConfig,
    TrainingConfig,
    TrunkConfig,
    model_skeleton,
)  # fmt: skip

RecipeName = Literal["paper", "small", "lift", "compare", "tiny"]
RECIPES: tuple[str, ...] = get_args(RecipeName)


def named(name: RecipeName) -> Config:
    """The recipe of that name."""
    return globals()[name]()


def paper(feature_width: int = 768) -> Config:
    """All the numbers of the paper. What it leaves open (warm-up, clip, EMA, ViTPose's size) is docs/paper.md's."""
    denoiser_training = TrainingConfig(
        learning_rate=5.5e-4, betas=(0.9, 0.96), weight_decay=4.5e-2, batch=64, epochs=50, warmup=1000
    )
    return Config(
        name="paper",
        tokenizer=TokenizerConfig(augment=False),
        diffusion=DiffusionConfig(),
        denoiser=DenoiserConfig(feature_width=feature_width),
        tokenizer_training=TrainingConfig(
            learning_rate=1e-3, betas=(0.9, 0.999), weight_decay=0.15, batch=256, epochs=20, warmup=500
        ),
        adapter_training=denoiser_training,
        denoiser_training=denoiser_training,
        encoder="vitpose:usyd-community/vitpose-base-simple",
        sample_steps=100,
    )


def small(feature_width: int = 302, feature_tokens: int = 134) -> Config:
    """A model for CPUs, over the features of BlazePose heavy and MoveNet. From short trials; docs/log.md has them."""
    tokenizer = TokenizerConfig(
        tokens=48, levels=(8, 8, 8), block="mixer", joint_embed=True, token_mix=True, skeleton="h36m_21",
        encoder_blocks=4, encoder_width=192, decoder_blocks=2, decoder_width=192,
    )  # fmt: skip
    denoiser = DenoiserConfig(
        tokens=tokenizer.tokens, codes=tokenizer.codes, feature_width=feature_width, feature_tokens=feature_tokens,
        width=192, layers=4, heads=6,
        adapter_layers=2, adapter_width=1024, adapter_channels=32, adapter_tokens=12, adapter_dropout=0.2,
        hint_channels=len(tokenizer.levels), hint_dropout=0.15, observer_tokens=17, observer_dropout=0.1,
        simulated_observers=0.5, carry_over=True, joints=model_skeleton(tokenizer.skeleton).count,
    )  # fmt: skip
    return Config(
        name="small",
        tokenizer=tokenizer,
        diffusion=DiffusionConfig(
            aux_weight=0.1, pose_weight=10.0, regression_weight=10.0, visibility_weight=0.5, aligned_weight=10.0
        ),
        denoiser=denoiser,
        tokenizer_training=TrainingConfig(
            learning_rate=5e-3, betas=(0.9, 0.99), weight_decay=0.05, batch=64, epochs=10, warmup=500
        ),
        adapter_training=TrainingConfig(
            learning_rate=1e-3, betas=(0.9, 0.98), weight_decay=0.05, batch=128, epochs=20, warmup=200
        ),
        denoiser_training=TrainingConfig(
            learning_rate=1e-3, betas=(0.9, 0.96), weight_decay=4.5e-2, batch=64, epochs=10, warmup=500
        ),
        encoder="blazepose-heavy+movenet",
        sample_steps=4,
    )


def lift(feature_width: int = 68, feature_tokens: int = 27) -> Config:
    """A model for 2D keypoints of a window of frames (`di2pose data lift --window 27`), with `small`'s tokenizer."""
    base = small()
    denoiser = replace(
        base.denoiser, feature_width=feature_width, feature_tokens=feature_tokens, width=128, layers=3, heads=4,
        adapter_layers=3, adapter_width=640, adapter_channels=48, adapter_tokens=8, adapter_dropout=0.05,
        observer_tokens=0, observer_dropout=0.0, simulated_observers=0.0,
    )  # fmt: skip
    return replace(base, name="lift", denoiser=denoiser, encoder="keypoints:27")


def compare(feature_width: int = 302, feature_tokens: int = 134) -> Config:
    """`small` with a trunk so small that two CPU cores train a hundred of them: for comparisons and ablations. The
    baselines' recipes are of this size. The tokenizer has the paper's block. No feature is dropped in training."""
    base = small()
    tokenizer = replace(
        base.tokenizer, tokens=24, levels=(7, 5, 5), block="local", token_mix=False, skeleton="h36m_17",
        encoder_width=64, decoder_width=64,
    )  # fmt: skip
    denoiser = replace(
        base.denoiser, tokens=tokenizer.tokens, codes=tokenizer.codes, feature_width=feature_width,
        feature_tokens=feature_tokens, width=64, layers=2, heads=4,
        adapter_width=384, adapter_channels=16, adapter_tokens=8, adapter_dropout=0.0,
        observer_tokens=0, observer_dropout=0.0, simulated_observers=0.0,
        joints=model_skeleton(tokenizer.skeleton).count,
    )  # fmt: skip
    learning = {name: replace(getattr(base, name), batch=32) for name in ("tokenizer_training", "denoiser_training")}
    return replace(base, name="compare", tokenizer=tokenizer, denoiser=denoiser, **learning)


def trunk_of(config: Config, **changes: int) -> TrunkConfig:
    """The denoiser's trunk alone, with some fields changed: for a baseline of the same size."""
    sizes = {field.name: getattr(config.denoiser, field.name) for field in fields(TrunkConfig)}
    return TrunkConfig(**(sizes | changes))


def tiny(feature_width: int = 32) -> Config:
    """Small enough to learn eight poses in a minute: for tests."""
    tokenizer = TokenizerConfig(
        tokens=16, levels=(5, 5, 5), encoder_blocks=2, encoder_width=64, decoder_blocks=2, decoder_width=64
    )
    denoiser = DenoiserConfig(
        tokens=tokenizer.tokens, codes=tokenizer.codes, feature_width=feature_width,
        steps=20, width=64, layers=2, heads=4,
    )  # fmt: skip
    training = TrainingConfig(
        learning_rate=2e-3, betas=(0.9, 0.99), weight_decay=0.0, batch=64, epochs=1, warmup=20, ema=0.99
    )
    return Config(
        name="tiny",
        tokenizer=tokenizer,
        diffusion=DiffusionConfig(steps=20, aux_weight=0.1),
        denoiser=denoiser,
        tokenizer_training=training,
        adapter_training=training,
        denoiser_training=training,
        encoder="none",
        sample_steps=20,
    )
