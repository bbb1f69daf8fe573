"""The mean of several runs' weights."""

from pathlib import Path

import pytest
import torch

from di2pose import Di2Pose, recipes
from di2pose.baselines.regression import Regression
from di2pose.commands.export import export
from di2pose.errors import InputError
from di2pose.model import average_in, load_model, save_model


def saved(folder: Path, seed: int) -> Path:
    torch.manual_seed(seed)
    return Di2Pose(recipes.tiny()).save(folder)


def test_an_export_may_be_the_mean_of_several_runs(tmp_path: Path) -> None:
    folders = [saved(tmp_path / str(seed), seed) for seed in range(3)]
    export(folders[0], tmp_path / "mean", average=tuple(folders[1:]))
    found = load_model(tmp_path / "mean").parts()["denoiser"].state_dict()
    each = [load_model(folder).parts()["denoiser"].state_dict() for folder in folders]
    for key, value in found.items():
        wanted = sum(state[key] for state in each) / 3
        torch.testing.assert_close(value, wanted, atol=2e-3, rtol=2e-3)  # 16 bits
    assert not torch.allclose(found["to_logits.weight"], each[0]["to_logits.weight"], atol=1e-3)


def test_only_models_of_one_kind_and_shape_have_a_mean(tmp_path: Path) -> None:
    model = load_model(saved(tmp_path / "tiny", 0))
    other = save_model(Regression(Regression.recipe("none", 17, 32)), tmp_path / "regression")
    with pytest.raises(InputError, match="kind 'regression'"):
        average_in(model, [other])
    with pytest.raises(InputError, match="does not fit"):
        average_in(model, ["small"])
