"""torch: a layer that releases what passes it, and datasets whose items are released once."""

from offaxis.errors import MissingExtra

try:
    import torch  # noqa: F401
except ImportError as error:
    raise MissingExtra("offaxis.faces.torch needs torch: pip install 'offaxis[torch]'") from error

from offaxis.faces.torch.datasets import PrivateDataset, SimulatedDataset
from offaxis.faces.torch.layer import PrivateLayer

__all__ = ["PrivateDataset", "PrivateLayer", "SimulatedDataset"]
