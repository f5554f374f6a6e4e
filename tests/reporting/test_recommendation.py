"""The page of a recommendation says what was recommended, and shows the bound beside it."""

import re
from html import unescape

import numpy as np
import pytest

from offaxis.errors import InvalidInput
from offaxis.evaluation import selection as trials
from offaxis.evaluation.recommend import recommend, recommend_range
from offaxis.geometry import Layers
from offaxis.reporting.recommendation import render, write_recommendation
from offaxis.theory.ceilings import agreement_ceiling, answer_prior

MODEL = Layers.linear(np.array([[1.0, 0, 0, 0], [-1.0, 0, 0, 0], [0, 1, 0, 0]]))
PUBLIC = np.random.default_rng(4).standard_normal((400, 4)) * [3, 2, 1, 1]


@pytest.fixture(scope="module", autouse=True)
def no_networks():
    """As without torch: no decoder is trained, which a page does not need."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trials, "find_spec", lambda name: None)
        yield


@pytest.fixture(scope="module")
def found():
    return recommend_range(MODEL, PUBLIC, epsilons=[1, 3, 6])


@pytest.fixture(scope="module")
def page(found, tmp_path_factory):
    out = tmp_path_factory.mktemp("page") / "advice.html"
    assert write_recommendation(found, out) == out
    return unescape(out.read_text(encoding="utf-8"))


def cells(page, mark, value):
    """Return the texts of a row's cells, its name first."""
    row = re.search(rf'<tr[^>]*{mark}="{re.escape(value)}">(.*?)</tr>', page, re.DOTALL)
    assert row, f"no row {value}"
    parts = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row[1], re.DOTALL)
    return [re.sub(r"<[^>]*>", " ", part).split(" ±")[0].strip() for part in parts]


def share(value):
    return f"{100 * value:.1f}"


def test_every_budget_stands_beside_its_bound(found, page):
    prior = answer_prior(MODEL, PUBLIC)
    for each in found:
        ceiling = agreement_ceiling(prior, each.epsilon).probability
        epsilon, title, expected, bound, *_ = cells(page, "data-epsilon", f"{each.epsilon:g}")
        assert epsilon == f"{each.epsilon:g}"
        assert title == each.candidate.title
        assert expected == share(each.expected.score)
        assert bound == share(ceiling)
    assert share(found[0].ceiling) != share(found[0].expected.score), "a swap would show"


def test_the_candidates_of_the_middle_budget_with_both_goals(found, page):
    main = found[1]
    assert f"<h1>At ε = 3: {main.candidate.title}</h1>" in page
    assert cells(page, "data-candidate", "bound")[1] == share(main.ceiling)
    for each in main.candidates[:12]:
        title, answers, fidelity = cells(page, "data-candidate", each.candidate.title)
        assert title == each.candidate.title
        assert answers == share(each.scores.answers.score)
        assert fidelity == share(each.scores.fidelity.score)


def test_sentence_cautions_and_figures(found, page):
    assert found[1].summary[1:] in page
    for caution in found[1].cautions:
        assert caution[1:] in page
    labels = re.findall(r'<svg [^>]*aria-label="([^"]*)"', page)
    assert len(labels) == 2
    for each in found:
        words = f"at ε = {each.epsilon:g}, {100 * each.expected.score:.3g} with "
        assert words in labels[0]
        assert f"bound {100 * each.ceiling:.3g}" in labels[0]
    for each in found[1].frontier:
        shares = f"{share(each.scores.answers.score)} and {share(each.scores.fidelity.score)}"
        assert f"{each.candidate.title} {shares}" in labels[1]
    assert "no report of this ε allows more: a bound" in page


def test_the_page_loads_nothing(page):
    assert "default-src 'none'" in page
    assert not re.search(r"<script|https?:|@import|url\((?!#)|<img|<link", page)
    body = page[page.index("<body>") :]
    assert not re.search(r"(fill|stroke): #", body), "colours are the page's"


def test_one_budget_has_no_curve_and_fidelity_its_own_bound():
    each = recommend(MODEL, PUBLIC, epsilon=2, goal="fidelity")
    page = unescape(render([each]))
    assert page.count("<svg") == 1
    assert "data-epsilon" not in page
    assert cells(page, "data-candidate", "bound")[1] == share(each.ceiling)
    _, fidelity, answers = cells(page, "data-candidate", each.candidates[0].candidate.title)
    assert fidelity == share(each.candidates[0].scores.fidelity.score)
    assert answers == share(each.candidates[0].scores.answers.score)


def test_means_show_errors_and_a_bound_for_unbiased_reports_alone():
    found = recommend_range(MODEL, PUBLIC, epsilons=[1, 4], goal="mean", people=100)
    page = unescape(render(found))
    for each in found:
        _, _, expected, bound, *_ = cells(page, "data-epsilon", f"{each.epsilon:g}")
        assert expected == f"{-each.expected.score:.3g}"
        assert bound == f"{-each.ceiling:.3g}"
    assert "The bound is that of unbiased reports, and of nothing else" in page
    assert "the truth does not" not in page
    assert "a bound for these alone" in page


def test_several_tasks_each_beside_its_own_bound():
    models = {"three": MODEL, "number": Layers.linear(np.array([[0.0, 1, 1, 0]]))}
    each = recommend(models, PUBLIC, epsilon=3)
    page = unescape(render([each]))
    assert len({share(value) for value in each.ceiling_by_task.values()}) == 2
    for name in models:
        title, expected, bound = cells(page, "data-task", name)
        assert (title, expected) == (name, share(each.expected_by_task[name].score))
        assert bound == share(each.ceiling_by_task[name])


def test_nothing_to_show_is_an_error():
    with pytest.raises(InvalidInput, match="at least one"):
        render([])
