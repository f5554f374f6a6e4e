from __future__ import annotations

import io
import pickle
import struct
from typing import Any, ClassVar

import numpy as np
import pytest

from experiments.data.formats import read_batch, read_idx, read_png, write_idx
from offaxis.errors import InvalidInput
from tests.experiments.data.tiny import write_png


@pytest.mark.parametrize("kind", range(5))
def test_every_png_filter_is_undone(kind: int) -> None:
    pixels = np.random.default_rng(kind).integers(0, 256, (6, 9, 3), np.uint8)
    np.testing.assert_array_equal(read_png(write_png(pixels, [kind] * 6)), pixels)


def test_png_filters_may_change_from_row_to_row() -> None:
    pixels = np.random.default_rng(9).integers(0, 256, (10, 7, 3), np.uint8)
    filters = [1, 4, 2, 3, 0, 4, 4, 3, 2, 1]
    np.testing.assert_array_equal(read_png(write_png(pixels, filters)), pixels)


def test_other_kinds_of_png_are_refused() -> None:
    good = write_png(np.zeros((2, 2, 3), np.uint8), [0, 0])
    for bad, word in (
        (b"GIF89a", "not a PNG"),
        (good[:20], "has no header"),
        (good.replace(b"\x08\x02\x00\x00\x00", b"\x08\x00\x00\x00\x00", 1), "8-bit RGB"),
        (good[:45], "too early"),
    ):
        with pytest.raises(InvalidInput, match=word):
            read_png(bad)


def test_a_png_cannot_unpack_to_more_than_it_declares() -> None:
    tall = write_png(np.zeros((500, 4, 3), np.uint8), [0] * 500)
    # Its header declares 2 rows.
    forged = tall.replace(struct.pack(">II", 4, 500), struct.pack(">II", 4, 2), 1)
    assert read_png(forged).shape == (2, 4, 3)


def test_an_idx_file_round_trips() -> None:
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    np.testing.assert_array_equal(read_idx(write_idx(array)), array)
    for bad in (b"", b"\0\0\x0d\x01\0\0\0\0", write_idx(array)[:-1], write_idx(array)[:6]):
        with pytest.raises(InvalidInput, match="idx"):
            read_idx(bad)


class _Python2(pickle._Pickler):  # type: ignore[name-defined]
    """Write bytes as Python 2 wrote its strings, as in the official files."""

    dispatch: ClassVar[dict[type, Any]] = dict(pickle._Pickler.dispatch)  # type: ignore[attr-defined]

    def save_string(self, value: bytes) -> None:
        short = len(value) < 256
        size = bytes([len(value)]) if short else struct.pack("<i", len(value))
        self.write((b"U" if short else b"T") + size + value)
        self.memoize(value)

    dispatch[bytes] = save_string


def _batch(python2: bool, order: str = "C") -> tuple[bytes, np.ndarray, list[int]]:
    rng = np.random.default_rng(3)
    table = np.array(rng.integers(0, 256, (4, 3072), np.uint8), order=order)  # type: ignore[call-overload]
    labels = [3, 0, 9, 200]
    file = io.BytesIO()
    batch = {b"batch_label": b"training batch 1 of 5", b"labels": labels, b"data": table}
    batch[b"filenames"] = [b"a.png", b"b.png"]
    (_Python2 if python2 else pickle._Pickler)(file, 2).dump(batch)  # type: ignore[attr-defined]
    return file.getvalue(), table, labels


@pytest.mark.parametrize("python2", [True, False])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_batch_is_read_without_unpickling(
    python2: bool, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, table, labels = _batch(python2, order)
    monkeypatch.delattr(pickle, "loads")
    pixels, read_labels = read_batch(content)
    np.testing.assert_array_equal(pixels, table)
    assert read_labels.tolist() == labels


def test_a_hostile_pickle_is_not_executed() -> None:
    hostile = b"cos\nsystem\n(S'echo ran'\ntR."
    with pytest.raises(InvalidInput, match="not a batch"):
        read_batch(hostile)
    for bad in (b"", b"\x80", b"not a pickle", pickle.dumps({"labels": [1, 2]})):
        with pytest.raises(InvalidInput, match="not a batch"):
            read_batch(bad)
