"""Media types, the formats that can be written here, and the files of the page."""

from functools import cache
from importlib.resources import files
from importlib.util import find_spec

from di2pose.result import WRITERS

MEDIA = {
    "json": "application/json",
    "csv": "text/csv",
    "npz": "application/octet-stream",
    "trc": "text/tab-separated-values",
    "bvh": "text/plain",
    "html": "text/html",
    "png": "image/png",
    "jpg": "image/jpeg",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
    "ico": "image/x-icon",
    "woff2": "font/woff2",
}
"""Ending -> media type; other formats are plain bytes."""
NEEDS = {"parquet": "pyarrow"}


def media_type(ending: str) -> str:
    """Of a format of `Result.save` ('angles.csv') or the ending of a file."""
    return MEDIA.get(ending.rpartition(".")[2], "application/octet-stream")


@cache
def formats() -> list[str]:
    """Endings of `Result.save` whose packages are installed."""
    endings = [ending.removeprefix(".") for ending in WRITERS]
    return [ending for ending in endings if ending not in NEEDS or find_spec(NEEDS[ending])]


def static_files() -> dict[str, tuple[bytes, str]]:
    """Name -> (content, media type) of everything that the page links: read once, so that no request opens a file."""
    found = {}
    for room in ("di2pose.output", "di2pose.serve"):
        for file in files(room).joinpath("static").iterdir():
            ending = file.name.rpartition(".")[2]
            if file.is_file() and ending in MEDIA:
                found[file.name] = (file.read_bytes(), MEDIA[ending])
    return found
