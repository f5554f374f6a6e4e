"""Four corruptions of CIFAR-10-C, after Hendrycks and Dietterich (ICLR 2019), vectorised.

Brightness and defocus blur are deterministic. They follow, operation by operation, what the
published files were made with: scikit-image's HSV conversion, and OpenCV's Gaussian blur and
filter in the precision it uses; the result is the published files, byte for byte. Gaussian noise
and fog are drawn anew, because the published draws had no recorded seed: the law is the same, the
pixels are not. Our draws have a fixed seed and come from NumPy's frozen ``RandomState`` stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from offaxis.data.sets import Pixels

Floats = NDArray[np.float64]

NOISE: Final = (0.04, 0.06, 0.08, 0.09, 0.10)
"""Standard deviation, of pixels between 0 and 1."""
BRIGHTNESS: Final = (0.05, 0.1, 0.15, 0.2, 0.3)
"""Added to the value of HSV."""
DEFOCUS: Final = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))
"""Radius of the disk, and the blur that softens its edge."""
FOG: Final = ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))
"""Amount, and how fast its roughness decays."""
SEED: Final = 20190506
"""Of noise and fog; the severity is added, so that severities are independent."""

_SIDE = 32
_REACH = 8


def _published(values: Floats) -> Pixels:
    """Cut to pixels; the published files truncate, they do not round."""
    return (np.clip(values, 0, 1) * 255).astype(np.uint8)


def brightness(images: Pixels, severity: int) -> Pixels:
    """Raise the value of every pixel; hue and saturation stay."""
    x = images / 255.0
    red, green, blue = x[..., 0], x[..., 1], x[..., 2]
    value = x.max(-1)
    spread = value - x.min(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        saturation = np.where(spread == 0, 0.0, spread / value)
        hue = np.where(red == value, (green - blue) / spread, 0.0)
        hue = np.where(green == value, 2.0 + (blue - red) / spread, hue)
        hue = np.where(blue == value, 4.0 + (red - green) / spread, hue)
        hue = np.where(spread == 0, 0.0, (hue / 6.0) % 1.0)
    value = np.clip(value + BRIGHTNESS[severity - 1], 0, 1)
    sixth = np.floor(hue * 6)
    part = hue * 6 - sixth
    low = value * (1 - saturation)
    falling = value * (1 - part * saturation)
    rising = value * (1 - (1 - part) * saturation)
    sector = sixth.astype(np.int64) % 6
    out = np.empty_like(x)
    out[..., 0] = np.choose(sector, [value, falling, low, low, rising, value])
    out[..., 1] = np.choose(sector, [rising, value, value, falling, low, low])
    out[..., 2] = np.choose(sector, [low, low, rising, value, value, falling])
    return _published(out)


def disk(radius: float, softness: float) -> NDArray[np.float32]:
    """Return a disk of weight one on a 17×17 grid, its edge softened by a 3×3 Gaussian.

    In single precision throughout: the sum is then not exactly one, and which side of one it falls
    decides how flat areas are truncated.
    """
    line = np.arange(-_REACH, _REACH + 1)
    inside = (line[:, None] ** 2 + line**2 <= radius**2).astype(np.float32)
    inside /= inside.sum()
    tail = np.exp(-1 / (2 * softness**2))
    side, centre = (np.array([tail, 1.0]) / (1 + 2 * tail)).astype(np.float32)
    wide = np.pad(inside, 1)
    rows = wide[:, 1:-1] * centre + (wide[:, :-2] + wide[:, 2:]) * side
    soft: NDArray[np.float32] = rows[1:-1] * centre + (rows[:-2] + rows[2:]) * side
    return soft


def defocus_blur(images: Pixels, severity: int) -> Pixels:
    """Average every pixel over a small disk; the border is mirrored without its edge."""
    kernel = disk(*DEFOCUS[severity - 1]).astype(np.float64)
    wide = np.pad(images / 255.0, ((0, 0), (_REACH, _REACH), (_REACH, _REACH), (0, 0)), "reflect")
    out = np.zeros(images.shape)
    for i, j in np.argwhere(kernel):
        out += kernel[i, j] * wide[:, i : i + _SIDE, j : j + _SIDE]
    return _published(out)


def _stream(severity: int) -> np.random.RandomState:
    # The old generator on purpose: NumPy promises never to change what it draws.
    return np.random.RandomState(SEED + severity)


Corrupt = Callable[[Pixels], Pixels]


def gaussian_noise(severity: int) -> Corrupt:
    """Return a function that adds noise to the next images, in their order."""
    stream = _stream(severity)
    scale = NOISE[severity - 1]
    return lambda images: _published(images / 255.0 + stream.normal(size=images.shape, scale=scale))


def fog(severity: int) -> Corrupt:
    """Return a function that lays fog, a cloud for each, over the next images, in their order."""
    stream = _stream(severity)
    amount, decay = FOG[severity - 1]

    def corrupt(images: Pixels) -> Pixels:
        x = images / 255.0
        brightest = x.max(axis=(1, 2, 3), keepdims=True)
        x += amount * clouds(len(images), decay, stream)[..., None]
        return _published(x * brightest / (brightest + amount))

    return corrupt


def clouds(count: int, decay: float, stream: np.random.RandomState) -> Floats:
    """Return plasma clouds of 32×32 between 0 and 1, by midpoint displacement on a torus.

    At every scale the centres of squares, then of diamonds, become the mean of their four
    neighbours plus a uniform displacement. The displacement's range is the *square* of a roughness
    that starts at 100 and is divided by ``decay`` from scale to scale, as in the published code.
    """
    cloud = np.zeros((count, _SIDE, _SIDE))
    step, roughness = _SIDE, 100.0

    def displaced(total: Floats) -> Floats:
        return total / 4 + roughness * stream.uniform(-roughness, roughness, total.shape)

    while step >= 2:
        half = step // 2
        corners = cloud[:, ::step, ::step]
        pairs = corners + np.roll(corners, -1, axis=1)
        cloud[:, half::step, half::step] = displaced(pairs + np.roll(pairs, -1, axis=2))
        centres = cloud[:, half::step, half::step]
        above = centres + np.roll(centres, 1, axis=1)
        across = corners + np.roll(corners, -1, axis=2)
        cloud[:, ::step, half::step] = displaced(above + across)
        beside = centres + np.roll(centres, 1, axis=2)
        along = corners + np.roll(corners, -1, axis=1)
        cloud[:, half::step, ::step] = displaced(beside + along)
        step, roughness = half, roughness / decay
    cloud -= cloud.min(axis=(1, 2), keepdims=True)
    lifted: Floats = cloud / cloud.max(axis=(1, 2), keepdims=True)
    return lifted
