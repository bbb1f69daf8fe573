"""Of `speed.py`: the denoiser, the sampler and a training step.  H hypotheses, N tokens, C codes."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from clock import Clock, Job, Row, peak_bytes
from reference_sampler import reference_loss, reverse_step
from torch import Tensor, nn

from di2pose import recipes
from di2pose.config import DenoiserConfig
from di2pose.diffusion import Denoiser, Schedule, diffusion_loss, forward_sample
from di2pose.diffusion.fast_sampler import jump
from di2pose.noise import hypothesis_generators, uniform

SIX = DenoiserConfig(width=256, layers=6, heads=8)
QUICK = DenoiserConfig(tokens=20, codes=125, width=32, layers=2, heads=4, feature_width=24)
IMAGE_TOKENS = 192


def sizes(quick: bool) -> dict[str, DenoiserConfig]:
    if quick:
        return {"2 x 32": QUICK}
    return {"small": recipes.small().denoiser, "6 x 256": SIX, "paper, 21 x 1024": recipes.paper().denoiser}


def make(config: DenoiserConfig) -> Denoiser:
    torch.manual_seed(0)
    return Denoiser(config).eval()


def features_of(config: DenoiserConfig) -> Tensor:
    return torch.randn(1, config.feature_tokens or IMAGE_TOKENS, config.feature_width)


@torch.inference_mode()
def denoiser(clock: Clock, quick: bool) -> list[Row]:
    """Time of the same matrix multiplications alone over that of a pass, and the rate over that of a square one."""
    rows = []
    side = 256 if quick else 1536
    square = torch.randn(side, side)
    for name, config in sizes(quick).items():
        network = make(config)
        condition = network.encode_condition(features_of(config))
        layers = [
            module
            for part, module in network.named_modules()
            if isinstance(module, nn.Linear)
            and (part.startswith("blocks") or part == "to_logits")
            and not part.endswith(("to_scale_and_shift", "cross_attention.to_keys", "cross_attention.to_values"))
        ]
        norms = network.step_norms(torch.tensor([50]))
        for hypotheses in (1, 8):
            ks = torch.randint(config.codes + 1, (hypotheses, config.tokens))
            inputs = {layer.in_features: torch.randn(ks.numel(), layer.in_features) for layer in layers}

            def multiply(layers: list[nn.Linear] = layers, inputs: dict[int, Tensor] = inputs) -> None:
                for layer in layers:
                    torch.mm(inputs[layer.in_features], layer.weight.t())

            def run(ks: Tensor = ks, network: Denoiser = network, known: Any = (norms, condition)) -> None:
                network.head(network.run_blocks(network.token_embed(ks), *known), ks, torch.tensor([50]))

            jobs: dict[str, Job] = {"pass": run, "multiply": multiply, "square": lambda: torch.mm(square, square)}
            found = clock.least(jobs, few(clock, name))
            work = sum(2 * ks.numel() * layer.weight.numel() for layer in layers)
            rate = work / found["pass"] / (2 * side**3 / found["square"])
            what = f"{name}, H = {hypotheses}"
            alone = found["multiply"] / found["pass"]
            least = {1: 65.0, 8: 75.0}[hypotheses] if "paper" in name else None
            rows.append(Row("denoiser", what, 100 * alone, "% of its multiplications alone"))
            rows.append(Row("denoiser", what, 100 * rate, f"% of the rate of {side} x {side}", least=least))
    return rows


class Passes:
    """The time that a denoiser's parts take, gathered while something else runs them."""

    def __init__(self, network: Denoiser, clock: Clock) -> None:
        self.clock, self.spent = clock, 0.0
        for name in ("run_blocks", "head", "encode_condition", "step_norms"):
            setattr(network, name, self._timed(getattr(network, name)))

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            begin = self.clock.now()
            result = method(*args)
            self.spent += self.clock.now() - begin
            return result

        return run

    def watched(self, job: Job, shares: list[float]) -> Job:
        """The job, which also notes what part of its own time was spent elsewhere, in percent."""

        def run() -> None:
            self.spent = 0.0
            whole = self.clock.once(job)
            shares.append(100 * (1 - self.spent / whole))

        return run


def steppers(network: Denoiser, hypotheses: int, at: list[int]) -> dict[str, Job]:
    """One step each from the noise of several steps of 100, of all hypotheses of one image: ours and the reference."""
    config = network.config
    schedule = Schedule(config.codes, config.steps)
    features = features_of(config)
    condition = network.encode_condition(features)
    k0 = torch.randint(config.codes, (hypotheses, config.tokens))
    predict = network.lazy_p0(condition, list(range(config.steps, -1, -1)))

    @torch.inference_mode()
    def ours() -> None:
        for s in at:
            noise = hypothesis_generators(s, ["image"], hypotheses)
            ks, levels = forward_sample(k0, s, schedule, noise), levels_of(config)
            u = uniform((*k0.shape, (len(levels) or 1) + 1), noise)
            jump(ks, u, s - 1, s, schedule, predict, levels)

    @torch.inference_mode()
    def reference() -> None:
        generator = torch.Generator().manual_seed(0)
        for s in at:
            for h in range(hypotheses):
                ks = forward_sample(k0[h : h + 1], s, schedule, generator)
                reverse_step(network, features, ks, s, schedule)

    return {"ours": ours, "reference": reference}


def levels_of(config: DenoiserConfig) -> tuple[int, ...]:
    return {4375: (7, 5, 5, 5, 5), 512: (8, 8, 8), 125: (5, 5, 5)}.get(config.codes, ())


def steps_of(name: str, quick: bool) -> list[int]:
    return [50] if quick else [15, 50, 85] if "paper" in name else list(range(5, 100, 10))


def few(clock: Clock, name: str) -> int:
    """Repeats: a pass at the paper's size takes seconds."""
    return min(clock.repeats, 4) if "paper" in name else clock.repeats


TARGETS = {("6 x 256", 8, "ours"): 5.0, ("paper", 8, "ours"): 1.3}
"""Size, hypotheses, whose -> how many times as fast as the reference it should be."""


@torch.inference_mode()
def sampler(clock: Clock, quick: bool) -> list[Row]:
    """The reference over ours, step by step, from the same weights; and what a step costs beside the network's
    pass."""
    rows = []
    for name, config in sizes(quick).items():
        if config.adapter_layers:  # the reference computes the condition in every step; an adapter would be unfair
            continue
        network = make(config)
        passes = Passes(network, clock)
        for hypotheses in (1, 8):
            shares: dict[str, list[float]] = {"ours": [], "reference": []}
            jobs = steppers(network, hypotheses, steps_of(name, quick))
            jobs = {who: passes.watched(job, shares[who]) for who, job in jobs.items()}
            found = clock.least(jobs, few(clock, name))
            ratio, what = found["reference"] / found["ours"], f"{name}, H = {hypotheses}, reference over ours"
            least = TARGETS.get((name.partition(",")[0], hypotheses, "ours"))
            rows.append(Row("sampler", what, ratio, "times", least=least))
            for who, each in shares.items():
                what = f"{name}, H = {hypotheses}, arithmetic, {who}"
                most = 8.0 if who == "ours" and not quick else None
                rows.append(Row("sampler", what, min(each[1:]), "% of a step", most=most))
    return rows


def training(clock: Clock, quick: bool) -> list[Row]:
    """A training step: time and peak memory, the reference loss over ours."""
    batch = 2 if quick else 16
    config = QUICK if quick else SIX
    jobs = {who: training_step(who, config, batch) for who in ("ours", "reference")}
    found = clock.least(jobs, min(clock.repeats, 5))
    what = f"{'2 x 32' if quick else '6 x 256'}, batch {batch}"
    rows = [Row("training", f"{what}, time, reference over ours", found["reference"] / found["ours"], "times")]
    peaks = {who: peak(who, quick) for who in ("nothing", "ours", "reference")}
    logits = batch * config.tokens * config.codes * 4
    for who in ("ours", "reference"):
        tensors = (peaks[who] - peaks["nothing"]) / logits
        rows.append(Row("training", f"{what}, peak memory of loss and gradient, {who}", tensors, "logit-sized tensors"))
    return rows


def training_step(who: str, config: DenoiserConfig, batch: int) -> Job:
    network = make(config).train()
    schedule = Schedule(config.codes, config.steps)
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(batch, IMAGE_TOKENS, config.feature_width)
    k0, s, ks = _batch(config, batch, schedule, generator)

    def step() -> None:
        logits = network(ks, s, network.encode_condition(features))
        _loss(who, logits, k0, ks, s, schedule).backward()
        network.zero_grad()

    return step


def _batch(config: DenoiserConfig, batch: int, schedule: Schedule, generator: torch.Generator) -> tuple[Tensor, ...]:
    k0 = torch.randint(config.codes, (batch, config.tokens), generator=generator)
    s = torch.randint(1, config.steps + 1, (batch,), generator=generator)
    return k0, s, forward_sample(k0, s, schedule, generator)


def _loss(who: str, logits: Tensor, k0: Tensor, ks: Tensor, s: Tensor, schedule: Schedule) -> Tensor:
    if who == "ours":
        return diffusion_loss(logits, k0, ks, s, schedule, 5e-4)["loss"]
    return reference_loss(logits, k0, ks, s, schedule, 5e-4)


def peak(who: str, quick: bool) -> int:
    """Peak resident bytes of a process that computes loss and gradient of given logits."""
    command = [sys.executable, __file__, who, str(int(quick))]
    return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def main(who: str, quick: bool) -> None:
    config, batch = (QUICK, 2) if quick else (SIX, 16)
    warm = replace(config, tokens=2)  # lazily loaded code must not count as tensors
    for case, size in ((warm, 1), *([(config, batch)] if who != "nothing" else [])):
        schedule = Schedule(case.codes, case.steps)
        k0, s, ks = _batch(case, size, schedule, torch.Generator().manual_seed(0))
        logits = torch.randn(size, case.tokens, case.codes).requires_grad_()
        _loss("ours" if who == "nothing" else who, logits, k0, ks, s, schedule).backward()
    print(peak_bytes())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] == "1")
