"""Textures: new colours for skins, hair and clothes, and procedural tiles for walls, floors and occluders."""

import colorsys
from functools import lru_cache

import numpy as np

TILE = 128


def recolour_skin(texture: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """A little lighter or darker, redder or paler."""
    gain = generator.uniform(0.8, 1.12) * generator.normal(1.0, 0.02, 3)
    return _scaled(texture, gain)


def recolour_hair(texture: np.ndarray, tone: float) -> np.ndarray:
    """From black through brown and grey to blond."""
    shades = np.array([[25, 20, 18], [45, 32, 24], [80, 55, 38], [120, 85, 55], [150, 145, 140], [190, 160, 110]])
    place = tone * (len(shades) - 1)
    colour = (1 - place % 1) * shades[int(place)] + place % 1 * shades[min(int(place) + 1, len(shades) - 1)]
    return _painted(texture, colour)


def recolour_cloth(texture: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Its own colours shifted in brightness, or painted anew over its own light and shade."""
    if generator.random() < 0.3:
        return _scaled(texture, generator.uniform(0.7, 1.25) * generator.normal(1.0, 0.06, 3))
    hue, saturation = generator.random(), 0.9 * generator.beta(1.1, 2.4)
    value = 0.06 + 0.9 * generator.beta(1.5, 1.3)
    if (hue + 0.03) % 1 < 0.15 and saturation > 0.12 and value > 0.3:
        hue = (hue + 0.5) % 1  # no cloth in the colours of skin
    return _painted(texture, 255 * np.array(colorsys.hsv_to_rgb(hue, saturation, value)))


def _scaled(texture: np.ndarray, gain: np.ndarray) -> np.ndarray:
    out = texture.copy()
    for c in range(3):
        out[..., c] = np.clip(np.arange(256) * gain[c], 0, 255).astype(np.uint8)[texture[..., c]]
    return out


def _painted(texture: np.ndarray, colour: np.ndarray) -> np.ndarray:
    """The texture's light and shade in one colour."""
    few = texture[::8, ::8].reshape(-1, 4).astype(np.float32)
    solid = few[:, 3] > 128
    middle = max(float((few[solid, :3] @ (0.25, 0.5, 0.25)).mean()) if solid.any() else 128.0, 8.0)
    shade = np.clip(0.35 + 0.65 * np.arange(256) / middle, 0, 2.2)
    table = np.clip(shade[:, None] * [*colour, 0], 0, 255).astype(np.uint8).view(np.uint32)[:, 0]  # a pixel is a number
    red, green, blue = (texture[..., c].astype(np.uint16) for c in range(3))
    out = table[(red + 2 * green + blue) // 4].view(np.uint8).reshape(texture.shape)
    out[..., 3] = texture[..., 3]
    return out


def draw_colour(generator: np.random.Generator, darkest: float = 0.02, brightest: float = 0.95) -> np.ndarray:
    """A colour in linear light (3,), more often pale than vivid."""
    value = generator.uniform(darkest**0.5, brightest**0.5)
    hue = generator.random() if generator.random() < 0.5 else generator.normal(0.09, 0.05) % 1  # wood, skin, earth
    return np.array(colorsys.hsv_to_rgb(hue, 0.75 * generator.beta(1.1, 4), value)) ** 2


def painted_tile(generator: np.random.Generator) -> np.ndarray:
    """(128, 128, 3) sRGB bytes: one of the patterns in two or three colours."""
    pattern = tiles()[int(generator.integers(len(tiles())))]
    colours = np.stack([255 * draw_colour(generator) ** 0.5 for _ in range(2)])
    if generator.random() < 0.6:  # most materials are one colour with lighter and darker places
        colours[1] = colours[0] * generator.uniform(0.45, 0.9)
    table = colours[0] + (colours[1] - colours[0]) * (np.arange(256)[:, None] / 255)
    return table.astype(np.uint8)[pattern]


@lru_cache(maxsize=1)
def tiles() -> np.ndarray:
    """(T, 128, 128) bytes, repeating: cloud, grain, planks, bricks, squares, stripes, dots, weave, leaves."""
    generator = np.random.default_rng(20240517)
    y, x = np.mgrid[0:TILE, 0:TILE] / TILE
    clouds = [_cloud(generator, roughness) for roughness in (1.0, 1.3, 1.6, 2.0, 2.4)]
    grain = [_cloud(generator, 0.3), _cloud(generator, 0.7)]
    out = [*clouds, *grain, _cloud(generator, 1.5, stretch=12), _cloud(generator, 1.2, stretch=30)]
    for count in (4, 7):  # planks: long grain, each board of its own shade
        board = generator.random(count)[(y * count).astype(int)]
        edge = (y * count) % 1 < 0.03
        out.append(np.clip(0.5 * board + 0.5 * _cloud(generator, 1.3, stretch=16) - 0.5 * edge, 0, 1))
    for rows in (8, 14):  # bricks
        row = (y * rows).astype(int)
        along = (x * rows / 2 + 0.5 * (row % 2)) % 1
        joint = ((y * rows) % 1 < 0.12) | (along < 0.06)
        out.append(np.where(joint, 0.9, 0.5 * _cloud(generator, 0.8)))
    for count in (4, 8):  # floor tiles, chequers
        joint = ((y * count) % 1 < 0.04) | ((x * count) % 1 < 0.04)
        out.append(np.where(joint, 1.0, 0.4 * _cloud(generator, 1.4)))
        out.append(((y * count).astype(int) + (x * count).astype(int)) % 2 * 0.9)
    for count in (4, 10, 24):  # stripes, dots, weave
        out.append((np.sin(2 * np.pi * count * x) > 0) * 1.0)
        out.append(((((x * count) % 1 - 0.5) ** 2 + ((y * count) % 1 - 0.5) ** 2) < 0.09) * 1.0)
        out.append(0.5 + 0.25 * (np.sin(2 * np.pi * count * x) + np.sin(2 * np.pi * count * y)))
    leaves = np.sort(np.stack([_cloud(generator, 1.0) for _ in range(3)]), axis=0)[2]
    out.append((leaves > 0.6) * 0.7 + 0.3 * leaves)
    return (255 * np.stack(out)).clip(0, 255).astype(np.uint8)


def _cloud(generator: np.random.Generator, roughness: float, stretch: float = 1.0) -> np.ndarray:
    """Random field in 0..1 that repeats, with spectrum 1 / frequency^roughness, drawn out along x by `stretch`."""
    fy, fx = np.meshgrid(np.fft.fftfreq(TILE), np.fft.fftfreq(TILE), indexing="ij")
    frequency = np.hypot(fy, fx * stretch)
    frequency[0, 0] = 1
    field = np.fft.ifft2(np.fft.fft2(generator.standard_normal((TILE, TILE))) / frequency**roughness).real
    low, high = np.percentile(field, (1, 99))
    return np.clip((field - low) / (high - low), 0, 1)
