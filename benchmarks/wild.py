"""Functions with faults seen in published code are caught; functions without are not accused.

    python -m benchmarks.wild [--audits 200] [--json FILE] [--quick]

Audits every function of tests/auditing/wild.py: the faulty ones for up to a minute at a false-alarm
rate of 1e-6, the sound ones in turn, 200 audits in all, at 1e-3. In an environment with OpenDP or
diffprivlib, functions of these libraries are audited as well. Prints which statistic found a fault,
the seconds, and ε as shown and as promised.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

from benchmarks.harness import publish
from offaxis.auditing import AuditResult
from tests.auditing import wild
from tests.auditing.wild import Target

STRICT, USUAL = 1e-6, 1e-3
"""False-alarm rates of the audits of faulty functions and of sound ones."""

SECONDS = 60.0
REPORTS = 10_000

Figures = list[dict[str, Any]]


def opendp() -> Iterator[Target]:
    """Yield mechanisms of OpenDP, if it is installed."""
    try:
        import opendp.prelude as dp
    except ImportError:
        return
    dp.enable_features("contrib")
    whole = (dp.atom_domain(T=int), dp.absolute_distance(T=int))
    real = (dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float))
    yield Target("OpenDP Laplace, int", "none", dp.m.make_laplace(*whole, scale=1.0), [0, 1], 1.0)
    laplace = dp.m.make_laplace(*real, scale=1.0)
    yield Target("OpenDP Laplace, float", "none", laplace, (0.0, 1.0), 1.0)
    sigma = 1.02 * wild.analytic_sigma(1.0, 1e-5, 1.0)
    gaussian = dp.m.make_gaussian(*whole, scale=sigma)
    yield Target("OpenDP Gaussian, int", "none", gaussian, [0, 1], 1.0, 1e-5)


def diffprivlib() -> Iterator[Target]:
    """Yield mechanisms of diffprivlib without a known fault, if it is installed."""
    try:
        from diffprivlib import mechanisms
    except ImportError:
        return
    geometric = mechanisms.Geometric(epsilon=1.0, sensitivity=1)
    yield Target("diffprivlib Geometric", "none", geometric.randomise, [0, 1], 1.0)
    snapping = mechanisms.Snapping(epsilon=1.0, sensitivity=1.0, lower=0.0, upper=1.0)
    yield Target("diffprivlib Snapping", "none", snapping.randomise, (0.0, 1.0), 1.0)
    binary = mechanisms.Binary(epsilon=1.0, value0="no", value1="yes")
    yield Target("diffprivlib Binary", "none", binary.randomise, ["no", "yes"], 1.0)


def float_laplace() -> Iterator[Target]:
    """Yield the Laplace mechanism of diffprivlib, which adds floats."""
    try:
        from diffprivlib import mechanisms
    except ImportError:
        return
    laplace = mechanisms.Laplace(epsilon=1.0, sensitivity=1.0)
    yield Target("diffprivlib Laplace", "floats", laplace.randomise, (0.0, 1.0), 1.0)


def line(target: Target, result: AuditResult) -> str:
    """Return one row of the table of faults."""
    found = result.by_verdict("violation")
    best = max(found, key=lambda f: (f.epsilon or 0) / (f.promised or 1), default=None)
    if best is None:
        return f"{target.name:<22} {'NOT FOUND':<16} {result.seconds:5.1f} s"
    return (
        f"{target.name:<22} {best.test:<16} {result.seconds:5.1f} s   ε ≥ {best.epsilon or 0:6.2f} "
        f"of {best.promised or 0:.3g}   {target.fault}"
    )


def faults(quick: bool) -> Figures:
    """Audit every faulty function."""
    figures: Figures = []
    for target in [*(make() for make in wild.WILD), *float_laplace()]:
        settings = {"reports": target.reports} if quick else {"seconds": SECONDS}
        result = target.audit(false_alarm=STRICT, **settings)
        sys.stdout.write(line(target, result) + "\n")
        sys.stdout.flush()
        figures.append(
            {
                "what": f"{target.name}: found in",
                "value": result.seconds,
                "unit": "s",
                "target": "found within a minute",
                "met": result.violated and result.seconds < SECONDS,
            }
        )
    return figures


def alarms(audits: int, reports: int) -> Figures:
    """Audit the sound functions in turn."""
    targets = [*wild.sound().values(), *opendp(), *diffprivlib()]
    accused = dict.fromkeys((target.name for target in targets), 0)
    made = dict(accused)
    strongest = dict.fromkeys(accused, 0.0)
    for target in islice(cycle(targets), audits):
        result = target.audit(false_alarm=USUAL, reports=reports)
        made[target.name] += 1
        accused[target.name] += result.violated
        if result.strongest is not None:
            shown = (result.strongest.epsilon or 0.0) / (result.strongest.promised or 1.0)
            strongest[target.name] = max(strongest[target.name], shown)
        if result.violated:
            sys.stdout.write(f"{target.name}: {result.summary}\n")
    for name, count in made.items():
        sys.stdout.write(
            f"{name:<26} {count:4} audits, {accused[name]} alarms, "
            f"at most {100 * strongest[name]:3.0f} % of ε shown\n"
        )
    total = sum(accused.values())
    return [
        {"what": "audits of sound functions", "value": sum(made.values()), "unit": ""},
        {
            "what": "alarms",
            "value": total,
            "unit": "",
            "target": f"about {USUAL:g} of the audits",
            "met": total <= 3,
        },
    ]


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--audits", type=int, default=200)
    parser.add_argument("--json")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    figures = faults(arguments.quick)
    reports = REPORTS // 4 if arguments.quick else REPORTS
    figures += alarms(arguments.audits, reports)
    publish("wild", figures, arguments.json)


if __name__ == "__main__":
    main()
