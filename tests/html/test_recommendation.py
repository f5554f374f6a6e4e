"""The page of a recommendation shows the recommended release next to its bound."""

import re
from html import unescape

import numpy as np
import pytest

from offaxis.errors import InvalidInput
from offaxis.evaluation import selection
from offaxis.evaluation.recommend import recommend, recommend_range
from offaxis.geometry import Layers
from offaxis.html.recommendation import render, write_recommendation
from offaxis.theory.ceilings import agreement_ceiling, answer_prior

MODEL = Layers.linear(np.array([[1.0, 0, 0, 0], [-1.0, 0, 0, 0], [0, 1, 0, 0]]))
PUBLIC = np.random.default_rng(4).standard_normal((400, 4)) * [3, 2, 1, 1]


@pytest.fixture(scope="module", autouse=True)
def no_networks():
    """Train no decoder, as without torch: a page does not need one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "find_spec", lambda name: None)
        yield


@pytest.fixture(scope="module")
def recommendations():
    return recommend_range(MODEL, PUBLIC, epsilons=[1, 3, 6], effort="full")


@pytest.fixture(scope="module")
def page(recommendations, tmp_path_factory):
    out = tmp_path_factory.mktemp("page") / "advice.html"
    assert write_recommendation(recommendations, out) == out
    return unescape(out.read_text(encoding="utf-8"))


def cells(page, mark, value):
    """Return the texts of the cells of a row, its name first."""
    row = re.search(rf'<tr[^>]*{mark}="{re.escape(value)}">(.*?)</tr>', page, re.DOTALL)
    assert row, f"no row {value}"
    parts = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row[1], re.DOTALL)
    return [re.sub(r"<[^>]*>", " ", part).split(" ±")[0].strip() for part in parts]


def share(value):
    return f"{100 * value:.1f}"


def test_every_budget_is_next_to_its_bound(recommendations, page):
    prior = answer_prior(MODEL, PUBLIC)
    for each in recommendations:
        ceiling = agreement_ceiling(prior, each.epsilon).probability
        epsilon, title, expected, bound, *_ = cells(page, "data-epsilon", f"{each.epsilon:g}")
        assert epsilon == f"{each.epsilon:g}"
        assert title == each.candidate.title
        assert expected == share(each.expected.score)
        assert bound == share(ceiling)
    assert share(recommendations[0].ceiling) != share(recommendations[0].expected.score), (
        "a swap would show"
    )


def test_the_candidates_of_the_middle_budget_have_both_scores(recommendations, page):
    main = recommendations[1]
    assert f"<h1>At ε = 3: {main.candidate.title}</h1>" in page
    assert cells(page, "data-candidate", "bound")[1] == share(main.ceiling)
    for each in main.candidates[:12]:
        title, answers, fidelity = cells(page, "data-candidate", each.candidate.title)
        assert title == each.candidate.title
        assert answers == share(each.scores.answers.score)
        assert fidelity == share(each.scores.fidelity.score)


def test_the_page_has_the_summary_the_cautions_and_the_figures(recommendations, page):
    assert recommendations[1].summary[1:] in page
    for caution in recommendations[1].cautions:
        assert caution[1:] in page
    labels = re.findall(r'<svg [^>]*aria-label="([^"]*)"', page)
    assert len(labels) == 2
    for each in recommendations:
        words = f"at ε = {each.epsilon:g}, {100 * each.expected.score:.3g} with "
        assert words in labels[0]
        assert f"bound {100 * each.ceiling:.3g}" in labels[0]
    for each in recommendations[1].frontier:
        shares = f"{share(each.scores.answers.score)} and {share(each.scores.fidelity.score)}"
        assert f"{each.candidate.title} {shares}" in labels[1]
    assert "no report of this ε allows more: a bound" in page


def test_the_page_loads_nothing(page):
    assert "default-src 'none'" in page
    assert not re.search(r"<script|https?:|@import|url\((?!#)|<img|<link", page)
    body = page[page.index("<body>") :]
    assert not re.search(r"(fill|stroke): #", body), "colours are variables of the page"


def test_a_single_budget_has_no_curve_and_fidelity_has_a_bound():
    recommendation = recommend(MODEL, PUBLIC, epsilon=2, goal="vectors")
    page = unescape(render([recommendation]))
    assert page.count("<svg") == 1
    assert "data-epsilon" not in page
    assert cells(page, "data-candidate", "bound")[1] == share(recommendation.ceiling)
    _, fidelity, answers = cells(
        page, "data-candidate", recommendation.candidates[0].candidate.title
    )
    assert fidelity == share(recommendation.candidates[0].scores.fidelity.score)
    assert answers == share(recommendation.candidates[0].scores.answers.score)


def test_means_show_errors_and_a_bound_for_unbiased_reports():
    recommendations = recommend_range(MODEL, PUBLIC, epsilons=[1, 4], goal="means", people=100)
    page = unescape(render(recommendations))
    for each in recommendations:
        _, _, expected, bound, *_ = cells(page, "data-epsilon", f"{each.epsilon:g}")
        assert expected == f"{-each.expected.score:.3g}"
        assert bound == f"{-each.ceiling:.3g}"
    assert "The bound holds for unbiased reports only" in page
    assert "the true value does not" not in page
    assert "a bound for unbiased reports only" in page


def test_every_task_is_next_to_its_bound():
    models = {"three": MODEL, "number": Layers.linear(np.array([[0.0, 1, 1, 0]]))}
    recommendation = recommend(models, PUBLIC, epsilon=3)
    page = unescape(render([recommendation]))
    assert len({share(value) for value in recommendation.ceiling_by_task.values()}) == 2
    for name in models:
        title, expected, bound = cells(page, "data-task", name)
        assert (title, expected) == (name, share(recommendation.expected_by_task[name].score))
        assert bound == share(recommendation.ceiling_by_task[name])


def test_an_empty_page_is_an_error():
    with pytest.raises(InvalidInput, match="at least one"):
        render([])
