"""The two faces every randomizer has, and what it declares about itself."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, ClassVar, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from offaxis.errors import InvalidInput
from offaxis.privacy.guarantee import Guarantee, decimal
from offaxis.randomizers.domain import Domain
from offaxis.sampling.draws import Array, Rng
from offaxis.sampling.entropy import Entropy
from offaxis.sampling.record_entropy import RealEntropy, RecordEntropy
from offaxis.vectors import as_batch

CHOOSE: Final = -1
"""In place of an integer parameter: the best one for the others."""

Observations = NDArray[Any]
"""What the server reads off payloads: one row of numbers, or one symbol, a report."""


class Randomizer(Protocol):
    """A local randomizer: a small frozen object that carries its own guarantee.

    The guarantee belongs to the randomizer alone. It accepts any finite input, brings it into its
    domain itself, and holds whatever public map stands before or after it.

    Examples
    --------
    >>> from offaxis.randomizers import Laplace, Randomizer
    >>> from offaxis.sampling.entropy import Entropy
    >>> randomizer: Randomizer = Laplace(dim=2, radius=1.0, epsilon=2)
    >>> str(randomizer.guarantee), randomizer.unbiased, randomizer.domain
    ('ε = 2, pure', True, Ball(dim=2, radius=1.0, order=1))
    >>> W = np.array([[0.5, 0.25], [9.0, 9.0]])  # the second is clipped into the domain
    >>> payloads = randomizer.report(W, Entropy())  # the real thing: no seed can reach it
    >>> [len(payload) for payload in payloads] == [randomizer.payload_size] * 2
    True
    >>> randomizer.read(payloads).shape
    (2, 2)
    >>> randomizer.simulate(W, np.random.default_rng(0)).shape  # for research, never a report
    (2, 2)
    """

    kind: ClassVar[str]
    wire_id: ClassVar[int]

    @property
    def domain(self) -> Domain:
        """The set between any two elements of which the guarantee holds."""
        ...

    @property
    def guarantee(self) -> Guarantee:
        """What one report promises, computed from the parameters."""
        ...

    @property
    def unbiased(self) -> bool:
        """Whether E[observation | w] is w for every w in the ball of the domain's radius."""
        ...

    @property
    def payload_size(self) -> int:
        """Bytes of one payload, the same for every input."""
        ...

    def simulate(self, W: Array, rng: Rng) -> Any:
        """Draw observations in fast floating point, for research; never a report.

        Arrays of any library, drawn by a generator of the same one (sampling/draws.py).
        """
        ...

    def report(self, W: NDArray[Any], entropy: RealEntropy) -> list[bytes]:
        """Draw one exact payload a row, from the operating system's randomness."""
        ...

    def read(self, payloads: list[bytes]) -> Observations:
        """Turn payloads into observations, strictly: anything malformed is an error."""
        ...

    def log_density(self, V: Observations, W: NDArray[Any]) -> NDArray[np.float64]:
        """Return log Pr[observation V_i | input W_i], up to a constant independent of W."""
        ...

    def expected_squared_error(self) -> float:
        """Return E‖observation − w‖² for w on the boundary of the domain, analytically."""
        ...

    def worst_pair(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return two vectors of the domain that the reports tell apart as well as any two."""
        ...

    def log_likelihood(self, payloads: list[bytes], W: NDArray[Any]) -> NDArray[np.float64]:
        """Return log Pr[payload i | row i of W], up to a constant independent of W.

        Of the bytes themselves, not of the observation read off them: what an auditor who knows
        the code would compute.
        """
        ...


def check_budget(epsilon: Fraction, largest: int, kind: str) -> None:
    """Refuse a budget whose exact probabilities would take for ever, and protect nobody."""
    if epsilon > largest:
        raise InvalidInput(
            f"epsilon must be at most {largest} for {kind}, got epsilon={decimal(epsilon)}"
        )


def check_delta(delta: Any, name: str, *, needed: bool) -> None:
    """Refuse a missing δ, and one that would be of no use."""
    if needed and delta is None:
        raise InvalidInput(
            f"{name!r} needs delta, for example delta=1e-5; for a pure guarantee use 'laplace'"
        )
    if not needed and delta is not None:
        raise InvalidInput(f"{name!r} is pure: it takes no delta, got delta={delta!r}")


def checked(W: NDArray[Any], dim: int, *sources: RealEntropy) -> NDArray[np.float64]:
    """Return a copy of the input of the right width, in rows, after looking at the entropy.

    What is checked is what is released: nobody can change the copy afterwards.
    """
    for entropy in sources:
        require_entropy(entropy)
    batch, _ = as_batch(np.array(W, order="C"), dim)
    return batch


def require_entropy(entropy: RealEntropy) -> None:
    """Refuse any stand-in for the operating system's randomness on the release path."""
    if type(entropy) is not Entropy and type(entropy) is not RecordEntropy:
        raise TypeError(
            f"a report is drawn from offaxis.sampling.entropy.Entropy only, or in bulk jobs from "
            f"a RecordEntropy, got {type(entropy).__name__}; for seeded research use simulate()"
        )
