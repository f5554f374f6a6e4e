"""Valid releases and reports of every kind, created through the public API."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

import offaxis
from offaxis.decoding import ShiftDecoder
from offaxis.formats.release_file import to_bytes
from offaxis.geometry import Layers
from offaxis.mechanisms import NAMES, posterior
from tests.checks import delta_for, effective, task_for

DIM = 3
POSTERIOR = ("laplace", "privunit2", "response")
COUNT = 2 * len(NAMES) + 2 + len(POSTERIOR)


@cache
def releases() -> tuple[offaxis.Release, ...]:
    """Return every mechanism with and without a task, a mean decoder, and posterior decoders."""
    rng = np.random.default_rng(0)
    public, task = rng.standard_normal((20, DIM)), Layers.linear(rng.standard_normal((2, DIM)))
    fitted = [
        offaxis.fit(
            task_for(name, task),
            public,
            epsilon=epsilon,
            mechanism=name,
            delta=delta_for(name),
            unit=unit,
            statement="“public” \N{EARTH GLOBE EUROPE-AFRICA}\n",
            **effective(name, reshaping=shape),
        )
        for name in NAMES
        for shape, epsilon, unit in (("jacobian", 3, "item"), ("centre", "1/3", "user"))
    ]
    narrow = offaxis.fit(None, public[:, :1], epsilon=1, reshaping="none", mechanism="laplace")
    fitted += [narrow, replace(fitted[0], mean_decoder=ShiftDecoder(np.zeros(DIM)))]
    by_name = {name: fitted[2 * index] for index, name in enumerate(NAMES)}
    fitted += [
        replace(by_name[name], decoder=posterior(by_name[name], public, size=5))
        for name in POSTERIOR
    ]
    assert len(fitted) == COUNT
    return tuple(fitted)


@cache
def files() -> tuple[bytes, ...]:
    """Return the file of every release."""
    return tuple(map(to_bytes, releases()))


@cache
def reports() -> tuple[tuple[bytes, ...], ...]:
    """Return a few reports of every release."""
    vectors = np.random.default_rng(1).standard_normal((3, DIM))
    return tuple(tuple(r.privatize(vectors[:, : r.input_dim])) for r in releases())
