"""Di2Pose: occluded 3D human pose estimation by discrete diffusion."""

import os
from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["Di2Pose", "Motion", "Person", "Result", "__version__", "estimate_video", "video_results"]

if TYPE_CHECKING:
    from di2pose.pipeline.pipeline import Di2Pose
    from di2pose.result import Motion, Person, Result
    from di2pose.video.estimate import estimate_video, video_results

# Read by OpenMP when torch is imported: threads that wait sleep instead of spinning, which takes the cores from other
# work (benchmarks/busy_machine.py). GNU's OpenMP (Linux) reads the first, LLVM's and Intel's (macOS, Windows) the next.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.environ.setdefault("KMP_BLOCKTIME", "0")

_HOMES = {
    "Di2Pose": "di2pose.pipeline.pipeline",
    "Motion": "di2pose.result",
    "Person": "di2pose.result",
    "Result": "di2pose.result",
    "estimate_video": "di2pose.video.estimate",
    "video_results": "di2pose.video.estimate",
}


def __getattr__(name: str) -> object:
    """Public names on first use: the command line answers --help without waiting for torch."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'di2pose' has no attribute {name!r}")
