"""What bodies come out like: knees, depths, bone lengths and 90 % balls of the fitted estimate, on real footage with
known 3D; legs of people who plainly stand, on labelled photos.

    python experiments/body_bias.py small --data prepared/pose2sim --seeds 0,1,2
    python experiments/body_bias.py small --photos

Camera axes (z away from the camera), the middle of the hips at 0 in estimate and truth. A positive depth is too far
away. Lengths are mean estimated over mean true ones. `--noise 0.015` gives true keypoints with that noise, as
observer_noise.py does. Photos: people_labels.json, found as a user's call finds them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from measuring import (
    STATES,
    Footage,
    LabelledPerson,
    at_hips,
    find_people,
    frames,
    integers,
    labelled_photos,
    new_names,
    run,
)
from tqdm import tqdm

from di2pose import Di2Pose
from di2pose.data.sample import Dataset
from di2pose.evaluation.predictors import Predictions
from di2pose.evaluation.protocol import parse_protocols
from di2pose.files import Json, write_json
from di2pose.pose.angles import SIDES, joint_angles
from di2pose.pose.skeleton import H36M_17, LIMB_12
from di2pose.result import Person
from di2pose.text_table import markdown

STRAIGHT, BENT = 15.0, 40.0
"""Degrees of true knee flexion."""
STANDING_HIP, STANDING_KNEE = 30.0, 40.0
"""Flexion of standing legs is below these."""
DEPTHS = ("ankle", "knee", "shoulder", "elbow", "wrist")
BONES = {"upper arm": ("shoulder", "elbow"), "forearm": ("elbow", "wrist"), "thigh": ("hip", "knee"),
         "shin": ("knee", "ankle")}  # fmt: skip
LIMBS = list(H36M_17.indices(*LIMB_12))


def knees(joints_mm: np.ndarray) -> np.ndarray:
    """(..., 2) degrees of flexion, left and right; poses of Human3.6M's 17 joints."""
    angles = joint_angles(joints_mm)
    return np.stack([angles[f"{side}_knee_flexion"] for side in SIDES], axis=-1)


def hips(joints_mm: np.ndarray) -> np.ndarray:
    """The same of the hips."""
    angles = joint_angles(joints_mm)
    return np.stack([angles[f"{side}_hip_flexion"] for side in SIDES], axis=-1)


def paired(joints_mm: np.ndarray, joint: str) -> np.ndarray:
    """(n, 2, 3): left and right."""
    return joints_mm[:, list(H36M_17.indices(*(f"{side}_{joint}" for side in SIDES)))]


def bias(found_mm: np.ndarray, truth_mm: np.ndarray) -> dict[str, tuple[float, int]]:
    """What is wrong on average, and of how many: n poses (n, 17, 3), the middle of the hips at 0."""
    true, more = knees(truth_mm), knees(found_mm) - knees(truth_mm)
    groups = {f"knees straighter than {STRAIGHT:g} degrees": true < STRAIGHT, f"knees bent above {BENT:g}": true > BENT}
    figures = {f"{name}: too bent by, degrees": more[mask & np.isfinite(more)] for name, mask in groups.items()}
    for joint in DEPTHS:
        off = (paired(found_mm, joint) - paired(truth_mm, joint))[..., 2]
        figures[f"{joint}s: too deep by, mm"] = off[np.isfinite(off)]
    table = {name: (float(values.mean()), values.size) for name, values in figures.items() if values.size}
    for bone, ends in BONES.items():
        lengths = [np.linalg.norm(paired(p, ends[0]) - paired(p, ends[1]), axis=-1) for p in (found_mm, truth_mm)]
        known = np.isfinite(lengths).all(0)
        table[f"{bone}s: length over the true one"] = (
            float(lengths[0][known].mean() / lengths[1][known].mean()),
            int(known.sum()),
        )
    return table


def balls(errors: np.ndarray, r90: np.ndarray, groups: dict[str, np.ndarray]) -> dict[str, tuple[float, int]]:
    """Share of the joints in their 90 % balls, in per cent, by group."""
    known = np.isfinite(errors)
    masks = {name: mask & known for name, mask in groups.items() if (mask & known).any()}
    return {f"in r90: {name}, %": (100 * float((errors <= r90)[m].mean()), int(m.sum())) for name, m in masks.items()}


def measure_footage(
    truth_mm: np.ndarray, behind: np.ndarray, found: Sequence[Predictions]
) -> dict[str, tuple[float, int]]:
    """All figures of n frames: true poses (n, 17, 3), limb joints behind the patch (n, 12), a prediction of each."""
    found_mm = at_hips(np.concatenate([each.fitted_mm for each in found])[:, : H36M_17.count])
    table = bias(found_mm, truth_mm)
    if found[0].r90_mm is None or found[0].states is None:
        return table
    errors = np.linalg.norm(found_mm - truth_mm, axis=-1)[:, LIMBS]
    r90, said = (np.concatenate(parts)[:, LIMBS] for parts in zip(*((f.r90_mm, f.states) for f in found), strict=True))
    groups = {f"called {state}": new_names(said) == state for state in STATES}
    if behind.any():
        groups |= {"behind the patch": behind, "beside the patch": ~behind}
    return table | balls(errors, r90, {"all limb joints": np.ones_like(behind)} | groups)


def figure(name: str, value: float) -> str:
    """Differences with their sign."""
    return f"{value:+.1f}" if "too " in name else f"{value:.1f}" if "%" in name else f"{value:.2f}"


def mean_of(values: Sequence[float | None]) -> float | None:
    """Of those that are known; None without any."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def measure_photos(people: Sequence[tuple[LabelledPerson, Person | None]]) -> Json:
    """Legs of those who stand; of those who are cut off, how many are given standing ones."""
    figures: Json = {}
    for label in ("standing", "cut"):
        mine = [person for who, person in people if who.label == label]
        found = [person.joints_mm[: H36M_17.count] for person in mine if person is not None]
        knee, hip = (turn(np.stack(found)) for turn in (knees, hips)) if found else (np.zeros((0, 2)),) * 2
        stands = ((np.nan_to_num(hip, nan=180.0) < STANDING_HIP) & (knee < STANDING_KNEE)).all(-1)
        figures[label] = {
            "people": len(mine), "found": len(found), "given standing legs": int(stands.sum()),
            "median knee": float(np.median(knee)) if len(knee) else None,
            "median hip": float(np.nanmedian(hip)) if len(hip) else None,
        }  # fmt: skip
    return figures


def main(
    model: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")],
    data: Path | None = None,
    photos: bool = False,
    seeds: str = "0",
    noise: float | None = None,
    protocol: str = "limb-12",
    every: int | None = None,
    out: Path | None = None,
) -> None:
    """Measure it; prints Markdown.

    Args:
        model: checkpoint folder, run, or name of a packaged model
        data: prepared dataset with pictures and true 3D
        photos: measure the labelled photos
        seeds: of the sampler, with commas; figures are means over them
        noise: give true keypoints with noise of this share of the body's extent; left out: MoveNet looks
        protocol: one or several of `di2pose evaluate`, e.g. limb-12,occ-80
        every: keep a frame of every so many
        out: JSON file for the figures
    """
    numbers, report = integers(seeds), {"model": model, "seeds": seeds, "noise": noise, "every": every}
    if data is None and not photos:
        raise SystemExit("give --data FOLDER, --photos, or both")
    if data is not None:
        dataset = Dataset(data)
        footage = Footage(model, dataset)
        for each in parse_protocols(protocol, every):
            shots = tqdm(frames(dataset, each, numbers[0]), each.id, unit="frame", disable=None)
            truth, behind, found = [], [], []  # of each frame, whose picture is not kept
            for frame in shots:
                truth.append(frame.truth_mm)
                behind.append(frame.behind)
                found.append([footage.predict(frame, noise, seed) for seed in numbers])
            tables = [measure_footage(np.stack(truth), np.stack(behind), mine) for mine in zip(*found, strict=True)]
            names = [name for name in tables[0] if all(name in table for table in tables)]
            mean = {name: (float(np.mean([t[name][0] for t in tables])), tables[0][name][1]) for name in names}
            rows = [[name, figure(name, value), str(count)] for name, (value, count) in mean.items()]
            print(markdown([f"{each.id}, {len(found)} frames, seeds {seeds}", "mean", "of"], rows) + "\n")
            report[each.id] = mean
    if photos:
        pipeline = Di2Pose.from_pretrained(model)
        by_seed: list[Json] = []
        for seed in numbers:
            people = [
                pair
                for photo in tqdm(labelled_photos(), "photos", disable=None)
                for pair in zip(photo.people, find_people(pipeline, photo, seed), strict=True)
            ]
            by_seed.append(measure_photos(people))
        head = [*by_seed[0]["standing"]]
        figures = {label: {key: mean_of([f[label][key] for f in by_seed]) for key in head} for label in by_seed[0]}
        cells = {
            label: ["-" if value is None else f"{value:.1f}" for value in row.values()]
            for label, row in figures.items()
        }
        print(markdown(["photos", *head], [[label, *row] for label, row in cells.items()]))
        report["photos"] = figures
    if out is not None:
        write_json(out, report)


if __name__ == "__main__":
    run(main)
