"""What clients and server refuse, with who is concerned and what to do."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from offaxis.errors import BudgetExceeded, InvalidDocument, InvalidInput, RoundRefused
from offaxis.federated import (
    ClientKeys,
    Consent,
    MaskedClient,
    MaskedRound,
    MaskedUpdate,
    MaskingPlan,
    Member,
    Roster,
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


def masked(clients, names="abc", number=1):
    return [clients[name].mask(number, ONES) for name in names]


def test_one_set_of_survivors_a_round_and_never_two(clients):
    masked(clients)
    clients["a"].consent(Survivors(1, ("a", "b")))
    for names in (("a", "c"), ("a", "b")):
        with pytest.raises(RoundRefused, match="every step is taken once"):
            clients["a"].consent(Survivors(1, names))


def test_two_openings_share_no_honest_client(roster, clients):
    """The server tells a and b one set, c and b another: b signs one, so only one opens."""
    masked(clients)
    first = [clients[name].consent(Survivors(1, ("a", "b"))) for name in "ab"]
    second = clients["c"].consent(Survivors(1, ("b", "c")))
    clients["a"].open(first)
    with pytest.raises(RoundRefused, match="no consent of b"):
        clients["c"].open([second])
    forged = Consent(1, "b", first[1].signature)
    with pytest.raises(InvalidDocument, match="consent of b is not to these survivors"):
        clients["c"].open([second, forged])


def test_an_opening_is_given_once(clients):
    masked(clients)
    consents = [clients[name].consent(Survivors(1, ("a", "b", "c"))) for name in "abc"]
    clients["a"].open(consents)
    with pytest.raises(RoundRefused, match="once, in order"):
        clients["a"].open(consents)


def test_a_round_number_is_used_once_and_they_ascend(clients):
    masked(clients, number=4)
    for number in (4, 3):
        with pytest.raises(RoundRefused, match="start a round with a new number"):
            clients["a"].mask(number, ONES)
    with pytest.raises(InvalidInput, match="whole number"):
        clients["a"].mask(5.0, ONES)


def test_a_wrong_signature_opens_nothing(clients):
    masked(clients)
    consents = [clients[name].consent(Survivors(1, ("a", "b", "c"))) for name in "abc"]
    for signature in (bytes(64), b"", consents[0].signature):
        with pytest.raises(InvalidDocument, match="nothing is revealed"):
            clients["a"].open([*consents[:2], Consent(1, "c", signature)])
    assert clients["a"].opened == 0
    clients["a"].open(consents)
    assert clients["a"].opened == 1


def test_consents_of_another_round_do_not_count(clients):
    masked(clients)
    consents = [clients[name].consent(Survivors(1, ("a", "b", "c"))) for name in "abc"]
    with pytest.raises(RoundRefused, match="no consent of c"):
        clients["a"].open([*consents[:2], replace(consents[2], round_number=2)])


def test_too_few_survivors_are_refused_on_both_sides(roster, clients):
    (update, *_) = masked(clients)
    server = MaskedRound(roster, 1)
    server.add(update)
    with pytest.raises(RoundRefused, match=r"1 updates arrived in round 1, and a sum needs 2"):
        server.survivors()
    with pytest.raises(RoundRefused, match="a sum needs 2; start a new round"):
        clients["a"].consent(Survivors(1, ("a",)))


def test_survivors_must_be_members_once_and_include_the_client(clients):
    masked(clients)
    with pytest.raises(InvalidInput, match="not in the roster"):
        clients["a"].consent(Survivors(1, ("a", "mallory")))
    with pytest.raises(InvalidInput, match="twice"):
        clients["a"].consent(Survivors(1, ("a", "a")))
    with pytest.raises(RoundRefused, match="a is not among the survivors"):
        clients["a"].consent(Survivors(1, ("b", "c")))


def test_who_does_not_open_is_named_and_the_sum_stays_closed(roster, clients):
    server = MaskedRound(roster, 1)
    for update in masked(clients):
        server.add(update)
    consents = [clients[name].consent(server.survivors()) for name in "abc"]
    server.add_opening(clients["a"].open(consents))
    assert server.missing_openings() == ("b", "c")
    with pytest.raises(RoundRefused, match=r"no opening of b, c in round 1.*start a new round"):
        server.result()


def test_the_budget_of_rounds_ends(roster, clients):
    updates = dict.fromkeys("abc", ONES)
    for number in (1, 2):
        run(roster, clients, updates, number=number)
    with pytest.raises(BudgetExceeded, match="2 of 2 rounds"):
        clients["a"].mask(3, ONES)
    restored = MaskedClient("a", KEYS["a"], roster, state=clients["a"].state())
    with pytest.raises(BudgetExceeded):
        restored.mask(3, ONES)


def test_a_changed_roster_is_another_one(roster, clients):
    heavier = roster_of([2, 1, 1], dim=3, threshold=2, colluders=1, rounds=2)
    assert heavier.hash != roster.hash
    with pytest.raises(RoundRefused, match="another roster"):
        MaskedClient("a", KEYS["a"], heavier, state=clients["a"].state())
    # Shown different rosters, clients' masks do not cancel and no signature fits.
    other = clients_of(heavier)["b"]
    clients["a"].mask(1, ONES)
    other.mask(1, ONES)
    consents = [
        clients["a"].consent(Survivors(1, ("a", "b"))),
        other.consent(Survivors(1, ("a", "b"))),
    ]
    with pytest.raises(InvalidDocument, match="consent of b"):
        clients["a"].open(consents)


def test_foreign_keys_are_refused(roster):
    with pytest.raises(InvalidInput, match="other keys for a"):
        MaskedClient("a", KEYS["b"], roster)
    with pytest.raises(InvalidInput, match="not in the roster"):
        MaskedClient("z", KEYS["a"], roster)


@pytest.mark.parametrize("update", [[1, 2], [[1, 2, 3]], ["a", "b", "c"]])
def test_what_is_no_update_of_this_dimension_is_refused(clients, update):
    with pytest.raises(InvalidInput):
        clients["a"].mask(1, update)
    clients["a"].mask(1, ONES)  # the round is not used up: nothing left the client


def test_the_server_takes_only_what_belongs_to_the_round(roster, clients):
    server = MaskedRound(roster, 1)
    update = clients["a"].mask(1, ONES)
    server.add(update)
    for wrong in (update, replace(clients["b"].mask(1, ONES), name="a")):
        with pytest.raises(RoundRefused, match="a comes twice or too late"):
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
    read = json.loads(document)
    for broken in (
        b"{}",
        b"[",
        document + b" ",
        json.dumps(read).encode(),
        json.dumps({**read, "more": 1}, separators=(",", ":"), sort_keys=True).encode(),
        document.replace(b'"rounds":2', b'"rounds":"2"'),
        document.replace(b'"colluders":1', b'"colluders":2'),
    ):
        with pytest.raises(InvalidDocument):
            Roster.from_bytes(broken)


def test_rosters_that_cannot_work_are_refused():
    plan = MaskingPlan(dim=2, clip=1, epsilon=1, delta="1e-5", rounds=1, threshold=2)
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


def test_a_key_that_is_none_is_named(roster):
    zero = Member("c", "00" * 32, KEYS["c"].member("c").signing)
    bad = Roster(roster.plan, [*roster.members[:2], zero])
    with pytest.raises(InvalidDocument, match="exchange key of c"):
        MaskedClient("a", KEYS["a"], bad).mask(1, ONES)


def test_keys_show_nothing_of_themselves():
    assert KEYS["a"].to_bytes().hex() not in repr(KEYS["a"])
    assert ClientKeys.from_bytes(KEYS["a"].to_bytes()).member("a") == KEYS["a"].member("a")
