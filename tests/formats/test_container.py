"""The container of release files: nothing in it is trusted, and false claims cost no memory."""

from __future__ import annotations

import io
import json
import struct

import numpy as np
import pytest
from safetensors.numpy import save as serialize

import offaxis
from offaxis.errors import InvalidRelease
from offaxis.formats.container import LARGEST_HEADER, read_header, read_metadata, read_tensors
from offaxis.formats.release_file import from_bytes, to_bytes
from offaxis.formats.reports import header
from tests.fuzz.forgery import contents, fill, put_together, take_apart, with_header
from tests.limits import bounded

ONE = {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}


def tensors_of(blob):
    stream = io.BytesIO(blob)
    return read_tensors(stream, read_header(stream))


def test_files_of_the_reference_library_are_read():
    arrays = {"b": np.arange(6.0).reshape(2, 3), "a": np.array([-0.0]), "c": np.zeros((0, 4))}
    blob = serialize(arrays, metadata={"key": "text \N{GRINNING FACE}"})
    assert read_metadata(read_header(io.BytesIO(blob)), "key") == "text \N{GRINNING FACE}"
    read = tensors_of(blob)
    assert read.keys() == arrays.keys()
    for name, array in arrays.items():
        assert read[name].tobytes() == array.tobytes()
        assert read[name].shape == array.shape


def test_bytes_before_within_and_after_the_tensors_are_refused(release):
    draft = take_apart(to_bytes(release))
    assert draft is not None
    with pytest.raises(InvalidRelease, match="continues after"):
        tensors_of(with_header(json.dumps(draft.tensors), draft.data + b"\0"))
    with pytest.raises(InvalidRelease, match="ends too early"):
        tensors_of(with_header(json.dumps(draft.tensors), draft.data[:-1]))
    gap = {"a": ONE, "b": {**ONE, "data_offsets": [16, 24]}}
    for entries in (gap, {"a": gap["b"]}, {"a": ONE, "b": ONE}):
        with pytest.raises(InvalidRelease, match="does not follow"):
            tensors_of(with_header(json.dumps(entries), bytes(24)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "F32"}, "'F32', not F64"),
        ({"dtype": ["F64"]}, "not F64"),
        ({"more": 1}, "not described"),
        ({"shape": [2]}, "does not fit its place"),
        ({"shape": 1}, "shape"),
        ({"shape": [True]}, "shape"),
        ({"shape": [1.0]}, "shape"),
        ({"shape": [-1, -1]}, "shape"),
        ({"shape": [1, 1, 1]}, "shape"),
        ({"shape": [1] * 70}, "shape"),
        ({"shape": [0, 1 << 21], "data_offsets": [0, 0]}, "shape"),
        ({"shape": [(1 << 64) - 1, 0], "data_offsets": [0, 0]}, "shape"),
        ({"shape": [1 << 20, 1 << 20], "data_offsets": [0, 1 << 43]}, "larger than"),
        ({"data_offsets": [0]}, "place"),
        ({"data_offsets": [8, 0]}, "place"),
        ({"data_offsets": [-8, 0]}, "place"),
        ({"data_offsets": [0, 8, 8]}, "place"),
        ({"data_offsets": None}, "place"),
        ({"data_offsets": [0, 1 << 62]}, "place"),
    ],
)
def test_a_tensor_with_a_false_description_is_refused(change, message):
    with pytest.raises(InvalidRelease, match=message):
        tensors_of(with_header(json.dumps({"a": {**ONE, **change}}), bytes(8)))


@pytest.mark.parametrize("name", ["\ud800", "\udfff\ud800", "é", "\x1b[2J"])
def test_a_tensor_with_a_name_that_cannot_be_encoded_is_refused(release, name):
    """Such names can be written as JSON escapes, but could not be hashed."""
    draft = take_apart(to_bytes(release))
    assert draft is not None
    fill(draft, contents(draft) | {name: ([1], bytes(8))})
    with pytest.raises(InvalidRelease, match=r"no release has|unknown tensors") as raised:
        from_bytes(put_together(draft))
    assert str(raised.value).isprintable()


@pytest.mark.parametrize(
    "header",
    [
        *(b"", b"null", b"[]", b"5", b'"x"', b"{", b"\xff{}", b"\xef\xbb\xbf{}", b" {}"),
        *('{"a":1}'.encode("utf-16"), b'{"__metadata__":{},"__metadata__":{}}'),
        *(b"[" * 100_000, b'{"a":' * 100_000, b'{"a":NaN}', b'{"a":' + b"9" * 5000 + b"}"),
    ],
)
def test_a_header_that_is_not_a_json_object_is_refused(header):
    with pytest.raises(InvalidRelease, match="not a release"):
        read_header(io.BytesIO(with_header(header)))


@pytest.mark.parametrize(
    "metadata",
    [
        *(None, 5, "text", [], {}, {"other": "text"}, {"key": "text", "other": "text"}),
        *({"key": None}, {"key": 5}, {"key": ["a\nb"]}, {"key": {"key": "text"}}),
    ],
)
def test_metadata_other_than_one_text_is_refused(metadata):
    with pytest.raises(InvalidRelease, match="manifest"):
        read_metadata({"__metadata__": metadata}, "key")


def test_a_false_header_length_is_refused_without_reading_further(release):
    blob = to_bytes(release)
    for length in (0, 1, len(blob), LARGEST_HEADER, LARGEST_HEADER + 1, 1 << 62, (1 << 64) - 1):
        with bounded(mebibytes=1), pytest.raises(InvalidRelease):
            from_bytes(struct.pack("<Q", length) + blob[8:])


@pytest.mark.parametrize(
    ("write", "kind"),
    [
        (lambda file: np.save(file, np.ones(3)), "a .npy array"),
        (lambda file: np.savez(file, np.ones(3)), "a .npz or another zip archive"),
        (lambda file: file.write(b"PAR1" + bytes(8)), "a Parquet file"),
        (lambda file: file.write(header(1, "ab" * 32)), "a file of reports"),
    ],
)
def test_the_error_for_other_common_files_names_their_format(write, kind):
    file = io.BytesIO()
    write(file)
    with pytest.raises(InvalidRelease, match=f"not a release: it looks like {kind}"):
        from_bytes(file.getvalue())


def test_a_header_larger_than_any_release_needs_is_refused():
    with pytest.raises(InvalidRelease, match="header would have"):
        read_header(io.BytesIO(with_header(b" " * (LARGEST_HEADER + 1))))


def test_a_missing_tensor_takes_no_memory(release):
    draft = take_apart(to_bytes(release))
    assert draft is not None
    end = len(draft.data)
    offsets = [end, end + (8 << 26)]
    draft.tensors["x"] = {"dtype": "F64", "shape": [1 << 6, 1 << 20], "data_offsets": offsets}
    with bounded(mebibytes=1), pytest.raises(InvalidRelease, match="ends too early"):
        from_bytes(put_together(draft))


def test_a_huge_file_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "huge.release"
    with path.open("wb") as file:
        file.truncate((1 << 30) + 1)
    with bounded(mebibytes=1), pytest.raises(InvalidRelease, match="not a release"):
        offaxis.load(path)


def test_other_safetensors_files_are_refused():
    blob = serialize({"weight": np.ones(3)}, metadata={"format": "pt"})
    with pytest.raises(InvalidRelease, match="no manifest"):
        from_bytes(blob)
    with pytest.raises(InvalidRelease, match="no manifest"):
        from_bytes(serialize({"weight": np.ones(3)}))
    with pytest.raises(InvalidRelease, match="incomplete"):
        from_bytes(serialize({"weight": np.ones(3)}, metadata={"offaxis": "x"}))
