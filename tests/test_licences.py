"""LICENCES.md has a row with source and terms for every part that is used or fetched."""

import re
import tomllib
from pathlib import Path

from di2pose.assets import ASSETS
from di2pose.data.prepare import READERS

ROOT = Path(__file__).parents[1]
ROWS = {
    cells[0]: cells
    for line in (ROOT / "LICENCES.md").read_text().splitlines()
    if line.startswith("| ")
    for cells in [[cell.strip() for cell in line.strip("|").split("|")]]
}
"""Part -> part, source, licence, note where there is one."""


def test_every_asset_and_every_dataset_is_listed_with_its_source_and_its_licence():
    registry = {"pip": "PyPI", "npm": "npm"}
    wanted = {a.name: [a.name, f"{registry[a.client]} {a.source}", a.licence, a.note] for a in ASSETS.values()}
    wanted |= {name: [name, reader.origin, reader.licence] for name, reader in READERS.items() if reader.fetch is None}
    assert {name: ROWS.get(name) for name in wanted} == wanted


def test_every_package_is_listed_with_a_licence():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {name: lines for name, lines in project["optional-dependencies"].items() if name != "dev"}
    lines = [*project["dependencies"], *(line for lines in extras.values() for line in lines)]
    packages = {re.split(r"[\[<>=~! ]", line)[0] for line in lines}
    assert packages - ROWS.keys() == set()
    assert [name for name in packages if not ROWS[name][2]] == []
