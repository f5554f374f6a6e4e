"""Release vector representations under local differential privacy, with the noise off-axis.

>>> release = offaxis.fit(model, public, epsilon=5)      # public data only   # doctest: +SKIP
>>> report = release.privatize(z)                        # on the device      # doctest: +SKIP
>>> z_hat = release.decode(report)                       # anywhere           # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from offaxis.version import __version__

if TYPE_CHECKING:
    from offaxis.errors import OffaxisError
    from offaxis.evaluation.priors import wide_prior
    from offaxis.evaluation.recommend import recommend, recommend_range
    from offaxis.evaluation.smallest import smallest_epsilon
    from offaxis.fitting import fit
    from offaxis.privacy.guarantee import Guarantee
    from offaxis.release import Release

    load = Release.load

__all__ = [
    "Guarantee",
    "OffaxisError",
    "Release",
    "__version__",
    "fit",
    "load",
    "recommend",
    "recommend_range",
    "smallest_epsilon",
    "wide_prior",
]

_HOMES = {
    "Guarantee": "offaxis.privacy.guarantee",
    "OffaxisError": "offaxis.errors",
    "Release": "offaxis.release",
    "fit": "offaxis.fitting",
    "recommend": "offaxis.evaluation.recommend",
    "recommend_range": "offaxis.evaluation.recommend",
    "smallest_epsilon": "offaxis.evaluation.smallest",
    "wide_prior": "offaxis.evaluation.priors",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first asked for: SciPy alone takes half a second."""
    if name == "load":
        return __getattr__("Release").load
    if name not in _HOMES:
        raise AttributeError(f"module 'offaxis' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
