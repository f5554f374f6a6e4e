"""The demo's page is self-contained and shows what was measured."""

import re
from html import unescape

import numpy as np
import pytest

from experiments.data import load_cifar10_features
from experiments.demo import page as demo_page
from experiments.demo.run import RANDOMIZERS
from experiments.sources import open_source
from offaxis.html.pages import TITLES
from offaxis.mechanisms.scalar_channel import refined_channel
from offaxis.theory.ceilings import agreement_ceiling, answer_prior, reference_line
from offaxis.theory.table import CONDITIONS
from tests.html.strict_page import LOADERS, StrictPage


@pytest.fixture(scope="module")
def page(result):
    return StrictPage(result.html.read_text(encoding="utf-8"))


def test_the_page_loads_nothing(result, page):
    text = result.html.read_text(encoding="utf-8")
    assert "script" not in page.tags
    assert not {"link", "img", "iframe", "object", "embed", "base"} & set(page.tags)
    assert not [entry for entry in page.attributes if entry[1] in LOADERS]
    assert all(value.startswith("#") for _, name, value in page.attributes if name == "href")
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\((?!#)", text)
    assert "default-src 'none'" in text


def test_the_page_shows_every_randomizer_and_its_guarantee(result):
    text = result.html.read_text(encoding="utf-8")
    assert all(TITLES[name] in text for name in RANDOMIZERS)
    assert "ε = 1, pure" in text
    assert "δ = 1e-05" in text
    assert result.release.hash in text


def test_the_page_calls_no_randomizer_simulated_only(result):
    text = " ".join(result.html.read_text(encoding="utf-8").split())
    assert not re.search(r"simulated only|only be simulated|cannot release|refuse", text)
    assert text.count("204 bytes") == text.count("28 bytes") == 2


def test_the_table_shows_the_measured_numbers(result, page):
    for row in result.table():
        cells = page.cells[TITLES[row["randomizer"]], row["reshaping"]]
        shown = cells[result.epsilons.index(row["epsilon"])].replace(" best", "")
        assert shown == f"{100 * row['accuracy']:.1f}±{100 * row['std']:.1f}"


def test_the_accuracies_have_the_line_of_the_answer_alone(result, page):
    expected = [reference_line(result.clean, 10, epsilon) for epsilon in (1.0, 7.5)]
    assert list(result.lines.values()) == expected
    assert page.cells["line", "line"] == [f"{100 * value:.1f}" for value in expected]
    text = result.html.read_text(encoding="utf-8")
    section = text[text.index('id="curves"') : text.index('id="households"')]
    assert "a line, not a bound" in section
    assert section.count(f"by response: {100 * expected[0]:.1f} % at ε = 1 and") == 4


def test_the_errors_have_the_line_of_the_forecast_alone(result, page):
    households, source = result.households, open_source("lhsm")
    for epsilon in (1.0, 7.5):
        squares = []
        for seed in range(2):
            vectors, truth = source.sample(seed)
            forecast = source.task.outputs(vectors)[:, 0]
            least = refined_channel(forecast, epsilon).rmse
            squares.append(np.mean((forecast - truth) ** 2) + least**2)
        assert households.lines[epsilon] == pytest.approx(np.mean(np.sqrt(squares)), rel=0.01)
        assert households.clean < households.lines[epsilon] < households.constant * 1.05
    shown = page.cells["household line", "line"]
    assert shown == [f"{households.lines[epsilon]:.3f}" for epsilon in (1.0, 7.5)]
    assert households.lines[7.5] < min(
        households.mean(name, "jacobian", 7.5)
        for name in ("laplace", "privunit2", "privunitg-sphere")
    )


def test_the_recommended_release_has_its_bound(result, page):
    data, (recommendation,) = load_cifar10_features(), result.recommended
    ceiling = agreement_ceiling(answer_prior(data.head, data.public), 7.5).probability
    assert recommendation.epsilon == 7.5
    # One is computed on all public vectors, the other on a part.
    assert recommendation.ceiling == pytest.approx(ceiling, abs=0.002)
    assert result.ceilings[7.5] == ceiling
    reshaped = result.cell("privunit2", "jacobian", 7.5).mean("agreement")
    assert recommendation.expected.score > reshaped + 0.2
    _, expected, bound, _, vector = page.cells["recommended", "7.5"]
    low, high = recommendation.expected.interval()
    assert expected == f"{100 * recommendation.expected.score:.1f}± {50 * (high - low):.1f}"
    assert bound == f"{100 * recommendation.ceiling:.1f}"
    assert vector == f"{100 * recommendation.best_vector.utility.score:.1f}"
    text = result.html.read_text(encoding="utf-8")
    section = text[text.index('id="recommended"') : text.index('id="noise"')]
    assert recommendation.summary[1:] in unescape(section)
    assert "upper bound for any report of this ε" in section


def test_the_page_shows_the_theorys_table(result):
    theory = result.theory
    assert [row.quantity for row in theory.rows] == list(CONDITIONS)
    assert all(row.fails is None for row in theory.rows), "Laplace meets every condition"
    text = result.html.read_text(encoding="utf-8")
    section = text[text.index('id="theory"') : text.index('id="guarantee"')]
    for row in theory.rows:
        shown = demo_page.in_words(row)
        assert f">{shown.title}<span>" in section
        assert f">{shown.theory}</td>" in section
        assert f">{shown.measured}</td>" in section
        assert f">{shown.note}</td>" in section
    assert "Every bound holds" in section


def test_the_outline_of_the_page_is_accessible(page):
    assert ("html", "lang", "en") in page.attributes
    assert page.tags.count("h1") == 1
    assert len(page.ids) == len(set(page.ids))
    svgs = page.tags.count("svg")
    labels = [value for tag, name, value in page.attributes if (tag, name) == ("svg", "aria-label")]
    assert svgs == len(labels) == 4 + 3 + 1 + 6 + 2
    assert all(labels)
    labelling = {value for _, name, value in page.attributes if name == "aria-labelledby"}
    assert labelling <= set(page.ids)


def test_figures_take_their_colours_from_the_page(result):
    text = result.html.read_text(encoding="utf-8")
    body = text[text.index("<body>") :]
    assert "var(--reshaped)" in body
    assert not re.search(r"(fill|stroke): #", body)


def test_references_in_figures_exist_in_the_page(page):
    used = {
        target
        for _, name, value in page.attributes
        if name in ("href", "clip-path")
        for target in re.findall(r"#([\w.-]+)", value)
    }
    assert used
    assert used <= set(page.ids)


def test_the_page_shows_the_checks_and_their_repetitions(result):
    text = result.html.read_text(encoding="utf-8").replace("\N{NO-BREAK SPACE}", " ")
    for check in result.exact:
        assert f"{100 * check.exact.mean('accuracy'):.2f} ± " in text
    assert text.count("<td>2 / 2</td>") == text.count("<td>2 / 1</td>") == 4


def test_a_gap_beyond_the_limit_is_reported(result, monkeypatch):
    monkeypatch.setattr(demo_page, "AGREE", -1.0)
    assert not demo_page._checks(result)["agree"]
