"""Di2Pose: occluded 3D human pose estimation by discrete diffusion."""

__version__ = "0.1.0"
