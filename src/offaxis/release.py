"""A release: a fitted mechanism, frozen and published (OpenDP calls this a measurement).

    encoder  →  randomizer  →  report (bytes)  →  decoder

The first two run on the device that holds the vector, the last one anywhere. The guarantee comes
from the randomizer alone. No method here takes a seed: :func:`offaxis.simulate` is for research.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from offaxis import randomizers
from offaxis.decoding import Aggregate, Decoder, KnownError, Shares, aggregate
from offaxis.decoding.aggregate import known_error_of
from offaxis.decoding.pairs import LEARN_INSTEAD, PairDecoder, check_pairs
from offaxis.decoding.posterior import NeedsRandomizer, public_mean
from offaxis.decoding.shares import count_shares
from offaxis.encoding import AffineEncoder, Answers, Encoder, ModelEncoder, ShiftEncoder, questions
from offaxis.encoding.pairs import NOT_PASSED, Asked, PairEncoder, rows_of
from offaxis.encoding.questions import AnswersEncoder, joint_names, pair_names
from offaxis.errors import BiasedDecoder, InvalidInput
from offaxis.formats import reports as wire
from offaxis.privacy import wording
from offaxis.privacy.guarantee import Guarantee, Unit, assumptions_of
from offaxis.provenance import Provenance
from offaxis.randomizers import Randomizer
from offaxis.randomizers.base import Ball, Box, FiniteSet
from offaxis.randomizers.memoised import Memoised
from offaxis.randomizers.symbols import SymbolForm
from offaxis.sampling.entropy import Entropy
from offaxis.vectors import Vectors, as_batch, check_finite, vectors_alone

_MAKE: Final = "make reports with offaxis.client.Reporter or Device, which keep these answers"
BY_TREND: Final = "estimate with offaxis.learning.trend, which counts people and not reports"
_PROBES: Final = 8  # vectors on which a decoder is compared with the inverse of the encoder
_PRIVATIZE_ROWS, _DECODE_ROWS, _DECODE_NUMBERS = 4096, 4096, 1 << 20


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """A frozen release; create one with :func:`offaxis.fit` or :meth:`load`.

    Two releases are equal exactly when their hashes are.

    Examples
    --------
    >>> import offaxis
    >>> rng = np.random.default_rng(0)
    >>> head, public = rng.standard_normal((2, 6)), rng.standard_normal((1000, 6))
    >>> release = offaxis.fit(head, public, epsilon=5, mechanism="laplace")
    >>> report = release.privatize(rng.standard_normal(6))  # on the device, once per vector
    >>> release.decode(report).shape
    (6,)
    >>> reports = release.privatize(rng.standard_normal((400, 6)))
    >>> release.aggregate(reports).estimate.shape  # a mean over people, with standard errors
    (6,)
    >>> release.save("my.release")
    >>> offaxis.Release.load("my.release", expect=release.hash) == release
    True
    """

    encoder: Encoder
    randomizer: Randomizer
    decoder: Decoder
    provenance: Provenance
    unit: Unit = "item"
    mean_decoder: Decoder | None = None
    answers: Answers | None = None
    asked: tuple[Asked, ...] = ()

    def __post_init__(self) -> None:
        """Check that the parts fit together, and bind decoders that need the randomizer."""
        domain = self.randomizer.domain
        inner = domain.size if isinstance(domain, FiniteSet) else domain.dim
        sizes = [self.encoder.output_dim, self.decoder.input_dim]
        if self.mean_decoder is not None:
            sizes.append(self.mean_decoder.input_dim)
        if any(size != inner for size in sizes):
            raise InvalidInput(
                f"the parts do not fit: the encoder gives {sizes[0]} numbers, the randomizer takes "
                f"{inner}, the decoder {sizes[1]}"
            )
        self._check_answers(inner)
        object.__setattr__(self, "asked", tuple(self.asked))
        questions.check_asked(self.encoder, self.asked)
        if isinstance(self.encoder, PairEncoder):
            check_pairs(self.encoder, self.randomizer, self.decoder)
        for name in ("decoder", "mean_decoder"):
            part = getattr(self, name)
            if isinstance(part, NeedsRandomizer):
                object.__setattr__(self, name, part.bind(self.randomizer))
        _ = self.guarantee

    def _check_answers(self, symbols: int) -> None:
        """Check that the names of the answers belong to the symbols of the randomizer."""
        if self.answers is None:
            if isinstance(self.encoder, ModelEncoder):
                raise InvalidInput("a release of a model's answers must name them")
            return
        finite = isinstance(self.randomizer.domain, FiniteSet)
        if not finite or len(self.answers.kept) != symbols:
            raise InvalidInput(f"the answers have {len(self.answers.kept)} symbols, not {symbols}")
        if isinstance(self.encoder, ModelEncoder) and not np.array_equal(
            self.encoder.symbols, self.answers.symbols
        ):
            raise InvalidInput("the encoder and the answers have different symbols")

    @cached_property
    def guarantee(self) -> Guarantee:
        """The guarantee of one report, or of a sequence, computed from the parameters."""
        guarantee = replace(self.randomizer.guarantee, unit=self.unit)
        is_sequence, unit = isinstance(self.randomizer, Memoised), self.unit
        if isinstance(self.randomizer, Memoised):
            unit = "user" if self.randomizer.draws else "item"
        if self.unit != unit:
            raise InvalidInput(f"this release of sequences is per {unit}, not per {self.unit}")
        foreign = not randomizers.is_own(self.randomizer)
        stated = assumptions_of(self.randomizer.kind, unit, is_sequence, foreign=foreign)
        return replace(guarantee, assumptions=stated)

    @property
    def single_report_guarantee(self) -> Guarantee:
        """The guarantee of one report by itself: that of the release, unless it is of sequences."""
        if not isinstance(self.randomizer, Memoised):
            return self.guarantee
        return replace(self.guarantee, epsilon=self.randomizer.single_report_epsilon)

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the release's content, in hexadecimal: its identity."""
        from offaxis.formats.release_file import content_hash

        return content_hash(self)

    def __eq__(self, other: object) -> bool:
        """Compare by content."""
        return isinstance(other, Release) and self.hash == other.hash

    def __hash__(self) -> int:
        """Hash by content."""
        return hash(self.hash)

    def __repr__(self) -> str:
        """Return for example ``Release(laplace, ε = 5, pure, per item, dimension 64, 01c7…)``."""
        return (
            f"Release({randomizers.shown(self.randomizer)}, {self.guarantee}, per {self.unit}, "
            f"dimension {self.input_dim}, {self.hash[:8]}…)"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the content of a release file: complete, checked and frozen."""
        from offaxis.formats.release_file import from_bytes, to_bytes

        return from_bytes, (to_bytes(self),)

    @property
    def input_dim(self) -> int:
        """Dimension m of the vectors; for pairs, of their rows (:meth:`pairs`)."""
        return self.encoder.input_dim

    @cached_property
    def public_mean(self) -> Vectors:
        """The public mean, (m,), as far as the release knows it: for clients without a vector.

        It is the mean of the decoder's codewords or points; otherwise the encoder's centre, which
        is zero if nothing was fitted; otherwise a trained decoder's output for an observation of
        zero.
        """
        return public_mean(self.encoder, self.decoder)

    @property
    def summary(self) -> str:
        """What a release fitted to a goal is expected to keep, and the most that any report could.

        For people like the public vectors. Others: :func:`offaxis.evaluation.evaluate`.
        """
        return wording.utility(self.provenance.settings, self.provenance.model is not None)

    @property
    def report_size(self) -> int:
        """Bytes of one report, the same for every vector."""
        return wire.HEADER_SIZE + self.randomizer.payload_size

    @cached_property
    def supports_mean(self) -> bool:
        """Whether the mean of people's vectors can be estimated, without bias except for clipping.

        That is so if encoder and decoder are affine, the decoder inverts the encoder, and the
        randomizer is unbiased on a ball or a box (docs/proofs.md §20). Other reports, which name a
        symbol or leave out directions, for example, have a bias of unknown size.
        """
        decoder = self.mean_decoder or self.decoder
        affine = type(self.encoder) in (AffineEncoder, ShiftEncoder) and decoder.unbiased
        bounded = self.randomizer.unbiased and isinstance(self.randomizer.domain, Ball | Box)
        return affine and bounded and self._inverts(decoder)

    def _inverts(self, decoder: Decoder) -> bool:
        """Whether the decoder returns encoded vectors, compared on fixed random ones."""
        encoder: Any = self.encoder
        size = 1 + float(np.abs(encoder.centre).max())
        offsets = np.random.default_rng(0).standard_normal((_PROBES, self.input_dim))
        probes = encoder.centre + size * offsets
        error = np.abs(decoder.decode(encoder.encode(probes)) - probes)
        return bool((error <= 1e-6 * size * (1 + np.abs(offsets).max())).all())

    @property
    def unbiased_decoder(self) -> Decoder:
        """The decoder of means: the mean decoder, or the decoder if that is unbiased.

        Raises
        ------
        BiasedDecoder
            If the release supports no mean.
        """
        if self.supports_mean:
            return self.mean_decoder or self.decoder
        if isinstance(self.decoder, PairDecoder):
            raise BiasedDecoder(self.decoder.instead)
        if isinstance(self.randomizer, SymbolForm):
            raise BiasedDecoder(
                "a report of this release names a symbol, which does not determine a vector, so "
                "the bias of a mean would be unknown: estimate shares of symbols or answers with "
                "shares(), or fit a release for means with goal='means'"
            )
        raise BiasedDecoder(
            f"reports of this release ({self.randomizer.kind}) do not average to the vectors, so a "
            f"mean would have a bias of unknown size: decode single reports, or fit a release for "
            f"means with goal='means'"
        )

    @property
    def known_error(self) -> KnownError:
        """What is known in advance about the error of a mean of this release's reports."""
        return known_error_of(self.unbiased_decoder, self.randomizer)

    def pairs(self, vectors: Any, answers: Any = NOT_PASSED) -> Vectors:
        """Join vectors and private answers to the rows that reporters, devices and jobs take.

        Parameters
        ----------
        vectors : array (m,) or (n, m)
        answers
            One per vector: classes by name or index, numbers, or None where a person has none and
            the release allows it. For several answers, a mapping from their names to such lists, or
            a table with these columns.

        Examples
        --------
        >>> import offaxis
        >>> public = np.random.default_rng(0).standard_normal((500, 4))
        >>> release = offaxis.plan_learning(public, answers=["no", "yes"], epsilon=1).release
        >>> release.pairs(public[:2], ["yes", "no"]).shape
        (2, 5)
        """
        if isinstance(self.encoder, AnswersEncoder):
            return self.encoder.rows(vectors, self.asked, answers)
        dim = self.encoder.vector_dim if isinstance(self.encoder, PairEncoder) else self.input_dim
        batch, single = as_batch(vectors, dim)
        rows = rows_of(batch, self.asked, answers)
        return rows[0] if single else rows

    @vectors_alone
    def privatize(self, vectors: Any = None, *, answers: Any = NOT_PASSED) -> bytes | list[bytes]:
        """Turn private vectors into reports that may leave the device.

        Every call draws fresh randomness from the operating system and spends the budget again:
        call it once per vector.

        Parameters
        ----------
        vectors : array (m,) or (n, m), or a table with one vector per row
            NumPy, torch, JAX, pandas or Arrow. Any finite vectors: zero, tiny, huge.
        answers : optional
            The private answers, as in :meth:`pairs`, whose rows can be ``vectors`` instead. A
            release of answers alone (:func:`offaxis.learning.fit_answers`) takes no others.

        Returns
        -------
        bytes, or list of bytes for a batch

        Raises
        ------
        InvalidInput
            If the input is not finite, is empty or has another dimension. Nothing is released.
        """
        self.require_single_reports(_MAKE)
        self.require_model()
        given = answers is not None and answers is not NOT_PASSED
        if given or (self.asked and questions.lacks_answers(self.encoder, vectors)):
            vectors = self.pairs(vectors, answers)
        batch, single = as_batch(vectors, self.input_dim)
        if self.asked:
            questions.check_rows(self.encoder, batch)
        return self.reports_of(batch)[0] if single else self.reports_of(batch)

    def reports_of(self, batch: Vectors) -> list[bytes]:
        """Return the reports of any finite rows; :meth:`privatize` also checks codes of answers."""
        self.require_single_reports(_MAKE)
        entropy, payloads = Entropy(), list[bytes]()
        for start in range(0, len(batch), _PRIVATIZE_ROWS):
            # Copied, then checked again: the caller's array may change concurrently.
            part = np.array(batch[start : start + _PRIVATIZE_ROWS])
            check_finite(part, first_row=start)
            # A device that fails for some vectors reveals something about them, so NumPy's error
            # settings must not make encoding fail. The randomizer checks in integers.
            with np.errstate(all="ignore"):
                encoded = self.encode_private(part)
            payloads += self.randomizer.report(encoded, entropy)
        return wire.frame(payloads, self.randomizer.wire_id, self.hash)

    def privatize_answer(self, answers: Any) -> bytes | list[bytes]:
        """Turn private answers into reports, without a vector or a model.

        For releases of a model's answer, on devices that know it; spends as :meth:`privatize` does.

        Parameters
        ----------
        answers : int or str, or a sequence of these
            Indices or names of answers (``release.answers.names``).

        Raises
        ------
        InvalidInput
            If the release reports no answers, or there is no such answer. Nothing is released.

        Examples
        --------
        >>> import offaxis
        >>> public = np.random.default_rng(0).standard_normal((500, 3))
        >>> release = offaxis.fit(np.eye(3), public, epsilon=2, mechanism="class-response")
        >>> len(release.privatize_answer(2)) == release.report_size
        True
        """
        self.require_single_reports(_MAKE)
        if self.answers is None:
            raise InvalidInput(
                f"this release reports a vector with the {self.randomizer.kind} randomizer: pass "
                f"the vector to privatize(), or fit a release with mechanism='class-response'"
            )
        symbols, single = self.answers.symbols_of(answers)
        if not symbols:
            raise InvalidInput("there are no answers to report")
        payloads = self.randomizer.report(np.array(symbols, dtype=np.int64), Entropy())
        framed = wire.frame(payloads, self.randomizer.wire_id, self.hash)
        return framed[0] if single else framed

    def require_single_reports(self, instead: str) -> None:
        """Raise InvalidInput, with what to do instead, for a release of sequences."""
        if isinstance(self.randomizer, Memoised):
            raise InvalidInput(
                f"this release is for sequences, in which a person reports again and again from "
                f"few permanent answers: {instead}"
            )

    def encode_private(self, vectors: Vectors) -> NDArray[Any]:
        """Encode private vectors (n, m); a model outside the release is called row by row."""
        if isinstance(self.encoder, ModelEncoder):
            return self.encoder.encode_each(vectors)
        return self.encoder.encode(vectors)

    def require_model(self) -> None:
        """Raise :class:`~offaxis.errors.ModelNeeded` if the release needs a model and has none."""
        if isinstance(self.encoder, ModelEncoder):
            self.encoder.require_model()

    def with_model(self, model: Any) -> Release:
        """Return the release with the public model that its file does not contain.

        The model must have the identity that the release records, and give every codeword of the
        release the answer that the codeword stands for.

        Parameters
        ----------
        model : public model
            As in :func:`offaxis.fit`.

        Raises
        ------
        InvalidInput
            If it is another model, or the release needs none.

        Examples
        --------
        >>> import offaxis
        >>> def model(Z):
        ...     return np.stack([np.sin(Z[:, 0]), np.cos(Z[:, 1])], axis=1)
        >>> public = np.random.default_rng(0).standard_normal((500, 3))
        >>> offaxis.fit(model, public, epsilon=2).save("answers.release")
        >>> release = offaxis.load("answers.release", model=model)
        >>> len(release.privatize([0.1, 0.2, 0.3])) == release.report_size
        True
        """
        encoder = self.encoder
        if not isinstance(encoder, ModelEncoder):
            raise InvalidInput("this release contains all it needs: load it without a model")
        codewords = getattr(self.decoder, "codewords", None)
        attached = encoder.attach_model(model, self.provenance.model, codewords)
        return replace(self, encoder=attached)

    def observe(self, reports: Iterable[bytes], *, first: int = 0) -> NDArray[Any]:
        """Read reports strictly and return observations; ``first`` is for error messages."""
        return self.randomizer.read(self._payloads(reports, first=first))

    def _payloads(self, reports: Iterable[bytes], *, first: int = 0) -> list[bytes]:
        size = self.randomizer.payload_size
        return wire.unframe(reports, self.randomizer.wire_id, self.hash, size, first=first)

    def observe_in_batches(self, reports: Iterable[bytes]) -> Iterator[NDArray[Any]]:
        """Yield observations, in memory that does not grow with the number of reports."""
        yield from self._in_batches(self.observe, reports, self.decoder.input_dim)

    def decode(self, reports: bytes | Iterable[bytes]) -> Vectors:
        """Decode one report to a vector (m,), or several to (n, m); see also :meth:`shares`."""
        decoded = self.decoder.decode(self.observe(wire.as_iterable(reports)))
        return decoded.reshape(-1) if isinstance(reports, bytes) else decoded

    def decode_in_batches(
        self, reports: Iterable[bytes], decoder: Decoder | None = None
    ) -> Iterator[Vectors]:
        """Yield decoded vectors, in memory that does not grow with the number of reports."""
        decoder = self.decoder if decoder is None else decoder
        widest = max(decoder.input_dim, decoder.output_dim)
        yield from map(decoder.decode, self._in_batches(self.observe, reports, widest))

    def _in_batches(self, read: Any, reports: Iterable[bytes], widest: int = 1) -> Iterator[Any]:
        """Yield what is read; ``widest`` is the number of values per report in memory."""
        source = iter(wire.as_iterable(reports))
        rows = min(_DECODE_ROWS, max(1, _DECODE_NUMBERS // widest))
        seen = 0
        while (batch := list(islice(source, rows))) or not seen:
            yield read(batch, first=seen)
            seen += len(batch)

    def decode_mean(self, reports: Iterable[bytes]) -> Vectors:
        """Estimate the mean of the vectors of all reporting people, (m,).

        It is an unbiased estimate of the mean of the *clipped* vectors, up to a lattice step
        (:attr:`known_error`; :func:`offaxis.evaluation.clipping_bias` estimates the bias on public
        vectors). A release reshaped to a task estimates the mean accurately along the task's
        directions and with much noise along the others.

        Raises
        ------
        BiasedDecoder
            If the release supports no mean.
        """
        self.require_single_reports(BY_TREND)
        decoder = self.unbiased_decoder
        mean, seen = np.zeros(decoder.output_dim), 0
        for batch in self.decode_in_batches(reports, decoder):
            seen += len(batch)
            mean += (batch.mean(axis=0) - mean) * (len(batch) / seen)
        return mean

    def aggregate(
        self,
        reports: Iterable[bytes],
        weights: Iterable[float] | None = None,
        groups: Iterable[Hashable] | None = None,
    ) -> Aggregate:
        """Estimate means like :meth:`decode_mean`, with standard errors, optionally by group.

        Intervals need a bound on how far vectors are clipped (:meth:`Aggregate.interval`).
        Parameters
        ----------
        reports : iterable of bytes
            One per person, read once: the standard errors assume independent reports.
        weights : iterable of positive numbers, optional
            One per report, chosen without looking at the reports.
        groups : iterable of labels, optional
            One per report. A label determines where a report is counted and is *not* private: it
            must be public anyway, or protected separately.

        Returns
        -------
        Aggregate
        """
        self.require_single_reports(BY_TREND)
        batches = self.decode_in_batches(reports, self.unbiased_decoder)
        return replace(aggregate(batches, weights, groups), known_error=self.known_error)

    def shares(self, reports: Iterable[bytes], groups: Iterable[Hashable] | None = None) -> Shares:
        """Estimate the share of each symbol or answer among the people who reported.

        For releases of answers (:func:`offaxis.learning.fit_answers`) and others whose reports name
        symbols ("class-response", "scalar-response", "response", "subset"). The shares are
        unbiased, and their intervals hold for every population. Do not count decoded answers: most
        name another answer than the person's, so the counts are biased towards equal shares.

        Parameters
        ----------
        reports : iterable of bytes
            One per person.
        groups : iterable of labels, optional
            One per report, as in :meth:`aggregate`. Labels are *not* private.

        Returns
        -------
        Shares

        Examples
        --------
        >>> import offaxis
        >>> rng = np.random.default_rng(0)
        >>> public = rng.standard_normal((500, 3))
        >>> release = offaxis.fit(np.eye(3), public, epsilon=2, mechanism="class-response")
        >>> people = rng.standard_normal((2000, 3)) + [1.0, 0.0, 0.0]
        >>> shares = release.shares(release.privatize(people))
        >>> shares.estimate.shape, round(float(shares.estimate.sum()), 9)
        ((3,), 1.0)
        >>> low, high = shares.interval(0.95)  # covers all three shares at once
        >>> bool((shares.projected() >= 0).all())  # for display
        True
        """
        self.require_single_reports(BY_TREND)
        randomizer = self.randomizer
        if not isinstance(randomizer, SymbolForm):
            other = "fit a release with mechanism='class-response' for shares of answers"
            instead = f"use aggregate() for means, or {other}"
            raise InvalidInput(
                f"reports of the {randomizer.kind} randomizer hold vectors, not symbols, so they "
                f"have no shares; {LEARN_INSTEAD if self.asked else instead}"
            )
        parts = self._in_batches(self._payloads, reports)
        return count_shares(parts, randomizer, self.symbol_names or (), groups)

    @property
    def symbol_names(self) -> tuple[str, ...] | None:
        """What each symbol of a release of answers stands for; None for other releases.

        A symbol may stand for several answers if some are rare. If the release holds the model, a
        rare answer is reported as whichever kept answer has the larger output, so that every symbol
        may stand for it.
        """
        answers = self.answers
        if isinstance(self.encoder, PairEncoder):
            return pair_names(self.encoder, self.asked)
        if isinstance(self.encoder, AnswersEncoder):
            return joint_names(self.asked)
        if answers is None or len(answers.kept) == len(answers.names):
            return None if answers is None else answers.names
        if isinstance(self.encoder, ModelEncoder):
            return answers.symbol_names
        return tuple(f"{answers.names[kept]} or a rare answer" for kept in answers.kept)

    def with_decoder(self, decoder: Decoder) -> Release:
        """Return the release with another decoder, recorded in its provenance.

        Means are decoded as before: by the mean decoder, or by the old decoder if it was unbiased.

        Examples
        --------
        >>> import offaxis
        >>> from offaxis.mechanisms import shrink
        >>> public = np.random.default_rng(0).standard_normal((200, 3))
        >>> release = offaxis.fit(None, public, epsilon=1, goal="means")
        >>> shrunk = release.with_decoder(shrink(release, public))
        >>> shrunk.decoder.kind, shrunk.supports_mean
        ('shrinkage', True)
        """
        mean_decoder = self.unbiased_decoder if self.supports_mean else self.mean_decoder
        settings = {**self.provenance.settings, "decoder": decoder.kind}
        return replace(
            self,
            decoder=decoder,
            mean_decoder=mean_decoder,
            provenance=replace(self.provenance, settings=settings),
        )

    def save(self, path: str | Path) -> None:
        """Write the release to one file, atomically."""
        from offaxis.formats.release_file import write

        write(self, path)

    @classmethod
    def load(cls, path: str | Path, *, expect: str | None = None, model: Any = None) -> Release:
        """Read a release file strictly.

        Parameters
        ----------
        path : path of the file
        expect : str, optional
            The hash that the release must have.
        model : optional
            The public model, if the file does not contain it (:meth:`with_model`).
        """
        from offaxis.formats.release_file import read

        release = read(path, expect=expect)
        return release if model is None else release.with_model(model)
