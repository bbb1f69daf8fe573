"""Error over observer noise: real footage by MoveNet, and by true 2D keypoints with noise, handed in as a user does.

    python experiments/observer_noise.py small --data prepared/pose2sim --seeds 0,1,2 --out noise.json

Keypoints are the true 2D limb joints with Gaussian noise of that share of the body's extent in the picture, score 0.9,
drawn for each seed anew; a model of keypoints alone has these only. The face is missing, and so are joints behind the
patch of occ-80. Error of the fitted estimate of 8 hypotheses, MPJPE / PA-MPJPE in mm as `di2pose evaluate` has them,
and PA-MPJPE of the mean of 8.
"""

from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from measuring import HYPOTHESES, Footage, frames, integers, mean_and_range, run
from tqdm import tqdm

from di2pose.data.sample import Dataset
from di2pose.evaluation.protocol import parse_protocols
from di2pose.evaluation.scoring import Scorer
from di2pose.files import write_json
from di2pose.text_table import markdown

COLUMNS = ("MPJPE", "PA-MPJPE", "PA-MPJPE, mean of 8")
SLACK_MM = 0.5
"""By so much a curve may fall and still count as monotone."""


def main(
    model: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")],
    data: Path,
    noise: str = "0,0.005,0.015,0.03,0.06",
    protocol: str = "limb-12,occ-80",
    seeds: str = "0,1,2",
    every: int | None = None,
    out: Path | None = None,
) -> None:
    """Measure it; prints Markdown.

    Args:
        model: checkpoint folder, run, or name of a packaged model
        data: prepared dataset with pictures and 2D joints
        noise: shares of the body's extent, with commas
        protocol: with commas; of `di2pose evaluate`, without AdvOcc
        seeds: of the keypoints' noise and of the sampler; patches are the first one's
        every: keep a frame of every so many
        out: JSON file for the figures
    """
    dataset, numbers = Dataset(data), integers(seeds)
    footage = Footage(model, dataset)
    observers: dict[str, float | None] = {"MoveNet": None} if footage.reads_pixels else {}
    observers |= {f"true + {float(word):.1%}": float(word) for word in noise.split(",")}
    table: list[dict] = []
    for each in parse_protocols(protocol, every):
        scorer = Scorer(each, dataset.skeleton, footage.skeleton)
        errors: dict[str, list[list[np.ndarray]]] = {name: [[] for _ in numbers] for name in observers}
        for frame in tqdm(frames(dataset, each, numbers[0]), each.id, unit="frame", disable=None):
            truth, known = (part[None] for part in scorer.truth(frame.sample))
            for name, share in observers.items():
                for place, seed in enumerate(numbers):
                    found = footage.predict(frame, share, seed)
                    poses = [scorer.aligned(found.fitted_mm), scorer.aligned(found.samples_mm).mean(1)]
                    fitted, mean = (scorer.score_pose(pose, truth, known, HYPOTHESES, "") for pose in poses)
                    keys = (HYPOTHESES, "", "mpjpe"), (HYPOTHESES, "", "pa_mpjpe")
                    values = [fitted[keys[0]], fitted[keys[1]], mean[keys[1]]]
                    errors[name][place].append(np.array([float(value.nanmean()) for value in values]))
        for name, by_seed in errors.items():
            means = np.array([np.mean(rows, axis=0) for rows in by_seed])  # seeds x COLUMNS
            figures = dict(zip(COLUMNS, means.T.tolist(), strict=True))
            table.append({"protocol": each.id, "observer": name, "records": len(by_seed[0])} | figures)
    rows = [[r["protocol"], r["observer"], *(mean_and_range(r[c]) for c in COLUMNS), str(r["records"])] for r in table]
    print(markdown(["protocol", "2D keypoints", *COLUMNS, "records"], rows))
    print()
    for each in dict.fromkeys(row["protocol"] for row in table):
        curves = [r for r in table if r["protocol"] == each and r["observer"] != "MoveNet"]
        for column in COLUMNS[:2]:
            drop = -float(np.diff([np.mean(r[column]) for r in curves], prepend=-np.inf).min())
            fall = "monotone" if drop <= SLACK_MM else f"falls by {drop:.1f} mm with more noise"
            print(f"{each}, {column} over noise: {fall}")
    if out is not None:
        write_json(out, {"model": model, "data": data.name, "seeds": numbers, "every": every, "table": table})


if __name__ == "__main__":
    run(main)
