"""Sequences, and one promise per study and person, in a real browser with a real collector."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import offaxis
from offaxis.decoding.pairs import CellsDecoder
from offaxis.encoding import Classes
from offaxis.encoding.pairs import pair_encoder, table_of
from offaxis.formats.release_file import to_bytes
from offaxis.randomizers import MemoisedPrivUnit2, MemoisedResponse
from tests.browser.devices import WAITING, Tab, new_round, open_tab, stored
from tests.browser.maker import release_of

SYMBOLS = 12
PERIOD, DRAWS = 10, 3
SURE = Fraction(100)
"""An ε so large that a layer repeats its input: reports show the symbol of the round that drew."""
PAID = {"epsilon": "300", "reports": 3}
"""One payment per permanent answer, all of them with the first report."""
PER_PERSON = {"unit": "user", "limits": [{"epsilon": 10_000}]}

COUNTED = """
  return device.report(values[0], () => {
    window.called = (window.called ?? 0) + 1;
    return values[1];
  });
"""
READ_STUDIES = """async () => {
  const done = (request) =>
    new Promise((go) => { request.onsuccess = () => go(request.result); });
  const database = await done(indexedDB.open("offaxis"));
  const store = database.transaction("studies").objectStore("studies");
  const [names, kept] = [await done(store.getAllKeys()), await done(store.getAll())];
  const plain = (state) => state && { ...state, held: Array.from(state.held) };
  return names.map((name, i) => [name, kept[i].release, plain(kept[i].state)]);
}"""


def sequences(**changes: Any) -> offaxis.Release:
    """Return a release of sequences of symbols, the largest entry of a vector."""
    settings = {"size": SYMBOLS, "epsilon": SURE, "instant": SURE}
    schedule = {"draws": DRAWS, "period": PERIOD}
    return release_of(MemoisedResponse(**{**settings, **schedule, **changes}))


def vector_of(symbol: int) -> list[float]:
    return np.eye(SYMBOLS)[symbol].tolist()


def shown(entry: dict[str, Any]) -> tuple[int, int]:
    """Return the age and the symbol of a report."""
    payload = bytes.fromhex(entry["report"])[12:]
    return int.from_bytes(payload[:2], "little"), payload[2]


def study_of(tab: Tab, name: str) -> tuple[str, dict[str, Any] | None]:
    """Return the release and the state that the browser keeps for a study."""
    kept = {study: (release, state) for study, release, state in tab.page.evaluate(READ_STUDIES)}
    return kept[name]


def person(context_of, collector, **options: Any) -> Tab:
    return open_tab(context_of(), collector, **PER_PERSON, **options)


# ---- A year


def test_a_year_of_reports_is_paid_for_once(collector, context_of):
    """40 rounds, with reloads and a killed tab; the vector is another one in every round."""
    release = sequences()
    context = context_of()
    tab = open_tab(context, collector, **PER_PERSON)
    names = [new_round(collector, release, study="year", number=n) for n in range(40)]
    draws: list[int] = []
    due, calls = 0, 0
    for number, name in enumerate(names):
        symbol = number % SYMBOLS
        before = tab.page.evaluate("() => window.called ?? 0")
        entry = tab.run(COUNTED, name, vector_of(symbol))
        drew = tab.page.evaluate("() => window.called ?? 0") - before
        if number == due and len(draws) < DRAWS:
            draws.append(number)
        # The vector of any other round is not evaluated.
        assert drew == (draws[-1] == number), number
        calls += drew
        assert shown(entry) == (number - draws[-1], draws[-1] % SYMBOLS), number
        kept, state = study_of(tab, "year")
        assert (kept, state["drawn"], state["count"]) == (release.hash, draws[-1], len(draws))
        assert (state["last"], state["held"]) == (number, [draws[-1] % SYMBOLS])
        if number == 0:
            due = state["renew"]
            assert PERIOD // 2 <= due < PERIOD // 2 + PERIOD
        elif draws[-1] == number:
            due += PERIOD
            assert state["renew"] == due
        assert tab.spent() == PAID
        if number in (3, 25):
            tab.page.reload()
            assert study_of(tab, "year") == (kept, state)
            assert tab.report(name, vector_of(0))["report"] == entry["report"]
        if number == 12:
            tab.page.close()
            tab = open_tab(context, collector, **PER_PERSON)
            assert study_of(tab, "year") == (kept, state)
    assert len(draws) == calls == DRAWS
    assert {one["state"] for one in tab.send()} == {"sent"}
    assert sum(len(stored(collector, name)) for name in names) == 40
    assert tab.spent() == PAID


def test_a_tab_killed_while_a_vector_is_computed_has_drawn_nothing(collector, context_of):
    context = context_of()
    release = sequences()
    name = new_round(collector, release, study="killed", number=4)
    tab = open_tab(context, collector, **PER_PERSON)
    tab.start(WAITING, name)
    tab.page.wait_for_function("() => window.go")
    tab.page.close()
    tab = open_tab(context, collector, **PER_PERSON)
    assert tab.page.evaluate(READ_STUDIES) == []
    assert tab.spent()["reports"] == 0
    assert shown(tab.report(name, vector_of(5))) == (0, 5)
    assert tab.spent() == PAID


def test_directions_are_reported_in_sequences(collector, context_of):
    randomizer = MemoisedPrivUnit2(3, 1.0, Fraction(8), Fraction(8), 2, 1, target="vector")
    release = release_of(randomizer)
    tab = person(context_of, collector)
    reports = []
    for number in range(4):
        name = new_round(collector, release, study="directions", number=number)
        reports.append(bytes.fromhex(tab.report(name, [0.1 * number, 0.5, 0.2])["report"]))
    assert randomizer.ages([r[12:] for r in reports]).tolist() == [0, 0, 1, 2]
    assert np.isfinite(release.decode(reports)).all()
    assert tab.spent() == {"epsilon": "16", "reports": 2}


def test_pairs_are_reported_in_sequences(collector, context_of):
    """Two cells by two answers or none; only the round that draws reads vector and answer."""
    asked = (Classes(["no", "yes"], optional=True),)
    encoder = pair_encoder("cells", "relu")([np.eye(2)], [np.zeros(2)], table_of(asked))
    memoised = MemoisedResponse(6, SURE, SURE, DRAWS, PERIOD)
    origin = release_of(memoised).provenance
    decoder = CellsDecoder(np.full(2, 1 / 2), np.array([3.0]))
    release = offaxis.Release(encoder, memoised, decoder, origin, unit="user", asked=asked)
    tab = person(context_of, collector)
    pairs = [([0, 1], "yes"), ([1, 0], None)]
    for number, (vector, answers) in enumerate(pairs):
        name = new_round(collector, release, study="pairs", number=number)
        entry = tab.run(COUNTED, name, {"vector": vector, "answers": answers})
        assert shown(entry) == (number, 4)
    assert tab.page.evaluate("() => window.called") == 1
    assert tab.spent() == PAID


def test_an_age_beyond_two_bytes_is_the_largest(collector, context_of):
    release = sequences(draws=1)
    tab = person(context_of, collector)
    for number, age in ((1, 0), (65_536, 65_535), (2**40, 65_535)):
        name = new_round(collector, release, study="old", number=number)
        assert shown(tab.report(name, vector_of(number % 7))) == (age, 1)


def test_an_unusable_vector_is_not_visible(collector, context_of):
    """It becomes the public mean, whose symbol is drawn and kept like any other."""
    release = sequences()
    tab = person(context_of, collector)
    mean = int(release.encoder.encode(release.public_mean[None])[0])
    for number in range(3):
        name = new_round(collector, release, study="unusable", number=number)
        entry = tab.run("return device.report(values[0], () => { throw new Error('no'); });", name)
        assert (entry["problem"], shown(entry)[1]) == ("", mean)


# ---- Payment


def test_a_sequence_beyond_the_budget_is_refused_before_its_first_report(collector, context_of):
    tab = person(context_of, collector)
    tab.options |= {"limits": [{"epsilon": 299}], "epsilon": 300}
    name = new_round(collector, sequences(), study="dear", number=1)
    outcome = tab.outcome(COUNTED, name, vector_of(1))
    assert outcome["error"] == "BudgetExceeded"
    assert "3 more reports of ε = 100" in outcome["message"]
    assert not tab.page.evaluate("() => window.called ?? 0")
    assert tab.page.evaluate(READ_STUDIES) == []
    # The default limit for one promise is the smallest limit.
    del tab.options["epsilon"]
    outcome = tab.outcome(COUNTED, name, vector_of(1))
    assert outcome["error"] == "LimitExceeded"
    assert outcome["message"].startswith("a sequence of reports would have ε = 300")


def test_a_sequence_without_an_end_pays_at_every_draw_while_it_can(collector, context_of):
    release = sequences(draws=0, period=2)
    tab = open_tab(context_of(), collector, limits=[{"epsilon": 300}], epsilon=100)
    ages = []
    for number in range(12):
        name = new_round(collector, release, study="endless", number=number)
        ages.append(shown(tab.run(COUNTED, name, vector_of(number)))[0])
    # Three draws are within the limit; afterwards the last answer stays in force.
    assert ages.count(0) == 3
    last = 11 - ages[::-1].index(0)
    assert ages[last:] == list(range(12 - last))
    assert tab.spent() == {"epsilon": "300", "reports": 3}


@pytest.mark.parametrize("draws", [3, 0])
def test_a_sequence_counts_in_every_period_in_which_it_goes_on(collector, context_of, plain, draws):
    """A limit within a period is about the reports made in it, not about when they were paid."""
    release = sequences(epsilon=Fraction(4), draws=draws)
    unit = release.unit
    other = replace(plain, unit=unit)  # ε = 3
    limits = [{"epsilon": 1000}, {"epsilon": 6, "seconds": 3600}]
    tab = open_tab(context_of(), collector, limits=limits, unit=unit, epsilon=12)
    later = "() => { const real = Date.now; Date.now = () => real() + 3_700_000; }"
    study = f"periods-{draws}"
    names = [new_round(collector, release, study=study, number=n) for n in range(3)]
    with_other = [new_round(collector, other, study=f"{study}-{i}") for i in range(2)]
    tab.report(names[0], vector_of(1))
    assert_over(tab, with_other[0])
    tab.page.evaluate(later)
    # The payment is old, but the sequence goes on.
    tab.report(names[1], vector_of(1))
    assert_over(tab, with_other[0])
    tab.page.evaluate(later)
    tab.report(with_other[0], [0.0] * other.input_dim)
    assert_over(tab, names[2])
    tab.page.evaluate(later)
    tab.report(names[2], vector_of(1))


def assert_over(tab: Tab, name: str) -> None:
    """Check that a round would exceed the limit of the period, and that nothing is paid."""
    before = tab.spent()
    outcome = tab.outcome("return device.report(values[0], [0]);", name)
    assert outcome.get("error") == "BudgetExceeded", outcome
    assert "in any 3600 seconds" in outcome["message"]
    assert tab.spent() == before


# ---- Two tabs


@pytest.mark.parametrize("locks", [True, False], ids=["locks", "transaction alone"])
def test_two_tabs_continue_one_sequence(collector, context_of, locks):
    """Both make the first report of the study, for different rounds; the later one follows it."""
    context = context_of()
    tabs = [open_tab(context, collector, **PER_PERSON) for _ in range(2)]
    release = sequences()
    study = f"tabs-{locks}".lower()
    names = [new_round(collector, release, study=study, number=n) for n in (5, 6)]
    if not locks:
        for tab in tabs:
            tab.page.evaluate("() => { navigator.locks.request = (name, action) => action(); }")
    for tab, name in zip(tabs, names, strict=True):
        tab.start(WAITING, name)
        tab.page.wait_for_function("() => window.go")
    entries = []
    for tab, symbol in zip(tabs, (3, 8), strict=True):
        tab.page.evaluate("(vector) => window.go(vector)", vector_of(symbol))
        entries.append(tab.result())
    assert tabs[1].spent() == PAID
    _, state = study_of(tabs[0], study)
    # What the second tab drew is discarded: it shows what the first one holds.
    assert [shown(entry) for entry in entries] == [(0, 3), (1, 3)]
    assert (state["held"], state["drawn"], state["count"], state["last"]) == ([3], 5, 1, 6)


def test_two_tabs_in_one_round_keep_one_state(collector, context_of):
    """Without locks: one report and one permanent answer are kept, the others are discarded."""
    context = context_of()
    tabs = [open_tab(context, collector, **PER_PERSON) for _ in range(2)]
    name = new_round(collector, sequences(), study="twice", number=5)
    for tab in tabs:
        tab.page.evaluate("() => { navigator.locks.request = (name, action) => action(); }")
        tab.start(WAITING, name)
        tab.page.wait_for_function("() => window.go")
    for tab, symbol in zip(tabs, (3, 8), strict=True):
        tab.page.evaluate("(vector) => window.go(vector)", vector_of(symbol))
    kept = [tab.result() for tab in tabs]
    assert kept[0]["report"] == kept[1]["report"]
    _, state = study_of(tabs[0], "twice")
    assert (state["held"], state["count"]) == ([shown(kept[0])[1]], 1)
    assert tabs[0].spent() == PAID


# ---- One promise per study and person


def assert_refused(tab: Tab, name: str, vector: list[float]) -> str:
    """Check that a round is refused without a call, a payment or a request; return the message."""
    before = (tab.spent(), len(tab.uploads), tab.page.evaluate(READ_STUDIES))
    called = tab.page.evaluate("() => window.called ?? 0")
    outcome = tab.outcome(COUNTED, name, vector)
    assert outcome.get("error") == "RoundRefused", outcome
    assert tab.page.evaluate("() => window.called ?? 0") == called
    tab.send()
    assert (tab.spent(), len(tab.uploads), tab.page.evaluate(READ_STUDIES)) == before
    return str(outcome["message"])


@pytest.fixture(scope="module")
def single(plain) -> offaxis.Release:
    """A release per person that makes single reports."""
    return replace(plain, unit="user")


@pytest.fixture(scope="module")
def another(public) -> offaxis.Release:
    """Another release per person, with another hash."""
    release = offaxis.fit(None, public, epsilon=2, reshaping="none", mechanism="laplace")
    return replace(release, unit="user")


def test_a_second_release_in_one_study_is_refused(collector, context_of, single, another):
    """The promise is per person: publishing the release again does not renew it."""
    tab = person(context_of, collector)
    vector = [0.0] * single.input_dim
    tab.report(new_round(collector, single, study="one-promise", number=1), vector)
    tab.send()
    for number, release in ((2, another), (3, single)):
        name = new_round(collector, release, study="one-promise", number=number)
        message = assert_refused(tab, name, vector)
        assert f"this person reports release {single.hash[:8]}… in it" in message
    for number, release in ((4, sequences()), (5, sequences(draws=1))):
        name = new_round(collector, release, study="one-promise", number=number)
        assert_refused(tab, name, vector_of(1))
    # Another study asks for another promise.
    tab.report(new_round(collector, another, study="two-promises", number=1), vector)
    assert tab.spent() == {"epsilon": "5", "reports": 2}


def test_a_release_in_a_second_study_is_refused(collector, context_of, single):
    tab = person(context_of, collector)
    cases = ((single, [0.0] * single.input_dim), (sequences(), vector_of(1)))
    for i, (release, vector) in enumerate(cases):
        tab.report(new_round(collector, release, study=f"here-{i}", number=1), vector)
        tab.send()
        message = assert_refused(
            tab, new_round(collector, release, study=f"there-{i}", number=1), vector
        )
        assert "reported it before" in message


def test_a_second_sequence_in_one_study_is_refused(collector, context_of, single):
    tab = person(context_of, collector)
    tab.report(new_round(collector, sequences(), study="sequence", number=1), vector_of(1))
    tab.send()
    other = new_round(collector, sequences(period=11), study="sequence", number=2)
    assert_refused(tab, other, vector_of(1))
    assert_refused(
        tab,
        new_round(collector, single, study="sequence", number=3),
        [0.0] * single.input_dim,
    )
    again = new_round(collector, sequences(), study="sequence", number=4)
    assert shown(tab.report(again, vector_of(1)))[1] == 1


def test_a_study_with_one_promise_answers_nothing_outside_it(collector, context_of, plain, single):
    """Its promise is about all reports that the device sends in the study."""
    tab = open_tab(context_of(), collector, limits=[{"epsilon": 10_000}])
    zero = [0.0] * plain.input_dim
    firsts = [(sequences(), vector_of(1)), (sequences(draws=0), vector_of(1)), (single, zero)]
    for i, (first, vector) in enumerate(firsts):
        study = f"promise-{i}"
        tab.report(new_round(collector, first, study=study, number=1), vector)
        tab.send()
        message = assert_refused(
            tab, new_round(collector, plain, study=study, number=2), [0.0] * plain.input_dim
        )
        assert f"study {study} has one promise for all reports of a person" in message
    for i, (later, vector) in enumerate([(sequences(period=8), vector_of(1)), (single, zero)]):
        study = f"items-{i}"
        tab.report(new_round(collector, plain, study=study, number=1), zero)
        tab.report(new_round(collector, plain, study=study, number=2), zero)
        tab.send()
        message = assert_refused(tab, new_round(collector, later, study=study, number=3), vector)
        assert f"has sent reports in study {study} that no promise per person covers" in message


KEPT_REPORTS = """async () => {
  const done = (request) =>
    new Promise((go) => { request.onsuccess = () => go(request.result); });
  const database = await done(indexedDB.open("offaxis"));
  const answers = await done(database.transaction("answers").objectStore("answers").getAll());
  return answers.map(({ state, report }) => [state, report && report.length]);
}"""


def test_the_browser_keeps_no_report_that_it_has_sent(collector, context_of):
    """Reports of one permanent answer together reveal it, after it was replaced."""
    tab = person(context_of, collector)
    release = sequences()
    names = [new_round(collector, release, study="kept", number=n) for n in range(4)]
    for name in names[:2]:
        tab.report(name, vector_of(1))
    tab.send()
    for name in names[2:]:
        tab.report(name, vector_of(1))
    tab.run("await device.withdraw(values[0]);", names[2])
    states = tab.page.evaluate(KEPT_REPORTS)
    assert states == [["sent", None]] * 2 + [["withdrawn", None], ["queued", release.report_size]]
    uploads = len(tab.uploads)
    for name in names[:3]:
        assert tab.report(name, vector_of(2))["report"] is None
    assert len(tab.uploads) == uploads
    assert tab.spent() == PAID


# ---- States of older versions

OLDER = """async ({ answers, payments, releases }) => {
  const opening = indexedDB.open("offaxis", 1);
  opening.onupgradeneeded = () => {
    opening.result.createObjectStore("answers", { keyPath: "round" });
    opening.result.createObjectStore("payments", { autoIncrement: true });
    opening.result.createObjectStore("releases");
    opening.result.createObjectStore("keys");
  };
  await new Promise((go) => { opening.onsuccess = go; });
  const database = opening.result;
  const transaction = database.transaction(["answers", "payments", "releases"], "readwrite");
  const ended = new Promise((go) => { transaction.oncomplete = go; });
  const bytes = (text) => Uint8Array.from(text.match(/../g) ?? [], (byte) => parseInt(byte, 16));
  for (const answer of answers) {
    const report = answer.report && bytes(answer.report);
    transaction.objectStore("answers").put({ ...answer, report, id: bytes(answer.id) });
  }
  for (const payment of payments) transaction.objectStore("payments").put(payment);
  for (const [hash, file] of releases) transaction.objectStore("releases").put(bytes(file), hash);
  await ended;
  database.close();
}"""


def older_state(tab: Tab, answered: list[tuple[str, str, offaxis.Release, bytes]]) -> None:
    """Write the state that version 1 of the client left: name, study, release, file per round."""
    entry = {"document": "", "group": None, "begun": 1, "attempts": 1, "nextTry": 0, "problem": ""}
    answers = [
        entry
        | {"round": name, "study": study, "number": 1 + i, "release": release.hash, "place": i}
        | {"id": "ab" * 32, "report": "4f58", "state": "sent"}
        for i, (name, study, release, _) in enumerate(answered)
    ]
    begun = {"round": "begun", "study": "begun", "report": None, "state": "begun", "place": 99}
    answers.append(answers[0] | begun)
    payments = [
        {"paidAt": 1.0, "release": release.hash, "epsilon": str(release.guarantee.epsilon)}
        for _, _, release, _ in answered
    ]
    releases = [(release.hash, file.hex()) for _, _, release, file in answered]
    tab.page.evaluate(OLDER, {"answers": answers, "payments": payments, "releases": releases})


def test_studies_that_an_older_version_answered_count(
    collector, context_of, plain, single, another
):
    tab = person(context_of, collector)
    vector = [0.0] * single.input_dim
    answered = [
        ("first", "mixed", single, to_bytes(single)),
        ("second", "mixed", another, to_bytes(another)),
        ("third", "items", plain, to_bytes(plain)),
    ]
    older_state(tab, answered)
    assert tab.spent() == {"epsilon": "8", "reports": 3}
    assert [entry["round"] for entry in tab.status()] == ["first", "second", "third", "begun"]
    assert tab.page.evaluate(READ_STUDIES) == [["mixed", single.hash, None]]
    fresh = sequences()
    assert_refused(tab, new_round(collector, fresh, study="mixed", number=9), vector_of(1))
    # Both releases of that study stay spent, in every other study as well.
    for release in (single, another):
        name = new_round(collector, release, study="elsewhere", number=1)
        assert "reported it before" in assert_refused(tab, name, vector)
    assert not any(entry["report"] for entry in tab.status())
    # Reports per item were outside any promise per person; a round that was only begun had none.
    name = new_round(collector, sequences(period=20), study="items", number=9)
    assert "has sent reports in study items" in assert_refused(tab, name, vector_of(2))
    name = new_round(collector, sequences(period=21), study="begun", number=9)
    assert shown(tab.report(name, vector_of(2))) == (0, 2)


def test_a_damaged_file_of_an_older_version_counts_as_a_promise_per_person(
    collector, context_of, plain
):
    tab = person(context_of, collector)
    older_state(tab, [("first", "damaged", plain, b"not a release")])
    tab.spent()  # opens the state, which upgrades it
    name = new_round(collector, sequences(), study="damaged", number=9)
    assert_refused(tab, name, vector_of(1))


def test_an_older_client_does_not_open_the_state(collector, context_of):
    """It would not know which studies were answered."""
    tab = person(context_of, collector)
    tab.report(new_round(collector, sequences(), study="newer", number=1), vector_of(1))
    opened = """() => new Promise((go) => {
      const opening = indexedDB.open("offaxis", 1);
      opening.onsuccess = () => go("opened");
      opening.onerror = () => go(opening.error.name);
    })"""
    assert tab.page.evaluate(opened) == "VersionError"
