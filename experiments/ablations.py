"""Ablations: releases with one part of the map left out, to measure what each part contributes.

The full method is w = L^{−1}(z − μ), noise, ẑ = L v + μ with L = U Λ^{1/2}. An ablation replaces
the basis U, leaves out the map before the noise, or leaves out the map after it. All are releases
with the full guarantee, because it depends on the randomizer alone; what they lose is utility.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np

from experiments.reference_protocol import reference_shape
from offaxis.decoding import Decoder, ShiftDecoder
from offaxis.decoding.decoders import back_from
from offaxis.encoding import FittedReshaping, Frame, reshape
from offaxis.errors import InvalidInput
from offaxis.evaluation import Evaluation, evaluate
from offaxis.geometry import Geometry, PublicVectors, as_task_model, measure, spectrum
from offaxis.mechanisms import PublicInputs, find_mechanism
from offaxis.mechanisms.literature import randomizer_behind
from offaxis.privacy.guarantee import exact_epsilon
from offaxis.provenance import Provenance
from offaxis.release import Release
from offaxis.vectors import Vectors, as_number

__all__ = ["ablate", "compare"]

Basis = Literal["jacobian", "principal", "permuted"]

PERCENTILES: Final = tuple(float(p) for p in range(10, 101, 10))
"""The percentiles of the radius in the paper's figure on clipping."""

LAMBDA_MAXES: Final = (1e1, 1e2, 1e3, 1e4, 1e5)
"""The caps in the paper's table."""


@dataclass(frozen=True)
class Ablation:
    """The parts of the map that a release keeps.

    Attributes
    ----------
    basis : {"jacobian", "principal", "permuted"}
        U: the task's directions; the principal axes of the public vectors, largest variance first;
        or the coordinate axes in random order. The stretches Λ are the task's in every case, the
        smallest for the first direction.
    before : {"map", "rotation", "nothing"}
        L^{−1}(z − μ), or Uᵀ(z − μ), or z itself. The radius is measured on the result.
    after : {"map", "rotation", "nothing"}
        L v + μ, or U v + μ, or v itself.
    """

    basis: Basis = "jacobian"
    before: Literal["map", "rotation", "nothing"] = "map"
    after: Literal["map", "rotation", "nothing"] = "map"


ABLATIONS: Final = MappingProxyType(
    {
        "full": Ablation(),
        "pre only": Ablation(after="nothing"),
        "post only": Ablation(before="nothing"),
        "rotation": Ablation(before="rotation", after="rotation"),
        "rotation in post": Ablation(after="rotation"),
        "clip only": Ablation(before="nothing", after="nothing"),
        "principal axes": Ablation(basis="principal"),
        "permuted axes": Ablation(basis="permuted"),
    }
)
"""Name → ablation: the rows of the paper's table.

One row of that table is printed as "rotation in post", the map before and U after. The paper's
public code computes "rotation": U before and after, and no scaling at all.
"""


def ablate(
    geometry: Geometry,
    public: Any,
    name: str,
    *,
    epsilon: Any,
    mechanism: str = "laplace",
    delta: Any = None,
    percentile: float = 90.0,
    lambda_max: float = 1000.0,
    order: float = 1.0,
    reference: bool = False,
    directions: tuple[Vectors, Vectors] | None = None,
    seed: int = 0,
) -> Release:
    """Return a release with one part of the map left out; it keeps the full guarantee.

    Its provenance names the ablation. Means over people stay unbiased but for clipping: whatever
    the decoder leaves out, the mean decoder inverts the map before the noise.

    Parameters
    ----------
    geometry : Geometry
        The task, measured on ``public``.
    public : array (n, m), or callable returning an iterator of batches
    name : str
        One of :data:`ABLATIONS`.
    order : float
        1 in the published tables.
    reference : bool
        Reshape as the paper's public code does, by
        :func:`experiments.reference_protocol.reference_shape` with these ``directions``.
    seed : int
        Public; decides the order of the permuted axes only.
    **others
        As in :func:`offaxis.fit`.

    Examples
    --------
    >>> from offaxis.geometry import PublicVectors, as_task_model, measure
    >>> from experiments.ablations import ablate
    >>> public = np.random.default_rng(0).standard_normal((200, 3))
    >>> geometry = measure(as_task_model(np.eye(2, 3)), PublicVectors(public))
    >>> release = ablate(geometry, public, "post only", epsilon=5)
    >>> str(release.guarantee), release.provenance.settings["ablation"]
    ('ε = 5, pure', 'post only')
    """
    if name not in ABLATIONS:
        raise InvalidInput(f"the ablation must be one of {', '.join(ABLATIONS)}, got {name!r}")
    ablation = ABLATIONS[name]
    p, cap = as_number(order, "order"), as_number(lambda_max, "lambda_max")
    if reference:
        shape = reference_shape(geometry, cap, directions)
    else:
        shape = reshape(geometry, order=p, lambda_max=cap)
    if ablation.basis != "jacobian":
        shape = shape.along(_basis(ablation.basis, geometry, seed), geometry.gram)
    before = _before(ablation, shape)
    inputs = PublicInputs(
        before,
        PublicVectors(public),
        *geometry.survey,
        epsilon=exact_epsilon(epsilon),
        delta=delta,
        percentile=percentile,
    )
    settings: dict[str, str | float] = {"ablation": name, "order": p, "lambda_max": cap}
    settings["percentile"] = float(percentile)
    if ablation.basis == "permuted":
        settings["seed"] = float(seed)
    return Release(
        before.encoder,
        randomizer_behind(before.encoder, mechanism, inputs),
        _after(ablation, shape),
        Provenance(geometry.model, geometry.public, settings),
        mean_decoder=None if ablation.before == ablation.after else back_from(before),
    )


def _basis(basis: Basis, geometry: Geometry, seed: int) -> Vectors:
    if basis == "principal":
        return spectrum(geometry.covariance).basis
    axes = np.eye(geometry.mean.size)
    return axes[:, np.random.default_rng(seed).permutation(geometry.mean.size)]


def _before(ablation: Ablation, shape: FittedReshaping) -> Frame:
    """Return the coordinates in which the randomizer works."""
    if ablation.before == "nothing":
        return Frame(np.zeros_like(shape.centre))
    return replace(shape, stretch=_stretch(ablation.before, shape)).frame


def _stretch(part: str, shape: FittedReshaping) -> Vectors:
    return shape.stretch if part == "map" else np.ones_like(shape.stretch)


def _after(ablation: Ablation, shape: FittedReshaping) -> Decoder:
    if ablation.after == "nothing":
        return ShiftDecoder(np.zeros_like(shape.centre))
    return back_from(replace(shape, stretch=_stretch(ablation.after, shape)).frame)


def compare(
    model: Any,
    public: Any,
    vectors: Any,
    targets: Any = None,
    *,
    epsilon: Any,
    mechanism: str,
    names: Sequence[str] = tuple(ABLATIONS),
    delta: float = 1e-5,
    seeds: int = 20,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
    **settings: Any,
) -> dict[str, Evaluation]:
    """Evaluate ablations of one randomizer at one budget; return the scores by name.

    ``seed`` decides the simulated noise and the order of the permuted axes; ``settings`` go to
    :func:`ablate`. The geometry is measured once. ``progress`` is called once per repetition.

    Examples
    --------
    >>> from experiments.data import load_cifar10_features
    >>> from experiments.ablations import compare
    >>> data = load_cifar10_features()
    >>> task = (data.head, data.public[:500], data.vectors[:500], data.labels[:500])
    >>> settings = {"epsilon": 10, "mechanism": "privunit2", "seeds": 2}
    >>> scores = compare(*task, names=["full", "post only"], **settings)
    >>> scores["full"].mean("accuracy") > 3 * scores["post only"].mean("accuracy")
    True
    """
    task, source = as_task_model(model), PublicVectors(public)
    geometry = measure(task, source)
    results = {}
    for name in names:
        release = ablate(
            geometry,
            source,
            name,
            epsilon=epsilon,
            mechanism=mechanism,
            delta=delta if find_mechanism(mechanism).needs_delta else None,
            seed=seed,
            **settings,
        )
        results[name] = evaluate(
            release, task, vectors, targets, seeds=seeds, seed=seed, progress=progress
        )
    return results
