"""Clients report pairs of a vector and private answers; an unusable pair is not noticed."""

from __future__ import annotations

import numpy as np
import pytest

import offaxis
from offaxis.client import Reporter
from offaxis.encoding.pairs import NO_ANSWER
from offaxis.errors import InvalidInput
from offaxis.learning import Classes, Number, cells, fit_check, fit_pairs, learn, principal
from offaxis.privacy.ledger import Ledger, Limit
from tests.checks import with_optional_numbers

REPLIES = ["no", "yes"]
ANSWERS = {"reply": "yes", "hours": None}


@pytest.fixture(scope="module")
def release(public):
    """A release of a class and of a number that people may not have."""
    asked = [Classes(REPLIES, name="reply"), Number(0, 8, name="hours")]
    return with_optional_numbers(fit_pairs(principal(public, rank=3), asked, epsilon=3))


@pytest.fixture
def rows(monkeypatch):
    """The rows that are privatized."""
    seen, privatize = [], offaxis.Release.privatize

    def recorded(self, vectors, **options):
        seen.append(np.array(vectors))
        return privatize(self, vectors, **options)

    monkeypatch.setattr(offaxis.Release, "privatize", recorded)
    return seen


@pytest.fixture
def reporter(release, tmp_path):
    with Ledger(tmp_path / "my.ledger", Limit(30)) as ledger:
        yield Reporter(release, ledger)


def test_a_reporter_takes_rows_and_pairs(reporter, release, public, rows):
    row = release.pairs(public[0], ANSWERS)
    pair = {"vector": public[0], "answers": ANSWERS}
    for given in (row, pair, row[None], {"vector": public[:1], "answers": ANSWERS}):
        assert len(reporter.report(given)) == release.report_size
        assert np.array_equal(rows.pop().ravel(), row)
    (reports,) = reporter.reports(release.pairs(public[:3], {"reply": [0, 1, 1], "hours": [1] * 3}))
    assert len(reports) == 3
    assert reporter.ledger.spent() == (21, 0)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ({"vector": np.zeros(6)}, "a pair is a mapping"),
        ({"vector": np.zeros(6), "answers": ANSWERS, "group": 1}, "a pair is a mapping"),
        ({"vector": np.zeros(5), "answers": ANSWERS}, "dimension 6, got 5"),
        ({"vector": np.zeros(6), "answers": None}, "asks for answers"),
        ({"vector": np.zeros(6), "answers": {"reply": "secret", "hours": 1}}, "is neither"),
        ({"vector": np.zeros(6), "answers": {"reply": None, "hours": 1}}, "'reply' is missing"),
        ({"vector": np.zeros((2, 6)), "answers": {"reply": [0, 1], "hours": [1, 2]}}, "got 2"),
        (np.zeros(6), "dimension 8, got 6"),
    ],
)
def test_an_invalid_pair_is_not_paid_for(reporter, pair, message):
    with pytest.raises(InvalidInput, match=message) as caught:
        reporter.report(pair)
    assert "secret" not in str(caught.value)
    assert reporter.ledger.spent() == (0, 0)


def test_only_releases_of_pairs_take_answers(public, tmp_path):
    plain = offaxis.fit(None, public, epsilon=1, reshaping="none", mechanism="laplace")
    with Ledger(tmp_path / "my.ledger", Limit(5)) as ledger:
        reporter = Reporter(plain, ledger)
        with pytest.raises(InvalidInput, match="asks for no answer"):
            reporter.report({"vector": public[0], "answers": "yes"})
        assert ledger.spent() == (0, 0)


def test_a_device_reports_a_pair(collector, device, release, public, rows):
    collector.offer(release)
    entry = device.report("energy-1", lambda: {"vector": public[0], "answers": ANSWERS})
    assert np.array_equal(rows, [release.pairs(public[0], ANSWERS)])
    assert device.send()[0].state == "sent"
    (upload,) = collector.uploads()
    assert upload.body == entry.report
    assert release.observe([upload.body]).shape == (1, release.encoder.output_dim)


def _raise():
    raise RuntimeError("the form was not filled in")


UNUSABLE = {
    "none": None,
    "a vector alone": np.zeros(6),
    "NaN": {"vector": np.full(6, np.nan), "answers": ANSWERS},
    "no answers": {"vector": np.zeros(6), "answers": None},
    "a missing answer": {"vector": np.zeros(6), "answers": {"reply": None, "hours": 1}},
    "an unknown answer": {"vector": np.zeros(6), "answers": {"reply": "perhaps", "hours": 1}},
    "no number": {"vector": np.zeros(6), "answers": {"reply": "no", "hours": "many"}},
    "other keys": {"vector": np.zeros(6)},
    "raises": _raise,
}


@pytest.mark.parametrize("pair", UNUSABLE.values(), ids=UNUSABLE)
def test_an_unusable_pair_becomes_a_report_without_vector_and_answers(
    collector, device, release, pair, rows
):
    """As in the JavaScript client: a zero vector, and no answer to anything."""
    collector.offer(release)
    entry = device.report("energy-1", pair)
    assert np.array_equal(rows, [np.append(np.zeros(6), [NO_ANSWER, NO_ANSWER])])
    assert np.array_equal(rows, [release.public_mean])
    assert len(entry.report) == release.report_size
    assert device.send()[0].state == "sent"
    assert device.ledger.spent() == (3, 0)


@pytest.mark.parametrize("form", ["cells", "check", "nothing"])
def test_every_form_has_a_report_for_people_without_a_vector(
    form, collector, device, public, release
):
    made = {
        "cells": lambda: fit_pairs(cells(public, size=3), REPLIES, epsilon=2),
        "check": lambda: fit_check(np.eye(3, 6), public, epsilon=2),
        "nothing": lambda: fit_pairs(principal(public, rank=2), None, epsilon=2),
    }[form]()
    collector.offer(made)
    assert len(device.report("energy-1", None).report) == made.report_size


def test_a_sequence_of_pairs_draws_from_pairs(release, public, tmp_path, monkeypatch):
    sequences = offaxis.memoise(release, draws=2, period=4)
    encoded, encode = [], offaxis.Release.encode_private

    def recorded(self, batch):
        encoded.extend(np.array(batch))
        return encode(self, batch)

    monkeypatch.setattr(offaxis.Release, "encode_private", recorded)
    with Ledger(tmp_path / "my.ledger", Limit(6)) as ledger:
        reporter = Reporter(sequences, ledger)
        pair = {"vector": public[0], "answers": ANSWERS}
        reports = [reporter.report(pair) for _ in range(3)]
        # An unknown answer stops no sequence, and tells nobody that it is unknown.
        reports.append(reporter.report({"vector": public[0], "answers": {"reply": "x"}}))
        with pytest.raises(InvalidInput, match="dimension 6, got 5"):
            reporter.report({"vector": public[0, :5], "answers": ANSWERS})
        assert ledger.spent()[0] == 6
    assert np.array_equal(encoded[0], release.pairs(public[0], ANSWERS))
    assert {len(report) for report in reports} == {sequences.report_size}


def test_reports_of_devices_teach_a_model(collector, device_of, public):
    """Ten devices; the sums hold one report of each."""
    release = fit_pairs(cells(public, size=2), REPLIES, epsilon=3)
    collector.offer(release)
    for number in range(10):
        device = device_of(f"{number}.device")
        pair = {"vector": public[number], "answers": REPLIES[number % 2]}
        device.report("energy-1", pair)
        device.send()
    model = learn(release, [upload.body for upload in collector.uploads()])
    assert model.report_count_ == 10
