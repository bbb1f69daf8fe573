"""2D keypoints relative to the body that they are of.  K keypoints, of COCO's 17 in their order."""

from typing import Any

HIPS = slice(11, 13)
ELSEWHERE = 1e-3
"""Weight of other keypoints in the middle of the body: they count only where both hips are missing."""


def by_body(places: Any, there: Any) -> Any:
    """Places (..., K, 2) from the middle of the hips, in units of their root mean square distance from it; 0 where
    `there` (..., K, 1) is 0. Of numpy or of PyTorch."""
    middle, size = body_frame(places, there)
    return (places - middle) * there / size


def body_frame(places: Any, there: Any) -> tuple[Any, Any]:
    """The middle of the hips (..., 1, 2), and the root mean square distance of the keypoints from it (..., 1, 1)."""
    hips = (places[..., HIPS, :] * there[..., HIPS, :]).sum(-2) + ELSEWHERE * (places * there).sum(-2)
    count = there[..., HIPS, :].sum(-2) + ELSEWHERE * there.sum(-2)
    middle = (hips / (count + 1e-9))[..., None, :]
    size = (((places - middle) * there) ** 2).sum((-1, -2)) / (there.sum((-1, -2)) + 1e-9)
    return middle, size[..., None, None] ** 0.5 + 1e-6
