"""Every error a user can meet. Messages name the value that was wrong and say the fix."""


class OffaxisError(Exception):
    """Base of all errors raised by offaxis on purpose."""


class InvalidInput(OffaxisError, ValueError):
    """A vector, an array or a parameter cannot be used; nothing was released."""


class UnsupportedModel(OffaxisError, TypeError):
    """No adapter knows how to differentiate this model."""


class BiasedDecoder(OffaxisError, RuntimeError):
    """A mean over people was asked of a release that has no unbiased decoder."""


class InvalidRelease(OffaxisError, ValueError):
    """A release file is damaged, of another version, or promises what it does not keep."""


class InvalidReport(OffaxisError, ValueError):
    """Bytes that are not a report of this release."""


class InvalidDocument(OffaxisError, ValueError):
    """A round, a key or a signature that is not what it should be; nothing was done."""


class RoundRefused(OffaxisError, RuntimeError):
    """A round asks for what this device does not give; nothing was paid and nothing sent."""


class Unreachable(OffaxisError, ConnectionError):
    """A collector could not be reached, or did not answer as one does."""


class BudgetExceeded(OffaxisError, RuntimeError):
    """A person's budget does not allow another report; nothing was paid and nothing released."""


class EntropyFailure(OffaxisError, RuntimeError):
    """The operating system gave no randomness; nothing was released and nothing falls back."""


class MissingExtra(OffaxisError, ImportError):
    """An optional dependency is needed for this and is not installed."""
