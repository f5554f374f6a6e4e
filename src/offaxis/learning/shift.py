"""People who differ from the public vectors: adapt a public model, from reports of vectors alone.

A public model was trained on a public population; the people who report have moved (noise, another
device, another clinic), or their classes have another mix. Nobody is asked for a label.

:func:`fit_shift` fits the release. With w = P(z − μ) the whitened coordinates of a vector in r
public directions, a device reports the direction of (w, √r/2) by PrivUnit2. The last coordinate is
the same for everybody, so that the direction tells the length of w, too, and nothing is clipped.
With ℓ(v|u) the density of a report v given the direction u (:mod:`offaxis.randomizers.privunit`),
three populations are compared by the likelihood of the reports, Σ_i log f(v_i):

* *unchanged*: f(v) is the mean of ℓ(v|w_j) over public vectors w_j;
* *moved*: the mean of ℓ(v|s·w_j + δ), with a shift δ and a scale s;
* *other mix*: Σ_c m_c f_c(v), f_c the mean over the public vectors of cell c.

:func:`adapt` subtracts the shift from the model's input if people moved, corrects the model for the
shares of its classes if the mix is another one, and otherwise leaves it as it is. Everything here
is a function of reports and public vectors, so it costs no privacy beyond that of the reports.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from scipy.stats import chi2

from offaxis.decoding import LinearDecoder, Shares, ShiftDecoder
from offaxis.encoding import NetworkEncoder
from offaxis.errors import InvalidInput
from offaxis.geometry import Layers, PublicVectors, as_task_model
from offaxis.geometry.jacobian import measure
from offaxis.geometry.models import layers_for_answers
from offaxis.geometry.public import PublicIdentity, evenly, survey
from offaxis.learning.tables import projected
from offaxis.mechanisms.codebook import nearest, partition
from offaxis.privacy.guarantee import Unit
from offaxis.provenance import Provenance, check_statement
from offaxis.randomizers import PrivUnit2
from offaxis.release import Release
from offaxis.vectors import Vectors, as_array, as_integer, check_finite, row_norms

RANK: Final = 9
"""Directions of a release, unless chosen."""

LEVEL: Final = 0.01
"""How often people like the public vectors count as changed."""

ODDS: Final = 20.0
"""The likelihood ratio, corrected for the numbers of parameters, from which one of two explanations
is believed."""

FIT_LEVEL: Final = 0.05
"""How often a population that is explained counts as unexplained, at most."""

_HEIGHT: Final = 0.5
"""The last coordinate of a reported vector, per √r."""

_SCALE_PRIOR: Final = 0.5
"""Standard deviation of log s before the reports."""

_SUPPORT: Final = 600
_PUBLIC: Final = 20_000
_FEWEST_CELLS: Final = 10
_MOST_CELLS: Final = 40
_LEAST_PER_CELL: Final = 20
_PER_PARAMETER: Final = 10
_NODES: Final = 4097
_NUMBERS: Final = 1 << 21
_STEPS: Final = 1000
_PROBES: Final = 100
_LEAST_RATIO: Final = 1 / 30
"""A class whose share is estimated as 0 still keeps this part of its public share."""

Verdict = Literal["unchanged", "moved", "other mix", "undecided"]


# ---- The release


def fit_shift(
    model: Any,
    public: Any,
    *,
    epsilon: Any,
    rank: int | None = None,
    unit: Unit = "item",
    statement: str = "",
) -> Release:
    """Fit a release of vectors whose reports tell how people differ from the public vectors.

    The directions are those in which the model changes most, then those of the largest public
    variance. The guarantee is that of PrivUnit2: pure ε, for any two vectors.

    Parameters
    ----------
    model : public classifier
        As in :func:`offaxis.fit`; a network or a linear model.
    public : array (n, m), or callable returning an iterator of batches
        Vectors of the population that the model was trained on. Take some that it was not trained
        *on*: of those, a network's features are too good.
    epsilon : number
        Budget of one report, read exactly.
    rank : int, optional
        r; by default :data:`RANK`, or fewer if the public vectors vary in fewer directions.
    unit, statement
        As in :func:`offaxis.fit`.

    Examples
    --------
    >>> from offaxis.learning.shift import fit_shift
    >>> rng = np.random.default_rng(0)
    >>> head, public = rng.standard_normal((3, 6)), rng.standard_normal((1000, 6))
    >>> release = fit_shift(head, public, epsilon=1)
    >>> str(release.guarantee), release.encoder.output_dim
    ('ε = 1, pure', 7)
    """
    check_statement(statement)
    vectors = PublicVectors(public)
    layers = _classifier(model)
    surveyed = survey(vectors)
    if surveyed.identity.dim != layers.input_dim:
        raise InvalidInput(
            f"the model takes vectors of dimension {layers.input_dim}, the public ones have "
            f"{surveyed.identity.dim}"
        )
    gram = measure(layers.centred(), vectors).gram
    forward, back = _whitening(surveyed.covariance, gram, rank)
    r = len(forward)
    height, length = math.sqrt(r) * _HEIGHT, math.sqrt(r * (1 + _HEIGHT**2))
    encoder = NetworkEncoder(
        [np.vstack([forward, np.zeros(layers.input_dim)])],
        [np.append(-forward @ surveyed.mean, height)],
    )
    decoder = LinearDecoder(
        np.column_stack([back * length, np.zeros(layers.input_dim)]), surveyed.mean
    )
    settings: dict[str, str | float] = {"mechanism": "shift", "rank": float(r)}
    provenance = Provenance(layers.identity(), surveyed.identity, settings, statement)
    return Release(encoder, PrivUnit2(r + 1, 1.0, epsilon), decoder, provenance, unit)


def _classifier(model: Any) -> Layers:
    """Return the network of a classifier."""
    layers = model if isinstance(model, Layers) else layers_for_answers(as_task_model(model))
    if layers is None or len(layers.biases[-1]) < 2:
        raise InvalidInput(
            "adapting needs a classifier that is a fully connected network or a linear model, with "
            "one output per class"
        )
    return layers


def _whitening(covariance: Vectors, gram: Vectors, rank: int | None) -> tuple[Vectors, Vectors]:
    """Return P (r, m) and its pseudo-inverse: whitened coordinates of r directions."""
    values, vectors = np.linalg.eigh(covariance)
    kept = values > max(values[-1], 0.0) * 1e-9
    if not kept.any():
        raise InvalidInput("the public vectors do not vary: they are all equal")
    values, vectors = values[kept][::-1], vectors[:, kept][:, ::-1]
    most = RANK if rank is None else as_integer(rank, "rank", 1, 4096)
    if rank is not None and most > values.size:
        raise InvalidInput(
            f"the public vectors vary in {values.size} directions, fewer than rank={rank}"
        )
    back = vectors * np.sqrt(values)
    sensitivity, turn = np.linalg.eigh(back.T @ gram @ back)
    read = turn[:, sensitivity > max(sensitivity[-1], 0.0) * 1e-9][:, ::-1]
    basis = np.linalg.qr(np.hstack([read, np.eye(values.size)]))[0][:, :most]
    return (basis.T / np.sqrt(values)) @ vectors.T, back @ basis


# ---- What is found


@dataclass(frozen=True, eq=False)
class Recentring:
    """A model whose input is shifted; made by :func:`recentre`.

    Attributes
    ----------
    model : Layers
        The model of z − shift.
    shift : (m,) array
        How far the people's vectors are from the public ones: ``factor`` times the estimate, in the
        release's directions.
    factor : float
        max(0, 1 − E/‖δ̂‖²), with E the expected squared error of the estimate: 1 if reports are
        many, 0 if there may be no shift at all.
    distance : float
        ‖δ̂‖ in public standard deviations, before shrinking.
    scale : float
        How spread out people's vectors are, as a multiple of the public ones. Not applied.
    """

    model: Layers
    shift: Vectors
    factor: float
    distance: float
    scale: float

    def __repr__(self) -> str:
        """Return for example ``Recentring(distance 0.87, factor 0.93, scale 0.79)``."""
        return (
            f"Recentring(distance {self.distance:.2f}, factor {self.factor:.2f}, "
            f"scale {self.scale:.2f})"
        )


@dataclass(frozen=True, eq=False)
class Adaptation:
    """A public model adapted to the people who reported; made by :func:`adapt`.

    Attributes
    ----------
    model : Layers
        The model to use, on clean vectors.
    verdict : {"unchanged", "moved", "other mix", "undecided"}
        The model is recentred if people moved, reweighted if their mix is another one, and
        otherwise the one that was passed.
    recentring : Recentring
        What recentring would do, whatever the verdict.
    shares : (k,) array
        Estimated shares of the model's answers, if only the mix is another one.
    change : float
        p-value of the hypothesis that nothing changed; up to :data:`LEVEL`, something did.
    odds : float
        Log likelihood ratio of *moved* against *other mix*, less the difference of their numbers of
        parameters. Beyond ± log :data:`ODDS` it decides.
    fit : float
        The larger one of the p-values of two tests that *moved* and *other mix* explain the
        reports. Up to :data:`FIT_LEVEL`, neither does.
    count : int
        Number of reports.
    epsilon : float
        Budget of one report.
    """

    model: Layers
    verdict: Verdict
    recentring: Recentring
    shares: Vectors
    change: float
    odds: float
    fit: float
    count: int
    epsilon: float

    @property
    def explained(self) -> bool:
        """False if neither a move nor another mix explains the reports."""
        return self.fit > FIT_LEVEL

    @property
    def summary(self) -> str:
        """What was found, what was done, and how far it can be trusted."""
        moved = self.recentring
        found = {
            "unchanged": "The reports show no change. The model is left as it is.",
            "moved": (
                f"The people have moved, by {moved.distance:.2f} public standard deviations; "
                f"{moved.factor:.0%} of that is subtracted from the model's input."
            ),
            "other mix": (
                "The people's classes have another mix. The model is corrected for the estimated "
                "shares of its classes."
            ),
            "undecided": (
                "The people differ, but the reports do not tell whether they moved or their "
                "classes have another mix. The model is left as it is, which loses nothing; more "
                "reports or a larger budget would tell."
            ),
        }[self.verdict]
        if not self.explained:
            fit = (
                f"Neither a move nor another mix explains the reports (p = {self.fit:.2g}): the "
                f"change is of another kind, and a correction may help less than it seems."
            )
        else:
            fit = f"The reports can be explained by a move or another mix (p = {self.fit:.2g})."
            if self.epsilon <= 1:
                fit += (
                    f" At ε = {self.epsilon:g} that is no comfort: this test misses most changes "
                    f"of another kind."
                )
        return f"{self.count:,} reports at ε = {self.epsilon:g}. {found} {fit}"

    def __repr__(self) -> str:
        """Return for example ``Adaptation(moved, 8000 reports, log odds 9.1, fit p = 0.41)``."""
        return (
            f"Adaptation({self.verdict}, {self.count} reports, log odds {self.odds:.1f}, "
            f"fit p = {self.fit:.2g})"
        )


def adapt(model: Any, release: Release, reports: Any, public: Any) -> Adaptation:
    """Adapt a public classifier to the people who reported, without labels.

    People who moved and people whose classes have another mix need different corrections, and each
    is wrong for the others: recentring costs people of another mix several points of accuracy. The
    likelihood of the reports decides. Where it does not, the model is left as it is.

    Parameters
    ----------
    model : public classifier
    release : Release
        From :func:`fit_shift` with this model and these public vectors.
    reports : iterable of bytes
        One per person.
    public : array (n, m), or callable returning an iterator of batches

    Returns
    -------
    Adaptation

    Raises
    ------
    InvalidInput
        If the release was fitted to something else, or there are too few reports.
    InvalidReport
        If a report is damaged or of another release.

    Examples
    --------
    >>> from offaxis.learning.shift import adapt, fit_shift
    >>> rng = np.random.default_rng(0)
    >>> centres = 4 * np.eye(3)
    >>> labels = rng.integers(3, size=4000)
    >>> vectors = centres[labels] + rng.standard_normal((4000, 3))
    >>> release = fit_shift(centres, vectors[:1000], epsilon=3)
    >>> moved = vectors[1000:] + [2.0, 0.0, 0.0]
    >>> adapted = adapt(centres, release, release.privatize(moved), vectors[:1000])
    >>> adapted.verdict
    'moved'
    >>> right = lambda head: (head.outputs(moved).argmax(axis=1) == labels[1000:]).mean()
    >>> from offaxis.geometry import Layers
    >>> bool(right(adapted.model) > right(Layers.linear(centres)))
    True
    """
    evidence = _evidence(model, release, _observed(release, reports), public)
    return adapt_to(evidence)


def recentre(model: Any, release: Release, reports: Any, public: Any) -> Recentring:
    """Shift a model's input by the estimated shift of the people, whatever its cause.

    For people who are known to have moved; :func:`adapt` finds out. Arguments are those of
    :func:`adapt`.

    Examples
    --------
    >>> from offaxis.learning.shift import fit_shift, recentre
    >>> rng = np.random.default_rng(0)
    >>> head, public = rng.standard_normal((2, 3)), rng.standard_normal((1000, 3))
    >>> release = fit_shift(head, public, epsilon=4)
    >>> reports = release.privatize(public + [1.0, 0.0, 0.0])
    >>> recentre(head, release, reports, public).shift.round(0) + 0.0
    array([1., 0., 0.])
    """
    return _evidence(model, release, _observed(release, reports), public).recentring


def adapt_to(evidence: Evidence) -> Adaptation:
    """Return the adaptation to what reports tell."""
    moved, mixed = evidence.moved, evidence.mixed
    gain = 2 * (moved.log_likelihood - evidence.unchanged.log_likelihood)
    change = float(chi2.sf(max(gain, 0.0), moved.parameters))
    odds = moved.log_likelihood - moved.parameters - mixed.log_likelihood + mixed.parameters
    layers, recentring = evidence.layers, evidence.recentring
    verdict: Verdict = "undecided"
    if change > LEVEL:
        verdict = "unchanged"
    elif odds >= math.log(ODDS):
        verdict, layers = "moved", recentring.model
    elif odds <= -math.log(ODDS):
        verdict = "other mix"
        layers = _with_shares(layers, evidence.shares, evidence.public.answers)
    return Adaptation(
        layers,
        verdict,
        recentring,
        evidence.shares,
        change,
        odds,
        max(evidence.fit(moved), evidence.fit(mixed)),
        len(evidence.reports),
        evidence.epsilon,
    )


def _observed(release: Release, reports: Any) -> Vectors:
    _check_release(release)
    identity = ShiftDecoder(np.zeros(release.encoder.output_dim))
    return np.concatenate(list(release.decode_in_batches(reports, identity)))


def _check_release(release: Release) -> None:
    """Raise for a release that fit_shift did not make."""
    encoder, randomizer = release.encoder, release.randomizer
    if (
        type(encoder) is not NetworkEncoder
        or type(randomizer) is not PrivUnit2
        or release.provenance.settings.get("mechanism") != "shift"
        or randomizer.target != "direction"
        or len(encoder.weights) != 1
        or encoder.weights[0][-1].any()
        or not encoder.biases[0][-1] > 0
    ):
        raise InvalidInput(
            "reports of this release do not tell how people differ: fit one with "
            "offaxis.learning.fit_shift"
        )


def _evidence(model: Any, release: Release, observations: Vectors, public: Any) -> Evidence:
    """Return what observations of reports tell; checks that all arguments belong together."""
    _check_release(release)
    layers, vectors = _classifier(model), PublicVectors(public)
    if release.provenance.model != layers.identity():
        raise InvalidInput("the release was fitted to another model: pass that model")
    surveyed = survey(vectors)
    if surveyed.identity != release.provenance.public:
        raise InvalidInput("the release was fitted to other public vectors: pass those vectors")
    fewest = _PER_PARAMETER * release.encoder.output_dim
    if len(observations) < fewest:
        raise InvalidInput(
            f"{len(observations)} reports are too few to tell how people differ: at least {fewest} "
            f"are needed"
        )
    support = _support(layers, release, vectors, surveyed.identity)
    back = _back(release)
    return Evidence(
        layers, release, observations / row_norms(observations, 2)[:, None], support, back
    )


def _back(release: Release) -> Vectors:
    """Return B (m, r): whitened coordinates to vectors."""
    decoder: Any = release.decoder
    r = release.encoder.output_dim - 1
    back: Vectors = decoder.matrix[:, :r] / math.sqrt(r * (1 + _HEIGHT**2))
    return back


# ---- Public vectors


@dataclass(frozen=True, eq=False)
class PublicCells:
    """Public coordinates in cells of one answer each, with the shares of cells and answers.

    A cell has the share that all public vectors give it, whatever number of them is kept.
    """

    coordinates: Vectors
    weights: Vectors
    cells: NDArray[np.int64]
    shares: Vectors
    table: Vectors
    count: int

    @property
    def answers(self) -> Vectors:
        """The shares of the model's answers among public vectors, (k,)."""
        answers: Vectors = self.shares @ self.table
        return answers


def _support(
    layers: Layers, release: Release, vectors: PublicVectors, identity: PublicIdentity
) -> PublicCells:
    """Return some public vectors of every cell."""
    sample = evenly(vectors, _PUBLIC)
    coordinates = release.encoder.encode(sample)[:, :-1]
    answers = layers.outputs(sample).argmax(axis=1)
    seed = int(identity.sha256[:16], 16)
    used = np.unique(answers)
    cells = np.zeros(len(sample), dtype=np.int64)
    if used.size > _MOST_CELLS:
        cells = nearest(coordinates, partition(coordinates, math.inf, _MOST_CELLS, seed))
    else:
        count = 0
        for answer in used:
            own = answers == answer
            size = min(-(-_FEWEST_CELLS // used.size), max(1, int(own.sum()) // _LEAST_PER_CELL))
            points = partition(coordinates[own], math.inf, size, seed)
            cells[own] = count + nearest(coordinates[own], points)
            count += len(points)
    _, cells, counts = np.unique(cells, return_inverse=True, return_counts=True)
    table = np.zeros((counts.size, len(layers.biases[-1])))
    np.add.at(table, (cells, answers), 1 / counts[cells])
    each = max(_SUPPORT // counts.size, 2)
    kept = np.concatenate(
        [
            np.flatnonzero(cells == c)[np.linspace(0, n - 1, min(n, each)).astype(np.int64)]
            for c, n in enumerate(counts)
        ]
    )
    shares = counts / len(sample)
    weights = shares[cells[kept]] / np.bincount(cells[kept])[cells[kept]]
    return PublicCells(coordinates[kept], weights, cells[kept], shares, table, identity.count)


# ---- Likelihoods


@dataclass(frozen=True, eq=False)
class Population:
    """An explanation of the reports.

    Attributes
    ----------
    directions, weights : (J, q) and (J,) arrays
        Its vectors.
    density : (n,) array
        f(v_i), up to one constant.
    scores : (n, p) array
        Derivatives of log f(v_i) by what was fitted.
    parameters : int
        Number of fitted parameters.
    fitted : array
        (δ, log s), or the shares of cells.
    """

    directions: Vectors
    weights: Vectors
    density: Vectors
    scores: Vectors
    parameters: int
    fitted: Vectors

    @property
    def log_likelihood(self) -> float:
        """Σ_i log f(v_i)."""
        return float(np.log(self.density).sum())


class Evidence:
    """What reports tell about three populations: unchanged, moved, and of another mix."""

    def __init__(
        self, layers: Layers, release: Release, reports: Vectors, public: PublicCells, back: Vectors
    ) -> None:
        randomizer: Any = release.randomizer
        self.layers, self.reports, self.public, self._back = layers, reports, public, back
        self.epsilon = float(release.guarantee.epsilon)
        self._rank = reports.shape[1] - 1
        self._height = math.sqrt(self._rank) * _HEIGHT
        angle = np.linspace(-np.pi / 2, np.pi / 2, _NODES)
        at = np.zeros((_NODES, self._rank + 1))
        at[:, 0], at[:, 1] = np.sin(angle), np.cos(angle)
        pole = np.broadcast_to(np.eye(self._rank + 1)[0], at.shape)
        self._cosine = at[:, 0].copy()
        self._ratio = np.exp(randomizer.log_density(at, pole))
        self._slope = np.gradient(self._ratio, self._cosine)

    def _blocks(self, width: int) -> Iterator[slice]:
        step = max(1, _NUMBERS // width)
        for start in range(0, len(self.reports), step):
            yield slice(start, start + step)

    def _ratios(self, block: slice, directions: Vectors) -> Vectors:
        """Return ℓ(v_i|u_j), (n, J)."""
        ratios: Vectors = np.interp(self.reports[block] @ directions.T, self._cosine, self._ratio)
        return ratios

    def _lifted(self, w: Vectors) -> tuple[Vectors, Vectors]:
        """Return the directions of (w, height), and the lengths."""
        lifted = np.column_stack([w, np.full(len(w), self._height)])
        lengths = row_norms(lifted, 2)
        return lifted / lengths[:, None], lengths

    # ---- Unchanged, or of another mix

    @cached_property
    def _cells(self) -> Vectors:
        """f_c(v_i), (n, K)."""
        public = self.public
        directions, _ = self._lifted(public.coordinates)
        member = np.eye(public.shares.size)[public.cells] * public.weights[:, None] / public.shares
        blocks = self._blocks(len(directions))
        return np.concatenate([self._ratios(block, directions) @ member for block in blocks])

    def _mixture(self, shares: Vectors, parameters: int) -> Population:
        public = self.public
        directions, _ = self._lifted(public.coordinates)
        density = self._cells @ shares
        weights = public.weights * (shares / public.shares)[public.cells]
        scores = self._cells / density[:, None] - 1
        return Population(directions, weights, density, scores, parameters, shares)

    @cached_property
    def unchanged(self) -> Population:
        """The public vectors."""
        return self._mixture(self.public.shares, 0)

    @cached_property
    def mixed(self) -> Population:
        """The shares of public cells of largest likelihood, by expectation–maximisation."""
        shares = self.public.shares
        for _ in range(_STEPS):
            before = shares
            shares = shares * (self._cells / (self._cells @ shares)[:, None]).mean(axis=0)
            if np.abs(shares - before).max() < 1e-7:
                break
        return self._mixture(shares / shares.sum(), shares.size - 1)

    @cached_property
    def shares(self) -> Vectors:
        """The shares of the model's answers, shrunk towards the public ones, (k,).

        The estimate of largest likelihood, not restricted to positive shares, has the covariance
        I⁻¹, I the information of the reports.
        """
        cells, public = self._cells, self.public
        if public.shares.size == 1:
            return public.answers
        basis = _contrasts(public.shares.size)
        shares = public.shares
        for _ in range(8):
            scores = cells @ basis / (cells @ shares)[:, None]
            step = basis @ (np.linalg.pinv(scores.T @ scores) @ scores.sum(axis=0))
            while (cells @ (shares + step)).min() <= 0.02:
                step /= 2
            shares = shares + step
            if np.abs(step).max() < 1e-6:
                break
        scores = cells @ basis / (cells @ shares)[:, None]
        apart = basis.T @ (shares - public.shares)
        answers: Vectors = _shrunken(apart, scores.T @ scores, public.shares) @ public.table
        return answers

    # ---- Moved

    def _moved_by(self, fitted: Vectors) -> Population:
        """Return the public vectors s·w + δ; fitted is (δ, log s).

        With u = y/‖y‖ and y = (s·w + δ, height), the derivative of ⟨v, u⟩ in a direction d of y is
        (⟨v, d⟩ − ⟨v, u⟩⟨u, d⟩)/‖y‖.
        """
        public, r = self.public, self._rank
        scaled = math.exp(fitted[r]) * public.coordinates
        directions, lengths = self._lifted(scaled + fitted[:r])
        density, scores = np.empty(len(self.reports)), np.empty((len(self.reports), r + 1))
        along = (directions[:, :r] * scaled).sum(axis=1)
        for block in self._blocks(2 * len(directions)):
            v = self.reports[block, :r]
            cosines = self.reports[block] @ directions.T
            density[block] = np.interp(cosines, self._cosine, self._ratio) @ public.weights
            slopes = np.interp(cosines, self._cosine, self._slope) * (public.weights / lengths)
            cosines *= slopes
            scores[block, :r] = v * slopes.sum(axis=1)[:, None] - cosines @ directions[:, :r]
            scores[block, r] = (v * (slopes @ scaled)).sum(axis=1) - cosines @ along
        scores /= density[:, None]
        return Population(directions, public.weights, density, scores, r + 1, fitted)

    @cached_property
    def moved(self) -> Population:
        """The shift and the scale of largest likelihood, with a weak prior on log s."""
        prior = self._prior

        def value(population: Population) -> float:
            fitted = population.fitted
            return population.log_likelihood - float(fitted @ prior @ fitted) / 2

        at = self._moved_by(np.zeros(self._rank + 1))
        for _ in range(50):
            gradient = at.scores.sum(axis=0) - prior @ at.fitted
            step = np.linalg.lstsq(at.scores.T @ at.scores + prior, gradient, rcond=None)[0]
            length = float(np.linalg.norm(step))
            step *= min(1.0, 1.0 / max(length, 1e-300))
            new = self._moved_by(at.fitted + step)
            while value(new) < value(at) and np.abs(step).max() > 1e-4:
                step /= 2
                new = self._moved_by(at.fitted + step)
            gain = value(new) - value(at)
            if gain > 0:
                at = new
            if gain < 0.01:
                break
        return at

    @property
    def _prior(self) -> Vectors:
        return np.diag(np.append(np.zeros(self._rank), _SCALE_PRIOR**-2))

    @cached_property
    def recentring(self) -> Recentring:
        """The model with its input shifted."""
        moved, r = self.moved, self._rank
        delta = moved.fitted[:r]
        covariance = np.linalg.pinv(moved.scores.T @ moved.scores + self._prior)
        noise = float(np.trace(covariance[:r, :r])) + r / self.public.count
        distance = float(np.linalg.norm(delta))
        factor = max(0.0, 1 - noise / max(distance**2, 1e-300))
        shift = factor * (self._back @ delta)
        layers = self.layers
        biases = [layers.biases[0] - layers.weights[0] @ shift, *layers.biases[1:]]
        model = replace(layers, biases=biases, name=_named(layers, "recentred"))
        return Recentring(model, shift, factor, distance, math.exp(moved.fitted[r]))

    # ---- Goodness of fit

    def fit(self, population: Population) -> float:
        """Return the p-value of a score test that a population explains the reports.

        The alternatives add vectors of any direction u, of which :data:`_PROBES` random ones are
        tried: their scores are s_i(u) = ℓ(v_i|u)/f(v_i) − 1. They are made orthogonal to the
        scores of what was fitted. The statistic is the squared length of their sum; under the null
        hypothesis it is a sum of squares of normal variables with the covariance of the scores,
        approximated by a multiple of a χ² variable with the same mean and variance. The covariance
        includes that the public vectors are a sample, too.
        """
        probes = np.random.default_rng(0).standard_normal((_PROBES, self._rank + 1))
        probes /= row_norms(probes, 2)[:, None]
        size = _PROBES + population.scores.shape[1]
        sums, products = np.zeros(size), np.zeros((size, size))
        influence = np.zeros((len(population.directions), size))
        for block in self._blocks(len(population.directions) + _PROBES):
            density = population.density[block, None]
            tried = self._ratios(block, probes) / density - 1
            scores = np.hstack([tried, population.scores[block]])
            sums += scores.sum(axis=0)
            products += scores.T @ scores
            influence += (self._ratios(block, population.directions) / density).T @ scores
        fitted = products[_PROBES:, _PROBES:]
        project = np.vstack(
            [np.eye(_PROBES), -np.linalg.pinv(fitted) @ products[_PROBES:, :_PROBES]]
        )
        total = sums @ project
        spread = (influence @ project - total) * population.weights[:, None]
        covariance = project.T @ products @ project + spread.T @ spread
        mean, square = float(np.trace(covariance)), float((covariance**2).sum())
        if mean <= 0:
            return 1.0
        return float(chi2.sf(float(total @ total) * mean / square, mean**2 / square))


# ---- Shares


def reweight(model: Any, shares: Any, public: Any, *, labels: Any = None) -> Layers:
    """Correct a classifier for the shares of the classes among people (label shift).

    If only the shares π of the classes differ from the public ones π₀, the logits of a model that
    gives probabilities have to be changed by log(π/π₀). Reports of *answers* have the shares Cπ, C
    the confusion matrix P(answer | class) on public vectors; it is inverted by generalised least
    squares, with the covariance of the reported shares (Lipton, Wang, Smola 2018). The result is
    shrunk towards π₀ by marginal likelihood.

    Parameters
    ----------
    model : public classifier
    shares : Shares, or array (k,)
        ``release.shares(reports)`` of a release of this model's answers ("class-response"); or the
        shares of the classes themselves.
    public : array (n, m), or callable returning an iterator of batches
    labels : (n,) integers, optional
        The classes of the public vectors, one per vector. By default the model's probabilities
        stand for them.

    Returns
    -------
    Layers

    Examples
    --------
    >>> from offaxis.learning.shift import reweight
    >>> public = np.array([[1.0, -1.0], [-1.0, 1.0]] * 50)
    >>> reweight(np.eye(2), [0.8, 0.2], public).biases[-1].round(2)  # log 1.6 and log 0.4
    array([ 0.47, -0.92])
    """
    layers, vectors = _classifier(model), PublicVectors(public)
    sample = np.concatenate(list(vectors.batches(_PUBLIC)))
    logits = layers.outputs(sample)
    k = logits.shape[1]
    if labels is None:
        classes = softmax(logits, axis=1)
    else:
        listed = np.asarray(labels)
        if listed.shape != (len(sample),) or listed.dtype.kind not in "iu":
            raise InvalidInput("labels must be integers, one per public vector")
        if listed.min() < 0 or listed.max() >= k:
            raise InvalidInput(f"labels must be classes 0 to {k - 1}")
        classes = np.eye(k)[listed]
    old = classes.mean(axis=0)
    if not isinstance(shares, Shares):
        new = as_array(shares, "shares")
        check_finite(new, "shares")
        if new.shape != (k,) or (new < 0).any() or not abs(new.sum() - 1) < 1e-6:
            raise InvalidInput(f"shares must be {k} numbers of at least 0 that sum to 1")
        return _with_shares(layers, new, old)
    if shares.groups is not None or shares.randomizer.size != k:
        raise InvalidInput(
            f"shares must be those of all {k} answers of the model among one group of people"
        )
    if int(shares.count) < _PER_PARAMETER * k:
        raise InvalidInput(
            f"{int(shares.count)} reports are too few for the shares of {k} classes: at least "
            f"{_PER_PARAMETER * k} are needed"
        )
    answers = np.eye(k)[logits.argmax(axis=1)]
    confusion = answers.T @ classes / len(sample) / np.maximum(old, 1e-300)
    basis = _contrasts(k)
    precision = np.linalg.pinv(shares.covariance(), hermitian=True)
    seen = confusion @ basis
    information = seen.T @ precision @ seen
    apart = np.linalg.pinv(information) @ seen.T @ precision @ (shares.estimate - confusion @ old)
    return _with_shares(layers, _shrunken(apart, information, old), old)


def _contrasts(size: int) -> Vectors:
    """Return an orthonormal basis (k, k − 1) of differences of shares."""
    basis: Vectors = np.linalg.svd(np.ones((1, size)))[2][1:].T
    return basis


def _shrunken(apart: Vectors, information: Vectors, public: Vectors) -> Vectors:
    """Return the posterior mean of shares under the prior N(π₀, τ(diag π₀ − π₀π₀ᵀ)), projected.

    ``apart`` is the unbiased estimate of the difference from π₀ in a basis of differences. τ has
    the largest marginal likelihood.
    """
    basis = _contrasts(public.size)
    noise = np.linalg.pinv(information, hermitian=True)
    prior = basis.T @ (np.diag(public) - np.outer(public, public)) @ basis
    # In coordinates in which the noise is I and the prior diagonal.
    values, vectors = np.linalg.eigh(noise)
    root = vectors * np.sqrt(np.maximum(values, values[-1] * 1e-12))
    whiten = np.linalg.inv(root)
    spread, turn = np.linalg.eigh(whiten @ prior @ whiten.T)
    spread = np.maximum(spread, 0.0)
    coordinates = turn.T @ whiten @ apart
    grid = np.append(0.0, np.geomspace(1e-5, 1e2, 141))[:, None]
    variance = 1 + grid * spread
    fit = -(np.log(variance) + coordinates**2 / variance).sum(axis=1)
    tau = float(grid[fit.argmax(), 0])
    mean = root @ turn @ (coordinates * tau * spread / (1 + tau * spread))
    nearest_shares: Vectors = projected((public + basis @ mean)[None])[0]
    return nearest_shares


def _with_shares(layers: Layers, new: Vectors, old: Vectors) -> Layers:
    """Return the classifier with log(new/old) added to its outputs."""
    known = old > 0
    ratio = np.where(known, new / np.where(known, old, 1.0), 1.0)
    bias = layers.biases[-1] + np.log(np.maximum(ratio, _LEAST_RATIO))
    return replace(layers, biases=[*layers.biases[:-1], bias], name=_named(layers, "reweighted"))


def _named(layers: Layers, change: str) -> str:
    return f"{layers.name[:180]} {change}"
