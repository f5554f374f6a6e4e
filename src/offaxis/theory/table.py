"""The quantities of the theory for one release, each next to its measured counterpart.

For tables on the command line and on pages; ``docs/theory.md`` has the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from offaxis.errors import InvalidInput
from offaxis.geometry import PublicVectors, TaskModel
from offaxis.geometry.public import survey
from offaxis.release import Release
from offaxis.theory.bounds import RemainderBound, disagreement_bound, remainder_bound
from offaxis.theory.conditions import Estimate
from offaxis.theory.risk import (
    amplification,
    discrepancy,
    first_order_risk,
    mean_gram,
    nonlinear_risk,
)
from offaxis.vectors import Vectors, as_batch

_ADDITIVE: Final = "Laplace or Gaussian noise, affine maps"
_LAYERS: Final = f"at most; {_ADDITIVE}, ReLU or affine layers"
CONDITIONS: Final = {
    "noise_risk": f"first order; {_ADDITIVE}",
    "clipping_risk": f"first order; {_ADDITIVE}",
    "first_order_risk": f"the sum; {_ADDITIVE}; exact for affine models",
    "root_gap": _LAYERS,
    "root_gap_behind_first_layer": _LAYERS,
    "root_gap_of_leaving_reports": _LAYERS,
    "risk_gap": _LAYERS,
    "disagreement": "at most; Laplace noise, affine maps, ReLU or affine layers, the answer is "
    "the largest of several outputs",
    "public_private_gap": f"at most; {_ADDITIVE}; noise only, public vectors given",
    "stretch_l1": "affine encoder",
    "stretch_l2": "affine encoder",
}
"""Every quantity, with the conditions under which it holds."""

_LABELS: Final = {
    "root_gap": "gap of root risks",
    "root_gap_behind_first_layer": "… behind layer one",
    "root_gap_of_leaving_reports": "… of leaving reports",
    "risk_gap": "gap of risks",
    "first_order_risk": "first-order risk",
    "public_private_gap": "public/private gap",
    "stretch_l1": "stretch in ℓ1",
    "stretch_l2": "stretch in ℓ2",
}

_SHARES: Final = ("disagreement",)

_Values = dict[str, tuple[float, float | None, float | None]]
"""Quantity → (theory, measured, standard error)."""


@dataclass(frozen=True)
class TheoryRow:
    """One quantity: its value in theory and as measured, or the condition that fails."""

    quantity: str
    condition: str
    theory: float | None = None
    measured: float | None = None
    standard_error: float | None = None
    fails: str | None = None


def theory_rows(
    release: Release,
    task: TaskModel,
    vectors: Vectors,
    public: Vectors | None,
    *,
    draws: int,
    seed: int,
) -> list[TheoryRow]:
    """Compute every quantity; the row of a quantity whose condition fails states the condition."""
    Z, _ = as_batch(vectors, release.input_dim)
    if public is not None:
        _check_public(release, public)

    def risks() -> _Values:
        risk = first_order_risk(release, task, Z)
        return {
            "noise_risk": (risk.noise, None, None),
            "clipping_risk": (risk.clipping, None, None),
            "first_order_risk": (risk.total, real.mean, real.standard_error),
        }

    def remainder() -> _Values:
        return _gaps(remainder_bound(release, task, Z, draws=draws, seed=seed), real)

    def disagreement() -> _Values:
        bound = disagreement_bound(release, task, Z, draws=draws, seed=seed)
        measured = bound.measured
        return {"disagreement": (bound.averaged, measured.mean, measured.standard_error)}

    def gap() -> _Values:
        if public is None:
            raise InvalidInput(
                "the condition 'public vectors given' fails: pass those the release was fitted to"
            )
        risk_gap = discrepancy(release, mean_gram(task, public), mean_gram(task, Z))
        return {"public_private_gap": (risk_gap.bound, risk_gap.exact, None)}

    def stretch() -> _Values:
        factors = amplification(release)
        return {"stretch_l1": (factors.l1, None, None), "stretch_l2": (factors.l2, None, None)}

    real = nonlinear_risk(release, task, Z, draws=draws, seed=seed)
    names = list(CONDITIONS)
    return [
        *_rows(names[:3], risks),
        *_rows(names[3:7], remainder),
        *_rows(names[7:8], disagreement),
        *_rows(names[8:9], gap),
        *_rows(names[9:], stretch),
    ]


def _check_public(release: Release, public: Vectors) -> None:
    if survey(PublicVectors(public))[0] != release.provenance.public:
        raise InvalidInput(
            "public must hold the vectors the release was fitted to; these have another hash"
        )


def _gaps(bound: RemainderBound, real: Estimate) -> _Values:
    first, root = bound.first_order.total, math.sqrt(real.mean)
    gap = abs(root - math.sqrt(first))
    # The error of a root is about that of its square, divided by twice the root.
    error = real.standard_error / (2 * root) if root else 0.0
    return {
        "root_gap": (bound.root, gap, error),
        "root_gap_behind_first_layer": (bound.sharper_root, gap, error),
        "root_gap_of_leaving_reports": (bound.sharper_leaving_root, gap, error),
        "risk_gap": (bound.sharper_leaving_risk, abs(real.mean - first), real.standard_error),
    }


def _rows(names: Iterable[str], compute: Callable[[], _Values]) -> list[TheoryRow]:
    try:
        values = compute()
    except InvalidInput as error:
        return [TheoryRow(name, CONDITIONS[name], fails=str(error)) for name in names]
    return [TheoryRow(name, CONDITIONS[name], *values[name]) for name in names]


def label(quantity: str) -> str:
    """Return the displayed name of a quantity."""
    return _LABELS.get(quantity, quantity.replace("_", " "))


def written(quantity: str, value: float | None, digits: int = 4) -> str:
    """Format a value for display: a share in %, a number to a few digits, a dash for None."""
    if value is None:
        return "–"
    return f"{100 * value:.1f} %" if quantity in _SHARES else f"{value:.{digits}g}"
