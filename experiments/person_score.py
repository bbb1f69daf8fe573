"""Fits the person score of a model (`calibration.PersonFit`): rendered people and labelled photos against
pictures without people, and against the parts of photos that show nobody.

    python experiments/person_score.py MODEL --motion MOTION --write

Everybody and everything is looked at as a user's detection would be: second look, flip test, 8 hypotheses. Only the
photos of the split 'tune' are used; those of 'test' are reported on. `least` is where the score loses 3 % of people.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import tyro
from PIL import Image
from scipy.optimize import minimize
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from di2pose_people.features import RenderedCrops
from di2pose_people.sampling import Plan
from people_found import Photo, fetch_photos, read_labels

from di2pose import Di2Pose
from di2pose.calibration import PERSON_FEATURES, Calibration, PersonFit
from di2pose.image.crop import Roi, assumed_camera
from di2pose.image.detect import Detection, from_boxes, overlap
from di2pose.image.read import read_image
from di2pose.noise import hypothesis_generators
from di2pose.pipeline.assemble import person_features
from di2pose.text_table import markdown
from di2pose.training.features import PatchedCrops

BATCH = 8
LOST = 0.03
"""Share of the people that `least` costs, half-hidden ones among them."""
Look = tuple[Image.Image, Detection]


def main(
    model: tyro.conf.Positional[str],
    motion: Annotated[Path, tyro.conf.arg(metavar="DIR")],
    people: int = 240,
    places: int = 24,
    seed: int = 5,
    ridge: float = 1.0,
    write: bool = False,
) -> None:
    """Collect, fit, report.

    Args:
        model: checkpoint folder or name; with --write its calibration.json receives the fit
        motion: BVH files for the rendered people
        people: how many are rendered; half of them once more under the patch of occ-80
        places: squares without people that are looked at in each photo
        seed: of the rendering and of the places
        ridge: of the logistic fit
        write: put the fit into the model's calibration
    """
    torch.set_num_threads(1)
    pipeline = Di2Pose.from_pretrained(model)
    photos = read_labels()
    pictures = [read_image(path) for path in fetch_photos(photos)]
    rendered = RenderedCrops(Plan(motion, "test", seed), people)
    groups: dict[str, tuple[bool, str, list[Look]]] = {
        "rendered": (True, "tune", [_whole(rendered.crop(i)[0]) for i in tqdm(range(people), unit="person")]),
        "rendered, occ-80": (
            True,
            "tune",
            [_whole(PatchedCrops(rendered, "occ-80").crop(i)[0]) for i in range(people // 2)],
        ),
    }
    for split in ("tune", "test"):
        chosen = [(photo, picture) for photo, picture in zip(photos, pictures, strict=True) if photo.split == split]
        people = [(pic, each) for ph, pic in chosen for each in from_boxes(ph.people)]
        groups[f"photos, {split}"] = (True, split, people)
        empty = [look for ph, pic in chosen for look in _nowhere(ph, pic, places, seed)]
        groups[f"nobody there, {split}"] = (False, split, empty)
    found = {name: _evidence(pipeline, looks, name) for name, (_, _, looks) in groups.items()}
    tune = [name for name, (_, split, _) in groups.items() if split == "tune"]
    x = np.concatenate([found[name] for name in tune])
    y = np.concatenate([np.full(len(found[name]), groups[name][0]) for name in tune]).astype(float)
    fit = fit_person(x, y, ridge, f"{int(y.sum())} people, {int((1 - y).sum())} places without, seed {seed}")
    rows = []
    for name, (real, _, _) in groups.items():
        scores = fit.score(found[name])
        kept = float((scores >= fit.least).mean())
        rows.append([name, str(len(scores)), *(f"{np.quantile(scores, q):.3f}" for q in (0.01, 0.05, 0.5, 0.95, 0.99)),
                     f"{kept:.1%}", "people" if real else "nobody"])  # fmt: skip
    print(markdown(["what", "count", "1 %", "5 %", "half", "95 %", "99 %", "kept", "is"], rows))
    weights = ", ".join(f"{name} {weight:+.3f}" for name, weight in zip(PERSON_FEATURES, fit.weights, strict=True))
    print(f"\n{weights}, bias {fit.bias:+.3f}, least {fit.least:.3f}")
    if write:
        folder = Path(model)
        before = Calibration.read(folder)
        if before is None:
            raise SystemExit(f"{folder} has no calibration.json: run `di2pose calibrate` first")
        print("written:", replace(before, person=fit).write(folder))


def fit_person(x: np.ndarray, y: np.ndarray, ridge: float, fitted_on: str) -> PersonFit:
    """Logistic regression on standardised evidence, people and nobody weighted alike; `least`: LOST of the people."""
    centre, scale = x.mean(0), x.std(0)
    z = (x - centre) / scale
    weight = np.where(y > 0, 0.5 / y.mean(), 0.5 / (1 - y.mean()))

    def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
        logit = w[0] + z @ w[1:]
        value = float((weight * (np.logaddexp(0, logit) - y * logit)).sum() + ridge / 2 * (w[1:] ** 2).sum())
        slope = weight * (1 / (1 + np.exp(-logit)) - y)
        return value, np.concatenate([[slope.sum()], z.T @ slope + ridge * w[1:]])

    w = minimize(loss, np.zeros(x.shape[1] + 1), jac=True).x
    weights = w[1:] / scale
    fit = PersonFit(float(w[0] - weights @ centre), tuple(map(float, weights)), 0.0, fitted_on)
    return replace(fit, least=float(np.quantile(fit.score(x[y > 0]), LOST)))


def _whole(pixels: np.ndarray) -> Look:
    """A crop that is all of its picture."""
    picture = Image.fromarray(pixels)
    side = float(picture.width)
    return picture, Detection(
        (0.1 * side, 0.1 * side, 0.9 * side, 0.9 * side), 1.0, Roi((side / 2, side / 2), side, 0.0)
    )


def _nowhere(photo: Photo, picture: Image.Image, count: int, seed: int) -> list[Look]:
    """Squares of a photo in which nobody is."""
    random = np.random.default_rng([seed, int(photo.asset.sha256[:8], 16)])
    looks: list[Look] = []
    for _ in range(20 * count):
        side = min(picture.size) * float(np.exp(random.uniform(np.log(0.15), np.log(1.0))))
        x, y = (float(random.uniform(0, extent - side)) if extent > side else 0.0 for extent in picture.size)
        box = (x, y, x + side, y + side)
        if all(overlap(box, other) < 0.05 for other in (*photo.people, *photo.ignore)):
            looks.append((picture, from_boxes([box])[0]))
        if len(looks) == count:
            break
    return looks


@torch.no_grad()
def _evidence(pipeline: Di2Pose, looks: list[Look], name: str) -> np.ndarray:
    rows = []
    for first in tqdm(range(0, len(looks), BATCH), name):
        crops = [
            pipeline.crop(picture, who, assumed_camera(picture.size)) for picture, who in looks[first : first + BATCH]
        ]
        crops = [crop.at(crop.detection.roi) for crop in crops]
        encoded = pipeline.encode(crops, second_look=True)
        noise = hypothesis_generators(0, range(first, first + len(crops)), 8)
        samples = pipeline.estimate(encoded, 8, pipeline.config.sample_steps, noise).samples_mm
        told = person_features(encoded, samples, pipeline.encoder.size[0])
        assert told is not None
        rows.append(told)
    return np.concatenate(rows)


if __name__ == "__main__":
    tyro.cli(main)
