"""Signed documents: any changed byte, another key or another role is refused."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from offaxis.errors import InvalidDocument
from offaxis.formats.documents import (
    LARGEST_ROUND,
    RELEASE,
    ROUND,
    Round,
    load_key,
    new_key,
    public_key,
    save_key,
    sign_release,
    sign_round,
    verify_release,
    verify_round,
)

KEY, OTHER = new_key(), new_key()
HASH = "0123456789abcdef" * 4

names = st.from_regex(r"[a-z0-9][a-z0-9-]{0,62}", fullmatch=True)
groups = st.from_regex(r"[!-~][ -~]{0,99}", fullmatch=True)
times = st.datetimes(datetime(2000, 1, 1), datetime(9999, 12, 31)).map(
    lambda at: at.replace(microsecond=0, tzinfo=UTC)
)


@st.composite
def rounds(draw):
    opens, closes = draw(times), draw(times)
    assume(opens != closes)
    return Round(
        name=draw(names),
        study=draw(names),
        number=draw(st.integers(0, 2**53)),
        release=draw(st.binary(min_size=32, max_size=32)).hex(),
        opens=min(opens, closes),
        closes=max(opens, closes),
        groups=tuple(draw(st.lists(groups, max_size=5, unique=True))),
        keep_days=draw(st.integers(0, 36_500)),
    )


def example(**changes) -> Round:
    fields = {
        "name": "energy-2026-11",
        "study": "energy",
        "number": 7,
        "release": HASH,
        "opens": "2026-11-01T00:00:00Z",
        "closes": "2026-12-01T00:00:00Z",
        "groups": ("north", "south"),
    }
    return Round(**fields | changes)


@given(rounds())
def test_a_round_is_read_back_and_its_signature_is_valid(round_):
    document = round_.to_bytes()
    assert Round.from_bytes(document) == round_
    assert Round.from_bytes(document).to_bytes() == document
    verify_round(KEY.public_key(), round_, sign_round(KEY, round_))


def test_the_signed_form_is_the_documented_one():
    assert example().to_bytes() == (
        b'{"closes":"2026-12-01T00:00:00Z","groups":["north","south"],"keep_days":30,'
        b'"name":"energy-2026-11","number":7,"opens":"2026-11-01T00:00:00Z","release":"'
        + HASH.encode()
        + b'","study":"energy"}'
    )
    KEY.public_key().verify(sign_round(KEY, example()), ROUND + example().digest)
    KEY.public_key().verify(sign_release(KEY, HASH), RELEASE + bytes.fromhex(HASH))


@given(rounds(), st.data())
def test_any_changed_byte_is_refused(round_, data):
    """The result is either no longer a round, or another round without a valid signature."""
    document = bytearray(round_.to_bytes())
    index = data.draw(st.integers(0, len(document) - 1))
    document[index] ^= data.draw(st.integers(1, 255))
    try:
        changed = Round.from_bytes(bytes(document))
    except InvalidDocument:
        return
    assert changed != round_
    with pytest.raises(InvalidDocument, match="not signed"):
        verify_round(KEY.public_key(), changed, sign_round(KEY, round_))


@given(rounds(), st.data())
def test_any_missing_or_additional_byte_is_refused(round_, data):
    document = round_.to_bytes()
    index = data.draw(st.integers(0, len(document)))
    for changed in (
        document[:index] + document[index + 1 :],
        document[:index] + data.draw(st.binary(min_size=1, max_size=1)) + document[index:],
    ):
        try:
            parsed = Round.from_bytes(changed)
        except InvalidDocument:
            continue
        assert parsed == round_ if changed == document else parsed != round_


@given(st.integers(0, 63), st.integers(1, 255))
def test_any_changed_signature_is_refused(index, change):
    kinds: list[tuple[Callable[..., bytes], Callable[..., None], object]] = [
        (sign_round, verify_round, example()),
        (sign_release, verify_release, HASH),
    ]
    for sign, verify, subject in kinds:
        signature = bytearray(sign(KEY, subject))
        signature[index] ^= change
        with pytest.raises(InvalidDocument, match="not signed"):
            verify(KEY.public_key(), subject, bytes(signature))


@pytest.mark.parametrize("signature", [b"", b"x", bytes(63), bytes(64), bytes(65)])
def test_bytes_that_are_not_a_signature_are_refused(signature):
    with pytest.raises(InvalidDocument):
        verify_round(KEY.public_key(), example(), signature)
    with pytest.raises(InvalidDocument):
        verify_release(KEY.public_key(), HASH, signature)


def test_signatures_of_another_key_are_refused():
    with pytest.raises(InvalidDocument):
        verify_round(KEY.public_key(), example(), sign_round(OTHER, example()))
    with pytest.raises(InvalidDocument):
        verify_release(KEY.public_key(), HASH, sign_release(OTHER, HASH))


@given(rounds())
def test_a_signature_is_valid_in_one_role_only(round_):
    """The same 32 bytes as the hash of a release and as the digest of a round, both ways."""
    as_release = sign_release(KEY, round_.digest.hex())
    with pytest.raises(InvalidDocument, match="round is not signed"):
        verify_round(KEY.public_key(), round_, as_release)
    with pytest.raises(InvalidDocument, match="release is not signed"):
        verify_release(KEY.public_key(), round_.digest.hex(), sign_round(KEY, round_))
    # Without the role, one would pass for the other.
    for role in (b"", ROUND[:-1], RELEASE):
        with pytest.raises(InvalidDocument):
            verify_round(KEY.public_key(), round_, KEY.sign(role + round_.digest))


def test_a_release_is_signed_by_its_hash():
    changed = "f" + HASH[1:]
    with pytest.raises(InvalidDocument):
        verify_release(KEY.public_key(), changed, sign_release(KEY, HASH))


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "Energy"},
        {"name": "-energy"},
        {"name": "a" * 64},
        {"name": "a\n"},
        {"name": ""},
        {"study": "a/b"},
        {"number": -1},
        {"number": 2**53 + 1},
        {"number": 1.5},
        {"release": HASH.upper()},
        {"release": HASH[1:]},
        {"opens": "2026-12-01T00:00:00Z"},
        {"opens": "2026-11-01"},
        {"opens": datetime(2026, 11, 1)},
        {"opens": datetime(2026, 11, 1, microsecond=1, tzinfo=UTC)},
        {"opens": datetime(2026, 11, 1, tzinfo=timezone(timedelta(hours=1)))},
        {"opens": 1},
        {"opens": "1999-12-31T23:59:59Z"},
        {"opens": datetime(999, 1, 1, tzinfo=UTC)},
        {"groups": ("a", "a")},
        {"groups": ("",)},
        {"groups": (" a",)},
        {"groups": ("a\r\nX: y",)},
        {"groups": ("ä",)},
        {"groups": tuple(map(str, range(501)))},
        {"keep_days": -1},
        {"keep_days": 36_501},
        {"epsilon": 3},
    ],
    ids=str,
)
def test_invalid_rounds_are_refused(changes):
    with pytest.raises(ValueError, match="validation error"):
        example(**changes)
    document = {**example().model_dump(mode="json"), **changes}
    written = json.dumps(document, sort_keys=True, separators=(",", ":"), default=str).encode()
    with pytest.raises(InvalidDocument):
        Round.from_bytes(written)


def test_other_forms_of_the_same_round_are_refused():
    """A round has one form, so that what is hashed is what was read."""
    plain = example().model_dump(mode="json")
    whole = example().to_bytes()
    for document in (
        json.dumps(plain, sort_keys=True).encode(),
        json.dumps(dict(reversed(plain.items())), separators=(",", ":")).encode(),
        whole + b"\n",
        b" " + whole,
        whole.replace(b"energy-2026", b"\\u0065nergy-2026"),
        whole.replace(b'"number":7', b'"number":7.0'),
        whole.replace(b'"number":7', b'"number":"7"'),
        whole.replace(b'"number":7', b'"number":7,"number":7'),
        whole.replace(b'"keep_days":30,', b""),
        whole.replace(b'"number":7', b'"number":true'),
    ):
        assert document != whole
        with pytest.raises(InvalidDocument):
            Round.from_bytes(document)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_invalid_document(document):
    with pytest.raises(InvalidDocument):
        Round.from_bytes(document)


@pytest.mark.parametrize(
    "document", [b"", b"null", b"[]", b"[" * 30_000, b"\xff", b"1" * 5000, b" " * LARGEST_ROUND * 2]
)
def test_hostile_documents_are_refused(document):
    with pytest.raises(InvalidDocument):
        Round.from_bytes(document)


def test_a_round_with_the_most_groups_can_be_read():
    many = example(groups=tuple(f"{i:03}" + "x" * 50 for i in range(500)))
    assert Round.from_bytes(many.to_bytes()) == many


def test_a_key_file_is_readable_by_its_owner_only(tmp_path):
    path = tmp_path / "publisher.key"
    save_key(KEY, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    verify_round(KEY.public_key(), example(), sign_round(load_key(path), example()))
    assert public_key(KEY.public_key().public_bytes_raw().hex()) == KEY.public_key()


@pytest.mark.parametrize("text", ["", "zz", "12", "0" * 62, "0" * 66, "0" * 63 + "ä"])
def test_text_that_is_not_a_key_is_refused(tmp_path, text):
    with pytest.raises(InvalidDocument, match="64 hexadecimal"):
        public_key(text)
    path = tmp_path / "x.key"
    path.write_text(text)
    with pytest.raises(InvalidDocument, match="cannot read a key"):
        load_key(path)
    with pytest.raises(InvalidDocument, match="cannot read a key"):
        load_key(tmp_path / "none.key")
