"""A small prepared dataset of plausible poses before a camera, with plain grey pictures; feature caches."""

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from di2pose.data.sample import Dataset, Sample, Writer
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import H36M_17

# Standing, arms half raised; x right, y down, z away; mm.
STANDING = np.array(
    [
        [0, 0, 0], [-130, 10, 0], [-140, 450, 20], [-140, 880, 60], [130, 10, 0], [140, 450, -20], [140, 880, 60],
        [0, -240, 10], [0, -490, 20], [0, -580, -40], [0, -690, 0], [160, -450, 20], [380, -300, 0], [560, -180, -100],
        [-160, -450, 20], [-380, -300, 0], [-560, -180, -100],
    ],
    dtype=np.float32,
)  # fmt: skip
CAMERA = Camera(focal=(360.0, 360.0), centre=(105.0, 135.0), size=(210, 270))


@pytest.fixture(scope="session")
def make_samples():
    def make(count, *, seed=0, **fields):
        """`fields` may be functions of the record's number."""
        rng, root = np.random.default_rng(seed), np.array([0.0, 0.0, 3000.0])
        samples = []
        for i in range(count):
            joints = STANDING + rng.normal(0, 30, STANDING.shape).astype(np.float32)
            joints[0] = 0
            points = CAMERA.project(joints + root).astype(np.float32)
            place = {"root_mm": root, "joints_2d": points, "box": (28.0, 33.0, 182.0, 237.0), "camera": CAMERA}
            words = {"subject": "S9", "action": "Walking", "sequence": f"take{i // 2}", "split": "test"}
            whole = Sample(f"r{i}", joints, image=f"r{i}.png", frame=i, **place, **words)
            samples.append(replace(whole, **{k: v(i) if callable(v) else v for k, v in fields.items()}))
        return samples

    return make


@pytest.fixture(scope="session")
def dataset_in():
    def write(folder, samples, name="h36m", skeleton=H36M_17):
        writer = Writer(folder, name, skeleton, image_root="images")
        writer.write("all", samples)
        writer.finish()
        for sample in samples:
            if sample.image is not None:
                path = folder / "images" / sample.image
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.new("RGB", (210, 270), (128, 128, 128)).save(path)
        return Dataset(folder)

    return write


@pytest.fixture
def write_dataset(tmp_path, dataset_in):
    return lambda samples, name="h36m": dataset_in(tmp_path / "data", samples, name)


@pytest.fixture(scope="session")
def predictions_in():
    def write(folder, samples, joints_mm=None, file="poses.npz", **keys):
        poses = np.stack([s.joints_mm for s in samples]) if joints_mm is None else joints_mm
        np.savez(folder / file, **{"ids": np.array([s.id for s in samples]), "joints_mm": poses, **keys})
        return folder / file

    return write


@pytest.fixture
def write_predictions(tmp_path, predictions_in):
    return lambda samples, joints_mm=None, **keys: predictions_in(tmp_path, samples, joints_mm, **keys)


@pytest.fixture(scope="session")
def standing():
    def standing(count, seed=0):
        """Plausible poses (n, 17, 3), pelvis at 0."""
        noise = np.random.default_rng(seed).normal(0, 60, (count, *STANDING.shape))
        return (STANDING + noise * (np.arange(17) > 0)[:, None]).astype(np.float32)

    return standing


@pytest.fixture(scope="session")
def write_cache():
    def write(folder, columns, tokens, rows=16, split="test", actions=None, **header):
        """A feature cache on disk: `columns` of labels and of the block `tokens` (n, L, F)."""
        columns = {"tokens": tokens.astype(np.float32), **columns}
        fields = [[name, x.dtype.str, list(x.shape[1:])] for name, x in columns.items()]
        count = len(tokens)
        layout = [{"name": "tokens", "count": tokens.shape[1], "width": tokens.shape[2], "first": 0}]
        header = {"format_version": 2, "skeleton": "h36m_17", **header, "rows": rows, "count": count}
        folder.mkdir(parents=True)
        (folder / "features.json").write_text(json.dumps(header | {"layout": layout, "fields": fields}))
        table = np.zeros(count, np.dtype([(name, kind, tuple(shape)) for name, kind, shape in fields], align=True))
        for name, values in columns.items():
            table[name] = values
        for shard, start in enumerate(range(0, count, rows)):
            np.save(folder / f"shard-{shard:05d}.npy", table[start : start + rows])
            lines = []
            for i in range(start, min(start + rows, count)):
                text = {name: f"{name}{i}" for name in ("id", "subject", "action", "sequence")} | {"split": split}
                lines.append(json.dumps(text | ({} if actions is None else {"action": actions[i]})) + "\n")
            (folder / f"shard-{shard:05d}.jsonl").write_text("".join(lines))
        return folder

    return write
