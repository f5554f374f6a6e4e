"""``offaxis ask``: every question of every kind of release, and questions without an answer."""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.main import get_command

import offaxis
from offaxis.cli.app import app
from offaxis.encoding import Number
from offaxis.geometry import Layers
from offaxis.learning import (
    Answer,
    Classes,
    Population,
    fit_answers,
    fit_check,
    fit_pairs,
    fit_second_moments,
    histogram,
    principal,
    second_moments,
)
from tests.cli.conftest import Run, assert_fails, assert_usage_error

DIM, NAMES = 4, ("cat", "dog", "owl")
NOW, BEFORE = (0.6, 0.3, 0.1), (0.2, 0.4, 0.4)
PEOPLE = 3000
SHARE = "share of head.safetensors"
MODEL = """
def nan():
    import numpy
    return lambda Z: numpy.where(Z[:, :1] > 0, Z[:, :1], numpy.nan)

def two():
    return lambda Z: Z[:, :2]
"""


@pytest.fixture(scope="module")
def crowd() -> dict[str, Any]:
    """Reports of people in three clusters, whose shares change between two rounds."""
    rng = np.random.default_rng(0)
    centres = 5 * np.eye(3, DIM)

    def draw(count: int, shares: Any = None) -> np.ndarray:
        cluster = rng.choice(3, size=count, p=shares)
        return centres[cluster] + rng.standard_normal((count, DIM))

    public, now, before = draw(900), draw(PEOPLE, NOW), draw(PEOPLE, BEFORE)
    direct: dict[str, Any] = {"mechanism": "privunit2", "reshaping": "centre"}
    plain: dict[str, Any] = {"mechanism": "laplace", "reshaping": "none"}
    releases = {
        "my": offaxis.fit(None, public, epsilon=4, **direct),
        "noisy": offaxis.fit(None, public, epsilon=8, **plain),
        "moments": fit_second_moments(public, 3, epsilon=4),
    }
    files: dict[str, Any] = {f"{name}.release": release for name, release in releases.items()}
    for name, release in releases.items():
        files[f"{name}.reports"] = release.privatize(now)
        files[f"{name}-before.reports"] = release.privatize(before)
    smoker, age = Classes(["no", "yes"], name="smoker"), Number(0, 100, name="age", bins=10)
    of_answers = {
        "smokers": (
            fit_answers(["no", "yes"], epsilon=2),
            [["yes", "no"][int(p)] for p in now[:, 0] > 2],
        ),
        "both": (
            fit_answers([smoker, age], epsilon=3),
            {"smoker": ["no", "no", "yes"] * 1000, "age": rng.normal(40, 10, PEOPLE)},
        ),
    }
    for name, (release, answers) in of_answers.items():
        files |= {f"{name}.release": release, f"{name}.reports": release.privatize(answers=answers)}
    files["smokers-before.reports"] = of_answers["smokers"][0].privatize(answers=["yes"] * PEOPLE)
    return {"public": public, "centres": centres, "files": files}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crowd: dict[str, Any]) -> Path:
    monkeypatch.chdir(tmp_path)
    # At its own level the test of fit rejects one good population in twenty.
    monkeypatch.setattr(import_module("offaxis.learning.population"), "FIT_LEVEL", 1e-9)
    np.save("public.npy", crowd["public"])
    centres = crowd["centres"]
    Layers([centres], [-(centres**2).sum(axis=1) / 2], answers=NAMES).save("head.safetensors")
    Layers([np.eye(1, DIM)], [np.zeros(1)]).save("line.safetensors")
    Path("asked_models.py").write_text(MODEL)
    for name, content in crowd["files"].items():
        if name.endswith(".release"):
            content.save(name)
        else:
            Path(name).write_bytes(b"".join(content))
    return tmp_path


@pytest.fixture
def ask(folder: Path, run: Run) -> Callable[..., Any]:
    """Return a function that asks a release, with its own reports, and reads the answers."""

    def asked(name: str, *options: str) -> Any:
        result = run("ask", f"{name}.release", "--reports", f"{name}.reports", *options, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return asked


def of_public(*questions: str) -> tuple[str, ...]:
    return ("--public", "public.npy", *of(*questions))


def of(*questions: str) -> tuple[str, ...]:
    return tuple(part for text in questions for part in ("--question", text))


# ---- Releases of vectors


def test_a_population_is_asked_for_everything(ask: Callable[..., Any], folder: Path) -> None:
    questions = [
        *(SHARE, "accuracy of head.safetensors", "mean", "mean of 0", "mean of head.safetensors"),
        *("mean of line.safetensors", "median of 0", "quantile .9 of head.safetensors:cat"),
        *("median of asked_models:two:1", "histogram of 0 in 4 bins", "covariance"),
    ]
    facts = ask("my", *of_public(*questions), "--cells", "10")
    assert (facts["reports"], facts["level"], facts["against"]) == (PEOPLE, 0.95, None)
    assert facts["cells"] <= 10
    assert facts["public_vectors"] == 900
    assert facts["warning"] == ""
    found = {answer["question"]: answer for answer in facts["answers"]}
    assert list(found) == questions
    for answer in found.values():
        size = len(answer["names"])
        assert all(len(answer[name]) == size for name in ("estimate", "standard_error", "low"))
        assert np.less_equal(answer["low"], answer["high"]).all()
    # The numbers of the library, which has tests of its own.
    release, public = offaxis.load("my.release"), np.load("public.npy")
    reports = np.fromfile("my.reports", f"V{release.report_size}").tolist()
    crowd = offaxis.population(release, reports, public, cells=10)
    head = Layers.load("head.safetensors")
    expected = {
        SHARE: crowd.share(head),
        "mean": crowd.mean(),
        "mean of 0": crowd.mean(lambda Z: Z[:, 0]),
        "mean of line.safetensors": crowd.mean(lambda Z: Z[:, 0]),
        "mean of head.safetensors": crowd.mean(head.outputs),
        "median of 0": crowd.quantile(lambda Z: Z[:, 0]),
        "median of asked_models:two:1": crowd.quantile(lambda Z: Z[:, 1]),
        "quantile .9 of head.safetensors:cat": crowd.quantile(lambda Z: head.outputs(Z)[:, 0], 0.9),
        "histogram of 0 in 4 bins": crowd.histogram(lambda Z: Z[:, 0], 4),
        "accuracy of head.safetensors": crowd.accuracy(head),
    }
    for question, answer in expected.items():
        low, high = answer.interval(0.95)
        rows = (answer.estimate, answer.standard_error, low, high)
        names = ("estimate", "standard_error", "low", "high")
        for name, numbers in zip(names, rows, strict=True):
            np.testing.assert_allclose(found[question][name], np.ravel(numbers), rtol=1e-6)
    assert found[SHARE]["names"] == found["mean of head.safetensors"]["names"] == list(NAMES)
    assert found["mean"]["names"] == ["0", "1", "2", "3"]
    assert found["median of 0"]["names"] == ["median of 0"]
    upper = np.triu_indices(DIM)
    np.testing.assert_allclose(
        found["covariance"]["estimate"], crowd.covariance().estimate[upper], rtol=1e-6
    )
    assert found["covariance"]["names"][:2] == ["0, 0", "0, 1"]
    # Off by 6 standard errors of .01: a false alarm in 5e8 runs.
    np.testing.assert_allclose(found[SHARE]["estimate"], NOW, atol=0.08)


def test_the_terminal_shows_tables_of_eighty_columns(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    asked = ("ask", "my.release", "--reports", "my.reports", *of_public(SHARE, "mean of 0", "mean"))
    text = run(*asked, "--level", "0.9").stdout
    assert max(map(len, text.splitlines())) <= 80
    assert "3,000 reports at ε = 4." in text
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "answer estimate 90 % interval standard error" in lines
    assert any(line.startswith("cat ") and line.count("%") == 3 for line in lines)
    # One number takes a row of its own, not a table.
    assert any(line.startswith("mean of 0 ") for line in lines)
    assert "Each interval by itself holds with 90 % confidence" in text
    assert "wrote" not in text


def test_rounds_are_compared(ask: Callable[..., Any], folder: Path, run: Run) -> None:
    against = ("--against", "my-before.reports")
    facts = ask("my", *of_public(SHARE, "mean of 0", "histogram of 0 in 3 bins"), *against)
    assert facts["against"]["reports"] == PEOPLE
    assert facts["against"]["p_value_of_no_change"] < 1e-9
    change = facts["answers"][0]["change"]
    np.testing.assert_allclose(change["estimate"], np.subtract(NOW, BEFORE), atol=0.12)
    assert change["low"][0] > 0 > change["high"][2]
    assert len(facts["answers"][2]["change"]["low"]) == 3
    text = run(
        *("ask", "my.release", "--reports", "my.reports", *of_public(SHARE), *against),
    ).stdout
    assert "Test of no change since 3,000 earlier reports: p < 0.0001." in " ".join(text.split())
    assert "change" in text
    assert "+" in text
    for question in ("median of 0", "covariance", "accuracy of head.safetensors"):
        result = run(
            *("ask", "my.release", "--reports", "my.reports", *of_public(question), *against)
        )
        assert_usage_error(result, "--against cannot compare", "it compares: share, mean")


def test_what_cannot_be_compared_is_answered_without_a_change(folder: Path, run: Run) -> None:
    against = ("--against", "my-before.reports")
    questions = ("mean of 0", "median of 0", SHARE, "covariance")
    asked = ("ask", "my.release", "--reports", "my.reports", *of_public(*questions), *against)
    answers = json.loads(run(*asked, "--json").stdout)["answers"]
    assert ["change" in answer for answer in answers] == [True, False, True, False]
    said = "--against cannot compare 'covariance'; it compares: share, mean, histogram."
    assert said in answers[3]["note"]
    assert "--against" not in answers[2]["note"]
    text = run(*asked, "--out", "x.csv").stdout
    assert " ".join(text.split()).count(said) == 1
    with Path("x.csv").open(newline="") as file:
        rows = {row["question"]: row for row in csv.DictReader(file)}
    assert rows["mean of 0"]["change"]
    assert not rows["median of 0"]["change"]
    asked = ("ask", "moments.release", "--reports", "moments.reports")
    asked += (*of("mean", "principal directions"), "--against", "moments-before.reports")
    mean, directions = json.loads(run(*asked, "--json").stdout)["answers"]
    assert "change" in mean
    assert "change" not in directions


def test_people_who_differ_from_all_public_vectors_are_warned_of(folder: Path, run: Run) -> None:
    release = offaxis.load("my.release")
    far: Any = release.privatize(5 * np.random.default_rng(1).standard_normal((PEOPLE, DIM)))
    Path("far.reports").write_bytes(b"".join(far))
    asked = ("ask", "my.release", "--reports", "far.reports", *of_public(SHARE))
    text = " ".join(run(*asked).stdout.split())
    assert text.count("No weights of the public vectors explain the reports") == 1
    assert "Warning: No weights" in text
    assert "No weights" in json.loads(run(*asked, "--json").stdout)["warning"]
    before = ("--against", "far.reports")
    text = run("ask", "my.release", "--reports", "my.reports", *of_public(SHARE), *before).stdout
    assert "Warning about the earlier reports: No weights" in text


def test_a_warning_about_one_answer_is_shown_with_it(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    mean = Population.mean

    def warned(self: Population, function: Any = None) -> Answer:
        return replace(mean(self, function), warning="Only this one is doubtful.")

    monkeypatch.setattr(Population, "mean", warned)
    asked = ("ask", "my.release", "--reports", "my.reports", *of_public(SHARE, "mean of 0"))
    text = run(*asked).stdout
    assert "\nWarning about mean of 0: Only this one is doubtful.\n" in text
    share, doubtful = json.loads(run(*asked, "--json").stdout)["answers"]
    assert "warning" not in share
    assert doubtful["warning"] == "Only this one is doubtful."


def test_principal_directions_of_vectors_need_additive_noise(
    ask: Callable[..., Any], folder: Path, run: Run
) -> None:
    (found,) = ask("noisy", *of("principal directions"))["answers"]
    assert len(found["direction"]) == len(found["estimate"]) == DIM
    mixed = ask("noisy", *of_public("principal directions", SHARE))
    assert mixed["answers"][0] == found
    result = run("ask", "my.release", "--reports", "my.reports", *of("principal directions"))
    assert_fails(result, 3, "show directions, never lengths", "offaxis fit --goal covariance")


# ---- Releases of second moments


def test_second_moments_are_asked(ask: Callable[..., Any], folder: Path, run: Run) -> None:
    questions = of("mean", "covariance", "principal directions")
    facts = ask("moments", *questions)
    release = offaxis.load("moments.release")
    reports = np.fromfile("moments.reports", f"V{release.report_size}").tolist()
    expected = second_moments(release, reports)
    mean, covariance, principal = facts["answers"]
    np.testing.assert_allclose(mean["estimate"], expected.mean)
    np.testing.assert_allclose(mean["low"], expected.mean_interval()[0])
    np.testing.assert_allclose(mean["public"], expected.public_mean)
    upper = np.triu_indices(3)
    np.testing.assert_allclose(covariance["estimate"], expected.covariance[upper])
    np.testing.assert_allclose(covariance["high"], expected.interval()[1][upper])
    assert covariance["names"] == ["0, 0", "0, 1", "0, 2", "1, 1", "1, 2", "2, 2"]
    np.testing.assert_allclose(principal["estimate"], expected.principal().values)
    np.testing.assert_allclose(principal["direction"], expected.principal().directions)
    text = run("ask", "moments.release", "--reports", "moments.reports", *questions).stdout
    assert "direction   variance" in text
    assert "in public standard deviations; vectors are clipped" in " ".join(text.split())
    before = ("--against", "moments-before.reports")
    facts = ask("moments", *of("mean", "covariance"), *before)
    assert facts["against"] == {"reports": PEOPLE}
    change = facts["answers"][0]["change"]
    assert (np.abs(change["estimate"]) > 4 * np.array(change["standard_error"])).any()
    asked = ("ask", "moments.release", "--reports", "moments.reports")
    assert_usage_error(run(*asked, *of("mean of 2")), "in its own coordinates only")
    result = run(*asked, *of("median of 2"))
    assert_usage_error(result, "cannot answer 'median of 2'", "mean, covariance, principal")
    assert_usage_error(run(*asked, *of("principal directions"), *before), "cannot compare")
    Path("few.reports").write_bytes(Path("moments.reports").read_bytes()[: 40 * len(reports[0])])
    few = run("ask", "moments.release", "--reports", "few.reports", *of("mean"))
    assert_fails(few, 3, "40 reports are too few", "at least 100")


# ---- Releases of private answers alone


def test_private_answers_are_asked(ask: Callable[..., Any], folder: Path, run: Run) -> None:
    (found,) = ask("smokers", *of("shares"))["answers"]
    release = offaxis.load("smokers.release")
    reports = np.fromfile("smokers.reports", f"V{release.report_size}").tolist()
    expected = release.shares(reports)
    assert found["names"] == ["no", "yes"]
    np.testing.assert_allclose(found["estimate"], expected.estimate)
    low, high = expected.interval(0.95, simultaneous=False)
    np.testing.assert_allclose([found["low"], found["high"]], [low, high])
    (named,) = ask("smokers", *of("share of answer"))["answers"]
    assert named["estimate"] == found["estimate"]
    facts = ask("smokers", *of("shares"), "--against", "smokers-before.reports")
    assert facts["against"] == {"reports": PEOPLE}
    change = facts["answers"][0]["change"]
    assert change["high"][1] < 0 < change["low"][0]  # everybody said yes before
    text = run("ask", "smokers.release", "--reports", "smokers.reports", *of("shares")).stdout
    assert "3,000 reports of ε = 2, pure." in text


def test_one_of_several_private_answers_is_asked(
    ask: Callable[..., Any], folder: Path, run: Run
) -> None:
    questions = ("share of smoker", "histogram of age", "histogram", "median of age", "mean")
    facts = ask("both", *of(*questions, "quantile .9 of age", "shares"))
    smoker, ages, same, median, mean, upper, joint = facts["answers"]
    release = offaxis.load("both.release")
    reports = np.fromfile("both.reports", f"V{release.report_size}").tolist()
    shares, expected = release.shares(reports), histogram(release, reports, "age")
    assert smoker["names"] == ["no", "yes"]
    table = shares.estimate.reshape(2, 10)
    np.testing.assert_allclose(smoker["estimate"], table.sum(axis=1))
    weights = np.repeat([1.0, 0.0], 10)
    np.testing.assert_allclose(smoker["standard_error"][0], shares.variance(weights) ** 0.5)
    # Off by six standard errors of .02: a false alarm in 5e8 runs.
    np.testing.assert_allclose(smoker["estimate"], [2 / 3, 1 / 3], atol=0.12)
    np.testing.assert_allclose(ages["estimate"], expected.estimate)
    assert ages["names"][:2] == ["0 to 10", "10 to 20"]
    assert same["estimate"] == ages["estimate"]
    assert (median["estimate"], median["low"], median["high"]) == tuple(
        [number] for number in expected.quantile(0.5)
    )
    assert median["standard_error"] == [None]
    assert mean["estimate"] == [expected.mean().estimate]
    assert upper["estimate"] == [expected.quantile(0.9).estimate]
    assert len(joint["names"]) == 20
    against = ("--against", "both.reports")  # refused: the same reports twice
    asked = ("ask", "both.release", "--reports", "both.reports")
    assert_usage_error(run(*asked, *of("shares"), *against), "both.reports is given twice")
    Path("again.reports").write_bytes(Path("both.reports").read_bytes())
    before = ("--against", "again.reports")
    for answer in ask("both", *of("histogram of age", "share of smoker"), *before)["answers"]:
        np.testing.assert_allclose(answer["change"]["estimate"], 0, atol=1e-12)
    assert_usage_error(run(*asked, *of("median"), *before), "it compares: share, histogram")
    assert_usage_error(run(*asked, *of("covariance")), "cannot answer", "shares, share of NAME")
    unknown = run(*asked, *of("share of pets"))
    assert_usage_error(unknown, "no classes are called 'pets'; name one of 'smoker'")
    number = run(*asked, *of("share of age"))
    assert_usage_error(number, "'age' is a number; ask 'histogram of age'")
    classes = run(*asked, *of("mean of smoker"))
    assert_usage_error(classes, "'smoker' is no number; ask 'share of smoker'")
    assert_usage_error(run(*asked, *of("mean of years")), "name one of 'age'")
    assert_usage_error(run(*asked, *of("histogram in 5 bins")), "the release fixes the bins")
    asked = ("ask", "smokers.release", "--reports", "smokers.reports")
    assert_usage_error(run(*asked, *of("median")), "this release asks for no numbers")
    assert_usage_error(run(*asked, *of_public("shares")), "--public has no effect")
    assert_usage_error(run(*asked, *of("shares"), "--cells", "9"), "--cells has no effect")


# ---- Files


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_tables_hold_all_numbers(folder: Path, run: Run, ask: Any, suffix: str) -> None:
    out = f"answers.{suffix}"
    asked = of("principal directions", "mean", "covariance")
    facts = ask("moments", *asked, "--out", out)
    assert facts["out"] == out
    if suffix == "csv":
        with Path(out).open(newline="") as file:
            rows = list(csv.DictReader(file))
    else:
        rows = parquet.read_table(out).to_pylist()
    assert list(rows[0]) == ["question", "name", "estimate", "standard_error", "low", "high"]
    assert len(rows) == 3 + 3 * DIM + 3 + 6
    directions, mean, _ = facts["answers"]
    assert [float(row["estimate"]) for row in rows[:3]] == directions["estimate"]
    assert rows[3]["name"] == "direction 1, coordinate 0"
    assert float(rows[3]["estimate"]) == directions["direction"][0][0]
    assert not rows[3]["low"]
    assert float(rows[3 + 3 * DIM]["high"]) == mean["high"][0]
    text = run(
        *("ask", "smokers.release", "--reports", "smokers.reports", *of("shares")),
        *("--against", "smokers-before.reports", "--out", out),
    )
    assert f"wrote {out}" in text.stdout
    header = parquet.read_schema(out).names if suffix == "parquet" else None
    header = header or Path(out).read_text().splitlines()[0].split(",")
    assert header[-4:] == ["change", "change_standard_error", "change_low", "change_high"]


def test_reports_are_read_from_folders_and_exports(folder: Path, run: Run) -> None:
    release = offaxis.load("my.release")
    reports = np.fromfile("my.reports", f"V{release.report_size}").tolist()
    Path("rounds").mkdir()
    Path("rounds/1.reports").write_bytes(b"".join(reports[:1000]))
    table = {"id": list(range(2000)), "report": pa.array(reports[1000:], pa.binary())}
    parquet.write_table(pa.table(table), "rounds/2.parquet")
    ask = ("ask", "my.release", *of_public(SHARE), "--json", "--reports")
    whole = json.loads(run(*ask, "my.reports").stdout)
    assert json.loads(run(*ask, "rounds").stdout) == whole
    parts = run(*ask, "rounds/1.reports", "--reports", "rounds/2.parquet")
    assert json.loads(parts.stdout) == whole
    twice = run(*ask, "rounds", "--reports", "rounds/1.reports")
    assert_usage_error(twice, "is given twice: its reports would count twice")
    assert_fails(run(*ask, "none"), 3, "file of reports not found: none")
    assert_fails(run(*ask, "my.reports", "--expect", "0" * 64), 3, "expected")


def test_long_tables_are_cut(folder: Path, run: Run) -> None:
    release = fit_answers(40, epsilon=8)
    reports: Any = release.privatize(answers=list(range(40)) * 5)
    release.save("long.release")
    Path("long.reports").write_bytes(b"".join(reports))
    text = run("ask", "long.release", "--reports", "long.reports", *of("shares")).stdout
    assert "… and 16 more" in text


def test_the_largest_covariances_are_shown(folder: Path, run: Run) -> None:
    """The first coordinates of an image are constant, and so are most products."""
    rng = np.random.default_rng(4)
    public = np.zeros((400, 8))
    public[:, 6:] = rng.standard_normal((400, 2)) * (9, 4)
    np.save("image.npy", public)
    release = offaxis.fit(None, public, epsilon=4, mechanism="privunit2", reshaping="centre")
    release.save("image.release")
    reports: Any = release.privatize(public)
    Path("image.reports").write_bytes(b"".join(reports))
    asked = ("ask", "image.release", "--reports", "image.reports", "--public", "image.npy")
    text = run(*asked, *of("covariance")).stdout
    rows = [line.split()[:2] for line in text.splitlines() if line[:1].isdigit()]
    assert ["6,", "6"] in rows
    assert ["7,", "7"] in rows
    assert "… and 12 smaller ones" in text
    facts = json.loads(run(*asked, *of("covariance"), "--json").stdout)
    assert facts["answers"][0]["names"][0] == "0, 0"  # all of them, in their order


def test_a_note_of_several_answers_is_printed_once(folder: Path, run: Run) -> None:
    asked = ("ask", "my.release", "--reports", "my.reports")
    questions = of_public(SHARE, "accuracy of head.safetensors", "mean")
    text = " ".join(run(*asked, *questions).stdout.split())
    assert text.count("Estimates are shrunk towards the public vectors") == 1
    assert text.count("The model's own probabilities are taken to be right.") == 1
    notes = [a["note"] for a in json.loads(run(*asked, *questions, "--json").stdout)["answers"]]
    assert notes[1] == f"{notes[0]} The model's own probabilities are taken to be right."


# ---- What cannot be asked


def test_other_releases_are_referred_to_their_commands(folder: Path, run: Run) -> None:
    public = np.load("public.npy")
    pairs = fit_pairs(principal(public), ["no", "yes"], epsilon=2)
    check = fit_check(Layers.load("head.safetensors"), public, epsilon=1)
    single = offaxis.load("my.release")
    pairs.save("pairs.release")
    check.save("check.release")
    offaxis.memoise(single, draws=4, period=9).save("year.release")
    for name, command in (("pairs", "fit"), ("check", "evaluate"), ("year", "trend")):
        result = run("ask", f"{name}.release", "--reports", "my.reports", *of_public("mean"))
        expected = "offaxis trend" if name == "year" else f"offaxis learn {command}"
        assert_usage_error(result, expected)


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("shares", "'shares' of what? It is written 'share of MODEL'"),
        ("median", "'median' of what?"),
        ("median of age", "neither the number of a coordinate nor a model"),
        ("median of head.safetensors", "several outputs, such as cat, dog, owl; select one as"),
        ("share of head.safetensors:d1", "of all answers of a model, as in 'share of head.saf"),
        ("share of head.safetensors:cat", "one output, as in 'mean of head.safetensors:cat'"),
        ("accuracy of asked_models:two:1", "as in 'accuracy of asked_models:two'"),
        ("histogram of asked_models:two", "several outputs, such as 0, 1"),
    ],
)
def test_incomplete_questions_are_usage_errors(
    folder: Path, run: Run, question: str, message: str
) -> None:
    asked = ("ask", "my.release", "--reports", "my.reports")
    assert_usage_error(run(*asked, *of_public(question)), message)


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("share of head", "the model must be an import path"),
        ("share of none.safetensors", "file not found: none.safetensors"),
        ("mean of none.safetensors:1", "file not found: none.safetensors"),
        ("mean of 4", "coordinates are 0 to 3"),
        ("mean of head.safetensors:cow", "there is no output 'cow'"),
        ("mean of head.safetensors:3", "there is no output '3'"),
        ("share of line.safetensors", "a model with one output has no answers"),
        ("mean of asked_models:nan", "not finite"),
        ("accuracy of asked_models:nan", "not finite"),
    ],
)
def test_bad_models_and_coordinates_exit_with_3(
    folder: Path, run: Run, question: str, message: str
) -> None:
    asked = ("ask", "my.release", "--reports", "my.reports")
    assert_fails(run(*asked, *of_public(question), "--out", "x.csv"), 3, message)
    assert not Path("x.csv").exists()


def test_bad_inputs_exit_with_3(folder: Path, run: Run) -> None:
    np.save("empty.npy", np.zeros((0, DIM)))
    np.save("wide.npy", np.zeros((50, DIM + 1)))
    np.save("equal.npy", np.ones((50, DIM)))
    size = offaxis.load("my.release").report_size
    content = Path("my.reports").read_bytes()
    Path("few.reports").write_bytes(content[: 50 * size])
    Path("other.reports").write_bytes(content[: 999 * size] + b"x" * size)
    ask = ("ask", "my.release", *of("mean of 3"), "--reports")
    public = ("--public", "public.npy")
    assert_fails(run(*ask, "few.reports", *public), 3, "50 reports are too few", "at least 200")
    hidden = offaxis.fit(
        None, np.load("public.npy"), epsilon=0.2, mechanism="privunit2", reshaping="centre"
    )
    hidden.save("hidden.release")
    some: Any = hidden.privatize(np.load("public.npy")[:400])
    Path("some.reports").write_bytes(b"".join(some))
    few = run("ask", "hidden.release", *of("mean of 3"), "--reports", "some.reports", *public)
    assert_fails(few, 3, "400 reports are too few for this question", "people would do")
    assert_fails(run(*ask, "noisy.reports", *public), 3, "noisy.reports")
    assert_fails(run(*ask, "other.reports", *public), 3, "report 999 is not an offaxis report")
    assert_fails(run(*ask, "my.reports", "--public", "empty.npy"), 3, "the support is empty")
    assert_fails(run(*ask, "my.reports", "--public", "wide.npy"), 3, "vectors of 4 numbers")
    assert_fails(run(*ask, "my.reports", "--public", "equal.npy"), 3, "are all equal")
    assert_fails(run(*ask, "my.reports", *public, "--out", "public.csv/x.csv"), 3, "folder")


def test_options_without_effect_are_usage_errors(folder: Path, run: Run) -> None:
    ask = ("ask", "my.release", "--reports", "my.reports")
    missing = run(*ask, *of(SHARE))
    assert_usage_error(missing, "Missing option '--public': 'share of head.safetensors' is")
    assert_usage_error(run(*ask), "Missing option '--question'")
    assert_usage_error(run(*ask, *of_public("mean"), "--out", "x.npy"), ".csv or .parquet file")
    assert_usage_error(run(*ask, *of_public("mean"), "--level", "2"), "--level")
    noisy = ("ask", "noisy.release", "--reports", "noisy.reports")
    result = run(*noisy, *of_public("principal directions"))
    assert_usage_error(result, "--public has no effect for 'principal directions'")


def test_the_examples_run(folder: Path, run: Run) -> None:
    command: Any = get_command(app)
    lines = command.get_command(None, "ask").epilog.split("\n\n")[1:]
    for line in lines:
        words = shlex.split(line)[1:]
        name = words[1].removesuffix(".release")
        words = [f"{name}.reports" if word == "r.reports" else word for word in words]
        result = run(*words)
        assert result.exit_code == 0, (words, result.output)
