"""Which decoder serves a task best, found on public vectors.

Contract: a release keeps its encoder, its randomizer and so its guarantee; the decoder returned has
the least simulated risk among those tried, on public vectors that none was fitted to. Answering
the public mean is among them, so it is never worse there than knowing nothing. Means over people
stay what they were: an unbiased decoder becomes the mean decoder.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, Literal

import numpy as np

from offaxis.decoding.channel import evenly
from offaxis.decoding.codeword import CodewordDecoder
from offaxis.decoding.decoder import Decoder, ShrinkageDecoder
from offaxis.decoding.posterior import (
    MOST_POINTS,
    NeedsLaw,
    PosteriorCodewordDecoder,
    posterior,
)
from offaxis.decoding.shrinkage import shrink
from offaxis.errors import InvalidInput
from offaxis.evaluation.splits import Split
from offaxis.geometry import as_task_model
from offaxis.randomizers.domain import FiniteSet
from offaxis.randomizers.projunit import ProjUnit
from offaxis.release import Release
from offaxis.vectors import Vectors

Risk = Literal["outputs", "answers"]

SIZES: Final = (256, 1024, MOST_POINTS)
"""Numbers of points that are tried in a posterior."""

_HELD_OUT: Final = 0.25
"""Share of the public vectors that scores the decoders; the others fit them."""

_SCORED: Final = 2000
_SAMPLE_NUMBERS: Final = 1 << 24


def decoders(release: Release, public: Any) -> dict[str, Decoder]:
    """Return every decoder that fits the release, by name; fitted to public vectors alone."""
    mean = evenly(public, _SAMPLE_NUMBERS).mean(axis=0)
    found: dict[str, Decoder] = {"own": release.decoder, "constant": always(release, mean)}
    if isinstance(release.randomizer.domain, FiniteSet):
        over = posterior(release, public)
        assert isinstance(over, PosteriorCodewordDecoder)
        if release.decoder.kind != CodewordDecoder.kind:
            found["codeword"] = CodewordDecoder(over.codewords, over.prior)
        return found | {"posterior": over}
    found["shrinkage"] = shrink(release, public)
    if not isinstance(release.randomizer, ProjUnit):
        found |= {f"posterior-{size}": posterior(release, public, size=size) for size in SIZES}
    return found


def risks(
    release: Release,
    task: Any,
    tried: dict[str, Decoder],
    public: Any,
    metric: Risk = "outputs",
    *,
    seed: int = 0,
) -> dict[str, float]:
    """Return the simulated risk of every decoder on public vectors, all on the same noise.

    Parameters
    ----------
    release, task
        As in :func:`best_decoder`.
    tried : dict
        Decoders by name.
    public : array (n, m), or callable returning an iterator of batches
        Not those that the decoders were fitted to.
    metric : {"outputs", "answers"}
        Mean of ‖T(ẑ) − T(z)‖², or the share of vectors whose largest output is another.
    """
    model, Z = as_task_model(task), evenly(public, _SCORED)
    clean = np.asarray(model.outputs(Z))
    if metric not in ("outputs", "answers") or (metric == "answers" and clean.shape[1] < 2):
        raise InvalidInput(
            f"metric must be 'outputs', or 'answers' for a task of several outputs, got {metric!r}"
        )
    rng = np.random.default_rng(seed)
    observed = release.randomizer.simulate(release.encoder.encode(Z), rng)
    found = {}
    for name, decoder in tried.items():
        bound: Decoder = (
            decoder.bind(release.randomizer) if isinstance(decoder, NeedsLaw) else decoder
        )
        outputs = np.asarray(model.outputs(bound.decode(observed)))
        found[name] = _risk(outputs, clean, metric)
    return found


def _risk(outputs: Vectors, clean: Vectors, metric: Risk) -> float:
    if metric == "outputs":
        return float(((outputs - clean) ** 2).sum(axis=1).mean())
    return float((outputs.argmax(axis=1) != clean.argmax(axis=1)).mean())


def best_decoder(
    release: Release, task: Any, public: Any, metric: Risk = "outputs", *, seed: int = 0
) -> Release:
    """Return the release with the decoder of least simulated risk.

    Parameters
    ----------
    release : Release
    task : model
        The public task, as in :func:`offaxis.fit`.
    public : array (n, m), or callable returning an iterator of batches
        Public vectors; three in four fit the decoders, the others choose.
    metric : {"outputs", "answers"}
        As in :func:`risks`.
    seed : int
        Public; of the split and of the simulation.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.evaluation import best_decoder
    >>> rng = np.random.default_rng(0)
    >>> task, public = rng.standard_normal((2, 3)), rng.standard_normal((200, 3))
    >>> release = offaxis.fit(task, public, epsilon=1, randomizer="privunit2")
    >>> best = best_decoder(release, task, public)
    >>> best.decoder.kind, best.guarantee == release.guarantee  # the devices see no difference
    ('posterior', True)
    """
    sample = evenly(public, max(1, _SAMPLE_NUMBERS // release.input_dim))
    split = Split(sample, seed, held_out=1, share=_HELD_OUT)
    tried = decoders(release, split.part(0))
    scored = risks(release, task, tried, split.part(1), metric, seed=seed)
    best = min(scored, key=lambda name: scored[name])
    return release if best == "own" else with_decoder(release, tried[best])


def always(release: Release, point: Vectors) -> ShrinkageDecoder:
    """Return the decoder of the release that reads no report and answers a public point."""
    return ShrinkageDecoder(np.zeros((point.size, release.decoder.input_dim)), point)


def with_decoder(release: Release, decoder: Decoder) -> Release:
    """Return the release with another decoder, which its provenance names.

    Means are decoded as before: by the mean decoder, or by the old decoder if it was unbiased.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.decoding import shrink
    >>> from offaxis.evaluation import with_decoder
    >>> public = np.random.default_rng(0).standard_normal((200, 3))
    >>> release = offaxis.fit(None, public, epsilon=1, reshaping="none")
    >>> shrunk = with_decoder(release, shrink(release, public))
    >>> shrunk.decoder.kind, shrunk.gives_means  # means are decoded as before
    ('shrinkage', True)
    """
    kept = release.decoder_of_means if release.gives_means else release.mean_decoder
    origin = release.provenance
    settings = {**origin.settings, "decoder": decoder.kind}
    return replace(
        release,
        decoder=decoder,
        mean_decoder=kept,
        provenance=replace(origin, settings=settings),
    )
