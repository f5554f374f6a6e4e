"""Which statistics are tried on which pairs of vectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from offaxis.audit import black_box
from offaxis.audit.forms import coarse_forms, is_ranked, reduced, says_gaussian
from offaxis.audit.low_bits import Precision, WireBits, wire_bits
from offaxis.audit.pairs import Pair
from offaxis.audit.result import Group
from offaxis.audit.support import payloads
from offaxis.audit.trial import Attack, Draw
from offaxis.audit.white_box import LikelihoodRatio, from_randomizer, widest_spread
from offaxis.randomizers import Randomizer
from offaxis.randomizers.box_form import BoxForm
from offaxis.randomizers.domain import FiniteSet
from offaxis.release import Release
from offaxis.vectors import Vectors

_PILOT_ALPHA: Final = 1e-4
"""For choosing a pair; nothing is said with it."""


@dataclass(frozen=True, eq=False)
class Planned:
    """A statistic to try, and how to speak of it."""

    test: str
    group: Group
    tried: str
    attack: Attack


@dataclass(frozen=True, eq=False)
class PlannedTrial:
    """Reports to draw and the statistics that look at them.

    ``share`` is in reports of the main test.
    """

    draw: Draw
    tests: tuple[Planned, ...]
    kind: Literal["main", "coarse", "pair"]
    share: float


def plan(release: Release, pairs: tuple[Pair, ...], rng: np.random.Generator) -> list[PlannedTrial]:
    """Return the trials of a release, the main one first."""
    return [
        *_main(release, pairs[0]),
        *_coarse(release.randomizer, rng),
        *(_on_pair(release, pair, rng) for pair in pairs),
    ]


def _from_release(release: Release, pair: Pair) -> Draw:
    sides = (pair.first[None], pair.second[None])
    return lambda side, count: payloads(release, np.repeat(sides[side], count, axis=0))


def _main(release: Release, worst: Pair) -> Iterator[PlannedTrial]:
    """Yield the worst pair through the whole release, and through its randomizer in small."""
    encoded = worst.encoded(release)
    tests = _by_likelihood("worst-pair", worst.words, release.randomizer, *encoded)
    yield PlannedTrial(_from_release(release, worst), tests, "main", 1.0)
    form = reduced(release.randomizer)
    if form is not None:
        w, other = (vector[None] for vector in form.worst_pair())
        tests = _by_likelihood("reduced", "in two dimensions", form, w, other)
        yield PlannedTrial(from_randomizer(form, w, other), tests, "main", 1.0)


def _by_likelihood(
    test: str, tried: str, randomizer: Randomizer, w: Vectors, other: Vectors
) -> tuple[Planned, ...]:
    """Return the test against ε and, where the noise is said to be Gaussian, one of its size."""
    ratio = LikelihoodRatio(randomizer, w, other)
    planned = Planned(test, "white box", tried, ratio)
    if not says_gaussian(randomizer):
        return (planned,)
    noise = LikelihoodRatio(randomizer, w, other, aim="shift")
    name = f"{test.removesuffix('-pair').removesuffix('-lattice')}-noise"
    return planned, Planned(name, "white box", "size of the noise", noise)


def _coarse(randomizer: Randomizer, rng: np.random.Generator) -> Iterator[PlannedTrial]:
    """Yield the randomizer on a lattice so coarse that one step too many shows."""
    forms = coarse_forms(randomizer)
    if forms:
        delta = float(randomizer.guarantee.delta)
        found = widest_spread(forms, rng, delta=delta, alpha=_PILOT_ALPHA)
        form, pair = found.form, (found.first, found.second)
        tried = f"{found.distance:.3g} of {found.allowed} steps apart"
        tests = _by_likelihood("coarse-lattice", tried, form, *pair)
        yield PlannedTrial(from_randomizer(form, *pair), tests, "coarse", 8.0)


def _on_pair(release: Release, pair: Pair, rng: np.random.Generator) -> PlannedTrial:
    """Return every statistic that fits a pair of inputs."""
    randomizer = release.randomizer
    first, second = pair.encoded(release)
    tests = []
    if pair.name != "worst":
        ratio = LikelihoodRatio(randomizer, first, second)
        tests.append(Planned(f"{pair.name}-pair", "white box", pair.words, ratio))
    if black_box.available():
        trees = black_box.Classifier(randomizer, int(rng.integers(1 << 31)))
        tests.append(Planned(f"classifier-{pair.name}", "black box", pair.words, trees))
    # A ranked randomizer gives a zero vector an index of its own, as far as ε allows; symbols
    # have no digits.
    digits_on = "worst" if is_ranked(randomizer) else "zero"
    if pair.name == digits_on and not isinstance(randomizer.domain, FiniteSet):
        tests += _last_digits(randomizer, int(np.argmax(np.abs(first - second))))
    return PlannedTrial(_from_release(release, pair), tuple(tests), "pair", 0.25)


def _last_digits(randomizer: Randomizer, coordinate: int) -> Iterator[Planned]:
    """Yield the tests of low bits, on the coordinate in which the encoded vectors differ most."""
    both, alone = (Precision(randomizer, coordinate, given_size=given) for given in (False, True))
    yield Planned("low-bits", "bytes", "size and lowest bit", both)
    # Where a report is one of few values, which of one size it is may differ, as far as ε allows.
    if not isinstance(randomizer, BoxForm):
        yield Planned("precision", "bytes", "lowest bit at one size", alone)
    if wire_bits(randomizer):
        tried = f"last {wire_bits(randomizer)} bits sent"
        yield Planned("wire-bits", "bytes", tried, WireBits(randomizer))
