"""Release vector representations under local differential privacy, with the noise off-axis.

>>> release = offaxis.fit(model, public, epsilon=5)      # public data only   # doctest: +SKIP
>>> report = release.privatize(z)                        # on the device      # doctest: +SKIP
>>> z_hat = release.decode(report)                       # anywhere           # doctest: +SKIP
"""

from offaxis.errors import OffaxisError
from offaxis.fitting import fit
from offaxis.privacy.guarantee import Guarantee
from offaxis.release import Release

__version__ = "0.1.0"

load = Release.load

__all__ = ["Guarantee", "OffaxisError", "Release", "__version__", "fit", "load"]
