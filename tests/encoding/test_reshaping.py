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
def test_decoding_undoes_encoding(geometry, public, order, allocation):
    shape = reshape(geometry, order=order, allocation=allocation)
    back = shape.frame.encoder.encode(public) @ shape.frame.back.T + shape.centre
    assert np.allclose(back, public)


def test_noise_comes_out_small_where_the_task_looks(geometry):
    shape = reshape(geometry, order=1)
    covariance = shape.frame.back @ shape.frame.back.T
    along = [u @ covariance @ u for u in shape.basis.T]
    assert np.all(np.diff(along) >= -1e-9)
    reshaped = np.trace(covariance @ geometry.gram)
    assert reshaped < np.trace(geometry.gram)


def test_the_rule_of_the_public_code_is_offered_by_name(geometry):
    gap, capped = (
        reshape(geometry, order=1, lambda_max=1.2, allocation=allocation).stretch
        for allocation in ("gap", "capped")
    )
    assert capped.max() <= 1.2 * (1 + 1e-12)
    assert not np.allclose(gap, capped)
    with pytest.raises(InvalidInput, match="gap"):
        reshape(geometry, order=1, allocation="half")


def test_other_directions_keep_the_stretches_and_tell_what_the_task_sees(geometry):
    shape = reshape(geometry, order=1)
    assert np.allclose(shape.along(shape.basis, geometry.gram).sensitivities, shape.sensitivities)
    axes = shape.along(np.eye(6), geometry.gram)
    assert np.array_equal(axes.stretch, shape.stretch)
    assert np.allclose(axes.sensitivities, np.diag(geometry.gram))
    # No other basis lets the task see less noise.
    assert axes.stretch @ axes.sensitivities > shape.stretch @ shape.sensitivities
