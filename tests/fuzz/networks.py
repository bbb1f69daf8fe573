"""Networks of others, in tfjs' and tflite's form."""

import json
from pathlib import Path

import numpy as np
from fuzz.corpus import add


def _make_tfjs(folder: Path) -> None:
    weights = [{"name": "w", "shape": [3, 3, 2, 4], "dtype": "float32", "quantization": {"dtype": "float16"}},
               {"name": "b", "shape": [4], "dtype": "float32"}]  # fmt: skip
    about = {
        "strides": {"list": {"i": ["1", "2", "2", "1"]}},
        "padding": {"s": "U0FNRQ=="},
        "fused_ops": {"list": {"s": ["Qmlhc0FkZA==", "UmVsdTY="]}},
    }
    node = {"name": "c", "op": "_FusedConv2D", "input": ["x", "w", "b"], "attr": about}
    last = {"name": "d", "op": "AddV2", "input": ["c", "c"], "attr": {}}
    graph = {
        "modelTopology": {"node": [{"name": "x", "op": "Placeholder"}, node, last]},
        "weightsManifest": [{"weights": weights}],
    }
    (folder / "model.json").write_text(json.dumps(graph))
    (folder / "group1.bin").write_bytes(np.ones(72, "<f2").tobytes() + np.ones(4, "<f4").tobytes())


def _read_tfjs(folder: Path) -> bytes:
    from di2pose.image.networks import TfjsFile, to_tflite

    return to_tflite(TfjsFile(folder / "model.json", folder / "group1.bin"), "x", ["d"], (1, 8, 8, 2))


add("tfjs graph", "model.json", _make_tfjs, _read_tfjs, kind="json", count=150)
add("tfjs weights", "group1.bin", _make_tfjs, _read_tfjs, count=30)


def _make_tflite(folder: Path) -> None:
    _make_tfjs(folder)
    (folder / "n.tflite").write_bytes(_read_tfjs(folder))


def _read_tflite(folder: Path) -> object:
    from di2pose.image.networks import TfliteFile

    file = TfliteFile(folder / "n.tflite")
    return file.upstream(file.operations[-1].outputs)


add("tflite", "n.tflite", _make_tflite, _read_tflite, count=150)
