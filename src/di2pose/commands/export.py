"""`di2pose export`: a trained model as a folder for use, half the size."""

from pathlib import Path

import tyro

from di2pose import checkpoint
from di2pose.model import average_in, find_model
from di2pose.pipeline import Di2Pose


def export(model: tyro.conf.Positional[Path], out: Path, average: tuple[Path, ...] = ()) -> None:
    """Write a model with weights of 16 bits, with its calibration and notes: what is shipped.

    Args:
        model: Checkpoint folder, run of `di2pose train`, or name of a packaged model.
        out: Folder to write; an older one is replaced when the new one is whole.
        average: Other folders, runs that began with the same weights: what is written is the mean of them all. The
            calibration stays the model's own: fit it again.
    """
    network = Di2Pose.from_pretrained(model)
    average_in(network.model, average)
    network.save(out, half=True, **checkpoint.read_notes(find_model(model)))
    size = sum(path.stat().st_size for path in out.iterdir())
    print(f"{out}: {size / 1e6:.1f} MB, {'calibrated' if network.calibration else 'not calibrated'}")
