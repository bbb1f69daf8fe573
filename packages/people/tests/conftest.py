"""A small rendered set, made once for all tests of this room."""

import os
import shutil
from pathlib import Path

import pytest

# Two training subjects and one held-out one; walking, sitting, climbing, dancing.
CLIPS = ("001/01_05", "002/02_03", "023/23_19", "060/60_08")


@pytest.fixture(scope="session")
def motion(tmp_path_factory):
    """A folder of a few real clips, laid out as in the CMU release."""
    beside = Path(__file__).parents[3].parent / "shared/data/cmu-bvh-6hz"
    source = Path(os.environ.get("DI2POSE_CMU", beside))
    if not source.is_dir():
        pytest.skip("no CMU motion: set DI2POSE_CMU to a folder of .bvh files of the CMU conversion")
    folder = tmp_path_factory.mktemp("motion")
    for clip in CLIPS:
        target = folder / f"{clip}.bvh"
        target.parent.mkdir(exist_ok=True)
        shutil.copy(source / f"{clip}.bvh", target)
    return folder


@pytest.fixture(scope="session")
def plan(motion):
    from di2pose_people.sampling import Plan

    return Plan(motion, "train", seed=3, settled=0.0)


@pytest.fixture(scope="session")
def folder(plan, tmp_path_factory):
    """12 people on disk."""
    from di2pose_people.render import render_people

    out = tmp_path_factory.mktemp("people")
    assert render_people(plan, out, 12) == 12
    return out


@pytest.fixture(scope="session")
def people(folder):
    from di2pose.data.sample import Dataset

    return Dataset(folder)
