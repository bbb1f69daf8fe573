"""What a camera makes of linear light: exposure, white balance, blur, sensor noise, JPEG."""

import io
from functools import lru_cache

import numpy as np
from PIL import Image
from scipy.ndimage import gaussian_filter

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
        sigma = np.exp(generator.uniform(np.log(0.4), np.log(1.5)))
        image = gaussian_filter(image, (sigma, sigma, 0), mode="nearest", truncate=2.2)
    noise = np.float32(np.exp(generator.uniform(np.log(0.002), np.log(0.03))))
    grey = np.float32(generator.uniform(0.9, 1.0) if generator.random() < 0.03 else generator.uniform(-0.2, 0.4))
    row, column = generator.integers(0, len(_grain()) - len(light), 2)
    mean = image @ np.array([0.3, 0.55, 0.15], np.float32)
    image += grey * (mean[..., None] - image)  # 1: monochrome, below 0: vivid
    step = (np.sqrt(image.clip(0, None)) * (STEPS / 2)).astype(np.int32).clip(None, STEPS - 1)
    grain = _grain()[row : row + len(image), column : column + len(image)]
    pixels = (_curve(generator.uniform(0.4, 0.55))[step] + 255 * noise * grain + 0.5).clip(0, 255).astype(np.uint8)
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
