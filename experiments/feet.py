"""Heels and toes beside ankles, and the ankle's angle, on rendered people.

    python experiments/feet.py MODEL --features features/test

Errors of the fitted estimate of 8 hypotheses in mm: with the pelvis at 0, and after the Procrustes alignment of
Human3.6M's 17 joints; how many lie in their 90 % balls, where the model has a calibration. The angle is that between
the shin (knee to ankle) and the foot (heel to toe), degrees; a foot is as visible as the worst of its ankle, heel and
toe. The angle's 90 % interval: benchmarks/angles.py.
"""

from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import tyro
from measuring import cached_predictions, run

from di2pose.data.sample import SEEN, UNKNOWN
from di2pose.errors import InputError
from di2pose.evaluation.predictors import Predictions
from di2pose.evaluation.records import CachedRecords
from di2pose.files import Json, write_json
from di2pose.pose.angles import SIDES
from di2pose.pose.metrics import procrustes
from di2pose.pose.skeleton import H36M_17, H36M_21, Skeleton
from di2pose.text_table import markdown

GROUPS = ("all", "visible", "hidden")
COLUMNS = ("joints", "error, mm", "PA, mm", "in r90, %")


def ankle_angles(joints_mm: np.ndarray) -> np.ndarray:
    """(n, 2) degrees between shin and foot, left and right; poses of H36M_21."""
    angles = []
    for side in SIDES:
        knee, ankle, heel, toe = (
            joints_mm[:, H36M_21.index(f"{side}_{name}")] for name in ("knee", "ankle", "heel", "toe")
        )
        shin, foot = ankle - knee, toe - heel
        cosine = (shin * foot).sum(-1) / np.linalg.norm(shin, axis=-1) / np.linalg.norm(foot, axis=-1)
        angles.append(np.degrees(np.arccos(np.clip(cosine, -1, 1))))
    return np.stack(angles, axis=-1)


def measure(records: CachedRecords, skeleton: Skeleton, found: Predictions) -> tuple[dict[str, Json], dict[str, Json]]:
    """Errors by joint and group; errors of the angle by group. Groups of joints whose visibility is known."""
    for whose, own in (("the model", skeleton), (f"the cache {records.folder}", records.skeleton)):
        if missing := [name for name in H36M_21.joints if name not in own.joints]:
            raise InputError(f"{whose} has no {', '.join(missing)} ({own.name}): feet need the skeleton h36m_21")
    poses = found.samples_mm.mean(1) if found.fitted_mm is None else found.fitted_mm
    columns, mine = (list(each.indices(*H36M_21.joints)) for each in (records.skeleton, skeleton))
    known = records.valid[: len(poses), columns]
    truth = np.where(known[..., None], records.joints_mm[: len(poses), columns], np.nan).astype(np.float64)
    labels = np.where(known, records.visibility[: len(poses), columns], UNKNOWN)
    poses = poses[:, mine]
    poses, truth = (each - each[:, :1] for each in (poses, truth))
    body = torch.arange(H36M_21.count) < H36M_17.count
    a, b = (torch.from_numpy(np.ascontiguousarray(each)) for each in (poses, truth))
    aligned = procrustes(a, b, body & b.isfinite().all(-1)).numpy()
    errors, pa = (np.linalg.norm(each - truth, axis=-1) for each in (poses, aligned))
    hit = None if found.r90_mm is None else 100.0 * (errors <= found.r90_mm[:, mine])
    masks = {"all": np.ones_like(known), "visible": labels == SEEN, "hidden": labels > SEEN}
    by_joint: dict[str, Json] = {}
    for joint in ("ankle", "heel", "toe"):
        both = list(H36M_21.indices(*(f"{side}_{joint}" for side in SIDES)))
        for group in GROUPS:
            chosen = (masks[group] & np.isfinite(errors))[:, both]
            if chosen.any():
                values = [None if each is None else float(each[:, both][chosen].mean()) for each in (errors, pa, hit)]
                by_joint[f"{joint}s, {group}"] = dict(zip(COLUMNS, (int(chosen.sum()), *values), strict=True))
    parts = [list(H36M_21.indices(*(f"{side}_{joint}" for joint in ("ankle", "heel", "toe")))) for side in SIDES]
    worst = np.stack([np.where((labels[:, p] == UNKNOWN).any(-1), UNKNOWN, labels[:, p].max(-1)) for p in parts], -1)
    off = ankle_angles(poses) - ankle_angles(truth)
    by_angle: dict[str, Json] = {}
    for group, mask in {"all": worst >= UNKNOWN, "visible": worst == SEEN, "hidden": worst > SEEN}.items():
        chosen = off[mask & np.isfinite(off)]
        if len(chosen):
            quantities = float(np.abs(chosen).mean()), float(np.median(np.abs(chosen))), float(chosen.mean())
            by_angle[group] = dict(zip(("feet", "mean", "median", "bias"), (len(chosen), *quantities), strict=True))
    return by_joint, by_angle


def cell(value: float | None) -> str:
    return "-" if value is None else str(value) if isinstance(value, int) else f"{value:.1f}"


def main(
    model: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")],
    features: tuple[Path, ...],
    limit: int | None = None,
    seed: int = 0,
    out: Path | None = None,
) -> None:
    """Measure it; prints Markdown.

    Args:
        model: checkpoint folder, run, or name of a packaged model, with heels and toes
        features: feature caches of rendered people with heels and toes
        limit: only the first so many crops of each cache
        seed: of the sampler
        out: JSON file for the figures
    """
    report: Json = {"model": model, "seed": seed}
    for cache in features:
        joints, angles = measure(*cached_predictions(model, cache, limit, seed))
        rows = [[name, *map(cell, row.values())] for name, row in joints.items()]
        print(markdown([cache.name, *COLUMNS], rows) + "\n")
        head = ["ankle angle, degrees off", *next(iter(angles.values()))]
        print(markdown(head, [[name, *map(cell, row.values())] for name, row in angles.items()]))
        report[cache.name] = {"joints": joints, "ankle angle": angles}
    if out is not None:
        write_json(out, report)


if __name__ == "__main__":
    run(main)
