"""Untrusted JSON: its size and depth are bounded before it is parsed."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offaxis.formats.strict_json import canonical_json, parse_json, shown
from tests.limits import bounded

trees = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(trees)
def test_canonical_json_is_read_back(tree):
    text = canonical_json(tree)
    assert text.isascii()
    assert canonical_json(parse_json(text)) == text


@given(st.text(alphabet='{}[]",:\\ eE+-.019truefalsn\ud800'))
def test_accepted_text_means_the_same_as_in_the_standard_library(text):
    try:
        parsed = parse_json(text)
    except ValueError:
        return
    assert repr(parsed) == repr(json.loads(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a":1,"a":1}', "duplicate key"),
        ("NaN", "not a number"),
        ("[-Infinity]", "not a number"),
        ("9" * 41, "41 characters"),
        ("0." + "1" * 100, "102 characters"),
        ("[" * 101 + "]" * 101, "more parts"),
        ("[" + "{}," * 100 + "{}]", "more parts"),
        ("[" + "0," * 2000 + "0]", "more parts"),
        ("[" + '"",' * 1000 + "0]", "more parts"),
        ("\ufeff{}", "BOM"),
    ],
)
def test_text_that_no_release_needs_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        parse_json(text)


def test_brackets_and_commas_in_a_string_are_only_text():
    text = '[{,"\\' * 1000
    assert parse_json(json.dumps([text])) == [text]


MEBIBYTE = 1 << 20


@pytest.mark.parametrize(
    "text",
    [
        *("[" * MEBIBYTE, '{"":' * (MEBIBYTE // 4), "[" + "[]," * (MEBIBYTE // 3), "9" * MEBIBYTE),
        *("0," * (MEBIBYTE // 2), '"' + '\\"' * (MEBIBYTE // 2), '"' * MEBIBYTE, "\\" * MEBIBYTE),
        *('"\\' * (MEBIBYTE // 2), '"\ud83d' + "\\u0000" * (MEBIBYTE // 6), "0." + "1" * MEBIBYTE),
        "{" + "".join(f'"{i}":0,' for i in range(100_000)) + '"":0}',
    ],
)
def test_a_hostile_mebibyte_is_refused_in_little_time_and_memory(text):
    with bounded(mebibytes=8), pytest.raises(ValueError, match=r".+"):
        parse_json(text)


def test_depth_is_bounded_without_the_recursion_limit():
    """A program may have raised the interpreter's limit; the stack would then overflow."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10**8)
    try:
        with pytest.raises(ValueError, match="more parts"):
            parse_json("[" * MEBIBYTE)
    finally:
        sys.setrecursionlimit(limit)


def test_values_in_messages_are_short_and_printable():
    for value in ("\x1b[2J\n\u202e\ud800", "x" * 10**6, {"k": ["é"] * 50}):
        assert shown(value).isascii()
        assert shown(value).isprintable()
        assert len(shown(value)) <= 60
