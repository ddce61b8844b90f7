"""The part of `DeltaTable` that says what the table is, and hands its rows to others as Arrow.

No Spark job runs for any of it: the log is read here, and so are the files.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType as SparkStructType

from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.scan.arrow_reader import read_planned
from pyspark_delta.kernel.scan.arrow_types import arrow_schema
from pyspark_delta.kernel.scan.locations import IS_ABSOLUTE, LOCATION, Locations
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.allowed_places import allowed_stores
from pyspark_delta.spark.reader import session_zone
from pyspark_delta.spark.scan_columns import shown_schema
from pyspark_delta.spark.spark_errors import raises_spark_errors
from pyspark_delta.spark.types import to_spark


@raises_spark_errors
class TableFacts(ABC):
    """What a handle tells of its table's newest version."""

    _spark: SparkSession

    @abstractmethod
    def _whole_log(self) -> DeltaLog:
        """The log, for a question that is about the whole table."""

    def version(self) -> int:
        """The newest version's number."""
        return self._whole_log().update().version

    def schema(self) -> SparkStructType:
        """The columns, as Spark writes them down."""
        return to_spark(shown_schema(self._whole_log().update().schema))

    def metadata(self) -> Metadata:
        """The table's definition: id, name, columns, partitions, properties."""
        return self._whole_log().update().metadata

    def protocol(self) -> Protocol:
        """What clients of the table must know."""
        return self._whole_log().update().protocol

    def fileUris(self) -> list[str]:
        """The addresses of all data files, for tools that copy or count them.

        With deletion vectors a file may hold rows that the table has no more.
        """
        snapshot = self._whole_log().update()
        locations = Locations(snapshot.store, allowed_stores(self._spark))
        found = locations.resolve(snapshot.files.column("path"))
        return [
            location if is_absolute else snapshot.store.address(location)
            for location, is_absolute in zip(
                found.column(LOCATION).to_pylist(),
                found.column(IS_ABSOLUTE).to_pylist(),
                strict=True,
            )
        ]

    def toArrow(self, columns: Iterable[str] | None = None, filter: str | None = None) -> pa.Table:
        """The rows for which `filter` is true, in this process and without a Spark job."""
        return self._reader(columns, filter).read_all()

    def toArrowReader(
        self, columns: Iterable[str] | None = None, filter: str | None = None
    ) -> pa.RecordBatchReader:
        """As `toArrow`, a batch at a time: for tables that are larger than memory."""
        return self._reader(columns, filter)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows for whoever takes Arrow: polars, DuckDB, pandas, pyarrow."""
        return self._reader(None, None).__arrow_c_stream__(requested_schema)

    def _reader(self, columns: Iterable[str] | None, filter: str | None) -> pa.RecordBatchReader:
        snapshot = self._whole_log().update()
        allowed = allowed_stores(self._spark)
        zone = session_zone(self._spark)
        plan = snapshot.plan(columns, filter, allowed_roots=allowed, time_zone=zone)
        batches = read_planned(plan, snapshot.store, allowed_roots=allowed)
        return pa.RecordBatchReader.from_batches(arrow_schema(plan.schema), batches)
