"""Occlude-and-replace transitions in closed form.  B batch, N tokens, C codes; Occ is token C.

Nothing here builds a (C + 1)^2 matrix: every row costs O(C). The dense matrices stand in the tests.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from di2pose.diffusion.schedule import Schedule
from di2pose.errors import InputError
from di2pose.noise import Noise, uniform, uniform_integers
from di2pose.tokenizer.fsq import check_tokens

Step = int | Int[Tensor, " B"]
CERTAIN = 1e4
"""Logit of a code that is known for sure: its softmax is exactly one-hot, in value and gradient, in any precision."""


def forward_probs(k0: Int[Tensor, "B N"], s: Step, schedule: Schedule) -> Float[Tensor, "B N C_plus_1"]:
    """q(k_s | k_0): keep + replace/C at k_0, replace/C at every other code, occlude at Occ; float64."""
    check_tokens(k0, schedule.codes)
    s = as_steps(s, len(k0), schedule)
    keep, replace, occlude = (_to_device(array[s].view(-1, 1), k0.device) for array in _arrays(schedule))
    probs = (replace / schedule.codes).unsqueeze(-1).repeat(1, k0.shape[1], schedule.codes + 1)
    probs.scatter_add_(-1, k0.unsqueeze(-1), keep.expand(k0.shape).unsqueeze(-1))
    probs[..., schedule.occ] = occlude
    return probs


def forward_sample(k0: Int[Tensor, "B N"], s: Step, schedule: Schedule, generator: Noise) -> Int[Tensor, "B N"]:
    """k_s ~ q(k_s | k_0), from two uniforms a token."""
    check_tokens(k0, schedule.codes)
    s = as_steps(s, len(k0), schedule)
    _, replace, occlude = (array[s].view(-1, 1) for array in _arrays(schedule))
    fate = uniform(k0.shape, generator)
    other = uniform_integers(k0.shape, schedule.codes, generator, k0.device)
    ks = torch.where((fate < occlude + replace).to(k0.device), other, k0)
    return torch.where((fate < occlude).to(k0.device), schedule.occ, ks)


def posterior(
    p0: Float[Tensor, "B N C"], ks: Int[Tensor, "B N"], r: Step, s: Step, schedule: Schedule
) -> Float[Tensor, "B N C_plus_1"]:
    """p(k_r | k_s) = sum over k_0 of q(k_r | k_s, k_0) p0(k_0), exact for ANY r < s.

    With (keep, replace, occlude) of the transition r -> s written a, b, g and u = replace/C:

    k_s = Occ:  P(Occ) = occlude_r / occlude_s;   P(k) = g / occlude_s * (keep_r p0[k] + u_r).
    k_s = m:    P(Occ) = 0;                       P(k) = (b/C + a [k=m]) / u_s * (keep_r w[k] + u_r sum(w)),
                where w = p0 but for w[m] = p0[m] u_s / (u_s + keep_s): p0 / q(k_s=m | k_0), scaled by u_s.

    Where replace[s] is 0 a visible m can only come from k_0 = m: the row is one-hot at m, whatever p0 says.
    An Occ where occlude[s] is 0 cannot be: InputError.
    """
    if p0.ndim != 3 or p0.shape[:2] != ks.shape or p0.shape[2] != schedule.codes:
        raise InputError(
            f"p0 must have shape (B, N, {schedule.codes}) and ks (B, N), got {tuple(p0.shape)} and {tuple(ks.shape)}"
        )
    check_tokens(ks, schedule.codes + 1)
    r, s = step_pair(r, s, len(ks), schedule)
    occluded = ks == schedule.occ
    check_possible(occluded, s, schedule)

    C = schedule.codes
    keep_r, u_r = schedule.keep[r], schedule.replace[r] / C
    keep_s, u_s = schedule.keep[s], schedule.replace[s] / C
    a, b, g = schedule.between(r, s)
    certain = u_s == 0
    u_s = torch.where(certain, 1, u_s)
    some_occ = torch.where(schedule.occlude[s] > 0, schedule.occlude[s], 1)

    def coefficient(of_occ: Tensor, of_visible: Tensor) -> Tensor:
        """A (B, N, 1) coefficient, formed in float64 and only then cast."""
        of_occ, of_visible = (x.to(p0.dtype).to(p0.device).view(-1, 1) for x in (of_occ, of_visible))
        return torch.where(occluded, of_occ, of_visible).unsqueeze(-1)

    one, zero = torch.ones_like(u_s), torch.zeros_like(u_s)
    m = ks.clamp(max=C - 1).unsqueeze(-1)
    damping = coefficient(one, u_s / (u_s + keep_s))
    w = p0.scatter(-1, m, p0.gather(-1, m) * damping)
    mixed = coefficient(keep_r, keep_r) * w + coefficient(u_r, u_r) * w.sum(-1, keepdim=True)
    at_m = mixed.gather(-1, m) * coefficient(zero, a / u_s)
    codes = (mixed * coefficient(g / some_occ, b / (C * u_s))).scatter_add(-1, m, at_m)
    occ = coefficient(schedule.occlude[r] / some_occ, zero)
    probs = torch.cat([codes, occ], dim=-1)
    if not certain.any():
        return probs
    known = certain.to(ks.device).view(-1, 1) & ~occluded
    one_hot = torch.zeros_like(probs).scatter_(-1, ks.unsqueeze(-1), 1)
    return torch.where(known.unsqueeze(-1), one_hot, probs)


def carry_over(logits: Float[Tensor, "*rows C"], ks: Int[Tensor, " *rows"], gain: Tensor) -> Tensor:
    """Logits of p(k_0 | k_s, y) from logits of p(k_0 | all tokens but its own, y), by Bayes' rule.

    The factor q(k_s | k_0) is keep_s + u_s at k_0 = k_s and u_s at every other code: the logit of the visible code
    gains log((keep_s + u_s) / u_s): `gain`, `carry_over_gain` of its step, which broadcasts to ks. An Occ token says
    nothing of k_0.
    """
    visible = ks < logits.shape[-1]
    m = ks.clamp(max=logits.shape[-1] - 1).unsqueeze(-1)
    logits = logits if logits.dtype == torch.float64 else logits.float()
    return logits.scatter_add(-1, m, (gain * visible).to(logits.dtype).unsqueeze(-1))


def carry_over_gain(schedule: Schedule) -> Float[Tensor, " S_plus_1"]:
    """log((keep_s + u_s) / u_s) for s = 0..S, u = replace/C; 0 at S, CERTAIN where nothing is replaced; float64."""
    u = schedule.replace / schedule.codes
    return torch.where(u > 0, torch.log1p(schedule.keep / torch.where(u > 0, u, 1)), CERTAIN)


def as_steps(s: Step, batch: int, schedule: Schedule, lowest: int = 0) -> Int[Tensor, " B"]:
    """Steps as an int64 tensor (B,) on the CPU, where the schedule is."""
    steps = torch.full((batch,), s, device="cpu") if isinstance(s, int) else s.cpu()
    if steps.shape != (batch,) or steps.dtype != torch.int64:
        raise InputError(
            f"a step must be an int or an int64 tensor of shape ({batch},), got {steps.dtype} {tuple(steps.shape)}"
        )
    if batch and not (lowest <= int(steps.min()) and int(steps.max()) <= schedule.steps):
        raise InputError(f"steps must lie in {lowest}..{schedule.steps}, got {int(steps.min())}..{int(steps.max())}")
    return steps


def step_pair(r: Step, s: Step, batch: int, schedule: Schedule) -> tuple[Tensor, Tensor]:
    """The steps of a reverse jump s -> r, checked: r < s."""
    r, s = as_steps(r, batch, schedule), as_steps(s, batch, schedule)
    if not bool((r < s).all()):
        raise InputError(f"a reverse jump goes from s to an earlier r < s, got r={r.tolist()} and s={s.tolist()}")
    return r, s


def check_possible(occluded: Tensor, s: Tensor, schedule: Schedule) -> None:
    """Refuse an Occ token at a step where nothing can be occluded."""
    never = (schedule.occlude[s] == 0).to(occluded.device)
    if bool((occluded & never.view(-1, 1)).any()):
        raise InputError(
            f"an Occ token ({schedule.occ}) where occlude[s] is 0: this schedule (final_occlude "
            f"{schedule.final_occlude}) cannot occlude a token at step(s) {sorted(set(s[never.cpu()].tolist()))}"
        )


def _arrays(schedule: Schedule) -> tuple[Tensor, Tensor, Tensor]:
    return schedule.keep, schedule.replace, schedule.occlude


def _to_device(x: Tensor, device: torch.device) -> Tensor:
    return (x.float() if device.type == "mps" else x).to(device)  # MPS has no float64
