"""The errors that offaxis raises. Messages contain the wrong value and the fix."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

__all__ = [
    "BiasedDecoder",
    "BudgetExceeded",
    "EntropyFailure",
    "InvalidDocument",
    "InvalidInput",
    "InvalidRelease",
    "InvalidReport",
    "MissingExtra",
    "ModelNeeded",
    "OffaxisError",
    "RoundRefused",
    "Unreachable",
    "UnsupportedModel",
]


class OffaxisError(Exception):
    """Base class of all errors that offaxis raises on purpose.

    Examples
    --------
    >>> import offaxis
    >>> try:
    ...     offaxis.load("nowhere.release")
    ... except offaxis.OffaxisError as error:
    ...     print(type(error).__name__, error)
    InvalidRelease there is no release file nowhere.release; make one with: offaxis fit
    """


class InvalidInput(OffaxisError, ValueError):
    """A vector, an array or a parameter cannot be used; nothing was released.

    Examples
    --------
    >>> from offaxis.privacy import exact_epsilon
    >>> exact_epsilon(-1)
    Traceback (most recent call last):
        ...
    offaxis.errors.InvalidInput: epsilon must be positive, got epsilon=-1
    """


class UnsupportedModel(OffaxisError, TypeError):
    """No adapter knows this model, or it has no useful derivative.

    Examples
    --------
    >>> from offaxis.geometry import as_task_model
    >>> as_task_model("a model's name")
    Traceback (most recent call last):
        ...
    offaxis.errors.UnsupportedModel: no adapter for a model of type str: pass a torch module, ...
    """


class ModelNeeded(OffaxisError, RuntimeError):
    """A release reports the answer of a model that is not part of its file.

    Examples
    --------
    >>> from offaxis.encoding import ModelEncoder
    >>> ModelEncoder(np.array([0.0, 1.0]), centre=np.zeros(3)).encode(np.eye(3))
    Traceback (most recent call last):
        ...
    offaxis.errors.ModelNeeded: this release reports the answer of a model that its file does ...
    """


class BiasedDecoder(OffaxisError, RuntimeError):
    """A mean over people, or its interval, has a bias of unknown size.

    Examples
    --------
    >>> import offaxis
    >>> public, private = np.random.default_rng(0).standard_normal((2, 500, 3))
    >>> release = offaxis.fit(np.ones((1, 3)), public, epsilon=2, mechanism="privunit2")
    >>> release.decode_mean(release.privatize(private))
    Traceback (most recent call last):
        ...
    offaxis.errors.BiasedDecoder: reports of this release (privunit2) do not average ...
    """


class InvalidRelease(OffaxisError, ValueError):
    """A release file is damaged, of another version, or claims a guarantee it does not keep.

    Examples
    --------
    >>> from pathlib import Path
    >>> import offaxis
    >>> _ = Path("my.release").write_bytes(b"not a release at all")
    >>> offaxis.load("my.release")
    Traceback (most recent call last):
        ...
    offaxis.errors.InvalidRelease: my.release: the file is not a release: its header would have ...
    """


class InvalidReport(OffaxisError, ValueError):
    """Bytes that are not a report of this release.

    Examples
    --------
    >>> import offaxis
    >>> public = np.random.default_rng(0).standard_normal((500, 3))
    >>> release = offaxis.fit(np.ones((1, 3)), public, epsilon=2, mechanism="laplace")
    >>> release.decode(b"not a report")
    Traceback (most recent call last):
        ...
    offaxis.errors.InvalidReport: report 0 is not an offaxis report (it does not start with ...
    """


class InvalidDocument(OffaxisError, ValueError):
    """A round, a key or a signature is invalid; nothing was done.

    Examples
    --------
    >>> from offaxis.formats.documents import public_key
    >>> public_key("my key")
    Traceback (most recent call last):
        ...
    offaxis.errors.InvalidDocument: a public key has 64 hexadecimal digits
    """


class RoundRefused(OffaxisError, RuntimeError):
    """A round requires more than this device allows; nothing was spent and nothing was sent.

    Examples
    --------
    >>> import offaxis
    >>> from offaxis.client import Terms
    >>> from offaxis.formats.release_file import to_bytes
    >>> public = np.random.default_rng(0).standard_normal((500, 3))
    >>> release = offaxis.fit(np.ones((1, 3)), public, epsilon=5, mechanism="laplace")
    >>> terms = Terms("https://collector.example", epsilon="1", release=release.hash)
    >>> terms.accept(to_bytes(release), release.hash)
    Traceback (most recent call last):
        ...
    offaxis.errors.RoundRefused: a report would have ε = 5, pure; this device allows up to ...
    """


class Unreachable(OffaxisError, ConnectionError):
    """A collector could not be reached, or its answer was not that of a collector.

    Examples
    --------
    >>> import socket
    >>> from offaxis.client import Device, Terms
    >>> from offaxis.privacy import Limit
    >>> with socket.socket() as closed:  # a port without a listener
    ...     closed.bind(("127.0.0.1", 0))
    ...     url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    >>> terms = Terms(url, epsilon="1", release="ab" * 32)
    >>> with Device.create("my.device", terms, Limit(8)) as device:
    ...     device.rounds()
    Traceback (most recent call last):
        ...
    offaxis.errors.Unreachable: ...
    """


class BudgetExceeded(OffaxisError, RuntimeError):
    """A person's budget allows no further report; nothing was spent and nothing was released.

    Examples
    --------
    >>> from offaxis.privacy import Guarantee, Ledger, Limit
    >>> with Ledger.create("mine.ledger", Limit(2)) as ledger:
    ...     ledger.spend(Guarantee(3), release="energy")
    Traceback (most recent call last):
        ...
    offaxis.errors.BudgetExceeded: 1 more of ε = 3, pure would exceed the limit of ε = 2 in all; ...
    """


class EntropyFailure(OffaxisError, RuntimeError):
    """The operating system provided no randomness; nothing was released, without any fallback.

    Examples
    --------
    >>> import copy
    >>> from offaxis.sampling.entropy import Entropy
    >>> copy.copy(Entropy())  # two copies would repeat each other's bits
    Traceback (most recent call last):
        ...
    offaxis.errors.EntropyFailure: an Entropy cannot be pickled or copied; ...
    """


class MissingExtra(OffaxisError, ImportError):
    """An optional dependency that this feature needs is not installed.

    Examples
    --------
    >>> from offaxis.errors import MissingExtra
    >>> issubclass(MissingExtra, ImportError)  # handlers of ImportError catch it too
    True
    """


def installing(extra: str) -> str:
    """Return how to install an optional dependency, with the same words in all messages.

    offaxis is not on a package index yet; a package of that name there is not this one.
    """
    return f"pip install '.[{extra}]' in a checkout of offaxis"


def unknown_name(what: str, name: object, known: Collection[str], listed: str = "") -> str:
    """Return a message for an unknown name, with the closest name or where all are listed."""
    near = get_close_matches(str(name), known, n=1)
    if near:
        hint = f"did you mean {near[0]!r}?"
    else:
        hint = f"{listed} lists them" if listed else f"choose one of {', '.join(known)}"
    return f"there is no {what} {repr(name)[:60]}; {hint}"
