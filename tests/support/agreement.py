"""One table, two readers: the kernel and deltalake must say the same of it, down to the rows.

deltalake reads through DataFusion: its other reader, over pyarrow datasets, knows neither column
mapping nor deletion vectors, and now and then aborts a process that is about to end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.schema_json import parse_schema
from pyspark_delta.kernel.scan.arrow_reader import ReadableSnapshot
from pyspark_delta.kernel.storage.uris import decode_path
from tests.support.tables import table_log

Row = Mapping[str, Any]


def plain(value: Any) -> Any:
    """A value that is equal to another exactly when both stand for the same."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case float() if value == 0:
            return str(value)  # zero has a sign
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC).isoformat()
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
    return value


def sorted_rows(rows: Iterable[Row]) -> list[Row]:
    """Rows in an order that does not depend on who read them."""
    return sorted((plain(dict(row)) for row in rows), key=repr)


def kernel_rows(path: Path, filter: str | None = None) -> list[Row]:
    """What the kernel reads of the newest version."""
    return _rows_of(table_log(path).snapshot, filter)


def deltalake_rows(path: Path, filter: str | None = None) -> list[Row]:
    """What deltalake reads of the newest version."""
    return _peer_rows(DeltaTable(path), filter)


def live_paths(snapshot: Snapshot) -> list[str]:
    """The live files below the table's root, decoded."""
    paths = snapshot.files_with(["path"]).column("path").to_pylist()
    return sorted(map(decode_path, paths))


def deltalake_paths(table: DeltaTable, path: Path) -> list[str]:
    """The same as deltalake has them, for the table at `path`."""
    root = quote(str(path)) + "/"
    uris = table.file_uris()
    assert all(uri.startswith(root) for uri in uris)
    return sorted(uri.removeprefix(root) for uri in uris)


def agree(
    path: Path, expected: pa.Table | Iterable[Row] | None = None, *, version: int | None = None
) -> list[Row]:
    """The rows of a version, the newest by default, on which both agree, and `expected` too."""
    log = table_log(path)
    snapshot = log.snapshot if version is None else log.snapshot_at(version)
    peer = DeltaTable(path, version=version)
    assert snapshot.version == peer.version()
    assert snapshot.schema == parse_schema(peer.schema().to_json())
    metadata, protocol = peer.metadata(), peer.protocol()
    assert list(snapshot.metadata.partition_columns) == metadata.partition_columns
    assert dict(snapshot.metadata.configuration) == metadata.configuration
    assert snapshot.protocol.min_reader_version == protocol.min_reader_version
    assert snapshot.protocol.min_writer_version == protocol.min_writer_version
    assert live_paths(snapshot) == deltalake_paths(peer, path)
    ours = _rows_of(snapshot)
    assert ours == _peer_rows(peer)
    if expected is not None:
        rows = expected.to_pylist() if isinstance(expected, pa.Table) else expected
        assert ours == sorted_rows(rows)
    return ours


def _rows_of(snapshot: ReadableSnapshot, filter: str | None = None) -> list[Row]:
    return sorted_rows(snapshot.to_table(filter=filter).to_pylist())


def _peer_rows(table: DeltaTable, filter: str | None = None) -> list[Row]:
    query = "select * from t" + (f" where {filter}" if filter else "")
    found = QueryBuilder().register("t", table).execute(query).read_all()
    return sorted_rows(pa.table(found).to_pylist())
