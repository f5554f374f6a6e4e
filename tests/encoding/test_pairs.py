"""Pairs: answers as numbers of a row, and the encoders of rows, against formulas by hand."""

from __future__ import annotations

import copy
import itertools
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import offaxis
from offaxis.encoding.encoders import answer_encoder_of_kind
from offaxis.encoding.pairs import (
    MOST_CLASSES,
    MOST_SYMBOLS,
    NO_ANSWER,
    Asked,
    CellsEncoder,
    Classes,
    MomentsEncoder,
    Number,
    RightEncoder,
    as_asked,
    pair_encoder,
    pair_encoder_of_kind,
    rows_of,
    simplex,
    table_of,
)
from offaxis.encoding.questions import pair_names
from offaxis.errors import InvalidInput
from offaxis.geometry import Layers
from offaxis.learning import cells, fit_check, fit_pairs, principal
from tests.checks import with_optional_numbers

RNG = np.random.default_rng(0)
WEIGHTS = [RNG.standard_normal((4, 3)), RNG.standard_normal((5, 4)) / 5]
BIASES = [RNG.standard_normal(4), RNG.standard_normal(5) / 9]
NETWORK = Layers(WEIGHTS, BIASES, "normalise")
Z = RNG.standard_normal((40, 3))
PUBLIC = RNG.standard_normal((200, 3))
EXTREMES = np.vstack([np.full(3, s) for s in (1.7e308, -1.7e308, 1e160, 5e-324, 0.0, -0.0)])


def encoder_of(form: str, *asked: Asked) -> Any:
    return pair_encoder(form, "normalise")(WEIGHTS, BIASES, table_of(asked))


# ---- Moments

SEVERAL: tuple[Asked, ...] = (
    Classes(3, name="a"),
    Number(-2, 5, name="b"),
    Classes(2, name="c", optional=True),
    Number(0, 1, name="d", optional=True),
)


def code_of(part: Asked, answer: Any) -> np.ndarray:
    """Return a(y) by its definition, without the package's corners."""
    if isinstance(part, Number):
        middle, half = (part.low + part.high) / 2, (part.high - part.low) / 2
        return np.array([0.0 if answer is None else (answer - middle) / half])
    k = len(part.names)
    if answer is None:
        return np.zeros(k - 1)
    # Any corners will do that are those of a regular simplex; these are Helmert's.
    rows = np.zeros((k - 1, k))
    for i in range(1, k):
        rows[i - 1, :i], rows[i - 1, i] = 1, -i
        rows[i - 1] /= np.linalg.norm(rows[i - 1])
    return rows[:, answer] * np.sqrt(k / (k - 1))


@pytest.mark.parametrize("classes", [2, 3, 4, 10, 100])
def test_the_corners_are_those_of_a_regular_simplex(classes):
    corners = simplex(classes)
    assert corners.shape == (classes, classes - 1)
    products = np.full((classes, classes), -1 / (classes - 1))
    np.fill_diagonal(products, 1)
    np.testing.assert_allclose(corners @ corners.T, products, atol=1e-12)
    np.testing.assert_allclose(corners.sum(axis=0), 0, atol=1e-12)
    identity = classes / (classes - 1) * np.eye(classes - 1)
    np.testing.assert_allclose(corners.T @ corners, identity, atol=1e-12)


@pytest.mark.parametrize("asked", [SEVERAL[:1], SEVERAL[1:2], SEVERAL[2:3], SEVERAL[3:], SEVERAL])
def test_moments_are_the_products_of_code_and_features(asked):
    choices: dict[str, list[Any]] = {
        "a": [0, 1, 2],
        "b": [-2.0, 0.3, 5.0],
        "c": [0, 1, None],
        "d": [0.0, 0.25, 1.0, None],
    }
    encoder, x = encoder_of("moments", *asked), NETWORK.outputs(Z[:1])[0]
    for answers in itertools.product(*(choices[part.name] for part in asked)):
        given = {part.name: [answer] for part, answer in zip(asked, answers, strict=True)}
        blocks = [np.kron(code_of(p, y), x) for p, y in zip(asked, answers, strict=True)]
        expected = np.concatenate(blocks) / np.sqrt(len(asked))
        row = rows_of(Z[:1], asked, given)
        np.testing.assert_allclose(encoder.encode(row)[0], expected, atol=1e-14)
    assert encoder.output_dim == expected.size


def test_without_an_answer_moments_are_the_features():
    encoder = encoder_of("moments")
    assert (encoder.input_dim, encoder.vector_dim, encoder.answer_count) == (3, 3, 0)
    np.testing.assert_allclose(encoder.encode(Z), NETWORK.outputs(Z), atol=1e-15)


def test_a_class_keeps_the_length_of_the_features_and_a_number_scales_it():
    """With several classes the answers share the length evenly."""
    lengths = np.linalg.norm(NETWORK.outputs(Z), axis=1)
    two = (Classes(7, name="a"), Classes(3, name="b"))
    cases: list[tuple[tuple[Asked, ...], Any, float]] = [
        ((Classes(7),), {"answer": np.arange(40) % 7}, 1.0),
        (two, {"a": np.arange(40) % 7, "b": np.arange(40) % 3}, 1.0),
        ((Number(0, 4),), {"answer": np.full(40, 1.0)}, 0.5),
        ((Number(0, 4),), {"answer": np.full(40, 2.0)}, 0.0),
    ]
    for asked, answers, factor in cases:
        u = encoder_of("moments", *asked).encode(rows_of(Z, asked, answers))
        np.testing.assert_allclose(np.linalg.norm(u, axis=1), factor * lengths, atol=1e-12)


def test_the_products_of_two_classes_are_those_of_the_simplex():
    """Equal answers: ⟨u, u'⟩ = ⟨x, x'⟩; different ones: −⟨x, x'⟩/(k − 1), the same for all."""
    asked, x = (Classes(5),), NETWORK.outputs(Z[:2])
    u = [encoder_of("moments", *asked).encode(rows_of(Z[:2], asked, [y, y])) for y in range(5)]
    for i, j in itertools.product(range(5), repeat=2):
        expected = x[0] @ x[1] * (1 if i == j else -1 / 4)
        assert u[i][0] @ u[j][1] == pytest.approx(expected, abs=1e-14)


rows = arrays.arrays(
    np.float64, (4, 5), elements=st.floats(allow_nan=False, allow_infinity=False, width=64)
)
FITTED = with_optional_numbers(
    fit_pairs(principal(PUBLIC), [Classes(4, name="a"), Number(-1, 3, name="b")], epsilon=1)
).encoder
CELLS = fit_pairs(cells(PUBLIC, 5), Classes(3), epsilon=1).encoder
RIGHT = fit_check(np.eye(3), PUBLIC, epsilon=1).encoder


@given(rows)
def test_the_encoding_of_any_finite_row_is_in_the_unit_ball(row):
    """Huge, subnormal and zero vectors, and any finite number for an answer."""
    with np.errstate(all="ignore"):
        u = FITTED.encode(row)
    assert np.isfinite(u).all()
    assert (np.linalg.norm(u, axis=1) <= 1 + 1e-12).all()


@given(rows)
def test_any_finite_row_has_a_symbol(row):
    for encoder in (CELLS, RIGHT):
        with np.errstate(all="ignore"):
            symbols = encoder.encode(row[:, 1:])
        assert symbols.dtype.kind == "i"
        assert ((symbols >= 0) & (symbols < encoder.output_dim)).all()


@given(rows, st.permutations(range(4)))
def test_no_row_influences_another(row, order):
    """Symbols are equal; moments may differ in their last bits, by the order of summation."""
    order = list(order)
    with np.errstate(all="ignore"):
        alone = np.vstack([FITTED.encode(r[None]) for r in row])
        np.testing.assert_allclose(FITTED.encode(row[order]), alone[order], atol=1e-12)
        symbols = np.concatenate([CELLS.encode(r[None, 1:]) for r in row])
        assert CELLS.encode(row[order, 1:]).tolist() == symbols[order].tolist()


@pytest.mark.parametrize("asked", [Classes(3), Number(0, 1), Number(-1e20, 1e20)])
def test_reports_do_not_depend_on_error_settings(asked):
    """A device that fails for some vectors would reveal something about them."""
    release = fit_pairs(principal(PUBLIC), asked, epsilon=1)
    some = np.array([1.7e308, -1.7e308, 5e-324, NO_ANSWER, -NO_ANSWER, 0.5])
    with np.errstate(all="raise"):
        assert len(release.privatize(np.column_stack([EXTREMES, some]))) == 6


# ---- Cells


def test_the_symbol_of_cells_counts_through_cell_and_answers():
    asked = (Classes(["x", "y"], name="a"), Classes(3, name="b", optional=True))
    encoder = encoder_of("cells", *asked)
    names = pair_names(encoder, asked)
    assert names is not None
    cell = NETWORK.outputs(Z).argmax(axis=1)
    assert encoder.output_dim == 5 * 2 * 4 == len(set(names))
    seen = set()
    for a, b in itertools.product(["x", "y"], [0, 1, 2, None]):
        row = rows_of(Z, asked, {"a": [a] * 40, "b": [b] * 40})
        symbols = encoder.encode(row).tolist()
        expected = [f"cell {c}, {a}, {'none' if b is None else b}" for c in cell]
        assert [names[symbol] for symbol in symbols] == expected
        seen |= set(symbols)
    assert len(seen) == 8 * len(set(cell))


def test_cells_alone_are_the_largest_feature_and_the_first_of_a_tie():
    encoder = encoder_of("cells")
    np.testing.assert_array_equal(encoder.encode(Z), NETWORK.outputs(Z).argmax(axis=1))
    tied = pair_encoder("cells", "relu")([np.zeros((3, 2))], [np.zeros(3)], table_of(()))
    assert tied.encode(np.ones((2, 2))).tolist() == [0, 0]
    assert pair_names(tied, ()) == ("cell 0", "cell 1", "cell 2")


@pytest.mark.parametrize("optional", [False, True])
def test_an_unknown_class_of_a_row_is_missing_or_the_first(optional):
    """A class is the nearest whole number; beyond half a class off, nothing is known."""
    encoder = pair_encoder("cells", "relu")(
        [np.zeros((2, 1))], [np.zeros(2)], [[3, 0, 0, optional]]
    )
    known = {-0.49: 0, 0.0: 0, 0.49: 0, 0.51: 1, 1.49: 1, 1.6: 2, 2.49: 2}
    unknown = [-0.5, -1.0, 2.5, 7.0, 1e9, NO_ANSWER, -NO_ANSWER, 1.7e308]
    for value, expected in known.items():
        assert encoder.encode(np.array([[0.0, value]])).tolist() == [expected]
    for value in unknown:
        assert encoder.encode(np.array([[0.0, value]])).tolist() == [3 if optional else 0]


def test_cells_take_classes_and_a_limited_number_of_symbols():
    with pytest.raises(InvalidInput, match="cells take classes"):
        encoder_of("cells", Number(0, 1))
    many = [Classes(MOST_CLASSES, name=str(i)) for i in range(2)]
    with pytest.raises(InvalidInput, match="symbols"):
        encoder_of("cells", *many)
    with pytest.raises(InvalidInput, match="symbols"):
        pair_encoder("cells", "relu")([np.ones((1, 2))], [np.zeros(1)], table_of(()))


# ---- Right


def test_right_compares_the_largest_output_with_the_answer():
    encoder = encoder_of("right", Classes(5))
    outputs = NETWORK.outputs(Z).argmax(axis=1)
    for label in range(5):
        symbols = encoder.encode(np.column_stack([Z, np.full(40, label)]))
        np.testing.assert_array_equal(symbols, outputs == label)
    for unknown in (NO_ANSWER, -1.0, 5.0):  # never right, whatever the model answers
        assert not encoder.encode(np.column_stack([Z, np.full(40, unknown)])).any()
        first = pair_encoder("right", "relu")([np.eye(2)], [np.zeros(2)], table_of([Classes(2)]))
        assert first.encode(np.array([[1.0, 0.0, unknown]])).tolist() == [0]
    assert pair_names(encoder, (Classes(5),)) == ("wrong", "right")


def test_a_number_is_right_between_the_two_outputs():
    encoder = pair_encoder("right", "relu")(
        [np.array([[1.0], [1.0]])], [np.array([-0.5, 0.5])], table_of([Number(-10, 10)])
    )
    given = [(2.0, 1.5, 1), (2.0, 2.5, 1), (2.0, 1.49, 0), (2.0, 2.51, 0), (2.0, NO_ANSWER, 0)]
    for z, y, expected in given:
        assert encoder.encode(np.array([[z, y]])).tolist() == [expected]


def test_a_check_needs_one_mandatory_answer_of_the_model():
    for asked in ((), (Classes(5, optional=True),), (Classes(2, name="a"), Classes(3, name="b"))):
        with pytest.raises(InvalidInput, match="one answer"):
            encoder_of("right", *asked)
    for part in (Classes(4), Number(0, 1)):
        with pytest.raises(InvalidInput, match="does not give this answer"):
            encoder_of("right", part)


# ---- Kinds, copies, devices


@pytest.mark.parametrize("form", ["moments", "cells", "right"])
def test_a_form_with_activations_has_one_kind_and_can_be_copied(form):
    make = pair_encoder(form, "normalise")
    assert make is pair_encoder(form, "normalise")
    encoder = make(WEIGHTS, BIASES, table_of([Classes(5)]))
    assert encoder.kind == f"network-normalise-{form}"
    assert pair_encoder_of_kind(encoder.kind) is make
    assert answer_encoder_of_kind(encoder.kind) is None
    row = np.column_stack([Z, np.arange(40) % 5])
    for same in (pickle.loads(pickle.dumps(encoder)), copy.copy(encoder), copy.deepcopy(encoder)):
        assert type(same) is type(encoder)
        np.testing.assert_array_equal(same.encode(row), encoder.encode(row))
    expected = {"moments": MomentsEncoder, "cells": CellsEncoder, "right": RightEncoder}[form]
    assert isinstance(encoder, expected)


@pytest.mark.parametrize(
    "kind",
    ["moments", "network-moments", "network-swish-moments", "network-relu-wrong", "", "cells"],
)
def test_other_words_are_no_kind(kind):
    assert pair_encoder_of_kind(kind) is None


@pytest.mark.parametrize(
    "asked",
    [
        [[0, 0, 0, 0]],  # an empty range
        [[0, 1, 0, 0]],
        [[0, -1e21, 0, 0]],
        [[2.5, 0, 0, 0]],
        [[-1, 0, 0, 0]],
        [[MOST_CLASSES + 1, 0, 0, 0]],
        [[2, 1, 0, 0]],
        [[2, 0, 0, 0.5]],
        [[1, 0, 0, 1]],
        [[1, 0, 0, 0], [2, 0, 0, 0]],
        [[2, 0, 0]],
        [[2, 0, 0, np.nan]],
        [],
    ],
)
def test_an_encoder_checks_what_it_asks(asked):
    with pytest.raises((InvalidInput, ValueError)):
        pair_encoder("moments", "normalise")(WEIGHTS, BIASES, asked)


def test_torch_computes_the_same():
    torch = pytest.importorskip("torch")
    from offaxis.vectors import moved

    row = rows_of(Z, SEVERAL, {"a": [2] * 40, "b": [1.0] * 40, "c": [None] * 40, "d": [0.2] * 40})
    several, table = encoder_of("moments", *SEVERAL), encoder_of("cells", Classes(3))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        for encoder, batch in ((several, row), (table, np.column_stack([Z, np.arange(40) % 3]))):
            tensor = torch.tensor(batch)
            computed = moved(encoder, tensor).encode(tensor).numpy()
            np.testing.assert_allclose(computed, encoder.encode(batch), atol=1e-12)


# ---- Answers


def test_classes_are_given_by_name_or_index():
    asked = Classes(["no", "yes"])
    for answers in (["no", "yes"], [0, 1], np.array(["no", "yes"]), np.array([0, 1]), ("no", 1)):
        assert asked.codes_of(answers).tolist() == [0.0, 1.0]
    assert Classes(3).codes_of(["2", 1]).tolist() == [2.0, 1.0]
    assert Classes(["a", "b"], optional=True).codes_of([None, "b"]).tolist() == [NO_ANSWER, 1.0]
    assert Classes(["ü", "日本", "🙂 "]).codes_of(["🙂 ", "日本"]).tolist() == [2.0, 1.0]


def test_a_name_that_looks_like_another_index_is_not_confused():
    asked = Classes(["1", "0"])
    assert asked.codes_of(["1", "0"]).tolist() == [0.0, 1.0]
    with pytest.raises(InvalidInput, match="pass names"):
        asked.codes_of([1])


def test_numbers_are_clipped_to_the_range():
    asked = Number(-1, 3, optional=True)
    assert asked.codes_of([-9, -1.0, 0.5, np.float32(3), 1e308, None]).tolist() == [
        -1.0,
        -1.0,
        0.5,
        3.0,
        3.0,
        NO_ANSWER,
    ]
    assert asked.codes_of([10**400]).tolist() == [3.0]


@pytest.mark.parametrize(
    ("low", "high"), [(0, 5e-324), (0, 1e-300), (-1e20, 1e20), (1e20 - 2e4, 1e20)]
)
def test_tiny_huge_and_far_ranges_have_their_ends_at_one(low, high):
    encoder = encoder_of("moments", Number(low, high))
    x = NETWORK.outputs(Z[:1])
    with np.errstate(all="ignore"):
        for value, code in ((low, -1), (high, 1), (NO_ANSWER, 0)):
            u = encoder.encode(np.column_stack([Z[:1], [value]]))
            np.testing.assert_allclose(u, code * x, atol=1e-9)


@pytest.mark.parametrize(
    "names", [1, 0, -3, True, 2.0, None, "ab", [], ["a"], ["a", "a"], ["a", ""], ["a", "b" * 201]]
)
def test_names_of_classes_are_checked(names):
    with pytest.raises(InvalidInput):
        Classes(names)


def test_the_number_of_classes_is_limited():
    assert len(Classes(MOST_SYMBOLS).names) == MOST_SYMBOLS
    with pytest.raises(InvalidInput, match=f"up to {MOST_CLASSES} classes"):
        pair_encoder("moments", "relu")(
            [np.eye(2)], [np.zeros(2)], table_of([Classes(MOST_CLASSES + 1)])
        )
    for names in (MOST_SYMBOLS + 1, [str(i) for i in range(MOST_SYMBOLS + 1)]):
        with pytest.raises(InvalidInput, match=str(MOST_SYMBOLS)):
            Classes(names)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (1, 1),
        (2, 1),
        (0, np.inf),
        (np.nan, 1),
        (-1e21, 0),
        (0, 1e21),
        ("0", 1),
        (True, 2),
        (0, None),
    ],
)
def test_ranges_are_checked(low, high):
    with pytest.raises(InvalidInput):
        Number(low, high)


def test_what_is_asked_is_checked():
    for wrong in ({"name": ""}, {"name": "a" * 201}, {"name": 3}, {"optional": 1}):
        with pytest.raises(InvalidInput):
            Classes(2, **wrong)
        with pytest.raises(InvalidInput):
            Number(0, 1, **wrong)
    for answers in ("ab", [], ["a"], 1, True, 2.5, {"a": 1}, [Classes(2), 3], object()):
        with pytest.raises(InvalidInput):
            as_asked(answers)
    with pytest.raises(InvalidInput, match="different names"):
        as_asked([Classes(2), Number(0, 1)])
    assert as_asked(None) == ()
    assert as_asked(["a", "b"]) == (Classes(("a", "b")),)
    assert as_asked(np.int64(4)) == (Classes(4),)


SECRET = "a-private-answer"


@pytest.mark.parametrize(
    ("asked", "answers"),
    [
        (Classes(2), [SECRET]),
        (Classes(2), SECRET),
        (Classes(2), [[SECRET]]),
        (Classes(2), [{SECRET}]),
        (Classes(2), [87654321]),
        (Classes(2), [10**400]),
        (Classes(2), [-87654321]),
        (Classes(2), [0.87654321]),
        (Classes(2), np.array([87654321])),
        (Classes(2), [np.nan]),
        (Classes(2), [None]),
        (Classes(2), [SECRET, SECRET]),
        (Classes(2), []),
        (Classes(2), {SECRET: [1]}),
        (Number(0, 1), [SECRET]),
        (Number(0, 1), SECRET),
        (Number(0, 1), [np.nan]),
        (Number(0, 1), [np.inf]),
        (Number(0, 1), [87654321j]),
        (Number(0, 1), [True]),
        (Number(0, 1), [None]),
        (Number(0, 1), np.array([[87654321.0]])),
    ],
)
def test_a_wrong_answer_is_an_error_that_does_not_contain_it(asked, answers):
    release = fit_pairs(principal(PUBLIC), asked, epsilon=1)
    with pytest.raises(InvalidInput) as caught:
        release.privatize(Z[:1], answers=answers)
    assert SECRET not in str(caught.value)
    assert "87654321" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("asked", "answer"), [(Classes(2), np.array(1)), (Number(0, 1), np.array(1))]
)
def test_one_answer_may_be_an_array_without_dimensions(asked, answer):
    """An entry of a torch tensor of labels is one."""
    assert fit_pairs(principal(PUBLIC), asked, epsilon=1).pairs(Z[0], answer).shape == (4,)


@pytest.mark.parametrize("names", [{"names": ["a", "\ud800"]}, {"names": 2, "name": "\ud800"}])
def test_a_name_that_is_no_text_is_an_error(names):
    with pytest.raises(InvalidInput):
        _ = fit_pairs(principal(PUBLIC), Classes(**names), epsilon=1).hash


def test_a_wrong_vector_is_an_error_that_does_not_contain_it():
    release = fit_pairs(principal(PUBLIC), 2, epsilon=1)
    for vectors in ([0.87654321, np.nan, 0.87654321], [0.87654321] * 7, [[0.87654321] * 3] * 2):
        with pytest.raises(InvalidInput) as caught:
            release.privatize(vectors, answers=1)
        assert "87654321" not in str(caught.value)


def test_answers_come_from_any_table():
    pandas = pytest.importorskip("pandas")
    arrow = pytest.importorskip("pyarrow")
    torch = pytest.importorskip("torch")
    asked = Classes(["no", "yes"])
    names = ["no", "yes", "yes"]
    codes = [0.0, 1.0, 1.0]
    for answers in (
        pandas.Series(names, index=[7, 8, 9]),
        pandas.Series(names, dtype="category"),
        arrow.array(names),
        torch.tensor([0, 1, 1]),
        (name for name in names),
    ):
        assert asked.codes_of(answers).tolist() == codes
    release = fit_pairs(principal(PUBLIC), asked, epsilon=1)
    for vectors in (
        pandas.DataFrame(Z[:3]),
        torch.tensor(Z[:3], dtype=torch.float32),
        np.asfortranarray(np.float32(Z[:3])),
        np.repeat(Z[:3], 2, axis=1)[:, ::2],
        Z[:3].tolist(),
    ):
        row = release.pairs(vectors, names)
        np.testing.assert_allclose(row, np.column_stack([Z[:3], codes]), rtol=1e-6)


def test_several_answers_are_a_mapping_with_their_names():
    asked = (Classes(2, name="a"), Number(0, 1, name="b"))
    row = rows_of(Z[:2], asked, {"b": [0.5, 2.0], "a": [1, 0]})
    np.testing.assert_array_equal(row[:, 3:], [[1, 0.5], [0, 1.0]])
    for wrong in ([1, 0], {"a": [1, 0]}, {"a": [1, 0], "b": [1, 0], "c": [1, 0]}, None):
        with pytest.raises(InvalidInput):
            rows_of(Z[:2], asked, wrong)
    with pytest.raises(InvalidInput, match="2 vectors and 1"):
        rows_of(Z[:2], asked, {"a": [1], "b": [1, 0]})
    with pytest.raises(InvalidInput, match="asks for no answer"):
        rows_of(Z[:2], (), [1, 0])


def test_one_vector_has_one_answer():
    release = fit_pairs(principal(PUBLIC), ["no", "yes"], epsilon=1)
    assert release.pairs(Z[0], "yes").tolist() == [*Z[0], 1.0]
    assert isinstance(release.privatize(Z[0], answers=1), bytes)
    assert isinstance(release.privatize(release.pairs(Z[0], "no")), bytes)
    plain = offaxis.fit(None, PUBLIC, epsilon=1, goal="means")
    with pytest.raises(InvalidInput, match="asks for no answer"):
        plain.privatize(Z[0], answers=1)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (Classes(600), "'answer' has at most 512 classes, got 600: offaxis.learning.fit_answers"),
        (Number(0, 1, name="age", bins=8), "'age' has no bins"),
    ],
)
def test_answers_that_are_not_asked_with_a_vector_say_what_to_use(asked, message):
    features = principal(np.random.default_rng(0).standard_normal((100, 3)))
    with pytest.raises(InvalidInput, match=message):
        fit_pairs(features, asked, epsilon=1)
