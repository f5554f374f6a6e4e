"""Class response: reports agree with the model as often as any pure report can."""

from __future__ import annotations

import logging
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest

import offaxis
from offaxis.decoding import CodewordDecoder
from offaxis.encoding.encoders import ANSWERS
from offaxis.errors import InvalidInput, ModelNeeded
from offaxis.geometry import FiniteDifferences, Layers, measure
from offaxis.geometry.layers import ACTIVATIONS
from offaxis.geometry.public import PublicVectors
from offaxis.mechanisms.answers import kept_answers
from offaxis.simulation import simulate
from tests.checks import ALPHA

RNG = np.random.default_rng(21)
PUBLIC = RNG.standard_normal((3000, 6)) * 2


def head(activation="relu", outputs=5, shift=0.0):
    rng = np.random.default_rng(4)
    weights = [rng.standard_normal(shape) for shape in ((8, 6), (7, 8), (outputs, 7))]
    biases = [rng.standard_normal(len(w)) for w in weights]
    # Centred, so that every answer occurs.
    usual = np.median(Layers(weights, biases, activation=activation).outputs(PUBLIC), axis=0)
    biases[-1] = biases[-1] - usual - shift * np.arange(outputs)
    return Layers(weights, biases, activation=activation)


def fitted(model, epsilon=3, public=PUBLIC, **settings):
    return offaxis.fit(model, public, epsilon=epsilon, mechanism="class-response", **settings)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_symbol_is_the_answer_and_decodes_to_a_vector_with_this_answer(activation, tmp_path):
    task = head(activation)
    release = fitted(task, epsilon=8)
    release.save(tmp_path / "some.release")
    loaded = offaxis.load(tmp_path / "some.release", expect=release.hash)
    assert type(loaded.encoder) is ANSWERS[activation]
    assert isinstance(loaded.decoder, CodewordDecoder)
    answers = task.outputs(PUBLIC).argmax(axis=1)
    kept = np.unique(answers)
    np.testing.assert_array_equal(kept[loaded.encoder.encode(PUBLIC)], answers)
    np.testing.assert_array_equal(task.outputs(loaded.decoder.codewords).argmax(axis=1), kept)
    shares = np.bincount(answers, minlength=5)[kept] / len(PUBLIC)
    np.testing.assert_allclose(loaded.decoder.prior, shares)


def test_reports_agree_with_the_model_as_often_as_stated():
    task = head()
    release = fitted(task, epsilon=2)
    answers = task.outputs(PUBLIC).argmax(axis=1)
    decoded = release.decode(release.privatize(PUBLIC))
    agreement = (task.outputs(decoded).argmax(axis=1) == answers).mean()
    expected = release.randomizer.own_chance * release.decoder.prior.sum()
    assert abs(agreement - expected) < 5 * np.sqrt(expected * (1 - expected) / len(PUBLIC))


def test_codewords_are_means_unless_the_mean_has_another_answer():
    # Class 1 is the region outside |x| < 1: its mean is inside.
    weights = [np.array([[1.0, 0], [-1.0, 0]]), np.array([[0.0, 0], [1, 1]])]
    task = Layers(weights, [np.array([0.0, 0]), np.array([1.0, 0])])
    public = np.random.default_rng(3).uniform(-3, 3, (2000, 2))
    release = fitted(task, public=public)
    inside = np.abs(public[:, 0]) <= 1
    first, second = release.decoder.codewords
    np.testing.assert_allclose(first, public[inside].mean(axis=0))
    outer = public[~inside]
    nearest = ((outer - outer.mean(axis=0)) ** 2).sum(axis=1).argmin()
    np.testing.assert_array_equal(second, outer[nearest])
    assert task.outputs(release.decoder.codewords).argmax(axis=1).tolist() == [0, 1]


def ceiling(shares, epsilon):
    shares = np.sort(shares)[::-1]
    sizes = np.arange(1, shares.size + 1)
    return np.exp(epsilon) * np.cumsum(shares) / (np.exp(epsilon) + sizes - 1)


def test_rare_answers_are_dropped_exactly_where_they_lower_the_agreement():
    shares = np.array([0.02, 0.45, 0.0, 0.03, 0.4, 0.1])
    for epsilon in (0.1, 0.5, 1, 2, 3, 5, 8):
        agreements = ceiling(shares, epsilon)[:5]
        kept = kept_answers(shares, epsilon)
        assert kept.size == 2 + agreements[1:].argmax()
        assert shares[kept].sum() == pytest.approx(np.sort(shares)[::-1][: kept.size].sum())
    assert kept_answers(shares, 0.5).tolist() == [1, 4]
    assert kept_answers(shares, 8).tolist() == [0, 1, 3, 4, 5]
    assert kept_answers(np.array([0.99, 0.01]), 0.1).size == 2
    # With equal shares no answer is rare; a tie keeps the fewest.
    assert kept_answers(np.full(4, 0.25), 3).size == 4


def test_skewed_answers_reach_the_ceiling_and_exceed_response_over_all():
    places = np.eye(10) * 6
    shares = np.array([0.34, 0.3, 0.2, *[0.16 / 7] * 7])
    labels = np.random.default_rng(5).choice(10, 40_000, p=shares)
    public = places[labels] + np.random.default_rng(6).standard_normal((40_000, 10))
    task = Layers.linear(places, -(places**2).sum(axis=1) / 2)
    release = fitted(task, epsilon=1, public=public)
    assert release.randomizer.size == 3
    answers = task.outputs(public).argmax(axis=1)
    decoded = simulate(release, public, np.random.default_rng(7))
    agreement = (task.outputs(decoded).argmax(axis=1) == answers).mean()
    observed = np.bincount(answers, minlength=10) / answers.size
    assert agreement == pytest.approx(ceiling(observed, 1).max(), abs=0.013)  # five deviations
    assert agreement > ceiling(observed, 1)[-1] + 0.1
    # A client with a rare answer sends the kept answer with the largest output.
    rare = answers > 2
    substitutes = task.outputs(public[rare])[:, :3].argmax(axis=1)
    np.testing.assert_array_equal(release.encoder.encode(public[rare]), substitutes)
    assert fitted(task, epsilon=8, public=public).randomizer.size == 10


def test_an_answer_that_no_public_vector_has_is_an_error():
    model = Layers([np.eye(6)[:3]], [np.array([0.0, 0.0, -100.0])], answers=("a", "b", "c"))
    with pytest.raises(
        InvalidInput, match=r"no public vector has the answer 'c' \(1 of 3 answers\)"
    ):
        offaxis.fit(model, PUBLIC, epsilon=2)
    with pytest.raises(InvalidInput, match="no public vector has the answer 'c'"):
        offaxis.recommend(model, PUBLIC, epsilon=2)
    assert fitted(model).randomizer.size == 2, "a named mechanism leaves it out"


def test_a_linear_model_of_any_kind_is_accepted():
    weight = np.random.default_rng(1).standard_normal((3, 6))
    plain = fitted(weight)
    assert plain.encoder.kind == "argmax"
    function = fitted(FiniteDifferences(lambda Z: Z @ weight.T + 0.5))
    np.testing.assert_array_equal(plain.encoder.encode(PUBLIC), function.encoder.encode(PUBLIC))
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(6, 3)
    answers = module(torch.tensor(PUBLIC, dtype=torch.float32)).argmax(dim=1).numpy()
    assert (fitted(module, epsilon=9).encoder.encode(PUBLIC) == answers).mean() > 0.999


def test_a_geometry_has_no_answers():
    with pytest.raises(InvalidInput, match="pass the model, not its geometry"):
        fitted(measure(head(), PublicVectors(PUBLIC)))


def squares(Z):
    """A model that no network of the release format represents."""
    return np.stack([Z[:, 0] ** 2, Z[:, 1], np.abs(Z[:, 2]) - 1], axis=1)


def test_a_model_that_the_file_cannot_hold_is_supplied_by_the_device(tmp_path):
    release = fitted(squares, epsilon=6)
    assert release.encoder.kind == "model-answer"
    np.testing.assert_array_equal(
        release.encoder.encode(PUBLIC), squares(PUBLIC).argmax(axis=1), "all answers are kept"
    )
    release.save(tmp_path / "my.release")
    alone = offaxis.load(tmp_path / "my.release")
    assert alone == release
    with pytest.raises(ModelNeeded, match=r"offaxis\.load\(path, model=…\)"):
        alone.privatize(PUBLIC[0])
    with_model = offaxis.load(tmp_path / "my.release", model=squares)
    reported = with_model.decode(with_model.privatize(PUBLIC[:500]))
    share = (squares(reported).argmax(axis=1) == squares(PUBLIC[:500]).argmax(axis=1)).mean()
    p = math.exp(6) / (math.exp(6) + 2)
    assert binomtest(round(500 * share), 500, p).pvalue > ALPHA


def test_another_model_is_rejected(tmp_path):
    release = fitted(squares, epsilon=6)
    release.save(tmp_path / "my.release")

    def cubes(Z):
        return squares(Z) ** 3

    with pytest.raises(InvalidInput, match="this is another model: the release reports"):
        offaxis.load(tmp_path / "my.release", model=cubes)
    other = FiniteDifferences(lambda Z: -squares(Z), name="squares")
    with pytest.raises(InvalidInput, match="codewords another answer"):
        offaxis.load(tmp_path / "my.release", model=other)
    with pytest.raises(InvalidInput, match="load it without a model"):
        fitted(head()).with_model(head())


@pytest.mark.parametrize(
    "answer",
    [
        lambda Z: np.full(len(Z), 3),
        lambda Z: np.full(len(Z), -1),
        lambda Z: np.zeros(len(Z)),
        lambda Z: np.zeros(len(Z) + 1, dtype=int),
        lambda Z: 1 // 0,
    ],
)
def test_a_model_that_fails_on_the_device_reports_a_fixed_answer(answer, caplog):
    """A device that made no report would reveal that the model fails on its vector."""
    release = fitted(squares, epsilon=1)
    broken = replace(release, encoder=release.encoder.attach(answer))
    reports = broken.privatize(PUBLIC[:2000])
    hits = int((release.observe(reports).argmax(axis=1) == 0).sum())
    others = release.randomizer.size - 1
    assert binomtest(hits, 2000, math.e / (math.e + others)).pvalue > ALPHA
    # The broken control: a uniform symbol.
    assert binomtest(hits, 2000, 1 / (1 + others)).pvalue < ALPHA
    assert "failed on 2000 of 2000 vectors" in caplog.text


def test_a_model_sees_one_private_vector_at_a_time():
    """A model that uses statistics of its batch would report other people's vectors."""
    sizes = []

    def answer(Z):
        sizes.append(len(Z))
        Z[:] = np.nan  # nor can it change them
        return np.zeros(len(Z), dtype=int)

    release = fitted(squares, epsilon=1)
    private = PUBLIC[:50].copy()
    replace(release, encoder=release.encoder.attach(answer)).privatize(private)
    assert sizes == [1] * 50
    assert np.array_equal(private, PUBLIC[:50])


def test_an_answer_is_reported_without_a_vector():
    """The law of the reports is that of k-ary response, from the index and from the name."""
    release = fitted(squares, epsilon=1)
    named = replace(release, answers=replace(release.answers, names=("a", "b", "c")))
    symbol = release.answers.symbols[1]
    p = math.e / (math.e + release.randomizer.size - 1)
    for answers in ([1] * 2000, ["b"] * 2000):
        reported = named.observe(named.privatize_answer(answers)).argmax(axis=1)
        hits = int((reported == symbol).sum())
        assert binomtest(hits, 2000, p).pvalue > ALPHA
        # The broken control: a report at twice the budget.
        broken = math.e**2 / (math.e**2 + release.randomizer.size - 1)
        assert binomtest(hits, 2000, broken).pvalue < ALPHA
    assert len(named.privatize_answer("c")) == named.report_size


@pytest.mark.parametrize("answer", [3, -1, "d", 1.0, True, None, [0, 7], []])
def test_an_answer_that_does_not_exist_is_rejected_without_naming_it(answer):
    release = fitted(squares, epsilon=6)
    with pytest.raises(InvalidInput) as error:
        release.privatize_answer(answer)
    assert "'d'" not in str(error.value)
    with pytest.raises(InvalidInput, match="reports a vector with the privunit2 randomizer"):
        offaxis.fit(None, PUBLIC, epsilon=1, goal="means").privatize_answer(0)


def test_rare_answers_share_a_symbol_and_a_name():
    weight = np.random.default_rng(1).standard_normal((6, 6))
    bias = np.array([0.0, 0.0, 0.0, 0.0, -3.0, -3.0])
    release = fitted(Layers([weight], [bias], answers=tuple("abcdef")), epsilon=0.2)
    answers = release.answers
    assert answers.names == tuple("abcdef")
    assert len(answers.kept) == release.randomizer.size < 6
    for answer, symbol in enumerate(answers.symbols):
        assert (
            answers.names[answer] in answers.symbol_names[symbol]
            or "others" in (answers.symbol_names[symbol])
        )


@pytest.mark.parametrize("model", [np.ones((1, 6)), np.array([[0.0] * 6, [1e-9] + [0.0] * 5])])
def test_a_model_with_one_answer_has_no_class_codebook(model):
    with pytest.raises(InvalidInput, match="the same answer on all public vectors"):
        fitted(model, public=np.abs(PUBLIC))


def test_neither_an_exit_nor_a_log_handler_prevents_a_report():
    def leave(Z):
        raise SystemExit

    class Broken(logging.Handler):
        def emit(self, record):
            raise OSError

    release = fitted(squares, epsilon=1)
    logger, handler = logging.getLogger("offaxis.encoding.answers"), Broken()
    logger.addHandler(handler)
    try:
        reports = replace(release, encoder=release.encoder.attach(leave)).privatize(PUBLIC[:5])
    finally:
        logger.removeHandler(handler)
    assert len(reports) == 5
