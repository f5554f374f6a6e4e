"""Which release asks people for a vector and a private answer? Fitted to public vectors alone.

:func:`fit_pairs` joins a public feature map, the code of the answers and an exact randomizer. What
such reports teach is in :mod:`offaxis.learning.estimators`. :func:`fit_check` asks other people one
bit: is this public model right for you?
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from offaxis.decoding import CellsDecoder, MomentsDecoder, RightDecoder
from offaxis.decoding.shares import Shares
from offaxis.encoding.pairs import (
    MOST_CLASSES,
    Asked,
    Classes,
    MomentsEncoder,
    Number,
    PairEncoder,
    RightEncoder,
    as_asked,
    pair_encoder,
    table_of,
)
from offaxis.errors import InvalidInput
from offaxis.formats.container import LARGEST_HEADER
from offaxis.formats.strict_json import canonical_json
from offaxis.geometry import Layers, as_task_model
from offaxis.geometry.models import answer_names, layers_for_answers
from offaxis.geometry.public import ROWS, PublicIdentity
from offaxis.learning.features import FeatureMap, as_public
from offaxis.learning.moments import constant_feature
from offaxis.privacy.guarantee import Unit
from offaxis.provenance import Provenance, check_statement
from offaxis.randomizers import KaryResponse, PrivUnit2, Randomizer, SubsetSelection
from offaxis.release import Release
from offaxis.vectors import as_number

MOST_MOMENTS: Final = 1 << 15
"""The largest dimension of cross moments."""

_LEAST_SHARE: Final = 1e-6
_LONGEST_NAMES: Final = LARGEST_HEADER - (1 << 17)


def fit_pairs(
    features: FeatureMap,
    answers: Any = None,
    *,
    epsilon: Any,
    unit: Unit = "item",
    statement: str = "",
) -> Release:
    """Fit a release of a vector and private answers, under one ε for both.

    Parameters
    ----------
    features : FeatureMap
        From :func:`~offaxis.learning.principal`, :func:`~offaxis.learning.cells` or
        :func:`~offaxis.learning.random_features`. Cells take classes only.
    answers : Classes, Number, int, list of str, or a list of Classes and Number; optional
        What people are asked for, besides the vector: a number of classes, their names, or several
        answers. None if the collector knows the labels anyway, or there are none.
    epsilon : number
        Budget of one report, read exactly.
    unit : {"item", "user"}
    statement : str
        Where the public data came from; stored in the release.

    Examples
    --------
    >>> from offaxis.learning import fit_pairs, principal
    >>> rng = np.random.default_rng(0)
    >>> public = rng.standard_normal((1000, 4))
    >>> release = fit_pairs(principal(public), ["no", "yes"], epsilon=2)
    >>> people = rng.standard_normal((3, 4))
    >>> reports = release.privatize(people, answers=["yes", "no", "yes"])
    >>> len(reports[0]) == release.report_size
    True
    """
    if not isinstance(features, FeatureMap):
        raise InvalidInput(
            f"features are a map such as principal(public) or cells(public), got an object of "
            f"type {type(features).__name__}"
        )
    asked = as_asked(answers)
    _check_learnable(asked)
    network = features.network
    form = "cells" if features.kind == "cells" else "moments"
    encoder = pair_encoder(form, network.activation)(
        network.weights, network.biases, table_of(asked)
    )
    x = features.of(features.sample)
    settings = {"mechanism": "pairs", "form": form, **features.settings, "sampled": float(len(x))}
    for part in asked:
        if isinstance(part, Number) and constant_feature(x.T @ x / len(x), x.mean(axis=0)) is None:
            raise InvalidInput(
                f"without a constant feature nothing tells the mean of {part.name!r}: use features "
                f"with intercept=True"
            )
    randomizer: Randomizer
    if isinstance(encoder, MomentsEncoder):
        if encoder.output_dim > MOST_MOMENTS:
            raise InvalidInput(
                f"{encoder.features} features and these answers have {encoder.output_dim} cross "
                f"moments; at most {MOST_MOMENTS} can be reported: use fewer features or classes"
            )
        randomizer = PrivUnit2(encoder.output_dim, 1.0, epsilon, target="vector")
        width = np.array([float(sum(encoder.widths))])
        decoder: Any = MomentsDecoder(x.T @ x / len(x), x.mean(axis=0), width)
    else:
        randomizer = SubsetSelection(encoder.output_dim, epsilon)
        counts = np.bincount(x.argmax(axis=1), minlength=features.size)
        shares = np.maximum(counts / len(x), _LEAST_SHARE)
        values = np.array([encoder.output_dim / features.size])
        decoder = CellsDecoder(shares / shares.sum(), values)
    return _release(encoder, randomizer, decoder, asked, features.public, settings, unit, statement)


def check_with_vector(asked: Sequence[Asked]) -> None:
    """Raise for answers that are not reported together with a vector."""
    for part in asked:
        if part.classes > MOST_CLASSES:
            raise InvalidInput(
                f"together with a vector, {part.name!r} has at most {MOST_CLASSES} classes, got "
                f"{part.classes}: offaxis.learning.fit_answers asks for more, without a vector"
            )
        if isinstance(part, Number) and part.bins:
            raise InvalidInput(
                f"together with a vector, {part.name!r} has no bins: leave them out, or use "
                f"offaxis.learning.fit_answers"
            )


def _check_learnable(asked: tuple[Asked, ...]) -> None:
    """Raise for answers that nothing could be learnt of, or that no file could hold."""
    check_with_vector(asked)
    for part in asked:
        if isinstance(part, Number) and part.optional:
            raise InvalidInput(
                f"reports do not tell missing numbers from middling ones, so nothing could be "
                f"learnt of {part.name!r}: ask everybody for it, or ask for a few ranges as "
                f"optional classes"
            )
    names = [list(part.names) for part in asked if isinstance(part, Classes)]
    # As a file holds them: JSON in JSON.
    if len(canonical_json(canonical_json(names))) > _LONGEST_NAMES:
        raise InvalidInput("the names of the classes are too long for a file: use shorter ones")


def fit_check(
    model: Any,
    public: Any,
    answers: Any = None,
    *,
    epsilon: Any,
    within: float | None = None,
    unit: Unit = "item",
    statement: str = "",
) -> Release:
    """Fit a release of one bit: is a public model right for this person?

    Ask people whose reports the model was not learnt from. :func:`accuracy` reads the reports.

    Parameters
    ----------
    model : public model
        A network, linear model or learnt model, as in :func:`offaxis.fit`.
    public : array (n, m), or callable returning an iterator of batches
        Public vectors; only their dimension matters, and the release names them.
    answers : Classes, Number, int or list of str, optional
        By default the model's own answers.
    epsilon : number
    within : float, optional
        For numbers: a prediction is right if it is off by this at most.

    Examples
    --------
    >>> from offaxis.learning import accuracy, fit_check
    >>> rng = np.random.default_rng(0)
    >>> people = rng.standard_normal((4000, 3))
    >>> release = fit_check(np.eye(3), people[:100], epsilon=2)
    >>> reports = release.privatize(people, answers=people.argmax(axis=1))
    >>> found = accuracy(release, reports)
    >>> bool(found.interval()[0] < 1 <= found.interval()[1])
    True
    """
    layers = layers_of(model)
    if answers is None:
        answers = list(layers.answers or ()) or layers.biases[-1].size
        if answers == 1:
            raise InvalidInput("a regressor needs answers=Number(low, high) and within=...")
    asked = as_asked(answers)
    if len(asked) != 1:
        raise InvalidInput("a model is checked on one answer")
    check_with_vector(asked)
    if isinstance(asked[0], Classes) and layers.answers is not None:
        layers = _in_order(layers, asked[0])
    if isinstance(asked[0], Number):
        layers = _band(layers, within)
    elif within is not None:
        raise InvalidInput("within is for numbers: leave it out for classes")
    make = pair_encoder("right", layers.activation)
    encoder = make(layers.weights, layers.biases, table_of(asked))
    vectors = as_public(public)
    identity = vectors.fold(vectors.hashing, ROWS).identity()
    if identity.dim != layers.input_dim:
        raise InvalidInput(
            f"the model takes {layers.input_dim} numbers, the public vectors have {identity.dim}"
        )
    settings: dict[str, str | float] = {"mechanism": "check"}
    if within is not None:
        settings["within"] = float(within)
    decoder = RightDecoder(np.array([2.0]))
    randomizer = KaryResponse(2, epsilon)
    return _release(encoder, randomizer, decoder, asked, identity, settings, unit, statement)


def accuracy(release: Release, reports: Any) -> AccuracyShare:
    """Return how often a public model is right, from reports of :func:`fit_check`.

    Unbiased, with a standard error of at most 1/(2 tanh(ε/2) √n), whatever the people.

    Examples
    --------
    >>> from offaxis.learning import accuracy, fit_check
    >>> people = np.random.default_rng(0).standard_normal((500, 2))
    >>> release = fit_check(np.eye(2), people[:50], epsilon=4)
    >>> found = accuracy(release, release.privatize(people, answers=people.argmax(axis=1)))
    >>> bool(found.estimate > 0.9)
    True
    """
    if not isinstance(release.encoder, RightEncoder):
        raise InvalidInput("this release does not ask whether a model is right: see fit_check()")
    return AccuracyShare(release.shares(reports))


class AccuracyShare:
    """An accuracy from private bits.

    Attributes
    ----------
    estimate, standard_error : float
    """

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self.estimate = float(shares.estimate[1])
        self.standard_error = float(shares.standard_error[1])

    def __repr__(self) -> str:
        """Return for example ``accuracy 0.894 ± 0.011``."""
        return f"accuracy {self.estimate:.3f} ± {self.standard_error:.3f}"

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the ends of a confidence interval that holds for every number of reports."""
        low, high = self._shares.interval(level)
        return float(low[1]), float(high[1])


def layers_of(model: Any) -> Layers:
    """Return a public model as a network, with the names of its answers."""
    layers = model if isinstance(model, Layers) else getattr(model, "layers_", None)
    if isinstance(layers, Layers):
        return layers
    task = as_task_model(model)
    found = layers_for_answers(task) or getattr(task, "as_layers", lambda: None)()
    if found is None:
        raise InvalidInput("devices must run the model: pass a fully connected network")
    names = answer_names(task)
    return Layers(found.weights, found.biases, found.activation, answers=names)


def _in_order(layers: Layers, asked: Classes) -> Layers:
    """Return the model with its outputs in the order of the classes that are asked for."""
    own, numbered = list(layers.answers or ()), tuple(map(str, range(asked.classes)))
    if len(own) != asked.classes or asked.names == numbered or tuple(own) == numbered:
        return layers
    if set(own) != set(asked.names):
        raise InvalidInput("the model answers with other classes than are asked for")
    order = [own.index(name) for name in asked.names]
    return Layers(
        [*layers.weights[:-1], layers.weights[-1][order]],
        [*layers.biases[:-1], layers.biases[-1][order]],
        layers.activation,
    )


def _band(layers: Layers, within: float | None) -> Layers:
    """Return the two outputs prediction ± within."""
    if within is None or not as_number(within, "within") > 0:
        raise InvalidInput("for numbers, pass within=...: how far off a right prediction may be")
    if layers.biases[-1].size != 1:
        raise InvalidInput("a number is predicted by one output")
    weight, bias = layers.weights[-1], layers.biases[-1]
    return Layers(
        [*layers.weights[:-1], np.vstack([weight, weight])],
        [*layers.biases[:-1], np.array([bias[0] - within, bias[0] + within])],
        layers.activation,
    )


def _release(
    encoder: PairEncoder,
    randomizer: Randomizer,
    decoder: Any,
    asked: tuple[Asked, ...],
    public: PublicIdentity,
    settings: dict[str, str | float],
    unit: Unit,
    statement: str,
) -> Release:
    check_statement(statement)
    provenance = Provenance(None, public, settings, statement)
    return Release(encoder, randomizer, decoder, provenance, unit, asked=asked)
