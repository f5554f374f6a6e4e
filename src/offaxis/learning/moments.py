"""Moments: what do reported cross moments of answers and features say about a linear model?

M = E[a(y) xᵀ] is estimated without bias, with noise of variance s²/n per coordinate. C = E[x xᵀ]
comes from the public vectors. Formulas and proofs: docs/proofs.md §25.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtri, softmax

from offaxis.decoding import MomentsDecoder
from offaxis.encoding.pairs import Asked, MomentsEncoder, simplex
from offaxis.errors import InvalidInput
from offaxis.learning.sums import PairSums
from offaxis.randomizers import PrivUnit2
from offaxis.vectors import Vectors

_RIDGE: Final = 1e-6
_STRENGTHS: Final = np.logspace(-4, 3, 141)
"""Values of τ to choose from, for features of unit variance."""

_NEGLIGIBLE: Final = 1e-9

LEAST_JUDGED: Final = 10
"""The fewest reports that a model is judged on."""


@dataclass(frozen=True)
class ExpectedAccuracy:
    """How often a model is expected to be right.

    Attributes
    ----------
    estimate, low, high : float
    assumption : str
        What the interval rests on.

    Examples
    --------
    >>> from offaxis.learning import ExpectedAccuracy
    >>> ExpectedAccuracy(0.894, 0.871, 0.913, "none")
    ExpectedAccuracy(0.894, from 0.871 to 0.913)
    """

    estimate: float
    low: float
    high: float
    assumption: str

    def __repr__(self) -> str:
        """Return for example ``ExpectedAccuracy(0.894, from 0.871 to 0.913)``."""
        return f"ExpectedAccuracy({self.estimate:.3f}, from {self.low:.3f} to {self.high:.3f})"


@dataclass(frozen=True, eq=False)
class Posterior:
    """Posterior means of the coefficients (w, d) and of the offset (w,).

    ``evidence`` is the posterior probability that there is anything to learn.
    """

    slopes: Vectors
    offset: Vectors
    evidence: float


@dataclass(frozen=True, eq=False)
class Moments:
    """Estimated cross moments M of codes and features.

    Attributes
    ----------
    cross : (w, d) array
        M.
    folds : (folds, w, d) array
        M of each fold.
    counts : (folds,) array
    second, mean : (d, d) and (d,) arrays
        C and E x of the public vectors.
    noise : float
        s²: the variance of a coordinate of one report.
    spread : (w d, w d) array or None
        The covariance of one report.
    turn : (k, w) array
        From coefficients of codes to those of classes.
    level : (w,) array or None
        E a(y), if it is known; zero, that is, equal classes, if nothing tells it.
    public_count : int
    known : (w, w) array or None
        What the covariance of one report is not below, in any direction of the features: that of
        the noise of the randomizer.
    labelled : bool
        Whether the level is that of public labels.
    level_noise : float
        The mean variance of a coordinate of a(y), if the level is that of public classes.
    optional : bool
        Whether people may have had no answer; the moments do not tell how many.
    """

    cross: Vectors
    folds: Vectors
    counts: Vectors
    second: Vectors
    mean: Vectors
    noise: float
    spread: Vectors | None
    turn: Vectors
    level: Vectors | None
    public_count: int
    known: Vectors | None = None
    labelled: bool = False
    optional: bool = False
    level_noise: float = 0.0

    @classmethod
    def of(cls, sums: PairSums, asked: Asked, encoder: MomentsEncoder) -> Moments:
        """Return the moments of an answer."""
        decoder, randomizer = sums.release.decoder, sums.release.randomizer
        assert isinstance(decoder, MomentsDecoder)
        assert isinstance(randomizer, PrivUnit2)
        k, d, n = asked.classes, encoder.features, sums.count
        corners = simplex(k) if k else np.ones((1, 1))
        turn = corners * ((k - 1) / k) if k else corners
        counts = sums.counts.sum(axis=1).astype(np.float64)
        per = np.maximum(counts, 1)[:, None, None]
        length = (randomizer.radius / randomizer.mean) ** 2
        # By 24.4 of the proofs; a report of several answers is scaled below.
        noisy = (length - 1) / randomizer.dim
        spread = None
        level_noise = 0.0
        level = cls.unknown_level(decoder, corners.shape[1])
        if sums.labels is None:
            place = sums.release.asked.index(asked)
            first = int(sum(encoder.widths[:place]))
            rows = slice(first, first + encoder.widths[place])
            root = math.sqrt(len(encoder.widths))
            folds = root * sums.totals.sum(axis=1).reshape(len(per), -1, d)[:, rows] / per
            cross = np.einsum("f,fwd->wd", counts, folds) / n
            noise = (length * root**2) / randomizer.dim
            known = root**2 * noisy * np.eye(corners.shape[1])
            if sums.squares is not None:
                block = slice(rows.start * d, rows.stop * d)
                spread = root**2 * sums.squares[block, block] / n
        else:
            totals = sums.totals
            folds = np.einsum("jw,fjd->fwd", corners, totals) / per
            cross = np.einsum("f,fwd->wd", counts, folds) / n
            share = sums.counts.sum(axis=0) / n
            level = share @ corners if k else np.array([sums.label_total / n])
            code = np.einsum("j,jw,jv->wv", share, corners, corners)
            level_noise = variance_of_code(k) if k else 0.0
            noise = length / randomizer.dim * float(np.trace(code)) / len(code)
            known = noisy * code
            if sums.squares is not None:
                spread = np.kron(code, sums.squares / n)
                if not k:
                    noise = float(np.trace(sums.squares / n)) / d
                    known = known * noise / (length / randomizer.dim)
        flat = cross.ravel()
        # Of one report, nothing tells the mean from the noise.
        own = max(0.0, n * float(flat @ flat) / flat.size - noise) / (n - 1) if n > 1 else 0.0
        noise = max(noise - own, _NEGLIGIBLE)
        spread = None if spread is None or n < 2 else (spread - np.outer(flat, flat)) * n / (n - 1)
        provenance = sums.release.provenance
        public = int(provenance.settings.get("sampled", provenance.public.count))
        return cls(
            cross,
            folds,
            counts,
            decoder.second,
            decoder.mean,
            noise,
            spread,
            turn,
            level,
            public,
            known,
            sums.labels is not None,
            asked.optional,
            level_noise,
        )

    @staticmethod
    def unknown_level(decoder: MomentsDecoder, width: int) -> Vectors | None:
        """Return zero without a constant feature, which would tell the level; otherwise None."""
        known = constant_feature(decoder.second, decoder.mean) is None
        return np.zeros(width) if known else None

    def posterior(self, cross: Vectors | None = None, n: float | None = None) -> Posterior:
        """Return the posterior mean of the coefficients, for other moments if given."""
        return posterior_mean(
            self.cross if cross is None else cross,
            self.second,
            self.mean,
            self.noise / (self.counts.sum() if n is None else n),
            self.level,
            self.level_noise / self.counts.sum(),
        )

    def least_squares(self) -> tuple[Vectors, Vectors]:
        """Return the coefficients that are not shrunk, (w, d), with standard errors.

        The variance is C⁻¹ S C⁻¹/n, S the covariance of a report, and that of C itself, estimated
        from N public vectors as for normal features: (b C b C⁻¹ + b bᵀ)/N. M and C are taken about
        the means if no feature is constant and the mean of the codes is known.
        """
        w, d = self.cross.shape
        second, cross = self.second, self.cross
        if self.level is not None and constant_feature(second, self.mean) is None:
            second, cross = self._centred(cross)
        inverse = inverse_of(second)
        estimate = cross @ inverse
        n = self.counts.sum()
        variances = np.empty((w, d))
        for row in range(w):
            block = slice(row * d, (row + 1) * d)
            spread = self.noise * np.eye(d) if self.spread is None else self.spread[block, block]
            own = estimate[row]
            public = (own @ second @ own) * np.diag(inverse) + own**2
            reported = np.diag(inverse @ spread @ inverse)
            if self.known is not None:
                least = self.known[row, row] * np.diag(inverse @ inverse)
                reported = np.maximum(reported, least)
            variances[row] = reported / n + public / self.public_count
        return estimate, np.sqrt(np.maximum(variances, 0))

    def _centred(self, cross: Vectors) -> tuple[Vectors, Vectors]:
        """Return C, and moments, about the means of features and codes, if these are known."""
        assert self.level is not None
        return self.second - np.outer(self.mean, self.mean), cross - np.outer(self.level, self.mean)

    def class_moments(self, found: Posterior) -> Vectors:
        """Return E[1{y = j} x], (k, d), under coefficients and an offset."""
        cross = found.slopes @ self.second + np.outer(found.offset, self.mean)
        moments: Vectors = self.turn @ cross + self.mean / len(self.turn)
        return moments

    def accuracy(self, features: Vectors, level: float) -> ExpectedAccuracy:
        """Return the cross-fitted accuracy if the chances of the answers are linear in features.

        A model that answers j where g_j(x) = 1 is right with probability Σ_j E[g_j p_j]. For linear
        chances p_j, g_j may be replaced by its least-squares fit ⟨q_j, x⟩, and Σ_j ⟨q_j, E[p_j x]⟩
        is a linear function of the moments. If the shares π_j of the classes are known, features
        and chances are taken about their means, and Σ_j π_j E g_j is added (docs/proofs.md §25.5).
        As in :meth:`Table.accuracy`, errors that all folds share are independent, and the others
        are counted as if they added up.
        """
        if self.optional:
            raise InvalidInput(
                "moments do not tell how many people had no answer, so not how often a model is "
                "right: ask people with an answer by fit_check()"
            )
        n, k = self.counts.sum(), len(self.turn)
        second = self.second if self.level is None else self._centred(self.cross)[0]
        inverse = inverse_of(second)
        corners = self.turn * (k / (k - 1))
        shares = np.full(k, 1 / k) if self.level is None else 1 / k + self.turn @ self.level
        folds = [fold for fold, count in enumerate(self.counts) if 0 < count < n]
        if n < LEAST_JUDGED or not folds:
            raise InvalidInput(
                f"there are too few reports to judge a model: at least {LEAST_JUDGED}"
            )
        estimates, directions, weights_of = [], [], []
        for fold in folds:
            count = self.counts[fold]
            others = (n * self.cross - count * self.folds[fold]) / (n - count)
            found = self.posterior(others, n - count)
            chosen = (features @ (self.turn @ found.slopes).T + self.turn @ found.offset).argmax(1)
            answers = np.eye(k)[chosen]
            centre = np.zeros_like(self.mean) if self.level is None else self.mean
            fitted = (answers.T @ (features - centre) / len(features)) @ inverse
            directions.append(self.turn.T @ fitted)
            # What one label of each class adds, besides its report.
            own = answers.mean(axis=0) - corners @ directions[-1] @ centre
            weights_of.append(own)
            estimates.append(float(shares @ own + (directions[-1] * self.folds[fold]).sum()))
        weights = self.counts[folds] / self.counts[folds].sum()
        middle = np.einsum("f,fwd->wd", weights, np.array(directions))
        spread = 0.0
        if self.labelled:
            own = weights @ np.array(weights_of)
            spread = max(0.0, float(shares @ own**2 - (shares @ own) ** 2))
        deviation = math.sqrt((self.variance(middle) + spread) / n)
        for weight, fold, direction in zip(weights, folds, directions, strict=True):
            deviation += weight * math.sqrt(self.variance(direction - middle) / self.counts[fold])
        estimate = float(weights @ estimates)
        reach = float(ndtri((1 + level) / 2)) * deviation
        assumed = "people's vectors are like the public ones, and the chances of their answers are "
        assumed += "linear in the features"
        if self.level is not None and not self.labelled:
            assumed += ", and all answers are equally common"
        return ExpectedAccuracy(
            float(np.clip(estimate, 0, 1)),
            float(np.clip(estimate - reach, 0, 1)),
            float(np.clip(estimate + reach, 0, 1)),
            assumed,
        )

    def variance(self, direction: Vectors) -> float:
        """Return the variance of ⟨direction, report⟩."""
        flat = direction.ravel()
        if self.spread is None:
            return self.noise * float(flat @ flat)
        least = 0.0 if self.known is None else float((direction * (self.known @ direction)).sum())
        return max(least, float(flat @ self.spread @ flat))

    def explained(self) -> float:
        """Return the variance that the slopes explain, cross-fitted."""
        n, total, used = self.counts.sum(), 0.0, 0.0
        covariance = self.second - np.outer(self.mean, self.mean)
        for fold, count in zip(self.folds, self.counts, strict=True):
            if not 0 < count < n:
                continue
            others = (n * self.cross - count * fold) / (n - count)
            found = self.posterior(others, n - count)
            level = found.offset + found.slopes @ self.mean
            centred = fold - np.outer(level, self.mean)
            own = found.slopes
            total += count * float(2 * (own * centred).sum() - ((own @ covariance) * own).sum())
            used += count
        return total / used if used else 0.0


def posterior_mean(
    cross: Vectors,
    second: Vectors,
    mean: Vectors,
    variance: float,
    level: Vectors | None = None,
    level_variance: float = 0.0,
) -> Posterior:
    """Return E[τ² M C (τ² C² + v I)⁻¹], over the posterior of τ.

    In the eigenbasis of C the moments are independent, N(0, τ² λ² + v), which gives the likelihood
    of τ. If the mean of the codes is known (``level``), M and C are taken about the means. If not,
    the coefficient of the constant feature is one of the others; without slopes, it has a prior of
    its own. A level with a variance is that of a sample: the offset is that of its posterior mean
    under such a prior, since otherwise the luck of the sample outweighs slopes that are shrunk.
    """
    constant = constant_feature(second, mean)
    rest = np.arange(len(mean)) != constant
    slopes = np.zeros_like(cross)
    if level is not None:
        covariance = second[np.ix_(rest, rest)] - np.outer(mean[rest], mean[rest])
        centred = cross[:, rest] - np.outer(level, mean[rest])
        slopes[:, rest], evidence = _shrunken(centred, covariance, variance)
        if level_variance:
            level = _shrunken(level[:, None], np.eye(1), level_variance)[0][:, 0]
        return Posterior(slopes, level - slopes @ mean, evidence)
    assert constant is not None, "without a constant feature the level is known"
    one = [constant]
    alone, _ = _shrunken(cross[:, one], second[np.ix_(one, one)], variance)
    joint, evidence = _shrunken(cross, second, variance, without=one)
    slopes[:, rest] = joint[:, rest]
    offset = joint[:, constant] + (1 - evidence) * alone[:, 0]
    return Posterior(slopes, offset * mean[constant], evidence)


def variance_of_code(classes: int) -> float:
    """Return the variance of a coordinate of a(y) among equally common classes, 1/(k − 1)."""
    return 1 / (classes - 1)


def constant_feature(second: Vectors, mean: Vectors) -> int | None:
    """Return the index of the feature that does not vary, or None."""
    fixed = np.flatnonzero((np.diag(second) - mean**2 < _NEGLIGIBLE) & (mean > 0))
    return int(fixed[0]) if fixed.size and len(mean) > 1 else None


def _shrunken(
    cross: Vectors, second: Vectors, variance: float, without: list[int] | None = None
) -> tuple[Vectors, float]:
    """Return the posterior mean of coefficients over τ, and the probability that τ is not zero.

    τ is zero with probability one half, otherwise of any size. The alternative to ``without`` is
    that only these features matter, instead of none. The coefficients explain no more than codes of
    length one allow, tr(B C Bᵀ) ≤ 1.
    """
    values, vecs = np.linalg.eigh(second)
    values = np.where(values > values[-1] * _NEGLIGIBLE, values, 0.0)
    turned = cross @ vecs
    taus = _STRENGTHS / math.sqrt(values[-1])
    likelihoods = _likelihoods((turned * turned).sum(axis=0), values, taus, variance, len(cross))
    if without is None:
        none = _likelihoods(
            (turned * turned).sum(axis=0), values, np.zeros(1), variance, len(cross)
        )
    else:
        squares = (cross * cross).sum(axis=0)
        own = np.append(0.0, taus)
        scale = np.zeros(len(squares))
        scale[without] = np.diag(second)[without]
        none = _likelihoods(squares, scale, own, variance, len(cross)) - math.log(len(own))
    weights = softmax(np.concatenate([none, likelihoods - math.log(len(taus))]))
    weights = weights[len(none) :]
    spread = np.square(np.multiply.outer(taus, values)) + variance
    slopes = turned * (weights @ (np.square(taus)[:, None] * values / spread))
    slopes /= math.sqrt(max(float((np.square(slopes) * values).sum()), 1.0))
    return slopes @ vecs.T, float(weights.sum())


def _likelihoods(
    squares: Vectors, values: Vectors, taus: Vectors, variance: float, width: int
) -> Vectors:
    """Return the log-likelihood of each τ from summed squares of moments, N(0, τ² λ² + v) each."""
    spread = np.square(np.multiply.outer(taus, values)) + variance
    found: Vectors = -0.5 * ((squares / spread).sum(axis=1) + width * np.log(spread).sum(axis=1))
    return found


def inverse_of(second: Vectors) -> Vectors:
    """Return the inverse of C on the directions that it has."""
    values, vecs = np.linalg.eigh(second)
    kept = values > values[-1] * _NEGLIGIBLE
    inverse: Vectors = (vecs[:, kept] / values[kept]) @ vecs[:, kept].T
    return inverse


def logistic(features: Vectors, moments: Vectors) -> tuple[Vectors, Vectors]:
    """Return weight (k, d) and bias (k,) of the logistic model with these moments.

    Minimises E[log Σ_j exp⟨b_j, x⟩] − Σ_j ⟨b_j, E[1{y = j} x]⟩ + λ‖b‖²/2 over the features. A
    constant feature gives the classes their shares; without one, these follow from the others.
    """
    k, d = moments.shape
    n = len(features)

    def objective(flat: Vectors) -> tuple[float, Vectors]:
        b = flat.reshape(k, d)
        logits = features @ b.T
        peak = logits.max(axis=1, keepdims=True)
        weights = np.exp(logits - peak)
        total = weights.sum(axis=1, keepdims=True)
        value = float((np.log(total) + peak).mean() - (b * moments).sum())
        gradient = (weights / total).T @ features / n - moments + _RIDGE * b
        return value + _RIDGE / 2 * float(flat @ flat), gradient.ravel()

    found = minimize(
        objective, np.zeros(k * d), jac=True, method="L-BFGS-B", options={"maxiter": 500}
    )
    return found.x.reshape(k, d), np.zeros(k)
