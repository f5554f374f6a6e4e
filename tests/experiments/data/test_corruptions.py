from __future__ import annotations

import colorsys
import hashlib

import numpy as np
import pytest
from scipy import ndimage

from experiments.data import cifar10
from experiments.data.cifar10 import (
    BRIGHTNESS,
    DEFOCUS,
    FOG,
    NOISE,
    brightness,
    clouds,
    defocus_blur,
    disk,
    fog,
    gaussian_noise,
)


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    """Return images with smooth, flat, dark and bright areas, without random numbers."""
    n, y, x, c = np.ogrid[:12, :32, :32, :3]
    slopes = (y * (n + 1) * 2 + 5 * x + 40 * c) % 511
    # Rising and falling: smooth except at the ridges.
    waves = np.minimum(slopes, 510 - slopes).astype(np.uint8)
    waves[:3] = np.array([0, 255, 77], np.uint8)[:, None, None, None]
    return waves


def test_brightness_agrees_with_the_colour_model(images: np.ndarray) -> None:
    sample = images[:, ::7, ::5]
    for severity, raised in enumerate(BRIGHTNESS, start=1):
        brighter = brightness(sample, severity)
        for pixel, answer in zip(sample.reshape(-1, 3), brighter.reshape(-1, 3), strict=True):
            hue, saturation, value = colorsys.rgb_to_hsv(*(pixel / 255))
            exact = colorsys.hsv_to_rgb(hue, saturation, min(value + raised, 1.0))
            # Truncated: at most a rounding error above and one level below.
            assert (answer <= 255 * np.array(exact) + 1e-9).all()
            assert (answer > 255 * np.array(exact) - 1 - 1e-9).all()


def test_defocus_agrees_with_a_mirrored_filter(images: np.ndarray) -> None:
    for severity, (radius, softness) in enumerate(DEFOCUS, start=1):
        kernel = disk(radius, softness).astype(float)
        assert kernel.sum() == pytest.approx(1, abs=1e-6)
        blurred = defocus_blur(images, severity)
        exact = ndimage.correlate(images / 255, kernel[None, :, :, None], mode="mirror")
        assert (np.abs(blurred + 0.5 - 255 * exact) <= 0.5 + 1e-4).all()


def test_clouds_fill_the_unit_interval() -> None:
    made = clouds(20, 2.0, np.random.RandomState(0))
    assert made.shape == (20, 32, 32)
    np.testing.assert_array_equal(made.min(axis=(1, 2)), 0)
    np.testing.assert_array_equal(made.max(axis=(1, 2)), 1)
    # Slow decay is rough: neighbours bend more than under fast decay.
    rough, smooth = (clouds(50, d, np.random.RandomState(1)) for d in (1.75, 3.0))
    bends = [np.abs(np.diff(made, n=2, axis=1)).mean() for made in (rough, smooth)]
    assert bends[0] > 1.3 * bends[1]


def test_fog_keeps_the_range_and_hides_contrast(images: np.ndarray) -> None:
    foggy = fog(5)(images)
    assert foggy.shape == images.shape
    # Fog of amount a shrinks a difference between colours to 1 / (1 + a).
    amount, _ = FOG[4]
    brightest = images[5].max() / 255
    before = np.ptp(images[5].astype(float), axis=-1)
    after = np.ptp(foggy[5].astype(float), axis=-1)
    shrunk = before * brightest / (brightest + amount)
    assert (np.abs(after - shrunk) <= 1 + 1e-9).all()
    assert foggy[0].max() == 0, "a black image has no light to scatter"


def test_noise_has_the_stated_deviation() -> None:
    grey = np.full((40, 32, 32, 3), 128, np.uint8)
    for severity, scale in enumerate(NOISE, start=1):
        made = gaussian_noise(severity)(grey).astype(float)
        # 122,880 values: a standard error of 0.2 %; truncation adds 1/12 to the variance.
        assert made.std() == pytest.approx(255 * scale, rel=0.015)
        assert made.mean() == pytest.approx(127.5, abs=0.4)


# Recorded when this code reproduced the published files of CIFAR-10-C byte for byte.
RECORDED = {
    "gaussian_noise": "f52f12e6afb856f6cea3e9e34c9ff04a5e4f6b296e10a2b5766003aefff9fc10",
    "brightness": "2b9b87622cd238df381f778d88e530387bf8fcdb95281742aba4244a7f4cd55f",
    "defocus_blur": "2508420396ad5304590a50d067ca08ca770c3ed1ccdfb02ede897fee62adaae1",
    "fog": "7e6598227af32ab5ca07b83e3316b5150eb50799160a5b0ae5cb8ecfcd831487",
}


@pytest.mark.parametrize("corruption", cifar10.CORRUPTIONS)
def test_corruptions_have_the_recorded_hashes(corruption: str, images: np.ndarray) -> None:
    made = [cifar10.generate(images, corruption, s) for s in cifar10.SEVERITIES]
    digest = hashlib.sha256(np.stack(made).tobytes()).hexdigest()
    assert digest == RECORDED[corruption]


def test_the_published_checksum_is_that_of_a_npy_file(tmp_path, images: np.ndarray) -> None:
    np.save(tmp_path / "all.npy", np.concatenate([images, images]))
    content = (tmp_path / "all.npy").read_bytes()
    assert cifar10.published_md5([images, images]) == hashlib.md5(content).hexdigest()
