"""Models that :func:`offaxis.learn` returns, as the arrays that other libraries compute with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from offaxis.encoding.pairs import CellsEncoder
from offaxis.errors import InvalidInput
from offaxis.geometry import Layers
from offaxis.learning import ReportClassifier, ReportRegressor
from offaxis.vectors import Vectors


@dataclass(frozen=True, eq=False)
class PublicModel:
    """A public model: a network, perhaps with a table of its outputs.

    Attributes
    ----------
    network : Layers
        The model, or the scores of its cells.
    table : (cells, k) array or None
        The outputs of the model in the cell with the largest score.
    answers : tuple of str or None
        Names of the classes, if it is a classifier that names them.
    facts : dict of str
        The release and the number of reports that it was learnt from.
    """

    network: Layers
    table: Vectors | None
    answers: tuple[str, ...] | None
    facts: dict[str, str]

    @property
    def output_dim(self) -> int:
        """Number k of outputs."""
        return int(self.network.biases[-1].size if self.table is None else self.table.shape[1])

    @classmethod
    def of(cls, model: Any) -> PublicModel:
        """Return the parts of a learnt model or of layers.

        Raises
        ------
        InvalidInput
            If it is another model, or has not been learnt yet.
        """
        if isinstance(model, Layers):
            return cls(model, None, model.answers, {})
        if not isinstance(model, ReportClassifier | ReportRegressor):
            raise InvalidInput(
                f"pass a model that offaxis.learn returned, or offaxis.geometry.Layers, got "
                f"{type(model).__name__}"
            )
        if not model.__sklearn_is_fitted__():
            raise InvalidInput("this model has not been learnt yet: call fit(reports)")
        facts = {"release": model.release.hash, "reports": str(model.report_count_)}
        encoder = model.release.encoder
        if isinstance(model, ReportRegressor):
            return cls(model.layers_, None, None, facts)
        answers = tuple(map(str, model.classes_.tolist()))
        if not isinstance(encoder, CellsEncoder):
            return cls(model.layers_, None, answers, facts)
        scores = Layers(encoder.weights, encoder.biases, encoder.activation, name="cells")
        return cls(scores, model.table_, answers, facts)
