"""The example of learning runs: from public vectors to a model that reads held-out digits."""

from __future__ import annotations

from pathlib import Path

from examples.learning.digits import tell

ROOT = Path(__file__).parents[2]


def test_phones_learn_to_read_and_the_checks_agree():
    told = []
    outcome = tell(4, 6, lambda step, text: told.append(f"{step:10}  {text}"))
    assert [line.split()[0] for line in told if line[:1] != " "] == [
        *("public", "plan", "release", "phones", "learnt", "held", "checked", "published")
    ]
    assert "phones      7,000 reports of 26 bytes; 6 by complete devices" in told
    # At ε = 4 the noise is negligible: what is left are drawings in the wrong cell.
    assert outcome.evaluated > 0.85
    assert outcome.guess < 0.15 < outcome.planned <= 0.81
    # 1,000 private bits and 1,000 held-out drawings: six standard errors of their difference.
    error = (outcome.checked_error**2 + 0.25 / 1000) ** 0.5
    assert abs(outcome.checked - outcome.evaluated) < 6 * error
    # Ten shares within six standard errors each: a false alarm in 5e7 runs.
    assert outcome.shares_off < 6


def test_make_runs_the_example():
    assert "-m examples.learning.digits\n" in (ROOT / "Makefile").read_text()
