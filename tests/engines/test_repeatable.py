"""Bulk jobs: a record's report has the same bytes in every batch, memory layout and thread pool."""

from __future__ import annotations

from threading import Event, Thread

import numpy as np
import pyarrow as pa
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import offaxis
from offaxis.decoding import CellsDecoder, LinearDecoder, MomentsDecoder, RightDecoder
from offaxis.decoding.decoders import CodewordDecoder
from offaxis.encoding import Answers, ModelEncoder, SecondMomentsEncoder
from offaxis.encoding.encoders import (
    ANSWERS,
    AffineEncoder,
    ArgmaxEncoder,
    BoxEncoder,
    NetworkEncoder,
    ShiftEncoder,
    answer_encoder,
)
from offaxis.encoding.pairs import (
    FORMS,
    CellsEncoder,
    Classes,
    MomentsEncoder,
    Number,
    RightEncoder,
    pair_encoder,
    table_of,
)
from offaxis.encoding.questions import AnswersEncoder
from offaxis.engines import arrow
from offaxis.engines.arrow import privatize_batches
from offaxis.errors import InvalidInput
from offaxis.formats.release_file import _ENCODERS
from offaxis.learning import fit_answers
from offaxis.randomizers import KaryResponse, PrivUnit2, SphericalLaplace
from offaxis.sampling.entropy import JobKey

DIM, RANK = 300, 120
"""A product of a matrix of this size and a vector takes several threads where they are allowed."""

_rng = np.random.default_rng(8)
_MATRIX, _CENTRE = _rng.standard_normal((RANK, DIM)), _rng.standard_normal(DIM)
_WEIGHTS = [_rng.standard_normal(shape) / 10 for shape in ((150, DIM), (140, 150), (RANK, 140))]
_BIASES = [_rng.standard_normal(len(w)) for w in _WEIGHTS]


def _model(Z):
    """Answer with the largest of some products: the model of a release without weights."""
    return ((Z - _CENTRE) @ _MATRIX.T).argmax(axis=1)


ENCODERS = {
    "affine": AffineEncoder(_MATRIX, _CENTRE),
    "shift": ShiftEncoder(_CENTRE),
    "box": BoxEncoder(_MATRIX, _CENTRE, limits=np.full(RANK, 9.0)),
    "argmax": ArgmaxEncoder(_MATRIX, _CENTRE, np.zeros(RANK)),
    "network": NetworkEncoder(_WEIGHTS, _BIASES),
    "model-answer": ModelEncoder(np.arange(RANK, dtype=float), _CENTRE).attach(_model),
    "second-moments": SecondMomentsEncoder.of(_MATRIX[:12], _CENTRE, 20.0),
    "network-tanh+normalise-argmax": answer_encoder("tanh+normalise")(_WEIGHTS, _BIASES),
    **{cls.kind: cls(_WEIGHTS, _BIASES) for cls in ANSWERS.values()},
}

_ASKED = {
    "moments": (Classes(3, optional=True), Number(-9, 9, name="size")),
    "cells": (Classes(3, optional=True), Classes(2, name="other")),
    "right": (Classes(RANK),),
}
"""What each form of pairs asks for; the last numbers of a row are the answers."""

for _form, _asked in _ASKED.items():
    _first = _WEIGHTS[0][:, : DIM - len(_asked)]
    _encoder = pair_encoder(_form, "tanh+normalise")(
        [_first, *_WEIGHTS[1:]], _BIASES, table_of(_asked)
    )
    ENCODERS[_encoder.kind] = _encoder


@pytest.fixture(params=ENCODERS)
def any_release(request, release):
    """A release with any encoder that a release file can hold."""
    encoder, answers = ENCODERS[request.param], None
    size = encoder.output_dim
    form = request.param.rpartition("-")[2] if request.param.startswith("network-") else ""
    asked = _ASKED.get(form, ())
    if request.param.endswith(("argmax", "answer", "cells", "right")):
        names = tuple(map(str, range(size)))
        if request.param == "model-answer":
            answers = Answers(names, tuple(range(size)), tuple(range(size)))
        decoder = CodewordDecoder(np.ones((size, DIM)), np.full(size, 1 / size))
        # Of two symbols, so that reports under two keys are not all equal by chance.
        randomizer = KaryResponse(size, 4 if size > 2 else "0.01")
    else:
        decoder = LinearDecoder(np.ones((DIM, size)), np.zeros(DIM))
        randomizer = SphericalLaplace(size, 1.0, 4)
    if isinstance(encoder, MomentsEncoder):
        d = encoder.features
        decoder = MomentsDecoder(np.eye(d) / d, np.zeros(d), np.array([float(size // d)]))
        randomizer = PrivUnit2(size, 1.0, 4, target="vector")
    elif isinstance(encoder, CellsEncoder):
        d = encoder.features
        decoder = CellsDecoder(np.full(d, 1 / d), np.array([float(size // d)]))
    elif isinstance(encoder, RightEncoder):
        decoder = RightDecoder(np.array([2.0]))
    provenance = release.provenance
    return offaxis.Release(encoder, randomizer, decoder, provenance, answers=answers, asked=asked)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(9)
    return rng.standard_normal((40, DIM)) * 10.0 ** rng.integers(-3, 3, (40, 1))


def test_every_encoder_is_listed():
    """Answers alone have a test of their own: their rows hold no vector of any size."""
    pairs = {f"network-tanh+normalise-{form}" for form in FORMS}
    assert set(ENCODERS) | {AnswersEncoder.kind} >= set(_ENCODERS) | pairs


@pytest.mark.parametrize("mechanism", ["response", "subset", "hashing"])
def test_cuts_and_order_change_no_byte_of_reports_of_answers_alone(mechanism):
    asked = [Classes(5, name="reply", optional=True), Number(-9, 9, name="size", bins=24)]
    release, key, ids = (
        fit_answers(asked, epsilon=2, mechanism=mechanism),
        JobKey(),
        list(range(40)),
    )
    rng = np.random.default_rng(3)
    rows = np.stack([rng.integers(0, 5, 40), rng.uniform(-9, 9, 40)], axis=1)

    def reports(*cuts):
        batches = (
            pa.RecordBatch.from_pydict({"id": [ids[i] for i in cut], "vector": [*rows[cut]]})
            for cut in cuts
        )
        return reports_of(release, key, *batches)

    expected = reports(*([i] for i in ids))
    order = rng.permutation(40)
    assert reports(ids) == reports(ids[7:], ids[:7]) == reports([*order]) == expected


def at_offset(W, offset):
    """Return a copy that starts so many bytes after a multiple of 64."""
    octets = np.empty(W.nbytes + 128, dtype=np.uint8)
    start = -octets.ctypes.data % 64 + offset
    copy = octets[start : start + W.nbytes].view(W.dtype).reshape(W.shape)
    copy[...] = W
    return copy


def batch_of(rows, ids, offset=0):
    """Return a batch whose numbers start at any address: the sender of Arrow data chooses it."""
    flat = at_offset(np.ascontiguousarray(rows), offset).reshape(-1)
    numbers = pa.Array.from_buffers(pa.float64(), flat.size, [None, pa.py_buffer(flat)])
    return pa.RecordBatch.from_arrays(
        [pa.array(ids), pa.FixedSizeListArray.from_arrays(numbers, DIM)], ["id", "vector"]
    )


def reports_of(release, key, *batches):
    table = pa.Table.from_batches(privatize_batches(release, key, batches))
    return dict(zip(table["id"].to_pylist(), table["report"].to_pylist(), strict=True))


def test_cuts_order_addresses_and_threads_change_no_byte(any_release, rows):
    key, ids = JobKey(), list(range(len(rows)))
    expected = reports_of(any_release, key, *(batch_of(rows[i : i + 1], [i]) for i in ids))
    whole = batch_of(rows, ids)
    order = np.random.default_rng(1).permutation(len(rows))
    for threads in (1, 2, 6):
        with threadpool_limits(threads):
            assert reports_of(any_release, key, whole) == expected
            assert reports_of(any_release, key, whole.slice(7), whole.slice(0, 7)) == expected
            assert reports_of(any_release, key, batch_of(rows[order], order)) == expected
            assert reports_of(any_release, key, batch_of(rows, ids, offset=8)) == expected
            assert reports_of(any_release, key, batch_of(rows, ids, offset=3)) == expected
    assert reports_of(any_release, JobKey(), whole) != expected


def test_the_bits_of_an_encoding_do_not_depend_on_the_address_or_layout(any_release, rows):
    columns, gaps = np.asfortranarray(rows), np.repeat(rows, 2, axis=1)[:, ::2]
    with threadpool_limits(1):
        for at in range(6):
            row = rows[at : at + 1]
            expected = any_release.encode_private(row.copy())
            copies = [at_offset(row, offset) for offset in (0, 8, 16, 24, 40, 56, 3)]
            for copy in (*copies, row, columns[at : at + 1], gaps[at : at + 1]):
                assert np.array_equal(any_release.encode_private(copy), expected)


def test_a_product_of_many_rows_is_noticed(rows):
    """The broken control of the test above: encoding a batch at once changes bits of its rows."""
    encoder = ENCODERS["affine"]
    alone = np.concatenate([encoder.encode(rows[at : at + 1]) for at in range(len(rows))])
    assert not np.array_equal(encoder.encode(rows), alone)


def test_a_job_that_ends_does_not_lift_the_limit_on_threads_of_another(release, monkeypatch):
    inside, ended, seen = Event(), Event(), []
    batch = pa.RecordBatch.from_pydict({"id": [1], "vector": [np.ones(6)]})

    def first(self, vectors):
        inside.wait(1)  # until the second job has set its limit, unless it has to wait
        return encode(self, vectors)

    def second(self, vectors):
        inside.set()
        ended.wait(1)
        seen.extend(pool["num_threads"] for pool in threadpool_info())
        return encode(self, vectors)

    encode = offaxis.Release.encode_private
    encoders = [first, second]
    monkeypatch.setattr(offaxis.Release, "encode_private", lambda *a: encoders.pop(0)(*a))
    results = []

    def job(done):
        results.extend(privatize_batches(release, JobKey(), [batch]))
        done.set()

    jobs = [Thread(target=job, args=(ended,)), Thread(target=job, args=(Event(),))]
    for thread in jobs:
        thread.start()
    for thread in jobs:
        thread.join()
    assert set(seen) == {1}
    assert len(results) == 2


def test_a_job_that_cannot_limit_its_threads_raises(release):
    """While another thread holds a limit, threadpoolctl ignores that of a job without a word."""
    batch, outcomes = pa.RecordBatch.from_pydict({"id": [1], "vector": [np.ones(6)]}), []

    def job():
        try:
            outcomes.append(len(list(privatize_batches(release, JobKey(), [batch]))))
        except InvalidInput as error:
            outcomes.append(str(error))

    for threads in (1, 2):
        with threadpool_limits(threads):
            thread = Thread(target=job)
            thread.start()
            thread.join()
    assert outcomes[0] == 1
    assert "must compute on one thread, but BLAS or OpenMP uses 2" in outcomes[1]


def test_a_library_that_a_model_loads_during_the_job_is_noticed(release, monkeypatch):
    """It is not limited, and was not there when the limit was set."""
    real, loaded = arrow.ThreadpoolController, []

    class Controller(real):
        def info(self):
            return [*super().info(), *({"num_threads": 2} for _ in loaded)]

    monkeypatch.setattr(arrow, "ThreadpoolController", Controller)
    encode = offaxis.Release.encode_private
    batch = pa.RecordBatch.from_pydict({"id": [1], "vector": [np.ones(6)]})
    assert len(list(privatize_batches(release, JobKey(), [batch]))) == 1

    def loading(self, vectors):
        loaded.append("openmp")
        return encode(self, vectors)

    monkeypatch.setattr(offaxis.Release, "encode_private", loading)
    with pytest.raises(InvalidInput, match="BLAS or OpenMP uses 2"):
        list(privatize_batches(release, JobKey(), [batch]))
