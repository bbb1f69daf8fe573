"""Poses without a dataset: stick figures, their features, and a tiny model that has learned eight of them."""

from dataclasses import replace

import torch

from di2pose import recipes
from di2pose.data.sample import Writer
from di2pose.network import Di2PoseNetwork
from di2pose.noise import generator_of
from di2pose.pose.skeleton import H36M_17
from di2pose.training.loop import Job, train
from di2pose.training.options import RunOptions, overridden
from di2pose.training.sources import MemorySource
from di2pose.training.stages import TokenizerStage

BONES_MM = {
    "hip": (130, 10), "knee": (0, 440), "ankle": (0, 430), "spine": (0, -240), "thorax": (0, -250),
    "nose": (0, -110), "head": (0, -120), "shoulder": (150, 20), "elbow": (60, 270), "wrist": (20, 250),
    "heel": (0, 60), "toe": (60, 120),
}  # fmt: skip
"""From parent to joint, standing: (outwards, down)."""


def stick_figures(count, generator, skeleton=H36M_17):
    """(count, J, 3) mm, root-relative, camera axes: a standing figure whose every bone is turned at random."""
    joints = torch.zeros(count, skeleton.count, 3)
    for child, parent in skeleton.bones:
        name = skeleton.joints[child]
        outwards, down = BONES_MM[name.removeprefix("left_").removeprefix("right_")]
        # We look at the figure's face: its left is on our right, x > 0.
        bone = torch.tensor([outwards if name.startswith("left_") else -outwards, down, 0.0])
        turned = bone / bone.norm() + 0.45 * torch.randn(count, 3, generator=generator)
        joints[:, child] = joints[:, parent] + bone.norm() * torch.nn.functional.normalize(turned, dim=-1)
    return joints


def write_set(folder, samples, name="figures", skeleton=H36M_17, **header):
    """A prepared dataset of some samples."""
    writer = Writer(folder, name, skeleton, **header)
    writer.write("all", list(samples))
    return writer.finish()


def seen_from_the_front(joints_mm, width):
    """(B, J, width) features: a token per joint, which joint it is and its x and y in metres. Depth is not there."""
    joints = joints_mm.shape[1]
    features = torch.zeros(*joints_mm.shape[:2], width)
    features[..., :joints] = torch.eye(joints)
    features[..., joints : joints + 2] = joints_mm[..., :2] / 1000
    return features


def train_tiny(seed, out, skeleton, encoder, feature_width):
    """A tiny Di2Pose that has learned eight poses: (model, joints_mm (8, J, 3), features (8, J, F))."""
    torch.manual_seed(seed)
    recipe = overridden(recipes.tiny(feature_width), [f"tokenizer.skeleton={skeleton.name}", "tokenizer.augment=false"])
    model = Di2PoseNetwork(replace(recipe, encoder=encoder))
    joints_mm = stick_figures(8, generator_of(seed, "poses"), skeleton)
    features = seen_from_the_front(joints_mm, feature_width)
    figures = MemorySource(features=features, joints_mm=joints_mm)

    def fit(name, stage, iterations, batch, rate):
        training = replace(model.config.denoiser_training, iterations=iterations, batch=batch, learning_rate=rate)
        job = Job(name, stage, figures, training, seed, lambda *_: {}, lambda *_: None, {})
        assert train(job, out / name, RunOptions(resume=False)) == 0

    stage = TokenizerStage(model.config)
    stage.tokenizer = model.tokenizer.requires_grad_(True)
    fit("tokenizer", stage, 1000, 8, 5e-3)
    model.tokenizer.requires_grad_(False)
    fit("denoiser", model, 400, 32, 3e-3)
    return model.eval(), joints_mm, features
