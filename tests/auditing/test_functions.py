"""Functions with faults are caught, functions without are not, and inputs stay in their domain.

Audits run at a false-alarm rate of ALPHA. The numbers of outputs are so large that each fault is
shown with bounds far beyond the promise (benchmarks/wild.py prints them).
"""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pytest
from scipy import stats

import offaxis
from offaxis.auditing import LEAST, AnyVector, Pairs, attacks, audit, blackbox
from offaxis.auditing.domains import as_input
from offaxis.auditing.outputs import Raised, Reader
from offaxis.auditing.trials import _RunState
from offaxis.errors import InvalidInput
from offaxis.randomizers.base import Ball, Box, FiniteSet, Sphere
from tests.auditing import wild
from tests.checks import ALPHA

SETTINGS = {"reports": 8000, "false_alarm": ALPHA}


def response(epsilon, rng=None):
    """Return randomized response of one bit: its loss is ε exactly."""
    rng = np.random.default_rng() if rng is None else rng
    share = 1 / (1 + math.exp(-epsilon))
    return lambda x: x if rng.random() < share else 1 - x


def violations(result):
    return {finding.test.split("-", 1)[-1] for finding in result.by_verdict("violation")}


@pytest.mark.parametrize("make", wild.WILD, ids=lambda make: make.__name__)
def test_a_fault_from_the_wild_is_caught(make):
    target = make()
    result = target.audit(reports=target.reports, false_alarm=ALPHA)
    assert result.violated
    for finding in result.by_verdict("violation"):
        assert finding.epsilon > finding.promised
    if target.found_by:
        assert set(target.found_by) & violations(result)


SOUND = ["laplace", "privunit2", "piecewise", "response", "gaussian, numbers", "geometric"]
"""Some of the functions that benchmarks/wild.py audits 200 times."""


# Each alarm would be one of probability ALPHA.
@pytest.mark.parametrize("name", SOUND)
def test_a_sound_function_is_not_accused(name):
    result = wild.sound()[name].audit(**SETTINGS)
    assert not result.violated, result.summary
    assert result.release is None
    assert result.domain


def test_a_bound_approaches_the_loss_of_randomized_response_and_stays_below():
    result = audit(response(2.0), epsilon=2, domain=[0, 1], reports=100_000, false_alarm=ALPHA)
    assert 1.8 < result.strongest.epsilon <= 2
    # Broken control: the same function promises less than it loses.
    assert audit(response(2.0), epsilon=1.5, domain=[0, 1], **SETTINGS).violated


def test_alarms_are_as_rare_as_stated():
    """At a rate of 0.2, alarms of tight functions; the count is judged at ALPHA."""
    rng = np.random.default_rng()

    def alarms(epsilon):
        return sum(
            audit(
                response(epsilon, rng), epsilon=1, domain=[0, 1], reports=400, false_alarm=0.2
            ).violated
            for _ in range(40)
        )

    most = stats.binom.isf(ALPHA, 40, 0.2)
    assert alarms(1.0) <= most
    assert alarms(3.0) > most


def test_the_tests_share_the_rate_of_false_alarms():
    result = audit(response(1.0), epsilon=1, domain=[0, 1], **SETTINGS)
    shares = {finding.alpha for finding in result.findings if finding.alpha is not None}
    tests = sum(finding.alpha is not None for finding in result.findings)
    assert len(shares) == 1
    assert tests * shares.pop() == pytest.approx(ALPHA)


def test_the_search_draws_other_outputs_than_the_tests():
    """A function that answers the search honestly and the tests not is judged by the tests."""
    calls = {"final": False}
    run = _RunState.process

    def noting(self, *arguments):
        calls["final"] = True
        return run(self, *arguments)

    def function(x):
        return x if calls["final"] else 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_RunState, "process", noting)
        result = audit(function, epsilon=1, domain=[0, 1], **SETTINGS)
    assert result.violated


# ---- What a domain means


@pytest.mark.parametrize(
    ("domain", "inside"),
    [
        (Ball(3, 2.0, 1), lambda x: np.abs(x).sum() <= 2),
        (Ball(3, 2.0, 2), lambda x: np.linalg.norm(x) <= 2),
        (Box(3, 0.5), lambda x: np.abs(x).max() <= 0.5),
        (Sphere(3, 4.0), lambda x: abs(np.linalg.norm(x) - 4) < 1e-9),
        (AnyVector(3), lambda x: np.isfinite(x).all()),
        ((18.0, 90.0), lambda x: 18 <= x <= 90 and type(x) is float),
        (FiniteSet(5), lambda x: x in range(5) and type(x) is int),
        (["a", "b", "c"], lambda x: x in "abc"),
        (Pairs([(1, "x"), ((2, 3), None)]), lambda x: x in (1, "x", (2, 3), None)),
    ],
    ids=lambda part: "" if callable(part) else str(part),
)
def test_inputs_are_elements_of_the_domain_and_of_its_type(domain, inside):
    seen = []

    def record(x):
        if isinstance(x, np.ndarray):
            assert x.dtype == np.float64
            assert x.shape == (3,)
        seen.append(x)
        return 0

    audit(record, epsilon=1, domain=domain, reports=LEAST)
    assert all(inside(x) for x in seen)
    assert len({repr(x) for x in seen}) > 1


def test_missing_clipping_is_found_if_the_domain_names_no_bound():
    rng = np.random.default_rng()

    def noisy(X):  # enough noise for the unit ball
        return np.round(X + rng.laplace(scale=2.0, size=X.shape), 9)

    settings = {"epsilon": 1, "batched": True, "reports": 20_000, "false_alarm": ALPHA}
    assert not audit(noisy, domain=Ball(3, 1.0, 1), **settings).violated
    assert audit(noisy, domain=AnyVector(3), **settings).violated


@pytest.mark.parametrize("bad", [0, 3, 11])
def test_the_one_input_that_leaks_is_found(bad):
    rng = np.random.default_rng()

    def mostly(x):
        return 1 if x == bad else int(rng.random() < 0.5)

    result = audit(mostly, epsilon=1, domain=FiniteSet(12), **SETTINGS)
    assert result.violated
    assert bad in result.strongest.inputs


def test_a_single_corner_that_leaks_is_found():
    rng = np.random.default_rng()

    def corner(x):
        return float(x.min() >= 1 - 1e-9) * 100 + round(rng.standard_normal(), 6)

    assert audit(corner, epsilon=1, domain=Box(5, 1.0), **SETTINGS).violated


def test_tiny_inputs_are_tried():
    rng = np.random.default_rng()

    def divides(x):  # a reciprocal overflows for the smallest numbers alone
        return round(rng.standard_normal(), 6) if np.isfinite(1 / (np.abs(x).max() or 1)) else 9.0

    assert audit(divides, epsilon=1, domain=Ball(2, 1.0, 2), **SETTINGS).violated


# ---- Promises


def test_epsilon_may_depend_on_the_inputs():
    rng = np.random.default_rng()

    def noisy(x):
        return round(x + rng.laplace(), 6)

    settings = {"domain": (-3.0, 3.0), "reports": 20_000, "false_alarm": ALPHA}
    result = audit(noisy, epsilon=lambda x, y: abs(x - y), **settings)
    assert not result.violated
    assert "ε(x, x′)" in result.summary
    broken = audit(noisy, epsilon=lambda x, y: abs(x - y) / 2, **settings)
    assert broken.violated
    x, other = broken.strongest.inputs
    assert broken.strongest.promised == pytest.approx(abs(x - other) / 2)


@pytest.mark.parametrize(("factor", "violated"), [(1.0, False), (0.5, True)])
def test_delta_counts(factor, violated):
    rng = np.random.default_rng()
    sigma = factor * wild.analytic_sigma(1.0, 1e-3, sensitivity=2.0)

    def gaussian(X):
        return np.round(X + rng.normal(scale=sigma, size=X.shape), 9)

    settings = {"domain": (-1.0, 1.0), "batched": True, "reports": 1_000_000, "false_alarm": ALPHA}
    result = audit(gaussian, epsilon=1, delta=1e-3, **settings)
    assert result.violated is violated
    assert result.guarantee == offaxis.Guarantee(1, 1e-3)


# ---- Outputs that are no numbers


def test_an_exception_for_one_input_is_an_output():
    def refuses(x):
        if x == "c":
            raise KeyError(x)
        return b"accepted"

    result = audit(refuses, epsilon=3, domain=["a", "b", "c"], **SETTINGS)
    assert {"form", "value"} & violations(result)
    assert "c" in result.strongest.inputs
    text = " ".join(finding.result for finding in result.findings)
    assert "raises KeyError" in text
    assert "calls raised an exception (KeyError)" in text


def test_an_exception_as_often_for_both_inputs_is_no_violation():
    rng = np.random.default_rng()

    def unreliable(x):
        if rng.random() < 0.3:
            raise OSError("down")
        return int(rng.integers(3))

    result = audit(unreliable, epsilon=1, domain=[0, 1], **SETTINGS)
    assert not result.violated


@pytest.mark.parametrize("leak", [math.nan, math.inf, "long", (1.0,), np.zeros(3)], ids=repr)
def test_another_kind_of_output_is_found(leak):
    rng = np.random.default_rng()

    def leaks(x):
        return leak if x and rng.random() < 0.1 else float(rng.random())

    result = audit(leaks, epsilon=1, domain=[0, 1], **SETTINGS)
    assert {"form", "value"} & violations(result)


def test_an_observation_that_does_not_apply_is_counted():
    """If only answers were counted, this sound function would show more than ε."""
    rng = np.random.default_rng()

    def answers(x):  # Pr[1] is 0.2 e^-1/2 and 0.2 e^1/2; Pr[an answer] is nearly the reverse
        share = 0.2 * math.exp(x - 0.5)
        u = rng.random()
        if u < share:
            return 1.0
        if u < share + 0.2 * math.exp(0.5 - x):
            return 0.0
        raise ValueError

    assert not audit(answers, epsilon=1, domain=[0, 1], **SETTINGS).violated


def test_a_function_that_always_fails_is_an_error():
    with pytest.raises(InvalidInput, match=r"raised TypeError.*for every input.*such as \["):
        audit(lambda x, y: x, epsilon=1, domain=Ball(3, 1.0, 2))


# ---- Conduct


def test_shared_randomness_is_found():
    memory = []
    rng = np.random.default_rng()

    def pairwise(x):  # every second call repeats the randomness of the one before it
        memory.append(rng.laplace() if len(memory) % 2 == 0 else memory[-1])
        return memory[-1]

    result = audit(pairwise, epsilon=1, domain=[0, 1], **SETTINGS)
    (found,) = result.by_verdict("violation")
    assert found.test == "repeats"
    assert "They share randomness" in found.result


def test_rows_of_a_batch_that_share_their_noise_are_found():
    rng = np.random.default_rng()

    def shared(X):
        return np.full(len(X), rng.laplace())

    result = audit(shared, epsilon=1, domain=[0, 1], batched=True, **SETTINGS)
    assert "repeats" in violations(result)


def test_a_fixed_seed_is_found():
    def seeded(x):
        return x + np.random.default_rng(0).laplace()

    assert audit(seeded, epsilon=1, domain=(0.0, 1.0), **SETTINGS).violated


def test_inputs_are_copied_before_every_call():
    rng = np.random.default_rng()

    def in_place(x):
        x += np.round(rng.laplace(scale=2.0, size=x.shape), 6)
        return np.round(x, 6)

    assert not audit(in_place, epsilon=1, domain=Ball(2, 1.0, 1), **SETTINGS).violated


def test_warnings_of_a_function_are_no_outputs():
    def warns(x):
        if x == 0:
            warnings.warn("zero", stacklevel=1)  # an error in this test suite
        return 0

    result = audit(warns, epsilon=1, domain=[0, 1], **SETTINGS)
    assert not result.violated


def test_a_batch_that_raises_is_repeated_one_by_one():
    rng, sizes = np.random.default_rng(), []

    def raises(X):
        if (X == 3).any():
            sizes.append(len(X))
            raise ValueError("3")
        return rng.integers(0, 2, len(X))

    result = audit(raises, epsilon=1, domain=FiniteSet(5), batched=True, **SETTINGS)
    assert result.violated
    assert 3 in result.strongest.inputs
    # One exception of a batch is not that many outputs.
    assert set(sizes[1:]) == {1}


# ---- Settings and results


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"domain": [0, 1]}, "needs the promised epsilon"),
        ({"epsilon": 1}, "needs the domain of its inputs"),
        ({"epsilon": -1, "domain": [0, 1]}, "epsilon must be positive"),
        ({"epsilon": 1, "delta": 2, "domain": [0, 1]}, "delta must be strictly between"),
        ({"epsilon": 1, "domain": "ab"}, "the domain must be a Ball"),
        ({"epsilon": 1, "domain": (1.0, 0.0)}, "low < high"),
        ({"epsilon": 1, "domain": [0]}, "two or more"),
        ({"epsilon": 1, "domain": Ball(2, math.inf, 2)}, r"state AnyVector\(2\)"),
        ({"epsilon": lambda x, y: -1, "domain": [0, 1]}, "must be a number from 0 on, got -1"),
        ({"epsilon": 1, "domain": [0, 1], "reports": 3}, "reports must be at least"),
        ({"epsilon": 1, "domain": [0, 1], "seconds": 0}, "seconds must be positive"),
        ({"epsilon": 1, "domain": [0, 1], "batched": True}, "one output per input"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_bad_settings_are_rejected(settings, message):
    with pytest.raises(InvalidInput, match=message):
        audit(lambda x: 0, **settings)


def test_pairs_are_checked():
    with pytest.raises(InvalidInput, match="at least one pair"):
        Pairs([])
    with pytest.raises(InvalidInput, match=r"takes pairs \(x, x'\), got 3"):
        Pairs([(1, 2), 3])


@pytest.mark.parametrize(
    "setting", [{"epsilon": 1}, {"delta": 0.1}, {"domain": (0, 1)}, {"batched": True}]
)
def test_a_release_takes_no_promise(release, setting):
    with pytest.raises(InvalidInput, match=f"leave out {next(iter(setting))}"):
        audit(release, **setting)


def test_neither_a_release_nor_a_function():
    with pytest.raises(InvalidInput, match=r"a function of one input, or a release .* got a str"):
        audit("my.release", epsilon=1, domain=[0, 1])


def test_the_facts_name_the_function_and_a_release_has_none_of_them(release):
    result = audit(response(1.0), epsilon=1, domain=[0, 1], **SETTINGS)
    facts = json.loads(json.dumps(result.facts()))
    assert (facts["release"], facts["randomizer"]) == (None, None)
    assert (facts["target"], facts["promise"], facts["domain"]) == ("<lambda>", "ε = 1", "2 values")
    assert all("promised" in f for f in facts["findings"] if f["epsilon_at_least"] is not None)
    of_release = audit(release, reports=LEAST).facts()
    assert not {"target", "promise", "domain"} & set(of_release)
    assert not any({"promised", "inputs"} & set(finding) for finding in of_release["findings"])


def test_the_evidence_names_the_inputs_and_counts():
    result = audit(lambda x: x, epsilon=1, domain=["yes", "no"], **SETTINGS)
    evidence = result.strongest.evidence
    assert "'yes'" in evidence
    assert "'no'" in evidence
    assert "2,000 times of 2,000 for one input and 0 times of 2,000" in evidence


def test_few_calls_could_not_have_contradicted_a_large_epsilon():
    result = audit(response(8.0), epsilon=8, domain=[0, 1], reports=LEAST)
    assert "this run could not have contradicted ε = 8; run at least" in result.summary


def test_progress_is_reported():
    seen = {}
    audit(
        response(1.0),
        epsilon=1,
        domain=[0, 1],
        reports=4000,
        progress=lambda name, done, total: seen.update({name: (done, total)}),
    )
    assert {"search", "main"} <= set(seen)
    assert all(done == total for done, total in seen.values())


def test_without_scikit_learn_the_classifier_is_listed_as_not_run(monkeypatch):
    monkeypatch.setattr(attacks, "find_spec", lambda name: None)
    result = audit(response(1.0), epsilon=1, domain=[0, 1], reports=LEAST)
    (not_run,) = result.by_verdict("not run")
    assert not_run.test == "classifier"


@pytest.mark.parametrize("x", [1.0, 1e308, 5e-324])
def test_every_statistic_scores_every_output(x):
    """An output without a score would not be counted, and bounds could be too large."""
    hostile = [math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 0.0, 1.0]
    outputs = [*(np.array([a, b]) for a in hostile for b in hostile), "text", Raised(ValueError())]
    reader = Reader()
    reader.settle(outputs)
    read = reader.read(outputs * 4)
    first, second = (as_input(np.array([sign * x, 0.0])) for sign in (1, -1))
    found = blackbox.statistics(first, second, 2)
    found["classifier"] = blackbox.Trees(first, second, 2, 0)
    with np.errstate(all="ignore"):
        for name, statistic in found.items():
            statistic.learn(0, read)
            statistic.learn(1, read[::-2])
            statistic.settle()
            assert not np.isnan(statistic.scores(read)).any(), name
        along = blackbox.Along(np.array([math.inf, 0.0]))  # infinity times zero
        assert not np.isnan(along.scores(read)).any()


def test_a_salt_of_a_batch_is_no_difference_between_inputs():
    """Both inputs are in one batch, in random order. Their calls are not independent, though."""
    rng = np.random.default_rng(5)

    def salted(X):
        kept = rng.random(len(X)) < math.e / (1 + math.e)
        salt = rng.integers(1 << 60)
        return [(int(salt), int(x == k)) for x, k in zip(X, kept, strict=True)]

    result = audit(salted, epsilon=1, domain=[0, 1], batched=True, **SETTINGS)
    assert [f.test for f in result.by_verdict("violation")] in ([], ["repeats"])
    for finding in result.by_verdict("violation"):
        assert "a salt of a batch is part of the output" in finding.result


def test_a_metric_may_promise_nothing_for_far_inputs():
    def noisy(x):
        return x + np.random.default_rng().laplace(size=x.shape)

    result = audit(noisy, epsilon=lambda x, y: np.abs(x - y).sum(), domain=AnyVector(1), **SETTINGS)
    assert math.isfinite(result.guarantee.epsilon)
