"""From fit through privatize to decode, and every input that must be rejected."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest

import offaxis
from offaxis.decoding import LinearDecoder, ShiftDecoder
from offaxis.encoding import AffineEncoder, ShiftEncoder
from offaxis.errors import BiasedDecoder, InvalidInput
from offaxis.randomizers import Laplace
from offaxis.sampling.entropy import Entropy
from offaxis.simulation import simulate
from tests.checks import ALPHA, mean_p_value


def test_one_vector_gives_bytes_and_a_batch_a_list(release):
    report = release.privatize(np.zeros(6))
    reports = release.privatize(np.zeros((3, 6)))
    assert isinstance(report, bytes)
    assert [type(part) for part in reports] == [bytes] * 3
    assert release.decode(report).shape == (6,)
    assert release.decode(reports).shape == (3, 6)
    assert release.decode_mean(reports).shape == (6,)


def test_no_seed_reaches_a_report(release, monkeypatch):
    assert list(inspect.signature(release.privatize).parameters) == ["vectors", "answers"]
    z = np.ones(6)
    reports = set()
    for _ in range(5):
        np.random.seed(0)  # noqa: NPY002  (the point: a global seed changes nothing)
        reports.add(release.privatize(z))
    assert len(reports) == 5


@pytest.mark.parametrize(
    ("positional", "keywords", "named"),
    [((), {"seed": 0}, "seed"), ((np.random.default_rng(0),), {}, "Generator"), ((7,), {}, "int")],
)
def test_a_seed_is_rejected_with_the_reason(release, monkeypatch, positional, keywords, named):
    monkeypatch.setattr(type(release.randomizer), "report", lambda *_: pytest.fail("released"))
    words = f"nothing else, got {named}: no seed reaches a real report; .* use offaxis.simulate"
    with pytest.raises(InvalidInput, match=words):
        release.privatize(np.zeros(release.input_dim), *positional, **keywords)


def test_equal_vectors_in_a_batch_get_independent_noise(release):
    assert len(set(release.privatize(np.ones((200, 6))))) == 200


def test_batches_larger_than_a_chunk_keep_their_order(public):
    release = offaxis.fit(
        None, public, epsilon=1000, reshaping="none", percentile=100, mechanism="laplace"
    )
    Z = np.tile(public, (18, 1))
    decoded = release.decode(release.privatize(Z))
    assert decoded.shape == Z.shape
    assert np.abs(decoded - Z).mean() < 0.1 * np.abs(Z).mean()


@pytest.mark.parametrize("size", [0.0, 5e-324, 1e-200, 1e200, 1.7e308])
def test_zero_tiny_and_huge_vectors_are_valid(release, size):
    z = np.full(6, size)
    assert np.isfinite(release.decode(release.privatize(z))).all()
    assert np.isfinite(simulate(release, z, np.random.default_rng(0))).all()


@pytest.mark.parametrize(
    "bad", [np.full(6, np.nan), np.full(6, np.inf), np.ones(5), np.ones((0, 6)), ["a"] * 6, None]
)
def test_bad_vectors_release_nothing(release, bad, monkeypatch):
    monkeypatch.setattr(Laplace, "report", lambda *_: pytest.fail("reached the randomizer"))
    with pytest.raises(InvalidInput):
        release.privatize(bad)


def test_one_bad_vector_stops_the_whole_batch(release):
    Z = np.zeros((3, 6))
    Z[2, 5] = np.nan
    with pytest.raises(InvalidInput, match=r"\(2, 5\)"):
        release.privatize(Z)


def test_a_vector_that_changes_after_the_check_is_not_released(release, monkeypatch):
    """The checked values are the released ones, even if the caller's array changes concurrently."""
    Z = np.zeros((5000, 6))
    original = Laplace.report
    calls = []

    def report_and_change(self, W, entropy):
        calls.append(len(W))
        Z[-1] = np.nan
        return original(self, W, entropy)

    monkeypatch.setattr(Laplace, "report", report_and_change)
    with pytest.raises(InvalidInput, match=r"\(4999, 0\)"):
        release.privatize(Z)
    assert calls == [4096]


def test_a_copy_of_the_callers_array_is_encoded(public, monkeypatch):
    release = offaxis.fit(None, public, epsilon=1, reshaping="none", mechanism="laplace")
    original = ShiftEncoder.encode
    shared = []

    def watched(self, part):
        shared.append(np.shares_memory(part, public))
        return original(self, part)

    monkeypatch.setattr(ShiftEncoder, "encode", watched)
    release.privatize(public)
    assert shared == [False]


@pytest.mark.parametrize("z", [[3, 5e-324], [1e-300, 1e300], [1.7e308, 1e-10], [0.0, 0.0]])
@pytest.mark.parametrize("shape", ["jacobian", "none"])
def test_no_numpy_error_setting_makes_a_finite_vector_fail(z, shape):
    public = np.random.default_rng(0).standard_normal((50, 2))
    release = offaxis.fit(np.eye(2), public, epsilon=1, reshaping=shape, mechanism="laplace")
    with np.errstate(all="raise"):
        assert len(release.privatize(np.array(z))) == release.report_size


def test_the_mean_of_many_reports_is_the_mean_of_the_vectors(head, public):
    release = offaxis.fit(
        head,
        public,
        epsilon=8,
        percentile=100,
        reshaping=offaxis.Jacobian(lambda_max=4),
        mechanism="laplace",
    )
    Z = np.tile(public, (60, 1))
    reports = release.privatize(Z)
    assert isinstance(reports, list)
    decoded = release.decode(reports)
    assert np.allclose(release.decode_mean(reports), decoded.mean(axis=0))
    assert mean_p_value(decoded, Z.mean(axis=0)) > ALPHA
    assert mean_p_value(decoded + 3.0, Z.mean(axis=0)) < ALPHA


@dataclass(frozen=True)
class Shrinking:
    """A biased decoder."""

    kind: ClassVar[str] = "shrinking"
    dim: int = 6
    unbiased: bool = False

    @property
    def input_dim(self):
        return self.dim

    @property
    def output_dim(self):
        return self.dim

    def decode(self, observations):
        return 0.5 * observations

    def tensors(self):
        return {}


def test_a_mean_needs_an_unbiased_decoder_or_a_mean_decoder(release):
    reports = release.privatize(np.ones((20, 6)))
    biased = replace(release, decoder=Shrinking())
    object.__setattr__(biased, "hash", release.hash)
    assert biased.decode(reports).shape == (20, 6)
    with pytest.raises(BiasedDecoder, match="do not average"):
        biased.decode_mean(reports)
    with_mean = replace(biased, mean_decoder=release.decoder)
    object.__setattr__(with_mean, "hash", release.hash)
    assert np.allclose(with_mean.decode_mean(reports), release.decode_mean(reports))


def test_a_mean_needs_an_unbiased_randomizer(head, public):
    release = offaxis.fit(head, public, epsilon=2, mechanism="privunit2")
    with pytest.raises(BiasedDecoder, match="privunit2"):
        release.decode_mean([b"OX"])


def test_a_map_of_lower_rank_works_end_to_end(release, public):
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((2, 6))
    low = offaxis.Release(
        AffineEncoder(matrix, public.mean(axis=0)),
        Laplace(2, 3.0, Fraction(4)),
        LinearDecoder(np.linalg.pinv(matrix).astype(np.float64), public.mean(axis=0)),
        release.provenance,
    )
    assert low.report_size == 12 + 6
    assert low.decode(low.privatize(public)).shape == public.shape


def test_parts_that_do_not_fit_are_an_error(release):
    with pytest.raises(InvalidInput, match="do not fit"):
        replace(release, decoder=ShiftDecoder(np.zeros(5)))
    with pytest.raises(InvalidInput, match="do not fit"):
        replace(release, encoder=ShiftEncoder(np.zeros(5)))
    with pytest.raises(InvalidInput, match="do not fit"):
        replace(release, mean_decoder=ShiftDecoder(np.zeros(5)))


def test_the_guarantee_is_available_as_data(release):
    guarantee = release.guarantee
    assert guarantee.epsilon == Fraction(3)
    assert guarantee.pure
    assert guarantee.unit == "item"
    assert any("public" in text for text in guarantee.assumptions)


def test_the_guarantee_does_not_depend_on_the_map(head, public):
    plain = offaxis.fit(None, public, epsilon=0.1, reshaping="none", mechanism="laplace")
    shaped = offaxis.fit(head, public, epsilon=0.1, unit="user", mechanism="laplace")
    assert plain.guarantee.epsilon == shaped.guarantee.epsilon == Fraction(1, 10)
    assert shaped.guarantee.unit == "user"


def test_releases_are_compared_by_content(head, public, release):
    second = offaxis.fit(head, public, epsilon=3, mechanism="laplace")
    assert second == release
    assert hash(second) == hash(release)
    assert offaxis.fit(head, public, epsilon=3.5, mechanism="laplace") != release
    assert release != "release"


def test_copies_of_a_release_are_equal_and_frozen(release):
    for duplicate in (pickle.loads(pickle.dumps(release)), copy.deepcopy(release)):
        assert duplicate == release
        with pytest.raises(ValueError, match="read-only"):
            duplicate.encoder.matrix[0, 0] = 1.0


def test_simulation_depends_on_the_seed_and_not_on_the_cores(release, public, monkeypatch):
    from offaxis.simulation import releases as parallel

    monkeypatch.setattr(parallel, "_CHUNK_NUMBERS", 600)
    first = simulate(release, public, np.random.default_rng(5))
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    assert np.array_equal(first, simulate(release, public, np.random.default_rng(5)))
    assert not np.array_equal(first, simulate(release, public, np.random.default_rng(6)))


def test_exact_and_simulated_reports_have_the_same_second_moments(release):
    """Second moments after decoding; the broken control has fifteen percent less noise."""
    Z = np.ones((60_000, 6))
    simulated = simulate(release, Z, np.random.default_rng(9))
    exact = release.decode(release.privatize(Z))
    centre = simulated.mean(axis=0)
    spread = ((simulated - centre) ** 2).mean(axis=0)
    error = ((simulated - centre) ** 2).std(axis=0) / np.sqrt(len(Z)) * np.sqrt(2)
    assert (np.abs(((exact - centre) ** 2).mean(axis=0) - spread) < 6 * error).all()
    broken = centre + 0.85 * (exact - centre)
    assert (np.abs(((broken - centre) ** 2).mean(axis=0) - spread) > 6 * error).any()


@pytest.mark.parametrize("rng", [0, None, np.random.RandomState(0)])
def test_simulation_takes_a_generator_only(release, rng):
    with pytest.raises(InvalidInput, match="default_rng"):
        simulate(release, np.zeros(6), rng)


def test_a_single_report_has_a_mean(release):
    report = release.privatize(np.zeros(6))
    assert np.array_equal(release.decode_mean(report), release.decode(report))


def test_a_release_prints_on_one_line(release, head):
    assert repr(release).startswith("Release(laplace, ε = 3, pure, per item, dimension 6, ")
    assert repr(head) == "Layers(6→5→4→3, relu)"


def test_a_failure_of_randomness_releases_nothing(release, monkeypatch):
    def broken(self):
        raise offaxis.OffaxisError("no randomness")

    monkeypatch.setattr(Entropy, "_rekey", broken)
    with pytest.raises(offaxis.OffaxisError, match="no randomness"):
        release.privatize(np.zeros(6))


@pytest.mark.parametrize("name", ["laplace", "privunit2"])
@pytest.mark.parametrize("reshaping", ["none", "centre"])
def test_the_memory_order_of_a_batch_does_not_matter(public, name, reshaping):
    """A batch from a data frame is stored by columns."""
    release = offaxis.fit(None, public, epsilon=8, mechanism=name, reshaping=reshaping)
    Z = np.tile(public, (9, 1))
    for batch in (np.asfortranarray(Z), Z.T.copy().T, np.broadcast_to(public[0], (4500, 6))):
        assert len(release.privatize(batch)) == len(batch)
