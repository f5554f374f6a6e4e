from __future__ import annotations

import builtins
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from offaxis.cli.inputs import check_format, locate, read_array, read_targets, write_array
from offaxis.errors import InvalidInput, MissingExtra

VALUES = np.array([[0.1, -2.0, 3.5], [4.0, 5.25, -6.0]])


def test_npy_is_mapped_not_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", VALUES)
    array = read_array(str(tmp_path / "a.npy"))
    assert isinstance(array, np.memmap)
    np.testing.assert_array_equal(array, VALUES)


def test_npz_with_one_array_needs_no_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", anything=VALUES)
    np.testing.assert_array_equal(read_array(f"{tmp_path}/a.npz"), VALUES)


def test_npz_array_by_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", first=VALUES, second=2 * VALUES)
    np.testing.assert_array_equal(read_array(f"{tmp_path}/a.npz:second"), 2 * VALUES)
    with pytest.raises(InvalidInput, match=r"holds 2 arrays; choose one of first, second as"):
        read_array(f"{tmp_path}/a.npz")
    with pytest.raises(InvalidInput, match=r"holds no array 'third'; choose one of first, second"):
        read_array(f"{tmp_path}/a.npz:third")


def test_a_file_whose_name_has_a_colon_wins_over_an_array_name(tmp_path: Path) -> None:
    odd = tmp_path / "a.npz:b"
    odd.touch()
    assert locate(str(odd)) == (odd, None)
    assert locate("a.parquet:b") == (Path("a.parquet"), "b")
    assert locate(r"C:\a.npy") == (Path(r"C:\a.npy"), None)


def test_pickles_are_never_opened(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "sprung",))

    np.save(tmp_path / "a.npy", np.array([Trap()], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "a.npz", x=np.array([Trap()], dtype=object))
    (tmp_path / "b.npy").write_bytes(pickle.dumps(Trap()))
    (tmp_path / "b.npz").write_bytes(pickle.dumps(Trap()))
    for name in ("a.npy", "a.npz", "b.npy", "b.npz"):
        with pytest.raises(InvalidInput, match="not a readable"):
            read_array(str(tmp_path / name))
    assert not (tmp_path / "sprung").exists()


def test_damaged_and_misnamed_files_say_so(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", VALUES)
    np.savez(tmp_path / "a.npz", VALUES)
    whole = (tmp_path / "a.npy").read_bytes()
    archive = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "cut.npy").write_bytes(whole[:-5])
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "cut.npz").write_bytes(archive[:-30])
    (tmp_path / "wrong.npy").write_bytes(archive)
    (tmp_path / "wrong.npz").write_bytes(whole)
    for name, message in {
        "cut.npy": "not a readable .npy",
        "empty.npy": "not a readable .npy",
        "cut.npz": "not a readable .npz",
        "wrong.npy": "not a readable .npy",
        "wrong.npz": "rename it to end in .npy",
        "missing.npy": "there is no file",
        "a.txt": "must be a file of type .npy, .npz, .csv, .parquet",
    }.items():
        with pytest.raises(InvalidInput, match=message):
            read_array(str(tmp_path / name))


def test_a_single_number_is_not_an_array_of_vectors(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", 3.0)
    with pytest.raises(InvalidInput, match="single number"):
        read_array(str(tmp_path / "a.npy"))


def test_parquet_list_columns(tmp_path: Path) -> None:
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(VALUES.ravel()), 3)
    for kind in (pa.list_(pa.float32()), pa.large_list(pa.float64())):
        free = pa.array(VALUES.tolist(), type=kind)
        pq.write_table(pa.table({"v": free}), tmp_path / "a.parquet")
        np.testing.assert_allclose(read_array(f"{tmp_path}/a.parquet"), VALUES, rtol=1e-6)
    pq.write_table(pa.table({"name": ["x", "y"], "v": fixed, "w": fixed}), tmp_path / "b.parquet")
    np.testing.assert_array_equal(read_array(f"{tmp_path}/b.parquet:v"), VALUES)
    with pytest.raises(InvalidInput, match=r"choose one of name, v, w as .*b.parquet:column"):
        read_array(f"{tmp_path}/b.parquet")
    with pytest.raises(InvalidInput, match="no column 'u'; it has name, v, w"):
        read_array(f"{tmp_path}/b.parquet:u")


def test_parquet_numeric_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.5, 2.5], "y": [3, 4]}), tmp_path / "a.parquet")
    np.testing.assert_array_equal(read_array(f"{tmp_path}/a.parquet"), [[1.5, 3], [2.5, 4]])
    labels = read_targets(f"{tmp_path}/a.parquet:y")
    np.testing.assert_array_equal(labels, [3, 4])
    assert labels.dtype.kind == "i"


def test_parquet_over_many_row_groups_keeps_the_order(tmp_path: Path) -> None:
    many = np.arange(60.0).reshape(20, 3)
    column = pa.FixedSizeListArray.from_arrays(pa.array(many.ravel()), 3)
    pq.write_table(pa.table({"v": column}), tmp_path / "a.parquet", row_group_size=7)
    np.testing.assert_array_equal(read_array(f"{tmp_path}/a.parquet"), many)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([1.0, None]), "missing values"),
        (pa.array([[1.0], None]), "missing values"),
        (pa.array([[1.0, None], [1.0, 2.0]]), "missing entries"),
        (pa.array([[1.0, 2.0], [3.0]]), "same length"),
        (pa.array(["a", "b"]), "only columns of numbers"),
        (pa.array([["a"], ["b"]]), "only columns of numbers"),
    ],
)
def test_parquet_that_is_not_vectors(tmp_path: Path, column: pa.Array, message: str) -> None:
    pq.write_table(pa.table({"v": column}), tmp_path / "a.parquet")
    with pytest.raises(InvalidInput, match=message):
        read_array(f"{tmp_path}/a.parquet")


def test_damaged_parquet(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 nothing of the kind")
    with pytest.raises(InvalidInput, match=r"not a readable \.parquet"):
        read_array(f"{tmp_path}/a.parquet")


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.parquet").touch()
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[arrow\]' in a checkout"):
        read_array(f"{tmp_path}/a.parquet")
    with pytest.raises(MissingExtra, match=r"pip install '\.\[arrow\]' in a checkout"):
        check_format(tmp_path / "out.parquet")


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".parquet", ".NPY"])
def test_what_is_written_reads_back_exactly(tmp_path: Path, suffix: str) -> None:
    wild = (
        np.random.default_rng(0).standard_normal((50, 4)) * 10.0 ** np.arange(-150, 150, 6)[:, None]
    )
    path = tmp_path / f"a{suffix}"
    check_format(path)
    write_array(path, wild)
    np.testing.assert_array_equal(read_array(str(path)), wild)
    write_array(path, wild[0])
    np.testing.assert_array_equal(np.ravel(read_array(str(path))), wild[0])
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_unknown_output_format(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"must end in \.npy, \.npz, \.csv, \.parquet"):
        check_format(tmp_path / "a.mat")
