"""Reshaping by the Jacobian: invertible, with little noise where the task is sensitive."""

from __future__ import annotations

import numpy as np
import pytest

from offaxis.encoding import reshape
from offaxis.errors import InvalidInput
from offaxis.geometry import PublicVectors, measure


@pytest.fixture(scope="module")
def geometry(head, public):
    return measure(head, PublicVectors(public))


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("allocation", ["capped", "gap"])
def test_decoding_inverts_encoding(geometry, public, order, allocation):
    shape = reshape(geometry, order=order, allocation=allocation)
    frame = shape.frame
    assert frame.back is not None
    decoded = frame.encoder.encode(public) @ frame.back.T + shape.centre
    assert np.allclose(decoded, public)


def test_noise_is_small_where_the_task_is_sensitive(geometry):
    shape = reshape(geometry, order=1)
    back = shape.frame.back
    assert back is not None
    covariance = back @ back.T
    along = [u @ covariance @ u for u in shape.basis.T]
    assert np.all(np.diff(along) >= -1e-9)
    reshaped = np.trace(covariance @ geometry.gram)
    assert reshaped < np.trace(geometry.gram)


def test_the_rule_of_the_papers_code_is_available_by_name(geometry):
    gap, capped = (
        reshape(geometry, order=1, lambda_max=1.2, allocation=allocation).stretch
        for allocation in ("gap", "capped")
    )
    assert capped.max() <= 1.2 * (1 + 1e-12)
    assert not np.allclose(gap, capped)
    with pytest.raises(InvalidInput, match="gap"):
        reshape(geometry, order=1, allocation="half")  # type: ignore[arg-type]


def test_other_directions_keep_the_stretches_and_have_new_sensitivities(geometry):
    shape = reshape(geometry, order=1)
    assert np.allclose(shape.along(shape.basis, geometry.gram).sensitivities, shape.sensitivities)
    axes = shape.along(np.eye(6), geometry.gram)
    assert np.array_equal(axes.stretch, shape.stretch)
    assert np.allclose(axes.sensitivities, np.diag(geometry.gram))
    # No other basis puts less noise into the task.
    assert axes.stretch @ axes.sensitivities > shape.stretch @ shape.sensitivities
