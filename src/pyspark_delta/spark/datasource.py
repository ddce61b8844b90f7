"""The Python data source `delta`: the way in without `enable`, and through Spark Connect.

Spark 4 imports every package called `pyspark_*` in search of a `DefaultSource`, also in sessions
that never touch Delta.  So this module imports next to nothing, and what reads and writes is
loaded when a table is named.  Reads, appends and overwrites by path; rows pass through Arrow and
Python, which is right and slower than the native path of an enabled session.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pyspark_delta.errors.table import OperationNotAllowedError

_READER = "pyspark_delta.spark.datasource_reader"
_WRITER = "pyspark_delta.spark.datasource_writer"


class DefaultSource(DataSource):
    """Delta tables by path, wherever this package is installed and nothing else was done.

    Spark sends an instance from process to process; the table and the version that `schema` chose
    go along, so that a DataFrame reads one version however often it is run.
    """

    _pinned: tuple[str, int] | None = None

    @classmethod
    def name(cls) -> str:
        """What `format(...)` takes."""
        return "delta"

    def schema(self) -> StructType:
        """The columns of the version asked for, which is pinned from here on."""
        schema: StructType
        self._pinned, schema = _part(_READER).chosen_version(self.options)
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Spark's reader of the pinned version."""
        reader: DataSourceReader = _part(_READER).reader_for(self.options, self._pinned, schema)
        return reader

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Spark's writer; what the table refuses is refused here, before any job."""
        writer: DataSourceWriter = _part(_WRITER).writer_for(self.options, schema, overwrite)
        return writer

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Not through this API."""
        raise needs_enabling("A stream from a Delta table")

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Not through this API."""
        raise needs_enabling("A stream into a Delta table")


def needs_enabling(operation: str) -> OperationNotAllowedError:
    """The error for what a Python data source cannot do and an enabled session can."""
    return OperationNotAllowedError(
        "DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG", operation=operation
    )


def _part(module: str) -> Any:
    return import_module(module)
