"""The radius is a percentile of public norms, exact or within its stated error."""

from __future__ import annotations

import numpy as np
import pytest

from offaxis.encoding import ShiftEncoder, public_radius
from offaxis.encoding import radius as module
from offaxis.encoding.radius import StreamingQuantile
from offaxis.errors import InvalidInput
from offaxis.geometry import PublicVectors
from offaxis.geometry.public import survey


@pytest.mark.parametrize("percentile", [10, 50, 90, 100])
@pytest.mark.parametrize("order", [1, 2])
def test_the_radius_is_the_percentile_of_the_norms(public, percentile, order):
    source = PublicVectors(public)
    radius = public_radius(
        ShiftEncoder(np.zeros(6)), source, survey(source)[0], order=order, percentile=percentile
    )
    norms = np.linalg.norm(public, ord=order, axis=1)
    assert radius == pytest.approx(np.percentile(norms, percentile), rel=1e-14)


@pytest.mark.parametrize("fraction", [0.001, 0.1, 0.5, 0.9, 0.999, 1.0])
def test_quantiles_of_long_streams_are_within_their_stated_error(monkeypatch, fraction):
    monkeypatch.setattr(module, "_KEPT", 1000)
    values = np.random.default_rng(0).lognormal(0, 2, 50_000)
    stream = StreamingQuantile()
    for part in np.array_split(values, 37):
        stream.add(part)
    assert stream._kept == []
    low, high = (
        np.quantile(values, [fraction], method="lower"),
        np.quantile(values, [fraction], method="higher"),
    )
    quantile = stream.quantile(fraction)
    assert low[0] * (1 - 2**-12) <= quantile <= high[0] * (1 + 2**-12)


@pytest.mark.parametrize("kept", [1 << 20, 1000, 3000])
def test_merged_streams_have_the_quantiles_of_one_stream(monkeypatch, kept):
    monkeypatch.setattr(module, "_KEPT", kept)
    values = np.random.default_rng(1).lognormal(0, 2, 9_000)
    whole, merged = StreamingQuantile(), StreamingQuantile()
    whole.add(values)
    for part in np.split(values, [1, 20, 5_000]):
        stream = StreamingQuantile()
        stream.add(part)
        merged.merge(stream)
    merged.merge(StreamingQuantile())
    fractions = [0.0, 0.1, 0.5, 0.9, 1.0]
    assert [merged.quantile(f) for f in fractions] == [whole.quantile(f) for f in fractions]


def test_memory_of_a_long_stream_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "_KEPT", 1000)
    stream = StreamingQuantile()
    rng = np.random.default_rng(0)
    for _ in range(50):
        stream.add(rng.uniform(1, 2, 10_000))
    assert stream._bins is not None
    assert len(stream._bins) <= 1 << 12


@pytest.mark.parametrize("percentile", [0, 0.9, -1, 101, float("nan"), None, "90", True])
def test_a_bad_percentile_is_an_error(public, percentile):
    source = PublicVectors(public)
    with pytest.raises(InvalidInput, match="percentile"):
        public_radius(
            ShiftEncoder(np.zeros(6)), source, survey(source)[0], order=1, percentile=percentile
        )


def test_a_radius_of_zero_is_an_error():
    source = PublicVectors(np.eye(20)[:, :2])
    with pytest.raises(InvalidInput, match="zero"):
        public_radius(ShiftEncoder(np.zeros(2)), source, survey(source)[0], order=1, percentile=50)


def test_vectors_that_change_between_passes_are_an_error(public):
    passes = iter([public, public + 1])
    source = PublicVectors(lambda: [next(passes)])
    with pytest.raises(InvalidInput, match="same ones on every pass"):
        public_radius(ShiftEncoder(np.zeros(6)), source, survey(source)[0], order=1, percentile=50)
