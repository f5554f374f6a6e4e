"""Errors of clients and server name the client concerned and what to do."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from offaxis.errors import BudgetExceeded, InvalidDocument, InvalidInput, RoundRefused
from offaxis.federated import (
    ClientKeys,
    Consent,
    MaskedUpdate,
    Member,
    Roster,
    SecureAggregationClient,
    SecureAggregationPlan,
    SecureAggregationRound,
    Survivors,
)
from tests.federated.rounds import KEYS, clients_of, roster_of, run

ONES = np.ones(3)


@pytest.fixture
def roster():
    return roster_of([1, 1, 1], dim=3, threshold=2, colluders=1, rounds=2)


@pytest.fixture
def clients(roster):
    return clients_of(roster)


def masked_updates(clients, names="abc", number=1):
    return [clients[name].mask(number, ONES) for name in names]


def test_a_client_consents_to_one_set_of_survivors_per_round(clients):
    masked_updates(clients)
    clients["a"].consent(Survivors(1, ("a", "b")))
    for names in (("a", "c"), ("a", "b")):
        with pytest.raises(RoundRefused, match="every step is taken once"):
            clients["a"].consent(Survivors(1, names))


def test_two_opened_sets_share_no_honest_client(roster, clients):
    """The server sends one set to a and b and another to c: b signs one, so only one opens."""
    masked_updates(clients)
    first = [clients[name].consent(Survivors(1, ("a", "b"))) for name in "ab"]
    second = clients["c"].consent(Survivors(1, ("b", "c")))
    clients["a"].open(first)
    with pytest.raises(RoundRefused, match="no consent from b"):
        clients["c"].open([second])
    forged = Consent(1, "b", first[1].signature)
    with pytest.raises(InvalidDocument, match="consent of b is not for these survivors"):
        clients["c"].open([second, forged])


def test_a_client_opens_a_round_once(clients):
    masked_updates(clients)
    consents = [clients[name].consent(Survivors(1, ("a", "b", "c"))) for name in "abc"]
    clients["a"].open(consents)
    with pytest.raises(RoundRefused, match="once, in order"):
        clients["a"].open(consents)


def test_round_numbers_increase_and_are_used_once(clients):
    masked_updates(clients, number=4)
    for number in (4, 3):
        with pytest.raises(RoundRefused, match="start a round with a new number"):
            clients["a"].mask(number, ONES)
    with pytest.raises(InvalidInput, match="round_number must be an integer"):
        clients["a"].mask(5.0, ONES)


def test_an_invalid_signature_opens_nothing(clients):
    masked_updates(clients)
    consents = [clients[name].consent(Survivors(1, ("a", "b", "c"))) for name in "abc"]
    for signature in (bytes(64), b"", consents[0].signature):
        with pytest.raises(InvalidDocument, match="nothing is revealed"):
            clients["a"].open([*consents[:2], Consent(1, "c", signature)])
    assert clients["a"].opened == 0
    clients["a"].open(consents)
    assert clients["a"].opened == 1


def test_consents_of_another_round_do_not_count(clients):
    masked_updates(clients)
    consents = [clients[name].consent(Survivors(1, ("a", "b", "c"))) for name in "abc"]
    with pytest.raises(RoundRefused, match="no consent from c"):
        clients["a"].open([*consents[:2], replace(consents[2], round_number=2)])


def test_client_and_server_refuse_too_few_survivors(roster, clients):
    (update, *_) = masked_updates(clients)
    server = SecureAggregationRound(roster, 1)
    server.add(update)
    with pytest.raises(RoundRefused, match=r"1 updates arrived in round 1, but a sum needs 2"):
        server.survivors()
    with pytest.raises(RoundRefused, match="a sum needs 2; start a new round"):
        clients["a"].consent(Survivors(1, ("a",)))


def test_survivors_are_distinct_members_and_include_the_client(clients):
    masked_updates(clients)
    with pytest.raises(InvalidInput, match="not in the roster"):
        clients["a"].consent(Survivors(1, ("a", "mallory")))
    with pytest.raises(InvalidInput, match="twice"):
        clients["a"].consent(Survivors(1, ("a", "a")))
    with pytest.raises(RoundRefused, match="a is not among the survivors"):
        clients["a"].consent(Survivors(1, ("b", "c")))


def test_survivors_that_do_not_open_are_named_and_the_sum_stays_closed(roster, clients):
    server = SecureAggregationRound(roster, 1)
    for update in masked_updates(clients):
        server.add(update)
    consents = [clients[name].consent(server.survivors()) for name in "abc"]
    server.add_opening(clients["a"].open(consents))
    assert server.missing_openings() == ("b", "c")
    with pytest.raises(RoundRefused, match=r"no opening from b, c in round 1.*start a new round"):
        server.result()


def test_a_spent_budget_stays_spent_after_a_restart(roster, clients):
    updates = dict.fromkeys("abc", ONES)
    for number in (1, 2):
        run(roster, clients, updates, number=number)
    with pytest.raises(BudgetExceeded, match="2 of 2 rounds"):
        clients["a"].mask(3, ONES)
    restored = SecureAggregationClient("a", KEYS["a"], roster, state=clients["a"].state())
    with pytest.raises(BudgetExceeded):
        restored.mask(3, ONES)


def test_a_changed_roster_is_another_roster(roster, clients):
    heavier = roster_of([2, 1, 1], dim=3, threshold=2, colluders=1, rounds=2)
    assert heavier.hash != roster.hash
    with pytest.raises(RoundRefused, match="another roster"):
        SecureAggregationClient("a", KEYS["a"], heavier, state=clients["a"].state())
    # With different rosters the masks do not cancel and no signature is valid.
    other = clients_of(heavier)["b"]
    clients["a"].mask(1, ONES)
    other.mask(1, ONES)
    consents = [
        clients["a"].consent(Survivors(1, ("a", "b"))),
        other.consent(Survivors(1, ("a", "b"))),
    ]
    with pytest.raises(InvalidDocument, match="consent of b"):
        clients["a"].open(consents)


def test_keys_of_another_client_raise(roster):
    with pytest.raises(InvalidInput, match="other keys for a"):
        SecureAggregationClient("a", KEYS["b"], roster)
    with pytest.raises(InvalidInput, match="not in the roster"):
        SecureAggregationClient("z", KEYS["a"], roster)


@pytest.mark.parametrize("update", [[1, 2], [[1, 2, 3]], ["a", "b", "c"]])
def test_an_update_of_another_shape_or_type_raises(clients, update):
    with pytest.raises(InvalidInput):
        clients["a"].mask(1, update)
    clients["a"].mask(1, ONES)  # the round is still unused: nothing was sent


def test_the_server_accepts_only_messages_of_the_round(roster, clients):
    server = SecureAggregationRound(roster, 1)
    update = clients["a"].mask(1, ONES)
    server.add(update)
    for wrong in (update, replace(clients["b"].mask(1, ONES), name="a")):
        with pytest.raises(RoundRefused, match="update of a is a second one or too late"):
            server.add(wrong)
    with pytest.raises(InvalidDocument, match="does not belong"):
        server.add(replace(update, round_number=2))
    with pytest.raises(InvalidDocument, match="does not belong"):
        server.add(replace(update, name="mallory"))
    with pytest.raises(InvalidDocument, match="another roster"):
        server.add(MaskedUpdate(1, "c", b"short"))


def test_rosters_are_read_strictly(roster):
    document = roster.to_bytes()
    assert Roster.from_bytes(document).hash == roster.hash
    fields = json.loads(document)
    for broken in (
        b"{}",
        b"[",
        document + b" ",
        json.dumps(fields).encode(),
        json.dumps({**fields, "more": 1}, separators=(",", ":"), sort_keys=True).encode(),
        document.replace(b'"rounds":2', b'"rounds":"2"'),
        document.replace(b'"colluders":1', b'"colluders":2'),
    ):
        with pytest.raises(InvalidDocument):
            Roster.from_bytes(broken)


def test_invalid_rosters_raise():
    plan = SecureAggregationPlan(dim=2, clip=1, epsilon=1, delta="1e-5", rounds=1, threshold=2)
    a, b = KEYS["a"].member("a"), KEYS["b"].member("b")
    with pytest.raises(InvalidInput, match="at least threshold=2"):
        Roster(plan, [a])
    with pytest.raises(InvalidInput, match="same name"):
        Roster(plan, [a, replace(b, name="a")])
    with pytest.raises(InvalidInput, match="same exchange"):
        Roster(plan, [a, replace(b, exchange=a.exchange)])
    with pytest.raises(InvalidInput, match="vanishes"):
        Roster(plan, [a, replace(b, weight="1e-9")])
    for wrong in ({"name": "with space"}, {"weight": 0}, {"signing": "00"}):
        with pytest.raises(InvalidInput):
            replace(a, **wrong)
    with pytest.raises(InvalidDocument, match="64 bytes"):
        ClientKeys.from_bytes(b"short")


def test_an_invalid_key_is_named(roster):
    zero = Member("c", "00" * 32, KEYS["c"].member("c").signing)
    invalid = Roster(roster.plan, [*roster.members[:2], zero])
    with pytest.raises(InvalidDocument, match="exchange key of c"):
        SecureAggregationClient("a", KEYS["a"], invalid).mask(1, ONES)


def test_the_repr_of_keys_does_not_show_them():
    assert KEYS["a"].to_bytes().hex() not in repr(KEYS["a"])
    assert ClientKeys.from_bytes(KEYS["a"].to_bytes()).member("a") == KEYS["a"].member("a")
