"""pandas: ``frame.offaxis.privatize(release)`` returns a column of reports, ``.decode`` reads one.

Importing this module registers the accessors. Reports are drawn when ``privatize`` is called, not
when a column is accessed: the result is an ordinary column of bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from offaxis.encoding.pairs import NOT_PASSED
from offaxis.engines.arrow import answer_columns
from offaxis.errors import InvalidInput, MissingExtra, installing
from offaxis.release import Release

try:
    import pandas
except ImportError as error:
    raise MissingExtra(
        f"offaxis.integrations.pandas needs pandas: {installing('pandas')}"
    ) from error

__all__ = ["PrivateFrame", "PrivateSeries"]


@pandas.api.extensions.register_dataframe_accessor("offaxis")
class PrivateFrame:
    """``frame.offaxis``: the rows of a DataFrame as private vectors.

    **Every call of** :meth:`privatize` **spends the budget again.** It returns only the reports and
    the index; other columns are not protected and are dropped.

    Examples
    --------
    >>> import pandas
    >>> from offaxis import fit
    >>> import offaxis.integrations.pandas                      # registers .offaxis
    >>> public = np.random.default_rng(0).normal(size=(99, 2))
    >>> release = fit(np.eye(2), public, epsilon=4, mechanism="laplace")
    >>> people = pandas.DataFrame({"heat": [0.1, 0.4], "cold": [1.2, 0.3]}, index=["ann", "bob"])
    >>> reports = people.offaxis.privatize(release, columns=["heat", "cold"])
    >>> reports.index.to_list()
    ['ann', 'bob']
    >>> reports.offaxis.decode(release, columns=["heat", "cold"]).shape
    (2, 2)
    """

    def __init__(self, frame: pandas.DataFrame) -> None:
        self._frame = frame

    def privatize(
        self,
        release: Release,
        columns: str | Sequence[str] | None = None,
        *,
        answers: str | Mapping[str, str] | None = None,
        name: str = "report",
    ) -> pandas.Series[Any]:
        """Return one report per row, as a Series of bytes with the frame's index.

        Parameters
        ----------
        release : Release
        columns : str or sequence of str, optional
            Columns of numbers, in the order of the vector's entries; or one column of lists. By
            default all columns except those of answers.
        answers : str or mapping, optional
            For a release of pairs: the column of the private answer, or a mapping from the names of
            several answers to their columns. A missing value is a missing answer.
        name : str
            Name of the Series.

        Raises
        ------
        InvalidInput
            If a column is missing, or the rows are not vectors of the release. Nothing is
            released then.
        """
        of_answers = answer_columns(release, answers)
        private = list(of_answers.values())
        frame = self._frame
        names = [columns] if isinstance(columns, str) else columns
        missing = [c for c in [*(names or ()), *private] if c not in frame.columns]
        if missing:
            existing = ", ".join(map(str, frame.columns))
            raise InvalidInput(f"there is no column {missing[0]!r}; the columns are {existing}")
        if release.asked and not of_answers:
            raise InvalidInput(
                "this release asks for answers: pass answers=..., the column of each"
            )
        selected: Any = frame.drop(columns=private) if names is None else frame[list(names)]
        if selected.shape[1] == 1 and release.input_dim - len(of_answers) > 1:
            selected = selected.iloc[:, 0]
        given = {key: _values(frame[column]) for key, column in of_answers.items()}
        return _reports(selected, release, name, given or NOT_PASSED)


@pandas.api.extensions.register_series_accessor("offaxis")
class PrivateSeries:
    """``series.offaxis``: a column of vectors, or a column of reports.

    **Every call of** :meth:`privatize` **spends the budget again**; decoding costs nothing.

    Examples
    --------
    >>> import pandas
    >>> from offaxis import fit
    >>> import offaxis.integrations.pandas                      # registers .offaxis
    >>> public = np.random.default_rng(0).normal(size=(99, 2))
    >>> release = fit(None, public, epsilon=4, goal="means")
    >>> vectors = pandas.Series([[0.1, 1.2], [0.4, 0.3]], index=["ann", "bob"])
    >>> reports = vectors.offaxis.privatize(release)
    >>> reports.offaxis.decode(release).index.to_list()
    ['ann', 'bob']
    >>> reports.offaxis.decode_mean(release, columns=["heat", "cold"]).index.to_list()
    ['heat', 'cold']
    """

    def __init__(self, series: pandas.Series[Any]) -> None:
        self._series = series

    def privatize(
        self, release: Release, *, answers: Any = None, name: str = "report"
    ) -> pandas.Series[Any]:
        """Return one report per entry of a Series of lists or arrays.

        For a release of pairs, ``answers`` is a sequence with one private answer per entry, in the
        order of the Series, or a mapping from the names of several answers to such sequences.
        """
        if isinstance(answers, pandas.DataFrame | Mapping):
            given: Any = {key: _values(answers[key]) for key in answers}
        else:
            given = NOT_PASSED if answers is None else _values(answers)
        return _reports(self._series, release, name, given)

    def decode(self, release: Release, *, columns: Sequence[Any] | None = None) -> pandas.DataFrame:
        """Return the decoded vectors of a Series of reports, one per row, with its index."""
        decoded = release.decode(self._series.to_list())
        _check_names(columns, decoded.shape[1])
        return pandas.DataFrame(decoded, index=self._series.index, columns=columns)

    def decode_mean(
        self, release: Release, *, columns: Sequence[Any] | None = None
    ) -> pandas.Series[Any]:
        """Return the mean over all reports; raise if it would be biased."""
        mean = release.decode_mean(self._series.to_list())
        _check_names(columns, mean.size)
        return pandas.Series(mean, index=columns, name="mean")


def _check_names(columns: Sequence[Any] | None, width: int) -> None:
    if columns is not None and len(columns) != width:
        raise InvalidInput(f"the release decodes {width} columns, got {len(columns)} names")


def _values(answers: Any) -> list[Any]:
    """Return answers as a list, with None for pandas' missing values."""
    series = pandas.Series(answers, dtype=None if hasattr(answers, "dtype") else object)
    values: list[Any] = series.astype(object).where(series.notna(), None).to_list()
    return values


def _reports(rows: Any, release: Release, name: str, answers: Any) -> pandas.Series[Any]:
    # A copy: an index that is a slice of the same array as the rows would keep the whole array.
    index = rows.index.copy(deep=True)
    if rows.ndim == 1 and getattr(rows.dtype, "kind", "O") in "fiu":
        raise InvalidInput(
            "a column of numbers is one vector; pass a column of lists, or several columns"
        )
    reports = release.privatize(rows, answers=answers)
    return pandas.Series(reports, index=index, name=name, dtype=object)
