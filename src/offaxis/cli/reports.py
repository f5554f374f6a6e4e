"""Files of reports: those of ``offaxis privatize``, exports of a collector, folders of both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Final

from offaxis.cli.options import UsageError
from offaxis.cli.terminal import step_bar
from offaxis.engines.arrow import REPORT
from offaxis.engines.local import ParquetRecords
from offaxis.errors import InvalidInput, InvalidReport
from offaxis.formats.reports import count_reports, read_reports

SOURCES: Final = (
    "Reports of offaxis privatize (.reports) or exported from a collector (.parquet), or a folder "
    "of these. May be given several times, such as one per round."
)

_ROWS: Final = 4096


def report_files(sources: Iterable[Path], *others: Path) -> list[Path]:
    """Return the files of reports, each once; those of a folder in the order of their names.

    Parameters
    ----------
    sources : iterable of paths
        Files, or folders of files.
    others : paths
        Files that must not be among them.
    """
    seen = {path.resolve() for path in others}
    files = []
    for source in sources:
        inner = [source]
        if source.is_dir():
            inner = sorted(p for p in source.iterdir() if p.suffix in (".reports", ".parquet"))
        elif not source.is_file():
            raise InvalidReport(f"file of reports not found: {source}")
        if not inner:
            raise InvalidReport(f"{source} has no files that end in .reports or .parquet")
        for path in inner:
            if path.resolve() in seen:
                raise UsageError(f"{path} is given twice: its reports would count twice")
            seen.add(path.resolve())
            files.append(path)
    return files


def number_of_reports(files: Iterable[Path], report_size: int) -> int:
    """Count the reports of files by their sizes."""
    return sum(
        ParquetRecords(path).count
        if path.suffix == ".parquet"
        else count_reports(path, report_size)
        for path in files
    )


def reports_in(path: Path, report_size: int) -> Iterator[bytes]:
    """Yield the reports of a file, or of an export of a collector."""
    if path.suffix != ".parquet":
        yield from read_reports(path, report_size)
        return
    for batch in ParquetRecords(path).batches(REPORT):
        for report in batch.column(REPORT).to_pylist():
            if not isinstance(report, bytes):
                raise InvalidInput(f"column {REPORT!r} of {path} must hold reports")
            yield report


@contextmanager
def opened_reports(files: list[Path], report_size: int) -> Iterator[Iterator[bytes]]:
    """Yield the reports of several files, one after another, with a progress bar."""
    with step_bar("reading reports", number_of_reports(files, report_size)) as advance:
        yield _counted(files, report_size, advance)


def _counted(
    files: list[Path], report_size: int, advance: Callable[[int], None]
) -> Iterator[bytes]:
    source = chain.from_iterable(reports_in(path, report_size) for path in files)
    for index, report in enumerate(source, 1):
        yield report
        if index % _ROWS == 0:
            advance(_ROWS)
