"""Randomizers by name, and rebuilt from untrusted parameters."""

from __future__ import annotations

import pytest

from offaxis.errors import InvalidInput
from offaxis.randomizers import KINDS, NAMES, make, norm, parameters, rebuild


def build(name):
    delta = 1e-5 if name == "gaussian" else None
    return make(name, dim=3, radius=1.5, epsilon=0.1, delta=delta)


@pytest.mark.parametrize("name", NAMES)
def test_every_mechanism_is_rebuilt_from_its_parameters(name):
    randomizer = build(name)
    assert rebuild(randomizer.kind, parameters(randomizer)) == randomizer


def test_wire_ids_are_unique():
    ids = [cls.wire_id for cls in KINDS.values()]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("name", NAMES)
def test_the_norm_of_the_radius_is_that_of_the_randomizer(name):
    boxes = {"duchi": "inf", "piecewise": "inf", "hybrid": "inf"}
    assert norm(name) == boxes.get(name, 1 if name == "laplace" else 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dim": 0}, "dim"),
        ({"dim": True}, "wrong type"),
        ({"radius": float("nan")}, "radius"),
        ({"radius": 1}, "wrong type"),
        ({"epsilon": 0.1}, "wrong type"),
        ({"epsilon": "-1"}, "positive"),
        ({"epsilon": "0.1"}, "canonical"),
        ({"log2_scale": 30}, "log2_scale"),
        ({"extra": 1}, "has parameters"),
    ],
)
def test_untrusted_parameters_are_checked(change, message):
    values = parameters(build("laplace")) | change
    with pytest.raises(InvalidInput, match=message):
        rebuild("laplace", values)


def test_an_unknown_name_suggests_known_ones():
    with pytest.raises(InvalidInput, match="laplace"):
        make("lapalce", dim=1, radius=1.0, epsilon=1)
    with pytest.raises(InvalidInput, match="laplace"):
        rebuild("rot13", {})


def test_delta_is_required_or_rejected():
    with pytest.raises(InvalidInput, match="needs delta"):
        make("gaussian", dim=1, radius=1.0, epsilon=1)
    with pytest.raises(InvalidInput, match="takes no delta"):
        make("laplace", dim=1, radius=1.0, epsilon=1, delta=1e-5)
