"""The scripts that build the site: formulas are typeset, and pictures match their scripts."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs/pictures"
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@pytest.fixture
def docs(monkeypatch):
    """Make the scripts of the docs importable, and unload them afterwards."""
    before = set(sys.modules)
    for folder in ("building", "pictures"):
        monkeypatch.syspath_prepend(str(ROOT / "docs" / folder))
    yield
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and "docs/" in sys.modules[name].__file__:
            del sys.modules[name]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<p>e^ε</p>", "<p>e<sup>ε</sup></p>"),
        ("q^{2^i β_i}", "q<sup>2<sup>i</sup> β<sub>i</sub></sup>"),
        ("x_i² ≤ max_j ‖w‖_p", "x<sub>i</sub>² ≤ max<sub>j</sub> ‖w‖<sub>p</sub>"),
        ("λ_{max} of Ω̂_t", "λ<sub>max</sub> of Ω̂<sub>t</sub>"),
        ("√Σn_i² 2γ_i", "√Σn<sub>i</sub>² 2γ<sub>i</sub>"),
        ("J_iᵀJ_i σ_aσ_b", "J<sub>i</sub>ᵀJ<sub>i</sub> σ<sub>a</sub>σ<sub>b</sub>"),
        ("|(Bᵀa_k)_j| ‖Wh_i‖", "|(Bᵀa<sub>k</sub>)<sub>j</sub>| ‖Wh<sub>i</sub>‖"),
        ("|He_n(x)| χ²_{k−1}", "|He<sub>n</sub>(x)| χ²<sub>k−1</sub>"),
        ("σ_null² U_Rand", "σ<sub>null</sub>² U<sub>Rand</sub>"),
        ("∫_0^∞ λ_i^⋆", "∫<sub>0</sub><sup>∞</sup> λ<sub>i</sub><sup>⋆</sup>"),
        ("R^dim w^(k) ‖·‖_ℋ", "R<sup>dim</sup> w<sup>(k)</sup> ‖·‖<sub>ℋ</sub>"),
        ("5 % at ε = 2 %s", "5\u00a0% at ε\u00a0=\u00a02 %s"),
        ("<code>a_i^2</code> some_name", "<code>a_i^2</code> some_name"),
        ("x86_64 p_value max_iter to_a", "x86_64 p_value max_iter to_a"),
    ],
)
def test_superscripts_and_subscripts_are_typeset(docs, text, shown):
    from formulas import typeset

    assert typeset(text) == shown


def test_the_pictures_match_their_scripts(docs):
    import make

    drawn = {name: draw() for name, draw in make.PICTURES.items()}
    assert drawn.keys() <= {file.stem for file in PICTURES.glob("*.svg")}
    for name, picture in drawn.items():
        kept = (PICTURES / f"{name}.svg").read_text(encoding="utf-8")
        # Other versions of matplotlib place text slightly differently.
        assert _NUMBER.sub("0", kept) == _NUMBER.sub("0", picture), name
        pairs = zip(_NUMBER.findall(kept), _NUMBER.findall(picture), strict=True)
        assert all(abs(float(a) - float(b)) < 2 for a, b in pairs), name


@pytest.mark.parametrize(
    "name", ["overview", "steps", "households-split", "images-split", "protocol"]
)
def test_diagrams_fit_a_phone_and_have_a_description(name):
    head = (PICTURES / f"{name}.svg").read_text(encoding="utf-8").split("<style>")[0]
    width = re.search(r' width="(\d+)"', head)
    assert width is not None
    # The site shows a drawing with at least three quarters of its width.
    assert 0.75 * int(width[1]) <= 350
    assert re.search(r'role="img" aria-label="[^"]{100,}"', head)


def test_the_picture_of_the_steps_shows_what_a_release_does(docs):
    import steps

    stage = steps.plane()
    encoded = stage["release"].encoder.encode(stage["vectors"])
    np.testing.assert_allclose(stage["encoded"], encoded, atol=1e-9)
    root = np.sqrt(stage["fitted"].stretch)
    np.testing.assert_allclose(stage["rotated"] / root, encoded, atol=1e-9)
    norms = np.abs(stage["clipped"]).sum(axis=1)
    assert norms.max() == pytest.approx(stage["radius"])
    # The vector shown is clipped, and ends on the same side of the line as without noise.
    assert norms[-1] < np.abs(encoded[-1]).sum()
    assert (stage["decoded"] @ stage["normal"] > 0).mean() > 0.9
    across, along = np.std((stage["decoded"] - stage["fitted"].centre) @ stage["fitted"].basis, 0)
    assert along > 2 * across


def test_no_household_of_the_pictured_round_reports_twice(docs):
    import splits

    shown = splits.round_dates()
    assert sorted(who for who, _ in shown) == list(range(splits.IN_ROUND))
    days = [day for _, day in shown]
    assert min(np.diff(days)) >= splits.SPACING


def test_every_statement_of_the_paper_has_a_name_and_a_test_that_exists():
    """Names are attributes of offaxis or arguments; a `::` alone repeats the file before it."""
    page = (ROOT / "docs/theory.md").read_text(encoding="utf-8")
    section = page.split("## Statements of the paper")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.*?) \| (.*?) \| (`.*) \|$", section, flags=re.M)
    assert len(rows) == len(re.findall(r"^\| ", section, flags=re.M)) - 1 > 20
    assert all("`" in name for _, name, _ in rows)
    file, checked = "", 0
    for path, test in re.findall(r"`(tests/\w+/\w+\.py)?::(\w+)`", section):
        file = path or file
        source = (ROOT / file).read_text(encoding="utf-8")
        assert f"\ndef {test}(" in source, (file, test)
        checked += 1
    assert checked == section.count("::test_") > len(rows)


def test_every_cell_of_the_comparison_has_evidence():
    page = (ROOT / "docs/related-work.md").read_text(encoding="utf-8")
    summary, *sections = re.split(r"^## ", page, flags=re.M)
    heads, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in summary.splitlines()
        if line.startswith("|")
    ]
    by_title = {section.partition("\n")[0]: section for section in sections}
    for name, *cells in rows:
        section = by_title[re.sub(r"\[(.*)\].*", r"\1", name)]
        evidence = {}
        for line in section.splitlines():
            column, *rest = [cell.strip() for cell in line.strip("|").split("|")]
            if len(rest) == 2:
                evidence.setdefault(column.partition(":")[0], rest)
        for column, cell in zip(heads[1:], cells, strict=True):
            stated, reason = evidence[column]
            assert reason, (name, column)
            assert ("\\*" in cell) == ("\\*" in stated), (name, column)


def test_the_numbers_in_the_picture_of_utility_are_reproduced(docs):
    import measured

    kept = {(row["epsilon"], row["curve"]): row["agreement"] for row in measured.read_table()}
    for row in measured.measure(budgets=(3,), seeds=1):
        # 5,000 answers: four standard errors are 0.028, and the kept number has an error, too.
        expected = float(kept[row["epsilon"], row["curve"]])
        assert float(row["agreement"]) == pytest.approx(expected, abs=0.04), row
