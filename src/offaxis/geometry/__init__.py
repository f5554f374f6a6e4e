"""What does the public task look at? Jacobians of the public model over public vectors."""

from offaxis.geometry.allocation import gap_rank, water_filling
from offaxis.geometry.centred import CentredOutputs
from offaxis.geometry.finite_differences import FiniteDifferences
from offaxis.geometry.jacobian import Geometry, measure
from offaxis.geometry.layers import Layers
from offaxis.geometry.models import TaskModel, as_task_model
from offaxis.geometry.public import PublicVectors
from offaxis.geometry.spectrum import Spectrum, spectrum
from offaxis.geometry.together import Together

__all__ = [
    "CentredOutputs",
    "FiniteDifferences",
    "Geometry",
    "Layers",
    "PublicVectors",
    "Spectrum",
    "TaskModel",
    "Together",
    "as_task_model",
    "gap_rank",
    "measure",
    "spectrum",
    "water_filling",
]
