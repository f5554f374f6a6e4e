"""A release: a fitted mechanism, frozen and published (OpenDP calls this a measurement).

    encoder  →  randomizer  →  report (bytes)  →  decoder

The first two run on the device that holds the vector, the last one anywhere. The guarantee comes
from the randomizer alone. No method here takes a seed: :func:`offaxis.simulate` is for research.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from offaxis.decoding import Aggregate, Decoder, aggregate
from offaxis.decoding.posterior import NeedsRandomizer, public_mean
from offaxis.encoding import Encoder
from offaxis.errors import BiasedDecoder, InvalidInput, InvalidReport
from offaxis.formats import reports as wire
from offaxis.geometry.models import ModelIdentity
from offaxis.geometry.public import PublicIdentity
from offaxis.privacy.guarantee import ALWAYS, PER_UNIT, Guarantee, Unit
from offaxis.randomizers import Randomizer
from offaxis.randomizers.base import FiniteSet
from offaxis.sampling.entropy import Entropy
from offaxis.vectors import Vectors, as_batch, check_finite, vectors_alone

LONGEST_STATEMENT: Final = 10_000

_PRIVATIZE_ROWS: Final = 4096
_DECODE_ROWS: Final = 4096
_DECODE_NUMBERS: Final = 1 << 20


@dataclass(frozen=True)
class Provenance:
    """The public inputs of a release, recorded so that others can check them.

    Attributes
    ----------
    model : ModelIdentity or None
        The public model; None if the release was fitted without one.
    public : PublicIdentity
        Number, dimension and hash of the public vectors.
    settings : dict
        The settings of the fit.
    statement : str
        The publisher's statement on where the public data came from.
    """

    model: ModelIdentity | None
    public: PublicIdentity
    settings: dict[str, str | float] = field(default_factory=dict)
    statement: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """A frozen release; create one with :func:`offaxis.fit` or :meth:`load`.

    Two releases are equal exactly when their hashes are.

    Examples
    --------
    >>> import offaxis
    >>> rng = np.random.default_rng(0)
    >>> head, public = rng.standard_normal((2, 6)), rng.standard_normal((1000, 6))
    >>> release = offaxis.fit(head, public, epsilon=5)
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
        for name in ("decoder", "mean_decoder"):
            part = getattr(self, name)
            if isinstance(part, NeedsRandomizer):
                object.__setattr__(self, name, part.bind(self.randomizer))
        _ = self.guarantee

    @cached_property
    def guarantee(self) -> Guarantee:
        """The guarantee of one report, computed from the randomizer's parameters."""
        guarantee = replace(self.randomizer.guarantee, unit=self.unit)
        return replace(guarantee, assumptions=(*ALWAYS, PER_UNIT[guarantee.unit]))

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
            f"Release({self.randomizer.kind}, {self.guarantee}, per {self.unit}, "
            f"dimension {self.input_dim}, {self.hash[:8]}…)"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the content of a release file: complete, checked and frozen."""
        from offaxis.formats.release_file import from_bytes, to_bytes

        return from_bytes, (to_bytes(self),)

    @property
    def input_dim(self) -> int:
        """Dimension m of the vectors."""
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
    def report_size(self) -> int:
        """Bytes of one report, the same for every vector."""
        return wire.HEADER_SIZE + self.randomizer.payload_size

    @property
    def supports_mean(self) -> bool:
        """Whether a mean over people can be decoded without bias."""
        return (self.mean_decoder or self.decoder).unbiased and self.randomizer.unbiased

    @property
    def unbiased_decoder(self) -> Decoder:
        """The decoder of means: the mean decoder, or the decoder if that is unbiased.

        Raises
        ------
        BiasedDecoder
            If the release supports no mean.
        """
        if not self.supports_mean:
            part = "decoder" if self.randomizer.unbiased else f"{self.randomizer.kind} randomizer"
            raise BiasedDecoder(
                f"the {part} of this release is biased, so a mean of its reports would not tend to "
                f"the mean of the vectors; decode single reports, or fit a release for means with "
                f"mechanism='laplace', 'gaussian' or 'privunit2-mean' (and reshaping='none' for "
                f"means of the vectors themselves)"
            )
        return self.mean_decoder or self.decoder

    @property
    def mean_rank(self) -> int:
        """Number of directions along which a mean depends on the reports.

        Along the others it is the public mean. It is m unless the decoder of means takes fewer
        numbers.
        """
        decoder = self.unbiased_decoder
        if isinstance(self.randomizer.domain, FiniteSet):
            return decoder.output_dim
        return min(decoder.input_dim, decoder.output_dim)

    @vectors_alone
    def privatize(self, vectors: Any) -> bytes | list[bytes]:
        """Turn private vectors into reports that may leave the device.

        Every call draws fresh randomness from the operating system and spends the budget again:
        call it once per vector.

        Parameters
        ----------
        vectors : array (m,) or (n, m), or a table with one vector per row
            NumPy, torch, JAX, pandas or Arrow. Any finite vectors; zero, tiny and huge ones are
            valid.

        Returns
        -------
        bytes, or list of bytes for a batch

        Raises
        ------
        InvalidInput
            If the input is not finite, is empty or has another dimension. Nothing is released.
        """
        batch, single = as_batch(vectors, self.input_dim)
        entropy = Entropy()
        payloads: list[bytes] = []
        for start in range(0, len(batch), _PRIVATIZE_ROWS):
            # Copied, then checked again: the caller's array may change concurrently.
            part = np.array(batch[start : start + _PRIVATIZE_ROWS])
            check_finite(part, first_row=start)
            # A device that fails for some vectors reveals something about them, so NumPy's
            # floating-point error settings must not make encoding fail. The randomizer checks in
            # integers.
            with np.errstate(all="ignore"):
                encoded = self.encoder.encode(part)
            payloads += self.randomizer.report(encoded, entropy)
        framed = wire.frame(payloads, self.randomizer.wire_id, self.hash)
        return framed[0] if single else framed

    def observe(self, reports: Iterable[bytes], *, first: int = 0) -> NDArray[Any]:
        """Read reports strictly and return the observations of the randomizer, not decoded.

        ``first`` is the index of the first report in a larger whole, for error messages.
        """
        randomizer = self.randomizer
        size = randomizer.payload_size
        payloads = wire.unframe(reports, randomizer.wire_id, self.hash, size, first=first)
        return randomizer.read(payloads)

    def decode(self, reports: bytes | Iterable[bytes]) -> Vectors:
        """Decode one report to a vector (m,), or several to vectors (n, m)."""
        decoded = self.decoder.decode(self.observe(_as_iterable(reports)))
        return decoded.reshape(-1) if isinstance(reports, bytes) else decoded

    def decode_in_batches(
        self, reports: Iterable[bytes], decoder: Decoder | None = None
    ) -> Iterator[Vectors]:
        """Yield decoded vectors, in memory that does not grow with the number of reports."""
        decoder = self.decoder if decoder is None else decoder
        source = iter(_as_iterable(reports))
        widest = max(decoder.input_dim, decoder.output_dim)
        rows = min(_DECODE_ROWS, max(1, _DECODE_NUMBERS // widest))
        seen = 0
        while (batch := list(islice(source, rows))) or not seen:
            yield decoder.decode(self.observe(batch, first=seen))
            seen += len(batch)

    def decode_mean(self, reports: Iterable[bytes]) -> Vectors:
        """Estimate the mean of the vectors of all reporting people, (m,).

        Uses the mean decoder, or the decoder if that is unbiased; raises otherwise. The bias from
        clipping and the lattice is not corrected, and a codebook gives the mean of the codewords
        (:func:`offaxis.evaluation.clipping_bias` estimates both on public vectors). A reshaped
        release is fitted to its task: the mean is accurate along the task's directions and very
        noisy along the others. For means of the vectors themselves fit with ``reshaping="none"``.

        Raises
        ------
        BiasedDecoder
            If the release supports no mean.
        """
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

        Iterators are read once, in memory that grows with the number of groups only.

        Parameters
        ----------
        reports : iterable of bytes
            From different people: the standard errors assume independent reports.
        weights : iterable of positive numbers, optional
            One per report, chosen without looking at the reports.
        groups : iterable of labels, optional
            One per report. A label determines where a report is counted and is *not* private: it
            must be public anyway, or protected separately.

        Returns
        -------
        Aggregate
        """
        batches = self.decode_in_batches(reports, self.unbiased_decoder)
        return aggregate(batches, weights, groups)

    def with_decoder(self, decoder: Decoder) -> Release:
        """Return the release with another decoder, recorded in its provenance.

        Means are decoded as before: by the mean decoder, or by the old decoder if it was unbiased.

        Examples
        --------
        >>> import offaxis
        >>> from offaxis.mechanisms import shrink
        >>> public = np.random.default_rng(0).standard_normal((200, 3))
        >>> release = offaxis.fit(None, public, epsilon=1, reshaping="none")
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
    def load(cls, path: str | Path, *, expect: str | None = None) -> Release:
        """Read a release file strictly; ``expect`` is the hash it must have."""
        from offaxis.formats.release_file import read

        return read(path, expect=expect)


def _as_iterable(reports: Any) -> Iterable[bytes]:
    """Return one or several reports as an iterable; reject anything else."""
    if isinstance(reports, bytes):
        return [reports]
    is_array = isinstance(reports, np.ndarray | bytearray | memoryview | str)
    if is_array or not isinstance(reports, Iterable):
        raise InvalidReport(
            f"reports must be bytes or a list of bytes, got {type(reports).__name__}; simulated "
            f"arrays are not reports, only privatize() makes them"
        )
    return reports
