"""Di2Pose: occluded 3D human pose estimation by discrete diffusion."""

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["Di2Pose", "__version__"]

if TYPE_CHECKING:
    from di2pose.pipeline import Di2Pose


def __getattr__(name: str) -> object:
    """`di2pose.Di2Pose` on first use: the command line answers --help without waiting for torch."""
    if name == "Di2Pose":
        from di2pose.pipeline import Di2Pose

        return Di2Pose
    raise AttributeError(f"module 'di2pose' has no attribute {name!r}")
