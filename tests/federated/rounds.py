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
    ClientKeys,
    MaskedClient,
    MaskedRound,
    MaskedSum,
    MaskedUpdate,
    MaskingPlan,
    Opening,
    Roster,
    masks,
)
from offaxis.randomizers.base import Ball, onto_lattice

KEYS = {name: ClientKeys.generate() for name in "abcdefghij"}


def at_once(*steps: Callable[[], Any]) -> list[Any]:
    """Take steps in threads that give way to each other all the time; one step is taken twice."""
    all_steps, usual = steps * 2 if len(steps) == 1 else steps, sys.getswitchinterval()
    ready = threading.Barrier(len(all_steps))

    def take(step: Callable[[], Any]) -> Any:
        ready.wait()
        return step()

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(len(all_steps)) as threads:
            return list(threads.map(take, all_steps))
    finally:
        sys.setswitchinterval(usual)


class Watched(MaskedClient):
    """A client whose noise a test can see; it draws it as every client does."""

    def _noise(self, entropy):
        self.noise = super()._noise(entropy)
        return self.noise


def roster_of(weights: Sequence[Fraction | int], dim: int, threshold: int, **plan) -> Roster:
    given = {"clip": 2.0, "epsilon": 4, "delta": "1e-5", "rounds": 3} | plan
    names = "abcdefghij"[: len(weights)]
    members = [KEYS[name].member(name, w) for name, w in zip(names, weights, strict=True)]
    return Roster(MaskingPlan(dim=dim, threshold=threshold, **given), members)


def clients_of(roster: Roster, kind: type[MaskedClient] = Watched) -> dict[str, MaskedClient]:
    return {name: kind(name, KEYS[name], roster) for name in roster.names}


def steps_of(roster: Roster, name: str, update: np.ndarray) -> np.ndarray:
    """Return the lattice point of an update: what is masked, without noise."""
    ball = Ball(roster.plan.dim, roster.plan.clip, 2)
    return onto_lattice(np.array(update, float)[None], ball, roster.bounds[roster.place(name)])[0]


def run(
    roster: Roster,
    clients: dict[str, MaskedClient],
    updates: dict[str, np.ndarray],
    dropped: Iterable[str] = (),
    number: int = 1,
) -> tuple[MaskedSum, dict[str, MaskedUpdate], dict[str, Opening]]:
    """Run a round; those dropped send their update too late. Return all that the server saw."""
    server, gone = MaskedRound(roster, number), set(dropped)
    sent = {name: clients[name].mask(number, updates[name]) for name in roster.names}
    for name in roster.names:
        if name not in gone:
            server.add(sent[name])
    survivors = server.survivors()
    consents = [clients[name].consent(survivors) for name in survivors.names]
    openings = {name: clients[name].open(consents) for name in survivors.names}
    for opening in openings.values():
        server.add_opening(opening)
    return server.result(), sent, openings


def unmasked_as_far_as_known(
    roster: Roster,
    name: str,
    sent: MaskedUpdate,
    openings: dict[str, Opening],
    colluders: dict[str, MaskedClient],
) -> np.ndarray:
    """Take off one client's vector every mask that server and colluders know, in the ring."""
    dim, bits, place = roster.plan.dim, roster.ring_bits, roster.place(name)
    left = masks.unpack(sent.payload, dim, bits)
    if name in openings:
        left = left - masks.expand(openings[name].self_seed, dim, bits)
    seeds = dict(openings[name].pair_seeds) if name in openings else {}
    for other, opening in openings.items():
        if name in opening.pair_seeds:
            seeds[other] = opening.pair_seeds[name]
    for other, client in colluders.items():
        seeds[other] = client._pair_seed(place, sent.round_number)
    for other, seed in seeds.items():
        mask = masks.expand(seed, dim, bits)
        left = left - mask if place < roster.place(other) else left + mask
    return masks.reduce(left, bits)
