"""How often the state of a joint is wrong: visible joints that are called hidden, hidden ones that are called visible.

    python experiments/states.py small --features features/test
    python experiments/states.py small --photos

Hidden: occluded, by the body itself or by something else, or out of the frame. Rendered people: the renderer knows, on
Human3.6M's 17 joints. Photos: the limb joints of people_labels.json, as a human sees them.
"""

from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from measuring import cached_predictions, find_people, labelled_photos, new_names, run
from tqdm import tqdm

from di2pose import Di2Pose
from di2pose.data.sample import UNKNOWN
from di2pose.errors import InputError
from di2pose.evaluation.scoring import true_states
from di2pose.files import Json, write_json
from di2pose.pose.skeleton import H36M_17, LIMB_12
from di2pose.text_table import markdown

JOINTS = ("hip", "knee", "ankle", "shoulder", "elbow", "wrist", "pelvis", "spine", "thorax", "nose", "head")


def share(called: np.ndarray, mask: np.ndarray) -> float | None:
    return float(called[mask].mean()) if mask.any() else None


def wrong_states(true: np.ndarray, said: np.ndarray, joints: tuple[str, ...]) -> dict[str, Json]:
    """By joint, left and right together, and over all of them: how many are visible and what share of these is called
    otherwise, how many are hidden and what share of these is called visible; the same of those hidden that are
    occluded, not out of the frame. (n, J) strings; '' is not counted."""
    table: dict[str, Json] = {}
    groups = {name: [k for k, joint in enumerate(joints) if joint.endswith(name)] for name in JOINTS}
    groups = {"all": [*range(len(joints))], "limbs": [k for k, j in enumerate(joints) if j in LIMB_12]} | groups
    for name, columns in groups.items():
        mine, called = true[:, columns], said[:, columns] == "visible"
        visible, hidden = mine == "visible", (mine != "visible") & (mine != "")
        if visible.any() or hidden.any():
            table[name] = {
                "visible": int(visible.sum()),
                "called hidden": share(~called, visible),
                "hidden": int(hidden.sum()),
                "called visible": share(called, hidden),
                "occluded": int((mine == "occluded").sum()),
                "occluded called visible": share(called, mine == "occluded"),
            }
    return table


def as_text(title: str, table: dict[str, Json]) -> str:
    """A Markdown table."""

    def cell(value: float | None) -> str:
        return "-" if value is None else str(value) if isinstance(value, int) else f"{value:.1%}"

    rows = [[name, *map(cell, row.values())] for name, row in table.items()]
    return markdown([title, *table["all"]], rows)


def of_cache(model: str, cache: Path, limit: int | None, seed: int) -> dict[str, Json]:
    """Of rendered people."""
    records, _, found = cached_predictions(model, cache, limit, seed)
    if found.states is None:
        raise InputError(f"{model} says no states: it has no visibility head")
    columns = list(records.skeleton.indices(*H36M_17.joints))
    labels = np.where(records.valid, records.visibility, UNKNOWN)[: len(found.states), columns].astype(int)
    if not (labels != UNKNOWN).any():
        raise InputError(f"{cache} does not say which joints are visible")
    true, said = new_names(true_states(labels)), new_names(found.states)[:, : H36M_17.count]
    return wrong_states(true, said, H36M_17.joints)


def of_photos(model: str, seed: int) -> tuple[dict[str, Json], int, int]:
    """Of the labelled people, and how many of them were found and labelled."""
    pipeline, true, said, missed = Di2Pose.from_pretrained(model), [], [], 0
    columns = list(H36M_17.indices(*LIMB_12))
    for photo in tqdm(labelled_photos(), "photos", disable=None):
        for who, person in zip(photo.people, find_people(pipeline, photo, seed), strict=True):
            if who.states is not None and person is None:
                missed += 1
            elif who.states is not None:
                true.append(who.states)
                said.append(person.state[columns])
    return wrong_states(np.array(true), new_names(np.array(said)), LIMB_12), len(true), len(true) + missed


def main(
    model: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")],
    features: tuple[Path, ...] = (),
    photos: bool = False,
    limit: int | None = None,
    seed: int = 0,
    out: Path | None = None,
) -> None:
    """Measure it; prints Markdown.

    Args:
        model: checkpoint folder, run, or name of a packaged model
        features: feature caches of rendered people
        photos: measure the labelled photos
        limit: only the first so many crops of each cache
        seed: of the sampler
        out: JSON file for the figures
    """
    if not features and not photos:
        raise SystemExit("give --features CACHE, --photos, or both")
    report: Json = {"model": model, "seed": seed}
    for cache in features:
        report[cache.name] = of_cache(model, cache, limit, seed)
        print(as_text(cache.name, report[cache.name]) + "\n")
    if photos:
        report["photos"], found, count = of_photos(model, seed)
        print(as_text(f"photos, {found} of {count} people found", report["photos"]))
    if out is not None:
        write_json(out, report)


if __name__ == "__main__":
    run(main)
