"""What other looks are worth on real footage: the detector's crop, its mirror image, the crop that the model is surest
of, and that with its mirror image, as photos are looked at by default.

    python benchmarks/second_look.py MODEL PREPARED_POSE2SIM
    python benchmarks/second_look.py MODEL PREPARED_POSE2SIM --occlusion occ-80

The detector looks at the picture that the model gets, with the patch on it. BlazePose's own 3D is that of the same
crop. 12 limb joints, mid-hip aligned, camera axes, MPJPE / PA-MPJPE in mm; means over sampling seeds.
"""

from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import tyro
from tqdm import tqdm

from di2pose import Di2Pose, photo
from di2pose.data.sample import Dataset
from di2pose.evaluation.estimates import load_model
from di2pose.image.blazepose import PEER_JOINTS, peer
from di2pose.image.crop import assumed_camera
from di2pose.image.find import Finder
from di2pose.occlusion.protocols import occlude_limb
from di2pose.photo import Seen, View
from di2pose.pose.metrics import mpjpe, pa_mpjpe
from di2pose.pose.skeleton import H36M_17, convert
from di2pose.randomness import hypothesis_generators
from di2pose.training.people_features import PATCH_SEED, OcclusionProtocol, patch_size

BATCH = 16
FOUND, SUREST = "the detector's", "the surest look"
PEER, ONE_WAY, BOTH_WAYS = "BlazePose heavy's own 3D", "one way, seed ", "both ways, seed "
LIMBS = list(H36M_17.indices(*PEER_JOINTS))
HIPS = list(H36M_17.indices("left_hip", "right_hip"))


def main(
    model: tyro.conf.Positional[str],
    data: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR")],
    occlusion: OcclusionProtocol | None = None,
    every: int = 1,
    hypotheses: int = 8,
    steps: int = 4,
    seeds: tuple[int, ...] = (0, 1, 2),
) -> None:
    """Measure it.

    Args:
        model: checkpoint folder, run, or name of a packaged model
        data: prepared dataset with pictures
        occlusion: put the patch of this protocol on every picture before anybody looks at it
        every: take every so manyth record
        hypotheses: poses a person
        steps: reverse steps
        seeds: of the noise
    """
    torch.set_num_threads(1)
    network, dataset = load_model(model), Dataset(data)
    find = Finder()
    poses: dict[tuple[str, str], list[np.ndarray]] = {}
    truth, turned, changed = [], 0, 0
    rows = range(0, len(dataset), every)
    for start in tqdm(range(0, len(rows), BATCH), unit="batch", disable=None):
        samples = [dataset[row] for row in rows[start : start + BATCH]]
        views = []
        for sample in samples:
            image = dataset.read_image(sample)
            if occlusion is not None:
                clean = find(sample, image)
                image = occlude_limb(
                    image, sample, dataset.skeleton, patch_size(occlusion), PATCH_SEED, roi=clean
                ).image
            views.append(View(image, find.find(sample, image), sample.camera or assumed_camera(image.size)))
            joints, _ = convert(sample.joints_mm[None].astype(np.float32), dataset.skeleton, H36M_17)
            truth.append(joints[0])
        first = network.look(views)
        second = network.look_again(first)
        pairs = [(a.detection.roi, b.detection.roi) for a, b in zip(first.views, second.views, strict=True)]
        changed += sum(a != b for a, b in pairs)
        turned += sum(abs(np.angle(np.exp(1j * (a.angle - b.angle)))) > np.radians(30) for a, b in pairs)
        for crop, seen in ((FOUND, first), (SUREST, second)):
            poses.setdefault((crop, PEER), []).append(_peer(network, seen))
            for way, looked in ((ONE_WAY, seen), (BOTH_WAYS, network.look_mirrored(seen))):
                for seed in seeds:
                    noise = hypothesis_generators(seed, [sample.id for sample in samples], hypotheses)
                    drawn = network.estimate(looked, hypotheses, steps, noise).samples_mm
                    poses.setdefault((crop, f"{way}{seed}"), []).append(drawn.mean(1))
    target = _limbs(np.stack(truth))
    known = ~target.isnan().any(-1)
    found = {key: _limbs(np.concatenate(parts)) for key, parts in poses.items()}
    errors = {
        key: (float(mpjpe(pose, target, known).mean()), float(pa_mpjpe(pose, target, known).mean()))
        for key, pose in found.items()
    }
    base = errors[FOUND, PEER]
    print(f"{len(rows)} pictures; another crop was chosen in {changed}, turned by more than 30 degrees in {turned}\n")
    print("| | crop | MPJPE / PA-MPJPE | over BlazePose on the same crop | over BlazePose on the detector's |")
    print("|---|---|---|---|---|")
    for crop in (FOUND, SUREST):
        own = errors[crop, PEER]
        one, both = (np.mean([errors[crop, f"{way}{seed}"] for seed in seeds], 0) for way in (ONE_WAY, BOTH_WAYS))
        mean = f"Di2Pose, mean of {hypotheses}"
        for what, value in ((PEER, own), (mean, one), (f"{mean}, mirror image too", both)):
            ratios = [" / ".join(f"{v / o:.3f}" for v, o in zip(value, over, strict=True)) for over in (own, base)]
            print(f"| {what} | {crop} | {value[0]:.1f} / {value[1]:.1f} | {ratios[0]} | {ratios[1]} |")


def _peer(network: Di2Pose, seen: Seen) -> np.ndarray:
    """BlazePose's own 3D of the same crops, camera axes; joints that it does not have are 0."""
    crops = np.concatenate(list(photo.crops_of(seen.views)))
    world = network._encoder()(torch.from_numpy(crops).to(network.device)).world_mm.cpu()
    joints = np.zeros((len(crops), 1, H36M_17.count, 3))
    joints[:, 0, LIMBS] = peer(world).numpy()
    return photo.to_camera(joints, seen.views)[:, 0]


def _limbs(joints_mm: np.ndarray) -> torch.Tensor:
    joints = torch.from_numpy(joints_mm).float()
    return joints[:, LIMBS] - joints[:, HIPS].mean(1, keepdim=True)


if __name__ == "__main__":
    tyro.cli(main)
