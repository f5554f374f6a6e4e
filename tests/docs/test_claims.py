"""The docs and pages claim no more than is proved, and no example privatizes what it fitted."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import offaxis
from tests.docs.fitted import rejecting_fitted_rows
from tests.test_examples import PUBLIC, check, examples, import_or_skip, label, methods

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/notebooks/*.ipynb")])
SHOWN = sorted(
    [
        *ROOT.glob("src/offaxis/cli/*.py"),
        *ROOT.glob("src/offaxis/privacy/*.py"),
        *ROOT.glob("src/offaxis/collector/pages/dashboard/*.js"),
        ROOT / "src/offaxis/card.py",
    ]
)
"""Files whose texts people read on a terminal or in the dashboard."""

NOTHING_ASSUMED = re.compile(r"without (any|further) assumptions?|without assumptions", re.I)
"""Every guarantee rests on the generator of random bits (docs/proofs.md §9)."""

GUESS = re.compile(r"guess\w*[^.:;|]*?\d ?%|\d ?% [^.:;|]*?guess", re.I)
PRIORS = (
    "equally likely",
    "on average over",
    "as frequent",
    "shares of answers",
    "distributed as",
    "by guessing",
    "Guessing gives",
)
"""How a sentence can state what was known before the report."""


def _sentences(text: str) -> list[str]:
    return re.split(r"(?<=[.:])\s+(?=[A-Z*|-])", " ".join(text.split()))


def _guesses_without_a_prior(text: str) -> list[str]:
    sentences = _sentences(text)
    return [s for s in sentences if GUESS.search(s) and not any(prior in s for prior in PRIORS)]


@pytest.mark.parametrize("page", [*PAGES, *SHOWN], ids=lambda page: page.name)
def test_no_guarantee_is_called_free_of_assumptions(page):
    if page.name != "CHANGELOG.md":  # it quotes what earlier versions said
        assert NOTHING_ASSUMED.search(page.read_text(encoding="utf-8")) is None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_how_often_an_answer_is_guessed_names_what_was_known_before(page):
    if page.name != "CHANGELOG.md":
        assert _guesses_without_a_prior(page.read_text(encoding="utf-8")) == []


def test_a_guess_without_a_prior_is_detected():
    """Broken controls: the sentences as they were, and one that names its prior."""
    assert _guesses_without_a_prior("At that ε the answer can be guessed at most 94 % of the time.")
    assert _guesses_without_a_prior("Nobody guesses the model's answer more often than 94 %.")
    assert not _guesses_without_a_prior(
        "If all ten answers are equally likely before, nobody guesses them more than 94.3 %."
    )
    assert NOTHING_ASSUMED.search("PrivUnit in rank form is pure ε, without any assumption")


# ---- Examples do not privatize what they fitted

CHECKED = ("offaxis", "offaxis.release", "offaxis.fitting", "offaxis.integrations")
"""Modules whose examples are checked, with those inside them."""

EXAMPLES = {
    key: node
    for key, node in PUBLIC.items()
    if key[0] in CHECKED or key[0].startswith("offaxis.integrations.")
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("key", EXAMPLES, ids=lambda key: label(*key))
def test_examples_do_not_privatize_what_they_fitted(key, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    import_or_skip(key[0])
    for node in (EXAMPLES[key], *methods(EXAMPLES[key])):
        with rejecting_fitted_rows():
            check(examples(key[0], node))


def test_a_fitted_row_is_detected():
    """Broken control: one of ten private rows was fitted, as it was in an example."""
    public = np.random.default_rng(0).normal(size=(50, 3))
    private = np.random.default_rng(1).normal(size=(10, 3))
    with rejecting_fitted_rows():
        release = offaxis.fit(np.eye(3), public, epsilon=2)
        assert len(release.privatize(private)) == 10
        private[7] = public[4]
        with pytest.raises(pytest.fail.Exception, match="1 of 10"):
            release.privatize(private)


def test_the_readme_fits_and_privatizes_different_vectors():
    """The example that most people copy names both sides, and they are disjoint."""
    for page in ("README.md", "docs/index.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert "public, private = " in text
        assert "release.privatize(private[0])" in text
        assert "privatize(public" not in text
