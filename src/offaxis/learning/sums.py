"""What does a model need of the reports? Sums over observations, in one pass, that can be merged.

Reports are counted in :data:`FOLDS` folds by their position, so that a model can be judged on
reports it was not learnt from. Memory does not grow with the number of reports.
"""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from numbers import Integral
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from offaxis.encoding.pairs import (
    MOST_CLASSES,
    Asked,
    Classes,
    Number,
    PairEncoder,
    as_asked,
    listed,
)
from offaxis.errors import InvalidInput
from offaxis.formats.reports import as_iterable
from offaxis.randomizers import PrivUnit2
from offaxis.randomizers.symbols import SymbolForm
from offaxis.release import Release
from offaxis.vectors import Vectors

FOLDS: Final = 5

MOST_SQUARES: Final = 1024
"""Up to this dimension the second moments of reports are kept, for the errors of coefficients."""

_ROWS: Final = 4096
_NUMBERS: Final = 1 << 21
_END: Final = object()
_MAGIC: Final = "offaxis sums of pairs 1"
_DAMAGED: Final = (
    *(ValueError, KeyError, OSError, EOFError, TypeError, RuntimeError, MemoryError),
    *(zipfile.BadZipFile, zlib.error),
)


def pair_encoder_of(release: Release) -> PairEncoder:
    """Return the encoder of a release of pairs; raise for others."""
    if not isinstance(release.encoder, PairEncoder):
        raise InvalidInput(
            "models are learnt from releases of pairs: see offaxis.plan_learning or "
            "offaxis.learning.fit_pairs"
        )
    release.require_single_reports("models are learnt from people who report once")
    return release.encoder


@dataclass(eq=False)
class PairSums:
    """Sums over the reports of a release of pairs.

    Parameters
    ----------
    release : Release
        Of pairs (:func:`~offaxis.learning.fit_pairs`).
    labels : Classes or Number, optional
        What the public labels are, if the reports hold vectors alone and the collector knows the
        labels.

    Attributes
    ----------
    first : int
        Number of reports counted elsewhere before these, which shifts their folds. Sums that are
        merged need not set it: their folds are turned.
    label_total : float
        Sum of public numbers, scaled to −1 … 1.
    counts : (folds, labels) array
    totals : (folds, labels, D) array
        Sums of observations; of symbols, how often each is named.
    squares : (D, D) array or None
        Sums of products of observations of moments.

    Examples
    --------
    >>> from offaxis.learning import PairSums, fit_pairs, learn, principal
    >>> rng = np.random.default_rng(0)
    >>> people = rng.standard_normal((3000, 4))
    >>> release = fit_pairs(principal(people[:1000]), 2, epsilon=2)
    >>> reports = release.privatize(people[1000:], answers=1 * (people[1000:, 0] > 0))
    >>> monday, tuesday = PairSums(release), PairSums(release)
    >>> monday.add(reports[:900]), tuesday.add(reports[900:])
    (None, None)
    >>> monday.merge(tuesday)
    >>> monday.count
    2000
    >>> learn(release, monday).predict(people[:3]).shape
    (3,)
    """

    release: Release
    labels: Asked | None = None
    first: int = field(init=False, default=0)
    label_total: float = field(init=False, default=0.0)
    counts: NDArray[np.int64] = field(init=False)
    totals: Vectors = field(init=False)
    squares: Vectors | None = field(init=False)

    def __post_init__(self) -> None:
        """Check the release and the labels, and start from zero."""
        encoder = pair_encoder_of(self.release)
        if encoder.form == "right":
            raise InvalidInput(
                "these reports tell how often a model is right: read them with accuracy()"
            )
        if self.labels is not None:
            if self.release.asked:
                raise InvalidInput(
                    "the reports of this release hold private answers: public labels are for a "
                    "release that asks for none"
                )
            described = as_asked(self.labels)
            if len(described) != 1:
                raise InvalidInput(
                    f"a report has one public label, got a description of {len(described)}"
                )
            self.labels = described[0]
            if self.labels.optional:
                raise InvalidInput("public labels are not optional: leave out reports without one")
            if self.labels.classes > MOST_CLASSES:
                raise InvalidInput(
                    f"public labels are at most {MOST_CLASSES} classes, got {self.labels.classes}"
                )
            if isinstance(self.labels, Number) and encoder.form == "cells":
                raise InvalidInput("cells take classes: public numbers need a release of moments")
        groups = self.labels.classes if isinstance(self.labels, Classes) else 1
        dim = self.release.decoder.input_dim
        self.counts = np.zeros((FOLDS, groups), dtype=np.int64)
        self.totals = np.zeros((FOLDS, groups, dim))
        keeps = encoder.form == "moments" and dim <= MOST_SQUARES
        self.squares = np.zeros((dim, dim)) if keeps else None

    @property
    def count(self) -> int:
        """Number of reports."""
        return int(self.counts.sum())

    def add(self, reports: Iterable[bytes], labels: Iterable[Any] | None = None) -> None:
        """Add reports, with one public label each if the sums have labels.

        Nothing is added unless all reports of this call are valid.
        """
        if (labels is None) != (self.labels is None):
            raise InvalidInput(
                "public labels are given both to the sums and with every report, or not at all"
            )
        fresh = PairSums(self.release, self.labels)
        fresh.first = self.first + self.count
        rows = max(1, min(_ROWS, _NUMBERS // self.totals.shape[2]))
        source = iter(as_iterable(reports))
        named = None if labels is None else iter(labels)
        seen = 0
        # Many small products: threads would wait for each other longer than they work.
        with threadpool_limits(1, user_api="blas"):
            while batch := list(islice(source, rows)):
                observed = self.release.observe(batch, first=seen)
                column = None if named is None else _labels(self.labels, named, len(batch))
                fresh.add_observed(observed, column)
                seen += len(batch)
        if named is not None and next(named, _END) is not _END:
            raise InvalidInput(f"there are more labels than the {seen} reports")
        self.merge(fresh)

    def add_observed(self, observed: Vectors, labels: Vectors | None = None) -> None:
        """Add observations (n, D), and public labels (n,) as numbers."""
        if isinstance(self.release.randomizer, SymbolForm):
            observed = (observed > 0).astype(np.float64)
        own = np.zeros(len(observed), dtype=np.int64)
        if isinstance(self.labels, Classes):
            assert labels is not None
            own = labels.astype(np.int64)
        elif isinstance(self.labels, Number):
            assert labels is not None
            numbers = self.labels.scaled(labels)
            self.label_total += float(numbers.sum())
            observed = observed * numbers[:, None]
        groups = self.counts.shape[1]
        place = folds_of(np.arange(len(observed)) + self.first + self.count) * groups + own
        counts = np.bincount(place, minlength=FOLDS * groups)
        order = np.argsort(place, kind="stable")
        used = np.flatnonzero(counts)
        if used.size:
            starts = np.concatenate([[0], np.cumsum(counts[used])[:-1]])
            sums = np.add.reduceat(observed[order], starts, axis=0)
            self.totals.reshape(-1, self.totals.shape[2])[used] += sums
        self.counts += counts.reshape(self.counts.shape)
        if self.squares is not None:
            self.squares += observed.T @ observed

    def merge(self, other: PairSums) -> None:
        """Add the sums over other reports of the same release.

        Their folds are turned as if these reports had been counted after those, so that many small
        sums fill all folds.
        """
        if other.release != self.release or other.labels != self.labels:
            raise InvalidInput("these are sums over reports of another release, or of other labels")
        own, others = folds_of(np.array([self.first + self.count, other.first]))
        self.counts += np.roll(other.counts, own - others, axis=0)
        self.totals += np.roll(other.totals, own - others, axis=0)
        self.label_total += other.label_total
        if self.squares is None or other.squares is None:
            self.squares = None
        else:
            self.squares += other.squares

    def to_bytes(self) -> bytes:
        """Return the sums as bytes, to be merged elsewhere (:meth:`from_bytes`)."""
        stream = io.BytesIO()
        squares = np.zeros((0, 0)) if self.squares is None else self.squares
        np.savez(
            stream,
            magic=np.array([_MAGIC, self.release.hash, _described(self.labels)]),
            counts=self.counts,
            totals=self.totals,
            squares=squares,
            labels=np.array([self.label_total]),
        )
        return stream.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes, release: Release, labels: Any = None) -> PairSums:
        """Read sums written by :meth:`to_bytes` for the same release and labels."""
        sums = cls(release, labels)
        names = ["magic", "counts", "totals", "squares", "labels"]
        magic, counts, totals, squares, label_total = stored_arrays(data, names, "sums of pairs")
        kept = (0, 0) if sums.squares is None else sums.squares.shape
        expected = [sums.counts.shape, sums.totals.shape, kept, (1,)]
        arrays = [counts, totals, squares, label_total]
        if magic.tolist() != [_MAGIC, release.hash, _described(sums.labels)]:
            raise InvalidInput("these sums belong to another release, or to other labels")
        if [part.shape for part in arrays] != expected or counts.dtype.kind not in "iu":
            raise InvalidInput("these bytes are no sums of pairs: their sizes are wrong")
        if any(part.dtype != np.float64 for part in arrays[1:]):
            raise InvalidInput("these bytes are no sums of pairs: their types are wrong")
        finite = all(np.isfinite(part).all() for part in arrays)
        if not finite or (counts < 0).any() or counts.sum() > 1 << 48:
            raise InvalidInput("these bytes are no sums of pairs: their numbers are impossible")
        randomizer, reach = release.randomizer, 1.0
        if isinstance(randomizer, PrivUnit2):
            reach = randomizer.radius / randomizer.mean
        if (np.abs(totals) > (1 + 1e-9) * reach * counts[..., None]).any():
            raise InvalidInput("these bytes are no sums of pairs: their sums are too large")
        sums.label_total = float(label_total[0])
        sums.counts, sums.totals = counts.astype(np.int64), totals.astype(np.float64)
        sums.squares = None if sums.squares is None else squares.astype(np.float64)
        return sums


def stored_arrays(data: bytes, names: Sequence[str], kind: str) -> list[NDArray[Any]]:
    """Return the arrays of a file that ``np.savez`` wrote, in the order of their names.

    Nothing larger than the file is read: it has these arrays and no others, none compressed, and
    none is larger than its header and the archive say.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if sorted(info.filename for info in members) != sorted(f"{name}.npy" for name in names):
                raise ValueError(f"they do not hold the arrays {', '.join(names)}")
            for info in members:
                if info.compress_type != zipfile.ZIP_STORED or info.file_size > len(data):
                    raise ValueError("compressed arrays are not read")
                with archive.open(info) as member:
                    if np.lib.format.read_magic(member) != (1, 0):
                        raise ValueError("their version is not known")
                    shape, _, dtype = np.lib.format.read_array_header_1_0(member)
                if math.prod(shape) * max(1, dtype.itemsize) > info.file_size:
                    raise ValueError("an array is larger than the file")
        with np.load(io.BytesIO(data), allow_pickle=False) as stored:
            return [stored[name] for name in names]
    except _DAMAGED as error:
        raise InvalidInput(f"these bytes are no {kind}: {error}") from None


def folds_of(positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the fold of each position: every five reports one each, by turns without a period.

    The turns are those of Weyl's sequence, so an order in which people alternate does not matter.
    """
    turns = ((positions // FOLDS) * 0x9E3779B1 & 0xFFFFFFFF) >> 16
    folds: NDArray[np.int64] = (positions + turns) % FOLDS
    return folds


def pair_sums(release: Release, reports: Any, labels: Any = None, answers: Any = None) -> PairSums:
    """Return the sums of reports, or the sums if they are such already."""
    if isinstance(reports, PairSums):
        if labels is not None:
            raise InvalidInput("these sums include their labels: leave out labels")
        if reports.release != release:
            raise InvalidInput("these are sums over reports of another release")
        return reports
    if labels is None:
        if answers is not None:
            raise InvalidInput("answers describe public labels: pass labels, too")
        sums = PairSums(release)
        sums.add(reports)
        return sums
    convert = getattr(labels, "tolist", None) or getattr(labels, "to_pylist", None)
    if isinstance(labels, str | bytes) or not (convert or isinstance(labels, Iterable)):
        raise InvalidInput("labels are a sequence with one label per report")
    labels = convert() if convert else list(labels)
    sums = PairSums(release, _inferred(labels) if answers is None else answers)
    sums.add(reports, labels)
    return sums


def none_missing(labels: Any, name: str) -> list[Any]:
    """Return labels that nobody reports as a list; raise if any is missing."""
    given = listed(labels)
    if any(label is None for label in given):
        raise InvalidInput(
            f"some {name} are missing (None or NaN): leave out vectors and reports without one"
        )
    return given


def _described(labels: Asked | None) -> str:
    named = getattr(labels, "names", ())
    return repr((labels.name, labels.table, tuple(named))) if labels is not None else ""


def _inferred(labels: list[Any]) -> Asked:
    """Return the classes of public labels."""
    labels = none_missing(labels, "public labels")
    if labels and all(isinstance(label, str) for label in labels):
        return Classes(sorted(set(labels)))
    whole = all(isinstance(label, Integral) and not isinstance(label, bool) for label in labels)
    if labels and whole and min(labels) >= 0:
        return Classes(max(2, int(max(labels)) + 1))
    raise InvalidInput(
        "public labels are names or indices of classes; for numbers pass answers=Number(low, high)"
    )


def _labels(asked: Asked | None, labels: Iterator[Any], count: int) -> Vectors:
    taken = list(islice(labels, count))
    if len(taken) < count:
        raise InvalidInput("there are fewer labels than reports")
    assert asked is not None
    return asked.codes_of(none_missing(taken, "public labels"))
