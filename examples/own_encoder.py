"""An encoder of one's own: features, a tiny Di2Pose trained on them, a prediction.

python examples/own_encoder.py [FOLDER]

The encoder, mean colours of a grid, is the smallest there is: the point is what an encoder needs. The labels are what
the packaged model says of a few frames of footage; your own come from a dataset, by `di2pose data prepare`.
"""

import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from di2pose import Di2Pose, Result
from di2pose.assets import extract
from di2pose.data.demo_footage import CLIP, FRAME
from di2pose.data.feature_cache import write_features
from di2pose.data.frames import Video
from di2pose.image.crop import Roi, crop_rotation
from di2pose.image.detect import Detection, from_boxes
from di2pose.image.encoder import ENCODERS, EncoderOutput, FeatureLayout, TokenBlock, crop_pixels
from di2pose.pose.camera import Camera
from di2pose.training.command import train_denoiser, train_tokenizer
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


class Footage:
    """Labelled crops by number (`data.feature_cache.CropSource`): the largest person of every fourth frame."""

    def __init__(self, teacher: Di2Pose, encoder: Grid, count: int) -> None:
        self.encoder, self.about = encoder, {"source": "walker", "skeleton": teacher.skeleton.name}
        with closing(Video(extract("sports2d-demo", CLIP) / CLIP)) as video:
            self.pictures = [video.frame(FRAME + 4 * k) for k in range(count)]
        self.results = [teacher(picture, max_people=1, hypotheses=2, second_look=False) for picture in self.pictures]

    def __len__(self) -> int:
        return len(self.pictures)

    def crop(self, i: int) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, str]]:
        result = self.results[i]
        region = self.encoder.region(from_boxes([result.people[0].box])[0])
        turn = self.encoder.rotation(region, result.camera)  # camera axes -> crop axes
        labels = {"joints_mm": (result.people[0].joints_mm @ turn.T).astype(np.float32)}
        split = "train" if i % 4 else "test"  # a training is measured on what is not of split "train"
        texts = {"id": f"walker-{i}", "subject": "", "action": "", "sequence": "", "split": split}
        return crop_pixels(self.encoder, self.pictures[i], region), labels, texts


def main(out: str | Path = "out/examples/grid", frames: int = 16, iterations: int = 300) -> Result:
    """The features, the tokenizer (stage 1), the denoiser (stage 2), and the first frame, which was held out."""
    out, encoder = Path(out), Grid()
    footage = Footage(Di2Pose.from_pretrained(), encoder, frames)
    cache = out / "features"
    write_features(footage, encoder, cache, footage.about)  # of a prepared dataset: `di2pose features --encoder grid`
    stage, run = StageOptions(iterations=iterations, batch=16), RunOptions(log_every=iterations, resume=False)
    train_tokenizer((cache,), out / "tokenizer", "tiny", stage=stage, options=run)
    train_denoiser(out / "tokenizer", (cache,), out / "denoiser", "tiny", stage=stage, options=run)
    model = Di2Pose.from_pretrained(out / "denoiser")  # its config.json names the encoder "grid"
    teacher = footage.results[0]
    result = model(footage.pictures[0], boxes=[teacher.people[0].box], hypotheses=4)
    apart = result.people[0].joints_mm - teacher.people[0].convert(model.skeleton).joints_mm
    print(f"{result!r} of {result.model}: {np.linalg.norm(apart, axis=-1).mean():.0f} mm from the packaged model")
    print("written:", *result.save(out / "walker.html"))
    return result


if __name__ == "__main__":
    main(*sys.argv[1:2])
