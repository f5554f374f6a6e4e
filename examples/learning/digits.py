"""Phones learn to read digits that nobody uploads.

    make example-learning

Ten thousand people have each drawn one digit (the test digits of MNIST). A public network turns a
drawing into 32 numbers on the phone. A thousand drawings are public, without their digits.

1. *Plan*: from the public vectors alone, how many people does it take to learn to read?
2. *Report*: 7,000 people each send one report of their drawing and its digit together, under one ε,
   to a collector on this machine.
3. *Learn*: the collector's export of the reports gives a public model.
4. *Evaluate*: on 1,000 drawings of people who did not report; and 1,000 others tell by one private
   bit each whether the model is right for them.
5. *Publish*: the model becomes the head of the next release. Phones read their own drawings with
   it, and report the answer only.

Everything is real except that one process plays all phones, and that most of their reports are sent
in one batch. The public network was trained on digits of other people, so its vectors cluster by
digit. Vectors that cluster less take more people, which the plan would say.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

import offaxis
from examples.learning.collector import Collector, running
from experiments.live_demo.site import digit_features
from offaxis.learning import accuracy, fit_check

PUBLIC, REPORT, CHECK = slice(0, 1_000), slice(1_000, 8_000), slice(8_000, 9_000)
HELD_OUT: Final = slice(9_000, 10_000)
STATEMENT: Final = "1,000 test digits of MNIST without labels, by a public network"


@dataclass(frozen=True)
class Outcome:
    """What the story tells, in numbers.

    Attributes
    ----------
    planned, evaluated, checked : float
        The accuracy that the plan expects, that on held-out drawings, and that by private bits.
    checked_error : float
    guess : float
        The accuracy of the same answer for everybody.
    shares_off : float
        The largest error of the ten shares of digits in the last round, in standard errors.
    """

    planned: float
    evaluated: float
    checked: float
    checked_error: float
    guess: float
    shares_off: float


def tell(epsilon: float, devices: int, show: Callable[[str, str], None]) -> Outcome:
    """Run the story; ``show`` prints a step and what happened in it."""
    vectors, digits = digit_features()
    # The first half of the test digits of MNIST is easier to read than the second.
    order = np.random.default_rng(0).permutation(len(digits))
    vectors, digits = vectors[order], digits[order]
    public, people = vectors[PUBLIC], REPORT.stop - REPORT.start
    show("public", f"{len(public):,} drawings of 32 numbers each; nobody says what they show")

    plan = offaxis.plan_learning(
        public, answers=10, epsilon=epsilon, people=people, statement=STATEMENT
    )
    expected, target = plan.expected(people), (plan.guess + plan.best) / 2
    needed = plan.smallest_people(target)
    show("plan", f"expected accuracy {expected!r}")
    show("", f"half of what is possible beyond guessing takes {needed:,} people")
    show("", f"if one digit is right for {plan.signal:.0%} of the people of each public cell")

    with (
        tempfile.TemporaryDirectory(prefix="offaxis-example-") as folder,
        running(Path(folder)) as collector,
    ):
        release = plan.release
        collector.open_round("digits-1", 1, release)
        show("release", f"{release.guarantee}, for a drawing and its digit together")
        rows = release.pairs(vectors[REPORT], digits[REPORT])
        _report(collector, "digits-1", release, rows, devices)
        reports = collector.reports("digits-1")
        size = release.report_size
        show("phones", f"{len(reports):,} reports of {size} bytes; {devices} by complete devices")

        model = offaxis.learn(release, reports)
        found = model.expected_accuracy()
        show("learnt", f"{model!r}")
        interval = f"{found.low:.2f} to {found.high:.2f}"
        show("", f"accuracy {found.estimate:.2f}, 95 % interval {interval}, by the reports alone")

        right = model.score(vectors[HELD_OUT], digits[HELD_OUT])
        guess = float(np.bincount(digits[HELD_OUT]).max() / len(digits[HELD_OUT]))
        show("held out", f"right on {right:.1%} of 1,000 other drawings; nobody asked: {guess:.1%}")

        check = fit_check(model, public, epsilon=epsilon, statement=STATEMENT)
        collector.open_round("check-1", 2, check)
        _report(collector, "check-1", check, check.pairs(vectors[CHECK], digits[CHECK]), 0)
        checked = accuracy(check, collector.reports("check-1"))
        low, high = checked.interval()
        show("checked", f"{checked!r} by one private bit of 1,000 others each")
        show("", f"95 % interval {low:.2f} to {high:.2f}, for any people")

        drawings = vectors[HELD_OUT]
        shares_off = _next_round(collector, model, public, drawings, epsilon, devices // 10, show)
    return Outcome(
        expected.accuracy, right, checked.estimate, checked.standard_error, guess, shares_off
    )


def _report(
    collector: Collector, name: str, release: offaxis.Release, rows: Any, devices: int
) -> None:
    """Let people report: the first ones with complete devices, the others in a batch."""
    epsilon = release.guarantee.epsilon
    collector.devices_report(name, list(rows[:devices]), epsilon)
    collector.upload(name, release.privatize(rows[devices:]))


def _next_round(
    collector: Collector,
    model: Any,
    public: Any,
    drawings: Any,
    epsilon: float,
    devices: int,
    show: Callable[[str, str], None],
) -> float:
    """Publish the model as the head of another release, and return how far off its shares are."""
    # An answer that the model never gives shares the symbol of another one.
    following = offaxis.fit(
        model.layers_, public, epsilon=epsilon, mechanism="class-response", statement=STATEMENT
    )
    collector.open_round("digits-2", 3, following)
    show("published", "the model is the head of the next release: phones read their own drawings")
    _report(collector, "digits-2", following, drawings, devices)
    shares = following.shares(collector.reports("digits-2"))
    assert following.answers is not None
    symbols = np.array(following.answers.symbols)[model.predict(drawings)]
    read = np.bincount(symbols, minlength=len(shares.estimate)) / len(drawings)
    top = int(read.argmax())
    share = f"{shares.estimate[top]:.2f} ± {shares.standard_error[top]:.2f}"
    name = shares.names[top]
    show(
        "", f"and report the answer alone; share of {name}: {share}, without noise {read[top]:.2f}"
    )
    return float((np.abs(shares.estimate - read) / shares.standard_error).max())


def main() -> None:
    """Print the story."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--epsilon", type=float, default=1.0, help="budget of one report")
    parser.add_argument(
        "--devices", type=int, default=300, help="phones with a ledger of their own"
    )
    arguments = parser.parse_args()
    print("Phones learn to read digits that nobody uploads.\n")
    tell(
        arguments.epsilon,
        arguments.devices,
        lambda step, text: print(f"{step:10}  {text}", flush=True),
    )


if __name__ == "__main__":
    main()
