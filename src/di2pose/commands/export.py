"""`di2pose export`: a trained model as a folder for use, in half the size or as ONNX networks."""

from pathlib import Path

import tyro

from di2pose import checkpoint
from di2pose.errors import InputError
from di2pose.model import find_model, load_model
from di2pose.network import Di2PoseNetwork
from di2pose.pipeline.pipeline import Di2Pose
from di2pose.text_table import aligned


def export(
    model: tyro.conf.Positional[Path], out: Path | None = None, onnx: Path | None = None, lift: Path | None = None
) -> None:
    """Write a model with weights of 16 bits, with its calibration and notes: what is shipped. Or, with --onnx, all
    networks between a photo and a person for onnxruntime, which needs no PyTorch then (docs/guide.md).

    Args:
        model: Checkpoint folder, run of `di2pose train`, or name of a packaged model.
        out: Folder to write; an older one is replaced when the new one is whole.
        onnx: Folder to write for `di2pose.onnx.OnnxPredictor`; every network is checked against PyTorch.
        lift: Model of keypoints alone (recipe lift, same tokenizer), to draw half of the hypotheses of what is written.
    """
    if out is None and onnx is None:
        raise InputError("say what to write: --out FOLDER (16 bits), --onnx FOLDER, or both")
    network = Di2Pose.from_pretrained(model)
    if lift is not None:
        parts = network.model, load_model(lift)
        if not all(isinstance(part, Di2PoseNetwork) for part in parts):
            raise InputError(f"--lift is for models of kind 'di2pose', got {' and '.join(part.kind for part in parts)}")
        network.model = parts[0].with_lift(parts[1])
    if out is not None:
        network.save(out, half=True, **checkpoint.read_notes(find_model(model)))
        _print_size(out, network)
    if onnx is not None:
        from di2pose.onnx.export import export_onnx

        files = export_onnx(network, onnx)["files"]
        _print_size(onnx, network)
        rows = [(name, f"{f['bytes'] / 1e6:.1f}", f"{f['largest_difference']:.1e}") for name, f in files.items()]
        print(aligned(("network", "MB", "largest difference from PyTorch"), rows))


def _print_size(folder: Path, network: Di2Pose) -> None:
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{folder}: {size / 1e6:.1f} MB, {'calibrated' if network.calibration else 'not calibrated'}")
