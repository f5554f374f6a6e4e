"""The figures of promises over time: what earlier rules gave away, and that it is gone."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from benchmarks import promises


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_the_worst_delta_of_one_report_is_that_of_randomized_response(epsilon):
    worst, reports = promises.worst_delta(epsilon, (Fraction(1),), lambda costs: True, most=1)
    assert reports == 1
    exact = max(0.0, 1 - math.exp(epsilon - 1)) * math.e / (1 + math.e)
    assert worst == pytest.approx(exact, abs=1e-15)


def test_batches_change_bytes_under_the_norms_of_earlier_versions_only(monkeypatch):
    """Rows of ±c lie where a rounding error of the norm moves them. Their seed is fixed."""
    monkeypatch.setattr(promises, "ROWS", 12)
    figures = {row[0]: row[1:] for row in promises.cuts()}
    for name, (before, now) in figures.items():
        assert now == "0 of 12"
        if "±c" in name:
            assert before.endswith("these show 100% of their signs")


def test_a_ledger_confirms_guesses_under_the_rule_of_earlier_versions_only(monkeypatch):
    monkeypatch.setattr(promises, "GUESSES", 10)
    confirmed, mode, studies = (row[1:] for row in promises.ledgers())
    assert confirmed == ("10 of 10", "0 of 10")
    assert mode == ("0644", "0600")
    assert studies == ("10", "1")
