"""Whose limb is whose: in photos of people who touch, the limbs that lie on the neighbour.

    python benchmarks/couples.py
    python benchmarks/couples.py --out looked_at

The couples are neighbours in the photos of people_found.py (tests/data/couples.json: sha256 of the photo, numbers of
the two labels), with the limb joints that can be seen or guessed, in pixels, drawn by eye: off by a tenth of a torso or
so. A joint lies on the neighbour when it is farther than a quarter of the torso from the own label, and nearer to the
neighbour's label of that part; left and right count alike, as they are hard to tell in some photos.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import tyro
from jaxtyping import Float
from people_found import Photo, fetch_photos, match, of_person, read_labels
from PIL import ImageDraw

from di2pose import Di2Pose
from di2pose.files import replacing
from di2pose.image.read import read_image
from di2pose.pose.skeleton import LIMB_12
from di2pose.result import Person
from di2pose.text_table import markdown

COUPLES = Path(__file__).parents[1] / "tests" / "data" / "couples.json"
PARTS = ("shoulder", "elbow", "wrist", "hip", "knee", "ankle")
NEXT = dict(zip(PARTS, ("elbow", "wrist", "", "knee", "ankle", ""), strict=True))
"""Of a limb."""
OFF = 0.25
"""Of the torso: a joint that is farther from its label may lie on the neighbour."""
Joints = dict[str, Float[np.ndarray, " 2"]]


@dataclass(frozen=True)
class Couple:
    """Two of the people in a photo, and where their limb joints are."""

    photo: Photo
    labels: tuple[int, int]
    joints: tuple[Joints, Joints]


def read_couples(file: Path = COUPLES) -> list[Couple]:
    photos = {photo.asset.sha256: photo for photo in read_labels()}
    couples = []
    for entry in json.loads(file.read_text()):
        (a, b), (one, other) = zip(*((who["label"], who["joints"]) for who in entry["people"]), strict=True)
        places = [{name: np.array(at, float) for name, at in joints.items()} for joints in (one, other)]
        couples.append(Couple(photos[entry["sha256"]], (a, b), (places[0], places[1])))
    return couples


def on_neighbour(found: Joints, own: Joints, neighbour: Joints) -> dict[str, bool]:
    """Of the labelled joints, whether what was found lies on the neighbour."""
    middle = {part: np.mean([own[f"left_{part}"], own[f"right_{part}"]], axis=0) for part in ("shoulder", "hip")}
    torso = float(np.linalg.norm(middle["shoulder"] - middle["hip"]))

    def apart(name: str, places: Joints) -> float:
        sides = [places[side + name.partition("_")[2]] for side in ("left_", "right_") if _has(places, side, name)]
        return min((float(np.linalg.norm(found[name] - each)) for each in sides), default=np.inf)

    return {name: OFF * torso < apart(name, own) > apart(name, neighbour) for name in own}


def main(model: str | None = None, out: Path | None = None) -> None:
    """Measure it.

    Args:
        model: checkpoint folder, run, or name of a packaged model; left out: the packaged `small`
        out: folder for pictures of who was found, the limbs on a neighbour in red
    """
    torch.set_num_threads(1)
    pipeline, couples = Di2Pose.from_pretrained(model), read_couples()
    files = {couple.photo: file for couple, file in zip(couples, fetch_photos(c.photo for c in couples), strict=True)}
    found = {photo: pipeline(file).people for photo, file in files.items()}
    rows, lost = [], dict.fromkeys(PARTS, 0)
    for number, couple in enumerate(couples):
        people, wrong = found[couple.photo], list[tuple[float, float]]()
        owners = match([of_person(person) for person in people], replace(couple.photo, ignore=())).owners
        who = [people[owners.index(label)] if label in owners else None for label in couple.labels]
        limbs = 0
        for person, own, other in zip(who, couple.joints, couple.joints[::-1], strict=True):
            if person is not None:
                places = joints_of(person)
                bad = [name for name, is_bad in on_neighbour(places, own, other).items() if is_bad]
                wrong += [(float(places[name][0]), float(places[name][1])) for name in bad]
                limbs += len(own)
                for name in bad:
                    lost[name.partition("_")[2]] += 1
        names = f"{couple.photo.name} {couple.labels[0]}, {couple.labels[1]}"
        rows.append([names, str(sum(each is not None for each in who)), str(limbs), str(len(wrong))])
        if out is not None:
            _draw(out / f"couple-{number}.png", files[couple.photo], who, wrong)
    sums = [str(sum(int(row[column]) for row in rows)) for column in (1, 2, 3)]
    print(markdown(["couple", "found", "joints", "on the neighbour"], [*rows, ["all", *sums]]))
    print("\n" + ", ".join(f"{part} {count}" for part, count in lost.items()))


def joints_of(person: Person) -> Joints:
    return dict(zip(LIMB_12, person.joints_2d[list(person.skeleton.indices(*LIMB_12))], strict=True))


def _has(places: Joints, side: str, name: str) -> bool:
    return side + name.partition("_")[2] in places


def _draw(file: Path, photo: Path, people: list[Person | None], wrong: list[tuple[float, float]]) -> None:
    canvas = read_image(photo)
    pen, width = ImageDraw.Draw(canvas), max(2, max(canvas.size) // 250)
    for person, colour in zip(people, ("cyan", "yellow"), strict=True):
        places = {} if person is None else joints_of(person)
        for name, at in places.items():
            end = name.partition("_")[0] + "_" + NEXT[name.partition("_")[2]]
            if end in places:
                pen.line([*at, *places[end]], fill=colour, width=width)
    for x, y in wrong:
        pen.ellipse((x - 4 * width, y - 4 * width, x + 4 * width, y + 4 * width), outline="red", width=width)
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as path:
        canvas.save(path, format="png")


if __name__ == "__main__":
    tyro.cli(main)
