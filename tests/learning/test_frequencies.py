"""Frequencies of private answers: releases, choice of the randomizer, intervals, histograms.

A check raises a false alarm with probability ALPHA, and rejects a broken control.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from typer.testing import CliRunner

import offaxis
from offaxis.auditing import audit
from offaxis.card import card_facts
from offaxis.cli.app import app
from offaxis.client import Reporter
from offaxis.decoding import AnswersDecoder, ShareDifference, Shares
from offaxis.encoding import AnswersEncoder, Classes, Number
from offaxis.encoding.pairs import MOST_SYMBOLS, NO_ANSWER, table_of
from offaxis.encoding.questions import LONGEST_NAMES, edges_of, joint_names
from offaxis.engines import local
from offaxis.errors import BiasedDecoder, InvalidInput, InvalidRelease
from offaxis.formats.release_file import from_bytes, to_bytes
from offaxis.learning import fit_answers, fit_pairs, histogram, learn, principal
from offaxis.learning.frequencies import FEWEST, Histogram
from offaxis.privacy.ledger import Ledger, Limit
from offaxis.randomizers import KaryResponse, LocalHashing, SubsetSelection
from offaxis.simulation import draw_observations
from tests.checks import ALPHA, mean_p_value

LOUD = 60
"""An ε at which reports are exact."""

AGE = Number(0, 100, name="age", bins=20)
PET = Classes(["cat", "dog", "owl"], name="pet", optional=True)


# ---- Releases


@pytest.mark.parametrize("mechanism", ["response", "subset", "hashing", None])
@pytest.mark.parametrize(
    ("asked", "given", "expected"),
    [
        (3, [0, 2, 2, 1], {"0": 0.25, "1": 0.25, "2": 0.5}),
        (["no", "yes"], ["no", "yes", "yes", "yes"], {"no": 0.25, "yes": 0.75}),
        (PET, ["dog", None, "dog", 0], {"cat": 0.25, "dog": 0.5, "owl": 0, "none": 0.25}),
        (AGE, [0, 4.999, 5, 1e9], {"[0, 5)": 0.5, "[5, 10)": 0.25, "[95, 100]": 0.25}),
        (
            [PET, AGE],
            {"pet": ["cat", None], "age": [-3, 100]},
            {"cat, [0, 5)": 0.5, "none, [95, 100]": 0.5},
        ),
        (1000, [999, 0], {"0": 0.5, "999": 0.5}),
        ([f"site {i}" for i in range(600)], ["site 7", 599], {"site 7": 0.5, "site 599": 0.5}),
    ],
    ids=str,
)
def test_shares_are_those_of_the_answers(asked, given, expected, mechanism):
    release = fit_answers(asked, epsilon=LOUD, mechanism=mechanism)
    reports = release.privatize(answers=given)
    copy = from_bytes(to_bytes(release))
    assert copy == release
    assert copy.asked == release.asked
    shares = copy.shares(reports * 100)
    found = dict(zip(shares.names, shares.estimate, strict=True))
    for name, share in expected.items():
        assert found[name] == pytest.approx(share, abs=1e-3 if mechanism == "hashing" else 1e-9)
    assert {len(report) for report in reports} == {release.report_size}
    assert isinstance(release.privatize(release.pairs(None, given)), list)


def test_one_person_makes_one_report():
    assert isinstance(fit_answers(3, epsilon=1).privatize(answers=2), bytes)
    release = fit_answers([PET, AGE], epsilon=1)
    assert isinstance(release.privatize(answers={"pet": "cat", "age": 3}), bytes)
    assert release.pairs(None, {"pet": None, "age": 3}).tolist() == [NO_ANSWER, 3]


SECRET = "a secret that no message may contain"


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (PET, SECRET),
        (PET, ["cat", SECRET]),
        (["a", "b"], None),
        (["a", "b"], [None]),
        (["a", "b"], []),
        (["a", "b"], ["a", float("nan")]),
        (3, [3]),
        (3, [-1]),
        (3, [0.5]),
        (3, [True]),
        (AGE, [float("nan")]),
        (AGE, [float("inf")]),
        (AGE, [SECRET]),
        (AGE, [None]),
        ([PET, AGE], ["cat"]),
        ([PET, AGE], {"pet": ["cat"]}),
        ([PET, AGE], {"pet": ["cat"], "age": [1, 2]}),
        ([PET, AGE], {"pet": ["cat"], "age": [3], "more": [SECRET]}),
        ([PET, AGE], {}),
    ],
    ids=str,
)
def test_answers_are_checked_and_never_shown(asked, given):
    release = fit_answers(asked, epsilon=1)
    with pytest.raises(InvalidInput) as caught:
        release.privatize(answers=given)
    assert SECRET not in str(caught.value)


def test_vectors_and_decoding_are_refused():
    release = fit_answers(3, epsilon=1)
    reports = release.privatize(answers=[0, 1])
    with pytest.raises(InvalidInput, match="alone: leave out the vectors"):
        release.privatize(np.ones((2, 4)), answers=[0, 1])
    with pytest.raises(InvalidInput, match="pass answers"):
        release.privatize()
    for read in (release.decode, release.decode_mean, release.aggregate):
        with pytest.raises(BiasedDecoder, match=r"release\.shares"):
            read(reports)
    with pytest.raises(InvalidInput, match="releases of pairs"):
        learn(release, reports)
    public = np.random.default_rng(0).standard_normal((100, 3))
    with pytest.raises(InvalidInput):
        offaxis.fit(None, public, epsilon=1, mechanism="laplace", reshaping="none").privatize()
    with pytest.raises(InvalidInput, match="'age' has no bins"):
        fit_pairs(principal(public), AGE, epsilon=1)


@pytest.mark.parametrize(
    "row", [[55.5, 55.5], [3, 30], [-1, 30], [0, 100.5], [0, -0.5], [0, -1e30]]
)
def test_vectors_are_not_taken_for_answers(row, tmp_path):
    """Only rows of answers as they are coded are reported, whichever way they come."""
    release, alone = fit_answers([PET, AGE], epsilon=LOUD), "people answer alone: pass answers="
    vectors = np.array([[0, 31.5], row])
    with pytest.raises(InvalidInput, match=alone) as caught:
        release.privatize(vectors)
    assert "55.5" not in str(caught.value)
    with pytest.raises(InvalidInput, match=alone):
        release.privatize(vectors[1])
    reporter = Reporter(release, Ledger(str(tmp_path / "my.ledger"), Limit(500)))
    for report in (lambda: reporter.report(vectors[1]), lambda: reporter.reports(vectors)):
        with pytest.raises(InvalidInput, match=alone):
            report()
    assert reporter.ledger.spent()[0] == 0  # nothing was paid
    table = pa.table({"id": ["a", "b"], "vector": vectors.tolist()})
    pq.write_table(table, tmp_path / "people.parquet")
    with pytest.raises(InvalidInput, match=alone):
        local.privatize(tmp_path / "people.parquet", release, tmp_path / "reports")
    # A device does not fail for one of them: it reports the public answer, "none" or the first.
    year = offaxis.memoise(release, draws=4, period=90)
    daily = Reporter(year, Ledger(str(tmp_path / "year.ledger"), Limit(500)))
    assert len(daily.report(vectors[1], number=0)) == year.report_size


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_codes_of_answers_are_reported(kind):
    """With 32 bits, too, which round the code of no answer to another number."""
    release = fit_answers([PET, AGE], epsilon=LOUD)
    coded = [[0, 0], [2, 100], [NO_ANSWER, 31.5], [NO_ANSWER, NO_ANSWER]]
    shares = release.shares(release.privatize(np.array(coded, dtype=kind)))
    found = dict(zip(shares.names, shares.estimate.round(6), strict=True))
    names = ("cat, [0, 5)", "owl, [95, 100]", "none, [30, 35)", "none, [0, 5)")
    assert [found[name] for name in names] == [0.25] * 4
    assert not audit(release, reports=2000, false_alarm=ALPHA).violated


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (None, "one at least"),
        ([], "answers are Classes"),
        (1, "classes"),
        (Number(0, 1), "bins=20"),
        ([Number(0, 1, bins=1000), Classes(66, name="b")], "66000 joint values"),
        (MOST_SYMBOLS + 1, str(MOST_SYMBOLS)),
        (["x" * 150 + str(i) for i in range(5000)], "shorter names"),
        ([f"a\n{i}" for i in range(600)], "line breaks"),
        ("cat", "answers are Classes"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_asked_is_checked(asked, message):
    with pytest.raises(InvalidInput, match=message):
        fit_answers(asked, epsilon=1)
    with pytest.raises(InvalidInput, match="no mechanism"):
        fit_answers(3, epsilon=1, mechanism="laplace")
    for bins in (1, -1, 2.5, True, MOST_SYMBOLS + 1):
        with pytest.raises(InvalidInput, match="bins"):
            Number(0, 1, bins=bins)


def test_the_largest_releases_fit_into_a_file():
    for asked in (MOST_SYMBOLS, [f"{i:x}" * 2 for i in range(30_000)]):
        release = fit_answers(asked, epsilon=1)
        assert from_bytes(to_bytes(release)).symbol_names == release.symbol_names
    assert len(to_bytes(release)) < LONGEST_NAMES


# ---- Encoder


@given(st.floats(-1e20, 1e20), st.floats(1e-3, 1e6), st.integers(2, 5000), st.floats(-0.5, 1.5))
def test_a_number_belongs_to_its_bin(low, width, bins, place):
    """Up to rounding, which the formula of docs/release-format.md fixes."""
    high = low + width
    if not low < high <= 1e20:
        return
    asked = Number(low, high, bins=bins)
    encoder = AnswersEncoder(table_of([asked]))
    number = low + place * (high - low)
    (found,) = encoder.encode(np.array([[float(asked.codes_of([number])[0])]]))
    exact = (Fraction(min(max(number, low), high)) - Fraction(low)) / (
        Fraction(high) - Fraction(low)
    )
    assert abs(found + 0.5 - float(exact * bins)) <= 0.5 + 1e-9 * bins + 1e-9
    assert 0 <= found < bins
    edges = edges_of(asked)
    assert (edges[0], edges[-1], edges.size) == (low, high, bins + 1)


@given(st.data())
def test_encoder_is_total_and_names_are_those_of_symbols(data):
    asked = [PET, Number(-1, 1, name="x", bins=3), Classes(2, name="b")]
    encoder = AnswersEncoder(table_of(asked))
    entries = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([NO_ANSWER, -0.5])
    row = np.array([[data.draw(entries) for _ in asked]])
    (symbol,) = encoder.encode(row)
    assert 0 <= symbol < encoder.output_dim == 4 * 3 * 2
    assert joint_names(asked)[symbol].count(", ") >= 2
    blank = encoder.encode(encoder.blank_row[None])[0]
    assert joint_names(asked)[blank] == "none, [-1, -0.333333333333), 0"


@pytest.mark.parametrize(
    "rows",
    [
        [[1, 0, 0, 0]],
        [[1, 0, 0, 1]],
        [[2.5, 0, 0, 0]],
        [[2, 0, 0, 0.5]],
        [[3, 1, 1, 0]],
        [[3, 1, 0, 0]],
        [[3, 0, 1e21, 0]],
        [[0, 0, 1, 0]],
        [[MOST_SYMBOLS, 0, 0, 1]],
        [[400, 0, 0, 0], [400, 0, 0, 0]],
        [[3, 0, 0]],
    ],
)
def test_impossible_encoders_are_rejected(rows):
    with pytest.raises(InvalidInput):
        AnswersEncoder(np.array(rows, dtype=float))
    for symbols in ([1.0], [2.5], [3.0, 3.0], [MOST_SYMBOLS + 1.0]):
        with pytest.raises(InvalidInput):
            AnswersDecoder(np.array(symbols))


def test_altered_files_are_rejected():
    release = fit_answers(600, epsilon=1)
    for asked in (Classes(600), Classes(599), Classes([f"{i}x" for i in range(600)])):
        other = dataclasses.replace(release, asked=release.asked)
        object.__setattr__(other, "asked", (asked,))
        if asked == release.asked[0]:
            assert from_bytes(to_bytes(other)) == release
        elif asked.classes == 600:
            assert from_bytes(to_bytes(other)) != release
        else:
            with pytest.raises(InvalidRelease):
                from_bytes(to_bytes(other))


# ---- The choice


@pytest.mark.parametrize("epsilon", [0.2, 0.5, 1, 2, 5, 8])
@pytest.mark.parametrize("size", [2, 3, 10, 100, 513, 1000, 10_000, 60_000])
def test_the_mechanism_has_the_least_known_error_or_a_short_payload(size, epsilon):
    chosen: Any = fit_answers(size, epsilon=epsilon).randomizer
    forms = [form(size, epsilon) for form in (KaryResponse, SubsetSelection, LocalHashing)]
    least = min(form.expected_squared_error() for form in forms)
    assert chosen.expected_squared_error() <= 1.02 * least
    if chosen.kind != "hashing":
        assert chosen.expected_squared_error() == pytest.approx(least)
    else:
        assert forms[1].payload_size > 64
    if chosen.payload_size > 64:
        assert forms[2].expected_squared_error() > 1.02 * least


# ---- Shares of local hashing


def simulated(randomizer: Any, symbols: np.ndarray, rng: np.random.Generator) -> Shares:
    V = draw_observations(randomizer, symbols, rng)
    return Shares((V > 0).sum(axis=0), randomizer, reports=len(symbols))


def test_shares_of_hashing_know_their_number_of_reports():
    form = LocalHashing(4, 1)
    shares = Shares(np.array([3, 0, 5, 2]), form, reports=5)
    assert shares.count == 5
    assert Shares.from_mean(shares.estimate, 5, form).counts.tolist() == [3, 0, 5, 2]
    grouped = Shares(np.array([[3, 0, 5, 2], [1, 1, 1, 1]]), form, (), ("a", "b"), np.array([5, 3]))
    assert grouped.of("b").count == 3
    assert grouped.merged().count == 8
    assert grouped.merged().counts.tolist() == [4, 1, 6, 3]
    assert isinstance(grouped.difference("a", "b"), ShareDifference)
    for reports in (None, 2.0, [5], 4):
        with pytest.raises(InvalidInput, match="report"):
            Shares(np.array([3, 0, 5, 2]), form, reports=reports)
    with pytest.raises(InvalidInput, match="at least one report"):
        Shares(np.array([3, 0, 5, 2]), KaryResponse(4, 1), reports=11)


def test_groups_of_reports_have_their_own_shares():
    release = fit_answers(1000, epsilon=LOUD)
    reports = release.privatize(answers=[1, 1, 7, 7, 7])
    shares = release.shares(iter(reports), groups=["a", "b", "a", "b", "b"])
    assert shares.groups == ("a", "b")
    assert shares.count.tolist() == [2, 3]
    assert shares.of("b").estimate[[1, 7]].round(2).tolist() == [0.33, 0.67]
    with pytest.raises(InvalidInput, match="got only 2"):
        release.shares(reports, groups=["a", "b"])
    with pytest.raises(InvalidInput, match="more than 5"):
        release.shares(reports, groups=["a"] * 6)


def test_variances_of_hashing_are_unbiased():
    """The mean over rounds of estimated covariances is that of the estimates."""
    form, rng = LocalHashing(3, Fraction(3, 2)), np.random.default_rng(5)
    population = np.array([0.6, 0.3, 0.1])
    rounds, weights = 3000, np.array([1.0, -2.0, 0.5])
    found = [simulated(form, rng.choice(3, 50, p=population), rng) for _ in range(rounds)]
    estimates = np.array([shares.estimate for shares in found])
    centred = estimates - population
    products = np.einsum("ri,rj->rij", centred, centred).reshape(rounds, -1)
    stated = np.array([shares.covariance() for shares in found]).reshape(rounds, -1)
    assert mean_p_value(products - stated, 0.0) > ALPHA
    assert mean_p_value(products - 1.3 * stated, 0.0) < ALPHA
    assert mean_p_value(estimates, population) > ALPHA
    for shares in found[:20]:
        direct = weights @ shares.covariance() @ weights
        assert shares.variance(weights) == pytest.approx(direct)
        errors = np.sqrt(np.diag(shares.covariance()))
        assert shares.standard_error == pytest.approx(errors)


def miss_p_value(misses: int, rounds: int, rate: float) -> float:
    """The probability of so many misses, if intervals miss at most at this rate."""
    return float(binom.sf(misses - 1, rounds, rate))


@pytest.mark.parametrize(
    "form", [LocalHashing(2, 1), LocalHashing(12, 2), SubsetSelection(12, 2)], ids=str
)
def test_intervals_of_shares_cover_all_at_once(form):
    """80 % intervals of few people; those of twice the number of reports miss too often."""
    rng, rounds, n = np.random.default_rng(7), 600, 60
    k = form.size
    shares = 1.0 / np.arange(1, k + 1) ** 2
    shares /= shares.sum()
    misses = broken = 0
    for _ in range(rounds):
        found = simulated(form, rng.choice(k, n, p=shares), rng)
        low, high = found.interval(0.8)
        misses += not ((low <= shares) & (shares <= high)).all()
        doubled = Shares(16 * found.counts, form, reports=16 * n)
        low, high = doubled.interval(0.8)
        broken += not ((low <= shares) & (shares <= high)).all()
    assert miss_p_value(misses, rounds, 0.2) > ALPHA
    assert miss_p_value(broken, rounds, 0.2) < ALPHA


def test_heavy_hitters():
    release = fit_answers(2000, epsilon=4)
    symbols = np.r_[np.full(3000, 17), np.full(2000, 4), np.arange(1000)]
    shares = release.shares(release.privatize(answers=symbols))
    found = shares.heavy_hitters(threshold=0.2, level=1 - ALPHA)
    assert [hitter.name for hitter in found] == ["17", "4"]
    assert found[0].low <= 3001 / 6000 <= found[0].high
    assert [hitter.symbol for hitter in shares.heavy_hitters(top=2)] == [17, 4]
    assert len(shares.heavy_hitters(top=2000)) == 2000
    assert not shares.heavy_hitters(threshold=0.9)
    for wrong in ({}, {"threshold": 0.1, "top": 3}, {"top": 0}, {"threshold": -0.1}):
        with pytest.raises(InvalidInput):
            shares.heavy_hitters(**wrong)
    grouped = Shares(np.array([[5, 5], [3, 1]]), KaryResponse(2, 1), groups=("a", "b"))
    with pytest.raises(InvalidInput, match="one group"):
        grouped.heavy_hitters(top=1)


# ---- Numbers


def test_a_histogram_is_that_of_the_numbers():
    release = fit_answers([PET, AGE], epsilon=LOUD)
    ages = np.array([3, 3, 12, 97] * 50)
    reports = release.privatize(answers={"pet": [None] * 200, "age": ages})
    found = histogram(release, reports)
    assert found.estimate[[0, 2, 19]] == pytest.approx([0.5, 0.25, 0.25])
    assert found.projected() == pytest.approx(found.estimate)
    assert found.mean().estimate == pytest.approx((2.5 * 2 + 12.5 + 97.5) / 4)
    assert found.quantile(0.5 - 1e-9).estimate == pytest.approx(5)
    assert found.quantile(0.25).estimate == pytest.approx(2.5)
    low, high = found.interval()
    assert ((low <= found.estimate + 1e-9) & (found.estimate - 1e-9 <= high)).all()
    # The formulas for sums are those of the covariances.
    sums = np.stack([found.bins == b for b in range(20)]).astype(float)
    direct = np.sqrt(np.diag(sums @ found.shares.covariance() @ sums.T))
    assert found.standard_error == pytest.approx(direct, abs=1e-9)
    for q in (0.2, 0.7):
        weights = np.tril(np.ones((20, 20))) @ sums - q * sums.sum(axis=0)
        excess, error = found._excess(q)
        assert excess == pytest.approx(weights @ found.shares.estimate)
        variance = np.diag(weights @ found.shares.covariance() @ weights.T)
        assert error**2 == pytest.approx(variance, abs=1e-9)


def test_people_without_a_number_do_not_count():
    release = fit_answers(Number(0, 10, bins=10, optional=True), epsilon=LOUD)
    found = histogram(release, release.privatize(answers=[None] * 60 + [4.2] * 30 + [8.1] * 10))
    assert found.estimate[[4, 8]] == pytest.approx([0.3, 0.1])
    assert found.projected()[[4, 8]] == pytest.approx([0.75, 0.25])
    assert found.mean().estimate == pytest.approx(0.75 * 4.5 + 0.25 * 8.5)
    assert 4 <= found.quantile(0.5).estimate <= 5
    nobody = histogram(release, release.privatize(answers=[None] * 100))
    assert nobody.quantile(0.5)[1:] == (0, 10)


def test_histograms_are_checked():
    release = fit_answers([AGE, Number(0, 1, name="b", bins=2)], epsilon=1)
    reports = release.privatize(answers={"age": [3], "b": [0.3]})
    with pytest.raises(InvalidInput, match="'age', 'b'"):
        histogram(release, reports)
    assert histogram(release, release.shares(reports), "b").edges.tolist() == [0, 0.5, 1]
    with pytest.raises(InvalidInput, match="asks for none"):
        histogram(fit_answers(3, epsilon=1), reports)
    with pytest.raises(InvalidInput, match="another release"):
        histogram(release, fit_answers(3, epsilon=1).shares(reports[:0] or _three()), "b")
    with pytest.raises(InvalidInput, match=r"of\(group\)"):
        histogram(release, release.shares(reports, groups=["x"]), "b")
    found = histogram(release, reports * FEWEST, "age")
    for q in (0, 1, float("nan"), "x"):
        with pytest.raises(InvalidInput):
            found.quantile(q)
    with pytest.raises(InvalidInput, match="level"):
        found.mean(level=1)


def _three() -> list[bytes]:
    return fit_answers(3, epsilon=1).privatize(answers=[0])  # type: ignore[return-value]


def test_intervals_by_the_normal_law_need_enough_reports():
    """The variances of two reports say nothing, or even 0; exact intervals hold all the same."""
    release = fit_answers([PET, AGE], epsilon=3)
    everybody = {"pet": ["cat"] * FEWEST, "age": [31] * FEWEST}
    reports: Any = release.privatize(answers=everybody)
    for count in (1, 2, FEWEST - 1):
        few = histogram(release, reports[:count], "age")
        for read in (few.interval, few.mean, lambda few=few: few.quantile(0.5), few.figure):
            with pytest.raises(InvalidInput, match=rf"^{count} report.* takes {FEWEST}.*interval"):
                read()
        assert few.estimate.shape == few.projected().shape == (20,)
        low, high = few.shares.interval()
        assert (low < high).all()
    enough = histogram(release, reports, "age")
    assert (enough.interval()[0] <= enough.interval()[1]).all()
    assert enough.mean().low < enough.mean().high
    # A number alone has exact intervals of its bins, for any number of reports.
    alone = fit_answers(AGE, epsilon=3)
    low, high = histogram(alone, alone.privatize(answers=[31, 32])).interval()
    assert (low < high).all()


@pytest.mark.parametrize("counts", [(0, 0, 200), (200, 0, 0)])
def test_an_interval_outside_all_shares_is_not_cut_to_nothing(counts):
    """An estimate far below 0 or above 1 counts as 0 or 1, with the error that it has."""
    asked = [Classes(2, name="x"), Number(0, 2, name="b", bins=2)]
    release = fit_answers(asked, epsilon=0.5, mechanism="response")
    named = np.array([counts[0] + 60, counts[1] + 40, counts[2], 0])
    found = histogram(release, Shares(named, release.randomizer), "b")
    outside = (found.estimate < 0) | (found.estimate > 1)
    assert outside.all()
    assert (found.standard_error > 0.05).all()
    low, high = found.interval(0.5)  # about two thirds of an error on both sides
    assert (low < high).all()
    assert (low >= 0).all()
    assert (high <= 1).all()
    bound = found.estimate.clip(0, 1)
    assert ((low <= bound) & (bound <= high)).all()


@pytest.mark.parametrize("form", [SubsetSelection(24, 1), LocalHashing(24, 1)], ids=str)
def test_intervals_of_means_and_quantiles_cover(form):
    """80 % intervals of 500 people; those of a third of the errors miss too often.

    The numbers are spread evenly in each bin, so the mean of the middles is the mean.
    """
    rng, rounds, n = np.random.default_rng(11), 300, 500
    edges = np.linspace(0, 24, 25)
    shares = np.exp(-0.5 * ((np.arange(24) - 9) / 5.0) ** 2)
    shares /= shares.sum()
    mean = shares @ (edges[:-1] + 0.5)
    median = float(np.interp(0.5, np.r_[0, shares.cumsum()], edges))
    misses = {"mean": 0, "quantile": 0, "broken mean": 0, "broken quantile": 0}
    for _ in range(rounds):
        found = Histogram(edges, np.arange(24), simulated(form, rng.choice(24, n, p=shares), rng))
        low, high = found.mean(0.8)[1:]
        misses["mean"] += not low + 0.5 <= mean <= high - 0.5
        low, high = found.quantile(0.5, 0.8)[1:]
        misses["quantile"] += not low <= median <= high
        low, high = found.mean(0.33)[1:]
        misses["broken mean"] += not low + 0.5 <= mean <= high - 0.5
        low, high = found.quantile(0.5, 0.1)[1:]
        misses["broken quantile"] += not low <= median <= high
    assert miss_p_value(misses["mean"], rounds, 0.2) > ALPHA
    assert miss_p_value(misses["quantile"], rounds, 0.2) > ALPHA
    assert miss_p_value(misses["broken mean"], rounds, 0.2) < ALPHA
    assert miss_p_value(misses["broken quantile"], rounds, 0.2) < ALPHA


# ---- Devices and commands


def test_a_reporter_pays_for_answers(tmp_path):
    release = fit_answers(["no", "yes"], epsilon=1)
    reporter = Reporter(release, Ledger(str(tmp_path / "my.ledger"), Limit(1)))
    with pytest.raises(InvalidInput):
        reporter.report({"answers": SECRET})
    report = reporter.report({"answers": "yes"})
    assert len(report) == release.report_size
    assert reporter.ledger.spent()[0] == 1
    assert release.public_mean.tolist() == [NO_ANSWER]


def test_a_year_of_answers_within_one_budget(tmp_path):
    release = offaxis.memoise(fit_answers(3, epsilon=1), draws=4, period=90)
    reporter = Reporter(release, Ledger(str(tmp_path / "my.ledger"), Limit(4)))
    reports = [reporter.report({"answers": day % 3}, number=day) for day in range(20)]
    assert len(set(map(len, reports))) == 1
    assert reporter.ledger.spent()[0] == 4
    trend = offaxis.learning.trend(release, [(0, [reports[0]]), (1, [reports[1]])])
    assert trend is not None


def test_bulk_jobs_make_reports_of_answers(tmp_path):
    release = fit_answers([PET, AGE], epsilon=LOUD)
    pet, age = ["cat", None, "owl", "owl"], [3.0, 99.0, 3.0, 3.0]
    table = pa.table({"id": ["a", "b", "c", "d"], "pet": pet, "years": age})
    pq.write_table(table, tmp_path / "people.parquet")
    columns = {"pet": "pet", "age": "years"}
    local.privatize(tmp_path / "people.parquet", release, tmp_path / "reports", answers=columns)
    made = pq.read_table(tmp_path / "reports").column("report").to_pylist()
    shares = release.shares(made)
    found = dict(zip(shares.names, shares.estimate.round(6), strict=True))
    assert found["owl, [0, 5)"] == 0.5
    assert found["none, [95, 100]"] == 0.25


def test_the_card_speaks_of_answers():
    facts = card_facts(fit_answers(3, epsilon=1))
    texts = " ".join([*facts["promise"], *facts["protected"], *facts["not_promised"]])
    assert "vector" not in texts
    assert "model" not in texts
    assert facts["report"]["averages"].startswith("no, but shares of the answers")
    assert facts["report"]["answers"] == ["answer: one of 3 classes"]


def test_the_commands_know_releases_of_answers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fit_answers([PET, AGE], epsilon=1).save("survey.release")
    (tmp_path / "mine.csv").write_text("pet,age\ncat,31\n,99\nowl,7\n")
    # The name, the file and the numbers of a command; the terminal may break longer lines.
    for command, code, words in (
        ("privatize survey.release --answers mine.csv --out mine.reports", 0, "wrote 3 reports"),
        ("inspect survey.release", 0, "one of 80"),
        ("decode survey.release --reports mine.reports --out s.csv --shares", 0, "s.csv"),
        ("privatize survey.release --vectors mine.csv --out x.reports", 2, "answers alone"),
        ("privatize survey.release --out x.reports", 2, "--answers"),
    ):
        result = CliRunner().invoke(app, command.split())
        assert result.exit_code == code, result.output
        assert words in result.output
    assert "none, [95, 100]" in (tmp_path / "s.csv").read_text()
