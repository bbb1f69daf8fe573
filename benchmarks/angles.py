"""How far off are the joint angles, and do their 90 % intervals hold the truth? On pictures with known 3D.

    python benchmarks/angles.py --data people-test                       # pictures of `di2pose people render`
    python benchmarks/angles.py --data prepared/mine --limit 500         # your own: any prepared dataset with pictures

Errors are those of the estimate in degrees; an angle counts as hidden where one of its joints is not called seen. What
the true pose, or the estimated one, leaves open is left out.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import tyro
from tqdm import tqdm

from di2pose import Di2Pose
from di2pose.data.sample import Dataset
from di2pose.files import write_json
from di2pose.image.boxes import iou
from di2pose.pose.angles import ALL, DIFFERENCE, SIDES, basis, joint_angles, with_differences, wrapped
from di2pose.pose.skeleton import convert
from di2pose.result import KNOWN, Person
from di2pose.text_table import markdown

SAME = 0.2
"""Overlap of boxes from which on somebody is the person of the record."""
Pair = tuple[Person | None, dict[str, np.ndarray]]
"""Who was found, None for nobody, and the true angles."""


def main(
    data: Path,
    model: str | None = None,
    limit: int | None = None,
    hypotheses: int = 8,
    out: Path | None = None,
) -> None:
    """Measure it, and print a Markdown table.

    Args:
        data: a prepared dataset with pictures
        model: name or folder; left out: the one inside the package
        limit: only the first so many pictures
        hypotheses: for each person
        out: JSON file for the figures, too
    """
    torch.set_num_threads(1)
    network = Di2Pose.from_pretrained(model)
    found, missed = {name: list[tuple[float, ...]]() for name in ALL}, 0
    people = 0
    for person, truth in _of_pictures(network, Dataset(data), limit, hypotheses):
        people += 1
        missed += person is None
        if person is not None:
            _add(found, person, truth)
    rows = {name: _figures(values) for name, values in _by_kind(found).items()}
    print(f"{data}; {network.config.name}, {hypotheses} hypotheses; {people} poses, {missed} of them not found\n")
    print(_table(rows))
    if out is not None:
        told = {"what": str(data), "poses": people, "missed": missed, "hypotheses": hypotheses, "angles": rows}
        write_json(out, told)


def _of_pictures(network: Di2Pose, records: Dataset, limit: int | None, hypotheses: int) -> Iterator[Pair]:
    for row in tqdm(range(len(records))[:limit], unit="picture", disable=None):
        sample = records[row]
        result = network(records.read_image(sample), camera=sample.camera, hypotheses=hypotheses)
        near = [(iou(person.box, sample.box), k) for k, person in enumerate(result.people) if sample.box is not None]
        best = max(near, default=(0.0, -1))
        skeleton = basis(records.skeleton)
        truth = convert(sample.joints_mm.astype(np.float64), records.skeleton, skeleton)[0]
        found = result.people[best[1]] if best[0] >= SAME else None
        yield found, with_differences(joint_angles(truth, skeleton))


def _add(found: dict[str, list[tuple[float, ...]]], person: Person, truth: dict[str, np.ndarray]) -> None:
    for name, angle in person.angles.items():
        if name not in truth:
            continue  # an ankle, and the records have no feet
        off = float(wrapped(np.asarray(truth[name] - angle.degrees)))
        if np.isfinite([off, angle.low]).all():
            held = angle.low <= angle.degrees + off <= angle.high
            found[name].append((abs(off), held, angle.high - angle.low, angle.state not in KNOWN))


def _by_kind(found: dict[str, list[tuple[float, ...]]]) -> dict[str, list[tuple[float, ...]]]:
    """Left and right together; first all angles, without the differences."""
    kinds = {"all angles": [value for name in ALL if not name.endswith(DIFFERENCE) for value in found[name]]}
    for name, values in ((name, values) for name, values in found.items() if values):
        side, _, stem = name.partition("_")
        kinds.setdefault(stem if side in SIDES else name, []).extend(values)
    return kinds


def _figures(values: list[tuple[float, ...]]) -> dict[str, dict[str, float]]:
    table = np.array(values).reshape(-1, 4)
    rows = {"all": table, "seen": table[table[:, 3] == 0], "hidden": table[table[:, 3] == 1]}
    return {
        group: {
            "count": len(part),
            "median": float(np.median(part[:, 0])),
            "mean": float(part[:, 0].mean()),
            "held": float(part[:, 1].mean()),
            "width": float(np.median(part[:, 2])),
        }
        for group, part in rows.items()
        if len(part)
    }


def _table(rows: dict[str, dict[str, dict[str, float]]]) -> str:
    head = ["angle", *(f"{group}{what}" for group in ("seen", "hidden") for what in
                       (": count", " median error", " mean", " in interval", " width"))]  # fmt: skip
    lines = []
    for name, groups in rows.items():
        cells = [name.replace("_", " ")]
        for group in ("seen", "hidden"):
            f = groups.get(group, {})
            whole = {"count": "{:.0f}", "median": "{:.1f}", "mean": "{:.1f}", "held": "{:.0%}", "width": "{:.0f}"}
            cells += [form.format(f[key]) if f else "" for key, form in whole.items()]
        lines.append(cells)
    return markdown(head, lines)


if __name__ == "__main__":
    tyro.cli(main)
