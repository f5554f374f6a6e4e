"""What promises over time were worth before they were corrected, and what they are worth now.

Each figure is computed twice: under the rule of earlier versions, which is written out here, and
under the rule of the package.

- *Adaptive publishers*: the true δ of a limit, as a multiple of the promised δ, by exact
  enumeration. A publisher sees all reports so far and chooses the next budget from a menu.
- *Other promises*: bytes of a bulk job that cuts its batches in another way, what a copy of a
  ledger confirms, reports per study, the limit on a number's error, and shuffling. The last two
  are the figures of one setting; ``scalar_limit`` and ``shuffling`` print all.

    python -m benchmarks.promises

It needs the extra ``accounting`` for the rule of earlier versions.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import numpy as np

import offaxis
from benchmarks import scalar_limit, shuffling
from offaxis.client import Reporter
from offaxis.errors import OffaxisError
from offaxis.mechanisms.scalar_channel import refined_channel
from offaxis.privacy import Ledger, Limit, shuffled_epsilon
from offaxis.privacy.composition import Cost, basic, composed_epsilon
from offaxis.randomizers import Gaussian, KaryResponse, SphericalLaplace
from offaxis.randomizers import base as randomizers_base
from offaxis.randomizers.laplace import report_records
from offaxis.sampling.entropy import JobKey
from offaxis.theory.scalar_limit import least_scalar_error
from offaxis.vectors import Vectors

Rule = Callable[[list[Cost]], bool]
"""Whether a limit admits payments."""

PLANS: Final = tuple(
    (Fraction(epsilon), Fraction(delta), tuple(map(Fraction, menu)))
    for epsilon, delta, menu in (
        ("3", "1/1000", ("1/5", "1/2", "1")),
        ("3", "1/1000", ("1/4", "1")),
        ("2", "1/100", ("1/4", "1/2")),
        ("1", "1/20", ("1/10", "3/10", "1/2")),
        ("4", "1/10", ("1/2", "2")),
    )
)
"""Limits (ε, δ) and the budgets that a publisher chooses from."""

ROWS: Final = 40
WIDE: Final = 1 << 14
GUESSES: Final = 100
RELEASES: Final = 10


# ---- Publishers who adapt


def worst_delta(
    epsilon: float, menu: tuple[Fraction, ...], admits: Rule, most: int = 40
) -> tuple[float, int]:
    """Return the largest δ at ε of a publisher who adapts, and the most reports it uses.

    The worst reports of a pure budget b are those of randomized response: the loss moves by +b with
    probability e^b/(1 + e^b) and by −b otherwise. A publisher sees the loss so far and the
    payments, and picks the next budget from the menu, or stops. Dynamic programming over both gives
    the largest E[(1 − e^{ε−L})₊] over *all* publishers of at most ``most`` reports.
    """
    unit = Fraction(math.gcd(*(int(b * 1000) for b in menu)), 1000)
    steps = [int(b / unit) for b in menu]
    longest = 0

    @cache
    def allowed(counts: tuple[int, ...]) -> bool:
        costs = [Cost(b, reports=n) for b, n in zip(menu, counts, strict=True) if n]
        return sum(counts) <= most and admits(costs)

    @cache
    def value(counts: tuple[int, ...], loss: int) -> float:
        nonlocal longest
        longest = max(longest, sum(counts))
        best = max(0.0, -math.expm1(epsilon - loss * float(unit)))
        for i, step in enumerate(steps):
            more = tuple(n + (j == i) for j, n in enumerate(counts))
            if allowed(more):
                up = 1 / (1 + math.exp(-float(menu[i])))
                best = max(
                    best, up * value(more, loss + step) + (1 - up) * value(more, loss - step)
                )
        return best

    return value((0,) * len(menu), 0), longest


def by_distribution(epsilon: Fraction, delta: Fraction) -> Rule:
    """Return the rule of earlier versions: sums, or the loss distribution of what was spent."""

    def admits(costs: list[Cost]) -> bool:
        if basic(costs)[0] <= epsilon:
            return True
        total = composed_epsilon(costs, delta)
        return total is not None and total <= epsilon

    return admits


def adaptive() -> Iterator[tuple[str, ...]]:
    """Yield a limit, the menu, and per rule the true δ over the promised δ, and the reports."""
    for epsilon, delta, menu in PLANS:
        rules = (
            by_distribution(epsilon, delta),
            Limit(epsilon, delta).admits,
            Limit(epsilon, delta, slack=delta).admits,
        )
        cells = []
        for rule in rules:
            worst, reports = worst_delta(float(epsilon), menu, rule)
            cells.append(f"{worst / float(delta):.3g} ({reports})")
        yield f"ε = {epsilon}, δ = {delta}", ", ".join(map(str, menu)), *cells


# ---- Cuts of a batch


def library_norms(W: Vectors, order: float) -> Vectors:
    """Return norms as earlier versions computed them: in the library's order of summation."""
    norms: Vectors = np.abs(W).sum(axis=1) if order == 1 else np.sqrt(np.einsum("ij,ij->i", W, W))
    return norms


def cuts() -> Iterator[tuple[str, ...]]:
    """Yield how many records get other bytes alone than in one batch, under the same key."""
    rng = np.random.default_rng(5)
    signs = rng.choice([-1.0, 1.0], (ROWS, WIDE)) * rng.uniform(1, 2, (ROWS, 1))
    normal = rng.standard_normal((ROWS, WIDE))
    gaussian = Gaussian(WIDE, 1.0, Fraction(4), Fraction(1, 10**5))
    # A multiple of √m steps: rows of ±c lie on lattice points, where rounding towards zero jumps.
    gaussian = replace(gaussian, bound=gaussian.bound // math.isqrt(WIDE) * math.isqrt(WIDE))
    spherical = SphericalLaplace(WIDE, 1.0, Fraction(4))
    for randomizer in (gaussian, spherical):
        for name, rows in (("rows of ±c", signs), ("normal rows", normal)):
            with patch.object(randomizers_base, "row_norms", library_norms):
                before = other_bytes(randomizer, rows)
            yield (
                f"other bytes in another batch, {randomizer.kind}, {name}, m = {WIDE:,}",
                *(_moved_text(*figures) for figures in (before, other_bytes(randomizer, rows))),
            )


def other_bytes(randomizer: Any, rows: Vectors) -> tuple[int, float]:
    """Return the number of rows whose reports differ, and the share of signs that this reveals."""
    key = JobKey()
    stream = key.streams("00")

    def reports(part: range) -> list[bytes]:
        sources = [stream(row, rows[row].tobytes()) for row in part]
        return report_records(randomizer, rows[part.start : part.stop], sources)

    whole = reports(range(len(rows)))
    alone = [report for row in range(len(rows)) for report in reports(range(row, row + 1))]
    moved = [row for row in range(len(rows)) if whole[row] != alone[row]]
    if not moved:
        return 0, 0.0
    gaps = randomizer.read([whole[i] for i in moved]) - randomizer.read([alone[i] for i in moved])
    # Known up to one sign per row: whether the point moved outwards.
    agree = np.sign(gaps) * np.sign(rows[moved])
    return len(moved), float(np.abs(agree.mean(axis=1)).mean())


def _moved_text(moved: int, signs: float) -> str:
    shown = f"; these show {signs:.0%} of their signs" if moved else ""
    return f"{moved} of {ROWS}{shown}"


# ---- Ledgers


def ledgers() -> Iterator[tuple[str, ...]]:
    """Yield what a copy of a ledger confirms, its mode, and the reports of one study."""
    rng = np.random.default_rng(0)
    public = rng.standard_normal((100, 3))
    vectors = rng.standard_normal((GUESSES, 3))
    release = offaxis.fit(None, public, epsilon=1, reshaping="none", mechanism="laplace")
    with tempfile.TemporaryDirectory() as folder, _mask(0o022):
        old, new = Path(folder, "old"), Path(folder, "new")
        old.mkdir()
        new.mkdir()
        before = sum(
            confirmed(old_ledger(old / f"{i}.ledger", vector), vectors) == [i]
            for i, vector in enumerate(vectors)
        )
        # At one time, so that only the vector could make a difference. If all files are equal, no
        # reader of one can tell a right guess from a wrong one.
        with patch("time.time", return_value=1.7e9):
            files = [_reported(new / f"{i}.ledger", release, v) for i, v in enumerate(vectors)]
        told_apart = sum(files.count(file) < GUESSES for file in files)
        yield (
            "guesses of a vector confirmed by its ledger",
            *(f"{count} of {GUESSES}" for count in (before, told_apart)),
        )
        modes = [(part / "0.ledger").stat().st_mode & 0o777 for part in (old, new)]
        yield "mode of the file, at umask 022", *(f"{mode:04o}" for mode in modes)
        studies = _one_study(Path(folder, "study.ledger"), public)
        yield f'reports of {RELEASES} releases per person (unit "user") in one study', *studies


def old_ledger(path: Path, vector: Vectors) -> Path:
    """Write a ledger as version 2 did: a report under a keyed hash of its vector, and the key."""
    secret = os.urandom(32)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE kept (release TEXT, key BLOB, report BLOB)")
        database.execute("CREATE TABLE secret (key BLOB)")
        database.execute("INSERT INTO secret VALUES (?)", (secret,))
        found = hmac.digest(secret, vector.astype("<f8").tobytes(), hashlib.sha256)
        database.execute("INSERT INTO kept VALUES ('r', ?, x'00')", (found,))
    return path


def confirmed(path: Path, guesses: Vectors) -> list[int]:
    """Return the guesses that a copy of such a file confirms."""
    with closing(sqlite3.connect(path)) as database:
        [(secret,)] = database.execute("SELECT key FROM secret")
        kept = {key for (key,) in database.execute("SELECT key FROM kept")}
    octets = [guess.astype("<f8").tobytes() for guess in guesses]
    return [i for i, o in enumerate(octets) if hmac.digest(secret, o, hashlib.sha256) in kept]


def _reported(path: Path, release: Any, vector: Vectors) -> bytes:
    with Ledger(path, Limit(8)) as ledger:
        Reporter(release, ledger).report(vector)
    return path.read_bytes()


def _one_study(path: Path, public: Vectors) -> tuple[str, str]:
    """Return the reports that each rule admits: one per release hash, or one per study."""
    releases = [
        offaxis.fit(
            None, public, epsilon=f"1/{i + 1}", reshaping="none", mechanism="laplace", unit="user"
        )
        for i in range(RELEASES)
    ]
    admitted = 0
    with Ledger(path, Limit(8)) as ledger:
        for release in releases:
            try:
                Reporter(release, ledger, study="sleep").report(public[0])
                admitted += 1
            except OffaxisError:
                pass
    return str(len({release.hash for release in releases})), str(admitted)


@contextmanager
def _mask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


# ---- Bounds


def bounds() -> Iterator[tuple[str, ...]]:
    """Yield stated bounds of earlier versions, proved ones, and what an existing method reaches."""
    answers = np.random.default_rng(0).standard_normal(4000)
    deviation = float(answers.std())
    for epsilon in (12, 18, 30):
        figures = (
            refined_channel(answers, epsilon).rmse / deviation,
            least_scalar_error(answers, epsilon) / deviation,
            scalar_limit.fine(answers, epsilon) / deviation,
        )
        yield f"least error of a number, ε = {epsilon}", *(f"{value:.3g}" for value in figures)
    people, delta = 10_000, 1e-6
    response = KaryResponse(10, Fraction(1))
    formula = shuffling.closed_form(1.0, people, delta)
    attacked = shuffling.attack(shuffling.instance(response), people, delta)
    cases: tuple[tuple[str, Any, str], ...] = (
        ("any pure ε = 1", 1, "–"),
        ("ten-ary response, ε = 1", response, f"{attacked:.3g}"),
    )
    for name, what, attack in cases:
        now = shuffled_epsilon(what, people, delta).epsilon
        setting = f"central ε of {people:,} shuffled reports at δ = {delta:g}, {name}"
        yield setting, f"{formula:.3g}", f"{now:.3g}", attack


def main() -> None:
    """Print the tables."""
    _table(
        ("limit", "budgets", "distribution of what was spent", "sums", "slack = δ"),
        adaptive(),
    )
    _table(("promise", "before", "now"), (row for part in (cuts(), ledgers()) for row in part))
    _table(("bound", "before", "now", "achieved"), bounds())


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> None:
    print(f"| {' | '.join(head)} |\n|---{'|---:' * (len(head) - 1)}|")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)
    print()


if __name__ == "__main__":
    main()
