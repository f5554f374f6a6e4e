"""A release: the frozen, published recipe by which private vectors become reports.

    encoder  →  randomizer  →  report (bytes)  →  decoder

The first two run on the device that holds the vector, the last one anywhere. The guarantee comes
from the randomizer alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from offaxis.decoding import Aggregate, Decoder, aggregate
from offaxis.decoding.posterior import NeedsLaw
from offaxis.decoding.public_mean import public_mean
from offaxis.encoding import Encoder
from offaxis.errors import BiasedDecoder, InvalidInput
from offaxis.formats import reports as wire
from offaxis.privacy.assumptions import ALWAYS, PER_UNIT
from offaxis.privacy.guarantee import Guarantee, Unit
from offaxis.provenance import Provenance
from offaxis.randomizers import Randomizer
from offaxis.randomizers.domain import FiniteSet
from offaxis.reading import decoded_in_parts, iterable, mean_of, observe
from offaxis.sampling.draws import Rng
from offaxis.sampling.entropy import Entropy
from offaxis.simulating import simulate
from offaxis.vectors import Vectors, as_batch, check_finite, vectors_alone

_PRIVATIZE_ROWS = 4096


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """A frozen release; make one with :func:`offaxis.fit` or :meth:`load`.

    Two releases are equal exactly when their hashes are.

    Examples
    --------
    >>> import offaxis
    >>> rng = np.random.default_rng(0)
    >>> head, public = rng.standard_normal((2, 6)), rng.standard_normal((1000, 6))
    >>> release = offaxis.fit(head, public, epsilon=5)
    >>> release.input_dim, release.report_size, release.gives_means
    (6, 30, True)
    >>> report = release.privatize(rng.standard_normal(6))  # on the device, once a vector
    >>> release.decode(report).shape, release.observe([report]).shape
    ((6,), (1, 6))
    >>> crowd = release.privatize(rng.standard_normal((400, 6)))
    >>> release.decode_mean(crowd).shape, release.aggregate(crowd).standard_error.shape
    ((6,), (6,))
    >>> release.simulate(public, rng).shape  # research: protects nobody, and is no report
    (1000, 6)
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
        """Check that the parts fit each other, and tell decoders that need it the law."""
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
            if isinstance(part, NeedsLaw):
                object.__setattr__(self, name, part.bind(self.randomizer))
        _ = self.guarantee

    @cached_property
    def guarantee(self) -> Guarantee:
        """What one report promises, computed from the randomizer's parameters."""
        promised = replace(self.randomizer.guarantee, unit=self.unit)
        return replace(promised, assumptions=(*ALWAYS, PER_UNIT[promised.unit]))

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the release's content, in hexadecimal: its identity."""
        from offaxis.formats.artifact import content_hash

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
        """Travel to other processes as a release file does: whole, checked and frozen."""
        from offaxis.formats.artifact import from_bytes, to_bytes

        return from_bytes, (to_bytes(self),)

    @property
    def input_dim(self) -> int:
        """Dimension m of the vectors this release takes."""
        return self.encoder.input_dim

    @cached_property
    def public_mean(self) -> Vectors:
        """The public mean, (m,), as well as the release knows it: for who has no vector to report.

        The mean of the decoder's codewords or points; else the encoder's centre, which is zero
        where nothing was fitted; else what a trained decoder makes of an observation of zero.
        """
        return public_mean(self.encoder, self.decoder)

    @property
    def report_size(self) -> int:
        """Bytes of one report, the same for every vector."""
        return wire.HEADER_SIZE + self.randomizer.payload_size

    @property
    def gives_means(self) -> bool:
        """Whether a mean over people can be decoded without bias."""
        return (self.mean_decoder or self.decoder).unbiased and self.randomizer.unbiased

    @property
    def decoder_of_means(self) -> Decoder:
        """The mean decoder, or the decoder if that is unbiased; refused otherwise."""
        if not self.gives_means:
            part = "decoder" if self.randomizer.unbiased else f"{self.randomizer.kind} randomizer"
            raise BiasedDecoder(
                f"the {part} of this release is biased, so a mean of its reports would not tend to "
                f"the mean of the vectors; decode single reports, or fit a release for means with "
                f"randomizer='laplace', 'gaussian' or 'privunit2-mean' (and reshaping='none' for "
                f"means of the vectors themselves)"
            )
        return self.mean_decoder or self.decoder

    @property
    def directions_of_means(self) -> int:
        """Along how many directions a mean tells of people; along the others it is the public one.

        All m, but for a decoder of means that maps fewer numbers back.
        """
        decoder = self.decoder_of_means
        if isinstance(self.randomizer.domain, FiniteSet):
            return decoder.output_dim
        return min(decoder.input_dim, decoder.output_dim)

    @vectors_alone
    def privatize(self, vectors: Any) -> bytes | list[bytes]:
        """Turn private vectors into reports that may leave the device.

        Every call draws fresh randomness from the operating system and spends the budget again:
        call it once a vector.

        Parameters
        ----------
        vectors : array (m,) or (n, m), or a table with a vector a row
            NumPy, torch, JAX, pandas or Arrow. Any finite vectors; zero, tiny and huge ones are
            valid.

        Returns
        -------
        bytes, or list of bytes for a batch

        Raises
        ------
        InvalidInput
            If the input is not finite, empty or of another dimension. Nothing is released then.
        """
        batch, single = as_batch(vectors, self.input_dim)
        entropy = Entropy()
        payloads: list[bytes] = []
        for start in range(0, len(batch), _PRIVATIZE_ROWS):
            # Copied, then checked again: the caller's array may change meanwhile.
            part = np.array(batch[start : start + _PRIVATIZE_ROWS])
            check_finite(part, first_row=start)
            # A device that fails for some vectors tells something, so no setting of NumPy's
            # floating-point errors may make encoding fail; the randomizer checks in integers.
            with np.errstate(all="ignore"):
                encoded = self.encoder.encode(part)
            payloads += self.randomizer.report(encoded, entropy)
        framed = wire.frame(payloads, self.randomizer.wire_id, self.hash)
        return framed[0] if single else framed

    def observe(self, reports: Iterable[bytes]) -> NDArray[Any]:
        """Read reports strictly and return what the randomizer let through, undecoded."""
        return observe(reports, self.randomizer, self.hash)

    def _decoded(self, reports: Any, decoder: Decoder) -> Iterator[Vectors]:
        return decoded_in_parts(reports, self.randomizer, self.hash, decoder)

    def decode(self, reports: bytes | Iterable[bytes]) -> Vectors:
        """Turn one report into a vector (m,), or several into vectors (n, m)."""
        decoded = self.decoder.decode(self.observe(iterable(reports)))
        return decoded.reshape(-1) if isinstance(reports, bytes) else decoded

    def decode_mean(self, reports: Iterable[bytes]) -> Vectors:
        """Estimate the mean of the reporting people's vectors, (m,).

        Uses the release's mean decoder, or its decoder if that is unbiased; refuses otherwise.
        What clipping and the lattice take away is not given back, and a codebook gives the mean of
        the codewords (:func:`offaxis.evaluation.clipping_bias` estimates both on public vectors).
        A reshaped release is made for its task: the mean is accurate along the task's directions
        and very noisy across them. For means of the vectors themselves fit with
        ``reshaping="none"``.
        """
        decoder = self.decoder_of_means
        return mean_of(self._decoded(reports, decoder), decoder.output_dim)

    def aggregate(
        self,
        reports: Iterable[bytes],
        weights: Iterable[float] | None = None,
        groups: Iterable[Hashable] | None = None,
    ) -> Aggregate:
        """Estimate means as :meth:`decode_mean` does, with standard errors, by group if asked.

        Reads iterators once, in memory that grows with the groups only.

        Parameters
        ----------
        reports : iterable of bytes
            From different people: the standard errors take reports for independent.
        weights : iterable of positive numbers, optional
            One a report, decided without looking at the reports.
        groups : iterable of labels, optional
            One a report. A label tells where a report is counted and is *not* private: it must
            be public anyway or protected on its own.

        Returns
        -------
        Aggregate
        """
        return aggregate(self._decoded(reports, self.decoder_of_means), weights, groups)

    @overload
    def simulate(self, vectors: Vectors, rng: Rng) -> Vectors: ...

    @overload
    def simulate(self, vectors: Any, rng: Rng) -> Any: ...

    def simulate(self, vectors: Any, rng: Rng) -> Any:
        """Return decoded vectors as reports would give them, in fast seeded floating point.

        For research and utility estimates only: the result protects nobody and is not a report.

        Parameters
        ----------
        vectors : array or table of any kind, as in :meth:`privatize`
        rng : numpy.random.Generator, torch.Generator or JAX key
            A NumPy one computes in NumPy, on all cores; one of the vectors' own library computes
            where they lie.

        Returns
        -------
        The kind of the vectors, on their device, in their floating dtype; see docs/arrays.md.
        """
        return simulate(self, vectors, rng)

    def save(self, path: str | Path) -> None:
        """Write the release to one file, atomically."""
        from offaxis.formats.artifact import write

        write(self, path)

    @classmethod
    def load(cls, path: str | Path, *, expect: str | None = None) -> Release:
        """Read a release file strictly; ``expect`` pins the hash it must have."""
        from offaxis.formats.artifact import read

        return read(path, expect=expect)
