"""How well does the frozen backbone see rendered people, and how well real ones? Its 2D error on both, side by side.

    python benchmarks/domain_gap.py RENDERED_FEATURES REAL_FEATURES ...

Each argument is a BlazePose feature cache (`di2pose people features`, `di2pose features`). Errors are in pixels of the
256-pixel crop, over the twelve limb joints. Renders tell more: joints that are seen or hidden, and `plain`,
pictures most like the real ones: nobody and nothing in front, not cut, standing, stepping, kicking or with arms up.
"""

import sys

import numpy as np

from di2pose.data.feature_cache import FeatureCache
from di2pose.data.sample import SEEN
from di2pose.pose.skeleton import BLAZEPOSE_33, H36M_17, LIMB_12
from di2pose.text_table import aligned

PLAIN = ("upright", "stride", "arms_up", "kick")


def main(folders: list[str]) -> None:
    ours, theirs = H36M_17.indices(*LIMB_12), BLAZEPOSE_33.indices(*LIMB_12)
    rows = []
    for folder in folders:
        cache = FeatureCache(folder)
        found = cache.column("landmarks_2d")[:, theirs]
        error = np.linalg.norm(found - cache.column("joints_2d")[:, ours], axis=-1)
        state = cache.column("visibility")[:, ours]
        known = np.isfinite(error)
        groups = {"all": known}
        if cache.header["source"] == "people":
            upright = [cache.header["people"]["pose_class"].index(name) for name in PLAIN]
            plain = (cache.column("hidden") == 0) & (cache.column("occlusion") == 0)
            plain &= np.isin(cache.column("pose_class"), upright)
            groups |= {"seen": state == SEEN, "hidden": state > SEEN, "plain": known & plain[:, None]}
        for name, chosen in groups.items():
            if chosen.any():
                e = error[chosen]
                pixels = [f"{value:.1f}" for value in (np.median(e), e.mean(), np.quantile(e, 0.9))]
                rows.append((cache.folder.name, name, str(len(cache)), str(len(e)), *pixels))
    print(aligned(("cache", "joints", "crops", "count", "median px", "mean px", "90 % px"), rows))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
