"""Attacks that estimate the vector itself: the posterior mean, and a trained network.

Both learn from the attacker's half of the public vectors, with simulated reports. The share of the
variance that an estimate explains is compared with the proved ceiling.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
from scipy.special import softmax

from offaxis.errors import installing
from offaxis.leakage.attacks import Arena
from offaxis.leakage.channels import Raw, ReleaseChannel, several
from offaxis.theory.ceilings import fidelity_ceiling, task_spectrum
from offaxis.vectors import Vectors, row_norms

RECONSTRUCTION: Final = "reconstruction"
NETWORK_NEEDS: Final = (
    f"needs torch or scikit-learn; run: {installing('torch')} or {installing('sklearn')}"
)

_MORE: Final = 4
"""Times as many trials for one report: exact limits on a mean are wider than those on a share."""

_REACH: Final = 1.5
"""Estimates are shrunk to this many root mean squared lengths: errors have a largest value."""

_SCORES: Final = 1 << 21
_SAMPLES: Final = 6000
_STEPS: Final = 300
_BATCH: Final = 256
_HIDDEN: Final = 96
_RATE: Final = 2e-3
_HELD: Final = 5
"""One of this many known vectors is held out to decide how far to trust the network."""

_WIDEST: Final = 4096
"""The most numbers of a report that a network takes."""

_TINY: Final = 1e-300


@dataclass(frozen=True, eq=False)
class Estimates:
    """Squared errors of estimated vectors, and what they are compared with.

    Attributes
    ----------
    setting : str
    errors : (n,) array
        ‖ẑ − z‖², independent.
    variance : float
        E‖z − μ‖² of a person drawn from the people attacked.
    largest : float
        What no error can exceed.
    ceiling : float or None
        The largest share of the variance that any report explains; None if none is proved.
    cosine : float
        Mean cosine of ẑ − μ and z − μ.
    reports : int
    exact : bool
    """

    setting: str
    errors: Vectors
    variance: float
    largest: float
    ceiling: float | None
    cosine: float
    reports: int
    exact: bool


def ceiling_of(people: Vectors, epsilon: Any) -> float | None:
    """Return the proved ceiling for a person drawn uniformly from these; None without a variance.

    The law is that of the draw itself, so nothing is assumed (docs/proofs.md §16).
    """
    centred = people - people.mean(axis=0)
    values = np.linalg.svd(centred, compute_uv=False) ** 2 / len(people)
    if not values.any():
        return None
    return fidelity_ceiling(task_spectrum(np.diag(values), np.eye(len(values))), epsilon)


def reconstruct(arena: Arena, count: int, *, network: bool, width: int, epsilon: Any) -> Estimates:
    """Estimate people's vectors from ``count`` reports each.

    Parameters
    ----------
    count : int
    network : bool
        Train a network, else use the posterior mean over the known vectors.
    width : int
        The first columns of a row are the vector; answers follow.
    epsilon : number or None
        Budget of all reports together, if a ceiling is proved.
    """
    single = count == 1
    trials = (_MORE if single else 1) * arena.trials
    who = arena.rng.integers(len(arena.people), size=trials)
    rows = arena.people[who]
    draw = arena.channel.draw
    seen = [draw(rows, arena.rng)] if single else several(arena.channel, rows, count, arena.rng)
    known, people = arena.known[:, :width], arena.people[:, :width]
    truth, centre = people[who], known.mean(axis=0)
    if isinstance(arena.channel, Raw):
        estimate, name = truth, "posterior mean"  # of one vector: the one that was seen
    elif network:
        read = _trained(arena, count, known)
        estimate, name = read(np.mean(seen, axis=0)), "trained network"
    else:
        estimate, name = _posterior_mean(arena, seen, known), "posterior mean"
    reach = _REACH * float(np.sqrt((row_norms(known - centre, 2) ** 2).mean()))
    estimate = _within(estimate - centre, reach) + centre
    if isinstance(arena.channel, Raw):
        estimate = truth
    moved, real = estimate - people.mean(axis=0), truth - people.mean(axis=0)
    lengths = np.linalg.norm(moved, axis=1) * np.linalg.norm(real, axis=1)
    return Estimates(
        setting=f"{name}, {count} report{'s' * (count > 1)}",
        errors=((estimate - truth) ** 2).sum(axis=1),
        variance=float(((people - people.mean(axis=0)) ** 2).sum(axis=1).mean()),
        largest=(float(row_norms(people - centre, 2).max()) + reach) ** 2,
        ceiling=None if epsilon is None else ceiling_of(people, epsilon),
        cosine=float(((moved * real).sum(axis=1) / np.maximum(lengths, _TINY)).mean()),
        reports=count,
        exact=single and arena.exact,
    )


def _posterior_mean(arena: Arena, seen: list[Vectors], known: Vectors) -> Vectors:
    """Return the mean of the known vectors given each person's reports, in blocks of people."""
    parts = []
    block = max(1, _SCORES // len(known))
    for start in range(0, len(seen[0]), block):
        scores = sum(arena.likelihood_of_known(each[start : start + block]) for each in seen)
        parts.append(softmax(scores, axis=1) @ known)
    return np.concatenate(parts)


def _within(rows: Vectors, radius: float) -> Vectors:
    """Shrink rows to a length: an error then has a largest value, as exact limits need."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    shrunk: Vectors = rows * np.minimum(1.0, radius / np.maximum(norms, _TINY))
    return shrunk


# ---- A small network


def network_refused(arena: Arena) -> str | None:
    """Return why no network can be trained, or None."""
    if find_spec("torch") is None and find_spec("sklearn") is None:
        return NETWORK_NEEDS
    if arena.seen.shape[1] > _WIDEST:
        return f"a report has {arena.seen.shape[1]:,} numbers, more than {_WIDEST:,}"
    return None


def _trained(arena: Arena, count: int, known: Vectors) -> Callable[[Vectors], Vectors]:
    """Train on simulated reports of the known vectors; return the map from a mean of reports."""
    rounds = max(1, math.ceil(_SAMPLES / len(known)))
    rows = np.tile(arena.known, (rounds, 1))
    inputs = np.mean(
        [
            arena.channel.simulate(rows, arena.rng)
            if isinstance(arena.channel, ReleaseChannel)
            else arena.channel.draw(rows, arena.rng)
            for _ in range(count)
        ],
        axis=0,
    )
    targets = np.tile(known, (rounds, 1))
    held = np.tile(np.arange(len(known)) % _HELD == 0, rounds)
    centre, scale = inputs.mean(axis=0), inputs.std(axis=0) + _TINY
    middle = known.mean(axis=0)
    size = float(np.sqrt(((known - middle) ** 2).mean())) + _TINY
    fit = _by_torch if find_spec("torch") is not None else _by_sklearn
    seed = int(arena.rng.integers(1 << 31))
    X, Y = (inputs - centre) / scale, (targets - middle) / size
    apply = fit(X[~held], Y[~held], seed)
    # The network is trusted as far as it helps on vectors it has not seen.
    guess = apply(X[held])
    trust = float(np.clip((guess * Y[held]).sum() / max(float((guess**2).sum()), _TINY), 0, 1))
    return lambda V: middle + size * trust * apply((V - centre) / scale)


def _by_torch(X: Vectors, Y: Vectors, seed: int) -> Callable[[Vectors], Vectors]:
    import torch

    inputs, targets = (torch.tensor(array, dtype=torch.float32) for array in (X, Y))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = torch.nn.Sequential(
            torch.nn.Linear(X.shape[1], _HIDDEN),
            torch.nn.ReLU(),
            torch.nn.Linear(_HIDDEN, Y.shape[1]),
        )
        optimizer = torch.optim.Adam(network.parameters(), _RATE, weight_decay=1e-4)
        for _ in range(_STEPS):
            batch = torch.randint(len(inputs), (_BATCH,))
            loss = ((network(inputs[batch]) - targets[batch]) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def apply(V: Vectors) -> Vectors:
        with torch.no_grad():
            read: Vectors = network(torch.tensor(V, dtype=torch.float32)).double().numpy()
        return read

    return apply


def _by_sklearn(X: Vectors, Y: Vectors, seed: int) -> Callable[[Vectors], Vectors]:
    from sklearn.neural_network import MLPRegressor

    epochs = max(1, _STEPS * _BATCH // len(X))
    network = MLPRegressor(
        hidden_layer_sizes=(_HIDDEN,),
        batch_size=_BATCH,
        learning_rate_init=_RATE,
        max_iter=epochs,
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it stops after its epochs, as is meant
        network.fit(X, Y)
    return lambda V: np.asarray(network.predict(V)).reshape(len(V), -1)
