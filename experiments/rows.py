"""The rows of the paper's tables: what each label stands for, and how it is made here.

Plain rows use the randomizer on vectors that are not centred. Reshaped rows ("+PA" in the paper)
use the published setting: order 1 for every randomizer, cap 1000, radius at the 90th percentile.
Two published rows have no valid guarantee; they are simulated for comparison, marked wherever they
are shown, and stand beside their valid counterparts.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

from experiments.ablations import ablate
from experiments.advice import Advice, advice, recommended
from experiments.lines import WITHOUT_REPORTS, NoReport
from experiments.sources import Source
from experiments.without_guarantee import (
    LABEL,
    Unprotected,
    classical_plan,
    unbounded_coordinatewise,
)
from offaxis import randomizers
from offaxis.encoding.reshaping import Allocation, Jacobian, Optimal, Reshaping
from offaxis.evaluation.utility import Goal
from offaxis.fitting import at_budget, fit
from offaxis.mechanisms import Mechanism as FittedMechanism
from offaxis.mechanisms import find_mechanism, posterior
from offaxis.release import Release

DELTA: Final = 1e-5
ORDER: Final = 1.0
ALLOCATION: Final[Allocation] = "capped"

Made = Release | Unprotected
Shape = Literal["jacobian", "optimal", "centre", "none"]

_KEYS: Final = {"mechanism": "randomizer", "rank": "active"}
"""Names inside a key, which seeds the noise: they stay as they were, so that figures repeat."""

_SAME_MAPS: Final = {*randomizers.NAMES, "coordinatewise-laplace", "plan"}
"""Recipes whose maps and radius do not look at the budget."""

_training = threading.Lock()
"""One at a time: torch's random numbers belong to the whole process."""

Way = Literal[NoReport, "fit", "recommended", "ablation", "unbounded", "classical"]


@dataclass(frozen=True)
class Mechanism:
    """One row of a table, whatever the budget.

    Attributes
    ----------
    title : str
        What it is in our words.
    way : {"fit", "recommended", "ablation", "unbounded", "classical"}, or one of lines.NoReport
        :func:`offaxis.fit`; what :func:`offaxis.recommend` chooses at each budget; a part of the
        method taken away; one of the two published mechanisms without a guarantee; or a line for
        which nobody reports.
    mechanism, reshaping, percentile, lambda_max, size, rank
        As in :func:`offaxis.fit` and its reshapings.
    ablation : str
        Which part is taken away.
    goal : str
        What is wanted of the recommended release.
    posterior : bool
        Whether reports are decoded to the posterior mean and not by the recipe's own decoder.
    """

    title: str
    way: Way = "fit"
    mechanism: str = ""
    reshaping: Shape = "none"
    percentile: float = 90.0
    lambda_max: float = 1000.0
    size: int | None = None
    ablation: str = ""
    rank: int | None = None
    goal: Goal | None = None
    posterior: bool = False

    @property
    def mark(self) -> str:
        """What must stand beside its figures: "no guarantee", or nothing."""
        return LABEL if self.way in ("unbounded", "classical") else ""

    @property
    def key(self) -> str:
        """What identifies its figures: everything but the title, and what is left open."""
        known = {_KEYS.get(k, k): v for k, v in asdict(self).items() if k != "title"}
        for name in ("active", "goal", "posterior"):
            if not known[name]:
                del known[name]
        return " ".join(f"{k}={v}" for k, v in known.items())

    @property
    def trained(self) -> bool:
        """Whether fitting it means training a network, at every budget anew."""
        return self.size is not None

    @property
    def slow(self) -> bool:
        """Whether fitting takes so long that every budget is stored for itself."""
        return self.trained or self.goal is not None

    @property
    def reports(self) -> bool:
        """Whether anybody reports at all."""
        return self.way not in WITHOUT_REPORTS

    @property
    def runs_model(self) -> bool:
        """Whether fitting needs the model itself and not only its geometry."""
        return self.trained or self.mechanism in ("class-response", "scalar-response")

    @property
    def stream(self) -> str:
        """Which random numbers it draws: the same at every percentile and cap."""
        return replace(self, percentile=0.0, lambda_max=0.0).key

    def make(self, source: Source, epsilons: Iterable[float]) -> dict[float, Made]:
        """Fit it to the public side of a source, at every budget; nothing where nobody reports."""
        if not self.reports:
            return {}
        fitted = source.fitted
        made: dict[float, Made] = {}
        for epsilon in epsilons:
            if (self.key, epsilon) not in fitted:
                fitted[self.key, epsilon] = self._at(source, epsilon, made)
            made[epsilon] = fitted[self.key, epsilon]
        return made

    def _at(self, source: Source, epsilon: float, made: dict[float, Made]) -> Made:
        """Fit at a budget, or take what was made for another one as far as it goes."""
        if made and self.mechanism in _SAME_MAPS and not self.posterior:
            other = next(iter(made.values()))
            if isinstance(other, Release):
                return at_budget(other, epsilon, self.mechanism)
        return self._fit(source, epsilon)

    def advice(self, source: Source, epsilon: float) -> Advice | None:
        """Return what was recommended, and predicted; None where nobody was asked."""
        return None if self.goal is None else advice(source, self.goal, epsilon)

    def _reshaping(self, chosen: FittedMechanism) -> str | Reshaping:
        """Return the reshaping of the published setting: one constraint for every mechanism."""
        if chosen.reshaping == "metric":
            return "jacobian" if self.reshaping == "optimal" else self.reshaping
        if self.reshaping == "jacobian":
            return Jacobian(lambda_max=self.lambda_max, order=ORDER, allocation=ALLOCATION)
        return Optimal(rank=self.rank) if self.reshaping == "optimal" else self.reshaping

    def _fit(self, source: Source, epsilon: float) -> Made:
        if self.goal is not None:
            found = recommended(source, self.goal, epsilon)
            return replace(found.release, unit=source.unit)
        chosen = find_mechanism(self.mechanism)
        settings: dict[str, Any] = {
            "epsilon": epsilon,
            "delta": DELTA if chosen.needs_delta else None,
        }
        if chosen.uses_percentile:
            settings["percentile"] = self.percentile
        if self.way == "ablation":
            return ablate(
                source.geometry,
                source.public,
                self.ablation,
                mechanism=self.mechanism,
                lambda_max=self.lambda_max,
                order=ORDER,
                **settings,
            )
        if chosen.reshaping != "none":
            settings["reshaping"] = self._reshaping(chosen)
        if self.way == "unbounded":
            return unbounded_coordinatewise(source.geometry, source.public, **settings)
        if self.way == "classical":
            return classical_plan(source.geometry, source.public, **settings)
        model = source.task if self.runs_model else source.geometry
        with _training if self.trained else nullcontext():
            release = fit(
                model,
                source.public,
                mechanism=self.mechanism,
                size=self.size,
                unit=source.unit,
                **settings,
            )
        if self.posterior:
            return release.with_decoder(posterior(release, source.public))
        return release


def _pair(title: str, label: str, mechanism: str, plain: str = "") -> dict[str, Mechanism]:
    return {
        plain or label: Mechanism(f"{title}, plain", mechanism=mechanism),
        f"{label}+PA": Mechanism(f"{title}, reshaped", mechanism=mechanism, reshaping="jacobian"),
    }


BOUNDED: Final = "CW+PA, bounded"
EXACT_PLAN: Final = "PLAN, exact calibration"
CLEAN: Final = "No randomization"
LINE: Final = "reference line"
PUBLIC_MEAN: Final = "public mean"
LEAST: Final = "least error"

LINES: Final[dict[str, Mechanism]] = {
    LINE: Mechanism("reference line: the head's answer by k-ary response", "line"),
    PUBLIC_MEAN: Mechanism("always the public mean, no report", "public mean"),
    LEAST: Mechanism("least error of the forecast, and what it misses anyway", "least"),
}
"""What stands beside the rows of every study."""

MECHANISMS: Final[dict[str, Mechanism]] = {
    CLEAN: Mechanism("without privacy", "clean"),
    **_pair("Laplace", "Laplace", "laplace", "Laplace (l1)"),
    **_pair("PrivUnit2", "PrivUnit2", "privunit2"),
    **_pair("PrivUnitG", "PrivUnitG", "privunitg-sphere"),
    "CW+PA w/o bounding": Mechanism(
        "coordinate-wise, reshaped, without bounding",
        "unbounded",
        "coordinatewise-laplace",
        "jacobian",
    ),
    BOUNDED: Mechanism(
        "coordinate-wise, reshaped", mechanism="coordinatewise-laplace", reshaping="jacobian"
    ),
    "Task-Aware": Mechanism("task-aware, linear", mechanism="task-aware"),
    "AGM (l2, delta=10^-5)": Mechanism("Gaussian, plain", mechanism="gaussian"),
    "IO (delta=10^-5)": Mechanism("instance-optimal", mechanism="instance-optimal"),
    "PLAN (delta=10^-5)": Mechanism("PLAN, classical calibration", "classical", "plan"),
    EXACT_PLAN: Mechanism("PLAN, exact calibration", mechanism="plan"),
}
"""The paper's label → mechanism; the two of our own are the valid counterparts."""

COUNTERPARTS: Final = {"CW+PA w/o bounding": BOUNDED, "PLAN (delta=10^-5)": EXACT_PLAN}
"""A published row without a valid guarantee → the row that has one."""

_ABLATIONS: Final = {
    "PA (LambdaJac^-1/2UJac^-1,l1, UJacLambdaJac^1/2)": "full",
    "(LambdaJac^-1/2UJac^-1,l1,UJac)": "rotation in post",
    "(l1)": "clip only",
    "(LambdaJac^-1/2UPCA^-1,l1, UPCALambdaJac^1/2)": "principal axes",
    "(LambdaJac^-1/2URand^-1,l1, URandLambdaJac^1/2)": "permuted axes",
    "PA w/o Pre-processing": "post only",
    "PA w/o Post-processing": "pre only",
}
_ABLATED: Final = {"Laplace": "laplace", "PrivUnit2": "privunit2", "PrivUnitG": "privunitg-sphere"}


def ablated(label: str) -> Mechanism:
    """Return what a row of the paper's ablation table stands for."""
    base, part = label.split("+", 1)
    name = _ABLATIONS[part]
    return Mechanism(f"{base}, {name}", "ablation", _ABLATED[base], "jacobian", ablation=name)
