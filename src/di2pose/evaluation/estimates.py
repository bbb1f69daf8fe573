"""All that a model says about cached crops, with the truth and the peer beside it.  n crops, H hypotheses.

Everything is in crop axes and millimetres. Errors do not depend on that choice: truth and estimates of a crop turn
together when they are brought into camera axes.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from tqdm import tqdm

from di2pose.data.sample import UNKNOWN
from di2pose.errors import InputError
from di2pose.image.blazepose import PEER_JOINTS, peer
from di2pose.pipeline import Di2Pose, visibility_of
from di2pose.pose.skeleton import H36M_17, convert, get, mirror
from di2pose.randomness import hypothesis_generators
from di2pose.training.feature_cache import MIRRORED, FeatureCache

BATCH = 64


@dataclass(frozen=True)
class Truth:
    """What is known of n crops; joints that are not annotated are NaN."""

    joints_mm: Float[Tensor, "n 17 3"]
    """Pelvis at 0."""
    visibility: Int[Tensor, "n 17"]
    """UNKNOWN, SEEN, SELF_OCCLUDED, OCCLUDED, OUT_OF_FRAME."""
    peer_mm: Float[Tensor, "n 12 3"] | None
    """BlazePose's own 3D of the same crop, mid-hips at 0; None for features of another encoder."""
    peer_both_mm: Float[Tensor, "n 12 3"] | None = None
    """The mean of that and of its 3D of the mirror image, mirrored back; None where that is not cached."""


@dataclass(frozen=True)
class Estimates:
    """What the model says about n crops; pelvis at 0."""

    samples_mm: dict[tuple[int, int], Float[Tensor, "n H 17 3"]]
    """By (steps, seed): poses decoded from diffusion tokens."""
    soft_mm: Float[Tensor, "n 17 3"] | None
    """The probabilities of one pass from all-occluded tokens, decoded softly; None for a model without Occ."""
    regression_mm: Float[Tensor, "n 17 3"] | None
    """The adapter's direct regression; None for a model without adapter, as is the next."""
    visibility: Float[Tensor, "n 17 4"] | None
    """Probabilities of seen, hidden by the body itself, hidden by something else, out of the frame."""


def load_model(name: str, device: str = "cpu") -> Di2Pose:
    """The model of a checkpoint folder, of a run of `di2pose train`, or of a name in the package."""
    of_run = Path(name) / "model"
    return Di2Pose.from_pretrained(of_run if (of_run / "config.json").is_file() else name, device)


def fingerprint(model: Di2Pose) -> str:
    """Tells weights apart that lie under the same name."""
    digest = hashlib.sha256()
    for part in model.parts().values():
        for tensor in part.state_dict().values():
            digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:12]


def read_truth(cache: FeatureCache, rows: np.ndarray) -> Truth:
    """Labels of the given crops, and the peer's answer."""
    skeleton = get(cache.header.get("skeleton", H36M_17.name))
    joints, _ = convert(cache.column("joints_mm")[rows].astype(np.float32), skeleton, H36M_17)
    if not np.isfinite(joints[:, H36M_17.root]).all():
        raise InputError(f"{cache.folder}: some crops have no pelvis, at which poses are aligned")
    told = "visibility" in cache.fields and skeleton == H36M_17
    visibility = cache.column("visibility")[rows] if told else np.full(joints.shape[:2], UNKNOWN)
    joints = joints - joints[:, H36M_17.root][:, None]
    own, there = (_peer(cache, prefix + "world_mm", rows) for prefix in ("", MIRRORED))
    both = None if own is None or there is None else (own + _mirrored_limbs(there)) / 2
    return Truth(torch.from_numpy(joints), torch.from_numpy(visibility.astype(np.int64)), own, both)


def _peer(cache: FeatureCache, field: str, rows: np.ndarray) -> Tensor | None:
    return peer(torch.from_numpy(cache.column(field)[rows]).float()) if field in cache.fields else None


def _mirrored_limbs(joints_mm: Float[Tensor, "n 12 3"]) -> Float[Tensor, "n 12 3"]:
    """PEER_JOINTS in the mirror."""
    whole = torch.zeros(len(joints_mm), H36M_17.count, 3)
    columns = list(H36M_17.indices(*PEER_JOINTS))
    whole[:, columns] = joints_mm
    return mirror(whole, H36M_17)[:, columns]


def plain_rows(cache: FeatureCache) -> np.ndarray:
    """Numbers of the crops of rendered people with nothing before them and nothing of them outside the picture."""
    if missing := {"occlusion", "truncated"} - set(cache.fields):
        raise InputError(
            f"{cache.folder} does not say what stands before its people (no {', '.join(sorted(missing))}): plain crops "
            "can be told only in caches of `di2pose people features`"
        )
    return np.flatnonzero((cache.column("occlusion") == 0) & (cache.column("truncated") == 0))


def pose_classes(cache: FeatureCache, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Which of the crops show each kind of pose (`upright`, `seated`, ...); empty where the cache does not tell."""
    names = cache.header.get("people", {}).get("pose_class", ())
    kinds = cache.column("pose_class")[rows] if names and "pose_class" in cache.fields else np.zeros(0)
    return {name: kinds == number for number, name in enumerate(names) if (kinds == number).any()}


@torch.no_grad()
def estimate_crops(
    model: Di2Pose,
    cache: FeatureCache,
    rows: np.ndarray,
    hypotheses: int,
    steps: Sequence[int],
    seeds: Sequence[int],
) -> Estimates:
    """Every estimate of the given crops. Hypothesis h of a crop is drawn from (seed, its id, h) alone.

    Where the cache has the mirror images, too, they are used as in photos: regression, soft decode and visibility are
    means of both ways, and every other pair of hypotheses is drawn from the mirror image.
    """
    device = model.denoiser.position.device
    settings = [(count, seed) for count in steps for seed in seeds]
    parts: dict[str | tuple[int, int], list[Tensor]] = {}
    for start in tqdm(range(0, len(rows), BATCH), unit="batch", disable=None):
        some = rows[start : start + BATCH]
        ids = [cache.index[row]["id"] for row in some.tolist()]
        found: dict[str | tuple[int, int], Tensor | None] = {}
        sides = [model.condition(cache.features(some).to(device))]
        if cache.both_ways:
            sides.append(model.condition(cache.features(some, mirrored=True).to(device)))
        mirrored = sides[1] if cache.both_ways else None
        found["regression"] = _both([side.joints_mm for side in sides])
        found["visibility"] = visibility_of(sides[0], mirrored)
        if model.schedule.final_occlude > 0:
            found["soft"] = _both([model.tokenizer.decode_soft(model.first_guess(side)) for side in sides])
        for count, seed in settings:
            noise = hypothesis_generators(seed, ids, hypotheses)
            found[count, seed] = model.draw(sides[0], mirrored, hypotheses, count, noise)[1]
        for name, value in found.items():
            if value is not None:
                parts.setdefault(name, []).append(value.cpu())
    whole = {name: torch.cat(pieces) for name, pieces in parts.items()}
    return Estimates(
        samples_mm={setting: whole[setting] for setting in settings},
        soft_mm=whole.get("soft"),
        regression_mm=whole.get("regression"),
        visibility=whole.get("visibility"),
    )


def _both(poses: Sequence[Tensor | None]) -> Tensor | None:
    """The pose, or the mean of the pose and of the one in the mirror, mirrored back."""
    known = [pose for pose in poses if pose is not None]
    if len(known) < 2:
        return known[0] if known else None
    return (known[0] + mirror(known[1], H36M_17)) / 2
