"""A prepared dataset of plausible poses before a camera, with plain grey pictures; feature caches; a tiny model."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from di2pose.data.sample import Dataset, Sample, Writer
from di2pose.network import Di2PoseNetwork
from di2pose.pose.camera import Camera
from di2pose.pose.skeleton import H36M_17
from di2pose.recipes import tiny

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


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


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


@pytest.fixture
def write_dataset(tmp_path):
    def write(samples, name="h36m", folder=tmp_path / "data"):
        writer = Writer(folder, name, H36M_17, image_root="images")
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
def write_predictions(tmp_path):
    def write(samples, joints_mm=None, **keys):
        poses = np.stack([s.joints_mm for s in samples]) if joints_mm is None else joints_mm
        np.savez(tmp_path / "poses.npz", **{"ids": np.array([s.id for s in samples]), "joints_mm": poses, **keys})
        return tmp_path / "poses.npz"

    return write


@pytest.fixture(scope="session")
def standing():
    def standing(count, seed=0):
        """Plausible poses (n, 17, 3), pelvis at 0."""
        noise = np.random.default_rng(seed).normal(0, 60, (count, *STANDING.shape))
        return (STANDING + noise * (np.arange(17) > 0)[:, None]).astype(np.float32)

    return standing


@pytest.fixture(scope="session")
def tiny_model():
    def tiny_model(width, adapter_layers=1):
        """Untrained, for 17 image tokens."""
        torch.manual_seed(0)
        adapter = {"adapter_layers": adapter_layers, "adapter_width": 32, "adapter_channels": 4, "adapter_tokens": 5}
        config = tiny(width)
        return Di2PoseNetwork(replace(config, denoiser=replace(config.denoiser, feature_tokens=17, **adapter)))

    return tiny_model


@pytest.fixture(scope="session")
def write_cache():
    def write(folder, columns, tokens, split="test", actions=None, **header):
        """A feature cache on disk, one shard: `columns` of labels and of the block `tokens` (n, L, F)."""
        columns, count = {"tokens": tokens.astype(np.float32), **columns}, len(tokens)
        fields = [[name, x.dtype.str, list(x.shape[1:])] for name, x in columns.items()]
        layout = [{"name": "tokens", "count": tokens.shape[1], "width": tokens.shape[2], "first": 0}]
        header = {"format_version": 2, "skeleton": "h36m_17", **header, "rows": count, "count": count}
        folder.mkdir(parents=True)
        (folder / "features.json").write_text(json.dumps(header | {"layout": layout, "fields": fields}))
        table = np.zeros(count, np.dtype([(name, kind, tuple(shape)) for name, kind, shape in fields], align=True))
        for name, values in columns.items():
            table[name] = values
        np.save(folder / "shard-00000.npy", table)
        lines = []
        for i in range(count):
            text = {name: f"{name}{i}" for name in ("id", "subject", "action", "sequence")} | {"split": split}
            lines.append(json.dumps(text | ({} if actions is None else {"action": actions[i]})) + "\n")
        (folder / "shard-00000.jsonl").write_text("".join(lines))
        return folder

    return write
