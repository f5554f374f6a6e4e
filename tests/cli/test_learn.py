"""``offaxis learn``, and answers in ``privatize`` and ``device``: from vectors to a model."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.main import get_command

import offaxis
from offaxis.cli.learn import learn
from offaxis.formats.release_file import to_bytes
from offaxis.geometry import Layers
from offaxis.learning import Classes, Number, cells, fit_answers, fit_pairs, principal
from tests.cli.conftest import Run, assert_fails, assert_usage_error
from tests.client.collectors import PUBLISHER, Collector

DIM, NAMES = 4, ("no", "maybe", "yes")
SECRET = "hepatitis"


@pytest.fixture(scope="module")
def people() -> dict[str, Any]:
    """People in six clusters; the answer depends on the cluster."""
    rng = np.random.default_rng(0)
    centres = 6 * rng.standard_normal((6, DIM))

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        cluster = rng.integers(6, size=count)
        return centres[cluster] + rng.standard_normal((count, DIM)), cluster % 3

    public, (mine, answers), (test, labels) = draw(600)[0], draw(3000), draw(500)
    release = fit_pairs(cells(public, 6), NAMES, epsilon=2)
    names = np.array(NAMES)
    return {
        "public": public,
        "mine": mine,
        "answers": names[answers],
        "test": test,
        "labels": names[labels],
        "hours": 4 + mine[:, 0] / 4,
        "release": to_bytes(release),
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, people: dict[str, Any]) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("public", "mine", "test", "labels"):
        np.save(f"{name}.npy", people[name])
    Path("mine.csv").write_text("\n".join(["answer", *people["answers"]]) + "\n")
    np.save("hours.npy", people["hours"])
    Path("ready.release").write_bytes(people["release"])
    return tmp_path


PLAN = ("learn", "plan", "--public", "public.npy", "--epsilon")
MINE = ("--vectors", "mine.npy", "--answers", "mine.csv", "--out", "mine.reports")


def report(run: Run, release: str = "pairs.release", *options: str) -> None:
    result = run("privatize", release, *(options or MINE))
    assert result.exit_code == 0, result.output


# ---- From a plan to a checked model


def test_a_model_is_planned_learnt_checked_and_evaluated(folder: Path, run: Run) -> None:
    text = run(
        *PLAN, "2", "--answers", "no,maybe,yes", "--people", "3000", "--out", "pairs.release"
    )
    assert text.exit_code == 0, text.output
    assert "asked          answer: one of no, maybe, yes" in text.stdout
    assert "people needed  about " in text.stdout
    assert "Assumed: people's vectors are like the public ones" in text.stdout
    assert "  3,000   " in text.stdout
    card = " ".join(run("inspect", "pairs.release").stdout.split())
    assert "A pair is a vector together with the private answers of the person about it" in card
    assert "WHAT ONE REPORT OF A VECTOR AND ITS ANSWERS ALLOWS" in card
    assert "one vector 4 numbers, with the answers, encoded to one of" in card
    assert "asked answer: one of no, maybe, yes" in card

    made = run("privatize", "pairs.release", *MINE)
    assert "ε = 2, pure, for a vector and its answers together" in made.stdout
    learnt = run(
        *("learn", "fit", "pairs.release", "--reports", "mine.reports"),
        *("--out", "learnt.safetensors", "--onnx", "learnt.onnx"),
    )
    assert learnt.exit_code == 0, learnt.output
    assert "3 classes, from 3,000 reports of ε = 2, pure" in learnt.stdout
    assert "evidence  yes" in learnt.stdout
    assert "none: people whose reports were left out judge the model" in learnt.stdout
    tested = ("learn", "evaluate", "learnt.safetensors", "--vectors", "test.npy", "--answers")
    facts = json.loads(run(*tested, "labels.npy", "--json").stdout)
    # Six clear clusters: about nine standard deviations of a cell's count from another answer.
    assert facts["estimate"] > 0.95
    assert facts["low"] < facts["estimate"] <= facts["high"]
    session = onnxruntime.InferenceSession("learnt.onnx")
    vectors = np.load("test.npy")
    _, answer = session.run(None, {"vectors": vectors.astype(np.float32)})
    model = Layers.load("learnt.safetensors")
    assert model.answers == NAMES
    assert (answer == model.outputs(vectors).argmax(axis=1)).mean() > 0.99

    check = ("learn", "check", "--model", "learnt.safetensors", "--public", "public.npy")
    written = run(*check, "--epsilon", "2", "--out", "check.release")
    assert "asked      answer: one of no, maybe, yes" in written.stdout
    assert "±0.021 from 1,000 people" in written.stdout
    others = ("--vectors", "test.npy", "--answers", "labels.npy", "--out", "check.reports")
    report(run, "check.release", *others)
    read = ("learn", "evaluate", "check.release", "--reports", "check.reports")
    facts = json.loads(run(*read, "--json").stdout)
    # Off by more than six standard errors of 0.03: a false alarm in 5e8 runs.
    assert abs(facts["estimate"] - 1) < 0.22
    assert 0 <= facts["low"] < facts["high"] <= 1
    assert "accuracy" in run(*read).stdout

    # The model is the public head of the next release.
    fitted = ("--model", "learnt.safetensors", "--public", "public.npy", "--epsilon", "2")
    assert run("fit", *fitted, "--out", "next.release").exit_code == 0


def test_the_examples_of_the_commands_run_in_their_order(folder: Path, run: Run) -> None:
    Path("days").mkdir()
    labels = np.where(np.load("test.npy")[:, 0] > 0, "yes", "no")
    Path("test.csv").write_text("\n".join(labels) + "\n")
    answers = np.where(np.load("mine.npy")[:, 0] > 0, "yes", "no")
    Path("mine.csv").write_text("\n".join(answers) + "\n")
    for name in ("plan", "fit", "check", "evaluate"):
        if name == "fit":
            report(run, "pairs.release", *MINE[:-1], "pairs.reports")
            report(run, "pairs.release", *MINE[:-1], "days/1.reports")
        if name == "evaluate":
            others = ("--vectors", "test.npy", "--answers", "test.csv", "--out", "check.reports")
            report(run, "check.release", *others)
        for words in _examples(name):
            # The vectors cluster, and cells do not need the public vectors again.
            words = [w for w in words if name != "fit" or w not in ("--public", "public.npy")]
            result = run(*words)
            assert result.exit_code == 0, (words, result.output)
    assert {"pairs.release", "learnt.safetensors"} <= {p.name for p in folder.iterdir()}


def _examples(name: str) -> list[list[str]]:
    lines = str(get_command(learn).commands[name].epilog).split("\n\n")[1:]
    return [line.split()[1:] for line in lines]


def test_reports_of_several_rounds_are_learnt_from_together(folder: Path, run: Run) -> None:
    Path("ready.release").rename("pairs.release")
    release = offaxis.load("pairs.release")
    Path("rounds").mkdir()
    reports = release.privatize(np.load("mine.npy"), answers=np.genfromtxt("mine.csv", str)[1:])
    Path("rounds/1.reports").write_bytes(b"".join(reports[:1000]))
    for kind, name in ((pa.binary(), "2"), (pa.binary(len(reports[0])), "3")):
        part = reports[1000:2000] if name == "2" else reports[2000:]
        table = {"id": list(range(1000)), "report": pa.array(part, kind)}
        parquet.write_table(pa.table(table), f"rounds/{name}.parquet")
    Path("rounds/notes.txt").touch()
    fit = ("learn", "fit", "pairs.release", "--out", "m.safetensors", "--json", "--reports")
    whole = json.loads(run(*fit, "rounds").stdout)
    assert whole["reports"] == 3000
    parts = [f"rounds/{name}" for name in ("1.reports", "2.parquet", "3.parquet")]
    listed = run(*fit, parts[0], "--reports", parts[1], "--reports", parts[2])
    assert json.loads(listed.stdout) == whole
    Path("empty").mkdir()
    assert_fails(run(*fit, "empty"), 3, "has no files that end in .reports or .parquet")
    assert_fails(run(*fit, "none"), 3, "file of reports not found: none")
    Path("rounds/4.reports").write_bytes(b"x" * len(reports[0]))
    assert_fails(run(*fit, "rounds"), 3, "report 3000 is not an offaxis report")
    assert_fails(run(*fit, "rounds/1.reports", "--expect", "0" * 64), 3, "expected")


# ---- Other questions


def test_too_few_people_are_refused_with_the_number(folder: Path, run: Run) -> None:
    few = run(*PLAN, "1/2", "--answers", "no,maybe,yes", "--people", "100", "--out", "x.release")
    assert_fails(few, 3, "100 people at ε = 0.5 are too few", "it would take about", "people")
    assert not Path("x.release").exists()
    target = ("--people", "3000", "--target", "0.99")
    assert_fails(run(*PLAN, "2", "--answers", "3", *target), 3, "the target is 0.99")


def test_a_plan_is_printed_as_json_and_drawn(folder: Path, run: Run) -> None:
    plan = (*PLAN, "1", "--answers", "3", "--target", "0.6", "--signal", "0.7", "--json")
    result = run(*plan, "--features", "principal", "--size", "3", "--figure", "plan.png")
    facts = json.loads(result.stdout)
    assert (facts["features"], facts["size"], facts["target"]) == ("linear", 4, 0.6)
    assert (facts["out"], facts["people"], facts["labels"]) == (None, None, "private")
    assert {cell["epsilon"] for cell in facts["expected"]} == {0.5, 1, 2}
    assert facts["guess"] < facts["best"] < 0.75
    assert Path("plan.png").stat().st_size > 5000
    np.save("similar.npy", np.arange(600) % 3)
    similar = json.loads(
        run(*PLAN, "1", "--answers", "3", "--related", "similar.npy", "--json").stdout
    )
    assert "as the related public labels do" in similar["assumed"]
    labelled = json.loads(run(*PLAN, "1", "--answers", "3", "--labels", "public", "--json").stdout)
    assert labelled["labels"] == "public"


def test_directions_of_public_models_are_used(folder: Path, run: Run) -> None:
    rng = np.random.default_rng(1)
    for name in ("a", "b"):
        Layers([rng.standard_normal((2, DIM))], [np.zeros(2)]).save(f"{name}.safetensors")
    plan = (*PLAN, "1", "--answers", "2", "--json", "--head", "a.safetensors")
    assert json.loads(run(*plan).stdout)["size"] == 2
    assert json.loads(run(*plan, "--head", "b.safetensors").stdout)["size"] == 3


def test_a_number_is_learnt_with_errors_of_its_coefficients(folder: Path, run: Run) -> None:
    assert run(*PLAN, "4", "--number", "0", "8", "--out", "hours.release").exit_code == 0
    hours = ("--vectors", "mine.npy", "--answers", "hours.npy", "--out", "hours.reports")
    report(run, "hours.release", *hours)
    fit = ("learn", "fit", "hours.release", "--reports", "hours.reports")
    text = run(*fit, "--out", "hours.safetensors").stdout
    assert "learnt    a number, from 3,000 reports of ε = 4, pure" in text
    assert "standard error" in text
    facts = json.loads(run(*fit, "--out", "hours.safetensors", "--json").stdout)
    columns = zip(*(facts[n] for n in ("low", "coefficients", "high")), strict=True)
    assert all(low < middle < high for low, middle, high in columns)
    np.save("all.npy", np.load("hours.npy"))
    evaluate = ("learn", "evaluate", "hours.safetensors", "--vectors", "mine.npy", "--answers")
    tested = json.loads(run(*evaluate, "all.npy", "--json").stdout)
    assert (tested["measure"], tested["estimate"] > 0.5) == ("R²", True)
    assert "root mean square error" in run(*evaluate, "all.npy").stdout
    check = ("learn", "check", "--model", "hours.safetensors", "--public", "public.npy")
    check = (*check, "--epsilon", "2", "--out", "check.release")
    assert_fails(run(*check), 3, "Number(low, high) and within")
    band = run(*check, "--number", "0", "8", "--within", "1.5")
    assert "asked      answer: a number from 0 to 8" in band.stdout


def test_several_answers_are_asked_by_a_file_and_read_by_their_names(
    folder: Path, run: Run, people: dict[str, Any]
) -> None:
    asked = [
        {"name": "mood", "names": list(NAMES), "optional": True},
        {"kind": "number", "name": "hours", "low": 0, "high": 8},
    ]
    Path("asked.json").write_text(json.dumps(asked))
    assert run(*PLAN, "2", "--answers", "asked.json", "--out", "two.release").exit_code == 0
    shown = json.loads(run("inspect", "two.release", "--json").stdout)["asked"]
    assert shown == [asked[0] | {"kind": "classes"}, asked[1] | {"optional": False}]
    Path("again.json").write_text(json.dumps(shown))
    assert run(*PLAN, "2", "--answers", "again.json", "--out", "same.release").exit_code == 0
    assert offaxis.load("same.release") == offaxis.load("two.release")
    mood = [None if i % 10 == 0 else str(m) for i, m in enumerate(people["answers"])]
    hours = people["hours"].tolist()
    with Path("both.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [["id", "hours", "mood"], *zip(range(3000), hours, mood, strict=True)]
        )
    Path("both.json").write_text(json.dumps({"mood": mood, "hours": hours}))
    rows = [
        {"hours": h, **({} if m is None else {"mood": m})} for h, m in zip(hours, mood, strict=True)
    ]
    Path("rows.json").write_text(json.dumps(rows))
    parquet.write_table(pa.table({"mood": mood, "hours": hours}), "both.parquet")
    for source in ("both.csv", "both.json", "rows.json", "both.parquet"):
        options = ("--vectors", "mine.npy", "--answers", source, "--out", f"{source}.reports")
        report(run, "two.release", *options)
    fit = ("learn", "fit", "two.release", "--reports", "both.csv.reports", "--out", "m.safetensors")
    assert_fails(run(*fit), 3, "people gave several answers", "'mood', 'hours'")
    assert json.loads(run(*fit, "--answer", "hours", "--json").stdout)["learnt"] == "a number"
    facts = json.loads(run(*fit, "--answer", "mood", "--public", "public.npy", "--json").stdout)
    assert facts["classes"] == list(NAMES)
    assert facts["accuracy"] is None  # one of ten has no mood, and moments do not tell that
    assert "no answer" in facts["accuracy_unknown"]
    unknown = json.loads(run(*fit, "--answer", "mood", "--json").stdout)
    assert (unknown["accuracy"], "--public" in unknown["accuracy_unknown"]) == (None, True)
    logistic = (*fit, "--answer", "mood", "--method", "logistic")
    assert run(*logistic, "--public", "public.npy").exit_code == 0
    assert_usage_error(run(*logistic), "needs --public")


@pytest.mark.parametrize("suffix", [".csv", ".txt", ".json", ".npy", ".npz", ".parquet"])
def test_one_answer_is_read_from_every_format(
    folder: Path, run: Run, people: dict[str, Any], suffix: str
) -> None:
    Path("ready.release").rename("pairs.release")
    answers, path = people["answers"], Path(f"given{suffix}")
    if suffix in (".csv", ".txt"):
        path.write_text("\n".join(answers) + "\n")
    elif suffix == ".json":
        path.write_text(json.dumps(answers.tolist()))
    elif suffix == ".npy":
        np.save(path, np.searchsorted(sorted(NAMES), answers)[:, None])
    elif suffix == ".npz":
        np.savez(path, other=np.zeros(3), answer=answers)
    else:
        parquet.write_table(pa.table({"answer": answers, "id": range(len(answers))}), path)
    report(run, "pairs.release", *MINE[:2], "--answers", str(path), "--out", "given.reports")
    size = offaxis.load("pairs.release").report_size
    assert Path("given.reports").stat().st_size == 3000 * size
    if suffix in (".npz", ".parquet"):
        named = ("--answers", f"{path}:answer", "--out", "named.reports")
        report(run, "pairs.release", *MINE[:2], *named)


def test_public_labels_are_learnt_with_reports_of_vectors(
    folder: Path, run: Run, people: dict[str, Any]
) -> None:
    plan = (*PLAN, "2", "--answers", "no,maybe,yes", "--labels", "public")
    text = run(*plan, "--out", "vectors.release").stdout
    assert "nothing; the labels are public (answer: one of no, maybe, yes)" in text
    vectors = ("--vectors", "mine.npy", "--out", "mine.reports")
    report(run, "vectors.release", *vectors)
    given = run("privatize", "vectors.release", *MINE, "--force")
    assert_usage_error(given, "asks people for no answer: leave out --answers")
    fit = ("learn", "fit", "vectors.release", "--reports", "mine.reports", "--out", "m.safetensors")
    assert_fails(run(*fit), 3, "pass public labels")
    Path("labels.txt").write_text("\n".join(people["answers"]) + "\n")
    facts = json.loads(run(*fit, "--labels", "labels.txt", "--json").stdout)
    assert facts["classes"] == sorted(NAMES)
    assert_fails(run(*fit, "--labels", "labels.npy"), 3, "must hold one label per report")
    run(*PLAN, "2", "--number", "0", "8", "--labels", "public", "--out", "hours.release")
    report(run, "hours.release", "--vectors", "mine.npy", "--out", "hours.reports")
    fit = ("learn", "fit", "hours.release", "--reports", "hours.reports", "--labels", "hours.npy")
    fit = (*fit, "--out", "m.safetensors", "--json")
    assert json.loads(run(*fit, "--number", "0", "8").stdout)["learnt"] == "a number"


def test_reports_that_show_nothing_say_so(folder: Path, run: Run) -> None:
    directions = ("--features", "principal", "--out", "pairs.release")
    run(*PLAN, "1", "--answers", "no,maybe,yes", *directions)
    np.save("few.npy", np.load("mine.npy")[:20])
    Path("few.csv").write_text("\n".join(["no", "yes"] * 10) + "\n")
    few = ("--vectors", "few.npy", "--answers", "few.csv", "--out", "few.reports")
    report(run, "pairs.release", *few)
    fit = ("learn", "fit", "pairs.release", "--reports", "few.reports", "--out", "m.safetensors")
    assert "none: the reports do not show" in " ".join(run(*fit).stdout.split())


# ---- Ledgers, devices and bulk jobs


def test_a_ledger_pays_for_pairs(folder: Path, run: Run) -> None:
    Path("ready.release").rename("pairs.release")
    run("ledger", "create", "my.ledger", "--epsilon", "5")
    np.save("one.npy", np.load("mine.npy")[0])
    Path("one.json").write_text('["yes"]')
    one = ("privatize", "pairs.release", "--vectors", "one.npy", "--answers", "one.json")
    one = (*one, "--ledger", "my.ledger", "--out")
    assert "paid ε = 2 from my.ledger; left: ε = 3" in run(*one, "1.reports").stdout
    assert run(*one, "2.reports").exit_code == 0
    assert_fails(run(*one, "3.reports"), 3, "would exceed the limit")
    assert_fails(run(*one[:-1], "--force", "--out", "one.json"), 3, "is an input")


def test_a_bulk_job_names_the_columns_of_answers(
    folder: Path, run: Run, people: dict[str, Any]
) -> None:
    fit_pairs(
        principal(people["public"]), [Classes(NAMES, "mood"), Number(0, 8, "hours")], epsilon=2
    ).save("two.release")
    table = {"id": range(50), "vector": list(people["mine"][:50])}
    table |= {"m": people["answers"][:50], "h": people["hours"][:50]}
    parquet.write_table(pa.table(table), "people.parquet")
    bulk = ("privatize", "two.release", "--vectors", "people.parquet", "--engine", "local")
    assert run(*bulk, "--answers", "m,h", "--out", "reports").exit_code == 0
    facts = json.loads(
        run(
            *("learn", "fit", "two.release", "--reports", "reports", "--answer", "mood"),
            *("--out", "m.safetensors", "--json"),
        ).stdout
    )
    assert facts["reports"] == 50
    assert_usage_error(run(*bulk, "--answers", "m", "--out", "x"), "--answers names 1 columns")


@pytest.fixture
def collector(folder: Path, run: Run) -> Any:
    running = Collector()
    Path("ready.release").rename("pairs.release")
    running.offer(offaxis.load("pairs.release"), name="habits-1", study="habits")
    public = np.load("public.npy")
    vectors = offaxis.fit(None, public, epsilon=1, mechanism="laplace", reshaping="none")
    running.offer(vectors, name="plain-1", study="plain")
    np.save("today.npy", np.load("mine.npy")[0])
    Path("today.csv").write_text("yes\n")
    address = ("--collector", running.url, "--publisher", PUBLISHER, "--limit", "8")
    assert run("device", "init", "my.device", *address).exit_code == 0
    yield running
    running.close()


DEVICE = ("device", "report", "my.device", "habits-1", "--vector", "today.npy")


def test_a_device_reports_a_vector_and_its_answer(
    collector: Collector, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    encode = offaxis.Release.encode_private

    def record(self: offaxis.Release, rows: Any) -> Any:
        seen.append(np.array(rows))
        return encode(self, rows)

    monkeypatch.setattr(offaxis.Release, "encode_private", record)
    result = run(*DEVICE, "--answers", "today.csv")
    assert "habits-1 is answered and queued; spent so far: ε = 2" in result.stdout
    expected = offaxis.load("pairs.release").pairs(np.load("today.npy"), ["yes"])
    assert np.array_equal(seen[0][0], expected)
    assert run("device", "send", "my.device", "--now").exit_code == 0
    assert len(collector.uploads()[0].body) == offaxis.load("pairs.release").report_size
    # A second call pays nothing, whatever its options are.
    assert "spent so far: ε = 2" in run(*DEVICE).stdout


def test_a_device_refuses_a_missing_answer_before_it_pays(collector: Collector, run: Run) -> None:
    assert_usage_error(run(*DEVICE), "Missing option '--answers'", "one of no, maybe, yes")
    plain = ("device", "report", "my.device", "plain-1", "--vector", "today.npy")
    assert_usage_error(run(*plain, "--answers", "today.csv"), "leave out --answers")
    assert_fails(run(*DEVICE, "--answers", "none.csv"), 3, "file not found: none.csv")
    mean = ("device", "report", "my.device", "habits-1", "--public-mean")
    assert_usage_error(run(*mean, "--answers", "today.csv"), "or --public-mean")
    status = json.loads(run("device", "status", "my.device", "--json").stdout)
    assert status["answers"] == []
    assert run(*plain).exit_code == 0


def test_a_device_answers_a_round_of_answers_alone(collector: Collector, run: Run) -> None:
    collector.offer(fit_answers(NAMES, epsilon=1), name="moods-1", study="moods")
    moods = ("device", "report", "my.device", "moods-1")
    both = ("--answers", "today.csv", "--vector", "today.npy")
    assert_usage_error(run(*moods, *both), "asks for answers alone: leave out --vector")
    pairs = ("device", "report", "my.device", "habits-1", "--answers", "today.csv")
    assert_usage_error(run(*pairs), "round habits-1 asks for a vector: pass --vector")
    for _ in range(2):  # a second call pays nothing
        result = run(*moods, "--answers", "today.csv")
        assert result.exit_code == 0, result.output
        assert "spent so far: ε = 1" in result.stdout


def test_an_unusable_answer_of_a_device_is_not_observable(collector: Collector, run: Run) -> None:
    Path("today.csv").write_text(f"{SECRET}\n")
    result = run(*DEVICE, "--answers", "today.csv")
    assert result.stdout == "round habits-1 is answered and queued; spent so far: ε = 2\n"
    assert result.stderr == ""


# ---- What cannot be used


BAD: dict[str, Any] = {
    "no such class": ("a.csv", f"{SECRET}\nyes\n"),
    "two columns": ("a.csv", f"{SECRET},1\nyes,2\n"),
    "ragged": ("a.csv", f"answer,b\n{SECRET}\n"),
    "another column": ("a.csv:mood", f"{SECRET}\nyes\n"),
    "quotes": ("a.csv", f'"{SECRET}\n'),
    "text": ("a.txt", f"{SECRET}\nyes\n"),
    "bytes": ("a.txt", f"{SECRET}\xff".encode("latin-1")),
    "broken": ("a.json", f'["{SECRET}", '),
    "object": ("a.json", f'{{"{SECRET}": 1}}'),
    "mapping": ("a.json", f'{{"{SECRET}": ["yes"], "b": ["yes"]}}'),
    "objects": ("a.json", f'[{{"mood": "{SECRET}"}}]'),
    "nested": ("a.json", f'[["{SECRET}"], ["yes"]]'),
    "missing": ("a.json", "[null]"),
    "empty": ("a.csv", ""),
}


@pytest.mark.parametrize("case", BAD)
def test_no_message_shows_an_answer(folder: Path, run: Run, case: str) -> None:
    Path("ready.release").rename("pairs.release")
    source, content = BAD[case]
    path = Path(source.partition(":")[0])
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    np.save("one.npy", np.load("mine.npy")[:1])
    given = ("--vectors", "one.npy", "--answers", source, "--out", "a.reports")
    result = run("privatize", "pairs.release", *given)
    assert_fails(result, 3)
    assert SECRET not in result.output
    assert not Path("a.reports").exists()


def test_numbers_and_arrays_of_answers_are_not_shown(folder: Path, run: Run) -> None:
    run(*PLAN, "2", "--number", "0", "8", "--out", "hours.release")
    Path("a.csv").write_text(f"3\n{SECRET}\n")
    np.save("a.npy", np.array([[SECRET, "b"]]))
    np.save("objects.npy", np.array([SECRET, 1], dtype=object))
    np.savez("a.npz", mood=np.array([SECRET]), other=np.array([SECRET]))
    parquet.write_table(pa.table({"a": [SECRET], "b": [SECRET]}), "a.parquet")
    Path("broken.parquet").write_text(SECRET)
    Path("broken.npz").write_text(SECRET)
    np.save("two.npy", np.load("mine.npy")[:2])
    for source, words in {
        "a.csv": "entry 1 of 'answer' in a.csv is not a number",
        "a.npy": "one answer per vector",
        "objects.npy": "not a readable .npy",
        "a.npz": "has no column 'answer'; select one as a.npz:COLUMN",
        "a.npz:mood": "entry 0 of 'answer' in a.npz is not a number",
        "a.parquet": "has no column 'answer'",
        "broken.parquet": "not a readable .parquet",
        "broken.npz": "not a readable .npz",
        "a.xyz": "must be a file of type",
        "none.csv": "file not found",
    }.items():
        given = ("--vectors", "two.npy", "--answers", source, "--out", "a.reports")
        result = run("privatize", "hours.release", *given)
        assert_fails(result, 3, words)
        assert SECRET not in result.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "Missing option '--answers' or '--number'"),
        (("--answers", "2", "--number", "0", "1"), "use one of them"),
        (("--number", "1", "0"), "a range low < high"),
        (("--answers", "yes"), "two or more answers"),
        (("--answers", "1"), "classes must be"),
        (("--answers", "2", "--size", "3"), "--size needs --features"),
        (("--answers", "2", "--head", "a", "--features", "cells"), "--head is for"),
        (("--answers", "2", "--related", "a.npy", "--signal", "0.9"), "exclude each other"),
    ],
)
def test_wrong_usage_of_a_plan_is_shown(
    folder: Path, run: Run, options: tuple[str, ...], words: str
) -> None:
    assert_usage_error(run(*PLAN, "1", *options), words)


@pytest.mark.parametrize(
    "content", ["[]", "3.5", '{"name": "a"}', '[{"name": "a", "names": 2, "x": 1}]', "{"]
)
def test_a_file_that_does_not_describe_answers_is_rejected(
    folder: Path, run: Run, content: str
) -> None:
    Path("asked.json").write_text(content)
    assert_fails(run(*PLAN, "1", "--answers", "asked.json"), 3)


def test_reports_that_are_given_twice_are_refused(folder: Path, run: Run) -> None:
    """By the same name, through another path, or in a folder; otherwise they count twice."""
    Path("ready.release").rename("pairs.release")
    report(run)
    Path("more").mkdir()
    Path("more/mine.reports").symlink_to(Path("mine.reports").resolve())
    fit = ("learn", "fit", "pairs.release", "--out", "m.safetensors", "--reports", "mine.reports")
    for again in ("mine.reports", "more/../mine.reports", "more"):
        assert_usage_error(run(*fit, "--reports", again), "given twice")
    assert not Path("m.safetensors").exists()
    check = ("learn", "evaluate", "pairs.release", "--reports", "mine.reports")
    assert_usage_error(run(*check, "--reports", "mine.reports"), "given twice")


def test_a_plan_takes_the_deviation_of_numbers(folder: Path, run: Run) -> None:
    number = (*PLAN, "2", "--number", "-100", "100")
    facts = json.loads(run(*number, "--deviation", "2", "--json").stdout)
    assert "a standard deviation of 2" in facts["assumed"]
    assert_usage_error(run(*PLAN, "2", "--answers", "2", "--deviation", "2"), "is for numbers")
    assert_usage_error(run(*number, "--deviation", "2", "--related", "hours.npy"), "exclude")
    assert_fails(run(*number, "--deviation", "500"), 3, "at most 100")
    Path("none.json").write_text('{"name": "n", "low": 0, "high": 1, "optional": true}')
    assert_fails(run(*PLAN, "2", "--answers", "none.json"), 3, "missing numbers")


def test_other_wrong_usage_is_shown(folder: Path, run: Run, people: dict[str, Any]) -> None:
    Path("ready.release").rename("pairs.release")
    report(run)
    fit = ("learn", "fit", "pairs.release", "--reports", "mine.reports", "--out")
    assert_usage_error(run(*fit, "m.npz"), "must be a .safetensors file")
    assert_usage_error(run(*fit, "m.safetensors", "--number", "0", "1"), "describes --labels")
    assert_fails(run(*fit, "m.safetensors", "--public", "public.npy"), 3, "leave it out")
    assert_fails(run(*fit, "m.safetensors", "--labels", "mine.csv:answer"), 3, "private answers")
    assert not Path("m.safetensors").exists()
    assert_usage_error(run("privatize", "pairs.release", *MINE[:2], "--out", "x"), "'--answers'")
    short = ("--vectors", "test.npy", "--answers", "mine.csv", "--out", "x")
    assert_fails(run("privatize", "pairs.release", *short), 3, "500 vectors and 3000 of 'answer'")
    evaluate = ("learn", "evaluate", "pairs.release")
    assert_usage_error(run(*evaluate), "use --reports", "or --vectors and --answers")
    assert_usage_error(run(*evaluate, "--reports", "a", "--vectors", "b"), "use --reports")
    assert_fails(run(*evaluate, "--reports", "mine.reports"), 3, "whether a model is right")
    inspect = ("inspect", "pairs.release", "--model", "x.safetensors", "--vectors", "test.npy")
    assert_fails(run(*inspect), 3, "hold people's own answers", "leave out --model")
    check = ("learn", "check", "--model", "x.safetensors", "--public", "public.npy")
    check = (*check, "--epsilon", "1", "--out", "check.release")
    Layers([np.eye(DIM)], [np.zeros(DIM)]).save("x.safetensors")
    assert_usage_error(run(*check, "--within", "1"), "belong together")
    tested = ("evaluate", "pairs.release", "--model", "x.safetensors", "--vectors", "test.npy")
    assert_fails(run(*tested), 3, "see offaxis learn evaluate")
    run("keys", "new", "publisher.key")
    publish = ("collector", "publish", "pairs.release", "--key", "publisher.key", "--token", "t")
    assert_fails(run(*publish, "--public", "public.npy"), 3, "leave out --public")


def test_models_are_learnt_from_single_reports_of_pairs_only(
    folder: Path, run: Run, people: dict[str, Any]
) -> None:
    Path("ready.release").rename("pairs.release")
    report(run)
    memoise = ("memoise", "pairs.release", "--draws", "2", "--period", "6")
    assert run(*memoise, "--out", "year.release").exit_code == 0
    fit = ("--reports", "mine.reports", "--out", "m.safetensors")
    sequences = run("learn", "fit", "year.release", *fit)
    assert_fails(sequences, 3, "learn from a release of single reports")
    vectors = ("fit", "--public", "public.npy", "--epsilon", "1", "--goal", "vectors")
    assert run(*vectors, "--out", "vectors.release").exit_code == 0
    assert run("learn", "fit", "vectors.release", *fit).exit_code == 3
    assert not Path("m.safetensors").exists()


def test_more_cells_than_a_weights_file_holds_are_refused(
    folder: Path, run: Run, people: dict[str, Any]
) -> None:
    fit_pairs(cells(people["public"], 130), 2, epsilon=8).save("pairs.release")
    Path("mine.csv").write_text("\n".join(["0", "1"] * 1500) + "\n")
    report(run)
    fit = ("learn", "fit", "pairs.release", "--reports", "mine.reports", "--out", "m.safetensors")
    assert_fails(run(*fit), 3, "too many cells")
