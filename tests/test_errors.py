"""Wording that several messages share."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from offaxis.errors import installing, unknown_name

FRUIT = ("apple", "pear", "plum")


def test_only_one_place_states_how_to_install_an_extra():
    assert installing("torch") == "pip install '.[torch]' in a checkout of offaxis"
    package = Path(str(files("offaxis")))
    stating = [path for path in package.rglob("*.py") if "pip install" in path.read_text()]
    assert stating == [package / "errors.py"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("aple", "did you mean 'apple'?"),
        ("PEARL", "choose one of apple, pear, plum"),
        ("stone", "choose one of apple, pear, plum"),
        (None, "choose one of apple, pear, plum"),
    ],
)
def test_a_close_name_is_suggested(name, hint):
    assert unknown_name("fruit", name, FRUIT) == f"there is no fruit {name!r}; {hint}"


def test_a_long_list_of_names_is_referred_to():
    message = unknown_name("fruit", "stone", FRUIT, "the market")
    assert message == "there is no fruit 'stone'; the market lists them"
    assert "did you mean 'plum'" in unknown_name("fruit", "plumb", FRUIT, "the market")


def test_a_long_name_is_shortened():
    assert len(unknown_name("fruit", "x" * 5000, FRUIT)) < 200
