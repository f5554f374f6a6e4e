"""Release vector representations under local differential privacy, with the noise off-axis.

Examples
--------
>>> import offaxis
>>> rng = np.random.default_rng(0)
>>> model, public = rng.standard_normal((2, 6)), rng.standard_normal((1000, 6))
>>> release = offaxis.fit(model, public, epsilon=5)  # from public data only; may be published
>>> str(release.guarantee)
'ε = 5, pure'
>>> report = release.privatize(rng.standard_normal(6))  # on the device: bytes that may leave it
>>> len(report) == release.report_size
True
>>> release.decode(report).shape  # anywhere: a vector with the reported answer
(6,)
>>> release.save("my.release")
>>> offaxis.load("my.release", expect=release.hash)
Release(response, ε = 5, pure, per item, dimension 6, ...)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from offaxis.version import __version__

if TYPE_CHECKING:
    from offaxis.auditing.auditor import audit
    from offaxis.encoding import Jacobian, Optimal
    from offaxis.errors import OffaxisError
    from offaxis.evaluation.priors import wide_prior
    from offaxis.evaluation.recommend import recommend, recommend_range
    from offaxis.evaluation.smallest import smallest_epsilon
    from offaxis.fitting import fit, memoise
    from offaxis.leakage.issuer import passport
    from offaxis.learning.estimators import learn
    from offaxis.learning.plan import plan_learning
    from offaxis.learning.population import population
    from offaxis.privacy.guarantee import Guarantee
    from offaxis.release import Release
    from offaxis.simulation import simulate

    load = Release.load

__all__ = [
    "Guarantee",
    "Jacobian",
    "OffaxisError",
    "Optimal",
    "Release",
    "__version__",
    "audit",
    "fit",
    "learn",
    "load",
    "memoise",
    "passport",
    "plan_learning",
    "population",
    "recommend",
    "recommend_range",
    "simulate",
    "smallest_epsilon",
    "wide_prior",
]

_HOMES = {
    "Guarantee": "offaxis.privacy.guarantee",
    "Jacobian": "offaxis.encoding",
    "OffaxisError": "offaxis.errors",
    "Optimal": "offaxis.encoding",
    "Release": "offaxis.release",
    "audit": "offaxis.auditing",
    "fit": "offaxis.fitting",
    "learn": "offaxis.learning.estimators",
    "memoise": "offaxis.fitting",
    "passport": "offaxis.leakage",
    "plan_learning": "offaxis.learning.plan",
    "population": "offaxis.learning.population",
    "recommend": "offaxis.evaluation.recommend",
    "recommend_range": "offaxis.evaluation.recommend",
    "simulate": "offaxis.simulation",
    "smallest_epsilon": "offaxis.evaluation.smallest",
    "wide_prior": "offaxis.evaluation.priors",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use, because SciPy alone takes half a second."""
    if name == "load":
        return __getattr__("Release").load
    if name not in _HOMES:
        raise AttributeError(f"module 'offaxis' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
