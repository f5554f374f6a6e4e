"""Run every attack on a release and on the controls, and write down what was found."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from offaxis.card import subject as subject_of
from offaxis.encoding.pairs import Number, PairEncoder
from offaxis.encoding.questions import AnswersEncoder
from offaxis.errors import InvalidInput
from offaxis.leakage import attacks
from offaxis.leakage.attacks import Arena, Guesses
from offaxis.leakage.bounds import guess_bound, mean_limits, share_limits
from offaxis.leakage.channels import (
    RELEASE,
    Channel,
    FloatLaplace,
    Raw,
    ReleaseChannel,
    affordable,
    compared,
)
from offaxis.leakage.reconstruction import (
    RECONSTRUCTION,
    Estimates,
    network_refused,
    reconstruct,
)
from offaxis.leakage.result import Leak, LeakPassport
from offaxis.randomizers.box import BoxForm, Duchi
from offaxis.randomizers.memoised import Memoised
from offaxis.release import Release
from offaxis.vectors import Vectors, as_batch, as_integer
from offaxis.version import __version__

TRIALS: Final = 2000
"""Default number of trials of an attack."""

LEAST: Final = 100
"""Fewest trials: fewer show nothing."""

MOST: Final = 20_000
"""Most trials: scores of all of them are held at a time."""

FALSE_ALARM: Final = 1e-3
"""Default probability that a release that keeps its guarantee is said to exceed a bound."""

_FEWEST: Final = 40
"""The fewest public vectors: half of them are attacked."""

_MOST_KNOWN: Final = 1000
_MOST_PEOPLE: Final = 500
_MOST_LABELS: Final = 100
_SEQUENCE_TRIALS: Final = 300
"""Most trials where every report of a sequence is exact."""

_NUMBERS: Final = 1 << 25
"""Numbers that the likelihood of all vectors may compute for the reports of one attack."""

SPLIT: Final = (
    "a random half of the public vectors, drawn with the seed, is known to the attacker, 1,000 at "
    "most; people of the other half are attacked, 500 at most"
)

Progress = Callable[[str, int, int], None]
"""Called with the name of an attack, the number of attacks done, and their total."""

_TINY: Final = 1e-200

_OPTIONAL: Final = (attacks.ATTRIBUTE, attacks.MODEL)
"""Attacks that some vectors, or so few reports, do not allow; any other failure is an error."""

_USER: Final = (
    "a person sends one report in total under this release (unit: user), so an attacker never has "
    "several reports of one person"
)
_SEQUENCE: Final = (
    "reports of a sequence are made from the same permanent answer: that two reports are of one "
    "person is not promised to be hidden"
)


@dataclass(frozen=True, eq=False)
class _Subject:
    """The two halves of the public vectors, and their labels."""

    known: Vectors
    people: Vectors
    known_labels: NDArray[np.int64]
    people_labels: NDArray[np.int64]
    answers: NDArray[Any] | None
    width: int
    words: str


def passport(
    release: Release,
    public: Any,
    *,
    labels: Any = None,
    trials: int = TRIALS,
    false_alarm: float = FALSE_ALARM,
    exact: bool | None = None,
    controls: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> LeakPassport:
    """Attack reports of public vectors, and state the results beside what ε allows at most.

    The attacks name a person among candidates, reconstruct vectors, tell members from others, infer
    a label, link two reports, and find a person in a mean or in a learnt model. Each has an exact
    interval, its chance level and its proved bound (docs/proofs.md §28). The same attacks run on
    controls: the vector without privacy, and Laplace noise in floating point with and without
    clipping. Everything is public: no private vector is used and no budget is spent.

    Parameters
    ----------
    release : Release
        Of vectors, or of pairs of a vector and one private answer.
    public : array (n, m)
        At least 40 public vectors. Half of them are what the attacker knows, half are attacked.
    labels : sequence of n, optional
        The sensitive attribute; for a release of pairs, the answers. By default the side of the
        public median on the first principal direction, as a stand-in.
    trials : int
        Number of reports attacked, by attack; from 100 to 20,000.
    false_alarm : float
        Probability that a release that keeps its guarantee is said to exceed a bound, all attacks
        together.
    exact : bool, optional
        Make exact reports with ``privatize`` in attacks on one or two reports, instead of
        simulating them. By default where they take a few seconds. Attacks on many reports simulate.
    controls : bool
        Whether to attack the controls, too.
    seed : int
        Of the division of the vectors, of the attacker's choices and of simulated reports; exact
        reports take none.
    progress : callable, optional
        Called with the name of an attack, the number of attacks done, and their total.

    Returns
    -------
    LeakPassport

    Raises
    ------
    InvalidInput
        If the vectors or labels do not fit the release, or are too few.

    Examples
    --------
    >>> import offaxis
    >>> rng = np.random.default_rng(0)
    >>> public = rng.standard_normal((400, 3))
    >>> release = offaxis.fit(np.eye(3), public, epsilon=2)
    >>> passport = offaxis.passport(release, public, trials=400)
    >>> passport
    LeakPassport(ε = 2, pure, ... attacks, none exceeds its bound)
    >>> sorted({leak.source for leak in passport.leaks if leak.exceeds})
    ['float noise', 'no clipping', 'no privacy']
    """
    started = time.perf_counter()
    trials = as_integer(trials, "trials", LEAST, MOST)
    seed = as_integer(seed, "seed", 0)
    if not 0 < false_alarm < 1:
        raise InvalidInput(f"false_alarm must be between 0 and 1, got {false_alarm!r}")
    _check_release(release)
    subject = _subject(release, public, labels, seed)
    if exact is None:
        exact = affordable(release, subject.people, trials)
    report = release.single_report_guarantee
    plans = [_plan(release, ReleaseChannel(release, exact), subject, trials, seed)]
    if controls:
        vectors = _vectors_only(subject)
        plans += [
            _plan(release, channel, vectors, trials, seed + 1 + index)
            for index, channel in enumerate(compared(vectors.known, float(report.epsilon)))
        ]
    jobs = [job for plan in plans for job in plan.jobs()]
    found: list[tuple[str, Guesses | Estimates]] = []
    not_run: dict[str, str] = plans[0].not_run
    for index, (source, name, job) in enumerate(jobs):
        if progress is not None:
            progress(name if source == RELEASE else f"{name}, {source}", index, len(jobs))
        try:
            found += [(source, each) for each in job()]
        except attacks.REFUSALS as error:
            if name not in _OPTIONAL or (source != RELEASE and name not in not_run):
                raise
            not_run[name] = str(error)
    if progress is not None:
        progress("done", len(jobs), len(jobs))
    alpha = false_alarm / len(found)
    return LeakPassport(
        release=release.hash,
        randomizer=release.randomizer.kind,
        guarantee=release.guarantee,
        report=report,
        leaks=tuple(_leak(release, source, each, alpha) for source, each in found),
        not_run=not_run,
        known=len(plans[0].arena.known),
        people=len(plans[0].arena.people),
        split=SPLIT,
        labels=subject.words,
        about=subject_of(release),
        false_alarm=false_alarm,
        seed=seed,
        versions={
            "offaxis": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
        },
        date=datetime.now(UTC).date().isoformat(),
        seconds=time.perf_counter() - started,
    )


def _check_release(release: Release) -> None:
    if not isinstance(release, Release):
        raise InvalidInput(f"a release is needed, got an object of type {type(release).__name__}")
    if isinstance(release.encoder, AnswersEncoder):
        raise InvalidInput(
            "reports of this release hold people's own answers and no vector, so there are no "
            "vectors to attack: use offaxis.audit"
        )
    if len(release.asked) > 1:
        raise InvalidInput(
            f"this release asks for {len(release.asked)} answers; a passport takes releases of "
            f"vectors, or of a vector and one answer: use offaxis.audit"
        )
    release.require_model()


# ---- People and labels


def _subject(release: Release, public: Any, labels: Any, seed: int) -> _Subject:
    """Divide the public vectors, and find the sensitive attribute."""
    encoder = release.encoder
    paired = isinstance(encoder, PairEncoder)
    width = encoder.vector_dim if isinstance(encoder, PairEncoder) else release.input_dim
    given, _ = as_batch(public, width)
    if len(given) < _FEWEST:
        raise InvalidInput(f"a passport needs {_FEWEST} public vectors or more, got {len(given)}")
    if labels is None and release.asked:
        raise InvalidInput(
            f"this release asks for {release.asked[0].name!r}: pass the answers of the public "
            f"vectors as labels"
        )
    with np.errstate(all="ignore"):
        spread = float(np.square(given - given.mean(axis=0)).mean())
    if not _TINY < spread < 1 / _TINY:
        raise InvalidInput(
            f"the public vectors have a variance of {spread:.3g}: they must differ, and be of a "
            f"usual size; rescale them"
        )
    answers = None if labels is None else _column(labels, len(given))
    rows = given
    if paired:
        rows = release.pairs(given, answers.tolist()) if release.asked else given  # type: ignore[union-attr]
    if answers is None:
        codes = _side(given)
        words = "stand-in: the side of the public median on the first principal direction"
    else:
        number = bool(release.asked) and isinstance(release.asked[0], Number)
        codes, words = _codes(answers, number=number)
    order = np.random.default_rng(seed).permutation(len(rows))
    known, people = order[::2][:_MOST_KNOWN], order[1::2][:_MOST_PEOPLE]
    return _Subject(
        rows[known],
        rows[people],
        codes[known],
        codes[people],
        None if answers is None else answers[people],
        width,
        words,
    )


def _column(labels: Any, rows: int) -> NDArray[Any]:
    values = np.asarray(labels)
    if values.ndim != 1 or len(values) != rows:
        raise InvalidInput(
            f"labels must hold one value for each of the {rows} public vectors, got an array of "
            f"shape {values.shape}"
        )
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise InvalidInput("labels must be finite, got a number that is not")
    return values


def _codes(values: NDArray[Any], *, number: bool) -> tuple[NDArray[np.int64], str]:
    if values.dtype.kind == "O":  # None stands for a missing answer
        values = values.astype(str)
    names, codes = np.unique(values, return_inverse=True)
    if number or (values.dtype.kind == "f" and len(names) > _MOST_LABELS):
        halves = (values > np.median(values)).astype(np.int64)
        return halves, "whether the given number is above its public median"
    if len(names) > _MOST_LABELS:
        raise InvalidInput(f"labels have {len(names)} values; at most {_MOST_LABELS} are compared")
    return codes.astype(np.int64), f"the given labels, of {len(names)} kinds"


def _side(vectors: Vectors) -> NDArray[np.int64]:
    centred = vectors - vectors.mean(axis=0)
    _, basis = np.linalg.eigh(centred.T @ centred)
    along = centred @ basis[:, -1]
    side = along > np.median(along)
    return np.asarray(side if side.any() else along >= np.median(along), dtype=np.int64)


def _vectors_only(subject: _Subject) -> _Subject:
    """Return the subject without private answers: controls protect the vector."""
    return replace(
        subject,
        known=subject.known[:, : subject.width],
        people=subject.people[:, : subject.width],
    )


# ---- What is run


@dataclass(frozen=True, eq=False)
class _Plan:
    """The attacks on one channel."""

    release: Release
    arena: Arena
    subject: _Subject
    not_run: dict[str, str]

    def jobs(self) -> Iterator[tuple[str, str, Callable[[], list[Guesses | Estimates]]]]:
        """Yield the source, the name and the function of every attack."""
        arena, source = self.arena, self.arena.channel.source
        for name, function in self._attacks():
            yield source, name, lambda run=function, at=arena: list(run(at))  # type: ignore[misc]

    def _attacks(self) -> Iterator[tuple[str, Callable[[Arena], Any]]]:
        release, own = self.release, isinstance(self.arena.channel, ReleaseChannel)
        clipped = not isinstance(self.arena.channel, FloatLaplace) or self.arena.channel.clips
        sequence = isinstance(release.randomizer, Memoised)
        several = not own or sequence or release.unit == "item"
        yield attacks.CANDIDATES, attacks.among_people
        if not isinstance(self.arena.channel, Raw):
            yield attacks.CANDIDATES, attacks.among_chosen
        if several:
            yield attacks.SEVERAL, self._several
        else:
            self.not_run[attacks.SEVERAL] = _USER
        yield from self._reconstructions(several=several)
        yield attacks.MEMBERSHIP, lambda arena: [attacks.membership(arena)]
        yield attacks.ATTRIBUTE, attacks.attributes
        if own and sequence:
            self.not_run[attacks.LINKAGE] = _SEQUENCE
        elif several:
            yield attacks.LINKAGE, attacks.linkage
        else:
            self.not_run[attacks.LINKAGE] = _USER
        yield attacks.MEAN, self._means
        if own and isinstance(release.encoder, PairEncoder):
            answers = None if release.asked else self.subject.answers
            yield attacks.MODEL, lambda arena: [attacks.on_learning(arena, answers)]
        elif clipped:
            yield attacks.MODEL, lambda arena: [attacks.on_a_model(arena)]

    def _several(self, arena: Arena) -> Iterator[Guesses]:
        own = isinstance(arena.channel, ReleaseChannel)
        if own and isinstance(self.release.randomizer, Memoised):
            arena = replace(arena, trials=min(arena.trials, _SEQUENCE_TRIALS))
        size = min(10, len(arena.people))
        for count in (3, 10):
            yield attacks.from_several(arena, count, size)
        if not isinstance(arena.channel, Raw) and len(arena.pair) == 2:
            yield attacks.chosen_from_several(arena, 3)

    def _reconstructions(self, *, several: bool) -> Iterator[tuple[str, Callable[[Arena], Any]]]:
        own = isinstance(self.arena.channel, ReleaseChannel)
        sequence = isinstance(self.release.randomizer, Memoised)
        for count in (1, 10) if own and several and not sequence else (1,):
            budget = reports_budget(self.release, count)
            epsilon = budget.epsilon if not own or not budget.delta else None
            yield RECONSTRUCTION, partial(self._estimate, count, epsilon, False)
            if own:
                yield RECONSTRUCTION, partial(self._estimate, count, epsilon, True)

    def _estimate(
        self, count: int, epsilon: Fraction | None, network: bool, arena: Arena
    ) -> list[Estimates]:
        if network and (reason := network_refused(arena)) is not None:
            self.not_run[f"{RECONSTRUCTION}, trained network"] = reason
            return []
        width = self.subject.width
        return [reconstruct(arena, count, network=network, width=width, epsilon=epsilon)]

    def _means(self, arena: Arena) -> Iterator[Guesses]:
        for size in (2, 10, 100):
            yield attacks.on_a_mean(arena, size)
        if not isinstance(arena.channel, Raw) and len(arena.pair) == 2:
            yield attacks.on_a_mean(arena, 2, chosen=True)


def _plan(release: Release, channel: Channel, subject: _Subject, trials: int, seed: int) -> _Plan:
    """Return the attacks on a channel; fewer vectors where the likelihood is slow."""
    rng = np.random.default_rng(seed)
    most = max(_FEWEST, _NUMBERS // (trials * _cost(channel)))
    known, people = _spread(len(subject.known), most), _spread(len(subject.people), most)
    arena = Arena(
        channel,
        subject.known[known],
        subject.people[people],
        subject.known_labels[known],
        subject.people_labels[people],
        trials,
        rng,
    )
    taken = None if subject.answers is None else subject.answers[people]
    return _Plan(release, arena, replace(subject, answers=taken), {})


def _cost(channel: Channel) -> int:
    """Return about how many numbers the likelihood computes for one report and one vector."""
    randomizer = channel.release.randomizer if isinstance(channel, ReleaseChannel) else None
    if isinstance(randomizer, Duchi):
        return randomizer.dim**2
    return randomizer.dim if isinstance(randomizer, BoxForm) else 1


def _spread(count: int, most: int) -> NDArray[np.intp]:
    """Return at most ``most`` places, evenly."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.intp))


# ---- Bounds


class Budget(NamedTuple):
    """ε and δ of several reports together; δ may be 1 or more, which promises nothing."""

    epsilon: Fraction
    delta: Fraction


def reports_budget(release: Release, count: int) -> Budget:
    """Return what ``count`` reports of one person promise together.

    Basic composition, kε and kδ; of a sequence, ε for every permanent answer they are made from.
    """
    report = release.single_report_guarantee
    if count > 1 and isinstance(release.randomizer, Memoised):
        draws = release.randomizer.draws_within(count)
        return Budget(release.randomizer.epsilon * draws, report.delta)
    return Budget(report.epsilon * count, report.delta * count)


def _leak(release: Release, source: str, found: Guesses | Estimates, alpha: float) -> Leak:
    own = source == RELEASE
    law = ("exact" if found.exact else "simulated") if own else "control"
    together = reports_budget(release, found.reports)
    words = "" if found.reports == 1 else f", ε of all {found.reports} reports"
    if isinstance(found, Guesses):
        low, high = share_limits(found.hits, found.trials, alpha)
        return Leak(
            attack=found.attack,
            setting=found.setting,
            source=source,
            measure="success",
            value=found.hits / found.trials,
            low=low,
            high=high,
            alpha=alpha,
            trials=found.trials,
            chance=1 / found.candidates,
            bound=1.0 if together.delta >= 1 else guess_bound(found.candidates, *together),
            basis=_formula(found.candidates, pure=not together.delta) + words,
            law=law,
        )
    low, high = mean_limits(found.errors, found.largest, alpha)
    return Leak(
        attack=RECONSTRUCTION,
        setting=found.setting,
        source=source,
        measure="explained",
        value=1 - float(found.errors.mean()) / found.variance,
        low=1 - high / found.variance,
        high=1 - low / found.variance,
        alpha=alpha,
        trials=len(found.errors),
        chance=0.0,
        bound=found.ceiling,
        basis="none is proved for δ > 0" if found.ceiling is None else f"fidelity ceiling{words}",
        law=law,
        cosine=found.cosine,
    )


def _formula(candidates: int, *, pure: bool) -> str:
    if candidates == 2:
        return "e^ε/(e^ε + 1)" if pure else "(e^ε + δ)/(e^ε + 1)"
    others = candidates - 1
    return f"e^ε/(e^ε + {others})" if pure else f"(e^ε + {others}δ)/(e^ε + {others})"
