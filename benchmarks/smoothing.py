"""What do tracking and smoothing give on real video? Jitter, error and time against frames on their own.

    python benchmarks/smoothing.py MODEL PREPARED_POSE2SIM [--hypotheses 8] [--frames 100] [--steps 10]

MODEL is a checkpoint folder (or `small`), PREPARED_POSE2SIM a folder of `di2pose data prepare pose2sim`. Twelve limb
joints of one person in four views, 60 frames a second; the truth is triangulated, good to 2 to 4 cm. All rows of a view
use the same pictures and, but for the first, the same crops, one after the other in one process; CPU times.

jitter      mean length of the joints' acceleration round the pelvis, m/s^2, from three frames in a row
fresh       share of the squared error that is new in each frame: half the mean squared change of the error, over it
90 % balls  share of the true joints inside `r90_mm`
diffusion   time of the diffusion for a frame, and of everything after decoding (detector, encoder, diffusion,
whole       smoothing), as a ratio to frames on their own
"""

import argparse
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from di2pose.data.sample import Dataset, Sample
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.pose.camera import Camera
from di2pose.pose.metrics import mpjpe, pa_mpjpe
from di2pose.pose.skeleton import H36M_17, LIMB_12
from di2pose.result import Person, Result
from di2pose.video.body import one_body
from di2pose.video.estimate import TrackedFrame, drawn_people, tracked_frames
from di2pose.video.smooth import smooth
from di2pose.video.stream import Frame
from di2pose.video.track import Observation, Tracker

RATE = 60.0
LIMBS = list(H36M_17.indices(*LIMB_12))
OWN, TRACKED = "frames on their own", "tracked"


class EveryFrame(Tracker):
    """A tracker that asks the detector on every frame and follows nobody, as for photos."""

    def __init__(self) -> None:
        super().__init__(max_people=1)

    @property
    def search(self) -> str:
        return "quick"

    def update(self, time_s: float, observations: Sequence[Observation]) -> dict[int, int]:
        given = super().update(time_s, observations)
        self.tracks = []
        return given


def timed(frames: Iterable[TrackedFrame], spent: list[float]) -> list[TrackedFrame]:
    """All frames, and the time that each took."""
    kept, source, started = [], iter(frames), time.process_time()
    for each in source:
        spent.append(time.process_time() - started)
        kept.append(each)
        started = time.process_time()
    return kept


def pictures(dataset: Dataset, samples: list[Sample], clock: list[float]) -> Iterator[Frame]:
    """The video's frames; `clock` gathers the time of decoding, which is not counted."""
    for sample in samples:
        started = time.process_time()
        picture = dataset.read_image(sample)
        clock.append(time.process_time() - started)
        yield Frame(sample.frame, sample.frame / RATE, picture)


def as_result(each: TrackedFrame, people: list[Person], samples: list[Sample]) -> Result:
    camera = samples[0].camera
    assert camera is not None
    size = each.frame.picture.size
    return Result(None, size, camera, people, 0, 1, 1, "", "", each.frame.index, each.frame.time_s)


def first_person(results: Iterable[Result]) -> list[Person | None]:
    """The first track through time: there is one person in these videos."""
    return [result.people[0] if result.people else None for result in results]


def score(people: list[Person | None], samples: list[Sample]) -> dict[str, np.ndarray]:
    """Sums over frames that have a person: errors, acceleration, change of error, coverage."""
    there = [k for k, person in enumerate(people) if person is not None]
    found = np.stack([person.joints_mm[LIMBS] for person in people if person is not None]).astype(np.float64)
    r90 = np.stack([person.r90_mm[LIMBS] for person in people if person is not None])
    truth = np.stack([samples[k].joints_mm[LIMBS] for k in there]).astype(np.float64)
    error = found - truth
    run = np.flatnonzero(np.diff(there, 2) == 0) if len(there) > 2 else np.array([], dtype=int)
    run = np.array([k for k in run if there[k + 2] - there[k] == 2], dtype=int)
    step = error[1:] - error[:-1]
    return {
        "mpjpe": mpjpe(torch.from_numpy(found), torch.from_numpy(truth)).numpy(),
        "pa": pa_mpjpe(torch.from_numpy(found), torch.from_numpy(truth)).numpy(),
        "jitter": np.linalg.norm(found[run] - 2 * found[run + 1] + found[run + 2], axis=-1).mean(-1) * RATE**2 / 1000,
        "true_jitter": np.linalg.norm(truth[run] - 2 * truth[run + 1] + truth[run + 2], axis=-1).mean(-1)
        * RATE**2
        / 1000,
        "step2": (step**2).sum(-1).mean(-1) / 2,
        "error2": (error**2).sum(-1).mean(-1),
        "inside": (np.linalg.norm(error, axis=-1) <= r90).mean(-1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data", type=Path)
    parser.add_argument("--hypotheses", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--frames", type=int, default=100)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model, dataset = Di2Pose.from_pretrained(options.model), Dataset(options.data)
    scores: dict[str, list[dict[str, np.ndarray]]] = {}
    diffusion: dict[str, list[float]] = {}
    whole: dict[str, list[float]] = {}

    def run(name: str, looked: list[TrackedFrame], looking: list[float], batched: bool) -> None:
        how = (options.hypotheses, options.steps, 0)
        started = time.process_time()
        batches = [looked] if batched else [[each] for each in looked]
        drawn = [answer for batch in batches for answer in drawn_people(model, batch, *how)]
        spent = time.process_time() - started
        results = [as_result(each, people, samples) for each, people in drawn]
        for suffix in ("", " + smoothing", " + smoothing, one body"):
            if suffix:
                started = time.process_time()
                results = one_body(results) if suffix.endswith("body") else list(smooth(results))
                spent += time.process_time() - started
            scores.setdefault(name + suffix, []).append(score(first_person(results), samples))
            diffusion.setdefault(name + suffix, []).append(spent)
            whole.setdefault(name + suffix, []).append(spent + sum(looking))

    for sequence in sorted({record["sequence"] for record in dataset.index}):
        rows = [k for k, record in enumerate(dataset.index) if record["sequence"] == sequence]
        samples = sorted((dataset[k] for k in rows), key=lambda sample: sample.frame)[: options.frames]
        camera = samples[0].camera
        assert camera is not None

        def camera_of(frame: Frame, camera: Camera = camera) -> Camera:
            return camera

        for tracker in (EveryFrame(), Tracker(max_people=1)):
            decoding: list[float] = []
            looking: list[float] = []
            source = pictures(dataset, samples, decoding)
            looked = timed(tracked_frames(model, source, tracker, camera_of), looking)
            looking = [spent - read for spent, read in zip(looking, decoding, strict=True)]
            if isinstance(tracker, EveryFrame):
                looked = [each._replace(numbers=[0] * len(each.numbers)) for each in looked]
                run(OWN, looked, looking, batched=False)
                continue
            run(TRACKED, looked, looking, batched=True)
        print(f"{sequence}: {len(samples)} frames", flush=True)

    print(f"\n{options.hypotheses} hypotheses, {options.steps} steps\n")
    print("| | jitter m/s^2 | fresh | MPJPE mm | PA-MPJPE mm | 90 % balls | diffusion | whole |")
    print("|---|---|---|---|---|---|---|---|")
    truth = np.concatenate([each["true_jitter"] for each in scores[OWN]]).mean()
    print(f"| the truth | {truth:.1f} | | | | | | |")
    for name, views in scores.items():
        mean = {key: float(np.concatenate([view[key] for view in views]).mean()) for key in views[0]}
        print(
            f"| {name} | {mean['jitter']:.1f} | {mean['step2'] / mean['error2']:.3f} | {mean['mpjpe']:.1f} "
            f"| {mean['pa']:.1f} | {mean['inside']:.0%} | {sum(diffusion[name]) / sum(diffusion[OWN]):.2f} "
            f"| {sum(whole[name]) / sum(whole[OWN]):.2f} |"
        )


if __name__ == "__main__":
    main()
