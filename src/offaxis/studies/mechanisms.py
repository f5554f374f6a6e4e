"""The rows of the paper's tables: what each label stands for, and how it is made here.

Plain rows use the randomizer on vectors that are not centred. Reshaped rows ("+PA" in the paper)
use the published setting: gauge 1 for every randomizer, cap 1000, radius at the 90th percentile.
Two published rows have no valid guarantee; they are simulated for comparison, marked wherever they
are shown, and stand beside their valid counterparts.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Final, Literal

from offaxis import randomizers
from offaxis.encoding.reshaping import Rank
from offaxis.fitting import Shape, fit
from offaxis.randomizers import Randomizer
from offaxis.recipes import recipe
from offaxis.release import Release
from offaxis.studies.ablations import ablate
from offaxis.studies.sources import Source
from offaxis.studies.without_guarantee import (
    LABEL,
    Unprotected,
    classical_plan,
    unbounded_coordinatewise,
)

DELTA: Final = 1e-5
GAUGE: Final = 1.0
RANK: Final[Rank] = "capped"

Made = Release | Unprotected

_SAME_MAPS: Final = {*randomizers.NAMES, "coordinatewise-laplace", "plan"}
"""Recipes whose maps and radius do not look at the budget."""

_training = threading.Lock()
"""One at a time: torch's random numbers belong to the whole process."""

Way = Literal["clean", "fit", "ablation", "unbounded", "classical"]


@dataclass(frozen=True)
class Mechanism:
    """One row of a table, whatever the budget.

    Attributes
    ----------
    title : str
        What it is in our words.
    way : {"clean", "fit", "ablation", "unbounded", "classical"}
        No privacy; :func:`offaxis.fit`; a part of the method taken away; or one of the two
        published mechanisms without a guarantee.
    randomizer, reshaping, percentile, lambda_max, size, active
        As in :func:`offaxis.fit`.
    ablation : str
        Which part is taken away.
    """

    title: str
    way: Way = "fit"
    randomizer: str = ""
    reshaping: Shape = "none"
    percentile: float = 90.0
    lambda_max: float = 1000.0
    size: int | None = None
    ablation: str = ""
    active: int | None = None

    @property
    def mark(self) -> str:
        """What must stand beside its figures: "no guarantee", or nothing."""
        return LABEL if self.way in ("unbounded", "classical") else ""

    @property
    def key(self) -> str:
        """What identifies its figures: everything but the title, and what is left open."""
        known = {k: v for k, v in asdict(self).items() if k != "title"}
        if self.active is None:
            del known["active"]
        return " ".join(f"{k}={v}" for k, v in known.items())

    @property
    def trained(self) -> bool:
        """Whether fitting it means training a network, at every budget anew."""
        return self.size is not None

    @property
    def runs_model(self) -> bool:
        """Whether fitting needs the model itself and not only its geometry."""
        return self.trained or self.randomizer in ("class-response", "scalar-response")

    @property
    def stream(self) -> str:
        """Which random numbers it draws: the same at every percentile and cap."""
        return replace(self, percentile=0.0, lambda_max=0.0).key

    def make(self, source: Source, epsilons: Iterable[float]) -> dict[float, Made]:
        """Fit it to the public side of a source, at every budget; nothing at all when clean."""
        if self.way == "clean":
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
        if made and self.randomizer in _SAME_MAPS:
            other = next(iter(made.values()))
            if isinstance(other, Release):
                return at_budget(other, epsilon, self.randomizer)
        return self._fit(source, epsilon)

    def _fit(self, source: Source, epsilon: float) -> Made:
        chosen = recipe(self.randomizer)
        settings: dict[str, Any] = {
            "epsilon": epsilon,
            "delta": DELTA if chosen.needs_delta else None,
            "percentile": self.percentile,
        }
        stretching: dict[str, Any] = {"lambda_max": self.lambda_max, "gauge": GAUGE}
        if self.way == "ablation":
            return ablate(
                source.geometry,
                source.public,
                self.ablation,
                randomizer=self.randomizer,
                **settings,
                **stretching,
            )
        settings["reshaping"] = self.reshaping
        if self.reshaping == "jacobian":
            settings |= stretching | {"rank": RANK}
        if self.way == "unbounded":
            return unbounded_coordinatewise(source.geometry, source.public, **settings)
        if self.way == "classical":
            return classical_plan(source.geometry, source.public, **settings)
        if self.reshaping == "optimal":
            settings["active"] = self.active
        model = source.task if self.runs_model else source.geometry
        with _training if self.trained else nullcontext():
            return fit(
                model,
                source.public,
                randomizer=self.randomizer,
                size=self.size,
                unit=source.unit,
                **settings,
            )


@lru_cache(maxsize=1024)
def _unit_randomizer(name: str, dim: int, epsilon: float, delta: float | None) -> Randomizer:
    return randomizers.make(name, dim=dim, radius=1.0, epsilon=epsilon, delta=delta)


def at_budget(release: Release, epsilon: float, name: str = "") -> Release:
    """Return the release of the same public side at another budget.

    Equal to fitting again where neither the maps nor the radius look at the budget: lattice and
    directions of a randomizer do not look at the radius. ``name`` is its recipe.
    """
    old: Any = release.randomizer
    unit: Any = _unit_randomizer(
        name if name in randomizers.NAMES else old.kind,
        old.dim,
        epsilon,
        None if release.guarantee.pure else DELTA,
    )
    return replace(release, randomizer=replace(unit, radius=old.radius))


def _pair(title: str, label: str, randomizer: str, plain: str = "") -> dict[str, Mechanism]:
    return {
        plain or label: Mechanism(f"{title}, plain", randomizer=randomizer),
        f"{label}+PA": Mechanism(f"{title}, reshaped", randomizer=randomizer, reshaping="jacobian"),
    }


BOUNDED: Final = "CW+PA, bounded"
EXACT_PLAN: Final = "PLAN, exact calibration"
CLEAN: Final = "No randomization"

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
        "coordinate-wise, reshaped", randomizer="coordinatewise-laplace", reshaping="jacobian"
    ),
    "Task-Aware": Mechanism("task-aware, linear", randomizer="task-aware"),
    "AGM (l2, delta=10^-5)": Mechanism("Gaussian, plain", randomizer="gaussian"),
    "IO (delta=10^-5)": Mechanism("instance-optimal", randomizer="instance-optimal"),
    "PLAN (delta=10^-5)": Mechanism("PLAN, classical calibration", "classical", "plan"),
    EXACT_PLAN: Mechanism("PLAN, exact calibration", randomizer="plan"),
}
"""The paper's label → mechanism; the two of our own are the valid counterparts."""

BEYOND: Final[dict[str, Mechanism]] = {
    "answer": Mechanism("the model's answer by response", randomizer="class-response"),
    "codebook": Mechanism(
        "codebook in the task's metric", randomizer="response", reshaping="jacobian"
    ),
    "optimal PrivUnit2": Mechanism(
        "PrivUnit2, 6 active directions",
        randomizer="privunit2",
        reshaping="optimal",
        percentile=50.0,
        active=6,
    ),
    "optimal Laplace": Mechanism(
        "Laplace, 3 active directions",
        randomizer="laplace",
        reshaping="optimal",
        percentile=50.0,
        active=3,
    ),
}
"""Beyond the paper, for answers; ranks as held-out public vectors chose them around ε = 5."""

BEYOND_NUMBER: Final[dict[str, Mechanism]] = {
    "number": Mechanism("the optimal channel for the answer", randomizer="scalar-response"),
    "one Laplace": Mechanism(
        "Laplace, 1 active direction", randomizer="laplace", reshaping="optimal", active=1
    ),
}
"""The same for one number."""

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
