"""The demo: the paper's two main results on bundled real data, ending in one HTML file.

Four randomizers, plain and reshaped, on features of images; three of them on households' readings.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from threadpoolctl import threadpool_limits

from experiments.data import DemoData, load_cifar10_features
from experiments.demo.figures import Releases, draw
from experiments.demo.page import HEADLINE_RANDOMIZER, render
from experiments.demo.result import (
    METRIC,
    STEPS,
    DemoResult,
    ExactCheck,
    Theory,
    measure_households,
)
from offaxis.encoding.reshaping import Jacobian, Reshaping
from offaxis.errors import InvalidInput
from offaxis.evaluation import BUDGETS, SweepCell, evaluate, sweep
from offaxis.evaluation.recommend import recommend_range
from offaxis.evaluation.recommendation import Recommendation
from offaxis.files import replacing
from offaxis.fitting import fit
from offaxis.geometry import Geometry, PublicVectors, measure
from offaxis.mechanisms import find_mechanism
from offaxis.release import Release
from offaxis.reporting.pages import require_report_extra
from offaxis.theory.ceilings import agreement_ceiling, answer_prior
from offaxis.theory.table import theory_rows

Progress = Callable[[str, int, int], None]
"""Called with the name of the stage, how much of it is done, and how much there is."""

RANDOMIZERS: Final = ("laplace", "gaussian", "privunit2", "privunitg-sphere")
SHAPES: Final = ("none", "jacobian")
DELTA: Final = 1e-5
HEADLINE_EPSILON: Final = 7.5
"""Budget of the headline, the noise figure and the real reports; the largest one if not swept."""
REAL_REPETITIONS: Final = {"laplace": 5, "gaussian": 5, "privunit2": 1, "privunitg-sphere": 1}
"""How often real reports are drawn, at most: those that rank directions take far longer."""
THEORY_RANDOMIZER: Final = "laplace"
"""Most of the theory speaks of additive noise, which PrivUnit's is not."""
THEORY_VECTORS: Final = 400
THEORY_DRAWS: Final = 20
RECOMMENDED: Final = (1.0, 3.0, 7.5)
"""Budgets at which every candidate is tried; the headline's if none of them is swept."""
STATEMENT: Final = "bundled demo data: features of CIFAR-10 training images"


def run_demo(
    out: Path,
    *,
    seeds: int = 20,
    epsilons: Sequence[float] = BUDGETS,
    progress: Progress | None = None,
) -> DemoResult:
    """Run the demo on the bundled data and write its page.

    Parameters
    ----------
    out : Path
        The HTML file to write; in a directory, ``offaxis-demo.html``.
    seeds : int
        Repetitions behind every simulated number. Simulations repeat from run to run; real
        reports do not, and are drawn fewer times where they are slow.
    epsilons : sequence of float
        Budgets of the sweep.
    progress : callable, optional
        Called with a stage's name, what is done of it and its total.

    Raises
    ------
    MissingExtra
        If matplotlib or jinja2 is not installed; nothing has been computed then.
    """
    require_report_extra()
    if not epsilons:
        raise InvalidInput("the demo needs at least one budget, got epsilons=()")
    target = Path(out)
    target = target / "offaxis-demo.html" if target.is_dir() else target
    # Small products gain nothing from BLAS's threads, and on a busy machine wait for each other.
    with threadpool_limits(limits=1, user_api="blas"):
        return _run(target, seeds, epsilons, progress)


def _run(
    target: Path, seeds: int, epsilons: Sequence[float], progress: Progress | None
) -> DemoResult:
    started = time.perf_counter()
    data = load_cifar10_features()
    geometry = measure(data.head, PublicVectors(data.public))
    headline = headline_of(epsilons)
    releases: Releases = {
        (name, shape): _release(data, geometry, headline, name, shape)
        for name in RANDOMIZERS
        for shape in SHAPES
    }
    rows = _sweep(data, epsilons, seeds, _stage(progress, "simulating releases"))
    stage = _stage(progress, "centring only")
    centred = _sweep(data, [headline], seeds, stage, ["centre"])
    stage = _stage(progress, "the paper's setting")
    published = _sweep(data, [headline], seeds, stage, [Jacobian(order=1)])
    exact = _exact(data, releases, headline, seeds, _stage(progress, "drawing real reports"))
    theory = _theory(data, releases, headline, _stage(progress, "asking theory"))
    advance = _stage(progress, "forecasting electricity")(STEPS)
    households = measure_households(epsilons, seeds, advance)
    recommended = _recommended(data, epsilons, headline, _stage(progress, "recommending"))
    prior = answer_prior(data.head, data.public)
    result = DemoResult(
        rows=tuple(rows),
        exact=tuple(exact),
        centred=tuple(centred),
        published=tuple(published),
        release=releases[HEADLINE_RANDOMIZER, "jacobian"],
        theory=theory,
        households=households,
        clean=rows[0].evaluation.clean[METRIC],
        recommended=recommended,
        ceilings={e: agreement_ceiling(prior, e).probability for e in epsilons},
        classes=len(data.class_names),
        seeds=seeds,
        html=target,
    )
    report = _stage(progress, "drawing the page")(2)
    figures = draw(result, data, geometry, releases, headline)
    report(1)
    elapsed = time.perf_counter() - started
    page = render(result, data, releases, figures, headline=headline, elapsed=elapsed)
    with replacing(target) as file:
        file.write(page.encode())
    report(1)
    return result


def headline_of(epsilons: Sequence[float]) -> float:
    """Return the budget of the headline: the usual one if it is swept, else the largest."""
    return HEADLINE_EPSILON if HEADLINE_EPSILON in epsilons else max(epsilons)


def _release(data: DemoData, geometry: Geometry, epsilon: float, name: str, shape: str) -> Release:
    return fit(
        geometry,
        data.public,
        epsilon=epsilon,
        mechanism=name,
        delta=DELTA if find_mechanism(name).needs_delta else None,
        reshaping=shape,
        statement=STATEMENT,
    )


def _sweep(
    data: DemoData,
    epsilons: Sequence[float],
    seeds: int,
    stage: _Stage,
    shapes: Sequence[str | Reshaping] = SHAPES,
) -> list[SweepCell]:
    return sweep(
        data.head,
        data.public,
        data.vectors,
        data.labels,
        mechanisms=RANDOMIZERS,
        epsilons=epsilons,
        reshapings=shapes,
        delta=DELTA,
        seeds=seeds,
        progress=stage(len(RANDOMIZERS) * len(shapes) * len(epsilons) * seeds),
    )


def _exact(
    data: DemoData, releases: Releases, epsilon: float, seeds: int, stage: _Stage
) -> list[ExactCheck]:
    """Draw real reports of every release, decode them, and simulate the same beside them."""
    real = {name: min(seeds, REAL_REPETITIONS[name]) for name in RANDOMIZERS}
    report = stage(sum(seeds + real[name] for name, _ in releases))
    checks = []
    for (name, shape), release in releases.items():
        # A fresh seed: the sweep's few seeds are shared by all budgets and may all lean.
        simulated, exact = (
            evaluate(
                release,
                data.head,
                data.vectors,
                data.labels,
                seeds=repetitions,
                seed=secrets.randbits(32),
                exact=is_exact,
                progress=report,
            )
            for is_exact, repetitions in ((False, seeds), (True, real[name]))
        )
        checks.append(ExactCheck(name, shape, epsilon, len(data.vectors), simulated, exact))
    return checks


def _theory(data: DemoData, releases: Releases, epsilon: float, stage: _Stage) -> Theory:
    report = stage(1)
    vectors = data.vectors[:THEORY_VECTORS]
    rows = theory_rows(
        releases[THEORY_RANDOMIZER, "jacobian"],
        data.head,
        vectors,
        data.public,
        draws=THEORY_DRAWS,
        seed=0,
    )
    report(1)
    return Theory(THEORY_RANDOMIZER, epsilon, len(vectors), THEORY_DRAWS, tuple(rows))


def _recommended(
    data: DemoData, epsilons: Sequence[float], headline: float, stage: _Stage
) -> tuple[Recommendation, ...]:
    """Recommend a release for the answers at a few budgets, from the public vectors alone."""
    budgets = [each for each in RECOMMENDED if each in epsilons] or [headline]
    report = stage(1)
    found = recommend_range(data.head, data.public, epsilons=budgets)
    report(1)
    return found


_Stage = Callable[[int], Callable[[int], None]]


def _stage(progress: Progress | None, name: str) -> _Stage:
    """Return a function that opens a stage of a given size and counts it up."""

    def open_stage(total: int) -> Callable[[int], None]:
        done = 0

        def advance(amount: int) -> None:
            nonlocal done
            done += amount
            if progress:
                progress(name, done, total)

        advance(0)
        return advance

    return open_stage
