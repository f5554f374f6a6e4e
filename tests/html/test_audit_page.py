"""The page of an audit is complete and self-contained, and claims no more than was shown."""

from __future__ import annotations

import dataclasses
import re
import sys

import numpy as np
import pytest

import offaxis
from offaxis.auditing import AuditResult, audit
from offaxis.auditing.result import Finding
from offaxis.auditing.trials import Count, Event
from offaxis.errors import MissingExtra
from offaxis.html.audit_page import render, write_page
from offaxis.privacy.guarantee import Guarantee
from tests.html.strict_page import StrictPage


@pytest.fixture(scope="module")
def result(public) -> AuditResult:
    release = offaxis.fit(None, public, epsilon=2, reshaping="none", mechanism="laplace")
    return audit(release, reports=4000, rng=np.random.default_rng(0))


@pytest.fixture(scope="module")
def text(result) -> str:
    return render(result)


def test_every_finding_is_on_the_page_with_a_description(result, text):
    for finding in result.findings:
        assert re.search(rf'scope="row">{finding.test}<br>.*?<td class="what">\w', text)
    for finding in result.findings:
        if finding.epsilon is not None:
            assert f"{finding.epsilon:.2f}" in text
    assert result.summary in text
    assert result.release in text
    assert f"{result.needed:,} reports in the main test" in text


def test_the_page_loads_nothing(text):
    page = StrictPage(text)
    assert not {"script", "link", "img", "iframe", "object", "embed", "base"} & set(page.tags)
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\((?!#)", text)
    assert "default-src 'none'" in text
    assert page.tags.count("h1") == 1
    assert ("html", "lang", "en") in page.attributes
    labels = [value for tag, name, value in page.attributes if (tag, name) == ("svg", "aria-label")]
    assert len(labels) == page.tags.count("svg") == 2


def test_the_page_claims_no_more_than_was_shown(text):
    body = text[text.index("<body>") :].lower()
    for word in ("verified", "proved", "proven", "safe", "certified"):
        assert word not in body
    assert "finding none does not show that there are none" in body


def test_a_violation_is_the_headline(result):
    violation = Finding(
        "worst-pair",
        "white box",
        "the worst in theory",
        "violation",
        "ε ≥ 3.141, promised ε = 2",
        reports=400,
        epsilon=3.141,
        resolution=4.0,
        alpha=1e-5,
        count=Count(Event(0.0, True), 90, 100, 0, 100),
    )
    page = render(dataclasses.replace(result, findings=(violation, *result.findings[1:])))
    assert "<h1>Violation found</h1>" in page
    assert "No violation" not in page
    assert page.count("ε ≥ 3.141, promised ε = 2") == 2
    assert "var(--plain)" in page


def test_tests_that_were_not_run_are_listed(result):
    not_run = Finding("classifier", "black box", "trees", "not run", "needs <scikit-learn>")
    page = render(dataclasses.replace(result, findings=(*result.findings, not_run)))
    assert "not run" in page
    assert "needs &lt;scikit-learn&gt;" in page


@pytest.mark.parametrize("epsilon", ["1e-9", "10000"])
def test_extreme_budgets_have_pages(result, epsilon):
    extreme = dataclasses.replace(result, guarantee=Guarantee(epsilon), needed=None)
    StrictPage(render(extreme))


def test_a_run_without_bounds_has_a_page(result):
    findings = tuple(finding for finding in result.findings if finding.epsilon is None)
    page = StrictPage(render(dataclasses.replace(result, findings=findings, curve=())))
    assert "svg" not in page.tags


def test_the_page_is_written_to_a_file(result, tmp_path):
    write_page(result, tmp_path / "audit.html")
    assert (tmp_path / "audit.html").read_text(encoding="utf-8") == render(result)


@pytest.mark.parametrize("module", ["matplotlib", "jinja2"])
def test_a_missing_extra_is_named(result, monkeypatch, module):
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[html\]' in a checkout"):
        render(result)
