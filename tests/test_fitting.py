"""Fitting: errors name the value and the fix, settings have an effect, reshaping helps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.linear_model import LinearRegression

import offaxis
from offaxis.decoding import LinearDecoder, ShiftDecoder
from offaxis.encoding import AffineEncoder, ShiftEncoder
from offaxis.errors import InvalidInput, UnsupportedModel
from offaxis.geometry import CentredOutputs, Layers, PublicVectors, measure
from offaxis.mechanisms import NAMES, find_mechanism
from offaxis.randomizers import Laplace
from offaxis.simulation import simulate


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0}, "epsilon must be positive"),
        ({"epsilon": -1}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"epsilon": float("inf")}, "epsilon"),
        ({"epsilon": None}, "epsilon"),
        ({"mechanism": "lapalce"}, "no mechanism 'lapalce'; did you mean 'laplace'"),
        ({"mechanism": "noise"}, "no mechanism 'noise'; choose one of laplace, gaussian,"),
        ({"mechanism": 7}, "no mechanism 7; choose one of"),
        ({"mechanism": None, "percentile": 90}, "percentile=90 is a setting of a mechanism"),
        ({"mechanism": None, "model": None}, "without a model there are no answers to keep"),
        ({"goal": "answers"}, "a goal chooses the mechanism"),
        ({"mechanism": None, "goal": "colour"}, "goal must be"),
        ({"epsilon": "two"}, "must be a finite number such as 0.1 or '1/3', got epsilon='two'"),
        ({"model": np.ones((6, 3))}, r"\(outputs, inputs\); did you mean its transpose, model.T"),
        ({"mechanism": "gaussian"}, "needs delta"),
        ({"mechanism": "gaussian", "delta": 0}, "delta"),
        ({"mechanism": "gaussian", "delta": 1.0}, "delta"),
        ({"delta": 1e-5}, "takes no delta"),
        ({"percentile": 0}, "percentile"),
        ({"percentile": 0.9}, "nine of ten"),
        ({"percentile": "90"}, "percentile"),
        ({"statement": None}, "statement"),
        ({"statement": "x" * 10_001}, "statement"),
        ({"public": lambda: iter([])}, "empty"),
        ({"public": lambda: np.ones((20, 6))}, "arrays"),
        ({"public": "public.npy"}, "real numbers"),
        ({"reshaping": offaxis.Jacobian(lambda_max=1)}, "lambda_max"),
        ({"reshaping": offaxis.Jacobian(order=0)}, "order"),
        ({"reshaping": "pca"}, r"reshaping must be one of .* or an Optimal\(...\), got 'pca'"),
        ({"reshaping": offaxis.Jacobian}, "reshaping must be one of"),
        ({"reshaping": offaxis.Optimal(rank=9)}, "rank must be an integer from 1 to"),
        ({"unit": "person"}, "unit"),
        ({"public": np.ones((5, 6))}, "at least 10"),
        ({"public": np.ones((0, 6))}, "empty"),
        ({"public": np.full((20, 6), np.inf)}, "finite"),
        ({"public": np.ones((20, 4))}, "dimension"),
        ({"model": Layers.linear(np.zeros((2, 6)))}, "Jacobian is zero"),
        ({"model": np.full((2, 6), np.nan)}, "finite"),
    ],
)
def test_an_error_names_the_value_and_the_fix(head, public, change, message):
    arguments = {"model": head, "public": public, "epsilon": 1, "mechanism": "laplace"} | change
    with pytest.raises(InvalidInput, match=message):
        offaxis.fit(arguments.pop("model"), arguments.pop("public"), **arguments)


@pytest.mark.parametrize("kind", ["torch", "layers", "geometry", "sklearn"])
def test_swapped_arguments_are_an_error(head, public, kind):
    models = {
        "torch": lambda: torch.nn.Sequential(torch.nn.Linear(6, 3)),
        "layers": lambda: head,
        "geometry": lambda: measure(head, PublicVectors(public)),
        "sklearn": lambda: LinearRegression().fit(public, public[:, 0]),
    }
    model = models[kind]()
    with pytest.raises(InvalidInput, match="did you swap the arguments"):
        offaxis.fit(public, model, epsilon=1, mechanism="laplace")
    # The same two in the right order.
    assert offaxis.fit(model, public, epsilon=1, mechanism="laplace").input_dim == 6


def test_a_missing_model_is_an_error_unless_none_is_needed(public):
    with pytest.raises(UnsupportedModel):
        offaxis.fit(None, public, epsilon=1, mechanism="laplace")
    assert (
        offaxis.fit(None, public, epsilon=1, reshaping="none", mechanism="laplace").provenance.model
        is None
    )


def test_plain_use_has_no_centre_and_no_map(public):
    plain = offaxis.fit(
        None, public, epsilon=1, reshaping="none", percentile=50, mechanism="laplace"
    )
    assert isinstance(plain.randomizer, Laplace)
    assert isinstance(plain.encoder, ShiftEncoder)
    assert plain.randomizer.radius == pytest.approx(np.median(np.abs(public).sum(axis=1)))
    assert not plain.encoder.centre.any()


def test_centring_alone_needs_no_model(public):
    centred = offaxis.fit(
        None, public, epsilon=1, reshaping="centre", percentile=50, mechanism="laplace"
    )
    deviations = public - public.mean(axis=0)
    assert isinstance(centred.randomizer, Laplace)
    assert isinstance(centred.decoder, ShiftDecoder)
    assert centred.randomizer.radius == pytest.approx(np.median(np.abs(deviations).sum(axis=1)))
    assert np.allclose(centred.decoder.offset, public.mean(axis=0))
    assert centred.provenance.model is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mechanism": "class-response", "percentile": 90}, "changes nothing for 'class-response'"),
        ({"mechanism": "class-response", "percentile": "ninety"}, "percentile changes nothing"),
        ({"mechanism": "response", "percentile": 50}, "percentile changes nothing"),
        (
            {"mechanism": "instance-optimal", "delta": 1e-5, "percentile": 50},
            "percentile changes nothing",
        ),
        ({"mechanism": "class-response", "reshaping": "jacobian"}, "changes nothing"),
        ({"mechanism": "task-aware", "reshaping": "none"}, "changes nothing"),
        ({"mechanism": "response", "reshaping": "optimal"}, "works in the task's metric"),
        ({"mechanism": "subset", "reshaping": offaxis.Jacobian(lambda_max=2)}, "task's metric"),
        ({"mechanism": "response", "reshaping": offaxis.Optimal(rank=2)}, "task's metric"),
        ({"mechanism": "laplace", "size": 3}, "'laplace' takes no size"),
        ({"mechanism": "privunit2", "delta": 1e-5}, "takes no delta"),
    ],
)
def test_a_setting_without_effect_is_an_error(head, public, settings, message):
    with pytest.raises(InvalidInput, match=message):
        offaxis.fit(head, public, epsilon=1, **settings)


@pytest.mark.parametrize("name", ["lambda_max", "order", "allocation", "rank", "randomizer"])
def test_settings_of_a_reshaping_are_not_arguments_of_fit(head, public, name):
    setting: dict[str, Any] = {name: 1}
    with pytest.raises(TypeError, match=name):
        offaxis.fit(head, public, epsilon=1, **setting)


@pytest.mark.parametrize(
    ("kind", "setting", "message"),
    [
        (offaxis.Jacobian, {"lambda_max": "big"}, "lambda_max must be a number"),
        (offaxis.Jacobian, {"order": "two"}, "order must be a number"),
        (offaxis.Jacobian, {"allocation": "half"}, "allocation must be 'capped' or 'gap'"),
        (offaxis.Optimal, {"rank": 0}, "rank must be an integer of at least 1"),
        (offaxis.Optimal, {"rank": "2"}, "rank must be an integer"),
    ],
)
def test_a_reshaping_checks_its_settings(kind, setting, message):
    with pytest.raises(InvalidInput, match=message):
        kind(**setting)


def test_the_default_order_is_that_of_the_randomizers_norm(head, public):
    settings = {
        name: offaxis.fit(head, public, epsilon=1, mechanism=name).provenance.settings
        for name in ("laplace", "privunit2")
    }
    assert settings["laplace"]["order"] == 1
    assert settings["privunit2"]["order"] == 2
    paper = offaxis.fit(
        head, public, epsilon=1, mechanism="privunit2", reshaping=offaxis.Jacobian(order=1)
    )
    assert paper.provenance.settings["order"] == 1


def test_a_measured_geometry_can_be_reused(head, public):
    geometry = measure(head, PublicVectors(public))
    assert offaxis.fit(geometry, public, epsilon=1, mechanism="laplace") == offaxis.fit(
        head, public, epsilon=1, mechanism="laplace"
    )


def test_a_geometry_of_other_vectors_is_an_error(head, public):
    geometry = measure(head, PublicVectors(public))
    for other in (public[:-1], public[:, :4]):
        with pytest.raises(InvalidInput, match="not the ones the map was fitted to"):
            offaxis.fit(geometry, other, epsilon=1, mechanism="laplace")


def test_a_function_must_return_the_same_vectors_on_every_pass(head, public):
    rng = np.random.default_rng(0)
    with pytest.raises(InvalidInput, match="on every pass"):
        offaxis.fit(head, lambda: [public * rng.random()], epsilon=1, mechanism="laplace")
    used_up = iter([public])
    with pytest.raises(InvalidInput):
        offaxis.fit(head, lambda: used_up, epsilon=1, mechanism="laplace")


def test_provenance_identifies_the_public_data_and_the_model(head, public):
    release = offaxis.fit(
        head, public, epsilon=1, statement="open survey of 2024", mechanism="laplace"
    )
    provenance = release.provenance
    assert provenance.public.count == len(public)
    assert provenance.model == head.identity()
    assert provenance.statement == "open survey of 2024"


def test_public_vectors_may_be_a_function_of_batches(head, public):
    streamed = offaxis.fit(
        head, lambda: iter(np.array_split(public, 7)), epsilon=1, mechanism="laplace"
    )
    whole = offaxis.fit(head, public, epsilon=1, mechanism="laplace")
    assert isinstance(streamed.encoder, AffineEncoder)
    assert isinstance(whole.encoder, AffineEncoder)
    assert np.allclose(streamed.encoder.matrix, whole.encoder.matrix, atol=1e-9)
    assert streamed.provenance.public == whole.provenance.public


def test_a_torch_module_and_its_plain_weights_give_the_same_map(head, public):
    layers = [torch.nn.Linear(w.shape[1], w.shape[0]) for w in head.weights]
    parts = [part for layer in layers for part in (layer, torch.nn.ReLU())]
    module = torch.nn.Sequential(*parts[:-1]).double()
    with torch.no_grad():
        for layer, w, b in zip(layers, head.weights, head.biases, strict=True):
            layer.weight.copy_(torch.as_tensor(np.array(w)))
            layer.bias.copy_(torch.as_tensor(np.array(b)))
    from_layers, from_torch = (
        offaxis.fit(m, public, epsilon=1, mechanism="laplace") for m in (head, module)
    )
    assert isinstance(from_layers.encoder, AffineEncoder)
    assert isinstance(from_torch.encoder, AffineEncoder)
    assert np.allclose(from_layers.encoder.matrix, from_torch.encoder.matrix, atol=1e-8)


def test_reshaping_improves_the_task():
    """On a small task, agreement with the answer without noise rises."""
    rng = np.random.default_rng(0)
    public = rng.standard_normal((1000, 24))
    task = Layers.linear(np.eye(24)[:3])
    clean = task.outputs(public).argmax(1)

    def agreement(name, **settings):
        release = offaxis.fit(task, public, epsilon=6, mechanism=name, **settings)
        answers = [task.outputs(simulate(release, public, rng)).argmax(1) for _ in range(10)]
        return np.mean([(answer == clean).mean() for answer in answers])

    for name in ("laplace", "privunit2", "privunitg"):
        # 10,000 answers: the standard error is below 0.005.
        assert agreement(name) > agreement(name, reshaping="none") + 0.05


def test_a_statement_that_no_file_can_store_is_an_error(public):
    with pytest.raises(InvalidInput, match="UTF-8"):
        offaxis.fit(
            None,
            public,
            epsilon=1,
            reshaping="none",
            statement="half a pair: \ud800",
            mechanism="laplace",
        )
    kept = offaxis.fit(
        None, public, epsilon=1, reshaping="none", statement="aus Zürich, 東京", mechanism="laplace"
    )
    assert kept.provenance.statement == "aus Zürich, 東京"


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in NAMES
        if find_mechanism(name).reshaping == "coordinates" and name != "task-aware-network"
    ],
)
def test_every_mechanism_of_coordinates_takes_the_optimal_reshaping(head, public, name, tmp_path):
    """The network is left out because training is slow; it gets its frame like the others."""
    delta: dict[str, Any] = {"delta": 1e-5} if find_mechanism(name).needs_delta else {}
    release = offaxis.fit(head, public, epsilon=2, mechanism=name, reshaping="optimal", **delta)
    rank = release.provenance.settings["rank"]
    assert isinstance(rank, float)
    assert 1 <= rank <= 5
    release.save(tmp_path / "a.release")
    assert offaxis.load(tmp_path / "a.release") == release
    assert release.decode(release.privatize(public[:2])).shape == (2, 6)


@pytest.mark.parametrize("name", ["laplace", "privunit2", "privunitg", "projunit", "duchi"])
def test_a_report_may_hold_a_single_direction(head, public, name):
    rng = np.random.default_rng(0)
    release = offaxis.fit(
        head, public, epsilon=8, mechanism=name, reshaping=offaxis.Optimal(rank=1), percentile=50
    )
    assert release.provenance.settings["rank"] == 1
    assert release.encoder.output_dim == 1
    w = release.encoder.encode(public)[:, 0]
    reported = release.decode(release.privatize(public))
    decoded = release.encoder.encode(reported)[:, 0]
    # Decoded vectors are on a line through the public mean, mostly on the vector's side: at ε = 8
    # a sign is wrong with probability 0.0004, and other noise flips only those near the mean.
    assert isinstance(release.decoder, LinearDecoder)
    line = np.outer(decoded, release.decoder.matrix[:, 0])
    assert np.allclose(reported - public.mean(axis=0), line)
    assert (np.sign(decoded) == np.sign(w)).mean() > 0.7
    simulated = release.encoder.encode(simulate(release, public, rng))[:, 0]
    assert (np.sign(simulated) == np.sign(w)).mean() > 0.7


def test_a_measured_geometry_can_be_reused_for_the_optimal_reshaping(head, public):
    geometry = measure(head, PublicVectors(public))
    for name in ("laplace", "privunit2"):
        reused, measured = (
            offaxis.fit(m, public, epsilon=1, mechanism=name, reshaping=offaxis.Optimal(rank=2))
            for m in (geometry, head)
        )
        assert reused == measured


def test_the_optimal_reshaping_is_better_where_vectors_vary_unevenly():
    """The Jacobian alone does not know along which of its directions vectors hardly vary."""
    rng = np.random.default_rng(0)
    rotation = np.linalg.qr(rng.standard_normal((24, 24)))[0]
    public = (rng.standard_normal((4000, 24)) * np.logspace(0, -2, 24)) @ rotation
    task = CentredOutputs(rng.standard_normal((8, 24)))
    clean = task.outputs(public).argmax(1)

    def agreement(name, **shape):
        release = offaxis.fit(task, public, epsilon=6, mechanism=name, **shape)
        return (task.outputs(simulate(release, public, rng)).argmax(1) == clean).mean()

    for name in ("laplace", "privunit2"):
        # 4,000 answers: the standard error is below 0.008.
        assert agreement(name, reshaping=offaxis.Optimal(rank=3)) > agreement(name) + 0.05


# ---- What a default is expected to keep

RNG = np.random.default_rng(7)
CLUSTERS = 3 * np.eye(4, 6)[RNG.integers(0, 4, 4000)] + RNG.standard_normal((4000, 6))
PLACES = Layers.linear(3 * np.eye(4, 6))


def recorded(release: offaxis.Release) -> tuple[float, float]:
    settings = release.provenance.settings
    return float(settings["expected"]), float(settings["ceiling"])


@pytest.mark.parametrize("epsilon", [0.1, 1, 3])
def test_the_expected_agreement_is_that_of_simulated_reports(epsilon):
    """Five standard errors over 8,000 reports: a false alarm in one of two million runs."""
    skewed = CLUSTERS[RNG.random(4000) < np.where(CLUSTERS[:, 0] > 1.5, 1.0, 0.2)]
    release = offaxis.fit(PLACES, skewed, epsilon=epsilon)
    expected, ceiling = recorded(release)
    people = np.tile(skewed, (4, 1))
    decoded = simulate(release, people, np.random.default_rng(0))
    same = PLACES.outputs(decoded).argmax(axis=1) == PLACES.outputs(people).argmax(axis=1)
    assert abs(same.mean() - expected) < 5 * same.std() / np.sqrt(len(same))
    assert expected <= ceiling
    assert f"Expected to keep {100 * expected:.1f} % of the model's answers" in release.summary


@pytest.mark.parametrize("epsilon", [1, 8])
def test_the_expected_error_of_a_mean_is_that_of_reports(epsilon):
    """Inside the ball the error exceeds that on the boundary, by far at a large ε."""
    public = CLUSTERS[:, :2]
    release = offaxis.fit(None, public, epsilon=epsilon, goal="means")
    expected, ceiling = recorded(release)
    decoded = simulate(release, np.tile(public, (3, 1)), np.random.default_rng(0))
    squares = ((decoded - np.tile(public, (3, 1))) ** 2).sum(axis=1) / 1000
    variance = public.var(axis=0).sum()
    assert expected == pytest.approx(squares.mean() / variance, rel=0.1)
    boundary = release.randomizer.expected_squared_error() / 1000 / variance
    assert boundary < (0.95 if epsilon == 1 else 0.2) * expected
    assert ceiling < expected
    assert "A mean over 1,000 people" in release.summary


@pytest.mark.parametrize("count", [200, 4000])
def test_the_expected_fidelity_is_not_that_of_the_fitted_vectors(count):
    """Few vectors make a codebook that fits them better than other people."""
    people = np.random.default_rng(1).standard_normal((4000, 16))
    release = offaxis.fit(None, people[:count], epsilon=6, goal="vectors")
    expected, ceiling = recorded(release)
    others = people[count:] if count < 2000 else people
    lost = simulate(release, others, np.random.default_rng(0)) - others
    kept = 1 - (lost**2).sum(axis=1).mean() / others.var(axis=0).sum()
    assert abs(expected - kept) < 0.08
    assert expected <= ceiling < 1
    assert "of the variance of the vectors, for people" in release.summary


def test_a_scalar_answer_is_never_expected_above_its_ceiling():
    weight = np.random.default_rng(2).standard_normal((1, 6))
    for epsilon in (1, 6, 10):
        expected, ceiling = recorded(offaxis.fit(weight, CLUSTERS[:200], epsilon=epsilon))
        assert 0 < expected <= ceiling


def test_a_named_mechanism_has_no_recorded_expectation(release):
    assert "expected" not in release.provenance.settings
    assert "was not measured" in release.summary


def test_a_few_vectors_are_not_enough_to_expect_anything():
    release = offaxis.fit(None, CLUSTERS[:100], epsilon=2, goal="vectors")
    assert "was not measured" in release.summary


def test_vectors_in_a_regular_order_are_held_out_at_random():
    """Every fifth vector of one of five clusters would be held out otherwise."""
    places = 10 * np.eye(5)
    public = np.tile(places, (200, 1)) + 0.1 * RNG.standard_normal((1000, 5))
    expected, _ = recorded(offaxis.fit(None, public, epsilon=6, goal="vectors"))
    assert expected > 0.9


def test_a_spread_that_varies_between_parts_does_not_make_the_expectation_negative():
    vectors = np.random.default_rng(0).standard_t(4, (1000, 4))
    expected, _ = recorded(offaxis.fit(np.ones((1, 4)), vectors, epsilon=0.1))
    assert abs(expected) < 0.05


def test_sparse_public_vectors_are_an_error():
    with pytest.raises(InvalidInput, match=r"use public.toarray\(\)"):
        offaxis.fit(PLACES, csr_array(CLUSTERS), epsilon=1)
