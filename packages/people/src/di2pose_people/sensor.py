"""What a camera makes of linear light: exposure, white balance, blur, sensor noise, JPEG."""

import io
from functools import lru_cache
from typing import no_type_check

import numpy as np
from PIL import Image

from di2pose_people.raster import compiled

STEPS = 2048


def develop(
    light: np.ndarray, subject: np.ndarray, generator: np.random.Generator, inside: np.ndarray | None = None
) -> bytes:
    """Linear light (256, 256, 3) -> JPEG bytes.

    Exposure follows the whole picture and, as much again, the pixels that `subject` (256, 256) covers. What is not
    `inside` the photo is black.
    """
    brightness = sum(np.moveaxis(light, 2, 0)) / np.float64(3)
    whole, person = brightness.mean(), (brightness * subject).sum() / (1 + subject.sum(dtype=np.float64))
    gain = np.exp(generator.normal(np.log(0.21), 0.4)) / max((whole * person) ** 0.5, 0.02)
    image = light * (gain * np.exp(generator.normal(0, 0.06, 3))).astype(np.float32)
    if generator.random() < 0.45:
        image = _blur(image, np.exp(generator.uniform(np.log(0.4), np.log(1.5))))
    noise = np.float32(np.exp(generator.uniform(np.log(0.002), np.log(0.03))))
    grey = np.float32(generator.uniform(0.9, 1.0) if generator.random() < 0.03 else generator.uniform(-0.2, 0.4))
    row, column = generator.integers(0, len(_grain()) - len(light), 2)
    pixels = np.empty(image.shape, np.uint8)
    _encode(image, _curve(generator.uniform(0.4, 0.55)), noise, grey, _grain()[row:, column:], pixels)
    if inside is not None:
        pixels[~inside] = 0
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=int(generator.integers(40, 96)))
    return out.getvalue()


@lru_cache(maxsize=1)
def _grain() -> np.ndarray:
    """Unit noise (512, 512, 3), of which each picture takes a random part."""
    return np.random.default_rng(7).standard_normal((512, 512, 3), np.float32)


def _curve(gamma: float) -> np.ndarray:
    """Tone curve with a soft shoulder over sqrt(light) in 0 .. 2, in STEPS steps: 0 .. 255."""
    light = (np.arange(STEPS) * (2 / STEPS)) ** 2
    return (255 * np.minimum(light / (1 + 0.35 * light) * 1.2, 1) ** gamma).astype(np.float32)


@compiled
@no_type_check
def _encode(image, curve, noise, grey, grain, pixels) -> None:
    """Saturation (`grey` 1 is monochrome, below 0 vivid), tone curve, noise, 8 bits."""
    last = len(curve) - 1
    for row in range(image.shape[0]):
        for column in range(image.shape[1]):
            r, g, b = image[row, column, 0], image[row, column, 1], image[row, column, 2]
            mean = 0.3 * r + 0.55 * g + 0.15 * b
            for c in range(3):
                x = image[row, column, c]
                x = max(x + (mean - x) * grey, 0.0)
                value = curve[min(int(np.sqrt(x) * (len(curve) / 2)), last)]
                value += 255 * noise * grain[row, column, c] + 0.5
                pixels[row, column, c] = np.uint8(min(max(value, 0.0), 255.0))


@compiled
@no_type_check
def _blur(image, sigma) -> np.ndarray:
    """Gaussian, separable, edges repeated."""
    reach = int(np.ceil(2.2 * sigma))
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2).astype(np.float32)
    kernel /= kernel.sum()
    height, width, channels = image.shape
    wide = np.zeros((height, (width + 2 * reach) * channels), np.float32)
    start, stop = reach * channels, (reach + width) * channels
    for row in range(height):
        for k in range(-reach, reach + 1):
            source = image[min(max(row + k, 0), height - 1)].reshape(-1)
            weight = kernel[k + reach]
            for x in range(width * channels):
                wide[row, start + x] += weight * source[x]
        for x in range(start):
            wide[row, x] = wide[row, start + x % channels]
            wide[row, stop + x] = wide[row, stop - channels + x % channels]
    out = np.zeros((height, width * channels), np.float32)
    for row in range(height):
        for k in range(2 * reach + 1):
            weight = kernel[k]
            for x in range(width * channels):
                out[row, x] += weight * wide[row, x + k * channels]
    return out.reshape(height, width, channels)
