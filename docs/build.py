"""The documentation site, by zensical: `python docs/build.py [FOLDER]` writes FOLDER/site. Works without a network.

Its pages are the Markdown files of the repository at their own paths, so that links between them hold, and docs/api,
which mkdocstrings fills from the docstrings. A broken link, an anchor or a name that is gone ends the build.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("*.md", "CITATION.cff", "docs/*.md", "docs/api/*.md", "docs/images/*", "packages/people/README.md",
         "experiments/README.md", "experiments/results/*.md", "experiments/results/*.png")  # fmt: skip


def build(out: Path) -> Path:
    """The folder of the site."""
    shutil.rmtree(out, ignore_errors=True)
    for path in (path for pattern in PAGES for path in ROOT.glob(pattern)):
        place = out / "pages" / path.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    for name in ("zensical.toml", "docstrings.py"):
        shutil.copyfile(ROOT / "docs" / name, out / name)
    sources = os.environ | {"PYTHONPATH": str(ROOT / "src")}  # not those of an installed version
    subprocess.run([sys.executable, "-m", "zensical", "build", "--strict"], cwd=out, env=sources, check=True)
    return out / "site"


if __name__ == "__main__":
    print(build(Path(*(sys.argv[1:] or ["out/docs"]))) / "index.html")
