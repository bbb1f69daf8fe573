"""Networks are made once and kept; what is damaged, or made by other code, is made anew."""

import shutil

import numpy as np
import pytest
import torch

from di2pose.assets import fetch
from di2pose.image import kept_network
from di2pose.image.efficientdet import EfficientDet
from di2pose.image.kept_network import MOST, kept

SOURCES = ["efficientdet-lite0"]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DI2POSE_CACHE", str(tmp_path))
    return tmp_path


def test_it_is_made_once(cache):
    made = []

    def make():
        made.append(1)
        return b"network"

    paths = [kept("net", "8x8", SOURCES, make) for _ in range(3)]
    assert len(made) == 1
    assert len(set(paths)) == 1
    assert paths[0].read_bytes() == b"network"


@pytest.mark.parametrize("damage", [b"Network", b"net", b""])
def test_a_damaged_one_is_made_anew(cache, damage):
    path = kept("net", "8x8", SOURCES, lambda: b"network")
    path.write_bytes(damage)
    assert kept("net", "8x8", SOURCES, lambda: b"network") == path
    assert path.read_bytes() == b"network"


def test_a_missing_or_damaged_sha256_makes_it_anew(cache):
    path = kept("net", "8x8", SOURCES, lambda: b"network")
    for damage in (None, b"\xff\xff", b""):
        told = path.with_suffix(".sha256")
        told.unlink() if damage is None else told.write_bytes(damage)
        made = []
        assert kept("net", "8x8", SOURCES, lambda made=made: made.append(1) or b"network") == path
        assert made == [1]


def test_other_code_makes_another(cache, monkeypatch):
    path = kept("net", "8x8", SOURCES, lambda: b"old")
    monkeypatch.setattr(kept_network, "MAKERS", (*kept_network.MAKERS, "crop"))
    other = kept("net", "8x8", SOURCES, lambda: b"new")
    assert other != path
    assert other.read_bytes() == b"new"


def test_only_a_few_of_a_network_are_kept(cache):
    for size in range(MOST + 3):
        newest = kept("net", f"{size}x{size}", SOURCES, lambda: b"network")
    kept("another", "8x8", SOURCES, lambda: b"network")
    networks = sorted((cache / "networks").glob("net-*.tflite"))
    assert newest in networks
    assert len(networks) == len(list((cache / "networks").glob("net-*.sha256"))) == MOST


def test_without_room_for_it_the_bytes_are_used(cache):
    (cache / "networks").write_text("no folder")
    assert kept("net", "8x8", SOURCES, lambda: b"network") == b"network"


@pytest.mark.parametrize("folder", ["cache", "Zwischenlager für Äpfel"])
def test_a_real_network_says_the_same_from_the_cache_and_after_its_file_is_gone(tmp_path, monkeypatch, folder):
    source = fetch(*SOURCES)
    cache = tmp_path / folder
    monkeypatch.setenv("DI2POSE_CACHE", str(cache))
    (cache / "assets" / SOURCES[0]).mkdir(parents=True)
    shutil.copy(source, cache / "assets" / SOURCES[0])
    pixels = torch.from_numpy(np.random.default_rng(0).integers(0, 255, (3, 320, 320, 3), np.uint8))
    first, second = EfficientDet("litert"), EfficientDet("litert")
    shutil.rmtree(cache / "networks")
    pictures = pixels.repeat(4, 1, 1, 1)  # enough for interpreters of several threads, which are built now
    answers = [[torch.cat(column) for column in zip(*(net(half) for half in pictures.chunk(2)), strict=True)]
               for net in (first, second)]  # fmt: skip
    assert all(torch.equal(a, b) for a, b in zip(*answers, strict=True))
