"""A round's reports as a Parquet file, written while it is sent."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from offaxis.collector.store import Store


class _Pipe(io.RawIOBase):
    """Keeps what is written until it is taken."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        part = bytes(memoryview(data))  # type: ignore[arg-type]
        self._parts.append(part)
        return len(part)

    def take(self) -> bytes:
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken


def parquet(store: Store, key: int, report_size: int) -> Iterator[bytes]:
    """Yield a Parquet file with the columns id, group and report, a row group at a time.

    The rows are in the order of ids, so the file does not tell who reported first.
    """
    schema = pa.schema(
        [
            pa.field("id", pa.binary(32), nullable=False),
            pa.field("group", pa.string()),
            pa.field("report", pa.binary(report_size), nullable=False),
        ]
    )
    pipe = _Pipe()
    # Ids and reports are nearly random: compressing them takes time and no bytes away.
    with pq.ParquetWriter(pa.PythonFile(pipe, mode="w"), schema, compression="none") as writer:
        for page in store.by_id(key):
            ids, labels, contents = zip(*page, strict=True)
            columns = [
                pa.array(map(bytes, ids), schema.field("id").type, size=len(ids)),
                pa.array(labels, pa.string()),
                pa.array(map(bytes, contents), schema.field("report").type, size=len(ids)),
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
            yield pipe.take()
    yield pipe.take()
