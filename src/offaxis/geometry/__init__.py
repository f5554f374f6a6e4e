"""The geometry of a public task: Jacobians of the public model over public vectors."""

from offaxis.geometry.jacobian import Geometry, measure
from offaxis.geometry.layers import Layers
from offaxis.geometry.models import (
    Classifier,
    FiniteDifferences,
    TaskModel,
    answer_names,
    as_task_model,
    layers_for_answers,
)
from offaxis.geometry.multitask import CentredOutputs, MultiTask
from offaxis.geometry.public import PublicVectors
from offaxis.geometry.spectrum import Spectrum, gap_rank, spectrum, water_filling

__all__ = [
    "CentredOutputs",
    "Classifier",
    "FiniteDifferences",
    "Geometry",
    "Layers",
    "MultiTask",
    "PublicVectors",
    "Spectrum",
    "TaskModel",
    "answer_names",
    "as_task_model",
    "gap_rank",
    "layers_for_answers",
    "measure",
    "spectrum",
    "water_filling",
]
