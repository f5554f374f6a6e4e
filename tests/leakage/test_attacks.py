"""Attacks succeed as often as theory says where it is known, and above their bound on leaks."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy.stats import norm

import offaxis
from offaxis.encoding import Classes
from offaxis.errors import InvalidInput, InvalidReport, ModelNeeded
from offaxis.geometry import Layers
from offaxis.leakage import Leak, LeakPassport, guess_bound, issuer, reconstruction
from offaxis.leakage.attacks import Arena, among_chosen, among_people, linkage
from offaxis.leakage.channels import FloatLaplace, ReleaseChannel, compared
from offaxis.leakage.issuer import reports_budget
from offaxis.learning import cells, fit_answers, fit_pairs, principal
from offaxis.randomizers import Laplace
from tests.auditing.broken_controls import HalfTheNoise, with_broken_control
from tests.checks import ALPHA

DIM = 4
RNG = np.random.default_rng(0)
PUBLIC = RNG.standard_normal((700, DIM)) @ RNG.standard_normal((DIM, DIM))
FITTED, OTHERS = PUBLIC[:300], PUBLIC[300:]
WHITE = np.linalg.inv(np.linalg.cholesky(np.cov(FITTED.T)))[:2]
MODEL = Layers.linear(np.vstack([WHITE, -WHITE]))
"""Four answers, each about as likely."""

CLASSES = MODEL.outputs(OTHERS).argmax(axis=1)


def passport(release: offaxis.Release, **settings: object) -> LeakPassport:
    """Issue a seeded passport of the held-out vectors; no chance is involved."""
    defaults = {"trials": 1500, "exact": False, "controls": False, "false_alarm": ALPHA}
    return offaxis.passport(release, OTHERS, **(defaults | settings))


def leak(result: LeakPassport, attack: str, setting: str, source: str = "release") -> Leak:
    """Return one leak."""
    (found,) = [
        part
        for part in result.leaks
        if (part.attack, part.setting, part.source) == (attack, setting, source)
    ]
    return found


def covers(part: Leak, value: float) -> bool:
    return part.low <= value <= part.high and part.high - part.low < 0.25


# ---- Known laws


@pytest.mark.parametrize("epsilon", [0.5, 2, 5])
def test_response_over_answers_is_attacked_as_well_as_epsilon_allows(epsilon):
    """The sizes of both attacks are exact: they attain the bound (docs/proofs.md §28)."""
    release = offaxis.fit(MODEL, FITTED, epsilon=epsilon)
    result = passport(release, labels=CLASSES, trials=4000)
    attained = guess_bound(4, epsilon)
    for attack, setting in (
        ("nearest candidate", "4 chosen people"),
        ("attribute", "one of 4 labels, anybody"),
        ("attribute", "4 known people of different labels"),
    ):
        part = leak(result, attack, setting)
        assert part.bound == pytest.approx(attained)
        assert covers(part, attained), part
    assert not result.exceeded


@pytest.mark.parametrize("epsilon", [1, 3])
def test_laplace_poles_are_told_apart_as_often_as_the_closed_form_says(epsilon):
    release = offaxis.fit(None, FITTED, epsilon=epsilon, mechanism="laplace", reshaping="none")
    part = leak(passport(release, trials=4000), "nearest candidate", "2 chosen people")
    assert covers(part, 1 - math.exp(-epsilon / 2) / 2)
    assert part.spent > 0.8


def test_gaussian_poles_are_told_apart_as_often_as_the_closed_form_says():
    settings = {"epsilon": 3, "delta": "1e-5", "mechanism": "gaussian", "reshaping": "none"}
    release = offaxis.fit(None, FITTED, **settings)
    result = passport(release, trials=4000)
    randomizer = release.randomizer
    part = leak(result, "nearest candidate", "2 chosen people")
    assert covers(part, norm.cdf(randomizer.radius / randomizer.scale))
    assert part.bound == guess_bound(2, 3, "1e-5")


def test_two_points_are_reconstructed_as_well_as_the_ceiling_allows():
    """X = ±1 by randomized response: the posterior mean explains tanh²(ε/2), the ceiling."""
    signs = np.tile([[1.0], [1.0], [-1.0], [-1.0]], (100, 1))
    release = offaxis.fit(Layers.linear([[1.0], [-1.0]]), signs, epsilon=2)
    result = offaxis.passport(release, signs, trials=4000, exact=False, controls=False)
    part = leak(result, "reconstruction", "posterior mean, 1 report")
    assert part.bound == pytest.approx(math.tanh(1) ** 2)
    assert part.value == pytest.approx(math.tanh(1) ** 2, abs=0.02)
    assert covers(part, math.tanh(1) ** 2)
    assert not part.exceeds
    linked = leak(result, "linkage", "two reports of anybody")
    right = math.exp(2) / (1 + math.exp(2))
    # Both reports of one person are equal with probability r² + (1 − r)².
    assert linked.value == pytest.approx(0.25 + (right**2 + (1 - right) ** 2) / 2, abs=0.04)


def test_several_reports_add_up_in_the_attack_and_in_the_bound():
    release = offaxis.fit(MODEL, FITTED, epsilon=1, mechanism="privunit2")
    result = passport(release)
    once = leak(result, "nearest candidate", "10 random people")
    thrice = leak(result, "several reports", "3 reports, 10 random people")
    assert thrice.bound == guess_bound(10, 3)
    assert (
        once.value
        < thrice.value
        < leak(result, "several reports", "10 reports, 10 random people").value
    )
    assert leak(result, "reconstruction", "posterior mean, 10 reports").bound > 0.99


def test_a_large_delta_promises_nothing_together():
    release = offaxis.fit(
        None, FITTED, epsilon=1, delta="0.2", mechanism="gaussian", reshaping="none"
    )
    result = passport(release, trials=200)
    assert leak(result, "several reports", "10 reports, 10 random people").bound == 1
    assert leak(result, "several reports", "3 reports, 2 chosen people").bound < 1


def test_delta_adds_up_and_no_ceiling_is_claimed_with_it():
    release = offaxis.fit(MODEL, FITTED, epsilon=2, delta="1e-3", mechanism="gaussian")
    result = passport(release, trials=200)
    part = leak(result, "several reports", "3 reports, 10 random people")
    assert part.bound == guess_bound(10, 6, 0.003)
    for estimate in (p for p in result.leaks if p.attack == "reconstruction"):
        assert estimate.bound is None
        assert estimate.spent is None
        assert not estimate.exceeds


# ---- Releases that keep their promise, and some that do not


@pytest.mark.parametrize(
    ("mechanism", "epsilon"),
    [("privunit2", 4), ("laplace", 2), ("response", 1), ("subset", 1), ("duchi", 2), ("hybrid", 6)],
)
def test_no_bound_is_exceeded_by_a_sound_release(mechanism, epsilon):
    result = passport(offaxis.fit(MODEL, FITTED, epsilon=epsilon, mechanism=mechanism), trials=600)
    assert result.exceeded == ()
    assert len(result.of_release) >= 20
    assert not result.not_run
    assert result.strongest is not None
    assert result.strongest.spent > 0.5


def test_a_release_with_half_the_noise_is_found():
    """Exact reports, unseeded: a miss is rarer than ALPHA, as 88 % of 4,000 are far above 73 %."""
    sound = offaxis.fit(None, FITTED, epsilon=1, mechanism="laplace", reshaping="none")
    broken = with_broken_control(sound, HalfTheNoise)
    result = passport(broken, trials=4000, exact=True)
    over = {(part.attack, part.setting) for part in result.exceeded}
    assert ("nearest candidate", "2 chosen people") in over
    assert "Beyond what ε = 1, pure allows: nearest candidate" in result.summary
    assert "exceed" in repr(result)
    assert not passport(sound, trials=1000, exact=True).exceeded


def test_the_controls_exceed_the_bounds():
    release = offaxis.fit(MODEL, FITTED, epsilon=1, mechanism="laplace")
    result = passport(release, labels=CLASSES, controls=True)
    over = {(part.source, part.attack) for part in result.of_controls if part.exceeds}
    raw = {attack for source, attack in over if source == "no privacy"}
    assert raw == {
        *("nearest candidate", "several reports", "reconstruction", "membership", "attribute"),
        *("linkage", "mean", "learnt model"),
    }
    assert ("float noise", "nearest candidate") in over
    assert ("float noise", "membership") in over
    assert ("no clipping", "mean") in over
    assert leak(result, "nearest candidate", "100 random people", "float noise").value > 0.9
    assert leak(result, "nearest candidate", "2 chosen people", "no clipping").value > 0.99
    assert not result.exceeded


def test_the_last_bits_of_float_noise_name_the_vector():
    rng = np.random.default_rng(3)
    _, noise, _ = compared(OTHERS, 1.0)
    assert isinstance(noise, FloatLaplace)
    seen = noise.draw(OTHERS[:200], rng)
    assert (noise.last_bits(seen, OTHERS[:200]) > 0).mean() > 0.99
    assert (noise.last_bits(seen, OTHERS[200:]) < 0).mean() > 0.8
    # Sums without the grid of a sampler have no such bits.
    smooth = noise.draw(OTHERS[:200], rng) * (1 + 1e-9)
    assert (noise.last_bits(smooth, OTHERS[:200]) < 0).mean() > 0.8


def test_ties_are_broken_at_random():
    """All people of one class send the same symbols: each is named one time in their number."""
    alike = np.repeat(OTHERS[:1], 100, axis=0)
    release = offaxis.fit(MODEL, FITTED, epsilon=5)
    zeros = np.zeros(100, dtype=np.int64)
    channel = ReleaseChannel(release, exact=False)
    arena = Arena(channel, alike, alike, zeros, zeros, 4000, np.random.default_rng(1))
    for found in among_people(arena):
        assert found.hits / found.trials == pytest.approx(1 / found.candidates, abs=0.03)
    assert next(found.setting for found in linkage(arena)) == "two reports of anybody"
    sizes = [found.candidates for found in among_chosen(arena)]
    assert sizes in ([2], [2, 3])  # not more candidates than symbols


def test_a_weak_promise_gives_members_of_a_mean_away():
    """At ε = 10 almost every answer is true: the counts of 100 people show who is among them."""
    release = offaxis.fit(MODEL, FITTED, epsilon=10)
    result = passport(release, trials=400)
    assert leak(result, "mean", "of 10 people, one person or another").value > 0.75
    assert leak(result, "mean", "of 2 people, 2 chosen").value > 0.95
    assert leak(result, "learnt model", "least squares, 20 people").value > 0.6
    assert not result.exceeded


def test_a_model_outside_the_release_is_used(tmp_path):
    def model(Z):
        return np.stack([np.sin(Z[:, 0]), np.cos(Z[:, 1])], axis=1)

    release = offaxis.fit(model, FITTED, epsilon=2)
    assert not passport(release, trials=200, exact=True).exceeded
    alike = np.vstack([OTHERS[:1]] * 60)  # of this model no inputs are known but people
    same = offaxis.passport(
        release, alike, labels=[0, 1] * 30, trials=100, exact=False, controls=False
    )
    assert not any("chosen" in part.setting for part in same.leaks)
    release.save(tmp_path / "model.release")
    with pytest.raises(ModelNeeded):
        passport(offaxis.load(tmp_path / "model.release"))


# ---- What a release promises


def test_a_person_who_reports_once_is_attacked_once():
    release = offaxis.fit(MODEL, FITTED, epsilon=2, unit="user")
    result = passport(release, trials=200)
    assert set(result.not_run) == {"several reports", "linkage"}
    assert "one report in total" in result.not_run["linkage"]
    assert all("10 reports" not in part.setting for part in result.leaks)


def test_sequences_share_their_budget():
    single = offaxis.fit(MODEL, FITTED, epsilon=2)
    release = offaxis.memoise(single, draws=2, period=30, instant=1)
    assert reports_budget(release, 10).epsilon == 2
    assert reports_budget(release, 20).epsilon == 4
    assert reports_budget(release, 1).epsilon == release.single_report_guarantee.epsilon
    result = passport(release, trials=200)
    assert set(result.not_run) == {"linkage"}
    part = leak(result, "several reports", "10 reports, 10 random people")
    assert part.bound == guess_bound(10, 2)
    one = leak(result, "nearest candidate", "10 random people")
    assert one.bound == guess_bound(10, release.single_report_guarantee.epsilon)
    assert not result.exceeded


@pytest.mark.parametrize("features", [principal(FITTED, 3), cells(FITTED, 4)])
def test_pairs_are_attacked_with_their_answers(features):
    release = fit_pairs(features, 4, epsilon=2)
    result = passport(release, labels=CLASSES, trials=200)
    assert not result.exceeded
    assert leak(result, "learnt model", "offaxis.learn, 20 people").trials >= 20
    assert result.about == "pair"
    with pytest.raises(InvalidInput, match="pass the answers"):
        passport(release)


def test_a_missing_answer_is_a_label():
    release = fit_pairs(principal(FITTED, 3), Classes(["no", "yes"], optional=True), epsilon=2)
    labels = np.array(["no", None, "yes", None] * 100, dtype=object)
    result = passport(release, labels=labels, trials=100)
    assert result.labels == "the given labels, of 3 kinds"
    assert leak(result, "attribute", "one of 3 labels, anybody").bound == guess_bound(3, 2)


def test_a_failure_of_a_report_is_an_error_and_not_left_out():
    broken = with_broken_control(
        offaxis.fit(None, FITTED, epsilon=1, mechanism="laplace", reshaping="none"), Fails
    )
    with pytest.raises(InvalidReport, match="damaged"):
        passport(broken, trials=200, exact=True)


class Fails(Laplace):
    """A randomizer whose reports cannot be read."""

    def read(self, payloads):
        raise InvalidReport("damaged")


def test_networks_of_both_libraries_learn(monkeypatch):
    release = offaxis.fit(None, FITTED, epsilon=9, mechanism="privunit2", reshaping="centre")
    ceiling = reconstruction.ceiling_of(OTHERS, 9)
    assert ceiling is not None
    for missing in ("sklearn", "torch"):
        with monkeypatch.context() as patch:
            patch.setattr(
                reconstruction, "find_spec", lambda name, gone=missing: None if name == gone else 1
            )
            found = leak(
                passport(release, trials=500), "reconstruction", "trained network, 1 report"
            )
        assert 0.3 < found.value < ceiling
        assert found.cosine > 0.5
    monkeypatch.setattr(reconstruction, "find_spec", lambda name: None)
    result = passport(release, trials=200)
    assert "pip install" in result.not_run["reconstruction, trained network"]


# ---- People, labels and results


def test_the_attacker_knows_nobody_who_is_attacked():
    release = offaxis.fit(None, FITTED, epsilon=1, goal="vectors")
    subject = issuer._subject(release, OTHERS, CLASSES, 0)
    known = {row.tobytes() for row in subject.known}
    assert not known & {row.tobytes() for row in subject.people}
    assert len(subject.known) == len(subject.people) == len(OTHERS) // 2


def test_labels_stay_with_their_vectors_when_some_are_left_out():
    many = np.random.default_rng(5).standard_normal((5003, DIM))
    labels = np.array(["below", "above"])[(many[:, 0] > 0).astype(int)]
    release = offaxis.fit(None, FITTED, epsilon=1, goal="vectors")
    subject = issuer._subject(release, many, labels, 0)
    for rows, codes in (
        (subject.known, subject.known_labels),
        (subject.people, subject.people_labels),
    ):
        assert ((rows[:, 0] < 0) == codes).all()
    assert len(subject.known) == 1000
    assert len(subject.people) == 500


def test_a_seed_repeats_a_simulated_passport():
    release = offaxis.fit(MODEL, FITTED, epsilon=2)
    first, same, other = (passport(release, trials=200, seed=seed) for seed in (1, 1, 2))
    assert first.leaks == same.leaks
    assert first.leaks != other.leaks


def test_exact_reports_are_used_where_asked_for():
    release = offaxis.fit(MODEL, FITTED, epsilon=2)
    exact = passport(release, trials=200, exact=True)
    assert {part.law for part in exact.of_release} == {"exact", "simulated"}
    assert {part.law for part in passport(release, trials=200).of_release} == {"simulated"}


def test_the_result_is_plain_data_and_reports_progress():
    seen = []
    release = offaxis.fit(MODEL, FITTED, epsilon=2)
    result = passport(release, trials=200, controls=True, progress=lambda *step: seen.append(step))
    facts = json.loads(json.dumps(result.facts()))
    assert facts["epsilon"] == "2"
    assert facts["exceeded"] is False
    assert len(facts["leaks"]) == len(result.leaks)
    assert facts["leaks"][0]["bound"] == result.leaks[0].bound
    assert seen[-1][0] == "done"
    assert seen[0][1:] == (0, seen[-1][2])
    assert all(part.low <= part.value <= part.high for part in result.leaks)
    alphas = {part.alpha for part in result.leaks}
    assert alphas == {ALPHA / len(result.leaks)}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"trials": 99}, "trials must be an integer"),
        ({"trials": 20_001}, "trials must be an integer"),
        ({"labels": [math.nan] * 400}, "labels must be finite"),
        ({"false_alarm": 0.0}, "false_alarm must be between 0 and 1"),
        ({"labels": [0, 1]}, "one value for each of the 400 public vectors"),
        ({"labels": [str(i) for i in range(400)]}, "labels have 400 values"),
    ],
)
def test_invalid_settings_are_refused(settings, message):
    with pytest.raises(InvalidInput, match=message):
        passport(offaxis.fit(MODEL, FITTED, epsilon=2), **settings)


def test_unsuitable_releases_and_vectors_are_refused():
    release = offaxis.fit(MODEL, FITTED, epsilon=2)
    with pytest.raises(InvalidInput, match="needs 40 public vectors or more, got 39"):
        offaxis.passport(release, OTHERS[:39])
    with pytest.raises(InvalidInput, match="vectors must have dimension 4, got 3"):
        offaxis.passport(release, OTHERS[:, :3])
    with pytest.raises(InvalidInput, match="a release is needed"):
        offaxis.passport(MODEL, OTHERS)
    with pytest.raises(InvalidInput, match="people's own answers"):
        offaxis.passport(fit_answers(["no", "yes"], epsilon=1), OTHERS)
    alike, labels = np.vstack([OTHERS[:1]] * 50), [0, 0, 1, 1] * 12 + [0, 1]
    for strange in (alike, 1e-200 * OTHERS, 1e200 * OTHERS):
        with pytest.raises(InvalidInput, match=r"all equal|they must differ, and be of a usual"):
            offaxis.passport(release, strange[:50], labels=labels, trials=200)


def test_without_two_labels_no_attribute_is_attacked():
    release = offaxis.fit(MODEL, FITTED, epsilon=2)
    result = offaxis.passport(
        release, OTHERS, labels=np.zeros(len(OTHERS)), trials=200, false_alarm=ALPHA, exact=False
    )
    assert "two labels or more" in result.not_run["attribute"]
    assert not [leak for leak in result.leaks if leak.attack == "attribute"]
    assert "the code that makes real ones was not attacked" in result.summary


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_a_stand_in_label_exists_for_two_values(share):
    """Whichever of them is the commoner one."""
    vectors = np.zeros((100, 4))
    vectors[: int(100 * share), 0] = 1.0
    release = offaxis.fit(MODEL, FITTED, epsilon=2, mechanism="laplace")
    result = offaxis.passport(release, vectors, trials=200, false_alarm=ALPHA, exact=False)
    assert "attribute" not in result.not_run
