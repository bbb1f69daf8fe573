"""`di2pose people statistics`: what is in a set of rendered people, as Markdown tables."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import tyro

from di2pose.data.sample import OCCLUDED, OUT_OF_FRAME, SEEN, SELF_OCCLUDED
from di2pose.errors import InputError
from di2pose.pose.skeleton import H36M_17
from di2pose.text_table import markdown
from di2pose.training.feature_cache import FeatureCache

RANGES: dict[str, tuple[str, float, Sequence[float]]] = {
    "yaw": ("degrees, 0 = facing the camera", 180 / np.pi, (-180, -135, -90, -45, 0, 45, 90, 135, 180)),
    "pitch": ("degrees, positive = seen from above", 180 / np.pi, (-90, -30, -15, 0, 15, 30, 45, 60, 90)),
    "roll": ("degrees, crop against gravity", 180 / np.pi, (-180, -90, -55, -20, -5, 5, 20, 55, 90, 180)),
    "photo_fov": ("degrees across the photo", 1, (0, 30, 45, 60, 75, 90, 120)),
    "distance_m": ("metres from the camera", 1, (0, 1, 2, 3, 5, 8, 13, 100)),
    "side_ratio": (
        "crop side / twice the farthest limb joint from the hips",
        1,
        (0, 1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 9),
    ),
    "stature_m": ("metres", 1, (1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2.1)),
    "hidden": ("share of joints occluded or out of the frame", 1, (0, 0.001, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.71)),
}
STATES = {"seen": SEEN, "self-occluded": SELF_OCCLUDED, "occluded": OCCLUDED, "out of frame": OUT_OF_FRAME}


def statistics(folder: tyro.conf.Positional[Path]) -> None:
    """Histograms of view, pose, occlusion and body of rendered people, and the state of each joint.

    Args:
        folder: a feature cache that `di2pose people features` wrote
    """
    cache = FeatureCache(folder)
    if cache.header.get("source") != "people":
        raise InputError(f"{folder} holds features of '{cache.header.get('source')}', expected rendered people")
    people = cache.header["people"]
    print(f"{len(cache):,} people, split {people['split']}, seed {people['seed']}\n")
    for name in ("pose_class", "occlusion", "crop"):
        counts = np.bincount(cache.column(name), minlength=len(people[name])) / len(cache)
        _table(name, people[name], counts)
    _table("truncated", ["no", "yes"], np.bincount(cache.column("truncated"), minlength=2) / len(cache))
    for name, (unit, scale, edges) in RANGES.items():
        values = np.clip(cache.column(name) * scale, edges[0], edges[-1])
        bins = [f"{low:g} to {high:g}" for low, high in pairwise(edges)]
        _table(f"{name} ({unit})", bins, np.histogram(values, edges)[0] / len(cache))
    shares = [(cache.column("visibility") == state).mean(axis=0) for state in STATES.values()]
    rows = zip(H36M_17.joints, *([f"{share:.1%}" for share in column] for column in shares), strict=True)
    print(markdown(("joint", *STATES), list(rows)))


def _table(title: str, names: Sequence[str], shares: np.ndarray) -> None:
    kept = {name: f"{share:.1%}" for name, share in zip(names, shares, strict=True) if share}
    print(markdown((title, *kept), [("share", *kept.values())]) + "\n")
