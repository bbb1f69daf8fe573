"""Occlude-and-replace transitions in closed form.  B batch, N tokens, C codes; Occ is token C.

Nothing here builds a (C + 1)^2 matrix: every row costs O(C). The dense matrices stand in the tests.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from di2pose.diffusion.schedule import Schedule
from di2pose.errors import InputError
from di2pose.noise import Noise, uniform, uniform_integers
from di2pose.tokenizer.fsq import check_tokens

Step = int | Int[Tensor, " B"]
CERTAIN = 1e4
"""Logit of a code that is certain: its softmax is exactly one-hot, in value and gradient, in any precision."""


def forward_probs(k0: Int[Tensor, "B N"], s: Step, schedule: Schedule) -> Float[Tensor, "B N C_plus_1"]:
    """q(k_s | k_0): keep + replace/C at k_0, replace/C at every other code, occlude at Occ; float64."""
    check_tokens(k0, schedule.codes)
    s = as_steps(s, len(k0), schedule)
    dtype = torch.float32 if k0.device.type == "mps" else torch.float64  # MPS has no float64
    keep, replace, occlude = (each.view(-1, 1, 1).to(k0.device, dtype) for each in rates(s, schedule))
    codes = replace / schedule.codes + keep * F.one_hot(k0, schedule.codes)
    return torch.cat([codes, occlude.expand(-1, k0.shape[1], 1)], dim=-1)


def forward_sample(k0: Int[Tensor, "B N"], s: Step, schedule: Schedule, generator: Noise) -> Int[Tensor, "B N"]:
    """k_s ~ q(k_s | k_0), from two uniforms a token."""
    check_tokens(k0, schedule.codes)
    _, replace, occlude = (each.view(-1, 1) for each in rates(as_steps(s, len(k0), schedule), schedule))
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
    An Occ where occlude[s] is 0 is impossible: InputError.
    """
    C = schedule.codes
    if p0.ndim != 3 or p0.shape[:2] != ks.shape or p0.shape[2] != C:
        raise InputError(f"p0 must have shape (B, N, {C}) and ks (B, N), got {tuple(p0.shape)} and {tuple(ks.shape)}")
    check_tokens(ks, C + 1)
    r, s = as_steps(r, len(ks), schedule), as_steps(s, len(ks), schedule)
    if not bool((r < s).all()):
        raise InputError(f"a reverse jump goes from s to an earlier r < s, got r={r.tolist()} and s={s.tolist()}")
    occluded = (ks == schedule.occ).unsqueeze(-1)                                       # B N 1
    check_possible(occluded.squeeze(-1), s, schedule)

    keep_r, replace_r, occlude_r = rates(r, schedule)
    keep_s, replace_s, occlude_s = rates(s, schedule)
    a, b, g = rates_between(r, s, schedule)
    certain, u_r = replace_s == 0, replace_r / C
    u_s, occlude_s = torch.where(certain, 1, replace_s / C), torch.where(occlude_s > 0, occlude_s, 1)

    def of(coefficient: Tensor) -> Tensor:
        """(B,) -> (B, 1, 1), formed in float64 and only then cast."""
        return coefficient.to(p0.dtype).to(p0.device).view(-1, 1, 1)

    is_m = F.one_hot(ks, C + 1)[..., :C].to(p0.dtype)                                   # B N C, 0 where k_s = Occ
    of_occluded = of(g / occlude_s) * (of(keep_r) * p0 + of(u_r))                       # B N C
    w = p0 * (1 - is_m) + p0 * is_m * of(u_s / (u_s + keep_s))                          # B N C
    mixed = of(keep_r) * w + of(u_r) * w.sum(-1, keepdim=True)                          # B N C
    of_visible = (of(b / (C * u_s)) + of(a / u_s) * is_m) * mixed                       # B N C
    of_visible = torch.where(of(certain).bool(), is_m, of_visible)
    stays = of(occlude_r / occlude_s) * occluded                                        # B N 1
    return torch.cat([torch.where(occluded, of_occluded, of_visible), stays], dim=-1)


def carry_over(logits: Float[Tensor, "*rows C"], ks: Int[Tensor, " *rows"], gain: Tensor) -> Tensor:
    """Logits of p(k_0 | k_s, y) from logits of p(k_0 | all tokens but its own, y), by Bayes' rule.

    The factor q(k_s | k_0) is keep_s + u_s at k_0 = k_s and u_s at every other code: the logit of the visible code
    gains log((keep_s + u_s) / u_s): `gain`, `carry_over_gain` of its step, which broadcasts to ks. An Occ token has no
    evidence about k_0.
    """
    visible = ks < logits.shape[-1]
    m = ks.clamp(max=logits.shape[-1] - 1).unsqueeze(-1)
    logits = logits if logits.dtype == torch.float64 else logits.float()
    return logits.scatter_add(-1, m, (gain * visible).to(logits.dtype).unsqueeze(-1))


def carry_over_gain(schedule: Schedule) -> Float[Tensor, " S_plus_1"]:
    """log((keep_s + u_s) / u_s) for s = 0..S, u = replace/C; 0 at S, CERTAIN where nothing is replaced; float64."""
    u, keep = torch.from_numpy(schedule.replace) / schedule.codes, torch.from_numpy(schedule.keep)
    return torch.where(u > 0, torch.log1p(keep / torch.where(u > 0, u, 1)), CERTAIN)


def rates(s: Int[Tensor, " B"], schedule: Schedule) -> tuple[Tensor, Tensor, Tensor]:
    """(keep, replace, occlude) at each of the steps, float64 on the CPU."""
    rows = s.numpy()
    keep, replace, occlude = (torch.from_numpy(x[rows]) for x in (schedule.keep, schedule.replace, schedule.occlude))
    return keep, replace, occlude


def rates_between(r: Tensor, s: Tensor, schedule: Schedule) -> tuple[Tensor, Tensor, Tensor]:
    """(keep, replace, occlude) of each of the transitions r -> s, float64 on the CPU."""
    keep, replace, occlude = (torch.from_numpy(x) for x in schedule.between(r.numpy(), s.numpy()))
    return keep, replace, occlude


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


def check_possible(occluded: Tensor, s: Tensor, schedule: Schedule) -> None:
    """Refuse an Occ token at a step where nothing can be occluded."""
    never = rates(s, schedule)[2] == 0
    if bool((occluded & never.to(occluded.device).view(-1, 1)).any()):
        raise InputError(
            f"an Occ token ({schedule.occ}) where occlude[s] is 0: this schedule (final_occlude "
            f"{schedule.final_occlude}) cannot occlude a token at step(s) {sorted(set(s[never].tolist()))}"
        )
