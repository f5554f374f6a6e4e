"""``offaxis decode``: vectors, means of groups, and labels."""

from __future__ import annotations

import csv
import json
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import offaxis
from offaxis import release as release_module
from offaxis.cli import decode as command
from offaxis.cli.decode import read_labels
from offaxis.cli.inputs import read_array
from offaxis.decoding import Aggregate, LinearDecoder
from offaxis.errors import InvalidInput
from offaxis.formats.reports import write_reports
from tests.cli.conftest import DIM, Run, assert_fails, assert_usage_error

COMMAND = ("decode", "laplace.release", "--reports", "my.reports", "--out")


@pytest.fixture
def reports(workspace: Path) -> list[bytes]:
    reports: list[bytes] = offaxis.load("laplace.release").privatize(np.load("private.npy"))
    write_reports("my.reports", reports)
    return reports


@pytest.mark.parametrize("out", ["a.npy", "a.npz", "a.csv", "a.parquet"])
def test_vectors_are_written_in_every_format(
    run: Run, reports: list[bytes], out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_module, "_DECODE_ROWS", 3)
    facts = json.loads(run(*COMMAND, out, "--json").stdout)
    assert facts["reports"] == 7
    assert facts["shape"] == [7, DIM]
    np.testing.assert_allclose(read_array(out), offaxis.load("laplace.release").decode(reports))


def test_the_mean_is_that_of_the_library(
    run: Run, reports: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_module, "_DECODE_ROWS", 3)
    result = run(*COMMAND, "mean.npy", "--mean")
    assert "read 7 reports, wrote their mean to mean.npy" in result.stdout
    expected = offaxis.load("laplace.release").decode_mean(reports)
    np.testing.assert_allclose(np.load("mean.npy"), expected)


PLACES = ["north", "south", "north", "far, away", "south", "north", "south"]
MEAN = ("--mean", "--groups", "people.csv:place", "--weights", "weights.npy")


@pytest.fixture
def grouped(reports: list[bytes]) -> Aggregate:
    """Write labels and weights to files, and return the aggregate that the library computes."""
    rows = [["id", "place"], *([str(index), place] for index, place in enumerate(PLACES))]
    with Path("people.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    weights = np.linspace(0.5, 2, 7)
    np.save("weights.npy", weights)
    return offaxis.load("laplace.release").aggregate(reports, weights, PLACES)


@pytest.mark.parametrize("out", ["mean.csv", "mean.parquet"])
def test_means_of_groups_are_written_as_a_tidy_table(
    run: Run, grouped: Aggregate, out: str
) -> None:
    result = run(*COMMAND, out, *MEAN)
    assert result.exit_code == 0, result.output
    table = (
        pd.read_csv(out, float_precision="round_trip")
        if out.endswith("csv")
        else pd.read_parquet(out)
    )
    assert list(table) == ["group", "coordinate", "mean", "standard_error", "reports"]
    assert len(table) == 3 * DIM
    for label in ("north", "south", "far, away"):
        rows, expected = table[table["group"] == label], grouped.of(label)
        assert rows["coordinate"].tolist() == list(range(DIM))
        np.testing.assert_array_equal(rows["mean"], expected.estimate)
        np.testing.assert_array_equal(rows["standard_error"], expected.standard_error)
        assert (rows["reports"] == expected.count).all()


def test_means_of_groups_are_written_as_arrays(run: Run, grouped: Aggregate) -> None:
    assert run(*COMMAND, "mean.npz", *MEAN).exit_code == 0
    with np.load("mean.npz", allow_pickle=False) as archive:
        assert set(archive) == {"mean", "standard_error", "count", "groups"}
        np.testing.assert_array_equal(archive["mean"], grouped.estimate)
        np.testing.assert_array_equal(archive["standard_error"], grouped.standard_error)
        assert archive["count"].tolist() == [3, 3, 1]
        assert archive["groups"].tolist() == list(grouped.groups or ())


@pytest.mark.parametrize("out", ["mean.csv", "mean.parquet", "mean.npz"])
def test_a_single_mean_has_errors_and_no_group(run: Run, reports: list[bytes], out: str) -> None:
    assert run(*COMMAND, out, "--mean").exit_code == 0
    expected = offaxis.load("laplace.release").aggregate(reports)
    if out.endswith("npz"):
        with np.load(out) as archive:
            written = dict(archive)
        assert set(written) == {"mean", "standard_error", "count"}
        assert written["count"] == 7
    else:
        written = (
            pd.read_csv(out, float_precision="round_trip")
            if out.endswith("csv")
            else pd.read_parquet(out)
        )
        assert list(written) == ["coordinate", "mean", "standard_error", "reports"]
    np.testing.assert_array_equal(written["mean"], expected.estimate)
    np.testing.assert_array_equal(written["standard_error"], expected.standard_error)


def test_a_table_of_groups_is_printed_with_a_warning(run: Run, grouped: Aggregate) -> None:
    result = run(*COMMAND, "mean.csv", *MEAN)
    assert result.stderr.count("\n") == 1
    assert "labels are not protected" in result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "read 7 reports, wrote the means of 3 groups to mean.csv"
    largest = f"{grouped.of('south').standard_error.max():.4g}"
    assert lines[4].split() == ["south", "3", largest]
    assert "unknown from 1 report" in lines[5]


def test_a_label_cannot_control_the_terminal(run: Run, reports: list[bytes]) -> None:
    np.save("odd.npy", np.array(["\x1b[31mred", "[bold]b[/bold]", "x" * 500, *"abcd"]))
    shown = run(*COMMAND, "mean.csv", "--mean", "--groups", "odd.npy").stdout
    assert "\x1b" not in shown
    assert "[bold]b[/bold]" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_the_json_summarizes_groups(run: Run, grouped: Aggregate) -> None:
    facts = json.loads(run(*COMMAND, "mean.npz", *MEAN, "--json").stdout)
    assert facts["shape"] == [3, DIM]
    north, _, far = facts["groups"]
    assert north == {
        "group": "north",
        "reports": 3,
        "effective_reports": grouped.of("north").effective_count,
        "largest_standard_error": grouped.of("north").standard_error.max(),
    }
    assert far["largest_standard_error"] is None
    single = json.loads(run(*COMMAND, "mean.npy", "--mean", "--json").stdout)
    assert single["shape"] == [DIM]
    assert single["largest_standard_error"] > 0


@pytest.mark.parametrize(
    ("out", "options", "message"),
    [
        (
            "a.csv",
            ("--groups", "people.csv:place"),
            "--groups is used with --mean or --shares only",
        ),
        ("a.csv", ("--weights", "weights.npy"), "--weights is used with --mean only"),
        ("a.npy", MEAN, "cannot store group names"),
    ],
)
def test_options_that_exclude_each_other_are_rejected(
    run: Run, out: str, options: tuple[str, ...], message: str
) -> None:
    assert_usage_error(run(*COMMAND, out, *options), message)


@pytest.mark.parametrize(
    ("out", "options", "message"),
    [
        ("people.csv", MEAN, "is an input"),
        ("weights.npy", MEAN[:1] + MEAN[3:], "is an input"),
        ("a.csv", ("--mean", "--groups", "people.csv"), "select a column"),
        ("a.csv", ("--mean", "--groups", "no.csv"), "file not found"),
        ("a.csv", ("--mean", "--groups", "short.txt"), "one label per report, 7, but holds 2"),
        ("a.csv", ("--mean", "--weights", "private.npy"), "one weight per report, 7"),
        ("a.csv", ("--mean", "--weights", "zero.npy"), "weights must be positive"),
    ],
)
def test_invalid_labels_and_weights_write_nothing(
    run: Run, grouped: Aggregate, out: str, options: tuple[str, ...], message: str
) -> None:
    Path("short.txt").write_text("a\nb\n")
    np.save("zero.npy", np.zeros(7))
    before = {path.name: path.read_bytes() for path in Path().iterdir()}
    assert_fails(run(*COMMAND, out, *options), 3, message)
    assert {path.name: path.read_bytes() for path in Path().iterdir()} == before


def test_more_groups_than_fit_into_memory_are_rejected(
    run: Run, grouped: Aggregate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_GROUP_NUMBERS", 2 * DIM)
    assert_fails(run(*COMMAND, "a.csv", *MEAN), 3, "more than 2 groups", "coarser labels")
    assert not Path("a.csv").exists()


def test_memory_does_not_grow_with_the_number_of_reports(run: Run, reports: list[bytes]) -> None:
    count = 80_000
    write_reports("my.reports", reports[:1] * count)
    Path("place.txt").write_text("north\nsouth\n" * (count // 2))
    np.save("weights.npy", np.ones(count))
    # Run once before measuring, so that imports are not counted.
    options = ("--mean", "--groups", "place.txt", "--weights", "weights.npy")
    run(*COMMAND, "a.csv", *options)
    tracemalloc.start()
    try:
        assert run(*COMMAND, "a.csv", *options).exit_code == 0
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20  # a list of the reports would add 5 MB, one of the labels 4 MB


def test_a_release_that_leaves_out_directions_has_no_mean(workspace: Path, run: Run) -> None:
    public = np.load("public.npy")
    few = offaxis.fit(np.eye(2, DIM), public, epsilon=5, mechanism="laplace", reshaping="optimal")
    few = replace(few, mean_decoder=LinearDecoder(few.decoder.matrix, few.decoder.offset))
    few.save("few.release")
    write_reports("few.reports", few.privatize(np.load("private.npy")))
    command = ("decode", "few.release", "--reports", "few.reports", "--out", "mean.npy", "--mean")
    assert_fails(run(*command), 3, "do not average to the vectors", "goal='means'")
    assert "no, their mean would be biased" in run("inspect", "few.release").stdout
    assert "yes, of the clipped vectors" in run("inspect", "laplace.release").stdout


def test_a_biased_release_has_no_mean(workspace: Path, run: Run) -> None:
    release = offaxis.load("privunit2.release")
    write_reports("other.reports", release.privatize(np.load("private.npy")))
    command = ("decode", "privunit2.release", "--reports", "other.reports", "--out", "mean.npy")
    assert_fails(run(*command, "--mean"), 3, "(privunit2) do not average", "bias")
    assert not Path("mean.npy").exists()


def test_an_invalid_report_is_named_by_its_index_in_the_file(
    run: Run, reports: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_module, "_DECODE_ROWS", 2)
    reports[5] = b"XX" + reports[5][2:]
    write_reports("my.reports", reports)
    assert_fails(run(*COMMAND, "a.npy"), 3, "report 5 is not an offaxis report")
    assert not Path("a.npy").exists()


def test_wide_reports_are_decoded_in_parts_of_fewer_rows(
    run: Run, reports: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_module, "_DECODE_NUMBERS", 2 * DIM)
    run(*COMMAND, "a.npy")
    np.testing.assert_allclose(np.load("a.npy"), offaxis.load("laplace.release").decode(reports))


def test_more_vectors_than_fit_into_memory_are_rejected(
    run: Run, reports: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def empty(*shape: object) -> None:
        raise MemoryError

    monkeypatch.setattr(np, "empty", empty)
    assert_fails(run(*COMMAND, "a.npy"), 3, "7 vectors of dimension 5 do not fit into memory")


@pytest.mark.parametrize("blob", [b"", b"OX", b"OX" * 100])
def test_files_that_are_not_reports_are_rejected(
    run: Run, reports: list[bytes], blob: bytes
) -> None:
    Path("my.reports").write_bytes(blob)
    assert_fails(run(*COMMAND, "a.npy"), 3, "my.reports" if len(blob) < 100 else "report")
    assert not Path("a.npy").exists()


def test_reports_of_another_release_are_rejected(run: Run, reports: list[bytes]) -> None:
    other = offaxis.fit(
        None, np.load("public.npy"), epsilon=5, reshaping="none", mechanism="laplace"
    )
    write_reports("my.reports", other.privatize(np.load("private.npy")))
    assert_fails(run(*COMMAND, "a.npy"), 3, "report 0 belongs to release", other.hash[:16])


@pytest.mark.parametrize("name", ["gaussian", "privunit2"])
def test_reports_of_every_randomizer_are_decoded(workspace: Path, run: Run, name: str) -> None:
    release = offaxis.load(f"{name}.release")
    reports = release.privatize(np.load("private.npy"))
    write_reports("other.reports", reports)
    result = run("decode", f"{name}.release", "--reports", "other.reports", "--out", "a.npy")
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(np.load("a.npy"), release.decode(reports))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--reports", "missing.reports", "--out", "a.npy"), "file of reports not found"),
        (("--reports", "my.reports", "--out", "a.mat"), "must end in .npy"),
        (("--reports", "my.reports", "--out", "no/a.npy"), "folder no not found"),
    ],
)
def test_invalid_paths_are_rejected(
    run: Run, reports: list[bytes], options: tuple[str, ...], message: str
) -> None:
    assert_fails(run("decode", "laplace.release", *options), 3, message)


# ---- Labels are read from every format, one per report, without guessing


TEXT = ["north", "south, far", "Zürich", "north"]


def save_labels(path: Path, labels: list[str] | list[int]) -> None:
    if path.suffix == ".npy":
        np.save(path, np.array(labels))
    elif path.suffix == ".npz":
        np.savez(path, place=np.array(labels), other=np.zeros(2))
    elif path.suffix == ".parquet":
        pq.write_table(pa.table({"place": labels, "id": list(range(len(labels)))}), path)
    else:
        path.write_text("".join(f"{label}\n" for label in labels), encoding="utf-8")


@pytest.mark.parametrize("name", ["a.npy", "a.npz:place", "a.parquet:place", "a.txt"])
def test_text_labels_are_read_from_every_format(tmp_path: Path, name: str) -> None:
    save_labels(tmp_path / name.split(":")[0], TEXT)
    assert list(read_labels(str(tmp_path / name), 4)) == TEXT


@pytest.mark.parametrize("name", ["a.npy", "a.npz:place", "a.parquet:place"])
def test_integer_labels_stay_integers(tmp_path: Path, name: str) -> None:
    save_labels(tmp_path / name.split(":")[0], [3, 1, 3])
    labels = list(read_labels(str(tmp_path / name), 3))
    assert labels == [3, 1, 3]
    assert all(type(label) is int for label in labels)


def test_a_column_of_a_table_is_selected(tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    file.write_text('﻿id,place\n1,north\n2,"south, far"\n', encoding="utf-8")
    assert list(read_labels(f"{file}:place", 2)) == ["north", "south, far"]
    assert list(read_labels(f"{file}:id", 2)) == ["1", "2"]


def test_a_csv_without_a_column_has_no_header(tmp_path: Path) -> None:
    file = tmp_path / "place.csv"
    file.write_text("place\nnorth\nsouth\n")
    assert list(read_labels(str(file), 3)) == ["place", "north", "south"]
    with pytest.raises(InvalidInput, match=r"2, but holds 3; if the first row names .*:NAME"):
        list(read_labels(str(file), 2))


def test_categorical_columns_are_labels(tmp_path: Path) -> None:
    column = pa.array(TEXT).dictionary_encode()
    pq.write_table(pa.table({"place": column}), tmp_path / "a.parquet")
    assert list(read_labels(str(tmp_path / "a.parquet"), 4)) == TEXT


@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.parametrize("name", ["a.npy", "a.npz:place", "a.parquet:place", "a.txt"])
def test_a_wrong_number_of_labels_is_rejected(tmp_path: Path, name: str, count: int) -> None:
    save_labels(tmp_path / name.split(":")[0], TEXT)
    with pytest.raises(InvalidInput, match=f"one label per report, {count}, but holds 4$"):
        list(read_labels(str(tmp_path / name), count))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"north\n\nsouth\n", "line 2 .* holds no label"),
        ("a.csv", b"north\n\nsouth\n", "line 2 .* holds no label"),
        ("a.csv", b"north,1\n", "line 1 .* has 2 columns, not 1; select a column"),
        ("a.csv:place", b"id,place\n1\n", "line 2 .* has 1 columns, not 2"),
        ("a.csv:town", b"id,place\n1,north\n", "no column 'town'.*id, place"),
        ("a.csv:a", b"a,a\n1,2\n", "more than one column 'a'"),
        ("a.csv", b'"north\n', "line"),
        ("a.txt", b"\xff\xfe", "not UTF-8"),
        ("a.csv", b"\xff\xfe", "not UTF-8"),
        ("a.parquet", b"PAR", "not a readable .parquet"),
        ("a.npy", b"NUM", "not a readable .npy"),
        ("a.xlsx", b"", "must be a file of type"),
    ],
)
def test_files_without_labels_are_rejected(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name.split(":")[0]).write_bytes(content)
    with pytest.raises(InvalidInput, match=message):
        list(read_labels(str(tmp_path / name), 2))


@pytest.mark.parametrize("array", [np.ones(2), np.ones((2, 2), int), np.array([b"a", b"b"])])
def test_arrays_that_are_not_labels_are_rejected(tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(InvalidInput, match=r"text or an integer.*astype\(str\)"):
        list(read_labels(str(tmp_path / "a.npy"), 2))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array(["a", None]), "missing labels"),
        (pa.array([1.0, 2.0]), "text or integers; the column .* is double"),
        (pa.array([[1], [2]]), "text or integers"),
    ],
)
def test_columns_that_are_not_labels_are_rejected(
    tmp_path: Path, column: pa.Array, message: str
) -> None:
    pq.write_table(pa.table({"place": column}), tmp_path / "a.parquet")
    with pytest.raises(InvalidInput, match=message):
        list(read_labels(str(tmp_path / "a.parquet"), 2))


def test_a_column_must_be_selected(tmp_path: Path) -> None:
    save_labels(tmp_path / "a.parquet", TEXT)
    with pytest.raises(InvalidInput, match=r"select a column .* place, id"):
        list(read_labels(str(tmp_path / "a.parquet"), 4))


def test_a_missing_file_is_rejected_immediately(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="file not found"):
        read_labels(str(tmp_path / "a.txt"), 2)
