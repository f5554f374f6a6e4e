from __future__ import annotations

import hashlib
import io
from datetime import date, timedelta
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from experiments import data
from experiments.data import lhsm
from experiments.data.cache import fingerprint
from experiments.data.sets import MeterReadings
from offaxis.errors import InvalidInput


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> MeterReadings:
    return data.load("lhsm", cache=tmp_path_factory.mktemp("empty"))


def test_the_bundled_readings_are_complete(bundled: MeterReadings) -> None:
    assert bundled.energy.shape == (5560, 829)
    assert bundled.energy.dtype == np.float32
    assert bundled.first_day == date(2011, 11, 23)
    assert bundled.households[:2] == ("MAC000002", "MAC000003")
    assert list(bundled.households) == sorted(bundled.households)
    present = ~np.isnan(bundled.energy)
    assert present.sum() == 3_469_352
    assert present.any(axis=1).all()
    assert np.nanmin(bundled.energy) == 0
    assert np.nanmax(bundled.energy) == pytest.approx(6.928, abs=1e-6)
    assert np.nanmean(bundled.energy, dtype=float) == pytest.approx(0.211765, abs=1e-6)


def test_the_bundled_file_has_the_hash_in_its_readme() -> None:
    folder = files("experiments").joinpath("data")
    content = folder.joinpath(lhsm.BUNDLED).read_bytes()
    readme = folder.joinpath("README.md").read_text(encoding="utf-8")
    assert len(content) <= 3_000_000
    assert f"{len(content):,}" in readme
    assert hashlib.sha256(content).hexdigest() in readme
    for words in ("UK Power Networks", "Low Carbon London", "CC BY 4.0"):
        assert words in readme


@pytest.fixture
def readings() -> MeterReadings:
    """Return readings of meters that resolve 1 Wh, with gaps and a household of extremes."""
    rng = np.random.default_rng(7)
    energy = (rng.integers(0, 90_000, (6, 40)) / 48_000).astype(np.float32)
    energy[rng.random(energy.shape) < 0.2] = np.nan
    energy[2, :4] = [0, 6.928, 0, 6.928]
    energy[0, 0] = energy[5, 39] = 0.5
    names = ("MAC000002", "MAC000003", "MAC000010", "MAC001000", "MAC004999", "MAC005567")
    return MeterReadings(names, date(2011, 11, 23), energy)


def test_packing_rounds_by_half_a_step_at_most(readings: MeterReadings) -> None:
    file = io.BytesIO()
    lhsm.pack(readings, file)
    file.seek(0)
    with np.load(file) as arrays:
        expected = fingerprint({name: arrays[name] for name in arrays.files})
    back = lhsm.unpack(io.BytesIO(file.getvalue()), expected)
    assert back.households == readings.households
    assert back.first_day == readings.first_day
    assert back.step == lhsm.STEP
    np.testing.assert_array_equal(np.isnan(back.energy), np.isnan(readings.energy))
    assert np.nanmax(np.abs(back.energy - readings.energy)) <= lhsm.STEP / 2 + 1e-6
    with pytest.raises(InvalidInput, match="damaged"):
        lhsm.unpack(io.BytesIO(file.getvalue()), "another")


HEADER = (
    "LCLid,day,energy_median,energy_mean,energy_max,energy_count,energy_std,energy_sum,energy_min"
)


def lines_of(readings: MeterReadings) -> list[str]:
    """Return a line for every reading; missing days get an incomplete line or none."""
    lines = []
    for row, household in enumerate(readings.households):
        for column, value in enumerate(readings.energy[row].tolist()):
            day = readings.first_day + timedelta(days=column)
            if not np.isnan(value):
                lines.append(f"{household},{day},0.1,{value!r},0.9,48,0.1,{48 * value},0.0")
            elif column % 2:
                lines.append(f"{household},{day},0.1,0.777,0.9,47,,36.5,0.0")
    return lines


def test_a_local_table_gives_the_same_grid(
    readings: MeterReadings, cache: Path, tmp_path: Path
) -> None:
    # A household without a complete day gets no row; a first day that no household has complete
    # gets a column.
    extra = ["MAC000001,2011-12-01,0,0.3,0,1,,0.3,0", "MAC000002,2011-11-22,0,0.3,0,24,,0.3,0"]
    lines = [*lines_of(readings), *extra]
    table = tmp_path / "daily_dataset.csv"
    table.write_text("\n".join([HEADER, *lines]) + "\n")
    blocks = tmp_path / "archive" / "daily_dataset" / "daily_dataset"
    blocks.mkdir(parents=True)
    for block in range(3):
        text = "\n".join([HEADER, *lines[block::3]])
        (blocks / f"block_{block}.csv").write_text(text + "\n")
    for local in (table, tmp_path, blocks, tmp_path / "archive"):
        data.get("lhsm", local=local)
        loaded = data.load("lhsm")
        assert loaded.households == readings.households
        assert loaded.first_day == date(2011, 11, 22)
        assert loaded.step == 0
        assert np.isnan(loaded.energy[:, 0]).all()
        np.testing.assert_array_equal(loaded.energy[:, 1:], readings.energy)
    assert {e.name: e.state for e in data.status()}["lhsm"] == "local copy"
    path = cache / "lhsm.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InvalidInput, match="damaged; delete it"):
        data.load("lhsm")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("LCLid,day,energy_mean\n", "no column energy_count"),
        ("", "no column LCLid"),
        (HEADER + "\n", "no day with 48"),
        (HEADER + "\nMAC000002,2012-13-01,0,0.3,0,48,0,0,0\n", "line 2"),
        (HEADER + "\nMAC000002,2012-12-01,0,much,0,48,0,0,0\n", "line 2"),
        (HEADER + "\nMAC000002,2012-12-01\n", "line 2"),
    ],
)
def test_an_invalid_table_is_an_error(cache: Path, tmp_path: Path, text: str, words: str) -> None:
    table = tmp_path / "mine.csv"
    table.write_text(text)
    with pytest.raises(InvalidInput, match=words):
        data.get("lhsm", local=table)


def test_a_folder_without_tables_is_an_error(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"neither daily_dataset\.csv nor"):
        data.get("lhsm", local=tmp_path)
