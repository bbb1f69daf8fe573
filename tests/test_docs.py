"""The documentation site: built strictly, so that no link is broken; and it fetches nothing."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import di2pose
from di2pose import diffusion, onnx, tokenizer

ROOT = Path(__file__).parents[1]
FETCHED = re.compile(r"<(?:script|img|iframe|source)[^>]*\ssrc=\"?(?:https?:)?//|<link[^>]*\shref=\"?(?:https?:)?//")


def test_the_site_has_every_page_and_every_public_name_and_fetches_nothing(tmp_path):
    pytest.importorskip("zensical", reason="the extra 'docs' is not installed")
    command = [sys.executable, str(ROOT / "docs" / "build.py"), str(tmp_path / "docs")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    site = tmp_path / "docs" / "site"
    pages = {path.relative_to(site).as_posix(): path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    sources = [*(ROOT / "docs").rglob("*.md"), ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
    wanted = {path.relative_to(ROOT).with_suffix(".html").as_posix() for path in sources}
    assert wanted - pages.keys() == set()
    assert [name for name, page in pages.items() if FETCHED.search(page)] == []
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert styles
    assert not [each for each in styles if re.search(r"(@import|url\()\s*[\"']?(https?:)?//", each)]
    anchors = set(re.findall(r'id="(di2pose[\w.]*)"', "".join(pages.values())))
    for module in (diffusion, tokenizer, onnx):
        assert {f"{module.__name__}.{name}" for name in module.__all__} - anchors == set()
    public = {getattr(di2pose, name).__name__ for name in di2pose.__all__ if name != "__version__"}
    assert public - {anchor.rpartition(".")[2] for anchor in anchors} == set()
    assert {"di2pose.Di2Pose.__call__", "di2pose.Motion.save"} <= anchors
