"""The page of a leak passport shows every number beside its bound, and loads nothing."""

from __future__ import annotations

import dataclasses
import re
import sys
from html import unescape

import numpy as np
import pytest

import offaxis
from offaxis.errors import MissingExtra
from offaxis.html.passport_page import percent, place, render, write_page
from offaxis.leakage import LeakPassport
from offaxis.privacy import wording
from tests.html.strict_page import StrictPage


@pytest.fixture(scope="module")
def passport(public) -> LeakPassport:
    release = offaxis.fit(None, public, epsilon=2, reshaping="none", mechanism="laplace")
    return offaxis.passport(release, public, trials=200, exact=False)


@pytest.fixture(scope="module")
def text(passport) -> str:
    return render(passport)


def cells(text: str, leak: str) -> list[str]:
    """Return the texts of the cells of a row, small print left out."""
    row = re.search(rf'<tr data-leak="{re.escape(leak)}">(.*?)</tr>', text, re.DOTALL)
    assert row, leak
    parts = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row[1], re.DOTALL)
    return [unescape(re.sub(r"<span.*", "", part, flags=re.DOTALL)).strip() for part in parts]


def test_every_attack_is_beside_chance_bound_and_controls(passport, text):
    for leak in passport.of_release:
        setting, value, chance, bound, *controls, trials = cells(
            text, f"{leak.attack}: {leak.setting}"
        )
        assert setting == leak.setting
        assert value == percent(leak.value)
        assert chance == percent(leak.chance)
        assert bound == percent(leak.bound, up=True)
        assert trials == f"{leak.trials:,}"
        beside = passport.beside(leak)
        for source, shown in zip(
            ("no privacy", "float noise", "no clipping"), controls, strict=True
        ):
            assert shown == (percent(beside[source].value) if source in beside else "–")
    values = {percent(leak.value) for leak in passport.of_release}
    assert len(values) > 8, "a swap would show"


def test_the_chart_has_a_row_for_every_attack_in_place(passport, text):
    labels = re.findall(r'<div class="track" role="img" aria-label="([^"]*)"', text)
    assert len(labels) == len(passport.of_release)
    dots = re.findall(r'<i class="dot[^"]*" style="left:([\d.]+%)"', text)
    assert dots == [place(leak.value) for leak in passport.of_release]
    lines = re.findall(r'<i class="most" style="left:([\d.]+%)"', text)
    assert lines == [place(leak.bound) for leak in passport.of_release if leak.bound is not None]
    for leak, label in zip(passport.of_release, labels, strict=True):
        assert f"{percent(leak.value)} by the attack" in label
        assert f"at most {percent(leak.bound, up=True)}" in label


def test_the_page_can_be_filed(passport, text):
    page = unescape(text)
    assert passport.release in page
    assert passport.date in page
    assert offaxis.__version__ in page
    assert passport.summary in page
    for sentence in (
        *wording.promise(passport.guarantee),
        *wording.protected(passport.guarantee),
        *wording.not_promised(passport.guarantee),
        *passport.guarantee.assumptions,
    ):
        assert sentence in page
    for topic in ("Unit of privacy", "Trust model", "Data collection exposure", "Side channels"):
        assert f'<th scope="row">{topic}</th>' in text
    for topic in ("SP 800-226", "AISVS C8.4", "8.4.1", "LLM08:2025", "certifies nothing"):
        assert topic in text


def test_the_page_loads_nothing(text):
    page = StrictPage(text)
    assert not {"script", "link", "img", "iframe", "object", "embed", "base"} & set(page.tags)
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\((?!#)", text)
    assert "default-src 'none'" in text
    assert page.tags.count("h1") == 1
    assert ("html", "lang", "en") in page.attributes
    assert len(page.ids) == len(set(page.ids))


def test_a_leak_beyond_its_bound_is_plain(passport):
    first = passport.leaks[0]
    over = dataclasses.replace(first, value=0.99, low=0.97, high=1.0)
    page = render(dataclasses.replace(passport, leaks=(over, *passport.leaks[1:])))
    assert "<h1>More leaks than ε = 2 allows</h1>" in page
    assert "Beyond what ε = 2, pure allows: nearest candidate (2 random people)." in page
    assert '<td class="over">99.0' in page
    assert 'class="dot is-over" style="left:99.00%"' in page


def test_a_passport_without_controls_or_bounds_has_a_page(passport):
    alone = tuple(
        dataclasses.replace(leak, bound=None, basis="none") for leak in passport.of_release
    )
    page = render(dataclasses.replace(passport, leaks=alone, not_run={"linkage": "a <reason>"}))
    StrictPage(page)
    assert "no clipping" not in page[page.index("<body>") :].replace("without clipping", "")
    assert "Not run: linkage. A &lt;reason&gt;." in page


def test_bounds_are_never_rounded_down():
    assert percent(0.88080, up=True).startswith("88.1")
    assert percent(0.88001, up=True).startswith("88.1")
    assert percent(0.88, up=True).startswith("88.0")
    assert percent(0.99999, up=True).startswith("100.0")
    assert percent(0.0025, up=True).startswith("0.25")
    assert percent(-0.02).startswith("−2.0")
    assert percent(None) == "–"
    assert place(-1) == "0.00%"
    assert place(3) == "100.00%"


def test_the_page_is_written_to_a_file(passport, tmp_path):
    write_page(passport, tmp_path / "passport.html")
    assert (tmp_path / "passport.html").read_text(encoding="utf-8") == render(passport)


def test_a_missing_extra_is_named(passport, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "jinja2"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[html\]' in a checkout"):
        render(passport)


def test_shares_are_written_for_reading():
    assert np.all([len(percent(value)) <= 8 for value in (0.0, 0.5, 1.0, -0.5)])


def test_the_page_does_not_vouch_for_a_randomizer_of_another_package(passport):
    foreign = render(dataclasses.replace(passport, randomizer="acme.noise"))
    for words in ("not copied from a claim", "drawn exactly", "docs/proofs.md;"):
        assert words in render(passport)
        assert words not in foreign
    assert "stated by the authors of acme.noise, which is not part of offaxis" in foreign
