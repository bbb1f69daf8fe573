"""MoveNet: Thunder finds the keypoints of one person in a crop (second observer), MultiPose those of several people.

Both come as tfjs graphs and run in LiteRT up to their heat maps; the decoding is written out here.
B crops, P people, H W cells of 4 pixels; 17 keypoints in COCO order.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Float32, UInt8
from PIL import Image

from di2pose.image.crop import fit_inside
from di2pose.image.litert import LitertNetwork, exp, made_network, sigmoid

CROP, GRID, CELL, TOKEN_CHANNELS = 256, 64, 4, 6
OBSERVER = "movenet"
"""The name of its block of features."""
SURE_NOISE, SURE, DOUBT = 4 / 256, 0.9, 4.3
"""Of a second observer's keypoint: its standard deviation at this score, over the side of the crop; it grows below by
exp(DOUBT (SURE - score)^2), to 12 pixels of 256 at 0.4 and 45 at 0.15, as on real crops."""
ZOOM = 0.8
"""The part of BlazePose's region that Thunder gets: it was trained on tighter crops."""
LONG_SIDE, MULTIPLE = 256, 32
"""Of MultiPose's input: pixels of the longer side, and what both sides are multiples of."""
_SCALE = float(np.float16(1 / 127.5))
"""Of pixels, to -1..1; it and the next are stored in 16 bits."""
_SOFTENING = float(np.float16(1.8))
"""Added to distances, in cells."""
SIZES = 4
"""Sizes of pictures for which MultiPose stays ready: it takes about twice its weights' memory."""
_THUNDER = ("movenet-thunder-graph", "movenet-thunder")
_THUNDER_HEADS = ("kpt_heatmap_0/conv2d_5", "center_0/conv2d_4", "kpt_regress_0/conv2d_6", "kpt_offset_0/conv2d_7")
_MULTIPOSE = ("movenet-multipose-graph", "movenet-multipose")
_MULTIPOSE_HEADS = ("center_0/conv2d_4", "box_scale_0/conv2d_5", "box_offset_0/conv2d_6", "kpt_heatmap_0/conv2d_7",
                    "kpt_regress_0/conv2d_8", "kpt_offset_0/conv2d_9")  # fmt: skip


def network(
    assets: Sequence[str], heads: Sequence[str], size: tuple[int, int], eight_bits: bool = False
) -> LitertNetwork:
    """One of the networks, for pictures of that size (height, width)."""
    prefix = "StatefulPartitionedCall/"
    nodes = tuple(f"{prefix}{head}/BiasAdd" for head in heads)
    return LitertNetwork(lambda: made_network("convert", assets, f"{prefix}sub_1", nodes, size, eight_bits))


class MoveNet:
    """Thunder: crops (B, 256, 256, 3), RGB uint8, as for BlazePose -> keypoints and tokens.

    Most weights have 8 bits: half of the keypoints move by less than 0.4 px, and accuracy is the same.
    """

    def __init__(self) -> None:
        self.network = network(_THUNDER, _THUNDER_HEADS, (CROP, CROP), eight_bits=True)

    def begin(
        self, crops: UInt8[np.ndarray, "B 256 256 3"]
    ) -> Callable[[], tuple[Float[np.ndarray, "B 17 3"], Float[np.ndarray, "B 17 6"]]]:
        """Start; the returned function waits for keypoints (x, y in crop pixels, score) and tokens: x, y and their
        standard deviations over half the crop, score, correlation of the deviations."""
        margin = round(CROP * (1 - ZOOM) / 2)
        seen, half = CROP - 2 * margin, CROP / 2
        pixels = np.rint(_enlarged(crops[:, margin:-margin, margin:-margin]))
        maps = self.network.begin(pixels * _SCALE - 1)

        def wait() -> tuple[np.ndarray, np.ndarray]:
            cells, scores, spread = decode_thunder(*maps())
            points, width = cells * seen / GRID + margin, spread[..., :2] * seen / GRID
            score = scores[..., None]
            tokens = [(points - half) / half, width / half, score, spread[..., 2:]]
            return np.concatenate([points, score], axis=-1), np.concatenate(tokens, axis=-1)

        return wait


def keypoint_tokens(
    keypoints: Float[np.ndarray, "B 17 3"], noise: Float[np.ndarray, "B 17"], width: float
) -> Float[np.ndarray, "B 17 6"]:
    """Tokens of another observer's keypoints (x, y in pixels of a crop of that width, score) and their standard
    deviation in pixels, the same in x and y; NaN where a keypoint is missing."""
    half, spread = width / 2, noise[..., None] / (width / 2)
    tokens = [keypoints[..., :2] / half - 1, spread, spread, keypoints[..., 2:], 0 * spread]
    return np.concatenate(tokens, axis=-1) + 0 * keypoints[..., :1]


def keypoints_of(tokens: Float[np.ndarray, "B 17 6"]) -> Float[np.ndarray, "B 17 3"]:
    """x, y in crop pixels and score, out of cached tokens."""
    half = CROP / 2
    return np.concatenate([tokens[..., :2] * half + half, tokens[..., 4:5]], axis=-1)


def decode_thunder(
    heat: Float32[np.ndarray, "B 64 64 17"],
    centre: Float32[np.ndarray, "B 64 64 1"],
    regress: Float32[np.ndarray, "B 64 64 34"],
    offset: Float32[np.ndarray, "B 64 64 34"],
) -> tuple[Float32[np.ndarray, "B 17 2"], Float32[np.ndarray, "B 17"], Float32[np.ndarray, "B 17 3"]]:
    """Maps -> keypoints (x, y), scores, spreads (standard deviation of x, of y, correlation), in cells of the grid: of
    the person nearest to the middle, each keypoint near where that person's centre expects it."""
    rows, joint, line = np.arange(len(heat)), np.arange(17), np.arange(GRID, dtype=np.float32)
    heat = sigmoid(np.ascontiguousarray(heat.transpose(0, 3, 1, 2)))  # B 17 64 64
    from_middle = np.hypot(line[:, None] - GRID / 2, line - GRID / 2)
    central = (1 / (from_middle + 1.8)).astype(np.float16).astype(np.float32)  # as the file stores it
    best = (sigmoid(centre[..., 0]) * central).reshape(len(heat), -1).argmax(1)  # B
    middle = np.stack(np.divmod(best, GRID), axis=-1)  # B 2, (y, x)
    # Where the person's centre expects each keypoint; channels are (keypoint, y then x).
    guess = middle[:, None].astype(np.float32) + regress[rows, middle[:, 0], middle[:, 1]].reshape(-1, 17, 2)
    down, across = ((line - guess[..., axis, None]) ** 2 for axis in (0, 1))  # B 17 64
    near = heat / (np.sqrt(down[..., None] + across[..., None, :]) + _SOFTENING)  # B 17 64 64
    y, x = np.divmod(near.reshape(-1, 17, GRID * GRID).argmax(2), GRID)  # B 17
    fine = offset.reshape(-1, GRID, GRID, 17, 2)[rows[:, None], y, x, joint]  # B 17 2
    points = np.stack([x, y], axis=-1).astype(np.float32) + fine[..., ::-1]
    return points, heat[rows[:, None], joint, y, x], _spread(near)


def _enlarged(x: UInt8[np.ndarray, "B n n 3"]) -> Float32[np.ndarray, "B 256 256 3"]:
    """To the size of a crop, bilinear, as PyTorch does it without align_corners."""
    count = x.shape[1]
    at = np.maximum((np.arange(CROP) + 0.5) * count / CROP - 0.5, 0)
    low = at.astype(int)
    high, share = np.minimum(low + 1, count - 1), (at - low).astype(np.float32)
    enlarged = x.astype(np.float32)
    for axis, weight in ((1, share[:, None, None]), (2, share[:, None])):
        near = enlarged.take(low, axis)
        enlarged = near + (enlarged.take(high, axis) - near) * weight
    return enlarged


def _spread(maps: Float32[np.ndarray, "B 17 64 64"]) -> Float32[np.ndarray, "B 17 3"]:
    """Standard deviation in x and in y, and their correlation, of non-negative maps read as densities."""
    line = np.arange(GRID, dtype=np.float32) - (GRID - 1) / 2  # centred: less is lost in the differences below
    powers = np.stack([np.ones_like(line), line, line**2])  # 3 64
    # Summed over x in eight lanes: the same bits whatever BLAS is installed.
    lanes = (maps[..., None, :] * powers).reshape(*maps.shape[:3], 3, 8, 8).sum(-2)  # B 17 64 3 8
    lanes = lanes[..., :4] + lanes[..., 4:]
    lanes = lanes[..., :2] + lanes[..., 2:]
    moments = np.einsum("yh,bjhx->bjyx", powers, lanes[..., 0] + lanes[..., 1])  # B 17 3 3: of y, x
    moments = moments / moments[..., :1, :1]
    mean_x, mean_y = moments[..., 0, 1], moments[..., 1, 0]
    std_x = np.sqrt(np.maximum(moments[..., 0, 2] - mean_x**2, 1e-6))
    std_y = np.sqrt(np.maximum(moments[..., 2, 0] - mean_y**2, 1e-6))
    product = moments[..., 1, 1] - mean_x * mean_y
    return np.stack([std_x, std_y, np.clip(product / (std_x * std_y), -1, 1)], axis=-1)


@dataclass(frozen=True)
class Poses:
    """People, those with the clearest centre first; in image pixels."""

    keypoints: Float[np.ndarray, "P 17 3"]
    """x, y, score."""
    boxes: Float[np.ndarray, "P 4"]
    """x0, y0, x1, y1; cut at the picture's border."""
    scores: Float[np.ndarray, " P"]


class MultiPose:
    """Several people of a picture, each with a box and keypoints; the file's own decoding stops at six people, this
    one at `people`."""

    def __init__(self, people: int = 12) -> None:
        self.people = people
        self.network = lru_cache(maxsize=SIZES)(lambda *size: network(_MULTIPOSE, _MULTIPOSE_HEADS, size))
        """(height, width) -> the network for pictures of that size."""

    def begin(self, image: Image.Image, least: float = 0.0) -> Callable[[], Poses]:
        """Start; the returned function waits for the people whose score may reach `least`."""
        small, stretch = fit_inside(image, LONG_SIDE)
        height, width = (math.ceil(extent / MULTIPLE) * MULTIPLE for extent in small.shape[:2])
        pixels = np.zeros((1, height, width, 3), dtype=np.float32)
        pixels[0, : small.shape[0], : small.shape[1]] = small
        maps = self.network(height, width).begin(pixels * _SCALE - 1)

        def wait() -> Poses:
            keypoints, boxes, scores = self.decode(maps(), least)
            scale = np.array([*stretch, 1.0])
            return Poses(keypoints * scale, boxes * np.array(stretch * 2), scores.astype(np.float64))

        return wait

    def decode(
        self, heads: Sequence[np.ndarray], least: float = 0.0
    ) -> tuple[Float[np.ndarray, "P 17 3"], Float[np.ndarray, "P 4"], Float[np.ndarray, " P"]]:
        """The maps of one picture -> keypoints, boxes and scores of those whose centre scores `least`, in pixels of the
        network's input."""
        centre, extent, shift, heat, regress, offset = (each[0] for each in heads)  # H W channels
        centre, heat = sigmoid(centre[..., 0]), sigmoid(heat)
        rows, columns = centre.shape
        around = np.lib.stride_tricks.sliding_window_view(np.pad(centre, 2), (5, 5)).max((2, 3))
        peaks = (centre * (np.abs(centre - around) < 1e-6)).ravel()
        where = np.argsort(-peaks, kind="stable")[: self.people]
        clear, cell = peaks[where], np.stack(np.divmod(where, columns), axis=-1)  # P, and P 2 (y, x)
        y, x = cell.T
        size, place = np.maximum(extent[y, x], 0), cell.astype(np.float32) + shift[y, x]  # P 2, (y, x)
        limit = np.array([rows, columns], np.float32)
        low, high = (np.clip(place + side * size / 2, 0, limit) for side in (-1, 1))
        # Each keypoint: the hottest cell in the box, the nearer to where the centre expects it the better. Nearness is
        # a product of one down and one across, both 0 outside of the box.
        guess = cell[:, None].astype(np.float32) + regress[y, x].reshape(-1, 17, 2)  # P 17 2
        lines = [np.arange(n, dtype=np.float32) for n in (rows, columns)]
        down, across = (
            exp(-((line - guess[..., axis, None]) ** 2) / (0.3 * limit.min()))
            * ((line >= low[:, None, axis, None]) & (line < high[:, None, axis, None]))
            for axis, line in enumerate(lines)
        )  # P 17 H and P 17 W
        kept = slice(int((clear >= least).sum()))  # a person's score is at most that of the centre; clearest first
        near = heat.transpose(2, 0, 1) * (down[kept, :, :, None] * across[kept, :, None])  # P 17 H W
        ky, kx = np.divmod(near.reshape(-1, 17, rows * columns).argmax(2), columns)  # P 17
        joint = np.arange(17)
        fine = offset.reshape(rows, columns, 17, 2)[ky, kx, joint]  # P 17 2
        # The score of a cell is that of the nearest person, kept or not.
        scores = heat[ky, kx, joint] * (down[:, joint, ky] * across[:, joint, kx]).max(0)  # P 17
        sure = scores > 0.127
        person = clear[kept] * (scores * sure).sum(1) / np.maximum(sure.sum(1), 1).astype(np.float32)
        points = CELL * (np.stack([kx, ky], axis=-1).astype(np.float32) + fine[..., ::-1])
        keypoints = np.concatenate([points, scores[..., None]], axis=-1)
        return keypoints, CELL * np.concatenate([low[kept, ::-1], high[kept, ::-1]], axis=-1), person
