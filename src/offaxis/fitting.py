"""Fit a release: public model and public vectors in, frozen release out. No private data here."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from offaxis import randomizers
from offaxis.decoding import Decoder, LinearDecoder, ShiftDecoder
from offaxis.encoding import Encoder, ShiftEncoder, public_radius, reshape
from offaxis.encoding.reshaping import Rank
from offaxis.errors import InvalidInput
from offaxis.geometry import Geometry, PublicVectors, as_task_model, measure
from offaxis.geometry.jacobian import Progress
from offaxis.geometry.public import survey
from offaxis.privacy.guarantee import Unit, exact_epsilon
from offaxis.provenance import LONGEST_STATEMENT, Provenance
from offaxis.release import Release
from offaxis.vectors import as_number

Shape = Literal["jacobian", "centre", "none"]


def fit(
    model: Any,
    public: Any,
    *,
    epsilon: Any,
    randomizer: str = "laplace",
    delta: Any = None,
    unit: Unit = "item",
    reshaping: Shape = "jacobian",
    percentile: float = 90.0,
    lambda_max: float = 1000.0,
    gauge: float | None = None,
    rank: Rank = "capped",
    statement: str = "",
    progress: Progress | None = None,
) -> Release:
    """Fit a release to a public task.

    Everything is learnt from the public model and the public vectors; the result is frozen and can
    be published. No private vector may be among ``public``.

    Parameters
    ----------
    model : torch module, scikit-learn estimator, weight matrix, Layers, TaskModel, or Geometry
        The public task. A :class:`~offaxis.geometry.Geometry` measured before on the same public
        vectors saves measuring it again for another budget. Not used, and may be None, unless
        ``reshaping="jacobian"``.
    public : array (n, m), or callable returning an iterator of batches
        Public vectors.
    epsilon : number
        Budget of one report, read exactly: 0.1 means 1/10.
    randomizer : {"laplace", "gaussian", "privunit2", "privunitg", "privunitg-sphere"}
        "laplace" (pure) and "gaussian" (ε, δ) report the vector; the others (pure) report its
        direction only, more accurately, at a cost that grows like e^ε. "privunit2-mean" and
        "privunitg-mean" (pure) are those for means over people. "duchi", "piecewise" and "hybrid"
        (pure) report coordinates in a box, unbiased, in few bytes.
    delta : number, optional
        For the Gaussian only.
    unit : {"item", "user"}
        What one report stands for.
    reshaping : {"jacobian", "centre", "none"}
        Shape the space to the task; only subtract the public mean; or use the randomizer plainly.
        The last two need no model.
    percentile : float
        Public percentile of the encoded norms that becomes the radius ρ.
    lambda_max : float
        Largest stretch of a direction the task ignores.
    gauge : float, optional
        p of the volume constraint; by default the randomizer's own norm, 2 for the box. The
        published tables use 1 throughout.
    rank : {"capped", "gap"}
        Water-filling under the cap, or the threshold rule of the paper's public code.
    statement : str
        Where the public data came from, in your words; kept in the release.
    progress : callable, optional
        Called with the number of vectors just measured.

    Returns
    -------
    Release
    """
    epsilon = exact_epsilon(epsilon)
    order = randomizers.norm(randomizer)
    if not isinstance(statement, str) or len(statement) > LONGEST_STATEMENT:
        raise InvalidInput(f"statement must be a text of at most {LONGEST_STATEMENT:,} characters")
    if not statement.isascii() and statement != statement.encode(errors="replace").decode():
        raise InvalidInput("statement must be a text that can be written as UTF-8")
    vectors = PublicVectors(public)
    settings: dict[str, str | float] = {"reshaping": reshaping}
    encoder: Encoder
    decoder: Decoder
    if reshaping in ("none", "centre"):
        identity, mean = survey(vectors)
        centre = mean if reshaping == "centre" else np.zeros(identity.dim)
        encoder, decoder = ShiftEncoder(centre), ShiftDecoder(centre)
        origin = Provenance(None, identity, settings, statement)
    elif reshaping == "jacobian":
        geometry = (
            model
            if isinstance(model, Geometry)
            else measure(as_task_model(model), vectors, progress)
        )
        # A box has no volume constraint of its own; the round one serves it well.
        p = as_number((2 if order == "inf" else order) if gauge is None else gauge, "gauge")
        cap = as_number(lambda_max, "lambda_max")
        shape = reshape(geometry, gauge=p, lambda_max=cap, rank=rank)
        encoder, decoder = shape.encoder, LinearDecoder(shape.inverse, shape.centre)
        settings |= {"gauge": p, "lambda_max": cap, "rank": rank}
        origin = Provenance(geometry.model, geometry.public, settings, statement)
    else:
        raise InvalidInput(f"reshaping must be 'jacobian', 'centre' or 'none', got {reshaping!r}")
    return assemble(
        encoder,
        decoder,
        vectors,
        origin,
        randomizer=randomizer,
        epsilon=epsilon,
        delta=delta,
        unit=unit,
        percentile=percentile,
    )


def assemble(
    encoder: Encoder,
    decoder: Decoder,
    public: PublicVectors,
    origin: Provenance,
    *,
    randomizer: str,
    epsilon: Fraction,
    delta: Any = None,
    unit: Unit = "item",
    percentile: float = 90.0,
    mean_decoder: Decoder | None = None,
) -> Release:
    """Freeze public maps into a release that promises ε whatever the maps are.

    The randomizer stands between them and brings every encoding into its ball itself; the maps
    decide only what its answer is worth. The radius is the percentile of the public vectors' norms
    in the encoder's space. Other arguments are those of :func:`fit` and :class:`Release`.
    """
    order = randomizers.norm(randomizer)
    radius = public_radius(encoder, public, origin.public, order=order, percentile=percentile)
    mechanism = randomizers.make(
        randomizer, dim=encoder.output_dim, radius=radius, epsilon=epsilon, delta=delta
    )
    settings = origin.settings | {"percentile": float(percentile)}
    origin = replace(origin, settings=settings)
    return Release(encoder, mechanism, decoder, origin, unit, mean_decoder)
