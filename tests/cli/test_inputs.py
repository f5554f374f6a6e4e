"""Inputs and outputs of the commands: paths, arrays and models."""

from __future__ import annotations

import builtins
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from offaxis.cli.inputs import (
    check_format,
    check_input,
    check_new,
    check_output,
    load_model,
    locate,
    read_array,
    read_csv,
    read_targets,
    write_array,
)
from offaxis.errors import InvalidInput, MissingExtra, UnsupportedModel
from offaxis.geometry import Layers
from tests.cli.conftest import CLASSES, DIM

# ---- Paths


def test_an_output_path_that_cannot_be_written_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="it is a folder"):
        check_output(tmp_path)
    with pytest.raises(InvalidInput, match=r"folder .* not found"):
        check_output(tmp_path / "nowhere" / "out")


def test_a_missing_input_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="file not found"):
        check_input(tmp_path / "missing")
    with pytest.raises(InvalidInput, match="file not found"):
        check_input(tmp_path)


def test_an_existing_file_is_replaced_only_with_force(tmp_path: Path) -> None:
    check_new(tmp_path / "new", "it is gone", force=False)
    with pytest.raises(InvalidInput, match=r"already exists, and it is gone; .* or use --force"):
        check_new(tmp_path, "it is gone", force=False)
    check_new(tmp_path, "it is gone", force=True)


def test_an_input_is_never_overwritten(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.touch()
    (tmp_path / "same").hardlink_to(source)
    check_output(tmp_path / "out", source, tmp_path / "missing")
    with pytest.raises(InvalidInput, match="is an input of this command"):
        check_output(tmp_path / "same", source)


# ---- Arrays


VALUES = np.array([[0.1, -2.0, 3.5], [4.0, 5.25, -6.0]])


def test_npy_files_are_memory_mapped(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", VALUES)
    array = read_array(str(tmp_path / "a.npy"))
    assert isinstance(array, np.memmap)
    np.testing.assert_array_equal(array, VALUES)


def test_npz_with_one_array_needs_no_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", anything=VALUES)
    np.testing.assert_array_equal(read_array(f"{tmp_path}/a.npz"), VALUES)


def test_an_npz_array_is_selected_by_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", first=VALUES, second=2 * VALUES)
    np.testing.assert_array_equal(read_array(f"{tmp_path}/a.npz:second"), 2 * VALUES)
    with pytest.raises(InvalidInput, match=r"holds 2 arrays; select one of first, second as"):
        read_array(f"{tmp_path}/a.npz")
    with pytest.raises(InvalidInput, match=r"holds no array 'third'; select one of first, second"):
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


def test_damaged_and_misnamed_files_are_rejected(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", VALUES)
    np.savez(tmp_path / "a.npz", VALUES)
    array = (tmp_path / "a.npy").read_bytes()
    archive = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "cut.npy").write_bytes(array[:-5])
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "cut.npz").write_bytes(archive[:-30])
    (tmp_path / "wrong.npy").write_bytes(archive)
    (tmp_path / "wrong.npz").write_bytes(array)
    for name, message in {
        "cut.npy": "not a readable .npy",
        "empty.npy": "not a readable .npy",
        "cut.npz": "not a readable .npz",
        "wrong.npy": "not a readable .npy",
        "wrong.npz": "rename it to end in .npy",
        "missing.npy": "file not found",
        "a.txt": "must be a file of type .npy, .npz, .csv, .parquet",
    }.items():
        with pytest.raises(InvalidInput, match=message):
            read_array(str(tmp_path / name))


def test_a_single_number_is_not_an_array_of_vectors(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", 3.0)
    with pytest.raises(InvalidInput, match="single number"):
        read_array(str(tmp_path / "a.npy"))


def test_parquet_columns_of_lists(tmp_path: Path) -> None:
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(VALUES.ravel()), 3)
    for kind in (pa.list_(pa.float32()), pa.large_list(pa.float64())):
        lists = pa.array(VALUES.tolist(), type=kind)
        pq.write_table(pa.table({"v": lists}), tmp_path / "a.parquet")
        np.testing.assert_allclose(read_array(f"{tmp_path}/a.parquet"), VALUES, rtol=1e-6)
    pq.write_table(pa.table({"name": ["x", "y"], "v": fixed, "w": fixed}), tmp_path / "b.parquet")
    np.testing.assert_array_equal(read_array(f"{tmp_path}/b.parquet:v"), VALUES)
    with pytest.raises(InvalidInput, match=r"select one of name, v, w as .*b.parquet:column"):
        read_array(f"{tmp_path}/b.parquet")
    with pytest.raises(InvalidInput, match="no column 'u'; it has name, v, w"):
        read_array(f"{tmp_path}/b.parquet:u")


def test_parquet_columns_of_numbers(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.5, 2.5], "y": [3, 4]}), tmp_path / "a.parquet")
    np.testing.assert_array_equal(read_array(f"{tmp_path}/a.parquet"), [[1.5, 3], [2.5, 4]])
    labels = read_targets(f"{tmp_path}/a.parquet:y")
    np.testing.assert_array_equal(labels, [3, 4])
    assert labels.dtype.kind == "i"


def test_parquet_files_with_many_row_groups_keep_the_order(tmp_path: Path) -> None:
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
def test_parquet_files_without_vectors_are_rejected(
    tmp_path: Path, column: pa.Array, message: str
) -> None:
    pq.write_table(pa.table({"v": column}), tmp_path / "a.parquet")
    with pytest.raises(InvalidInput, match=message):
        read_array(f"{tmp_path}/a.parquet")


def test_damaged_parquet_files_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 nothing of the kind")
    with pytest.raises(InvalidInput, match=r"not a readable \.parquet"):
        read_array(f"{tmp_path}/a.parquet")


def test_parquet_without_pyarrow_names_the_extra(
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
def test_written_arrays_read_back_exactly(tmp_path: Path, suffix: str) -> None:
    values = (
        np.random.default_rng(0).standard_normal((50, 4)) * 10.0 ** np.arange(-150, 150, 6)[:, None]
    )
    path = tmp_path / f"a{suffix}"
    check_format(path)
    write_array(path, values)
    np.testing.assert_array_equal(read_array(str(path)), values)
    write_array(path, values[0])
    np.testing.assert_array_equal(np.ravel(read_array(str(path))), values[0])
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_an_unknown_output_format_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"must end in \.npy, \.npz, \.csv, \.parquet"):
        check_format(tmp_path / "a.mat")


# ---- .csv files


def write_csv(path: Path, text: str, encoding: str = "utf-8") -> Path:
    file = path / "a.csv"
    file.write_bytes(text.encode(encoding))
    return file


@pytest.mark.parametrize(
    "text",
    [
        "1.5,2\n3,-4e2\n",
        "x,y\n1.5,2\n3,-4e2\n",
        '"first, really",y\r\n1.5,2\r\n3,-4e2\r\n',
        "\n\n1.5,2\n\n3,-4e2",
        " 1.5 , 2 \n3, -4e2\n",
    ],
)
def test_csv_files_with_and_without_a_header(tmp_path: Path, text: str) -> None:
    np.testing.assert_array_equal(read_csv(write_csv(tmp_path, text)), [[1.5, 2.0], [3.0, -400.0]])


def test_a_byte_order_mark_is_not_a_header(tmp_path: Path) -> None:
    table = read_csv(write_csv(tmp_path, "1,2\n3,4\n", "utf-8-sig"))
    np.testing.assert_array_equal(table, [[1, 2], [3, 4]])


def test_one_row_and_one_column_keep_their_shape(tmp_path: Path) -> None:
    assert read_csv(write_csv(tmp_path, "1.5,2,3\n")).shape == (1, 3)
    assert read_csv(write_csv(tmp_path, "1.5\n2\n3\n")).shape == (3, 1)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("label\n3\n1\n", "i"),
        ("-3\n+1\n", "i"),
        ("3.0\n1\n", "f"),
        ("3e0\n1\n", "f"),
        ("90071992547409930\n1\n", "f"),
        ("nan\n1\n", "f"),
        ("1.5.x\n3\n", "i"),
    ],
)
def test_numbers_without_a_decimal_point_are_integers(tmp_path: Path, text: str, kind: str) -> None:
    assert read_csv(write_csv(tmp_path, text)).dtype.kind == kind


def test_missing_numbers_are_kept_for_the_release_to_reject(tmp_path: Path) -> None:
    assert np.isnan(read_csv(write_csv(tmp_path, "nan,2\n3,inf\n"))[0, 0])


def test_a_file_with_only_a_header_is_an_empty_table(tmp_path: Path) -> None:
    assert read_csv(write_csv(tmp_path, "x,y\n")).size == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("0,1,2\n0.5,0.5,0.5\n", "column names or a vector"),
        (",x,y\n0,1.5,2\n", "neither numbers nor column names"),
        ("1.5,N/A\n3,4\n", "neither numbers nor column names"),
        ("1.5,\n3,4\n", "neither numbers nor column names"),
        ("1.5,2\n3,n/a\n", "not a table of numbers"),
        ("1.5,2\n3\n", "not a table of numbers"),
        ("1.5;2\n3;4\n", "not a table of numbers"),
    ],
)
def test_ambiguous_or_malformed_csv_files_are_rejected(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_csv(write_csv(tmp_path, text))


def test_binary_data_in_a_csv_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe\x00\x01\n")
    with pytest.raises(InvalidInput, match="not a table of numbers"):
        read_csv(tmp_path / "a.csv")


@pytest.mark.parametrize("text", ["1,2\n3,secret99\n", "0.5,secret99\n1,2\n"])
def test_an_error_locates_a_bad_cell_without_showing_it(tmp_path: Path, text: str) -> None:
    """The cell may be private, and messages may end up in logs."""
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        read_csv(path)
    assert "secret99" not in str(caught.value)
    assert "0.5" not in str(caught.value)
    assert "row" in str(caught.value)


# ---- Models


SOURCE = f"""
import functools
import numpy as np
import torch
from offaxis.geometry import FiniteDifferences, Layers

matrix = np.ones(({CLASSES}, {DIM}))
network = torch.nn.Linear({DIM}, {CLASSES})
class Box:
    head = Layers.linear(2 * matrix)
def make(): return Layers.linear(3 * matrix)
def optional(scale=4): return Layers.linear(scale * matrix)
def needs(something): return something
def function(): return FiniteDifferences(lambda Z: 5 * Z)
nothing = None
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "their_models.py").write_text(SOURCE)
    (tmp_path / "broken.py").write_text("import not_installed_anywhere")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "their_models", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "factor"), [("matrix", 1), ("Box.head", 2), ("make", 3), ("optional", 4)]
)
def test_import_paths_are_searched_in_the_current_folder(
    home: Path, name: str, factor: float
) -> None:
    before = list(sys.path)
    model = load_model(f"their_models:{name}")
    np.testing.assert_allclose(model.outputs(np.ones((2, DIM))), factor * DIM)
    assert sys.path == before


def test_a_torch_module_is_not_called_as_a_factory(home: Path) -> None:
    assert load_model("their_models:network").identity().kind == "torch"
    assert load_model("their_models:function").identity().kind == "function"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("their_models:absent", "no attribute 'absent'"),
        ("their_models:needs", "takes arguments"),
        ("their_models:Box", "is a class"),
        ("not_a_module:x", "cannot import not_a_module"),
        ("broken:x", "not_installed_anywhere"),
        ("weights.pth", "unpickled"),
        ("model.joblib", "unpickled"),
        ("nothing recognisable", "must be an import path package.module:attribute"),
        ("missing.safetensors", "file not found: missing.safetensors"),
        ("missing.pt2", "file not found: missing.pt2"),
    ],
)
def test_a_model_that_cannot_be_loaded_is_rejected_with_the_fix(
    home: Path, source: str, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        load_model(source)


def test_an_attribute_that_is_not_a_model_is_rejected(home: Path) -> None:
    with pytest.raises(UnsupportedModel, match="NoneType"):
        load_model("their_models:nothing")


def test_weights_files_are_loaded(home: Path, small_head: Layers) -> None:
    small_head.save("head.safetensors")
    assert load_model("head.safetensors").identity() == small_head.identity()
    Path("bad.safetensors").write_bytes(b"not weights")
    with pytest.raises(InvalidInput, match="not a readable weights file"):
        load_model("bad.safetensors")


@pytest.fixture(scope="module")
def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(DIM, 4), torch.nn.ReLU(), torch.nn.Linear(4, CLASSES)
    ).eval()


def test_exported_programs_are_differentiated(home: Path, network: torch.nn.Module) -> None:
    from offaxis.geometry import as_task_model

    program = torch.export.export(
        network, (torch.randn(4, DIM),), dynamic_shapes=({0: torch.export.Dim("batch")},)
    )
    torch.export.save(program, "net.pt2")
    model = load_model("net.pt2")
    Z = np.random.default_rng(0).standard_normal((20, DIM))
    np.testing.assert_allclose(model.outputs(Z[:1]), as_task_model(network).outputs(Z[:1]), 1e-5)
    np.testing.assert_allclose(model.jacobians(Z), as_task_model(network).jacobians(Z), 1e-5, 1e-6)


def test_programs_exported_for_one_batch_size_are_rejected(
    home: Path, network: torch.nn.Module
) -> None:
    torch.export.save(torch.export.export(network, (torch.randn(4, DIM),)), "fixed.pt2")
    with pytest.raises(InvalidInput, match=r"exactly 4 vectors; export it with dynamic_shapes"):
        load_model("fixed.pt2")


def test_damaged_exported_programs_are_rejected(home: Path) -> None:
    Path("bad.pt2").write_bytes(b"not a program")
    with pytest.raises(InvalidInput, match=r"not a readable torch\.export file"):
        load_model("bad.pt2")


def test_exported_programs_without_torch_name_the_extra(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("net.pt2").touch()
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "torch":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[torch\]' in a checkout of offaxis"):
        load_model("net.pt2")
