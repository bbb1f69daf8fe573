"""The one record type and the one prepared form on disk.

A prepared folder holds memory-mapped arrays with a row per record, one line of JSON per record, and a header:

    joints_mm.npy   n J 3 float32   camera axes (x right, y down, z away), minus the root; NaN where `valid` is False
    root_mm.npy     n 3   float64   the root in the camera frame; NaN = not known
    joints_2d.npy   n J 2 float32   pixels of the full image; NaN = not known
    valid.npy       n J   bool      joints that are annotated
    visibility.npy  n J   int8      UNKNOWN, SEEN, SELF_OCCLUDED, OCCLUDED, OUT_OF_FRAME
    box.npy         n 4   float64   x0 y0 x1 y1 in pixels of the full image; NaN = not known
    index.jsonl     id, image, camera, subject, action, sequence, frame, split, extra
    cameras.json    camera id -> Camera
    dataset.json    name, skeleton, count, image root, licence, source, what was skipped; written last, so a folder
                    that has it is whole
"""

from di2pose.data.dataset import Dataset
from di2pose.data.record import OCCLUDED, OUT_OF_FRAME, SEEN, SELF_OCCLUDED, UNKNOWN, Part, Sample, Skip, Sources
from di2pose.data.writer import Writer

__all__ = [
    "OCCLUDED",
    "OUT_OF_FRAME",
    "SEEN",
    "SELF_OCCLUDED",
    "UNKNOWN",
    "Dataset",
    "Part",
    "Sample",
    "Skip",
    "Sources",
    "Writer",
]
