"""The last results of a process, without their pictures: files of an answer are written without computing it again."""

import asyncio
import hashlib
import pickle
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from di2pose.result import Motion, Result
from di2pose.serve.limits import Limits
from di2pose.video.stream import VideoBytes


async def key_of(client: str, content: bytes | VideoBytes, options: Mapping[str, Any]) -> bytes:
    """Of a request: its client, its file and its options. Who has not sent the same cannot ask for the result."""
    digest = hashlib.sha256(repr((client, sorted(options.items()))).encode())
    await asyncio.to_thread(digest.update, content.content if isinstance(content, VideoBytes) else content)
    return digest.digest()


class ResultStore:
    """Results, pickled, by the keys of their requests; the oldest go first."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._kept: dict[bytes, tuple[float, bytes]] = {}
        """When each came, and the result."""

    async def keep(self, key: bytes, found: Result | Motion) -> None:
        bare = replace(found, picture=None) if isinstance(found, Result) else found
        data = await asyncio.to_thread(pickle.dumps, bare)
        self._kept.pop(key, None)
        self._kept[key] = time.monotonic(), data
        self._forget()

    async def get(self, key: bytes) -> Result | Motion | None:
        """The result without pictures; None where it is not kept."""
        self._forget()
        if key not in self._kept:
            return None
        found: Result | Motion = await asyncio.to_thread(pickle.loads, self._kept[key][1])
        return found

    def _forget(self) -> None:
        limits, oldest = self.limits, time.monotonic() - self.limits.result_kept_s
        held = sum(len(data) for _, data in self._kept.values())
        for key, (since, data) in list(self._kept.items()):
            if len(self._kept) <= limits.results and held <= limits.results_bytes and since >= oldest:
                return
            del self._kept[key]
            held -= len(data)
