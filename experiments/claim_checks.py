"""Checks of claims on the cells of studies: what a claim compares, cell by cell.

A check takes :class:`Figures` and returns one :class:`Case` per comparison. A claim holds if every
case does; the case with the smallest margin decides. The same check runs on our cells and on the
published numbers, so a claim that fails on the paper's own tables is visible. A number in the text
must be the one in its table, up to rounding; ours are means over heads, with a stated tolerance and
the range over the heads. Studies are named without the suffix of the mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from itertools import combinations, pairwise, product
from statistics import fmean, median
from typing import Concatenate, Final, Literal, ParamSpec

from experiments.catalogue import OURS, PAIRS, RECOVERY_BUDGETS
from experiments.compare import ComparedCell, recovery_ratios
from experiments.methods import AS_PRINTED, CLEAN, NETWORK_LABEL
from experiments.published import published, tables
from experiments.sources import CORRUPTIONS

Mode = Literal["published", "ours"]
"""Whether a study follows the published protocol or is our own setting."""

ERRORS: Final = ("main-lr", "lr-std")
"""Tables of errors, where lower is better; all others show accuracies."""

PARTS: Final = {
    "full": "+PA (LambdaJac^-1/2UJac^-1,l1, UJacLambdaJac^1/2)",
    "as printed": f"+(LambdaJac^-1/2UJac^-1,l1,UJac){AS_PRINTED}",
    "rotation": "+(LambdaJac^-1/2UJac^-1,l1,UJac)",
    "clip only": "+(l1)",
    "principal axes": "+(LambdaJac^-1/2UPCA^-1,l1, UPCALambdaJac^1/2)",
    "permuted axes": "+(LambdaJac^-1/2URand^-1,l1, URandLambdaJac^1/2)",
    "post only": "+PA w/o Pre-processing",
    "pre only": "+PA w/o Post-processing",
}
"""Ablation → the end of its label, after the randomizer."""

SHIFTS: Final = tuple(f"shift-{corruption}" for corruption in CORRUPTIONS)
SEEDS: Final = 20
"""Noise seeds of every published number."""

ROUNDING: Final = 1e-9
"""Added to tolerances, so that a difference equal to the tolerance holds."""

Key = tuple[str, str, float]
"""Label, level, budget."""


class NotRun(Exception):
    """A check needs a number that is not there."""


@dataclass(frozen=True)
class Number:
    """One number of a cell; ``std`` is None if none is known, ``heads`` the means of the heads."""

    mean: float
    std: float | None = None
    spread: float = 0.0
    heads: tuple[float, ...] = ()


class Figures:
    """The numbers of all studies in one mode, from name of study → cells.

    Studies of the other mode are ignored.

    Examples
    --------
    >>> from experiments.claim_checks import paper
    >>> paper().mean("main-mlp", "PrivUnit2+PA", 7.5)
    0.4978
    """

    def __init__(self, cells: Mapping[str, Sequence[ComparedCell]], mode: Mode) -> None:
        self._studies: dict[str, dict[Key, Number]] = {}
        for name, in_study in cells.items():
            if name.endswith(OURS) is (mode == "ours"):
                study = name.removesuffix(OURS)
                self._studies[study] = {
                    _key(study, o.row.label, o.row.level, o.epsilon): Number(
                        o.mean, o.std, o.spread, o.head_means
                    )
                    for o in (cell.outcome for cell in in_study)
                }
        self._add_recovery()

    @classmethod
    def of_paper(cls) -> Figures:
        """Return the published numbers; the recovery ratios follow from the tables of shifts."""
        figures = cls({}, "published")
        for table in tables():
            figures._studies[table] = {
                _key(table, row.label, row.level, epsilon): Number(number.mean, number.std)
                for row in published(table)
                for epsilon, number in row.numbers.items()
            }
        figures._add_recovery()
        return figures

    def _add_recovery(self) -> None:
        """Fill in the study of recovery ratios, whose cells are those of the shifts."""
        if "recovery" not in self._studies and all(shift in self._studies for shift in SHIFTS):
            labels = {CLEAN, *(label for pair in PAIRS.values() for label in pair)}
            self._studies["recovery"] = {
                (label, f"{corruption} {level}", epsilon): number
                for corruption in CORRUPTIONS
                for (label, level, epsilon), number in self._studies[f"shift-{corruption}"].items()
                if label in labels and level != "0" and epsilon in RECOVERY_BUDGETS
            }

    def study(self, name: str) -> Mapping[Key, Number]:
        """Return the numbers of a study."""
        if not self._studies.get(name):
            raise NotRun(f"{name} has no numbers")
        return self._studies[name]

    def number(self, study: str, label: str, epsilon: float, level: str = "") -> Number:
        """Return one number."""
        try:
            return self.study(study)[label, level, epsilon]
        except KeyError:
            raise NotRun(f"no number for {_place(study, label, epsilon, level)}") from None

    def mean(self, study: str, label: str, epsilon: float, level: str = "") -> float:
        """Return the mean of a cell, over heads and seeds."""
        return self.number(study, label, epsilon, level).mean

    def std(self, study: str, label: str, epsilon: float, level: str = "") -> float:
        """Return the standard deviation of a cell over noise seeds."""
        std = self.number(study, label, epsilon, level).std
        if std is None:
            raise NotRun(f"{study} has no standard deviations")
        return std

    def spread(self, study: str, label: str, epsilon: float, level: str = "") -> float:
        """Return the standard deviation of the means of the heads; 0 for one head."""
        return self.number(study, label, epsilon, level).spread

    def heads(self, study: str, label: str, epsilon: float, level: str = "") -> tuple[float, ...]:
        """Return the means of the heads of a cell; none for published numbers."""
        return self.number(study, label, epsilon, level).heads

    def budgets(self, study: str) -> list[float]:
        """Return the budgets of a study, ascending."""
        return sorted({epsilon for _, _, epsilon in self.study(study)})

    def levels(self, study: str) -> list[str]:
        """Return the levels of the published rows of a study; of all rows if none is published."""
        known = paper()._studies.get(study) or self.study(study)
        return list(dict.fromkeys(level for _, level, _ in known))

    def ratios(self) -> dict[Key, float]:
        """Return the recovery ratios by (randomizer, "corruption severity", budget)."""
        means = {key: number.mean for key, number in self.study("recovery").items()}
        try:
            return recovery_ratios(means)
        except KeyError as error:
            raise NotRun(f"recovery has no number for {error}") from None


def _key(study: str, label: str, level: str, epsilon: float) -> Key:
    if study == "mnist-task-aware":
        # The published level is the dimension; our own network stands for the published one.
        return "Task-Aware" if label == NETWORK_LABEL else label, "", epsilon
    return label, level, epsilon


@cache
def paper() -> Figures:
    """Return the published numbers."""
    return Figures.of_paper()


# ---- Cases and checks


@dataclass(frozen=True)
class Case:
    """One comparison: the cells, their numbers, its distance from failing, the range of heads."""

    place: str
    shown: str
    margin: float
    heads: str = ""

    @property
    def holds(self) -> bool:
        """Whether the comparison is as claimed."""
        return self.margin > 0


Check = Callable[[Figures], Iterable[Case]]
Arguments = ParamSpec("Arguments")


def _check(
    cases: Callable[Concatenate[Figures, Arguments], Iterable[Case]],
) -> Callable[Arguments, Check]:
    """Let a function of figures and arguments take the arguments first and the figures later."""

    @wraps(cases)
    def build(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Check:
        return lambda figures: cases(figures, *args, **kwargs)

    return build


def every(*checks: Check) -> Check:
    """Return a check with the cases of several."""
    return lambda figures: [case for check in checks for case in check(figures)]


def _place(study: str, what: str, epsilon: float | None = None, level: str = "") -> str:
    parts = [study, plain_words(what), level, "" if epsilon is None else f"ε = {epsilon:g}"]
    return ", ".join(filter(None, parts))


def plain_words(text: str) -> str:
    """Return a text with the names of ablations in place of their labels."""
    for ablation, suffix in PARTS.items():
        text = text.replace(suffix, f" ({ablation})")
    return text


def _both(study: str, what: str, x: float, y: float, margin: float, at: float | None) -> Case:
    return Case(_place(study, what, at), f"{x:.4f} and {y:.4f}", margin)


def _range(values: Iterable[float], form: str = ".4f") -> str:
    """Return the range of a quantity over the heads in words; nothing for a single head."""
    ordered = sorted(values)
    return f"heads {ordered[0]:{form}} to {ordered[-1]:{form}}" if len(ordered) > 1 else ""


Row = str | tuple[str, str]
"""A label, or a label and a level."""


@_check
def above(
    figures: Figures,
    study: str,
    better: Iterable[Row],
    worse: Iterable[Row],
    budgets: Iterable[float] = (),
    by: float = 0.0,
) -> Iterator[Case]:
    """Every row of ``better`` is better than every one of ``worse``, by more than ``by``."""
    for a, b, epsilon in product(better, worse, budgets or figures.budgets(study)):
        (p, i), (q, j) = ((row, "") if isinstance(row, str) else row for row in (a, b))
        x, y = figures.mean(study, p, epsilon, i), figures.mean(study, q, epsilon, j)
        what = f"{p}, {i} and {j}" if p == q else f"{', '.join(filter(None, (p, i)))} against {q}"
        yield _both(study, what, x, y, (y - x if study in ERRORS else x - y) - by, epsilon)


@_check
def improves(figures: Figures, *studies: str, names: Iterable[str] = PAIRS) -> Iterator[Case]:
    """Reshaping makes every randomizer better: in these studies, at all levels and budgets."""
    for study, name in product(studies, names):
        for level in figures.levels(study):
            plain, reshaped = ((label, level) for label in PAIRS[name])
            yield from above(study, [reshaped], [plain])(figures)


@_check
def significant(figures: Figures, study: str, level: str, deviations: float) -> Iterator[Case]:
    """Every gain exceeds so many standard errors of a difference of two means over the seeds."""
    for pair, epsilon in product(PAIRS.values(), figures.budgets(study)):
        plain, reshaped = (figures.mean(study, label, epsilon, level) for label in pair)
        squares = [figures.std(study, label, epsilon, level) ** 2 for label in pair]
        error, gained = (sum(squares) / SEEDS) ** 0.5, reshaped - plain
        place = _place(study, pair[1], epsilon, level)
        shown = f"{gained:+.4f}, standard error {error:.4f}"
        yield Case(place, shown, gained - deviations * error)


@_check
def near(
    figures: Figures,
    study: str,
    labels: Sequence[str],
    value: float,
    within: float,
    budgets: Sequence[float] = (),
    level: str = "",
    rounding: float | None = None,
) -> Iterator[Case]:
    """Rows have a value: within a difference, for errors a share; in print within ``rounding``."""
    allowed = within * value if study in ERRORS else within
    if rounding is not None and figures is paper():
        allowed = rounding
    for label, epsilon in product(labels, budgets or figures.budgets(study)):
        x = figures.mean(study, label, epsilon, level)
        margin = allowed + ROUNDING - abs(x - value)
        heads = _range(figures.heads(study, label, epsilon, level))
        yield Case(_place(study, label, epsilon, level), f"{x:.4f}", margin, heads)


@_check
def gain(
    figures: Figures, study: str, names: Iterable[str], epsilon: float, points: float, within: float
) -> Iterator[Case]:
    """Reshaping gains so many points, within a difference."""
    for name in names:
        plain, reshaped = (figures.number(study, label, epsilon) for label in PAIRS[name])
        gained = 100 * (reshaped.mean - plain.mean)
        by_head = (100 * (y - x) for x, y in zip(plain.heads, reshaped.heads, strict=True))
        margin = within + ROUNDING - abs(gained - points)
        place = _place(study, PAIRS[name][1], epsilon)
        yield Case(place, f"{gained:+.1f} points", margin, _range(by_head, "+.1f"))


@_check
def regains(
    figures: Figures, study: str, names: Iterable[str], budgets: Iterable[float], share: float
) -> Iterator[Case]:
    """Reshaping regains at least a share of the accuracy that the plain mechanism loses."""
    for name, epsilon in product(names, budgets):
        plain, reshaped = (figures.mean(study, label, epsilon) for label in PAIRS[name])
        x = (reshaped - plain) / (figures.mean(study, CLEAN, epsilon) - plain)
        yield Case(_place(study, PAIRS[name][1], epsilon), f"{x:.0%}", x - share)


@_check
def reduction(figures: Figures, factors: Mapping[float, float], within: float) -> Iterator[Case]:
    """Reshaping divides Laplace's household error by a factor per budget, within a share of it."""
    for epsilon, factor in factors.items():
        plain, reshaped = (figures.mean("main-lr", label, epsilon) for label in PAIRS["Laplace"])
        x = plain / reshaped
        margin = within * factor + ROUNDING - abs(x - factor)
        yield Case(_place("main-lr", "Laplace+PA", epsilon), f"factor {x:.1f}", margin)


@_check
def falls_with_budget(figures: Figures, study: str, labels: Sequence[str]) -> Iterator[Case]:
    """Errors fall from each budget to the next."""
    for label, (low, high) in product(labels, pairwise(figures.budgets(study))):
        x, y = (figures.mean(study, label, epsilon) for epsilon in (low, high))
        yield _both(study, f"{label}, ε = {low:g} and {high:g}", x, y, x - y, None)


@_check
def share_of(
    figures: Figures, study: str, labels: Sequence[str], others: Sequence[str], share: float
) -> Iterator[Case]:
    """At every budget, rows are at most a share of other rows."""
    for epsilon, a, b in product(figures.budgets(study), labels, others):
        x, y = (figures.mean(study, label, epsilon) for label in (a, b))
        yield _both(study, f"{a} against {b}", x, y, share * y - x + ROUNDING, epsilon)


@_check
def constant(figures: Figures, study: str, label: str, share: float) -> Iterator[Case]:
    """Over all budgets a row varies by at most a share of its largest value."""
    values = [figures.mean(study, label, epsilon) for epsilon in figures.budgets(study)]
    x, y = min(values), max(values)
    yield _both(study, f"{label}, least and largest", x, y, share * y - (y - x) + ROUNDING, None)


# ---- The ablation table


def part(name: str, ablation: str) -> str:
    """Return the label of an ablation of a randomizer."""
    return f"{name}{PARTS[ablation]}"


def over_part(better: str, worse: str) -> Check:
    """One ablation is better than another: every randomizer and budget."""
    return every(*(above("ablation", [part(n, better)], [part(n, worse)]) for n in PAIRS))


def between(ablation: str) -> Check:
    """An ablation is better than no post-processing and worse than the full map."""
    return every(over_part(ablation, "pre only"), over_part("full", ablation))


@_check
def deviation(
    figures: Figures, values: Mapping[str, float], *, grows: float = 0.0, factor: float = 0.0
) -> Iterator[Case]:
    """The deviation without post-processing: it grows from ε = 0.5 to 10, or has a value at 10."""
    for name, value in values.items():
        label = part(name, "pre only")
        low, high = (figures.std("ablation", label, epsilon) for epsilon in (0.5, 10.0))
        spread = figures.spread("ablation", label, 10.0)
        shown = f"{low:.4f} and {high:.4f} over seeds, {spread:.4f} between heads at ε = 10"
        margin = high - grows * low if grows else _within_factor(high, value, factor)
        yield Case(_place("ablation", f"{label}, ε = 0.5 and 10"), shown, margin)


def _within_factor(x: float, y: float, factor: float) -> float:
    """Return how far a ratio is from leaving [1/factor, factor]."""
    return factor + ROUNDING - max(x / y, y / x) if min(x, y) > 0 else -factor


@_check
def up_to(figures: Figures, value: float, within: float) -> Iterator[Case]:
    """The full map gains a share over clipping alone: Laplace at ε = 10, and nowhere more."""
    gains, heads = {}, {}
    for key in product(PAIRS, figures.budgets("ablation")):
        labels = (part(key[0], ablation) for ablation in ("full", "clip only"))
        full, clipped = (figures.number("ablation", label, key[1]) for label in labels)
        gains[key] = full.mean / clipped.mean - 1
        heads[key] = [a / b - 1 for a, b in zip(full.heads, clipped.heads, strict=True)]
    y, by_head = gains.pop(("Laplace", 10.0)), _range(heads["Laplace", 10.0], "+.0%")
    yield Case("ablation, Laplace, ε = 10", f"{y:+.0%}", within - abs(y - value), by_head)
    for (name, epsilon), x in gains.items():
        place = _place("ablation", f"{name} against Laplace at ε = 10", epsilon)
        yield Case(place, f"{x:+.0%} and {y:+.0%}", y - x)


# ---- The radius and the cap


PERCENTILES: Final = tuple(f"{percentile}" for percentile in range(10, 101, 10))


def _over_budgets(figures: Figures, study: str, label: str, percentile: str) -> float:
    budgets = figures.budgets(study)
    return fmean(figures.mean(study, label, epsilon, percentile) for epsilon in budgets)


@_check
def best_percentile(figures: Figures, study: str, best: str, slack: float) -> Iterator[Case]:
    """No percentile has a mean over randomizers and budgets more than ``slack`` above the best."""
    x, *others = (
        (each, fmean(_over_budgets(figures, study, label, each) for _, label in PAIRS.values()))
        for each in (best, *(each for each in PERCENTILES if each != best))
    )
    for percentile, y in others:
        what = f"mean at percentiles {best} and {percentile}"
        yield _both(study, what, x[1], y, x[1] + slack + ROUNDING - y, None)


@_check
def falls_with_percentile(figures: Figures, study: str, slack: float) -> Iterator[Case]:
    """For each randomizer, the mean over budgets rises by at most ``slack`` per percentile."""
    for (_, label), (low, high) in product(PAIRS.values(), pairwise(PERCENTILES)):
        x, y = (_over_budgets(figures, study, label, each) for each in (low, high))
        what = f"{label}, mean at percentiles {low} and {high}"
        yield _both(study, what, x, y, x + slack + ROUNDING - y, None)


CAPS: Final = ("10^1", "10^2", "10^3", "10^4", "10^5")
LARGE_CAPS: Final = CAPS[1:]


@_check
def caps_vary(
    figures: Figures, label: str, caps: Sequence[str], most: float, budgets: Sequence[float] = ()
) -> Iterator[Case]:
    """The accuracies of several caps differ by at most so much."""
    for epsilon in budgets or figures.budgets("lambda-max"):
        values = [figures.mean("lambda-max", label, epsilon, cap) for cap in caps]
        x, y = min(values), max(values)
        what = f"{label}, least and largest of caps {caps[0]} to {caps[-1]}"
        yield _both("lambda-max", what, x, y, most + ROUNDING - (y - x), epsilon)


@_check
def cap_range(figures: Figures, least: float, largest: float, within: float) -> Iterator[Case]:
    """Laplace, ε = 10, caps from 100 on: least and largest accuracy; exactly those in print."""
    allowed = 0.00005 if figures is paper() else within
    rows = [figures.number("lambda-max", "Laplace+PA", 10.0, cap) for cap in LARGE_CAPS]
    for value, extreme, word in ((least, min, "least"), (largest, max, "largest")):
        x = extreme(row.mean for row in rows)
        by_head = (extreme(heads) for heads in zip(*(row.heads for row in rows), strict=True))
        place = _place("lambda-max", f"Laplace+PA, {word} of caps 10^2 to 10^5", 10.0)
        yield Case(place, f"{x:.4f}", allowed + ROUNDING - abs(x - value), _range(by_head))


@_check
def cap_deviations(figures: Figures, low: float, high: float, factor: float) -> Iterator[Case]:
    """Laplace, ε = 10, caps from 100 on: deviations are in a range, within a factor."""
    for cap in LARGE_CAPS:
        x = figures.std("lambda-max", "Laplace+PA", 10.0, cap)
        margin = min(x - low / factor, high * factor - x) + ROUNDING
        yield Case(_place("lambda-max", "Laplace+PA", 10.0, cap), f"{x:.4f}", margin)


# ---- Shifts and recovery ratios


def ratios_grow_with_budget(figures: Figures) -> Iterator[Case]:
    """Every recovery ratio grows from each budget to the next."""
    ratios = figures.ratios()
    for name, level in dict.fromkeys((name, level) for name, level, _ in ratios):
        for low, high in pairwise(RECOVERY_BUDGETS):
            x, y = ratios[name, level, low], ratios[name, level, high]
            what = f"{name}, {level}, ε = {low:g} and {high:g}"
            yield _both("recovery", what, x, y, y - x, None)


@_check
def ratio_is_constant(figures: Figures, corruption: str, most: float) -> Iterator[Case]:
    """Over the severities of a corruption, recovery ratios differ by at most so much."""
    ratios = figures.ratios()
    for name, epsilon in product(PAIRS, RECOVERY_BUDGETS):
        values = [ratios[name, f"{corruption} {severity}", epsilon] for severity in "12345"]
        x, y = min(values), max(values)
        what = f"{name}, {corruption}, least and largest"
        yield _both("recovery", what, x, y, most + ROUNDING - (y - x), epsilon)


@_check
def ratio_changes(figures: Figures, corruption: str, sign: int, most: float) -> Iterator[Case]:
    """From severity 1 to 5, the mean ratio over budgets moves one way and by at most so much."""
    ratios = figures.ratios()
    for name in PAIRS:
        x, y = (
            fmean(ratios[name, f"{corruption} {severity}", epsilon] for epsilon in RECOVERY_BUDGETS)
            for severity in "15"
        )
        margin = min(sign * (y - x), most - abs(y - x))
        what = f"{name}, {corruption}, mean over budgets at severities 1 and 5"
        yield _both("recovery", what, x, y, margin, None)


@_check
def gap_and_gain(figures: Figures, corruption: str, what: str, share: float) -> Iterator[Case]:
    """From severity 1 to 5: the gap shrinks below a share of it, or the gain keeps a share."""
    for (plain, reshaped), epsilon in product(PAIRS.values(), RECOVERY_BUDGETS):
        top = CLEAN if what == "gap" else reshaped
        x, y = (
            figures.mean("recovery", top, epsilon, f"{corruption} {severity}")
            - figures.mean("recovery", plain, epsilon, f"{corruption} {severity}")
            for severity in "15"
        )
        margin = (y - share * x) * (-1 if what == "gap" else 1)
        place = f"{reshaped}, {corruption}, {what} at severities 1 and 5"
        yield _both("recovery", place, x, y, margin, epsilon)


# ---- Agreement with the published numbers


@_check
def same_order(figures: Figures, table: str, apart: float) -> Iterator[Case]:
    """Rows further apart than a difference are in the published order; for errors, than a share."""
    for level, epsilon in product(figures.levels(table), paper().budgets(table)):
        labels = [key[0] for key in paper().study(table) if key[1:] == (level, epsilon)]
        for a, b in combinations(labels, 2):
            p, q = (paper().mean(table, label, epsilon, level) for label in (a, b))
            if abs(p - q) > (apart * max(p, q) if table in ERRORS else apart):
                x, y = (figures.mean(table, label, epsilon, level) for label in (a, b))
                place = _place(table, f"{a} against {b}", epsilon, level)
                yield Case(place, f"{x:.4f} and {y:.4f}", (x - y) * (p - q) / abs(p - q))


@_check
def same_numbers(figures: Figures, table: str, within: float) -> Iterator[Case]:
    """Every number is within a difference of the published one; for errors, a share of it."""
    for (label, level, epsilon), theirs in paper().study(table).items():
        x = figures.mean(table, label, epsilon, level)
        allowed = within * theirs.mean if table in ERRORS else within
        margin = allowed + ROUNDING - abs(x - theirs.mean)
        heads = _range(figures.heads(table, label, epsilon, level))
        yield Case(_place(table, label, epsilon, level), f"{x:.4f}", margin, heads)


@_check
def same_deviations(figures: Figures, table: str, factor: float) -> Iterator[Case]:
    """Every standard deviation is within a factor of the published one."""
    for (label, level, epsilon), theirs in paper().study(table).items():
        if theirs.std:
            x = figures.std(table, label, epsilon, level)
            margin = _within_factor(x, theirs.std, factor)
            yield Case(_place(table, label, epsilon, level), f"{x:.4f}", margin)


@_check
def same_falls(figures: Figures, table: str, least: float) -> Iterator[Case]:
    """Where an accuracy falls by more than ``least`` between severities in print, it falls."""
    labels = dict.fromkeys(label for label, _, _ in paper().study(table))
    for label, epsilon, steps in product(labels, paper().budgets(table), pairwise("012345")):
        p, q = (paper().mean(table, label, epsilon, severity) for severity in steps)
        if p - q > least:
            x, y = (figures.mean(table, label, epsilon, severity) for severity in steps)
            what = f"{label}, severities {' and '.join(steps)}"
            yield _both(table, what, x, y, x - y, epsilon)


@_check
def same_ratios(figures: Figures, typical: float, worst: float) -> Iterator[Case]:
    """The median gap and the worst gap of the recovery ratios are at most so large."""
    mine, theirs = figures.ratios(), paper().ratios()
    gaps = {key: abs(mine[key] - value) for key, value in theirs.items()}
    middle = median(gaps.values())
    name, level, epsilon = key = max(gaps, key=lambda each: gaps[each])
    shown = f"median gap {middle:.4f}, worst {gaps[key]:.4f} ({mine[key]:.4f})"
    margin = min(typical - middle, worst - gaps[key]) + ROUNDING
    yield Case(_place(f"recovery, {len(gaps)} ratios, worst", name, epsilon, level), shown, margin)
