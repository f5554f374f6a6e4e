"""The demo: the paper's two main results on bundled real data, as one HTML file.

Four randomizers, plain and reshaped, on features of images; three of them on households' readings,
in the paper's setting: order 1, radius at the 90th percentile, one report per household.
"""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from threadpoolctl import threadpool_limits

from experiments import engine
from experiments.data import DemoData, load_cifar10_features
from experiments.demo.figures import HOUSEHOLD_ROWS, Releases, draw
from experiments.demo.page import HEADLINE_RANDOMIZER, render
from experiments.demo.result import METRIC, DemoResult, ExactCheck, HouseholdResult, Theory
from experiments.methods import CLEAN, METHODS
from experiments.reference_lines import line_scores
from experiments.sources import open_source
from offaxis.encoding.reshaping import Jacobian, Reshaping
from offaxis.errors import InvalidInput
from offaxis.evaluation import BUDGETS, SweepCell, evaluate, sweep
from offaxis.evaluation.recommend import recommend_range
from offaxis.evaluation.recommendation import Recommendation
from offaxis.files import replacing
from offaxis.fitting import fit
from offaxis.geometry import Geometry, PublicVectors, measure
from offaxis.html.pages import require_report_extra
from offaxis.mechanisms import find_mechanism
from offaxis.release import Release
from offaxis.theory.ceilings import agreement_ceiling, answer_prior
from offaxis.theory.table import theory_rows

Progress = Callable[[str, int, int], None]
"""Called with the name of the stage, the number of steps done, and their total."""

RANDOMIZERS: Final = ("laplace", "gaussian", "privunit2", "privunitg-sphere")
SHAPES: Final = ("none", "jacobian")
DELTA: Final = 1e-5
HEADLINE_EPSILON: Final = 7.5
"""Budget of the headline, the noise figure and the real reports; if not swept, the largest."""
REAL_REPETITIONS: Final = {"laplace": 5, "gaussian": 5, "privunit2": 1, "privunitg-sphere": 1}
"""Most repetitions with real reports; PrivUnit's take far longer, as they rank directions."""
THEORY_RANDOMIZER: Final = "laplace"
"""Most of the theory is about additive noise, which PrivUnit's is not."""
THEORY_VECTORS: Final = 400
THEORY_DRAWS: Final = 20
RECOMMENDED: Final = (1.0, 3.0, 7.5)
"""Budgets of the recommendations; the headline's if none of them is swept."""
HOUSEHOLD_STEPS: Final = 1 + 2 * len(HOUSEHOLD_ROWS)
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
        Repetitions behind every simulated number. Simulations are the same in every run; real
        reports are not, and have fewer repetitions where they are slow.
    epsilons : sequence of float
        Budgets of the sweep.
    progress : callable, optional
        Called with a stage's name, the number of steps done, and their total.

    Raises
    ------
    MissingExtra
        If matplotlib or jinja2 is not installed, before anything is computed.
    """
    require_report_extra()
    if not epsilons:
        raise InvalidInput("the demo needs at least one budget, got epsilons=()")
    target = Path(out)
    target = target / "offaxis-demo.html" if target.is_dir() else target
    # Small products gain nothing from BLAS threads, which wait for each other on a busy machine.
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
    theory = _theory(data, releases, headline, _stage(progress, "evaluating theory"))
    advance = _stage(progress, "forecasting electricity")(HOUSEHOLD_STEPS)
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
    """Return the budget of the headline: the default one if it is swept, else the largest."""
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
    """Compare the accuracy of real reports of every release with their simulation."""
    real = {name: min(seeds, REAL_REPETITIONS[name]) for name in RANDOMIZERS}
    report = stage(sum(seeds + real[name] for name, _ in releases))
    checks = []
    for (name, shape), release in releases.items():
        # A fresh seed: all budgets of the sweep share its few seeds, whose errors may agree.
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


def measure_households(
    epsilons: Sequence[float], seeds: int, advance: Callable[[int], None]
) -> HouseholdResult:
    """Simulate every randomizer at every budget, plain and reshaped.

    ``advance`` is called once per row, :data:`HOUSEHOLD_STEPS` times in all.
    """
    source = open_source("lhsm")
    budgets = tuple(epsilons)
    errors: dict[tuple[str, str, float], tuple[float, ...]] = {}
    with tempfile.TemporaryDirectory() as folder:

        def run(label: str) -> list[engine.Outcome]:
            row = engine.Row(label, "", "lhsm", METHODS[label], budgets)
            outcomes = engine.run([row], Path(folder), seeds=seeds)
            advance(1)
            return outcomes

        clean = run(CLEAN)[0].mean
        for name, labels in HOUSEHOLD_ROWS.items():
            for shape, label in zip(SHAPES, labels, strict=True):
                for outcome in run(label):
                    errors[name, shape, outcome.epsilon] = outcome.runs
    least = line_scores(source, "least", budgets, seeds)
    constant = line_scores(source, "public mean", budgets[:1], seeds)[budgets[0]]
    lines = {epsilon: float(np.mean(runs)) for epsilon, runs in least.items()}
    return HouseholdResult(
        errors, clean, float(np.mean(constant)), lines, len(source.sample(0).answers)
    )


def _recommended(
    data: DemoData, epsilons: Sequence[float], headline: float, stage: _Stage
) -> tuple[Recommendation, ...]:
    """Recommend a release for the answers at a few budgets, from the public vectors alone."""
    budgets = [budget for budget in RECOMMENDED if budget in epsilons] or [headline]
    report = stage(1)
    recommendations = recommend_range(data.head, data.public, epsilons=budgets, effort="full")
    report(1)
    return recommendations


_Stage = Callable[[int], Callable[[int], None]]


def _stage(progress: Progress | None, name: str) -> _Stage:
    """Return a function that opens a stage of a given size and returns its counter."""

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
