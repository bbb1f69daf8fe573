"""An encoder of one's own: features, a tiny Di2Pose trained on them, a prediction.

python examples/own_encoder.py [FOLDER]

The encoder, mean colours of a grid, is the smallest there is: the point is what an encoder needs. The labels are the
packaged model's estimates on a few frames of footage; your own come from a dataset, by `di2pose data prepare`.
"""

import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from di2pose import Di2Pose, Result
from di2pose.assets import extract
from di2pose.data.demo_footage import CLIP, FRAME
from di2pose.data.frames import Video
from di2pose.data.sample import Dataset, Sample, Writer
from di2pose.image.crop import Roi, crop_rotation
from di2pose.image.detect import Detection
from di2pose.image.encoder import ENCODERS, EncoderOutput, FeatureLayout, TokenBlock
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import H36M_17
from di2pose.training.command import train_denoiser, train_tokenizer
from di2pose.training.features import features
from di2pose.training.options import RunOptions, StageOptions


class Grid:
    """An `image.encoder.Encoder`: crops of 64x64 pixels -> 64 tokens of 3 channels."""

    name, size, layout = "grid", (64, 64), FeatureLayout((TokenBlock("grid", count=64, width=3, first=0),))

    def region(self, detection: Detection) -> Roi:
        return detection.roi

    def matrix(self, region: Roi) -> np.ndarray:
        return region.matrix(64)

    def rotation(self, region: Roi, camera: Camera) -> np.ndarray:
        return crop_rotation(camera, region)

    def encode(self, crops: np.ndarray) -> EncoderOutput:
        cells = crops.reshape(-1, 8, 8, 8, 8, 3).mean((2, 4), dtype=np.float32)  # B, 8 rows, 8 columns, RGB
        return EncoderOutput(cells.reshape(-1, 64, 3) / 255)

    def cache_parts(self, crops: np.ndarray) -> dict[str, np.ndarray]:
        return {"grid": np.asarray(self.encode(crops).features)}


def load(name: str, device: Any) -> Grid:
    """A distribution names this function in its entry point: [project.entry-points."di2pose.encoders"]."""
    return Grid()


ENCODERS["grid"] = f"{__name__}:load"  # what that entry point does, for this process alone


def label(folder: Path, count: int) -> None:
    """A prepared dataset: the largest person of every fourth frame. Every fourth of these is held out."""
    video, teacher, samples = extract("sports2d-demo", CLIP) / CLIP, Di2Pose.from_pretrained(), []
    with closing(Video(video)) as frames:
        for k in range(count):
            result = teacher(frames.frame(FRAME + 4 * k), max_people=1, hypotheses=2, second_look=False)
            person = result.people[0].convert("h36m_17")
            image, split = f"{video.name}#{FRAME + 4 * k}", "train" if k % 4 else "test"
            joints_mm = person.joints_mm.astype(np.float32)
            samples.append(Sample(str(k), joints_mm, image=image, box=person.box, camera=result.camera, split=split))
    writer = Writer(folder, "walker", H36M_17, image_root=str(video.parent))
    writer.write("all", samples)
    writer.finish()


def main(out: str | Path = "out/examples/grid", frames: int = 16, iterations: int = 300) -> Result:
    """The labels, the features, the tokenizer (stage 1), the denoiser (stage 2), and a frame that was held out."""
    out = Path(out)
    if not (out / "set").is_dir():
        label(out / "set", frames)
    features(out / "set", out / "features", encoder="grid")  # on the command line: di2pose features, di2pose train
    stage, run = StageOptions(iterations=iterations, batch=16), RunOptions(log_every=iterations, resume=False)
    train_tokenizer((out / "features",), out / "tokenizer", "tiny", stage=stage, options=run)
    train_denoiser(out / "tokenizer", (out / "features",), out / "denoiser", "tiny", stage=stage, options=run)
    dataset, model = Dataset(out / "set"), Di2Pose.from_pretrained(out / "denoiser")  # its encoder is "grid"
    sample = dataset[0]
    result = model(dataset.read_image(sample), boxes=[sample.box], camera=sample.camera, hypotheses=4)
    apart = np.linalg.norm(result.people[0].joints_mm - sample.joints_mm, axis=-1).mean()
    print(f"{result!r} of the model {result.model}: {apart:.0f} mm from the label")
    print("written:", *result.save(out / "walker.html"))
    return result


if __name__ == "__main__":
    main(*sys.argv[1:2])
