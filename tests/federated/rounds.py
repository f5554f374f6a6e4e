"""Rosters and whole rounds for tests, with real keys, masks and noise; nothing is seeded."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import numpy as np

from offaxis.federated import (
    AggregatedSum,
    ClientKeys,
    MaskedUpdate,
    Opening,
    Roster,
    SecureAggregationClient,
    SecureAggregationPlan,
    SecureAggregationRound,
    confinement,
    masks,
)
from offaxis.randomizers.base import Ball, onto_lattice

KEYS = {name: ClientKeys.generate() for name in "abcdefghij"}


def at_once(*steps: Callable[[], Any]) -> list[Any]:
    """Run steps in threads that switch as often as possible; a single step runs twice."""
    all_steps, interval = steps * 2 if len(steps) == 1 else steps, sys.getswitchinterval()
    ready = threading.Barrier(len(all_steps))

    def take(step: Callable[[], Any]) -> Any:
        ready.wait()
        return step()

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(len(all_steps)) as threads:
            return list(threads.map(take, all_steps))
    finally:
        sys.setswitchinterval(interval)


class Watched(SecureAggregationClient):
    """A client whose noise a test can read; the noise is drawn as in every client."""

    def _noise(self, entropy):
        self.noise = super()._noise(entropy)
        return self.noise


def roster_of(weights: Sequence[Fraction | int], dim: int, threshold: int, **plan) -> Roster:
    settings = {"clip": 2.0, "epsilon": 4, "delta": "1e-5", "rounds": 3} | plan
    names = "abcdefghij"[: len(weights)]
    members = [KEYS[name].member(name, w) for name, w in zip(names, weights, strict=True)]
    return Roster(SecureAggregationPlan(dim=dim, threshold=threshold, **settings), members)


def clients_of(
    roster: Roster, kind: type[SecureAggregationClient] = Watched
) -> dict[str, SecureAggregationClient]:
    """Return clients that have taken no step, as on machines that never met this roster."""
    confinement._latest.clear()
    return {name: kind(name, KEYS[name], roster) for name in roster.names}


def steps_of(roster: Roster, name: str, update: np.ndarray) -> np.ndarray:
    """Return the lattice point of an update, before noise and masks."""
    ball = Ball(roster.plan.dim, roster.plan.clip, 2)
    return onto_lattice(np.array(update, float)[None], ball, roster.bounds[roster.place(name)])[0]


def run(
    roster: Roster,
    clients: dict[str, SecureAggregationClient],
    updates: dict[str, np.ndarray],
    dropped: Iterable[str] = (),
    number: int = 1,
) -> tuple[AggregatedSum, dict[str, MaskedUpdate], dict[str, Opening]]:
    """Run a round and return all that the server saw; dropped clients send their update late."""
    server, late = SecureAggregationRound(roster, number), set(dropped)
    sent = {name: clients[name].mask(number, updates[name]) for name in roster.names}
    for name in roster.names:
        if name not in late:
            server.add(sent[name])
    survivors = server.survivors()
    consents = [clients[name].consent(survivors) for name in survivors.names]
    openings = {name: clients[name].open(consents) for name in survivors.names}
    for opening in openings.values():
        server.add_opening(opening)
    return server.result(), sent, openings


def without_known_masks(
    roster: Roster,
    name: str,
    sent: MaskedUpdate,
    openings: dict[str, Opening],
    colluders: dict[str, SecureAggregationClient],
) -> np.ndarray:
    """Remove from one client's vector every mask that the server and colluders know."""
    dim, bits, place = roster.plan.dim, roster.ring_bits, roster.place(name)
    rest = masks.unpack(sent.payload, dim, bits)
    if name in openings:
        rest = rest - masks.expand(openings[name].self_seed, dim, bits)
    seeds = dict(openings[name].pair_seeds) if name in openings else {}
    for other, opening in openings.items():
        if name in opening.pair_seeds:
            seeds[other] = opening.pair_seeds[name]
    for other, client in colluders.items():
        seeds[other] = client._pair_seed(place, sent.round_number)
    for other, seed in seeds.items():
        mask = masks.expand(seed, dim, bits)
        rest = rest - mask if place < roster.place(other) else rest + mask
    return masks.reduce(rest, bits)
