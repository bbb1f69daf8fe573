"""The sdist and the wheel made of it, installed into an environment of its own: it predicts outside of the clone."""

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import di2pose
from di2pose.assets import fetch

ROOT = Path(__file__).parents[1]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}


def run(*command, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, env=CLEAN, **options)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def shipped(folder):
    """Files below a package folder, without what Python leaves there."""
    paths = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {path for path in paths if "__pycache__" not in path}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist, and the wheel that is made of it."""
    pytest.importorskip("hatchling")
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", out, cwd=ROOT)
    (sdist,) = out.glob("*.tar.gz")
    with tarfile.open(sdist) as tar:
        tar.extractall(out, filter="data")
    source = out / sdist.name.removesuffix(".tar.gz")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out, cwd=source)
    (wheel,) = out.glob("*.whl")
    return source, wheel


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """The folder of programs of a new environment: the wheel, and this environment's packages but ours."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, symlinks=True)
    paths = sysconfig.get_paths("venv", {"base": str(folder), "platbase": str(folder)})
    others = folder / "others"
    others.mkdir()
    for path in sorted({*_packages("purelib"), *_packages("platlib")}):
        (others / path.name).symlink_to(path)
    (Path(paths["purelib"]) / "others.pth").write_text(str(others))
    python = Path(paths["scripts"]) / Path(sys.executable).name
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", built[1])
    return python.parent


def _packages(kind):
    folder = Path(sysconfig.get_paths()[kind])
    return [path for path in folder.iterdir() if "di2pose" not in path.name and path.suffix != ".pth"]


def test_the_sdist_and_the_wheel_hold_the_package_and_nothing_else(built):
    source, wheel = built
    package = shipped(ROOT / "src" / "di2pose")
    assert {"py.typed", "weights/small/config.json", "weights/lift/config.json", "serve/static/index.html"} <= package
    assert shipped(source / "src" / "di2pose") == package
    others = {path for path in shipped(source) if not path.startswith("src/di2pose/")}
    texts = {"CHANGELOG.md", "CITATION.cff", "LICENCES.md", "LICENSE", "README.md"}
    assert others == texts | {"PKG-INFO", "pyproject.toml", ".gitignore"}
    about = f"di2pose-{di2pose.__version__}.dist-info/"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        points = archive.read(f"{about}entry_points.txt").decode()
    assert {name for name in names if not name.startswith(about)} == {f"di2pose/{path}" for path in package}
    assert {f"{about}licenses/LICENSE", f"{about}licenses/LICENCES.md"} <= names
    assert "di2pose = di2pose.cli:main" in points


def test_the_installed_wheel_predicts_outside_of_the_clone(installed, tmp_path):
    program = installed / "di2pose"
    assert "usage: di2pose COMMAND" in run(program, "--help", cwd=tmp_path)
    checks = json.loads(run(program, "doctor", "--json", cwd=tmp_path))
    found = {check["name"]: check for check in checks["checks"]}
    assert checks["ok"]
    assert str(installed.parent) in found["di2pose"]["found"]
    assert found["self-test"]["state"] == "ok"
    assert found["di2pose-people"]["state"] == "note"  # another distribution
    photo = fetch("astronaut")
    run(program, "predict", photo, "--hypotheses", "2", "--steps", "2", "--format", "json,html", cwd=tmp_path)
    (frame,) = json.loads((tmp_path / "di2pose-out" / "astronaut.json").read_text())["frames"]
    assert len(frame["people"]) == 1
    assert (tmp_path / "di2pose-out" / "astronaut.html").stat().st_size > 10_000


def test_the_citation_names_this_version():
    assert f"\nversion: {di2pose.__version__}\n" in (ROOT / "CITATION.cff").read_text()
