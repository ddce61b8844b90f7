"""Tables with data files, written by hand: a log, and Parquet files of any shape."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyspark_delta.kernel.protocol.actions import (
    Action,
    AddFile,
    DeletionVectorDescriptor,
    Protocol,
)
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.kernel.scan.arrow_reader import ReadableSnapshot
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.storage.uris import encode_path
from tests.support.log_builder import SCHEMA, LogBuilder, metadata

VECTORS = ("deletionVectors",)


class DataTable:
    """A table under construction: `file` writes a data file, `commit` a version."""

    def __init__(
        self,
        store: LogStore,
        schema: StructType = SCHEMA,
        partition_columns: Iterable[str] = (),
        *,
        configuration: Mapping[str, str] | None = None,
        features: Sequence[str] = (),
        protocol: Protocol | None = None,
    ) -> None:
        self.store = store
        self._log = LogBuilder(store)
        if protocol is None and features:
            protocol = Protocol(
                min_reader_version=3,
                min_writer_version=7,
                reader_features=tuple(features),
                writer_features=tuple(features),
            )
        self._log.create(
            protocol=protocol,
            metadata_action=metadata(schema, partition_columns, configuration),
        )

    def file(
        self,
        path: str,
        rows: pa.Table | Mapping[str, Any],
        *,
        partition: Mapping[str, str | None] | None = None,
        vector: DeletionVectorDescriptor | None = None,
        stats: bool = False,
        written: bool = True,
        **options: Any,
    ) -> AddFile:
        """Write `rows` to `path`, which is decoded, and give the action that adds the file."""
        table = rows if isinstance(rows, pa.Table) else pa.table(rows)
        sink = io.BytesIO()
        pq.write_table(table, sink, **options)
        if written:
            self.store.create(path, sink.getvalue())
        return AddFile(
            path=encode_path(path),
            partition_values=dict(partition or {}),
            size=len(sink.getvalue()),
            modification_time=1_700_000_000_000,
            data_change=True,
            stats=statistics(table) if stats else None,
            deletion_vector=vector,
        )

    def commit(self, *actions: Action | str) -> DataTable:
        self._log.commit(*actions)
        return self

    @property
    def snapshot(self) -> ReadableSnapshot:
        return ReadableSnapshot.load(self.store, now_ms=lambda: 0)


def statistics(table: pa.Table) -> str:
    """Exact statistics of the top-level numbers and texts."""
    known = [f.name for f in table.schema if not pa.types.is_nested(f.type)]
    bounds = {name: pc.min_max(table.column(name)).as_py() for name in known}
    value = {
        "numRecords": table.num_rows,
        "minValues": {name: found["min"] for name, found in bounds.items()},
        "maxValues": {name: found["max"] for name, found in bounds.items()},
        "nullCount": {name: table.column(name).null_count for name in known},
    }
    return json.dumps(value)
