"""Broken controls: releases with one fault each, of kinds seen in practice, that must be detected.

A broken control is the real randomizer with one method replaced, in an otherwise real release.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from offaxis.client.sequences import Sequence, next_reports
from offaxis.randomizers import (
    Gaussian,
    KaryResponse,
    Laplace,
    MemoisedResponse,
    PrivUnit2,
    SphericalLaplace,
    SubsetSelection,
)
from offaxis.randomizers.directions import NONCE_BYTES
from offaxis.randomizers.laplace import largest_magnitude, pack, unpack
from offaxis.randomizers.memoised import Memoised
from offaxis.release import Release
from offaxis.sampling.choices import Response, place
from offaxis.sampling.entropy import Entropy
from offaxis.sampling.gaussian import RoundedGaussian
from offaxis.sampling.laplace import DiscreteLaplace
from offaxis.sampling.spherical import RoundedSpherical
from offaxis.simulation.randomizers import draw_ranks, towards
from offaxis.vectors import Vectors, row_norms

LARGEST = largest_magnitude(3)


def with_broken_control(release: Release, broken: type[Any], **changes: Any) -> Release:
    """Return the release with its randomizer replaced by a broken one of the same parameters."""
    real = release.randomizer
    values = {field.name: getattr(real, field.name) for field in dataclasses.fields(real)}
    return dataclasses.replace(release, randomizer=broken(**values | changes))


@dataclass(frozen=True)
class FloatLaplace(Laplace):
    """Noise in floating point, sent as float64: correct in law, wrong in its last bits."""

    @property
    def payload_size(self) -> int:
        return 8 * self.dim

    def report(self, W: Vectors, entropy: Entropy) -> list[bytes]:
        noise = np.random.default_rng().laplace(scale=self.scale, size=W.shape)
        return [row.tobytes() for row in self.domain.project(W) + noise]

    def read(self, payloads: list[bytes]) -> Vectors:
        return np.frombuffer(b"".join(payloads)).reshape(len(payloads), self.dim)

    def log_likelihood(self, payloads: list[bytes], W: Vectors) -> Vectors:
        return self.log_density(self.read(payloads), W)


@dataclass(frozen=True)
class FloatGaussian(Gaussian):
    """The same with Gaussian noise."""

    payload_size = FloatLaplace.payload_size
    read = FloatLaplace.read
    log_likelihood = FloatLaplace.log_likelihood

    def report(self, W: Vectors, entropy: Entropy) -> list[bytes]:
        noise = np.random.default_rng().normal(scale=self.scale, size=W.shape)
        return [row.tobytes() for row in self.domain.project(W) + noise]


@dataclass(frozen=True)
class HalfTheNoise(Laplace):
    """Noise of scale t/2."""

    def noise(self, count: int, entropy: Entropy) -> np.ndarray:
        return DiscreteLaplace(max(0, self.log2_scale - 1)).draw(count, entropy)


@dataclass(frozen=True)
class RadiusForDiameter(Laplace):
    """Calibrated to the radius ρ instead of the diameter 2ρ: R = εt."""

    @property
    def bound(self) -> int:
        return math.floor(self.epsilon * (1 << self.log2_scale))

    @property
    def realised_epsilon(self) -> Any:
        return self.epsilon


@dataclass(frozen=True)
class NoClipping(Laplace):
    """Vectors outside the ball stay outside."""

    def integers(self, W: Vectors) -> np.ndarray:
        steps = np.trunc(np.clip(W / self.radius * self.bound, -LARGEST, LARGEST))
        return steps.astype(np.int64)


@dataclass(frozen=True)
class SeedReuse(Laplace):
    """The same seed in every call."""

    def noise(self, count: int, entropy: Entropy) -> np.ndarray:
        drawn = np.random.default_rng(7).laplace(scale=self.noise_steps, size=count)
        return np.rint(drawn).astype(np.int64)


@dataclass(frozen=True)
class NanPasses(Laplace):
    """NaN is reported as a special value, without noise."""

    def report(self, W: Vectors, entropy: Entropy) -> list[bytes]:
        noise = self.noise(W.size, entropy).reshape(W.shape)
        noisy = self.integers(np.nan_to_num(W, posinf=0.0, neginf=0.0)) + noise
        return pack(np.where(np.isnan(W), LARGEST, noisy))


class LenientRelease(Release):
    """A release that replaces NaN with zero instead of rejecting it."""

    def privatize(self, vectors: Any) -> Any:
        array = np.asarray(vectors)
        return super().privatize(np.nan_to_num(array) if array.dtype.kind == "f" else vectors)


@dataclass(frozen=True)
class RoundToNearest(Laplace):
    """Clips correctly, then rounds to the nearest lattice point, which may be outside."""

    def integers(self, W: Vectors) -> np.ndarray:
        return np.rint(self.domain.project(W) / self.radius * self.bound).astype(np.int64)


@dataclass(frozen=True)
class OneUlpOut(Laplace):
    """Clips to one ulp outside the ball and rounds away from zero: the ulp becomes a whole step.

    Only the largest entry is rounded away from zero. The integers are not checked.
    """

    def integers(self, W: Vectors) -> np.ndarray:
        norms = row_norms(W, 1)
        # 1 + 2⁻⁵² is the next number after 1.
        out = self.radius * (1 + 2.0**-52) / np.maximum(norms, self.radius)
        steps = W * out[:, None] / self.radius * self.bound
        integers = np.trunc(steps)
        largest = np.abs(steps).argmax(axis=1)
        rows = np.arange(len(W))
        away = np.copysign(np.ceil(np.abs(steps[rows, largest])), steps[rows, largest])
        integers[rows, largest] = away
        return integers.astype(np.int64)


@dataclass(frozen=True)
class LengthLeaks(Laplace):
    """One byte more if the first number is positive."""

    def report(self, W: Vectors, entropy: Entropy) -> list[bytes]:
        payloads = super().report(W, entropy)
        return [p + b"\0" * int(w > 0) for p, w in zip(payloads, W[:, 0], strict=True)]


@dataclass(frozen=True)
class TimeLeaks(Laplace):
    """More work if the first number is positive."""

    def report(self, W: Vectors, entropy: Entropy) -> list[bytes]:
        if (W[:, 0] > 0).any():
            sum(range(20_000))
        return super().report(W, entropy)


@dataclass(frozen=True)
class LastBitLeaks(Laplace):
    """On the lattice, but the last bit of the first number reveals whether the vector is zero."""

    def report(self, W: Vectors, entropy: Entropy) -> list[bytes]:
        noisy = unpack(super().report(W, entropy), self.dim)
        noisy[:, 0] += (noisy[:, 0] & 1) * (W != 0).any(axis=1)
        return pack(noisy)


@dataclass(frozen=True)
class HalfTheGaussianNoise(Gaussian):
    """Half the noise; with a small δ, no frequent event alone contradicts (ε, δ)."""

    def noise(self, count: int, entropy: Entropy) -> np.ndarray:
        return RoundedGaussian(max(0, self.log2_scale - 1)).draw(count, entropy)


@dataclass(frozen=True)
class GaussianToNearest(Gaussian):
    """Rounds to the nearest lattice point of the ℓ2 ball."""

    def integers(self, W: Vectors) -> np.ndarray:
        return np.rint(self.domain.project(W) / self.radius * self.bound).astype(np.int64)


@dataclass(frozen=True)
class TwiceTheOdds(PrivUnit2):
    """Near directions are e^{2ε} times as likely."""

    def report(self, W: Vectors, entropy: Entropy) -> list[bytes]:
        nonces = entropy.words(len(W) * NONCE_BYTES // 2).view(np.uint8).reshape(-1, NONCE_BYTES)
        response = Response(self.directions, self.near, 2 * self.epsilon)
        index = place(*response.draw(len(W), entropy), self.nearest(W, nonces)).astype("<u4")
        return [bytes(n) + i.tobytes() for n, i in zip(nonces, index, strict=True)]


@dataclass(frozen=True)
class ZeroHasFewNear(PrivUnit2):
    """A zero vector has one near direction, repeated."""

    def nearest(self, W: Vectors, nonces: np.ndarray) -> np.ndarray:
        nearest = super().nearest(W, nonces)
        nearest[~W.any(axis=1)] = 0
        return nearest


@dataclass(frozen=True)
class FloorForTinyVectors(PrivUnit2):
    """In floats, "normalised" by max(‖w‖, 1e-10): the length of a report reveals a tiny vector."""

    @property
    def payload_size(self) -> int:
        return 8 * self.dim

    def report(self, W: Vectors, entropy: Entropy) -> list[bytes]:
        u = W / np.maximum(row_norms(W, 2), 1e-10)[:, None]
        rng = np.random.default_rng()
        tail, forward = draw_ranks(self.ranks, len(u), rng)
        t = 1 - 2 * self._quantile(tail)
        return [row.tobytes() for row in towards(u, np.where(forward, t, -t), 1.0, rng)]

    read = FloatLaplace.read

    def log_likelihood(self, payloads: list[bytes], W: Vectors) -> Vectors:
        """Return what the code reveals: a length other than one is never of a unit vector."""
        odd = np.abs(row_norms(self.read(payloads), 2) - 1) > 1e-9
        return np.where(odd, np.where(row_norms(W, 2) < 1e-10, 0.0, -np.inf), 0.0)


@dataclass(frozen=True)
class HalfTheSphericalNoise(SphericalLaplace):
    """Spherical noise of scale t/2."""

    def noise(self, count: int, entropy: Entropy) -> np.ndarray:
        finer = RoundedSpherical(self.dim, max(0, self.log2_scale - 1))
        return finer.draw(count // self.dim, entropy).reshape(-1)


@dataclass(frozen=True)
class TwiceTheOddsOfTheSymbol(KaryResponse):
    """The true symbol is e^{2ε} times as likely as another."""

    def report(self, W: np.ndarray, entropy: Entropy) -> list[bytes]:
        own = self._checked(W, entropy)
        law = Response(self.size, 1, 2 * self.epsilon)
        named = place(*law.draw(own.size, entropy), own[:, None])
        return [bytes([symbol]) for symbol in named.tolist()]


@dataclass(frozen=True)
class OneSymbolTooMany(SubsetSelection):
    """The true symbol is always named, in addition to a correct set."""

    def report(self, W: np.ndarray, entropy: Entropy) -> list[bytes]:
        named = self.read(super().report(W, entropy)) > 0
        named[np.arange(len(W)), W] = True
        return [row.tobytes() for row in np.packbits(named, axis=1, bitorder="little")]


def at_twice_epsilon(real: type[Any]) -> type[Any]:
    """Return the class of a randomizer whose reports are drawn at 2ε, while it claims ε."""

    @dataclass(frozen=True)
    class AtTwiceEpsilon(real):  # type: ignore[misc]
        def report(self, W: Vectors, entropy: Entropy) -> list[bytes]:
            values = {field.name: getattr(self, field.name) for field in dataclasses.fields(real)}
            payloads: list[bytes] = real(**values | {"epsilon": 2 * self.epsilon}).report(
                W, entropy
            )
            return payloads

    return AtTwiceEpsilon


@dataclass(frozen=True)
class FailsFarOut(Laplace):
    """No report for vectors far outside, which reveals that they are."""

    def report(self, W: Vectors, entropy: Entropy) -> list[bytes]:
        if np.abs(W).max() > 1e3 * self.radius:
            raise OverflowError("too far out")
        return super().report(W, entropy)


# ---- Sequences


@dataclass(frozen=True)
class Forgetful(MemoisedResponse):
    """Keeps the symbol and draws its permanent answer anew in every round."""

    def hold(self, W: Any, entropy: Entropy) -> list[bytes]:
        return [bytes([x]) for x in self.symbols(W).tolist()]

    def _shown(self, held: list[bytes], entropy: Entropy) -> list[bytes]:
        permanent = self.layers[0]
        return super()._shown(permanent.report(permanent.reported_symbols(held), entropy), entropy)


@dataclass(frozen=True)
class LoudPermanent(MemoisedResponse):
    """Draws permanent answers with three times their ε."""

    def hold(self, W: Any, entropy: Entropy) -> list[bytes]:
        return KaryResponse(self.size, 3 * self.epsilon).report(W, entropy)


@dataclass(frozen=True)
class TellingAges(MemoisedResponse):
    """Hides the symbol in the age, from the second report on."""

    def hold(self, W: Any, entropy: Entropy) -> list[bytes]:
        drawn = super().hold(W, entropy)
        return [b + bytes([x]) for b, x in zip(drawn, self.symbols(W).tolist(), strict=True)]

    def show(self, held: list[bytes], ages: list[int], entropy: Entropy) -> list[bytes]:
        told = [age + h[1] if age else 0 for age, h in zip(ages, held, strict=True)]
        return super().show([h[:1] for h in held], told, entropy)


@dataclass(frozen=True)
class LoudLater(MemoisedResponse):
    """Shows the permanent answer without noise, from the second report on."""

    def show(self, held: list[bytes], ages: list[int], entropy: Entropy) -> list[bytes]:
        shown = super().show(held, ages, entropy)
        return [
            payload if age == 0 else payload[:2] + b
            for payload, b, age in zip(shown, held, ages, strict=True)
        ]


@dataclass(frozen=True)
class SwappedAges(TellingAges):
    """Exchanges the ages 1 and 2 for one symbol, so that their sum tells nothing."""

    def show(self, held: list[bytes], ages: list[int], entropy: Entropy) -> list[bytes]:
        told = [
            {1: 2, 2: 1}.get(age, age) if h[1] == 1 else age
            for age, h in zip(ages, held, strict=True)
        ]
        return MemoisedResponse.show(self, [h[:1] for h in held], told, entropy)


def endless(randomizer: Memoised, sequence: Sequence | None, number: int) -> bool:
    """Draw a permanent answer in every period, however many were promised."""
    return sequence is None or number >= sequence.renew


def renewing_on_change(
    release: Release,
    sequences: list[Sequence | None],
    number: int,
    vectors: Mapping[int, Vectors],
) -> tuple[list[bytes], list[Sequence]]:
    """Draw at once when the symbol is not the one of the last draw, from half a period on."""
    # The unused field of the payment remembers that symbol.
    wait = release.randomizer.first_wait
    symbols = release.encode_private(np.array([vectors[at] for at in sorted(vectors)]))
    sooner = [
        replace(s, renew=number)
        if s is not None and number - s.drawn >= wait and int(symbols[at]) + 1 != s.payment
        else s
        for at, s in enumerate(sequences)
    ]
    reports, states = next_reports(release, sooner, number, vectors)
    return reports, [
        replace(s, payment=int(symbols[at]) + 1) if s.drawn == number else s
        for at, s in enumerate(states)
    ]
