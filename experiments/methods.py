"""The rows of the paper's tables: what each label stands for, and how its releases are made.

Plain rows apply the randomizer to vectors that are not centred. Reshaped rows ("+PA" in the paper)
use the published setting: order 1 for every randomizer, cap 1000, radius at the 90th percentile.
By the protocol "published" they follow the paper's public code
(:mod:`experiments.reference_protocol`).

Some published cells have no valid guarantee. They are simulated for comparison and marked wherever
they are shown.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

from experiments.ablations import ablate
from experiments.recommended import Prediction, recommendation_for
from experiments.reference_lines import WITHOUT_REPORTS, ReferenceLine
from experiments.reference_protocol import clipped_white, on_grid, reference_shape
from experiments.sources import Source
from experiments.without_guarantee import (
    LABEL,
    TASK_AWARE_IMAGES,
    Unprotected,
    classical_plan,
    classical_true_epsilon,
    unbounded_coordinatewise,
)
from offaxis import plugins, randomizers
from offaxis.encoding.reshaping import Allocation, Jacobian, Optimal, Reshaping
from offaxis.fitting import at_budget, fit
from offaxis.mechanisms import Mechanism, find_mechanism, posterior
from offaxis.mechanisms.base import Goal
from offaxis.release import Release

STATED: Final = "not part of offaxis"
"""The mark of mechanisms whose guarantee is what their authors state."""

DELTA: Final = 1e-5
ORDER: Final = 1.0
ALLOCATION: Final[Allocation] = "capped"

Fitted = Release | Unprotected
Shape = Literal["jacobian", "optimal", "centre", "none"]
Kind = Literal[
    ReferenceLine, "fit", "recommended", "ablation", "unbounded", "classical", "task-aware images"
]
Protocol = Literal["ours", "published"]

_KEY_NAMES: Final = {"kind": "way", "mechanism": "randomizer", "rank": "active"}
"""Field → its name inside a key. Keys seed the noise, so these names never change."""

_BUDGET_FREE: Final = {*randomizers.NAMES, "coordinatewise-laplace", "plan"}
"""Mechanisms whose maps and radius do not depend on the budget."""

_training = threading.Lock()
"""One training at a time: torch's random state belongs to the whole process."""


@dataclass(frozen=True)
class Method:
    """One row of a table, at any budget.

    Attributes
    ----------
    title : str
        A description in plain words.
    kind : str
        How its releases are made: "fit", by :func:`offaxis.fit`; "recommended", by
        :func:`offaxis.recommend` at each budget; "ablation", with a part of the mechanism left out;
        "unbounded", "classical" or "task-aware images", as published although some or all budgets
        have no guarantee. For a reference line nobody reports.
    mechanism, reshaping, percentile, lambda_max, size, rank
        As in :func:`offaxis.fit` and its reshapings.
    ablation : str
        The name of the ablation.
    goal : str
        The goal passed to :func:`offaxis.recommend`.
    posterior : bool
        Whether reports are decoded to the posterior mean instead of by the mechanism's decoder.
    protocol : {"ours", "published"}
        Whether details are as in the paper's public code.
    version : str
        The hash of what it depends on besides settings; empty if nothing.
    """

    title: str
    kind: Kind = "fit"
    mechanism: str = ""
    reshaping: Shape = "none"
    percentile: float = 90.0
    lambda_max: float = 1000.0
    size: int | None = None
    ablation: str = ""
    rank: int | None = None
    goal: Goal | None = None
    posterior: bool = False
    protocol: Protocol = "ours"
    version: str = ""

    @property
    def mark(self) -> str:
        """The mark that its whole row must carry: whose guarantee it has, or none; or nothing."""
        if plugins.is_plugin(self.mechanism):
            return STATED
        return LABEL if self.kind in ("unbounded", TASK_AWARE_IMAGES) else ""

    def mark_at(self, epsilon: float) -> str:
        """Return the mark that its figure at a budget must carry."""
        if self.kind == "classical":
            return LABEL if classical_true_epsilon(epsilon, DELTA) > epsilon else ""
        return self.mark

    @property
    def key(self) -> str:
        """The identity of its figures: every field but the title, without optional unset ones."""
        fields = {_KEY_NAMES.get(k, k): v for k, v in asdict(self).items() if k != "title"}
        if fields["goal"] == "vectors":
            fields["goal"] = "fidelity"  # the goal's former name; keys seed the noise
        if self.protocol == "ours":
            del fields["protocol"]
        for name in ("active", "goal", "posterior", "version"):
            if not fields[name]:
                del fields[name]
        return " ".join(f"{k}={v}" for k, v in fields.items())

    @property
    def trained(self) -> bool:
        """Whether fitting trains a network, at each budget."""
        return self.size is not None

    @property
    def slow(self) -> bool:
        """Whether fitting takes so long that each budget is stored on its own."""
        return self.trained or self.goal is not None

    @property
    def reports(self) -> bool:
        """Whether anybody reports."""
        return self.kind not in WITHOUT_REPORTS

    @property
    def runs_model(self) -> bool:
        """Whether fitting needs the model itself and not only its geometry."""
        return self.trained or self.mechanism in ("class-response", "scalar-response")

    @property
    def chooses_again(self) -> bool:
        """Whether every seed has Jacobians on other public vectors, as in the paper's code.

        Only releases that apply one half of the map depend on the choice.
        """
        return self.protocol == "published" and self.ablation in ("pre only", "post only")

    @property
    def stream(self) -> str:
        """The key of its random stream, which is the same at every percentile and cap."""
        return replace(self, percentile=0.0, lambda_max=0.0).key

    def make(self, source: Source, epsilons: Iterable[float]) -> dict[float, Fitted]:
        """Fit to the public side of a source at each budget; empty if nobody reports."""
        if not self.reports:
            return {}
        cache = source.fitted
        made: dict[float, Fitted] = {}
        for epsilon in epsilons:
            if (self.key, epsilon) not in cache:
                cache[self.key, epsilon] = self._at(source, epsilon, made)
            made[epsilon] = cache[self.key, epsilon]
        return made

    def _at(self, source: Source, epsilon: float, made: dict[float, Fitted]) -> Fitted:
        """Fit at a budget, or reuse the maps of a release made for another one."""
        if made and self.mechanism in _BUDGET_FREE and not self.posterior:
            other = next(iter(made.values()))
            if isinstance(other, Release):
                return self._on_grid(at_budget(other, epsilon, self.mechanism))
        made_here = self._fit(source, epsilon)
        return self._on_grid(made_here) if isinstance(made_here, Release) else made_here

    def _on_grid(self, release: Release) -> Release:
        return on_grid(release) if self.protocol == "published" else release

    def prediction(self, source: Source, epsilon: float) -> Prediction | None:
        """Return the recommended release and its predicted utility; None for other methods."""
        if self.goal is None:
            return None
        return Prediction.of(recommendation_for(source, self.goal, epsilon))

    def _reshaping(self, mechanism: Mechanism) -> str | Reshaping:
        """Return the reshaping of the published setting: one constraint for every mechanism."""
        if mechanism.reshaping == "metric":
            return "jacobian" if self.reshaping == "optimal" else self.reshaping
        if self.reshaping == "jacobian":
            return Jacobian(lambda_max=self.lambda_max, order=ORDER, allocation=ALLOCATION)
        return Optimal(rank=self.rank) if self.reshaping == "optimal" else self.reshaping

    @property
    def _is_reshaped_directly(self) -> bool:
        """Whether it is a randomizer between the two maps, and nothing else."""
        reshaped = self.kind == "fit" and self.reshaping == "jacobian"
        return reshaped and self.mechanism in randomizers.NAMES

    def _fit(self, source: Source, epsilon: float) -> Fitted:
        if self.goal is not None:
            recommendation = recommendation_for(source, self.goal, epsilon)
            return replace(recommendation.release, unit=source.unit)
        mechanism = find_mechanism(self.mechanism)
        settings: dict[str, Any] = {
            "epsilon": epsilon,
            "delta": DELTA if mechanism.needs_delta else None,
        }
        if mechanism.uses_percentile:
            settings["percentile"] = self.percentile
        published = self.protocol == "published"
        if self.kind == "ablation" or (published and self._is_reshaped_directly):
            release = ablate(
                source.geometry,
                source.public,
                self.ablation or "full",
                mechanism=self.mechanism,
                lambda_max=self.lambda_max,
                order=ORDER,
                reference=published,
                directions=source.directions,
                **settings,
            )
            return replace(release, unit=source.unit)
        if mechanism.reshaping != "none":
            settings["reshaping"] = self._reshaping(mechanism)
        if self.kind == "unbounded":
            frame = reference_shape(source.geometry, self.lambda_max).frame if published else None
            return unbounded_coordinatewise(source.geometry, source.public, frame=frame, **settings)
        if self.kind == "classical":
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
        if published and self.mechanism == "task-aware":
            return replace(release, encoder=clipped_white(release, source.geometry))
        if self.posterior:
            return release.with_decoder(posterior(release, source.public))
        return release


def _pair(title: str, label: str, mechanism: str, plain: str = "") -> dict[str, Method]:
    return {
        plain or label: Method(f"{title}, plain", mechanism=mechanism),
        f"{label}+PA": Method(f"{title}, reshaped", mechanism=mechanism, reshaping="jacobian"),
    }


BOUNDED: Final = "CW+PA, bounded"
EXACT_PLAN: Final = "PLAN, exact calibration"
NETWORK_LABEL: Final = "task-aware network"
CLEAN: Final = "No randomization"
LINE: Final = "reference line"
PUBLIC_MEAN: Final = "public mean"
LEAST: Final = "least error"

LINES: Final[dict[str, Method]] = {
    LINE: Method("reference line: the head's answer by k-ary response", "line"),
    PUBLIC_MEAN: Method("always the public mean, no report", "public mean"),
    LEAST: Method("least error, including the error without privacy", "least"),
}
"""Label → reference line of the studies."""

METHODS: Final[dict[str, Method]] = {
    CLEAN: Method("without privacy", "clean"),
    **_pair("Laplace", "Laplace", "laplace", "Laplace (l1)"),
    **_pair("PrivUnit2", "PrivUnit2", "privunit2"),
    **_pair("PrivUnitG", "PrivUnitG", "privunitg-sphere"),
    "CW+PA w/o bounding": Method(
        "coordinate-wise, reshaped, without bounding",
        "unbounded",
        "coordinatewise-laplace",
        "jacobian",
    ),
    BOUNDED: Method(
        "coordinate-wise, reshaped", mechanism="coordinatewise-laplace", reshaping="jacobian"
    ),
    "Task-Aware": Method("task-aware, linear", mechanism="task-aware"),
    "AGM (l2, delta=10^-5)": Method("Gaussian, plain", mechanism="gaussian"),
    "IO (delta=10^-5)": Method("instance-optimal", mechanism="instance-optimal"),
    "PLAN (delta=10^-5)": Method("PLAN, classical calibration", "classical", "plan"),
    EXACT_PLAN: Method("PLAN, exact calibration", mechanism="plan"),
}
"""The paper's label → method. The labels BOUNDED and EXACT_PLAN are not the paper's."""

NETWORK: Final = Method("task-aware, our network", mechanism="task-aware-network", size=3)
"""A network trained on public vectors, for classes; the paper's is another one."""

COUNTERPARTS: Final = {"CW+PA w/o bounding": BOUNDED, "PLAN (delta=10^-5)": EXACT_PLAN}
"""A published row, some or all cells of which have no guarantee → the row that has one."""

_ABLATIONS: Final = {
    "PA (LambdaJac^-1/2UJac^-1,l1, UJacLambdaJac^1/2)": "full",
    "(LambdaJac^-1/2UJac^-1,l1,UJac)": "rotation",
    "(l1)": "clip only",
    "(LambdaJac^-1/2UPCA^-1,l1, UPCALambdaJac^1/2)": "principal axes",
    "(LambdaJac^-1/2URand^-1,l1, URandLambdaJac^1/2)": "permuted axes",
    "PA w/o Pre-processing": "post only",
    "PA w/o Post-processing": "pre only",
}
AS_PRINTED: Final = ", as printed"
"""The end of the label of a row that follows the printed label instead of the public code."""

_ABLATED: Final = {"Laplace": "laplace", "PrivUnit2": "privunit2", "PrivUnitG": "privunitg-sphere"}


def ablated(label: str) -> Method:
    """Return the method of a row of the paper's ablation table."""
    randomizer, part = label.removesuffix(AS_PRINTED).split("+", 1)
    name = "rotation in post" if label.endswith(AS_PRINTED) else _ABLATIONS[part]
    mechanism = _ABLATED[randomizer]
    return Method(f"{randomizer}, {name}", "ablation", mechanism, "jacobian", ablation=name)
