"""What other looks are worth on real footage: the detector's crop, its mirror image, the crop that the model is surest
of, and that with its mirror image, as photos are looked at by default.

    python benchmarks/second_look.py MODEL PREPARED_POSE2SIM
    python benchmarks/second_look.py MODEL PREPARED_POSE2SIM --occlusion occ-80

The same as four runs of `di2pose evaluate` with and without --second-look and --flip-test, but for the encoder's own 3D
on the detector's crop, over which all are printed. The detector looks at the picture that the model gets, with the
patch on it. 12 limb joints, mid-hip aligned, camera axes, MPJPE / PA-MPJPE in mm; means over sampling seeds.
"""

import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro

from di2pose import Di2Pose
from di2pose.data.sample import Dataset
from di2pose.evaluation.predictors import PEER, PicturePredictor
from di2pose.evaluation.protocol import parse_protocols
from di2pose.evaluation.run import evaluate_dataset
from di2pose.image.crop import Roi
from di2pose.image.detect import PersonMatcher
from di2pose.pipeline import pipeline as conductor
from di2pose.pipeline.crops import EncodedCrops
from di2pose.text_table import markdown

METRICS = ("mpjpe", "pa_mpjpe")


def main(
    model: tyro.conf.Positional[str],
    data: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR")],
    occlusion: Literal["occ-40", "occ-80"] | None = None,
    every: int = 1,
    hypotheses: int = 8,
    steps: int | None = None,
    seeds: tuple[int, ...] = (0, 1, 2),
) -> None:
    """Measure it.

    Args:
        model: checkpoint folder, run, or name of a packaged model
        data: prepared dataset with pictures
        occlusion: put the patch of this protocol on every picture before anybody looks at it
        every: take every so manyth frame
        hypotheses: poses a person
        steps: reverse steps; left out: the model's own
        seeds: of the noise
    """
    pipeline, dataset = Di2Pose.from_pretrained(model), Dataset(data)
    protocols = parse_protocols(occlusion or "limb-12", every)
    rows: list[tuple[str, str, list[float]]] = []
    pairs: list[tuple[Roi, Roi]] = []
    again = conductor.with_second_looks

    def recorded(first: EncodedCrops, *others: Any) -> EncodedCrops:
        second = again(first, *others)
        pairs.extend((a.region, b.region) for a, b in zip(first.crops, second.crops, strict=True))
        return second

    conductor.with_second_looks = recorded
    for second_look in (False, True):
        crop = "the surest look" if second_look else "the detector's"
        for flip_test in (False, True):
            with tempfile.TemporaryDirectory() as out:
                report = evaluate_dataset(
                    PicturePredictor(pipeline, second_look, flip_test),
                    dataset,
                    protocols,
                    Path(out),
                    hypotheses=(hypotheses,),
                    steps=steps,
                    seed=seeds[0],
                    more_seeds=seeds[1:],
                    roi_of=PersonMatcher(),
                    worst=0,
                )
            assert report is not None
            found = {(number["estimate"], number["metric"]): number["value"] for number in report["numbers"]}
            if not flip_test:
                rows.append(("encoder's own 3D", crop, [found[PEER, metric] for metric in METRICS]))
            name = f"mean of {hypotheses}" + ", flip test" * flip_test
            rows.append((name, crop, [found["p-agg", metric] for metric in METRICS]))
    turns = [abs(np.angle(np.exp(1j * (a.angle - b.angle)))) for a, b in pairs]
    own = {crop: values for name, crop, values in rows if name == "encoder's own 3D"}
    base = own["the detector's"]
    head = ["", "crop", "MPJPE / PA-MPJPE", "over the encoder's own 3D, same crop", "over it on the detector's"]
    table = []
    for name, crop, values in rows:
        ratios = [" / ".join(f"{v / o:.3f}" for v, o in zip(values, over, strict=True)) for over in (own[crop], base)]
        table.append([name, crop, f"{values[0]:.1f} / {values[1]:.1f}", *ratios])
    # The second look is the same in both of its runs.
    print(
        f"{len(pairs) // 2} pictures; another crop was chosen in {sum(a != b for a, b in pairs) // 2}, turned by more "
        f"than 30 degrees in {sum(turn > np.radians(30) for turn in turns) // 2}\n\n{markdown(head, table)}"
    )


if __name__ == "__main__":
    tyro.cli(main)
