"""``--engine``: from public files to reports, vectors, means and scores, on both engines."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import offaxis
from offaxis.cli.app import app

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture(params=["local", "spark"])
def engine(request) -> str:
    if request.param == "spark":
        request.getfixturevalue("spark")  # the command uses the active session
    return request.param


@pytest.fixture
def run(tmp_path, monkeypatch, head):
    head.save(tmp_path / "head.safetensors")
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: object):
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    return invoke


def facts_of(result) -> dict:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_all_commands_in_sequence(run, engine, records, head, vectors, tmp_path):
    with_engine = ("--engine", engine, "--json")
    public = f"{records}:vector"
    model = ("--model", "head.safetensors")
    options = ("--mechanism", "laplace", "--out", "a.release")
    fitted = run("fit", *model, "--public", public, "--epsilon", 5, *options, *with_engine)
    release = offaxis.load("a.release")
    assert facts_of(fitted)["release"] == release.hash
    assert release.provenance.public.count == len(vectors)
    facts = facts_of(run("privatize", "a.release", "--vectors", public, "--out", "r", *with_engine))
    assert facts["reports"] == len(vectors)
    table = pq.read_table("r")
    reports = table["report"].to_pylist()
    decoded = run("decode", "a.release", "--reports", "r", "--out", "v", *with_engine)
    assert facts_of(decoded)["reports"] == len(vectors)
    places = {name: at for at, name in enumerate(table["id"].to_pylist())}
    output = pq.read_table("v")
    order = [places[name] for name in output["id"].to_pylist()]
    assert np.array_equal(np.array(output["vector"].to_pylist()), release.decode(reports)[order])
    mean = run("decode", "a.release", "--reports", "r", "--out", "m.npz", "--mean", *with_engine)
    assert facts_of(mean)["reports"] == len(vectors)
    expected = release.aggregate(reports)
    assert np.load("m.npz")["mean"] == pytest.approx(expected.estimate, rel=1e-9, abs=1e-12)
    scores = run(
        "evaluate", "a.release", *model, "--vectors", public, "--targets", "label", "--seeds", 2,
        *with_engine,
    )  # fmt: skip
    assert facts_of(scores)["metrics"]["accuracy"]["without_privacy"] == 1.0
    again = run("privatize", "a.release", "--vectors", public, "--out", "r", *with_engine)
    assert again.exit_code == 3
    assert "already exists" in again.output
    assert pq.read_table("r")["report"].to_pylist() == reports
    assert not [path.name for path in tmp_path.iterdir() if "unfinished" in path.name]


def test_errors_are_messages_without_a_traceback(run, engine, records, release):
    release.save("a.release")
    command = ("privatize", "a.release", "--engine", engine, "--out", "r", "--vectors")
    for source, more, message in (
        ("missing.parquet", (), "missing.parquet"),
        (f"{records}:other", (), "no column 'other'"),
        (records, ("--id", "group"), "3,000 records have 3 ids"),
        (records, ("--id", "vector"), "must hold whole numbers, text or bytes"),
        (records, ("--ledger", "l"), "cannot be used with --engine"),
    ):
        result = run(*command, source, *more)
        assert result.exit_code != 0
        assert message in result.output.replace("\n", " ")
        assert "Traceback" not in result.output


def test_the_master_option_requires_the_spark_engine(run, records):
    result = run("privatize", "a", "--vectors", records, "--out", "r", "--master", "local[2]")
    assert result.exit_code == 2
    assert "--engine spark" in result.output
