"""Rows of a table's files that know where they are: for commands that change rows one by one.

Beside the table's columns a row has the number of its file and its position in it, and where rows
are tracked its id and version.  Rows can be left out by their position, as if a deletion vector
named them: what is left of a file after others were taken needs no join and no second look at a
condition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from pyspark_delta.kernel.log.chosen_files import ChosenFiles
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector
from pyspark_delta.kernel.protocol.row_tracking import materialized_columns
from pyspark_delta.kernel.protocol.types import LONG, StructField
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.allowed_places import allowed_stores
from pyspark_delta.spark.chosen_rows import ChosenSource
from pyspark_delta.spark.deleted_rows import row_bits
from pyspark_delta.spark.jvm.file_index import scan_plan
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans import plan_frame
from pyspark_delta.spark.jvm.scan_rule import VECTOR
from pyspark_delta.spark.jvm.table_plan import (
    TableColumn,
    metadata_name,
    quoted_name,
    with_columns,
    without_deleted_rows,
)
from pyspark_delta.spark.reader import prepare_for, session_zone
from pyspark_delta.spark.scan_columns import files_schema, table_columns
from pyspark_delta.spark.snapshot_source import BASE_ROW_ID, ROW_VERSION

FILE, ROW = "__delta_file", "__delta_row"
"""The columns that say which file a row is in, by its number, and where in it, from 0."""

_NO_ROWS: Mapping[str, DeletionVector] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedRows:
    """The rows of `files`, a table of add actions; a row's file is a position in that table.

    `frame` has the columns of the table, `FILE` and `ROW`, and where rows are tracked the two
    materialized columns of PROTOCOL.md, "Row Tracking", under their names in files.
    """

    files: pa.Table = field(hash=False)
    frame: DataFrame = field(hash=False)


def located_rows(
    jvm: JvmSession,
    txn: OptimisticTransaction,
    files: pa.Table,
    *,
    without: Mapping[str, DeletionVector] = _NO_ROWS,
    metadata: Metadata | None = None,
) -> LocatedRows:
    """The live rows of `files` but those of `without`, which names rows by a file's path.

    The vectors of `without` hold all rows of their file that are not wanted, those that are
    deleted already too.  The columns are those of `metadata`, by default the table's before the
    transaction.
    """
    snapshot = txn.snapshot
    assert snapshot is not None
    store, metadata = snapshot.store, metadata or snapshot.metadata
    chosen = ChosenFiles(store, files, protocol=snapshot.protocol, metadata=metadata)
    source = _LocatedSource(jvm, chosen, files.column("path"), without)
    mode = mapping_mode(metadata)
    prepare_for(jvm, mode)
    scanned = files_schema(metadata.schema, mode)
    columns = list(table_columns(metadata.schema, mode))
    hidden = metadata_name(scanned.names)
    columns.append(TableColumn(name=FILE, expression=FILE))
    columns.append(TableColumn(name=ROW, expression=f"{hidden}.row_index"))
    if source.tracks_rows:
        row_id, version = materialized_columns(metadata, store.root_uri)
        scanned = scanned.add(StructField(row_id, LONG), StructField(version, LONG))
        own_id = f"coalesce({quoted_name(row_id)}, {BASE_ROW_ID} + {hidden}.row_index)"
        columns.append(TableColumn(name=row_id, expression=own_id))
        own_version = f"coalesce({quoted_name(version)}, {ROW_VERSION})"
        columns.append(TableColumn(name=version, expression=own_version))
    plan = scan_plan(jvm, source, scanned)
    if source.has_vectors:
        plan = without_deleted_rows(jvm, plan, VECTOR, hidden)
    return LocatedRows(files=files, frame=plan_frame(jvm, with_columns(jvm, plan, columns)))


class _LocatedSource(ChosenSource):
    """Files that each come with a number, and perhaps with other deleted rows than the log's."""

    keeps_files_apart = True

    def __init__(
        self,
        jvm: JvmSession,
        files: ChosenFiles,
        paths: pa.ChunkedArray,
        without: Mapping[str, DeletionVector],
    ) -> None:
        self._without = without
        self._paths = paths.combine_chunks()
        self.snapshot = files
        zone = session_zone(jvm.spark)
        super().__init__(files, zone, allowed=lambda: allowed_stores(jvm.spark))
        self._partition_schema = self._partition_schema.add(StructField(FILE, LONG))

    def _may_hide_rows(self) -> bool:
        return bool(self._without) or super()._may_hide_rows()

    def _bits_of_files(self, files: pa.Table) -> list[bytes | None]:
        found = super()._bits_of_files(files)
        given = map(self._without.get, files.column("path").to_pylist())
        return [
            own if vector is None else row_bits(vector)
            for own, vector in zip(found, given, strict=True)
        ]

    def _more_values(self, files: pa.Table) -> list[list[Any]]:
        numbers = pc.index_in(files.column("path"), value_set=self._paths)
        return [numbers.to_pylist()]
