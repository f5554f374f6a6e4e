"""torch: a layer that releases what passes it, and datasets whose items are released once."""

from offaxis.errors import MissingExtra, installing

try:
    import torch  # noqa: F401
except ImportError as error:
    raise MissingExtra(f"offaxis.faces.torch needs torch: {installing('torch')}") from error

from offaxis.faces.torch.datasets import PrivateDataset, SimulatedDataset
from offaxis.faces.torch.layer import PrivateLayer

__all__ = ["PrivateDataset", "PrivateLayer", "SimulatedDataset"]
