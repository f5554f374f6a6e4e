"""Sequences on a device: paid for once, few draws, at times that no vector decides."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

import offaxis
from offaxis.client import Reporter
from offaxis.client.sequences import Sequence, first_reports, is_due, next_reports
from offaxis.errors import BudgetExceeded, InvalidInput, RoundRefused
from offaxis.formats.reports import HEADER_SIZE
from offaxis.privacy.guarantee import Guarantee
from offaxis.privacy.ledger import Ledger, Limit
from offaxis.randomizers import MemoisedResponse

MODEL = np.eye(3, 6)


@pytest.fixture(scope="module")
def classes():
    public = np.random.default_rng(0).standard_normal((300, 6))
    return offaxis.fit(MODEL, public, epsilon=2, mechanism="class-response")


@pytest.fixture(scope="module")
def sequences(classes):
    return offaxis.memoise(classes, draws=3, period=10)


def ages(release, reports):
    return release.randomizer.ages([report[HEADER_SIZE:] for report in reports]).tolist()


def draws(found: list[int]) -> list[int]:
    """Return the rounds in which an answer was drawn."""
    return [at for at, age in enumerate(found) if age == 0]


def test_a_sequence_is_paid_for_once_and_never_ends(sequences, tmp_path):
    rng = np.random.default_rng(1)
    with Ledger(tmp_path / "x.ledger", Limit(6)) as ledger:
        meter = Reporter(sequences, ledger)
        reports = [meter.report(z) for z in rng.standard_normal((80, 6))]
        assert ledger.spent() == (6, 0)
    found = ages(sequences, reports)
    at = draws(found)
    assert len(at) == 3
    assert at[0] == 0
    assert 5 <= at[1] < 15
    assert at[2] == at[1] + 10
    assert found == [n - max(d for d in at if d <= n) for n in range(80)]
    assert len({len(report) for report in reports}) == 1


def test_a_sequence_goes_on_after_a_restart(sequences, tmp_path):
    found = []
    for day in range(40):
        with Ledger(tmp_path / "x.ledger", Limit(6)) as ledger:
            found += ages(sequences, [Reporter(sequences, ledger).report(np.full(6, float(day)))])
    assert len(draws(found)) == 3
    assert found[-1] == 39 - draws(found)[-1]


def test_a_sequence_that_cannot_be_paid_for_as_a_whole_does_not_start(sequences, tmp_path):
    with Ledger(tmp_path / "x.ledger", Limit("5.9")) as ledger:
        with pytest.raises(BudgetExceeded):
            Reporter(sequences, ledger).report(np.zeros(6))
        assert ledger.study("") is None
        assert ledger.spent() == (0, 0)


def test_a_sequence_without_an_end_pays_at_every_draw_while_it_can(classes, tmp_path):
    endless = offaxis.memoise(classes, draws=0, period=4)
    assert (endless.unit, endless.guarantee.epsilon) == ("item", 2)
    with Ledger(tmp_path / "x.ledger", Limit(8)) as ledger:
        meter = Reporter(endless, ledger)
        found = ages(endless, [meter.report(np.zeros(6)) for _ in range(50)])
        assert ledger.spent() == (8, 0)
    assert len(draws(found)) == 4
    assert np.diff(draws(found))[1:].tolist() == [4, 4]
    assert found[-1] == 49 - draws(found)[-1], "afterwards the last answer stays in force"


def test_an_answer_counts_in_every_period_in_which_it_is_drawn_or_reported(
    classes, tmp_path, monkeypatch
):
    """All draws are paid for at the start; limits per period must still see each of them."""
    two = offaxis.memoise(classes, draws=2, period=8)
    now = 1e9
    monkeypatch.setattr(time, "time", lambda: now)
    with Ledger(tmp_path / "x.ledger", Limit(100), Limit(3, seconds=3600)) as ledger:
        meter, other = Reporter(two, ledger), Guarantee(2)
        meter.report(np.zeros(6))
        assert ledger.spent() == (4, 0)
        assert [balance.epsilon for balance in ledger.balances()] == [4, 2]
        now += 3601
        ledger.spend(other, "another release")
        with pytest.raises(BudgetExceeded, match="in any 1 hour"):
            meter.report(np.zeros(6))
        now += 3601
        found = ages(two, [meter.report(np.zeros(6)) for _ in range(10)])
        assert 0 not in found, "a second answer in this hour is put off"
        with pytest.raises(BudgetExceeded):
            ledger.spend(other, "the first answer was reported in this hour")
        now += 3601
        assert ages(two, [meter.report(np.zeros(6))]) == [0]
        assert [balance.epsilon for balance in ledger.balances()] == [6, 2]
        [first, _] = ledger.by_release()
        assert first.cost.reports == 2
        now -= 7000
        with pytest.raises(BudgetExceeded):
            ledger.spend(other, "a clock set back frees nothing")


def test_reports_carry_the_age_in_rounds_also_after_missed_ones(sequences, tmp_path):
    with Ledger(tmp_path / "x.ledger", Limit(6)) as ledger:
        meter = Reporter(sequences, ledger)
        reports = [meter.report(np.zeros(6), number=day) for day in (100, 102, 104)]
        assert ages(sequences, reports) == [0, 2, 4]
        with pytest.raises(InvalidInput, match="numbered upwards"):
            meter.report(np.zeros(6), number=104)
        with pytest.raises(InvalidInput, match="number must be an integer"):
            meter.report(np.zeros(6), number=-1)


def test_an_unusable_vector_neither_stops_a_sequence_nor_moves_a_draw(sequences, tmp_path):
    """Silence, or a draw that comes later, would tell of it."""
    with Ledger(tmp_path / "x.ledger", Limit(6)) as ledger:
        meter = Reporter(sequences, ledger)
        bad = [np.full(6, np.nan), None, lambda: "text", lambda: 1 / 0]
        reports = [meter.report(bad[day % 4], number=day) for day in range(40)]
        assert ledger.spent() == (6, 0)
    assert len(draws(ages(sequences, reports))) == 3


@pytest.mark.parametrize("bad", [np.zeros(5), np.zeros((2, 6)), np.zeros((0, 6)), "text", [1, "a"]])
def test_a_vector_of_another_size_is_an_error_and_costs_nothing(sequences, tmp_path, bad):
    """Its size is a mistake in the program, which a whole study would otherwise repeat."""
    with Ledger(tmp_path / "x.ledger", Limit(6)) as ledger:
        meter = Reporter(sequences, ledger)
        for call in (meter.report, meter.reports):
            with pytest.raises(InvalidInput):
                call(bad)
        assert ledger.spent() == (0, 0)
        meter.report(np.zeros(6), number=0)
        with pytest.raises(InvalidInput):
            meter.report(bad, number=1)


def test_releases_of_sequences_are_used_by_clients_and_trends_alone(sequences):
    """Each call of privatize would start a sequence, and pooled reports count people twice."""
    reports, _ = first_reports(sequences, np.zeros((3, 6)))
    for call in (sequences.privatize, sequences.privatize_answer):
        with pytest.raises(InvalidInput, match=r"offaxis\.client\.Reporter"):
            call(0)
    for estimate in (sequences.shares, sequences.aggregate, sequences.decode_mean):
        with pytest.raises(InvalidInput, match=r"offaxis\.learning\.trend"):
            estimate(reports)
    with pytest.raises(InvalidInput, match="vectors"):
        first_reports(sequences, np.full((2, 6), np.nan))


def test_a_draw_that_is_put_off_is_logged(classes, tmp_path, caplog):
    """A limit per period below 2ε admits no second answer while the first one is reported."""
    two = offaxis.memoise(classes, draws=2, period=2)
    with (
        Ledger(tmp_path / "x.ledger", Limit(4), Limit(3, seconds=3600)) as ledger,
        caplog.at_level("INFO", "offaxis"),
    ):
        meter = Reporter(two, ledger)
        found = ages(two, [meter.report(np.zeros(6)) for _ in range(6)])
    assert found == list(range(6))
    assert "put off: 1 more of ε = 2, pure would exceed the limit of ε = 3" in caplog.text


def test_a_stricter_limit_that_is_set_later_holds_for_draws_that_are_paid_for(sequences, tmp_path):
    with Ledger(tmp_path / "x.ledger", Limit(8)) as ledger:
        Reporter(sequences, ledger).report(np.zeros(6))
    with Ledger(tmp_path / "x.ledger", Limit(3)) as ledger:
        meter = Reporter(sequences, ledger)
        assert 0 not in ages(sequences, [meter.report(np.zeros(6)) for _ in range(40)])
    with Ledger(tmp_path / "x.ledger", Limit(8)) as ledger:
        meter = Reporter(sequences, ledger)
        assert ages(sequences, [meter.report(np.zeros(6)) for _ in range(40)]).count(0) == 2
        assert ledger.spent() == (6, 0)


def test_an_answer_that_is_no_longer_in_force_leaves_the_disk(tmp_path):
    """Also while the ledger stays open."""
    public = np.random.default_rng(0).standard_normal((300, 6))
    single = offaxis.fit(None, public, epsilon=2, goal="means")
    means = offaxis.memoise(single, draws=3, period=4)
    path = tmp_path / "x.ledger"
    with Ledger(path, Limit(6)) as ledger:
        meter, held = Reporter(means, ledger), []
        for _ in range(14):
            meter.report(public[0])
            state = Sequence.from_bytes(ledger.study("")[1])
            held += [state.held] if state.held not in held else []
        stored = b"".join(part.read_bytes() for part in tmp_path.iterdir())
    assert len(held) == 3
    assert [answer.hex().encode() in stored for answer in held] == [False, False, True]


@pytest.mark.parametrize(
    "state", [b"", b"[]", b"1", b'{"held": 1}', b'{"held": "zz"}', b'{"held": "00", "drawn": -1}']
)
def test_a_damaged_state_is_named(state):
    with pytest.raises(InvalidInput, match="damaged"):
        Sequence.from_bytes(state)


def test_the_largest_number_of_a_round(sequences, tmp_path):
    with Ledger(tmp_path / "x.ledger", Limit(6)) as ledger:
        meter = Reporter(sequences, ledger)
        for number in (-1, 2**53 + 1, 1.0, True, "3"):
            with pytest.raises(InvalidInput, match="number must be an integer"):
                meter.report(np.zeros(6), number=number)
        meter.report(np.zeros(6), number=np.int64(2**53))
        with pytest.raises(InvalidInput, match=f"the last report was for round {2**53}, got"):
            meter.report(np.zeros(6), number=9)


def test_only_releases_and_ledgers_make_a_reporter(sequences):
    with pytest.raises(InvalidInput, match="ledger must be a Ledger, got str"):
        Reporter(sequences, "my.ledger")
    with pytest.raises(InvalidInput, match="release must be a Release, got NoneType"):
        Reporter(None, None)


def test_a_second_sequence_in_a_study_is_refused(classes, sequences, tmp_path):
    other = offaxis.memoise(classes, draws=2, period=10)
    with Ledger(tmp_path / "x.ledger", Limit(100)) as ledger:
        Reporter(sequences, ledger, "energy").report(np.zeros(6))
        with pytest.raises(RoundRefused, match="study energy allows"):
            Reporter(other, ledger, "energy").report(np.zeros(6))
        with pytest.raises(RoundRefused, match="reported it before"):
            Reporter(sequences, ledger, "steps").report(np.zeros(6))
        assert ledger.spent() == (6, 0)


def test_a_study_with_one_promise_answers_nothing_outside_it(classes, sequences, tmp_path):
    """Its promise is about all reports that the device sends in the study."""
    endless, item = offaxis.memoise(classes, draws=0, period=10), classes
    once = replace(classes, unit="user")
    firsts = {"sequence": sequences, "endless": endless, "once": once}
    for name, first in firsts.items():
        with Ledger(tmp_path / name, Limit(100)) as ledger:
            Reporter(first, ledger, "energy").report(np.zeros(6))
            spent = ledger.spent()
            for call in (
                Reporter(item, ledger, "energy").report,
                Reporter(item, ledger, "energy").reports,
            ):
                with pytest.raises(RoundRefused, match="study energy has one promise for all"):
                    call(np.zeros(6))
            assert ledger.spent() == spent
            Reporter(item, ledger, "steps").report(np.zeros(6))
    for name, later in firsts.items():
        with Ledger(tmp_path / f"{name} later", Limit(100)) as ledger:
            Reporter(item, ledger, "energy").report(np.zeros(6))
            list(Reporter(item, ledger, "energy").reports(np.zeros((2, 6))))
            spent = ledger.spent()
            with pytest.raises(RoundRefused, match="has sent reports in study energy that no"):
                Reporter(later, ledger, "energy").report(np.zeros(6))
            assert (ledger.spent(), ledger.study("energy")) == (spent, None)
            Reporter(later, ledger, "steps").report(np.zeros(6))


def test_numbers_go_upwards(sequences):
    _, [state] = next_reports(sequences, [None], 5, {0: np.zeros(6)})
    with pytest.raises(InvalidInput, match="numbered upwards"):
        next_reports(sequences, [state], 5, {0: np.zeros(6)})
    with pytest.raises(InvalidInput, match="needs a vector"):
        next_reports(sequences, [None], 5, {})
    _, [later] = next_reports(sequences, [state], 50, {})
    assert (later.drawn, later.held) == (5, state.held), "a draw without a vector is put off"


def test_a_damaged_state_is_an_error(sequences, tmp_path):
    path = tmp_path / "x.ledger"
    with Ledger(path, Limit(6)) as ledger:
        Reporter(sequences, ledger).report(np.zeros(6))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE study SET state = ?", (b"{}",))
    with Ledger(path, Limit(6)) as ledger, pytest.raises(InvalidInput, match="damaged"):
        Reporter(sequences, ledger).report(np.zeros(6))


def test_a_late_draw_does_not_bring_the_next_one_closer(sequences):
    """Rounds may be skipped; two draws are a period apart all the same."""
    state = None
    for number in (0, 40, 41, 49, 50):
        _, [state] = next_reports(sequences, [state], number, {0: np.zeros(6)})
        assert (state.count, state.drawn) == {0: (1, 0), 50: (3, 50)}.get(number, (2, 40))


@settings(max_examples=60, deadline=None)
@given(
    draws=st.integers(0, 4),
    period=st.integers(1, 9),
    steps=st.lists(st.integers(1, 30), min_size=1, max_size=40),
    window=st.integers(1, 60),
)
def test_the_schedule_draws_no_more_than_it_promises(draws, period, steps, window):
    """Whatever rounds a publisher numbers: at most R draws, and few in any window."""
    public = np.random.default_rng(0).standard_normal((50, 2))
    single = offaxis.fit(np.eye(2), public, epsilon=2, mechanism="class-response")
    release = offaxis.memoise(single, draws=draws, period=period)
    numbers, state, drawn = np.cumsum(steps).tolist(), None, []
    for number in numbers:
        due = is_due(release.randomizer, state, number)
        vectors = {0: np.zeros(2)} if due else {}
        [report], [state] = next_reports(release, [state], number, vectors)
        assert ages(release, [report]) == [number - state.drawn]
        drawn += [number] if state.drawn == number else []
    assert len(drawn) == state.count
    if draws:
        assert len(drawn) <= draws
    most = max(sum(d <= e < d + window for e in drawn) for d in drawn)
    assert most <= release.randomizer.draws_within(window)


def test_no_vector_decides_when_an_answer_is_drawn(sequences):
    """The vector of a round without a draw is not even read."""
    _, [state] = next_reports(sequences, [None], 0, {0: np.zeros(6)})
    held = state.held
    for number in range(1, state.renew):
        assert not is_due(sequences.randomizer, state, number)
        _, [state] = next_reports(sequences, [state], number, {})
        assert state.held == held


def test_the_first_wait_is_uniform_over_a_period(sequences):
    """χ² of 20,000 waits in ten cells: a false alarm once in 10^6 runs; half the range fails."""
    people = 20_000
    vectors = {at: np.zeros(6) for at in range(people)}
    _, states = next_reports(sequences, [None] * people, 0, vectors)
    waits = np.array([state.renew for state in states]) - sequences.randomizer.first_wait
    assert chisquare(np.bincount(waits, minlength=10)).pvalue > 1e-6
    assert chisquare(np.bincount(waits // 2, minlength=10) + 1).pvalue < 1e-6


# ---- With a collector


def test_a_device_answers_a_whole_study_within_one_payment(collector, device_of, sequences):
    device, asked, entries = device_of(unit="user"), [], []
    for number in range(1, 31):
        collector.offer(sequences, name=f"energy-{number}", number=number)
        vector = lambda number=number: asked.append(number) or np.zeros(6)  # noqa: E731
        entries.append(device.report(f"energy-{number}", vector))
    found = ages(sequences, [entry.report for entry in entries])
    assert [number - 1 for number in asked] == draws(found)
    assert len(asked) == 3
    assert device.ledger.spent() == (6, 0)
    again = device.report("energy-30", lambda: pytest.fail("a second call needs no vector"))
    assert again == entries[-1]


def test_a_device_for_items_keeps_the_stronger_promise_of_a_sequence(
    collector, device_of, sequences
):
    collector.offer(sequences)
    device = device_of(unit="item")
    device.report("energy-1", np.zeros(6))
    assert device.ledger.spent() == (6, 0)


def test_a_device_answers_nothing_outside_the_promise_of_a_study(
    collector, device_of, classes, sequences
):
    collector.offer(sequences)
    collector.offer(classes, name="energy-2", number=2)
    collector.offer(sequences, name="energy-3", number=3)
    device = device_of(unit="item")
    device.report("energy-1", np.zeros(6))
    with pytest.raises(RoundRefused, match="study energy has one promise for all reports"):
        device.report("energy-2", np.zeros(6))
    device.report("energy-3", np.zeros(6))
    assert device.ledger.spent() == (6, 0)
    other = device_of("other.device")
    other.report("energy-2", np.zeros(6))
    with pytest.raises(RoundRefused, match="has sent reports in study energy that no promise"):
        other.report("energy-3", np.zeros(6))
    assert other.ledger.spent() == (2, 0)


def test_studies_that_an_older_device_answered_per_report_still_count(
    collector, device_of, classes, sequences
):
    collector.offer(classes)
    device = device_of()
    device.report("energy-1", np.zeros(6))
    path = device.ledger._path
    device.close()
    as_version_2(path)
    collector.offer(sequences, name="energy-2", number=2)
    with pytest.raises(RoundRefused, match="has sent reports in study energy that no promise"):
        device_of().report("energy-2", np.zeros(6))


def as_version_2(path):
    """Make a file what version 2 left."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DROP TABLE study_of_items")
        database.execute("DROP TABLE study")
        database.execute("ALTER TABLE stored_limit DROP COLUMN slack")
        database.execute("PRAGMA user_version = 2")


def test_studies_that_an_older_version_answered_still_count(collector, device_of, head, public):
    once = offaxis.fit(head, public, epsilon=2, unit="user", mechanism="laplace")
    other = offaxis.fit(head, public, epsilon=1, unit="user", mechanism="laplace")
    collector.offer(once)
    device = device_of(unit="user")
    device.report("energy-1", public[0])
    path = device.ledger._path
    device.close()
    as_version_2(path)
    Ledger(path).close()  # another program may be the one that upgrades the file
    collector.offer(other, name="energy-2", number=2)
    with pytest.raises(RoundRefused, match="study energy allows one report"):
        device_of(unit="user").report("energy-2", public[0])


def test_a_file_of_an_older_device_is_upgraded_by_a_device_first(
    collector, device_of, head, public
):
    """A reporter cannot know which studies the device answered."""
    once = offaxis.fit(head, public, epsilon=2, unit="user", mechanism="laplace")
    other = offaxis.fit(head, public, epsilon=1, unit="user", mechanism="laplace")
    collector.offer(once)
    device = device_of()
    device.report("energy-1", public[0])
    path = device.ledger._path
    device.close()
    as_version_2(path)
    with (
        Ledger(path, Limit(100)) as ledger,
        pytest.raises(RoundRefused, match="open it with offaxis"),
    ):
        Reporter(other, ledger, "energy").report(public[0])
    device_of().close()
    with Ledger(path, Limit(100)) as ledger:
        with pytest.raises(RoundRefused, match="study energy allows one report"):
            Reporter(other, ledger, "energy").report(public[0])
        Reporter(other, ledger, "steps").report(public[0])


def test_an_unreadable_release_of_an_older_version_counts_as_per_person(
    collector, device_of, release, head, public
):
    collector.offer(release)
    device = device_of()
    device.report("energy-1", public[0])
    path = device.ledger._path
    device.close()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE release SET content = ?", (b"damaged",))
        database.execute("CREATE TABLE pending_studies (id INTEGER) STRICT")
    # Nor are reports per item made before it is known which studies have a promise per person.
    with Ledger(path, Limit(10)) as ledger, pytest.raises(RoundRefused, match="older version"):
        Reporter(release, ledger, "energy").report(public[0])
    once = offaxis.fit(head, public, epsilon=2, unit="user", mechanism="laplace")
    collector.offer(once, name="energy-2", number=2)
    with pytest.raises(RoundRefused, match="study energy allows one report"):
        device_of(unit="user").report("energy-2", public[0])


def test_a_lost_state_draws_again():
    """Named in the limitations: whoever restores an old copy of the file starts over."""
    state = Sequence(b"\x01", drawn=3, renew=12, count=3, last=9)
    assert Sequence.from_bytes(state.to_bytes()) == state
    randomizer = MemoisedResponse(3, 2, 2, draws=3, period=10)
    assert not is_due(randomizer, state, 50)
    assert is_due(randomizer, replace(state, count=2), 50)
