"""Shuffling: certified bounds against exact enumeration, exact sums, and attacks."""

import itertools
import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import offaxis
from benchmarks.shuffling import advantage, closed_form, instance
from offaxis.errors import InvalidInput
from offaxis.privacy import shuffled_epsilon, shuffling
from offaxis.privacy.shuffling import Blanket, Shuffled
from offaxis.randomizers import (
    Gaussian,
    KaryResponse,
    Laplace,
    MemoisedResponse,
    PrivUnit2,
    SubsetSelection,
)

DELTA = 1e-6
ONE = Fraction(1)
Law = list[Fraction]


def exp(epsilon: float | Fraction) -> Fraction:
    """Return e^ε to 50 digits, as a fraction: far more digits than any bound here has."""
    with mpmath.workdps(60):
        value = Fraction(epsilon)
        digits = mpmath.nstr(mpmath.exp(mpmath.mpf(value.numerator) / value.denominator), 50)
    return Fraction(digits)


def central_epsilon(found: Shuffled) -> float:
    """Return ε_c where a bound is known."""
    assert found.epsilon is not None
    return found.epsilon


# ---- Exact enumeration of all shuffled reports


def two_level(epsilon: Fraction, near: list[set[int]], size: int) -> list[Law]:
    """Return the exact law of every input, given the payloads that are near it."""
    factor = exp(epsilon)
    laws = [[factor if y in sets else Fraction(1) for y in range(size)] for sets in near]
    return [[weight / sum(law) for weight in law] for law in laws]


def shuffled_law(laws: list[Law]) -> dict[tuple[int, ...], Fraction]:
    """Return the exact law of the histogram of one report per law."""
    size = len(laws[0])
    total = {(0,) * size: Fraction(1)}
    for law in laws:
        grown: dict[tuple[int, ...], Fraction] = {}
        for counts, chance in total.items():
            for y in range(size):
                more = (*counts[:y], counts[y] + 1, *counts[y + 1 :])
                grown[more] = grown.get(more, Fraction(0)) + chance * law[y]
        total = grown
    return total


def true_delta(laws: list[Law], people: int, central: float) -> float:
    """Return the exact δ(ε_c): the largest over both inputs and all data of the others."""
    factor, worst = exp(central), Fraction(0)
    for data in itertools.combinations_with_replacement(laws, people - 1):
        views = [shuffled_law([*data, law]) for law in laws]
        for first, second in itertools.permutations(views, 2):
            gaps = (first[view] - factor * second[view] for view in first)
            worst = max(worst, sum((gap for gap in gaps if gap > 0), Fraction(0)))
    return float(worst)


def subsets(size: int, chosen: int) -> list[set[int]]:
    """Return, for every symbol, the indices of the sets that contain it."""
    every = list(itertools.combinations(range(size), chosen))
    return [{i for i, members in enumerate(every) if x in members} for x in range(size)]


# Two nonces with four directions each, two near: opposite inputs, and two that overlap them.
RANKED = [{0, 2, 4, 6}, {1, 3, 5, 7}, {0, 3, 4, 7}, {0, 2, 5, 6}]
CASES = {
    "response, k = 2": ([{0}, {1}], 2, Blanket(ONE, Fraction(1, 2)), 5),
    "response, k = 3": ([{0}, {1}, {2}], 3, Blanket(ONE, Fraction(1, 3)), 5),
    "response, k = 4": ([{i} for i in range(4)], 4, Blanket(ONE, Fraction(1, 4)), 4),
    "subset, k = 4, d = 2": (subsets(4, 2), 6, Blanket(ONE, Fraction(1, 2), Fraction(1, 6)), 3),
    "subset, k = 3, d = 2": (subsets(3, 2), 3, Blanket(ONE, Fraction(2, 3), Fraction(1, 3)), 4),
    "ranked directions": (RANKED, 8, Blanket(ONE, Fraction(1, 2)), 3),
}
CENTRAL = (0.0, 0.05, 0.2, 0.5, 0.9)


@cache
def enumerated(case: str) -> list[float]:
    near, size, blanket, people = CASES[case]
    return [true_delta(two_level(blanket.epsilon, near, size), people, c) for c in CENTRAL]


def covers(case: str, profile: Callable[[float], float]) -> bool:
    """Return whether a bound is at least the true δ at every ε_c."""
    return all(profile(c) >= true for c, true in zip(CENTRAL, enumerated(case), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_the_bound_covers_every_shuffled_multiset(case):
    _, _, blanket, people = CASES[case]
    assert covers(case, shuffling._hidden(blanket, people, DELTA))
    assert max(enumerated(case)) > 0.1


def exact_blanket(blanket: Blanket, people: int, central: float, *, more: float = 1.0) -> float:
    """Return (1/n) E(…)₊ of docs/proofs.md §22 in fractions; ``more`` multiplies γ."""
    factor, allowed = exp(blanket.epsilon), exp(central)
    near, overlap = blanket.near, blanket.overlap
    share = Fraction(more) / (1 + near * (factor - 1))
    apart = share * (near - overlap)
    chances = (apart, apart, share * overlap, share * (1 - 2 * near + overlap), 1 - share)
    less, none = 1 - allowed, Fraction(0)
    weights = (factor - allowed, 1 - factor * allowed, factor * less, less, none)
    total = Fraction(0)
    for counts in itertools.product(range(people + 1), repeat=4):
        if sum(counts) > people:
            continue
        every = (*counts, people - sum(counts))
        value = sum((c * w for c, w in zip(every, weights, strict=True)), Fraction(0))
        if value > 0:
            ways = math.factorial(people)
            for count in every:
                ways //= math.factorial(count)
            chance = math.prod((p**c for p, c in zip(chances, every, strict=True)), start=ways)
            total += chance * value
    return float(total / people)


@pytest.mark.parametrize("case", CASES)
def test_the_bound_is_the_exact_sum_rounded_up(case):
    _, _, blanket, _ = CASES[case]
    profile = shuffling._hidden(blanket, 7, DELTA)
    for central in CENTRAL:
        exact = exact_blanket(blanket, 7, central)
        assert exact <= profile(central) <= exact * (1 + 1e-7) + 1e-9


@pytest.mark.parametrize("case", ["response, k = 3", "response, k = 4"])
def test_a_blanket_of_five_per_cent_too_much_is_rejected(case):
    _, _, blanket, people = CASES[case]
    assert covers(case, lambda c: exact_blanket(blanket, people, c) * (1 + 1e-12))
    # Broken control: γ is 5 % too large.
    assert not covers(case, lambda c: exact_blanket(blanket, people, c, more=1.05))


@pytest.mark.parametrize("seed", range(6))
def test_the_clones_cover_any_pure_randomizer(seed):
    rng = np.random.default_rng(seed)
    epsilon, people = Fraction(1), 4
    factor = exp(epsilon)
    # Any law between μ and μ e^ε, normalised, could exceed ε: then it is rejected and drawn again.
    laws: list[Law] = []
    while len(laws) < 3:
        levels = [Fraction(float(x)) for x in rng.choice([1.0, 1.3, float(factor) - 1e-9], 4)]
        law = [weight / sum(levels) for weight in levels]
        pairs = [pair for other in laws for pair in zip(law, other, strict=True)]
        if all(max(pair) <= factor * min(pair) for pair in pairs):
            laws.append(law)
    profile = shuffling._hidden(Blanket(epsilon, Fraction(1, 2)), people, DELTA)
    for central in CENTRAL:
        assert profile(central) >= true_delta(laws, people, central)


def count_delta(people: int, central: float) -> float:
    """Return the exact δ of a count of one-bit reports, ε = 1, the largest over all data."""
    factor, allowed = exp(Fraction(1)), exp(central)
    likely, worst = factor / (factor + 1), Fraction(0)
    for ones in range(people):
        law = [Fraction(1)]
        for coin in [likely] * ones + [1 - likely] * (people - 1 - ones):
            law = [
                (law[h] if h < len(law) else 0) * (1 - coin) + (law[h - 1] * coin if h else 0)
                for h in range(len(law) + 1)
            ]
        padded = [Fraction(0), *law, Fraction(0)]
        first, second = (
            [p * padded[h] + (1 - p) * padded[h + 1] for h in range(people + 1)]
            for p in (likely, 1 - likely)
        )
        gaps = (a - allowed * b for a, b in zip(first, second, strict=True))
        worst = max(worst, sum((gap for gap in gaps if gap > 0), Fraction(0)))
    return float(worst)


@pytest.mark.parametrize("people", [1, 2, 5, 20])
def test_the_bound_of_one_bit_reports_is_exact(people):
    profile = shuffling._counted(Fraction(1), people, DELTA)
    for central in CENTRAL:
        exact = count_delta(people, central)
        assert exact <= profile(central) <= exact * (1 + 1e-7) + 1e-9


def test_merged_ranges_of_data_cover_the_exact_count(monkeypatch):
    exact = count_delta(20, 0.2)
    monkeypatch.setattr(shuffling, "_CELLS", 4)
    merged = shuffling._counted(Fraction(1), 20, DELTA)(0.2)
    assert exact < merged < 1.5 * exact


# ---- Binomial laws


LAWS = [
    (1, 2.0, 1e-9),
    (50, 0.01, 1e-12),
    (1000, 1.7, 1e-3),
    (10**6, 0.25, 1e-15),
    (10**9, 1e-7, 1e-9),
]


def chance(count: int, odds: float, k: int) -> mpmath.mpf:
    """Return a binomial probability to 40 digits."""
    with mpmath.workdps(40):
        p = mpmath.mpf(odds) / (1 + mpmath.mpf(odds))
        ways = mpmath.loggamma(count + 1) - mpmath.loggamma(k + 1) - mpmath.loggamma(count - k + 1)
        return mpmath.exp(ways + k * mpmath.log(p) + (count - k) * mpmath.log(1 - p))


def tails_are_counted(count: int, odds: float, tail: float) -> bool:
    """Return whether the stated masses outside a window are at least the first terms there."""
    law = shuffling._binomial(count, odds, tail)
    end = law.start + len(law.chances)
    below = sum(chance(count, odds, k) for k in range(max(0, law.start - 300), law.start))
    above = sum(chance(count, odds, k) for k in range(end, min(count, end + 300) + 1))
    return bool(below <= law.below and above <= law.above)


@pytest.mark.parametrize(("count", "odds", "tail"), LAWS)
def test_binomial_chances_are_rounded_up(count, odds, tail):
    law = shuffling._binomial(count, odds, tail)
    for k in np.linspace(0, len(law.chances) - 1, 15).astype(int):
        true = chance(count, odds, law.start + int(k))
        assert law.chances[k] * (1 - law.error) <= true <= law.chances[k]
    assert law.error < 2e-6 or tail > 1e-4


@pytest.mark.parametrize(("count", "odds", "tail"), LAWS)
def test_what_lies_outside_the_window_is_counted(count, odds, tail):
    assert tails_are_counted(count, odds, tail)


def test_a_tail_that_is_not_counted_is_rejected(monkeypatch):
    # Broken control: what lies outside the window is forgotten.
    monkeypatch.setattr(shuffling, "_geometric", lambda *_: 0.0)
    assert not any(tails_are_counted(*law) for law in LAWS[2:])


@pytest.mark.parametrize("tail", [1e-2, 1e-9])
def test_knots_only_raise_the_mean_of_a_falling_convex_function(tail):
    knots, shares = shuffling._to_knots(shuffling._binomial(1000, 0.6, tail))
    chances = np.array([float(chance(1000, 0.6, k)) for k in range(1001)])
    for end in (300.5, 370, 375, 380, 420, 2000):
        exact = float((chances * np.maximum(end - np.arange(1001), 0)).sum())
        spread = float((shares * np.maximum(end - knots, 0)).sum())
        assert exact <= spread
        assert tail > 1e-4 or spread < exact * 1.5 + 0.2
    assert len(knots) < 40


def exact_pair(people: int, central: float, epsilon: int = 2) -> Fraction:
    """Return the clones' δ by summing over both counts."""
    factor, allowed = exp(epsilon), exp(central)
    apart, total = 1 / (factor + 1), Fraction(0)
    for a in range(people + 1):
        for b in range(people + 1 - a):
            value = a * (factor - allowed) - b * (factor * allowed - 1)
            if value > 0:
                ways = math.comb(people, a) * math.comb(people - a, b)
                total += value * ways * apart ** (a + b) * (1 - 2 * apart) ** (people - a - b)
    return total / people


@pytest.mark.parametrize("central", [0.0, 0.3, 1.0, 1.9])
def test_the_clones_are_the_exact_sum_over_both_counts(central):
    exact = exact_pair(60, central)
    profile = shuffling._hidden(Blanket(Fraction(2), Fraction(1, 2)), 60, DELTA)
    assert exact <= profile(central) <= float(exact) * (1 + 1e-7) + 1e-9


@pytest.mark.parametrize("people", [1, 2, 3, 8])
@pytest.mark.parametrize("epsilon", [10, 20, 25])
def test_large_budgets_do_not_cancel(epsilon, people):
    """Where c is close to ε, e^ε − e^c is a small part of terms up to e^{2ε}."""
    hidden = shuffling._hidden(Blanket(Fraction(epsilon), Fraction(1, 2)), people, DELTA)
    counted = shuffling._counted(Fraction(epsilon), 1, DELTA)
    for below in (epsilon, epsilon / 2, 1.0, 1e-3, 1e-6, 1e-9, 1e-12):
        central = epsilon - below
        assert exact_pair(people, central, epsilon) <= hidden(central)
        assert exact_pair(1, central, epsilon) <= counted(central)


@pytest.mark.parametrize("epsilon", [5, 20, 25, 30, 40])
@pytest.mark.parametrize("people", [1, 3, 30])
def test_what_is_certified_for_large_budgets_holds(epsilon, people):
    """Against the exact count of one-bit reports, the others' all 0."""
    factor = exp(epsilon)
    one = 1 / (factor + 1)
    chances = [
        math.comb(people - 1, h) * one**h * (1 - one) ** (people - 1 - h) for h in range(people)
    ]
    before, now = [Fraction(0), *chances], [*chances, Fraction(0)]
    for delta in (1e-90, DELTA, 1e-2, 0.5, 0.9):
        for source in (epsilon, KaryResponse(2, epsilon)):
            allowed = exp(central_epsilon(shuffled_epsilon(source, people, delta)))
            gaps = (
                (factor - allowed) * x - (factor * allowed - 1) * y
                for x, y in zip(before, now, strict=True)
            )
            assert sum(gap for gap in gaps if gap > 0) / (factor + 1) <= delta


def test_merged_cells_only_raise_the_bound(monkeypatch):
    blanket = Blanket(ONE, Fraction(3, 10), Fraction(1, 15))
    fine = shuffling._hidden(blanket, 3000, DELTA)(0.06)
    monkeypatch.setattr(shuffling, "_BINS", 32)
    coarse = shuffling._hidden(blanket, 3000, DELTA)(0.06)
    assert fine < coarse < 1.5 * fine


# ---- Many people: the bound next to an attack


@pytest.mark.parametrize("people", [10**3, 10**4, 10**5, 10**6])
@pytest.mark.parametrize("epsilon", ["1/2", "1", "2", "4"])
@pytest.mark.parametrize("size", [2, 10, 100])
def test_the_bound_of_response_is_within_five_per_cent_of_an_attack(people, epsilon, size):
    randomizer = KaryResponse(size, epsilon)
    found = shuffled_epsilon(randomizer, people, DELTA)
    assert found.bound == ("count" if size == 2 else "blanket")
    kinds = instance(randomizer)
    assert best(kinds, people, central_epsilon(found) / 1.05) > DELTA
    assert best(kinds, people, central_epsilon(found)) <= DELTA


@pytest.mark.parametrize("epsilon", ["1/2", "1", "2", "4"])
@pytest.mark.parametrize(
    "make", [lambda e: SubsetSelection(20, e), lambda e: PrivUnit2(64, 1.0, e)]
)
def test_the_bounds_of_overlapping_near_sets_are_above_an_attack(make, epsilon):
    randomizer = make(epsilon)
    found = shuffled_epsilon(randomizer, 10**4, DELTA)
    assert best(instance(randomizer), 10**4, central_epsilon(found)) <= DELTA
    # The others' near reports overlap those of x and x', which the blanket does not use.
    assert best(instance(randomizer), 10**4, central_epsilon(found) / 1.16) > DELTA


def best(kinds, people: int, central: float) -> float:
    """Return the larger advantage over both orders of the inputs."""
    swapped = type(kinds)(kinds.second, kinds.first, kinds.others)
    return max(advantage(kinds, people, central), advantage(swapped, people, central))


def test_the_attack_computes_the_error_rates_of_a_real_test():
    """The lattice attack on three people, against enumeration: never more than the true δ."""
    _, _, blanket, people = CASES["response, k = 3"]
    kinds = instance(KaryResponse(3, blanket.epsilon))
    for central, true in zip(CENTRAL, enumerated("response, k = 3"), strict=True):
        assert best(kinds, people, central) <= true + 1e-12
    assert best(kinds, people, 0.2) > 0.9 * enumerated("response, k = 3")[2]


def test_the_near_share_of_directions_is_what_reports_show():
    randomizer = PrivUnit2(8, 1.0, ONE)
    nonces = np.random.default_rng(0).integers(0, 256, (200, 12), dtype=np.uint8)
    pole, opposite = randomizer.worst_pair()
    sets = [randomizer.nearest(np.tile(w, (200, 1)), nonces) for w in (pole, opposite, 0 * pole)]
    assert randomizer.blanket.near == Fraction(randomizer.near, randomizer.directions)
    assert all(len(set(row)) == randomizer.near for rows in sets for row in rows)
    common = [len(set(a) & set(b)) for a, b in zip(sets[0], sets[1], strict=True)]
    assert max(common) == 0
    assert Counter(tuple(row) for row in sets[2]).most_common(1)[0][1] == 200


# ---- The function


def test_computed_bounds_are_far_below_the_closed_form():
    formula = closed_form(1.0, 10**4, DELTA)
    assert formula is not None
    general = shuffled_epsilon(1, 10**4, DELTA)
    own = shuffled_epsilon(KaryResponse(10, ONE), 10**4, DELTA)
    values = (formula, central_epsilon(general), central_epsilon(own))
    assert tuple(round(value, 3) for value in values) == (0.214, 0.043, 0.023)
    assert (general.bound, own.bound) == ("clones", "blanket")


@settings(max_examples=25, deadline=None)
@given(
    st.fractions(Fraction(1, 20), 6, max_denominator=20),
    st.integers(1, 3000),
    st.floats(1e-12, 1e-2),
    st.sampled_from([None, 2, 3, 40]),
)
def test_more_people_and_more_delta_only_lower_the_central_epsilon(epsilon, people, delta, size):
    source = epsilon if size is None else KaryResponse(size, epsilon)
    found = central_epsilon(shuffled_epsilon(source, people, delta))
    assert 0 <= found <= float(epsilon)
    # Merged cells and the search make the bound wiggle by less than two per cent.
    for more in ((2 * people, delta), (people, min(2 * delta, 0.5))):
        assert central_epsilon(shuffled_epsilon(source, *more)) <= found * 1.02 + 1e-12


@pytest.mark.parametrize(
    "source", [1, "1/3", KaryResponse(2, Fraction(3)), PrivUnit2(4, 1.0, Fraction(2))]
)
def test_one_report_alone_keeps_its_local_epsilon(source):
    found = shuffled_epsilon(source, 1, DELTA)
    local = float(Fraction(source) if isinstance(source, int | str) else source.epsilon)
    assert found.bound in ("local", "blanket", "clones", "count")
    assert local * 0.999 <= central_epsilon(found) <= math.nextafter(local, 9)


@pytest.mark.parametrize(("epsilon", "people"), [(100, 10**12), (12, 1000), (10_000, 5)])
def test_where_nobody_hides_the_local_epsilon_counts(epsilon, people):
    assert shuffled_epsilon(epsilon, people, 1e-90).epsilon == epsilon


def test_very_many_people_and_a_tiny_delta():
    few = central_epsilon(shuffled_epsilon(KaryResponse(2, ONE), 10**5, "1e-90"))
    many = central_epsilon(shuffled_epsilon(KaryResponse(2, ONE), 10**12, "1e-90"))
    assert 0 < many < few < 0.1


def test_only_pure_randomizers_have_a_central_epsilon():
    randomizer = Gaussian(dim=3, radius=1.0, epsilon=ONE, delta=Fraction(1, 10**5))
    found = shuffled_epsilon(randomizer, 1000, DELTA)
    assert found.epsilon is None
    assert found.reason is not None
    assert "pure" in found.reason


def test_memoised_reports_have_no_central_epsilon():
    # They inherit the law of response, but carry an age and come several per person.
    two = Fraction(2)
    randomizer = MemoisedResponse(size=4, epsilon=two, instant=two, draws=1, period=90)
    found = shuffled_epsilon(randomizer, 10**4, DELTA)
    assert found.epsilon is None
    assert found.reason is not None
    assert "age" in found.reason


def test_a_release_is_bounded_by_its_randomizer():
    public = np.random.default_rng(0).standard_normal((200, 4))
    laplace = offaxis.fit(None, public, epsilon=1, mechanism="laplace", reshaping="none")
    assert shuffled_epsilon(laplace, 1000, DELTA) == shuffled_epsilon(1, 1000, DELTA)
    directions = offaxis.fit(None, public, epsilon=1, mechanism="privunit2", reshaping="none")
    own = shuffled_epsilon(directions, 1000, DELTA)
    assert own.bound == "blanket"
    assert own == shuffled_epsilon(directions.randomizer, 1000, DELTA)
    assert not hasattr(Laplace(dim=2, radius=1.0, epsilon=ONE), "blanket")


@pytest.mark.parametrize("people", [0, -1, 2.5, True])
def test_a_wrong_number_of_reports_is_an_error(people):
    with pytest.raises(InvalidInput, match="reports must be an integer"):
        shuffled_epsilon(1, people, DELTA)


@pytest.mark.parametrize(("near", "overlap"), [(0, 0), (1, 1), (Fraction(2, 3), 0), (0.2, 0.3)])
def test_impossible_near_sets_are_an_error(near, overlap):
    with pytest.raises(InvalidInput, match="near"):
        Blanket(ONE, near, overlap)
