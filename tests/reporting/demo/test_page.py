"""The demo runs, its page stands alone, and the page says what was measured."""

import re
import sys
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest

from offaxis.data import load_cifar10_features
from offaxis.errors import InvalidInput, MissingExtra
from offaxis.evaluation import Evaluation
from offaxis.recipes.scalar_channel import refined_channel
from offaxis.reporting import run_demo
from offaxis.reporting.demo import page as demo_page
from offaxis.reporting.demo import run as demo
from offaxis.reporting.demo import theory_lines
from offaxis.reporting.demo.result import ExactCheck
from offaxis.reporting.demo.run import RANDOMIZERS, REAL_REPETITIONS
from offaxis.reporting.names import TITLES
from offaxis.studies.sources import open_source
from offaxis.theory.ceiling import agreement_ceiling, answer_prior, reference_line
from offaxis.theory.table import CONDITIONS, Row

VOID = {"meta", "br", "hr", "img", "input", "link"}
LOADERS = {"src", "srcset", "data", "poster", "action", "background", "cite", "manifest"}


class Page(HTMLParser):
    """Reads tags strictly: everything opened is closed, in order."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.ids, self.attributes = [], [], [], []
        self.cells, self.row, self.text = {}, None, None

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        found = dict(attrs)
        self.ids += [found["id"]] if "id" in found else []
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.row = (found.get("data-randomizer"), found.get("data-reshaping"))
        if tag == "td" and self.row and self.row[0]:
            self.cells.setdefault(self.row, []).append("")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.row and self.row[0] and "td" in self.open:
            self.cells[self.row][-1] += data


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    calls = []
    out = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        # Real reports of a small budget are quick, whatever the randomizer.
        patch.setattr(demo, "HEADLINE_EPSILON", 1.0)
        patch.setattr(demo, "RECOMMENDED", (7.5,))
        result = run_demo(
            out, seeds=2, epsilons=(1.0, 7.5), progress=lambda *call: calls.append(call)
        )
    return result, calls


@pytest.fixture(scope="module")
def page(run):
    parser = Page()
    parser.feed(run[0].html.read_text(encoding="utf-8"))
    parser.close()
    assert parser.open == []
    return parser


def test_every_randomizer_is_swept_plain_and_reshaped(run):
    table = run[0].table()
    cells = {(row["randomizer"], row["reshaping"], row["epsilon"]) for row in table}
    assert len(table) == len(cells) == 4 * 2 * 2
    assert {row["randomizer"] for row in table} == set(RANDOMIZERS)
    assert all(0 <= row["accuracy"] <= 1 and row["std"] >= 0 for row in table)


def test_reshaping_helps_where_the_paper_says_so(run):
    plain = run[0].cell("privunit2", "none", 7.5).mean("accuracy")
    reshaped = run[0].cell("privunit2", "jacobian", 7.5).mean("accuracy")
    assert plain + 0.15 < reshaped < run[0].clean


def test_the_second_task_is_the_papers_and_reshaping_helps_it_too(run):
    found = run[0].households
    assert 0.05 < found.clean < 0.09 < found.constant
    for name in ("laplace", "privunit2", "privunitg-sphere"):
        for epsilon in (1.0, 7.5):
            reshaped, plain = (found.mean(name, shape, epsilon) for shape in ("jacobian", "none"))
            assert found.clean < reshaped < plain
    # Table 1 of the paper: 0.5387 at ε = 1, give or take one draw of households and dates.
    assert abs(found.mean("laplace", "jacobian", 1.0) / 0.5387 - 1) < 0.15
    text = run[0].html.read_text(encoding="utf-8")
    assert f"{found.mean('privunit2', 'jacobian', 7.5):.3f}" in text


def test_every_stage_of_the_progress_ends_complete(run):
    last = {name: (done, total) for name, done, total in run[1]}
    assert len(last) == 8
    assert all(done == total for done, total in last.values())


def test_the_page_loads_nothing(run, page):
    text = run[0].html.read_text(encoding="utf-8")
    assert "script" not in page.tags
    assert not {"link", "img", "iframe", "object", "embed", "base"} & set(page.tags)
    assert not [entry for entry in page.attributes if entry[1] in LOADERS]
    assert all(value.startswith("#") for _, name, value in page.attributes if name == "href")
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\((?!#)", text)
    assert "default-src 'none'" in text


def test_the_page_names_every_randomizer_and_its_promise(run):
    text = run[0].html.read_text(encoding="utf-8")
    assert all(TITLES[name] in text for name in RANDOMIZERS)
    assert "ε = 1, pure" in text
    assert "δ = 1e-05" in text
    assert run[0].release.hash in text


def test_the_page_does_not_call_any_randomizer_unreal(run):
    text = " ".join(run[0].html.read_text(encoding="utf-8").split())
    assert not re.search(r"simulated only|only be simulated|cannot release|refuse", text)
    assert text.count("204 bytes") == text.count("28 bytes") == 2


def test_the_table_shows_the_measured_numbers(run, page):
    for row in run[0].table():
        cells = page.cells[TITLES[row["randomizer"]], row["reshaping"]]
        shown = cells[run[0].epsilons.index(row["epsilon"])].replace(" best", "")
        assert shown == f"{100 * row['accuracy']:.1f}±{100 * row['std']:.1f}"


def test_every_accuracy_stands_beside_the_line_of_the_answer_alone(run, page):
    result = run[0]
    wanted = [reference_line(result.clean, 10, epsilon) for epsilon in (1.0, 7.5)]
    assert list(result.lines.values()) == wanted
    assert page.cells["line", "line"] == [f"{100 * value:.1f}" for value in wanted]
    text = result.html.read_text(encoding="utf-8")
    section = text[text.index('id="curves"') : text.index('id="households"')]
    assert "a line, not a bound" in section
    assert section.count(f"by response: {100 * wanted[0]:.1f} % at ε = 1 and") == 4, "in each plot"


def test_every_error_stands_beside_the_line_of_the_forecast_alone(run, page):
    found, source = run[0].households, open_source("lhsm")
    for epsilon in (1.0, 7.5):
        squares = []
        for seed in range(2):
            vectors, truth = source.sample(seed)
            forecast = source.task.outputs(vectors)[:, 0]
            least = refined_channel(forecast, epsilon).rmse
            squares.append(np.mean((forecast - truth) ** 2) + least**2)
        assert found.lines[epsilon] == pytest.approx(np.mean(np.sqrt(squares)), rel=0.01)
        assert found.clean < found.lines[epsilon] < found.constant * 1.05
    shown = page.cells["household line", "line"]
    assert shown == [f"{found.lines[epsilon]:.3f}" for epsilon in (1.0, 7.5)]
    assert found.lines[7.5] < min(
        found.mean(name, "jacobian", 7.5) for name in ("laplace", "privunit2", "privunitg-sphere")
    )


def test_what_would_be_recommended_stands_beside_its_ceiling(run, page):
    data, (each,) = load_cifar10_features(), run[0].recommended
    ceiling = agreement_ceiling(answer_prior(data.head, data.public), 7.5).probability
    assert each.epsilon == 7.5
    assert each.ceiling == pytest.approx(ceiling, abs=0.002), "of all public vectors, or a part"
    assert run[0].ceilings[7.5] == ceiling
    assert each.expected.score > run[0].cell("privunit2", "jacobian", 7.5).mean("agreement") + 0.2
    _, expected, bound, _, vector = page.cells["recommended", "7.5"]
    low, high = each.expected.interval()
    assert expected == f"{100 * each.expected.score:.1f}± {50 * (high - low):.1f}"
    assert bound == f"{100 * each.ceiling:.1f}"
    assert vector == f"{100 * each.best_vector.utility.score:.1f}"
    text = run[0].html.read_text(encoding="utf-8")
    section = text[text.index('id="recommended"') : text.index('id="noise"')]
    assert each.sentence[1:] in unescape(section).replace("\N{NO-BREAK SPACE}", " ")
    assert "no report of this ε allows more: a bound" in section


def test_the_page_says_what_theory_says(run):
    theory = run[0].theory
    assert [row.quantity for row in theory.rows] == list(CONDITIONS)
    assert all(row.fails is None for row in theory.rows), "Laplace meets every condition"
    text = run[0].html.read_text(encoding="utf-8")
    section = text[text.index('id="theory"') : text.index('id="promise"')]
    for row in theory.rows:
        shown = theory_lines.line(row)
        assert f">{shown.title}<span>" in section
        assert f">{shown.theory}</td>" in section
        assert f">{shown.measured}</td>" in section
        assert f">{shown.note}</td>" in section
    assert "Every bound holds" in section


def test_a_broken_bound_is_called_out(run):
    rows = list(run[0].theory.rows)
    assert theory_lines.bounds_hold(rows)
    for index, row in enumerate(rows):
        if row.condition.startswith("at most"):
            beyond = row.theory + 5 * (row.standard_error or 0.01)
            broken = [*rows[:index], replace(row, measured=beyond), *rows[index + 1 :]]
            assert not theory_lines.bounds_hold(broken)
    not_a_bound = [replace(rows[2], measured=1e9 * rows[2].theory)]
    assert theory_lines.bounds_hold(not_a_bound)


def test_a_condition_that_fails_stands_where_it_would_hold():
    row = Row("root_gap", CONDITIONS["root_gap"], fails="the condition 'additive noise' fails")
    shown = theory_lines.line(row)
    assert (shown.theory, shown.measured) == ("–", "–")
    assert shown.note == "the condition 'additive noise' fails"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.0, "0"), (3.45678, "3.457"), (22584.0, "22,580"), (2.593e9, "2.6 × 10⁹")],
)
def test_numbers_are_short(value, text):
    assert theory_lines.number(value) == text


def test_the_page_is_accessible_in_outline(page):
    assert ("html", "lang", "en") in page.attributes
    assert page.tags.count("h1") == 1
    assert len(page.ids) == len(set(page.ids))
    svgs = page.tags.count("svg")
    labels = [value for tag, name, value in page.attributes if (tag, name) == ("svg", "aria-label")]
    assert svgs == len(labels) == 4 + 3 + 1 + 6 + 2
    assert all(labels)
    referred = {value for _, name, value in page.attributes if name == "aria-labelledby"}
    assert referred <= set(page.ids)


def test_figures_take_their_colours_from_the_page(run):
    text = run[0].html.read_text(encoding="utf-8")
    body = text[text.index("<body>") :]
    assert "var(--reshaped)" in body
    assert not re.search(r"(fill|stroke): #", body)


def test_figures_refer_to_their_own_parts(page):
    used = {
        found
        for _, name, value in page.attributes
        if name in ("href", "clip-path")
        for found in re.findall(r"#([\w.-]+)", value)
    }
    assert used
    assert used <= set(page.ids)


def test_real_reports_of_every_release_stand_beside_their_simulation(run):
    """Eight gaps of at most one standard deviation: one beyond 5 in about 200,000 runs."""
    checks = run[0].exact
    assert {(check.randomizer, check.reshaping) for check in checks} == {
        (name, shape) for name in RANDOMIZERS for shape in ("none", "jacobian")
    }
    assert len(checks) == 8
    assert {check.epsilon for check in checks} == {1.0}
    assert all(abs(check.gap) < 5 for check in checks)
    for check in checks:
        assert len(check.simulated.runs["accuracy"]) == 2
        wanted = min(2, REAL_REPETITIONS[check.randomizer])
        assert len(check.exact.runs["accuracy"]) == wanted


def test_the_page_shows_the_checks_and_how_often_they_were_repeated(run):
    text = run[0].html.read_text(encoding="utf-8").replace("\N{NO-BREAK SPACE}", " ")
    for check in run[0].exact:
        assert f"{100 * check.exact.mean('accuracy'):.2f} ± " in text
    assert text.count("<td>2 / 2</td>") == text.count("<td>2 / 1</td>") == 4


def accuracies(*values):
    return Evaluation({}, {"accuracy": np.array(values)})


def test_a_gap_is_counted_in_standard_errors_that_the_spread_of_answers_never_exceeds():
    """Chances that differ from vector to vector spread less than the error that is stated."""
    rng = np.random.default_rng(0)
    chances = rng.beta(0.5, 0.5, size=400)
    runs = (rng.random((4000, 400)) < chances).mean(axis=1)
    check = ExactCheck("laplace", "none", 1.0, 400, accuracies(*runs), accuracies(*runs))
    stated = check.error(accuracies(runs[0]))
    assert 0.5 * stated < runs.std() < stated
    assert check.gap == 0


def test_a_wrong_simulation_has_a_large_gap_even_after_one_repetition():
    sides = accuracies(0.50, 0.51, 0.49), accuracies(0.60)
    assert ExactCheck("laplace", "none", 1.0, 5000, *sides).gap > 10
    assert ExactCheck("laplace", "none", 1.0, 5000, *reversed(sides)).gap < -10
    sure = accuracies(1.0), accuracies(1.0)
    assert ExactCheck("laplace", "none", 1.0, 5000, *sure).gap == 0


def test_a_gap_beyond_the_limit_is_called_out(run, monkeypatch):
    monkeypatch.setattr(demo_page, "AGREE", -1.0)
    assert not demo_page._checks(run[0])["agree"]


def test_a_directory_gets_the_page_under_its_usual_name(run):
    assert run[0].html.name == "offaxis-demo.html"
    assert run[0].html.parent.name.startswith("demo")


def test_no_budget_is_an_error(tmp_path):
    with pytest.raises(InvalidInput, match="at least one budget"):
        run_demo(tmp_path / "demo.html", epsilons=())


@pytest.mark.parametrize("module", ["matplotlib", "jinja2"])
def test_a_missing_extra_is_named_before_anything_is_computed(tmp_path, monkeypatch, module):
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    calls = []
    with pytest.raises(MissingExtra, match=r"pip install 'offaxis\[report\]'"):
        run_demo(tmp_path / "demo.html", progress=lambda *call: calls.append(call))
    assert calls == []
    assert not (tmp_path / "demo.html").exists()
