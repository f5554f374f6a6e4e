"""Group labels from files, one a report, read a part at a time: text or whole numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from offaxis.cli.engine import Engine, EngineName, Master, check_engine, working
from offaxis.cli.inputs import (
    NAMED,
    check_format,
    check_output,
    load_release,
    locate,
    read_array,
    read_targets,
    reader_of,
    write_array,
)
from offaxis.cli.options import ARRAY, AsJson, Expect, Misused, ReleaseFile, example
from offaxis.cli.terminal import (
    bare_table,
    counted,
    counting,
    one_line,
    print_json,
    screen,
    waiting,
)
from offaxis.decoding import Aggregate
from offaxis.engines.columns import arrow
from offaxis.errors import InvalidInput, InvalidReport
from offaxis.files import replacing
from offaxis.formats.reports import count_reports, read_reports, unframe
from offaxis.privacy.wording import means_along
from offaxis.release import Release
from offaxis.vectors import Vectors

Label = str | int
_NAMED: Final = (".csv", *NAMED)
_LABEL_ROWS: Final = 1 << 14


def locate_labels(source: str) -> tuple[Path, str | None]:
    """Split ``file.csv:column`` into the file and the column."""
    return locate(source, _NAMED)


def read_labels(source: str, count: int) -> Iterator[Label]:
    """Give the labels of a file, of which there must be ``count``.

    Parameters
    ----------
    source : str
        ``file.csv:column`` of a file with a header; a .csv file of one column without a header; a
        .txt file with one label a line; a .npy, .npz or .parquet file of text or whole numbers.
        Labels of .csv and .txt files are text as it stands.

    Raises
    ------
    InvalidInput
        At once if there is no such file; on the way if it is damaged, a label is missing, or there
        are more or fewer than ``count``.
    """
    path, name = locate_labels(source)
    reader = reader_of(path, _READERS)
    if path.suffix.lower() == ".parquet":
        arrow()
    return _exactly(reader(path, name), count, path, headless=_headless(path, name))


def _headless(path: Path, name: str | None) -> bool:
    return path.suffix.lower() == ".csv" and name is None


def _exactly(labels: Iterator[Label], count: int, path: Path, *, headless: bool) -> Iterator[Label]:
    seen = 0
    for seen, label in enumerate(labels, 1):
        if seen <= count:
            yield label
    if seen == count:
        return
    hint = f"; if the first row names the column, say {path}:NAME" if headless else ""
    hint = hint if seen == count + 1 else ""
    raise InvalidInput(f"{path} must hold one label a report, {count:,}, but holds {seen:,}{hint}")


def _checked(label: str, path: Path, line: int) -> str:
    if not label.strip():
        raise InvalidInput(f"line {line} of {path} holds no label; every report needs one")
    return label


def _from_txt(path: Path, name: str | None) -> Iterator[Label]:
    with _text(path) as file:
        try:
            for line, text in enumerate(file, 1):
                yield _checked(text.rstrip("\r\n"), path, line)
        except UnicodeDecodeError:
            raise _not_text(path) from None


def _from_csv(path: Path, name: str | None) -> Iterator[Label]:
    with _text(path) as file:
        rows = csv.reader(file, strict=True)
        try:
            at, width = (0, 1) if name is None else _column(path, name, next(rows, []))
            for row in rows:
                # The content is not repeated: it may be somebody's.
                if row and len(row) != width:
                    wanted = "say which column: FILE:COLUMN" if name is None else "mend the row"
                    raise InvalidInput(
                        f"line {rows.line_num} of {path} has {len(row)} columns, not {width}; "
                        f"{wanted}"
                    )
                yield _checked(row[at] if row else "", path, rows.line_num)
        except UnicodeDecodeError:
            raise _not_text(path) from None
        except csv.Error as error:
            raise InvalidInput(f"{path}, line {rows.line_num}: {error}") from None


def _column(path: Path, name: str, header: list[str]) -> tuple[int, int]:
    if header.count(name) != 1:
        wrong = "more than one column" if name in header else "no column"
        raise InvalidInput(f"{path} has {wrong} {name!r}; its first row is {', '.join(header)}")
    return header.index(name), len(header)


def _text(path: Path) -> Any:
    return path.open(encoding="utf-8-sig", newline="")


def _not_text(path: Path) -> InvalidInput:
    return InvalidInput(f"{path} is not UTF-8 text; save it as such")


def _from_array(path: Path, name: str | None) -> Iterator[Label]:
    array = read_array(str(path) if name is None else f"{path}:{name}")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "iubU":
        raise InvalidInput(
            f"{path} must hold one label a report, text or a whole number, got an array of shape "
            f"{array.shape} and dtype {array.dtype}; convert it, for example with .astype(str)"
        )
    for start in range(0, len(array), _LABEL_ROWS):
        yield from array[start : start + _LABEL_ROWS].tolist()


def _from_parquet(path: Path, name: str | None) -> Iterator[Label]:
    pa = arrow()
    try:
        with pa.parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            chosen = names[0] if name is None and len(names) == 1 else name
            if chosen not in names:
                raise InvalidInput(f"choose a column of {path}: {', '.join(names)}, as FILE:COLUMN")
            _check_kind(pa, path, file.schema_arrow.field(chosen).type)
            for batch in file.iter_batches(_LABEL_ROWS, columns=[chosen]):
                if batch.column(0).null_count:
                    raise InvalidInput(f"{path} has missing labels; every report needs one")
                yield from batch.column(0).to_pylist()
    except pa.ArrowException as error:
        raise InvalidInput(f"{path} is not a readable .parquet file: {error}") from None


def _check_kind(pa: Any, path: Path, kind: Any) -> None:
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_boolean)
    if not any(test(inner) for test in tests):
        raise InvalidInput(f"labels must be text or whole numbers; the column of {path} is {kind}")


_READERS: Final[dict[str, Callable[[Path, str | None], Iterator[Label]]]] = {
    ".csv": _from_csv,
    ".txt": _from_txt,
    ".npy": _from_array,
    ".npz": _from_array,
    ".parquet": _from_parquet,
}


# ----------------------------------------------------------------------------
# Means with standard errors as files, as facts and as a small table.

LABELS_ARE_BARE: Final = (
    "warning: labels are not protected by any guarantee; use labels that are public anyway"
)
_SHOWN: Final = 20
_WIDEST: Final = 40
_GROUP_NUMBERS: Final = 1 << 24
"""Groups times dimension: the moments of so many numbers are kept in memory."""


def bounded(labels: Iterator[Label], dim: int) -> Iterator[Label]:
    """Pass labels on while their groups fit into memory: one group a person would not."""
    most = max(1, _GROUP_NUMBERS // dim)
    seen: set[Label] = set()
    for label in labels:
        seen.add(label)
        if len(seen) > most:
            raise InvalidInput(
                f"there are more than {most:,} groups of dimension {dim}; use coarser labels"
            )
        yield label


def write_means(path: Path, found: Aggregate) -> None:
    """Write means and their errors; the file appears whole or not at all.

    .npy: the mean alone. .npz: ``mean``, ``standard_error``, ``count`` and, with groups,
    ``groups``. .csv and .parquet: one row a group and coordinate.
    """
    with waiting(f"writing {path.name}"), replacing(path) as file:
        _WRITERS[path.suffix.lower()](file, found)


def _write_npy(file: BinaryIO, found: Aggregate) -> None:
    np.save(file, found.estimate, allow_pickle=False)


def _write_npz(file: BinaryIO, found: Aggregate) -> None:
    arrays = {"mean": found.estimate, "standard_error": found.standard_error, "count": found.count}
    if found.groups is not None:
        arrays["groups"] = np.array(found.groups)
    np.savez(file, allow_pickle=False, **arrays)


def _write_csv(file: BinaryIO, found: Aggregate) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    rows = csv.writer(text, lineterminator="\n")
    named = [] if found.groups is None else ["group"]
    rows.writerow([*named, "coordinate", "mean", "standard_error", "reports"])
    for name, mean, error, count in _groups(found):
        for at, (value, its_error) in enumerate(zip(mean.tolist(), error.tolist(), strict=True)):
            # repr gives every float64 back exactly.
            rows.writerow([*name, at, repr(value), repr(its_error), count])
    text.flush()
    text.detach()


def _write_parquet(file: BinaryIO, found: Aggregate) -> None:
    pa = arrow()
    means = np.atleast_2d(found.estimate)
    groups, dim = means.shape
    named = {}
    if found.groups is not None:
        places = pa.array(np.repeat(np.arange(groups, dtype=np.int32), dim))
        named["group"] = pa.DictionaryArray.from_arrays(places, pa.array(list(found.groups)))
    columns = {
        "coordinate": np.tile(np.arange(dim), groups),
        "mean": means.ravel(),
        "standard_error": found.standard_error.ravel(),
        "reports": np.repeat(found.count, dim),
    }
    pa.parquet.write_table(pa.table(named | columns), file)


_WRITERS: Final[dict[str, Callable[[BinaryIO, Aggregate], None]]] = {
    ".npy": _write_npy,
    ".npz": _write_npz,
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}


def _groups(found: Aggregate) -> Iterator[tuple[list[Any], Any, Any, int]]:
    """Give each group's label (none without groups), mean, errors and reports."""
    names = [[]] if found.groups is None else [[label] for label in found.groups]
    counts = np.atleast_1d(found.count).tolist()
    parts = (np.atleast_2d(found.estimate), np.atleast_2d(found.standard_error))
    yield from zip(names, *parts, counts, strict=True)


def mean_facts(found: Aggregate) -> dict[str, Any]:
    """Return what ``--json`` says: the reports and the largest error, in all or of each group."""
    effective = np.atleast_1d(found.effective_count).tolist()
    facts = [
        {
            **({"group": name[0]} if name else {}),
            "reports": count,
            "effective_reports": worth,
            "largest_standard_error": float(error.max()),
        }
        for (name, _, error, count), worth in zip(_groups(found), effective, strict=True)
    ]
    return facts[0] if found.groups is None else {"groups": facts}


def group_table(found: Aggregate) -> Table:
    """Lay out the first groups for people."""
    table = bare_table(3)
    table.add_column("group")
    for name in ("reports", "largest standard error"):
        table.add_column(name, justify="right", no_wrap=True)
    groups = list(_groups(found))
    for named, _, error, count in groups[:_SHOWN]:
        label = one_line(str(named[0]))
        label = label if len(label) <= _WIDEST else f"{label[: _WIDEST - 1]}…"
        table.add_row(Text(label), f"{count:,}", written_error(float(error.max())))
    if len(groups) > _SHOWN:
        table.add_row(Text(f"… and {len(groups) - _SHOWN:,} more", style="dim"), "", "")
    return table


def written_error(error: float) -> str:
    """Write a standard error; one report leaves it open."""
    return f"{error:.4g}" if np.isfinite(error) else "unknown from 1 report"


# ----------------------------------------------------------------------------
# ``offaxis decode``: reports to vectors, or to their means with standard errors.

_ROWS = 4096
_NUMBERS = 1 << 24
"""Reports are decoded in parts of at most so many rows and about so many numbers."""


@example(
    "offaxis decode my.release --reports mine.reports --out decoded.npy",
    "offaxis decode my.release --reports mine.reports --out mean.csv --mean",
)
def decode(
    release: ReleaseFile,
    reports: Annotated[
        Path, typer.Option(metavar="REPORTS", help="A file of reports made by offaxis privatize.")
    ],
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="The array to write: .npy, .npz, .csv or .parquet.")
    ],
    mean: Annotated[
        bool,
        typer.Option(
            "--mean",
            help="Write the mean of all, or of each group, with standard errors (.npy: the mean "
            "alone).",
        ),
    ] = False,
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="FILE[:COLUMN]",
            help="With --mean: one label a report, .csv, .txt, .npy, .npz or .parquet. Labels are "
            "not protected: use public ones.",
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help=f"With --mean: one positive number a report, decided without them: {ARRAY}.",
        ),
    ] = None,
    engine: EngineName = None,
    master: Master = None,
    expect: Expect = None,
    as_json: AsJson = False,
) -> None:
    """Turn reports into vectors, or into estimates of their means.

    Standard errors take reports for independent, one a person. They count the noise and the
    differences between people, not what clipping takes away. With --engine REPORTS is a folder
    that privatize --engine made, or has a column of reports as it does; --groups and --weights name
    columns, and decoded vectors go to a folder.
    """
    _check_options(out, mean, groups, weights)
    check_engine(engine, master)
    if engine is not None:
        loaded = load_release(release, expect)
        _records(engine, master, loaded, reports, out, mean, groups, weights, as_json=as_json)
        return
    others = [locate(weights)[0]] if weights else []
    others += [locate_labels(groups)[0]] if groups else []
    check_output(out, release, reports, *others)
    check_format(out)
    loaded = load_release(release, expect)
    if not reports.is_file():
        raise InvalidReport(f"there is no file of reports {reports}")
    count = count_reports(reports, loaded.report_size)
    facts = {"out": str(out), "release": loaded.hash, "reports": count, "mean": mean}
    if mean:
        found = _aggregate(loaded, reports, count, groups, weights)
        _tell_means(loaded, found, out, facts, as_json=as_json)
        return
    decoded = _each(loaded, reports, count)
    write_array(out, decoded)
    if as_json:
        print_json(facts | {"shape": list(decoded.shape)})
        return
    typer.echo(f"read {counted(count, 'report')}, wrote the decoded vectors to {out}")


def _check_options(out: Path, mean: bool, groups: str | None, weights: str | None) -> None:
    for name, given in (("--groups", groups), ("--weights", weights)):
        if given is not None and not mean:
            raise Misused(f"{name} is read with --mean only; add --mean or leave it out")
    if groups is not None and out.suffix.lower() == ".npy":
        raise Misused(f"{out} cannot name the groups; let --out end in .npz, .csv or .parquet")


def _records(
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
    """Decode the records of a Parquet file or folder, or average them."""
    facts: dict[str, Any] = {"out": str(out), "release": release.hash}
    if mean:
        check_format(out)
    with working(engine, master, "decoding") as work:
        source = work.open(str(reports))
        if not mean:
            count = work.functions.decode(source, release, str(out), **work.told)
        else:
            columns = {"groups": groups, "weights": weights}
            found = work.functions.group_means(source, release, **columns, **work.told)
            count = int(found.count.sum())
    facts |= {"reports": count, "mean": mean}
    if mean:
        _tell_means(release, found, out, facts, as_json=as_json)
    elif as_json:
        print_json(facts)
    else:
        typer.echo(f"read {counted(count, 'report')}, wrote the decoded vectors to folder {out}")


def _tell_means(
    release: Release, found: Aggregate, out: Path, facts: dict[str, Any], *, as_json: bool
) -> None:
    directions = release.mean_rank
    if directions < release.input_dim:
        typer.echo(f"note: means tell of people {means_along(directions)}", err=True)
    facts["directions"] = directions
    write_means(out, found)
    if found.groups is not None:
        typer.echo(LABELS_ARE_BARE, err=True)
    if as_json:
        print_json(facts | {"shape": list(found.estimate.shape)} | mean_facts(found))
        return
    if found.groups is None:
        worst = written_error(float(found.standard_error.max()))
        typer.echo(
            f"read {counted(facts['reports'], 'report')}, wrote their mean to {out}\n"
            f"largest standard error of a coordinate: {worst}"
        )
        return
    with screen() as console:
        number = counted(len(found.groups), "group")
        read = counted(facts["reports"], "report")
        console.print(f"read {read}, wrote the means of {number} to {out}\n", soft_wrap=True)
        console.print(group_table(found))


def _each(release: Release, path: Path, count: int) -> Vectors:
    dim = release.decoder.output_dim
    try:
        decoded = np.empty((count, dim))
    except (MemoryError, ValueError):
        raise InvalidInput(
            f"{counted(count, 'vector')} of dimension {dim} do not fit into memory: decode the "
            f"file in parts, or its mean with --mean"
        ) from None
    for start, part in _parts(release, path, count, release.decode):
        decoded[start : start + len(part)] = part
    return decoded


def _aggregate(
    release: Release, path: Path, count: int, groups: str | None, weights: str | None
) -> Aggregate:
    dim = release.unbiased_decoder.output_dim
    labels = None if groups is None else bounded(read_labels(groups, count), dim)
    numbers = None if weights is None else read_targets(weights)
    if numbers is not None and numbers.shape != (count,):
        raise InvalidInput(
            f"{weights} must hold one weight a report, {count:,}, got shape {numbers.shape}"
        )
    with counting("decoding", count) as advance:
        reports = _counted(read_reports(path, release.report_size), advance)
        return release.aggregate(reports, numbers, labels)


def _counted(reports: Iterator[bytes], advance: Callable[[int], None]) -> Iterator[bytes]:
    for number, report in enumerate(reports, 1):
        yield report
        if number % _ROWS == 0:
            advance(_ROWS)


def _parts(
    release: Release, path: Path, count: int, decode: Callable[[list[bytes]], Vectors]
) -> Iterator[tuple[int, Vectors]]:
    """Decode a file part by part; yield the place of every part's first report, and the result."""
    reports = read_reports(path, release.report_size)
    widest = max(release.decoder.input_dim, release.decoder.output_dim)
    rows = min(_ROWS, max(1, _NUMBERS // widest))
    with counting("decoding", count) as advance:
        for start in range(0, count, rows):
            part = list(islice(reports, rows))
            try:
                result = decode(part)
            except InvalidReport:
                # Once more, to name the bad report by its place in the file.
                randomizer = release.randomizer
                size = randomizer.payload_size
                unframe(part, randomizer.wire_id, release.hash, size, first=start)
                raise
            yield start, result
            advance(len(part))
