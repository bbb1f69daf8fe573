import hashlib
import json
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from di2pose import Di2Pose, checkpoint, recipes
from di2pose.cli import main
from di2pose.errors import InputError
from di2pose.model import load_model, save_model
from di2pose.network import Di2PoseNetwork


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    torch.manual_seed(0)
    return Di2Pose(recipes.tiny()).save(tmp_path_factory.mktemp("saved") / "model", data="none")


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "model")


def test_a_checkpoint_needs_nothing_but_its_path(folder):
    torch.manual_seed(0)
    original = Di2Pose(recipes.tiny())
    loaded = Di2Pose.from_pretrained(folder)
    assert loaded.config == original.config
    assert not loaded.model.training
    for key, value in original.model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[key], value)
    assert checkpoint.read_notes(folder) == {"data": "none"}
    assert sorted(p.name for p in folder.iterdir()) == ["config.json", "denoiser.safetensors", "tokenizer.safetensors"]


def test_the_adapter_has_a_file_of_its_own_and_older_folders_are_read(tmp_path):
    sizes = {"adapter_layers": 1, "adapter_width": 8, "adapter_channels": 2, "adapter_tokens": 2, "feature_tokens": 5}
    config = replace(recipes.tiny(), denoiser=replace(recipes.tiny().denoiser, **sizes))
    network = Di2PoseNetwork(config)
    folder = save_model(network, tmp_path / "new")
    assert sorted(p.stem for p in folder.glob("*.safetensors")) == ["adapter", "denoiser", "tokenizer"]
    old = tmp_path / "old"
    shutil.copytree(folder, old)
    whole = network.denoiser.state_dict()
    save_file(whole, old / "denoiser.safetensors")  # as it was before
    (old / "adapter.safetensors").unlink()
    about = json.loads((old / "config.json").read_text())
    del about["files"]["adapter"]
    about["files"]["denoiser"] = {"bytes": (old / "denoiser.safetensors").stat().st_size}
    (old / "config.json").write_text(json.dumps(about))
    for place in (folder, old):
        loaded = load_model(place).denoiser.state_dict()
        assert all(torch.equal(loaded[name], value) for name, value in whole.items())
        adapter = checkpoint.read_part(place, "adapter")
        assert adapter.keys() == network.denoiser.adapter.state_dict().keys()
    (folder / "adapter.safetensors").unlink()
    with pytest.raises(InputError, match=r"adapter\.safetensors is missing"):
        load_model(folder)


def test_saving_again_replaces_or_keeps_the_old_checkpoint_and_leaves_no_debris(folder, monkeypatch):
    model = Di2Pose(recipes.tiny())
    torch.nn.init.ones_(model.model.denoiser.norm.weight)
    model.save(folder)
    assert Di2Pose.from_pretrained(folder).model.denoiser.norm.weight.eq(1).all()
    assert [p.name for p in folder.parent.iterdir()] == ["model"]
    before = (folder / "config.json").read_bytes()

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(OSError, match="No space"):
        model.save(folder)
    assert (folder / "config.json").read_bytes() == before
    assert [p.name for p in folder.parent.iterdir()] == ["model"]


def test_flipped_bits_are_found_by_the_sha256_and_old_folders_without_one_load(folder):
    path = folder / "denoiser.safetensors"
    data = bytearray(path.read_bytes())
    data[-40] ^= 1  # in the last tensor: the file is still a readable one
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"denoiser.safetensors is damaged .* sha256 .* copy the folder"):
        Di2Pose.from_pretrained(folder)
    description = json.loads((folder / "config.json").read_text())
    for file in description["files"].values():
        del file["sha256"]
    (folder / "config.json").write_text(json.dumps(description))
    Di2Pose.from_pretrained(folder)


def rewrite(folder, change):
    path = folder / "denoiser.safetensors"
    state = load_file(path)
    change(state)
    save_file(state, path)
    description = json.loads((folder / "config.json").read_text())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    description["files"]["denoiser"] = {"bytes": path.stat().st_size, "sha256": digest}
    (folder / "config.json").write_text(json.dumps(description))


def test_keys_and_shapes_must_agree(folder):
    for change, message in (
        (lambda state: state.update({"norm.weight": torch.zeros(3)}), r"norm.weight has shape \(3,\), expected"),
        (lambda state: state.pop("norm.weight"), "missing norm.weight"),
        (lambda state: state.update(extra=torch.zeros(1)), "unexpected extra"),
    ):
        rewrite(folder, change)
        with pytest.raises(InputError, match=message):
            Di2Pose.from_pretrained(folder)


def test_damage_is_named(folder, tmp_path):
    path = folder / "denoiser.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:1000])
    with pytest.raises(InputError, match=f"truncated.*expected {len(whole)} bytes, got 1000"):
        Di2Pose.from_pretrained(folder)
    path.write_bytes(b"x" * len(whole))
    with pytest.raises(InputError, match=r"denoiser\.safetensors is damaged"):
        Di2Pose.from_pretrained(folder)
    path.unlink()
    with pytest.raises(InputError, match="is missing"):
        Di2Pose.from_pretrained(folder)
    with pytest.raises(InputError, match="is not a checkpoint: expected a folder"):
        Di2Pose.from_pretrained(tmp_path / "nowhere")
    (folder / "config.json").write_text("{")
    with pytest.raises(InputError, match="is not JSON"):
        Di2Pose.from_pretrained(folder)


def test_an_exported_model_is_half_as_large_and_nearly_the_same(folder, tmp_path, capsys):
    assert main(["export", str(folder), "--out", str(tmp_path / "out")]) == 0
    assert "not calibrated" in capsys.readouterr().out
    sizes = [sum(p.stat().st_size for p in f.glob("*.safetensors")) for f in (folder, tmp_path / "out")]
    assert sizes[1] < 0.55 * sizes[0]
    before, after = (Di2Pose.from_pretrained(f).model.state_dict() for f in (folder, tmp_path / "out"))
    assert all(after[key].dtype == value.dtype for key, value in before.items())
    assert all(torch.allclose(after[key], value, rtol=1e-3, atol=1e-6) for key, value in before.items())
    assert checkpoint.read_notes(tmp_path / "out") == {"data": "none"}
