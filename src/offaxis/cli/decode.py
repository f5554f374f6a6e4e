"""``offaxis decode``: turn reports into vectors, means with standard errors, or shares of answers.

Group labels are read from files in parts, one label per report. Labels are text or integers.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from offaxis.cli.engine import Engine, EngineName, Master, check_engine, open_engine
from offaxis.cli.inputs import (
    NAMED,
    check_format,
    check_output,
    find_reader,
    locate,
    read_array,
    read_targets,
    write_array,
)
from offaxis.cli.options import ARRAY, AsJson, Expect, ReleaseFile, UsageError, example
from offaxis.cli.shares import check_shares_format, write_and_print_shares
from offaxis.cli.terminal import (
    buffered_console,
    one_line,
    plain_table,
    pluralize,
    print_json,
    spinner,
    step_bar,
)
from offaxis.decoding import Aggregate, Shares
from offaxis.engines.columns import arrow
from offaxis.errors import InvalidInput, InvalidReport
from offaxis.files import replacing
from offaxis.formats.reports import count_reports, read_reports
from offaxis.release import Release
from offaxis.vectors import Vectors

Label = str | int

_ROWS = 4096
"""The progress bar advances in steps of this many reports."""


@example(
    "offaxis decode my.release --reports mine.reports --out decoded.npy",
    "offaxis decode my.release --reports mine.reports --out shares.csv --shares",
)
def decode(
    release: ReleaseFile,
    reports: Annotated[
        Path, typer.Option(metavar="REPORTS", help="File of reports written by offaxis privatize.")
    ],
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="The array to write: .npy, .npz, .csv or .parquet.")
    ],
    mean: Annotated[
        bool,
        typer.Option(
            "--mean",
            help="Write the mean of all reports, or of each group, with standard errors (.npy: "
            "only the mean).",
        ),
    ] = False,
    shares: Annotated[
        bool,
        typer.Option(
            "--shares",
            help="Write the share of each answer or symbol among all people, or in each group, "
            "with intervals: for releases of answers (class-response) or symbols.",
        ),
    ] = False,
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="FILE[:COLUMN]",
            help="With --mean or --shares: one label per report, .csv, .txt, .npy, .npz or "
            ".parquet. Labels are not protected: use public ones.",
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help=f"With --mean: one positive weight per report, chosen without looking at the "
            f"reports: {ARRAY}.",
        ),
    ] = None,
    engine: EngineName = None,
    master: Master = None,
    expect: Expect = None,
    as_json: AsJson = False,
) -> None:
    """Decode reports into vectors, or estimate a mean or shares of answers.

    Do not count decoded answers: the counts are biased towards equal shares. Use --shares, whose
    intervals contain all shares at once with 95 % confidence, for any population.

    A mean is that of the clipped vectors. Its standard errors assume independent reports, one per
    person. They cover the noise and the differences between people. With --engine, REPORTS is a
    folder written by privatize --engine, or Parquet files with the same column of reports; --groups
    and --weights name columns, and decoded vectors are written to a folder.
    """
    _check_options(mean, shares, groups, weights, engine, out)
    if groups is not None and out.suffix.lower() == ".npy":
        raise UsageError(f"{out} cannot store group names; use --out with .npz, .csv or .parquet")
    check_engine(engine, master)
    if engine is not None:
        loaded = Release.load(release, expect=expect)
        _decode_records(
            engine, master, loaded, reports, out, mean, groups, weights, as_json=as_json
        )
        return
    others = [locate(weights)[0]] if weights else []
    others += [_locate_labels(groups)[0]] if groups else []
    check_output(out, release, reports, *others)
    check_format(out)
    loaded = Release.load(release, expect=expect)
    if not reports.is_file():
        raise InvalidReport(f"file of reports not found: {reports}")
    count = count_reports(reports, loaded.report_size)
    facts = {"out": str(out), "release": loaded.hash, "reports": count, "mean": mean}
    if mean:
        aggregate = _aggregate(loaded, reports, count, groups, weights)
        _write_and_print_means(loaded, aggregate, out, facts, as_json=as_json)
        return
    if shares:
        estimated = _shares(loaded, reports, count, groups)
        if groups is not None:
            typer.echo(_LABELS_WARNING, err=True)
        write_and_print_shares(estimated, out, facts | {"shares": True}, as_json=as_json)
        return
    decoded = _decode_all(loaded, reports, count)
    write_array(out, decoded)
    if as_json:
        print_json(facts | {"shape": list(decoded.shape)})
        return
    typer.echo(f"read {pluralize(count, 'report')}, wrote the decoded vectors to {out}")


def _check_options(
    mean: bool,
    shares: bool,
    groups: str | None,
    weights: str | None,
    engine: Engine | None,
    out: Path,
) -> None:
    """Reject options that exclude each other or have no effect."""
    if mean and shares:
        raise UsageError("--mean and --shares exclude each other; run decode once for each")
    if groups is not None and not (mean or shares):
        raise UsageError("--groups is used with --mean or --shares only; add one or drop --groups")
    if weights is not None and not mean:
        raise UsageError("--weights is used with --mean only; add --mean or drop --weights")
    if shares and engine is not None:
        raise UsageError("--shares reads files of reports only; drop --engine")
    if shares:
        check_shares_format(out)


def _decode_records(
    engine: Engine,
    master: str | None,
    release: Release,
    reports: Path,
    out: Path,
    mean: bool,
    groups: str | None,
    weights: str | None,
    *,
    as_json: bool,
) -> None:
    """Decode or average the records of a Parquet file or folder."""
    facts: dict[str, Any] = {"out": str(out), "release": release.hash}
    if mean:
        check_format(out)
    with open_engine(engine, master, "decoding") as running:
        functions, source = running.functions, running.open(str(reports))
        if not mean:
            count = functions.decode(source, release, str(out), **running.callbacks)
        else:
            columns = {"groups": groups, "weights": weights}
            aggregate = functions.group_means(source, release, **columns, **running.callbacks)
            count = int(aggregate.count.sum())
    facts |= {"reports": count, "mean": mean}
    if mean:
        _write_and_print_means(release, aggregate, out, facts, as_json=as_json)
    elif as_json:
        print_json(facts)
    else:
        typer.echo(f"read {pluralize(count, 'report')}, wrote the decoded vectors to folder {out}")


def _decode_all(release: Release, path: Path, count: int) -> Vectors:
    dim = release.decoder.output_dim
    try:
        decoded = np.empty((count, dim))
    except (MemoryError, ValueError):
        raise InvalidInput(
            f"{pluralize(count, 'vector')} of dimension {dim} do not fit into memory: decode the "
            f"file in parts, or its mean with --mean"
        ) from None
    start, reports = 0, read_reports(path, release.report_size)
    with step_bar("decoding", count) as advance:
        for batch in release.decode_in_batches(reports):
            decoded[start : start + len(batch)] = batch
            start += len(batch)
            advance(len(batch))
    return decoded


def _aggregate(
    release: Release, path: Path, count: int, groups: str | None, weights: str | None
) -> Aggregate:
    dim = release.unbiased_decoder.output_dim
    labels = None if groups is None else _limit_groups(read_labels(groups, count), dim)
    numbers = None if weights is None else read_targets(weights)
    if numbers is not None and numbers.shape != (count,):
        raise InvalidInput(
            f"{weights} must hold one weight per report, {count:,}, got shape {numbers.shape}"
        )
    with step_bar("decoding", count) as advance:
        reports = _show_progress(read_reports(path, release.report_size), advance)
        return release.aggregate(reports, numbers, labels)


def _shares(release: Release, path: Path, count: int, groups: str | None) -> Shares:
    dim = release.decoder.input_dim
    labels = None if groups is None else _limit_groups(read_labels(groups, count), dim)
    with step_bar("reading", count) as advance:
        reports = _show_progress(read_reports(path, release.report_size), advance)
        return release.shares(reports, labels)


def _show_progress(reports: Iterator[bytes], advance: Callable[[int], None]) -> Iterator[bytes]:
    for number, report in enumerate(reports, 1):
        yield report
        if number % _ROWS == 0:
            advance(_ROWS)


# ---- Means: on the terminal, as facts for ``--json``, and as files

_LABELS_WARNING: Final = (
    "warning: labels are not protected by any guarantee; use labels that are public anyway"
)
_MAX_ROWS: Final = 20
_MAX_LABEL: Final = 40
_GROUP_NUMBERS: Final = 1 << 24
"""Groups times dimension: the moments of this many numbers are kept in memory."""


def _limit_groups(labels: Iterator[Label], dim: int) -> Iterator[Label]:
    """Yield labels while their groups fit into memory: one group per person would not."""
    most = max(1, _GROUP_NUMBERS // dim)
    seen: set[Label] = set()
    for label in labels:
        seen.add(label)
        if len(seen) > most:
            raise InvalidInput(f"more than {most:,} groups of dimension {dim}; use coarser labels")
        yield label


def _write_and_print_means(
    release: Release, means: Aggregate, out: Path, facts: dict[str, Any], *, as_json: bool
) -> None:
    _write_means(out, means)
    if means.groups is not None:
        typer.echo(_LABELS_WARNING, err=True)
    if as_json:
        print_json(facts | {"shape": list(means.estimate.shape)} | _mean_facts(means))
        return
    reports = pluralize(facts["reports"], "report")
    if means.groups is None:
        typer.echo(
            f"read {reports}, wrote their mean to {out}\n"
            f"largest standard error of a coordinate: "
            f"{_format_error(float(means.standard_error.max()))}"
        )
        return
    with buffered_console() as console:
        number = pluralize(len(means.groups), "group")
        console.print(f"read {reports}, wrote the means of {number} to {out}\n", soft_wrap=True)
        console.print(_group_table(means))


def _group_table(means: Aggregate) -> Table:
    """Lay out the first groups."""
    table = plain_table(3)
    table.add_column("group")
    for name in ("reports", "largest standard error"):
        table.add_column(name, justify="right", no_wrap=True)
    groups = list(_groups(means))
    for names, _, error, count in groups[:_MAX_ROWS]:
        label = one_line(str(names[0]))
        label = label if len(label) <= _MAX_LABEL else f"{label[: _MAX_LABEL - 1]}…"
        table.add_row(Text(label), f"{count:,}", _format_error(float(error.max())))
    if len(groups) > _MAX_ROWS:
        table.add_row(Text(f"… and {len(groups) - _MAX_ROWS:,} more", style="dim"), "", "")
    return table


def _format_error(error: float) -> str:
    """Write a standard error; a single report does not determine one."""
    return f"{error:.4g}" if np.isfinite(error) else "unknown from 1 report"


def _groups(means: Aggregate) -> Iterator[tuple[list[Any], Any, Any, int]]:
    """Yield each group's label (an empty list without groups), mean, errors and reports."""
    names = [[]] if means.groups is None else [[label] for label in means.groups]
    counts = np.atleast_1d(means.count).tolist()
    arrays = (np.atleast_2d(means.estimate), np.atleast_2d(means.standard_error))
    yield from zip(names, *arrays, counts, strict=True)


def _mean_facts(means: Aggregate) -> dict[str, Any]:
    """Return the number of reports and the largest error, in total or per group."""
    effective = np.atleast_1d(means.effective_count).tolist()
    facts = [
        {
            **({"group": name[0]} if name else {}),
            "reports": count,
            "effective_reports": effective_count,
            "largest_standard_error": float(error.max()),
        }
        for (name, _, error, count), effective_count in zip(_groups(means), effective, strict=True)
    ]
    return facts[0] if means.groups is None else {"groups": facts}


def _write_means(path: Path, means: Aggregate) -> None:
    """Write means and standard errors; the file appears complete or not at all.

    .npy: only the mean. .npz: ``mean``, ``standard_error``, ``count`` and, with groups,
    ``groups``. .csv and .parquet: one row per group and coordinate.
    """
    with spinner(f"writing {path.name}"), replacing(path) as file:
        _WRITERS[path.suffix.lower()](file, means)


def _write_npy(file: BinaryIO, means: Aggregate) -> None:
    np.save(file, means.estimate, allow_pickle=False)


def _write_npz(file: BinaryIO, means: Aggregate) -> None:
    arrays = {"mean": means.estimate, "standard_error": means.standard_error, "count": means.count}
    if means.groups is not None:
        arrays["groups"] = np.array(means.groups)
    np.savez(file, allow_pickle=False, **arrays)


def _write_csv(file: BinaryIO, means: Aggregate) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    rows = csv.writer(text, lineterminator="\n")
    group_column = [] if means.groups is None else ["group"]
    rows.writerow([*group_column, "coordinate", "mean", "standard_error", "reports"])
    for name, mean, errors, count in _groups(means):
        for index, (value, error) in enumerate(zip(mean.tolist(), errors.tolist(), strict=True)):
            # repr represents every float64 exactly.
            rows.writerow([*name, index, repr(value), repr(error), count])
    text.flush()
    text.detach()


def _write_parquet(file: BinaryIO, means: Aggregate) -> None:
    pa = arrow()
    estimates = np.atleast_2d(means.estimate)
    groups, dim = estimates.shape
    group_column = {}
    if means.groups is not None:
        indices = pa.array(np.repeat(np.arange(groups, dtype=np.int32), dim))
        names = pa.array(list(means.groups))
        group_column["group"] = pa.DictionaryArray.from_arrays(indices, names)
    columns = {
        "coordinate": np.tile(np.arange(dim), groups),
        "mean": estimates.ravel(),
        "standard_error": means.standard_error.ravel(),
        "reports": np.repeat(means.count, dim),
    }
    pa.parquet.write_table(pa.table(group_column | columns), file)


_WRITERS: Final[dict[str, Callable[[BinaryIO, Aggregate], None]]] = {
    ".npy": _write_npy,
    ".npz": _write_npz,
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}


# ---- Group labels

_NAMED: Final = (".csv", *NAMED)
_LABEL_ROWS: Final = 1 << 14


def read_labels(source: str, count: int) -> Iterator[Label]:
    """Yield the labels of a file, of which there must be ``count``.

    Parameters
    ----------
    source : str
        ``file.csv:column`` of a file with a header; a .csv file of one column without a header; a
        .txt file with one label per line; a .npy, .npz or .parquet file of text or integers.
        Labels of .csv and .txt files are read as text, unchanged.

    Raises
    ------
    InvalidInput
        Immediately if the file does not exist; while reading if it is damaged, a label is missing,
        or there are more or fewer than ``count`` labels.
    """
    path, name = _locate_labels(source)
    reader = find_reader(path, _READERS)
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        arrow()
    has_header = suffix != ".csv" or name is not None
    return _check_count(reader(path, name), count, path, has_header=has_header)


def _locate_labels(source: str) -> tuple[Path, str | None]:
    """Split ``file.csv:column`` into the file and the column."""
    return locate(source, _NAMED)


def _check_count(
    labels: Iterator[Label], count: int, path: Path, *, has_header: bool
) -> Iterator[Label]:
    seen = 0
    for seen, label in enumerate(labels, 1):
        if seen <= count:
            yield label
    if seen == count:
        return
    hint = ""
    if seen == count + 1 and not has_header:
        hint = f"; if the first row names the column, use {path}:NAME"
    raise InvalidInput(
        f"{path} must hold one label per report, {count:,}, but holds {seen:,}{hint}"
    )


def _check_label(label: str, path: Path, line: int) -> str:
    if not label.strip():
        raise InvalidInput(f"line {line} of {path} holds no label; every report needs one")
    return label


def _labels_from_txt(path: Path, name: str | None) -> Iterator[Label]:
    with _open_text(path) as file:
        try:
            for line, text in enumerate(file, 1):
                yield _check_label(text.rstrip("\r\n"), path, line)
        except UnicodeDecodeError:
            raise _not_text(path) from None


def _labels_from_csv(path: Path, name: str | None) -> Iterator[Label]:
    with _open_text(path) as file:
        rows = csv.reader(file, strict=True)
        try:
            index, width = (0, 1) if name is None else _find_column(path, name, next(rows, []))
            for row in rows:
                # The message does not repeat the content, which may be private.
                if row and len(row) != width:
                    fix = "select a column: FILE:COLUMN" if name is None else "correct the row"
                    raise InvalidInput(
                        f"line {rows.line_num} of {path} has {len(row)} columns, not {width}; {fix}"
                    )
                yield _check_label(row[index] if row else "", path, rows.line_num)
        except UnicodeDecodeError:
            raise _not_text(path) from None
        except csv.Error as error:
            raise InvalidInput(f"{path}, line {rows.line_num}: {error}") from None


def _find_column(path: Path, name: str, header: list[str]) -> tuple[int, int]:
    """Return the index of a column and the number of columns."""
    if header.count(name) != 1:
        problem = "more than one column" if name in header else "no column"
        raise InvalidInput(f"{path} has {problem} {name!r}; its first row is {', '.join(header)}")
    return header.index(name), len(header)


def _open_text(path: Path) -> Any:
    return path.open(encoding="utf-8-sig", newline="")


def _not_text(path: Path) -> InvalidInput:
    return InvalidInput(f"{path} is not UTF-8 text; save it as UTF-8")


def _labels_from_array(path: Path, name: str | None) -> Iterator[Label]:
    array = read_array(str(path) if name is None else f"{path}:{name}")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "iubU":
        raise InvalidInput(
            f"{path} must hold one label per report, text or an integer, got an array of shape "
            f"{array.shape} and dtype {array.dtype}; convert it, for example with .astype(str)"
        )
    for start in range(0, len(array), _LABEL_ROWS):
        yield from array[start : start + _LABEL_ROWS].tolist()


def _labels_from_parquet(path: Path, name: str | None) -> Iterator[Label]:
    pa = arrow()
    try:
        with pa.parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            selected = names[0] if name is None and len(names) == 1 else name
            if selected not in names:
                raise InvalidInput(f"select a column of {path}: {', '.join(names)}, as FILE:COLUMN")
            _check_label_type(pa, path, file.schema_arrow.field(selected).type)
            for batch in file.iter_batches(_LABEL_ROWS, columns=[selected]):
                if batch.column(0).null_count:
                    raise InvalidInput(f"{path} has missing labels; every report needs one")
                yield from batch.column(0).to_pylist()
    except pa.ArrowException as error:
        raise InvalidInput(f"{path} is not a readable .parquet file: {error}") from None


def _check_label_type(pa: Any, path: Path, kind: Any) -> None:
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_boolean)
    if not any(test(inner) for test in tests):
        raise InvalidInput(f"labels must be text or integers; the column of {path} is {kind}")


_READERS: Final[dict[str, Callable[[Path, str | None], Iterator[Label]]]] = {
    ".csv": _labels_from_csv,
    ".txt": _labels_from_txt,
    ".npy": _labels_from_array,
    ".npz": _labels_from_array,
    ".parquet": _labels_from_parquet,
}
