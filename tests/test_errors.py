"""Words that several messages share."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from offaxis.errors import installing, unknown_name

FRUIT = ("apple", "pear", "plum")


def test_an_extra_comes_from_a_checkout_and_from_nobody_else():
    assert installing("torch") == "pip install '.[torch]' in a checkout of offaxis"
    package = Path(str(files("offaxis")))
    told = [path for path in package.rglob("*.py") if "pip install" in path.read_text()]
    assert told == [package / "errors.py"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("aple", "did you mean 'apple'?"),
        ("PEARL", "choose one of apple, pear, plum"),
        ("stone", "choose one of apple, pear, plum"),
        (None, "choose one of apple, pear, plum"),
    ],
)
def test_a_name_that_is_nearly_right_is_guessed(name, hint):
    assert unknown_name("fruit", name, FRUIT) == f"there is no fruit {name!r}; {hint}"


def test_many_names_are_listed_elsewhere():
    words = unknown_name("fruit", "stone", FRUIT, "the market")
    assert words == "there is no fruit 'stone'; the market lists them"
    assert "did you mean 'plum'" in unknown_name("fruit", "plumb", FRUIT, "the market")


def test_a_long_name_does_not_fill_the_screen():
    assert len(unknown_name("fruit", "x" * 5000, FRUIT)) < 200
