"""People who differ from the public vectors: adapt a public model, from reports of vectors alone.

A public model was trained on a public population; the people who report have moved (noise, another
device, another clinic), or their classes have another mix. Nobody is asked for a label.

:func:`fit_shift` fits the release. With w = P(z − μ) the whitened coordinates of a vector in r
public directions, a device reports the direction of (w, √r/2) by PrivUnit2. The last coordinate is
the same for everybody, so that the direction tells the length of w, too, and nothing is clipped.

:func:`adapt` compares by the likelihood of the reports whether people moved or have another mix
(:mod:`offaxis.learning.evidence`). It subtracts the shift from the model's input if they moved,
corrects the model for the shares of its classes if the mix is another one, and otherwise leaves it
as it is. Everything here is a function of reports and public vectors, so it costs no privacy beyond
that of the reports.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
from scipy.special import softmax
from scipy.stats import chi2

from offaxis.decoding import LinearDecoder, Shares, ShiftDecoder
from offaxis.encoding import NetworkEncoder
from offaxis.errors import InvalidInput
from offaxis.geometry import Layers, PublicVectors
from offaxis.geometry.jacobian import measure
from offaxis.geometry.public import evenly, survey
from offaxis.learning.evidence import (
    HEIGHT,
    Evidence,
    contrasts,
    public_cells,
    shrunken_shares,
)
from offaxis.learning.pairs import layers_of
from offaxis.learning.tables import projected
from offaxis.privacy.guarantee import Unit
from offaxis.provenance import Provenance, check_statement
from offaxis.randomizers import PrivUnit2
from offaxis.release import Release
from offaxis.vectors import Vectors, as_array, as_integer, check_finite

RANK: Final = 9
"""Directions of a release, unless chosen."""

LEVEL: Final = 0.01
"""How often people like the public vectors count as changed."""

ODDS: Final = 20.0
"""The likelihood ratio, corrected for the numbers of parameters, from which one of two explanations
is believed."""

FIT_LEVEL: Final = 0.05
"""The level of the goodness-of-fit test; 8 % at most in simulations of 8,000 reports."""

_PUBLIC: Final = 20_000
"""Public vectors that are compared with the reports."""

_PER_PARAMETER: Final = 10
"""The fewest reports per estimated number."""

_SUMS_TO_ONE: Final = 1e-6

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
        As in :func:`offaxis.fit`; a network, a linear model or a learnt one.
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
    _gives_chances(layers.outputs(evenly(vectors, _PUBLIC)))
    gram = measure(layers.centred(), vectors).gram
    forward, back = _whitening(surveyed.covariance, gram, rank)
    r = len(forward)
    height, length = math.sqrt(r) * HEIGHT, math.sqrt(r * (1 + HEIGHT**2))
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
    layers = layers_of(model)
    if len(layers.biases[-1]) < 2:
        raise InvalidInput("adapting needs a classifier, with one output per class")
    return layers


def _whitening(covariance: Vectors, gram: Vectors, rank: int | None) -> tuple[Vectors, Vectors]:
    """Return P (r, m) and its pseudo-inverse: whitened coordinates of r directions."""
    values, vectors = np.linalg.eigh(covariance)
    kept = values > values[-1] * 1e-9
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
    return Comparison(model, release, observed(release, reports), public).adaptation


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
    return Comparison(model, release, observed(release, reports), public).recentring


def observed(release: Release, reports: Any) -> Vectors:
    """Return the observations of reports, (n, r + 1)."""
    _check_release(release)
    identity = ShiftDecoder(np.zeros(release.encoder.output_dim))
    return np.concatenate(list(release.decode_in_batches(reports, identity)))


def _check_release(release: Release) -> None:
    """Raise for a release that fit_shift did not make."""
    encoder, randomizer = release.encoder, release.randomizer
    if (
        release.provenance.settings.get("mechanism") != "shift"
        or type(encoder) is not NetworkEncoder
        or len(encoder.weights) != 1
        or type(randomizer) is not PrivUnit2
        or randomizer.target != "direction"
        or type(release.decoder) is not LinearDecoder
    ):
        raise InvalidInput(
            "reports of this release do not tell how people differ: fit one with "
            "offaxis.learning.fit_shift"
        )


class Comparison:
    """The people of some reports, compared with public vectors; the arguments must fit together.

    Parameters
    ----------
    model, release, public
        As in :func:`adapt`.
    observations : (n, r + 1) array
        Of reports (:func:`observed`), or simulated.
    """

    def __init__(self, model: Any, release: Release, observations: Vectors, public: Any) -> None:
        _check_release(release)
        layers, vectors = _classifier(model), PublicVectors(public)
        if release.provenance.model != layers.identity():
            raise InvalidInput("the release was fitted to another model: pass that model")
        identity = survey(vectors).identity
        if identity != release.provenance.public:
            raise InvalidInput("the release was fitted to other public vectors: pass those vectors")
        dim = release.encoder.output_dim
        if len(observations) < _PER_PARAMETER * dim:
            raise InvalidInput(
                f"{len(observations)} reports are too few to tell how people differ: at least "
                f"{_PER_PARAMETER * dim} are needed"
            )
        sample = evenly(vectors, _PUBLIC)
        outputs = layers.outputs(sample)
        self._chances, answers = _gives_chances(outputs), outputs.argmax(axis=1)
        coordinates = release.encoder.encode(sample)[:, :-1]
        classes, seed = len(layers.biases[-1]), int(identity.sha256[:16], 16)
        cells = public_cells(coordinates, answers, classes, seed)
        randomizer: Any = release.randomizer
        decoder: Any = release.decoder
        self.evidence = Evidence(randomizer, observations, cells)
        self._back = decoder.matrix[:, :-1] / math.sqrt((dim - 1) * (1 + HEIGHT**2))
        self._layers, self._release, self._public = layers, release, identity.count

    @cached_property
    def recentring(self) -> Recentring:
        """The model with its input shifted."""
        fitted = self.evidence.moved.fitted
        delta = fitted[:-1]
        noise = self.evidence.shift_error + delta.size / self._public
        distance = float(np.linalg.norm(delta))
        factor = max(0.0, 1 - noise / max(distance**2, 1e-300))
        shift = factor * (self._back @ delta)
        layers = self._layers
        biases = [layers.biases[0] - layers.weights[0] @ shift, *layers.biases[1:]]
        model = replace(layers, biases=biases, name=_named(layers, "recentred"))
        return Recentring(model, shift, factor, distance, math.exp(fitted[-1]))

    @cached_property
    def reweighted(self) -> Layers:
        """The model for the estimated shares of its answers."""
        old = self.evidence.public.answers
        return _with_shares(self._layers, self.shares, old, self._chances)

    @property
    def shares(self) -> Vectors:
        """The estimated shares of the model's answers, if only the mix is another one."""
        shares: Vectors = self.evidence.cell_shares @ self.evidence.public.table
        return shares

    @cached_property
    def change(self) -> float:
        """The p-value of a likelihood ratio test that nothing changed."""
        moved = self.evidence.moved
        gain = 2 * (moved.log_likelihood - self.evidence.unchanged.log_likelihood)
        return float(chi2.sf(max(gain, 0.0), moved.parameters))

    @cached_property
    def odds(self) -> float:
        """The corrected log likelihood ratio of *moved* against *other mix*."""
        moved, mixed = self.evidence.moved, self.evidence.mixed
        gain = moved.log_likelihood - mixed.log_likelihood
        return gain - (moved.parameters - mixed.parameters)

    @cached_property
    def adaptation(self) -> Adaptation:
        """The model to use, and why."""
        evidence, model = self.evidence, self._layers
        verdict = _verdict(self.change, self.odds)
        if verdict == "moved":
            model = self.recentring.model
        elif verdict == "other mix":
            model = self.reweighted
        return Adaptation(
            model,
            verdict,
            self.recentring,
            self.shares,
            self.change,
            self.odds,
            max(evidence.fit(evidence.moved), evidence.fit(evidence.mixed)),
            len(evidence.reports),
            float(self._release.guarantee.epsilon),
        )


def _verdict(change: float, odds: float) -> Verdict:
    if change > LEVEL:
        return "unchanged"
    if abs(odds) < math.log(ODDS):
        return "undecided"
    return "moved" if odds > 0 else "other mix"


# ---- Shares


def reweight(model: Any, shares: Any, public: Any, *, labels: Any = None) -> Layers:
    """Correct a classifier for the shares of the classes among people (label shift).

    If only the shares π of the classes differ from the public ones π₀, probabilities have to be
    multiplied by π/π₀: log(π/π₀) is added to the logits of a model. Outputs that
    are probabilities, such as those of cells, are multiplied; least squares gives neither logits
    nor probabilities, and is refused. Reports of *answers* have the shares Cπ, C
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
    chances = _gives_chances(logits)
    if labels is None:
        classes = projected(logits) if chances else softmax(logits, axis=1)
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
        return _with_shares(layers, new, old, chances)
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
    basis = contrasts(k)
    precision = np.linalg.pinv(shares.covariance(), hermitian=True)
    seen = confusion @ basis
    information = seen.T @ precision @ seen
    apart = np.linalg.pinv(information) @ seen.T @ precision @ (shares.estimate - confusion @ old)
    return _with_shares(layers, shrunken_shares(apart, information, old), old, chances)


def _gives_chances(outputs: Vectors) -> bool:
    """Return whether the outputs of public vectors are probabilities: logits do not sum to one.

    Of most vectors, because cells are smooth where two of them meet. Raise for least squares, whose
    outputs sum to one and are no probabilities: shares would correct them wrongly.
    """
    one = bool(np.median(np.abs(outputs.sum(axis=1) - 1)) < _SUMS_TO_ONE)
    if one and outputs.min() < -_SUMS_TO_ONE:
        raise InvalidInput(
            "the outputs of a model by least squares are neither logits nor probabilities, so they "
            "cannot be corrected for shares: learn it with method='logistic'"
        )
    return one


def _with_shares(layers: Layers, new: Vectors, old: Vectors, chances: bool) -> Layers:
    """Return the classifier with log(new/old) added to its logits, or chances times new/old."""
    known = old > 0
    ratio = np.where(known, new / np.where(known, old, 1.0), 1.0)
    ratio = np.maximum(ratio, _LEAST_RATIO)
    weight, bias = layers.weights[-1], layers.biases[-1]
    if chances:
        weight, bias = ratio[:, None] * weight, ratio * bias
    else:
        bias = bias + np.log(ratio)
    return replace(
        layers,
        weights=[*layers.weights[:-1], weight],
        biases=[*layers.biases[:-1], bias],
        name=_named(layers, "reweighted"),
    )


def _named(layers: Layers, change: str) -> str:
    return f"{layers.name[:180]} {change}"
