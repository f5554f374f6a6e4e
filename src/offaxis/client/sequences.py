"""Reports under a promise per person: one report per study, or a sequence within ε∞.

Contract: in one study a person reports one release whose guarantee is per person (unit "user"), or
one sequence, and no other release; or releases whose guarantees are per report (unit "item"). An
ordinary release gives one report. A memoised one gives any number of reports, drawn from at most R
permanent answers; all of these are paid for together, before the first report is made, and each
counts in every period in which it is drawn or reported. Which rounds draw one depends on the
numbers of the rounds, on randomness and on payments, never on a vector, and the vector of any other
round is not used at all. A draw that a limit per period does not admit is put off.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final

import numpy as np

from offaxis.errors import BudgetExceeded, InvalidInput, RoundRefused
from offaxis.formats import reports as wire
from offaxis.formats.strict_json import canonical_json
from offaxis.privacy.guarantee import Guarantee
from offaxis.privacy.ledger import Ledger
from offaxis.randomizers.memoised import Memoised
from offaxis.release import Release
from offaxis.sampling.choices import below
from offaxis.sampling.entropy import Entropy
from offaxis.vectors import Vectors, as_batch, as_integer, check_finite

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sequence:
    """Where a person's sequence stands.

    Attributes
    ----------
    held : bytes
        The permanent answer in force. It is secret: whoever sees it sees a report of ε.
    drawn : int
        The round in which it was drawn.
    renew : int
        The round from which on the next one is drawn.
    count : int
        Permanent answers drawn so far.
    last : int
        The last round that was answered.
    payment : int
        The number of the ledger's payment for the answer in force; 0 without a ledger.
    """

    held: bytes
    drawn: int
    renew: int
    count: int
    last: int
    payment: int = 0

    def to_bytes(self) -> bytes:
        """Write the state for the ledger."""
        return canonical_json({**asdict(self), "held": self.held.hex()}).encode()

    @classmethod
    def from_bytes(cls, state: bytes) -> Sequence:
        """Read what :meth:`to_bytes` wrote."""
        try:
            fields = json.loads(state)
            numbers = {
                field.name: as_integer(fields[field.name], field.name, 0)
                for field in dataclasses.fields(cls)
                if field.name != "held"
            }
            return cls(bytes.fromhex(fields["held"]), **numbers)
        except (ValueError, TypeError, KeyError, AttributeError, InvalidInput) as error:
            raise InvalidInput(f"the ledger's state of a sequence is damaged: {error}") from None


def is_due(randomizer: Memoised, sequence: Sequence | None, number: int) -> bool:
    """Whether a round may draw a permanent answer, which needs its vector."""
    if sequence is None:
        return True
    open_ended = not randomizer.draws
    return number >= sequence.renew and (open_ended or sequence.count < randomizer.draws)


def first_reports(release: Release, vectors: Vectors) -> tuple[list[bytes], list[Sequence]]:
    """Make the reports of round 0 of new sequences, one per row, and return the new states.

    For simulations of many people (:func:`next_reports` continues them) and for audits. A device
    uses :class:`Reporter` or :class:`Device`, which pay and keep the state.

    Raises
    ------
    InvalidInput
        As :meth:`offaxis.Release.privatize`.
    """
    batch, _ = as_batch(vectors, release.input_dim)
    return next_reports(release, [None] * len(batch), 0, dict(enumerate(batch)))


def next_reports(
    release: Release,
    sequences: list[Sequence | None],
    number: int,
    vectors: Mapping[int, Vectors],
) -> tuple[list[bytes], list[Sequence]]:
    """Make the reports of a round, one per person; return them and the new states.

    A state is kept before its report leaves the device.

    Parameters
    ----------
    release : Release
        With a memoised randomizer.
    sequences : list
        The state of each person after the last report; None before the first.
    number : int
        The number of the round; larger than every earlier one.
    vectors : mapping from a person's index to a vector (m,)
        Of the people who draw, if :func:`is_due`; those of others are not used.

    Raises
    ------
    InvalidInput
        If the number is not larger than the last one, the first report of a person has no vector,
        or a vector that is used is not finite.
    """
    randomizer = release.randomizer
    assert isinstance(randomizer, Memoised), "only a memoised release has sequences"
    last = max((s.last for s in sequences if s is not None), default=-1)
    if number <= last:
        raise InvalidInput(
            f"rounds of a sequence are numbered upwards: the last report was for round {last}, "
            f"got number {number}"
        )
    if any(s is None and at not in vectors for at, s in enumerate(sequences)):
        raise InvalidInput("the first report of a sequence needs a vector")
    due = [at for at in vectors if is_due(randomizer, sequences[at], number)]
    entropy = Entropy()
    current = {at: s for at, s in enumerate(sequences) if s is not None}
    if due:
        batch = np.array([vectors[at] for at in due], dtype=np.float64)
        check_finite(batch)
        with np.errstate(all="ignore"):
            encoded = release.encode_private(batch)
        waits = below(randomizer.period, len(due), entropy)
        held = randomizer.hold(encoded, entropy)
        for at, answer, wait in zip(due, held, waits.tolist(), strict=True):
            current[at] = _drawn(randomizer, sequences[at], number, answer, wait)
    states = [current[at] for at in range(len(sequences))]
    ages = [number - s.drawn for s in states]
    payloads = randomizer.show([s.held for s in states], ages, entropy)
    reports = wire.frame(payloads, randomizer.wire_id, release.hash)
    return reports, [replace(s, last=number) for s in states]


def _drawn(
    randomizer: Memoised, before: Sequence | None, number: int, held: bytes, wait: int
) -> Sequence:
    """Return the state after a draw.

    The first wait is uniform over a period, from half a period on, so that people who start
    together do not renew together; later waits have a period.
    """
    if before is None:
        return Sequence(held, number, number + randomizer.first_wait + wait, 1, number)
    return Sequence(held, number, number + randomizer.period, before.count + 1, number)


# ---- Payment


def vector_needed(ledger: Ledger, release: Release, study: str, number: int | None) -> bool:
    """Whether the report of a round may use its vector.

    If it is False, another process that reports in between can make a draw due, which is put off.
    """
    if not isinstance(release.randomizer, Memoised):
        return True
    sequence = _sequence(ledger, release, study)
    return is_due(release.randomizer, sequence, _number(sequence, number))


def pay_and_report(
    ledger: Ledger, release: Release, study: str, number: int | None, vector: Vectors | None
) -> bytes:
    """Pay for the report of a round and make it, as part of a transaction of the ledger.

    Parameters
    ----------
    study : str
        In one study, a release per person is reported once, or as one sequence.
    number : int or None
        The number of the round; None for the next one of a sequence.
    vector : array (m,), or None
        Not None if :func:`vector_needed`; without it, a draw that is due is put off.

    Raises
    ------
    RoundRefused
        If the person already reported in this study, or this release in another study.
    BudgetExceeded
        If a limit would be exceeded. In both cases nothing is paid and nothing is made.
    """
    # Payments precede the report in the transaction; all of it is written, or nothing.
    guarantee, randomizer = release.guarantee, release.randomizer
    if not isinstance(randomizer, Memoised):
        if guarantee.unit == "user":
            _check_first(ledger, release, study)
            ledger.keep_study(study, release.hash)
            ledger.charge(guarantee, release.hash)
        else:
            pay_per_report(ledger, release, study)
        assert vector is not None, "an ordinary release reports a vector"
        report = release.privatize(vector)
        assert isinstance(report, bytes), "one vector gives one report"
        return report
    before = _sequence(ledger, release, study)
    number = _number(before, number)
    due = vector is not None and is_due(randomizer, before, number)
    payment = _pay_for_draw(ledger, release, first=before is None) if due else None
    if payment is None and before is not None:
        payment = before.payment
        ledger.use_again(Guarantee(randomizer.epsilon), payment)
        due = False
    vectors = {0: vector} if due and vector is not None else {}
    (report,), (after,) = next_reports(release, [before], number, vectors)
    assert payment is not None, "the first report was paid for, or needs a vector"
    state = replace(after, payment=payment).to_bytes()
    ledger.keep_study(study, release.hash, state)
    return report


def pay_per_report(ledger: Ledger, release: Release, study: str, reports: int = 1) -> None:
    """Pay for reports whose promises are per report, as part of a transaction of the ledger.

    Raises
    ------
    RoundRefused
        If the study has one promise for all reports of the person.
    BudgetExceeded
        If a limit would be exceeded. In both cases nothing is paid and nothing is made.
    """
    _check_recorded(ledger)
    kept = ledger.study(study)
    if kept is not None:
        raise RoundRefused(
            f"{_named(study)} has one promise for all reports of a person, those of release "
            f"{kept[0][:8]}…; release {release.hash[:8]}… needs a study of its own, and the costs "
            f"of studies add up"
        )
    ledger.keep_items(study)
    ledger.charge(release.guarantee, release.hash, reports)


def _pay_for_draw(ledger: Ledger, release: Release, *, first: bool) -> int | None:
    """Pay for a permanent answer; None if a limit does not admit one that is not the first."""
    randomizer = release.randomizer
    assert isinstance(randomizer, Memoised), "only a memoised release has sequences"
    cost = Guarantee(randomizer.epsilon)
    if first:
        return ledger.charge(cost, release.hash, reserved=max(0, randomizer.draws - 1))
    try:
        if randomizer.draws:
            return ledger.use_reserved(cost, release.hash)
        return ledger.charge(cost, release.hash)
    except BudgetExceeded as error:
        # A limit per period counts the answer in force, too, as long as it is reported.
        _LOG.info("a new permanent answer is put off: %s", error)
        return None


def _number(sequence: Sequence | None, number: int | None) -> int:
    """Return the number of a round; by default the next one."""
    if number is not None:
        return number
    return 0 if sequence is None else sequence.last + 1


def _sequence(ledger: Ledger, release: Release, study: str) -> Sequence | None:
    """Return the state of the person's sequence in a study; None before its first report."""
    kept = ledger.study(study)
    if kept is None or kept[0] != release.hash or kept[1] is None:
        _check_first(ledger, release, study)
        return None
    return Sequence.from_bytes(kept[1])


def _check_first(ledger: Ledger, release: Release, study: str) -> None:
    """Raise RoundRefused if a report would be the person's second under one promise per person."""
    _check_recorded(ledger)
    kept = ledger.study(study)
    if kept is not None:
        raise RoundRefused(
            f"{_named(study)} allows one report or one sequence per person, and this person "
            f"reports release {kept[0][:8]}… in it; what is for another purpose needs a study of "
            f"its own, and the costs of studies add up"
        )
    if ledger.has_items(study):
        raise RoundRefused(
            f"this person has sent reports in {_named(study)} that no promise per person covers; "
            f"release {release.hash[:8]}… needs a study of its own, and the costs of studies add up"
        )
    # Whatever study it was for: what was paid for may have left the device.
    if ledger.has_paid_for(release.hash):
        raise RoundRefused(
            f"release {release.hash[:8]}… allows one report or one sequence per person, and this "
            f"person reported it before"
        )


def _check_recorded(ledger: Ledger) -> None:
    """Raise RoundRefused if it is not known yet in which studies a device has reported."""
    if ledger.has_pending_studies:
        raise RoundRefused(
            "this file was last used by an older version of offaxis, and may belong to a device: "
            "open it with offaxis.client.Device once, which records the studies that it answered"
        )


def _named(study: str) -> str:
    return f"study {study}" if study else "this ledger"
