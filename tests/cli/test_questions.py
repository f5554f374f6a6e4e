"""The questions of ``offaxis ask``: their grammar, and what few reports can answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import offaxis
from offaxis.cli.options import UsageError
from offaxis.cli.questions import Question, parse
from offaxis.learning import Classes, Number, fit_answers
from tests.cli.conftest import Run, assert_fails

# ---- The grammar


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("share of head.safetensors", Question("", "share", "head.safetensors")),
        ("shares", Question("", "share")),
        ("  Shares   of smoker ", Question("", "share", "smoker")),
        ("accuracy of a.b:c", Question("", "accuracy", "a.b:c")),
        ("mean", Question("", "mean")),
        ("mean of 3", Question("", "mean", "3")),
        ("median of hours of work", Question("", "median", "hours of work")),
        ("quantile .9 of 3", Question("", "quantile", "3", 0.9)),
        ("histogram of 3", Question("", "histogram", "3")),
        ("histogram of age in years in 7 bins", Question("", "histogram", "age in years", 0.5, 7)),
        ("histogram", Question("", "histogram")),
        ("covariance", Question("", "covariance")),
        ("principal directions", Question("", "principal directions")),
    ],
)
def test_questions_are_read(text: str, expected: Question) -> None:
    found = parse(text)
    assert found.text == " ".join(text.split())
    for name in ("verb", "about", "level", "bins"):
        assert getattr(found, name) == getattr(expected, name)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("how many cats", "ask 'share of MODEL', 'accuracy of MODEL', 'mean'"),
        ("shar of head.safetensors", "written 'share of MODEL'"),
        ("mediam of 3", "written 'median of 3'"),
        ("quantiles", "written 'quantile .9 of 3'"),
        ("accuracy", "written 'accuracy of MODEL'"),
        ("principal", "written 'principal directions'"),
        ("quantile 90 of 3", "a level between 0 and 1, such as .9"),
        ("quantile high of 3", "a level between 0 and 1"),
        ("histogram of 3 in 1 bins", "2 to 1,000 bins"),
    ],
)
def test_other_text_is_rejected_with_a_hint(text: str, hint: str) -> None:
    with pytest.raises(UsageError, match=hint.replace(".", r"\.")):
        parse(text)


# ---- Few reports, and intervals that are cut


@pytest.fixture
def survey(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, with a release of two answers and 3,000 reports."""
    monkeypatch.chdir(tmp_path)
    asked = [Classes(["no", "yes"], name="smoker"), Number(0, 100, name="age", bins=10)]
    release = fit_answers(asked, epsilon=3)
    release.save("both.release")
    ages = np.random.default_rng(0).normal(40, 10, 3000)
    reports: Any = release.privatize(answers={"smoker": ["no", "no", "yes"] * 1000, "age": ages})
    Path("both.reports").write_bytes(b"".join(reports))
    return tmp_path


def test_few_reports_of_several_answers_have_no_intervals(survey: Path, run: Run) -> None:
    """Only the joint values have intervals that hold for any number of reports."""
    size = offaxis.load("both.release").report_size
    Path("two.reports").write_bytes(Path("both.reports").read_bytes()[: 2 * size])
    asked = ("ask", "both.release", "--reports", "two.reports")
    for question in ("share of smoker", "histogram of age", "median of age", "mean of age"):
        result = run(*asked, "--question", question, "--out", "x.csv")
        assert_fails(result, 3, "2 reports are too few", "it takes 100", "joint values")
    assert not Path("x.csv").exists()
    joint = json.loads(run(*asked, "--question", "shares", "--json").stdout)["answers"][0]
    assert np.less(joint["low"], joint["high"]).all()
    against = ("--against", "two.reports")
    result = run(
        "ask",
        "both.release",
        "--reports",
        "both.reports",
        "--question",
        "share of smoker",
        *against,
    )
    assert_fails(result, 3, "2 reports are too few")
    # Bins of a number alone have exact intervals, but their changes have none.
    ages = fit_answers(Number(0, 100, bins=10), epsilon=3)
    ages.save("ages.release")
    for name in ("now", "then"):
        reports: Any = ages.privatize(answers=[31, 32])
        Path(f"{name}.reports").write_bytes(b"".join(reports))
    asked = ("ask", "ages.release", "--reports", "now.reports", "--question", "histogram")
    assert run(*asked).exit_code == 0
    assert_fails(run(*asked, "--against", "then.reports"), 3, "2 reports are too few")


def test_intervals_of_shares_that_are_cut_are_pointed_out_once(survey: Path, run: Run) -> None:
    said = "Intervals of shares are cut at 0 and 100 %."
    asked = ("ask", "both.release", "--reports", "both.reports")
    text = " ".join(
        run(*asked, "--question", "histogram of age", "--question", "shares").stdout.split()
    )
    assert text.count(said) == 1
    text = " ".join(
        run(*asked, "--question", "share of smoker", "--question", "median of age").stdout.split()
    )
    assert said not in text
