from __future__ import annotations

import numpy as np
import pytest

import offaxis
from offaxis.errors import InvalidInput
from offaxis.geometry import (
    CentredOutputs,
    FiniteDifferences,
    Layers,
    PublicVectors,
    TaskModel,
    measure,
)
from offaxis.geometry.models import gram_of


def test_answers_stay_and_a_common_shift_is_gone(head, public):
    centred = CentredOutputs(head)
    assert isinstance(centred, TaskModel)
    assert np.array_equal(centred.outputs(public).argmax(1), head.outputs(public).argmax(1))
    assert np.allclose(centred.outputs(public).sum(axis=1), 0)
    shifted = Layers([*head.weights[:-1], head.weights[-1] + 7.0], head.biases)
    assert np.allclose(CentredOutputs(shifted).gram(public), centred.gram(public))
    assert not np.allclose(shifted.gram(public), head.gram(public))


def test_jacobians_and_gram_are_those_of_the_centred_outputs(head, public):
    k = len(head.biases[-1])
    centring = np.eye(k) - 1 / k
    expected = centring @ head.jacobians(public)
    centred = CentredOutputs(head)
    assert np.allclose(centred.jacobians(public), expected)
    assert np.allclose(centred.gram(public), gram_of(expected))
    folded = Layers(
        [*head.weights[:-1], centring @ head.weights[-1]],
        [*head.biases[:-1], centring @ head.biases[-1]],
    )
    assert np.allclose(centred.gram(public), folded.gram(public))
    assert np.allclose(centred.outputs(public), folded.outputs(public))


def test_the_release_says_that_outputs_were_centred(head, public, tmp_path):
    release = offaxis.fit(CentredOutputs(head), public, epsilon=1)
    release.save(tmp_path / "a.release")
    model = offaxis.load(tmp_path / "a.release").provenance.model
    assert model.name == "layers (outputs centred)"
    assert model.sha256 == head.identity().sha256
    assert model != head.identity()
    long = Layers(head.weights, head.biases, name="x" * 200)
    assert len(CentredOutputs(long).identity().name) == 200


def test_a_weight_matrix_is_taken_too_and_one_output_leaves_nothing(public):
    assert CentredOutputs(np.eye(6)[:2]).input_dim == 6
    with pytest.raises(InvalidInput, match="Jacobian is zero"):
        offaxis.fit(CentredOutputs(np.eye(6)[:1]), public, epsilon=1)


def test_batches_are_cut_for_whole_jacobians_where_the_model_cannot_centre_itself(head, public):
    outside = CentredOutputs(FiniteDifferences(head.outputs))
    assert outside.numbers_per_vector(6, 3) == 18
    assert CentredOutputs(head).numbers_per_vector(6, 3) == head.numbers_per_vector(6, 3)
    ours, theirs = (
        measure(task, PublicVectors(public)) for task in (CentredOutputs(head), outside)
    )
    assert ours.outputs == theirs.outputs == 3
    assert np.allclose(ours.gram, theirs.gram, atol=1e-6)
