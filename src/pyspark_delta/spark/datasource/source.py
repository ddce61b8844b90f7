"""The Python data source `delta`, for sessions without `enable` and for Spark Connect.

Spark 4 imports every package called `pyspark_*` in search of a `DefaultSource`, also in sessions
that never use Delta.  So this module imports almost nothing, and loads the code for reads and
writes when a table is used.  It reads, appends and overwrites by path; rows pass through Arrow and
Python, which is correct and slower than the native path of an enabled session.
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

from pyspark_delta.errors import OperationNotAllowedError

_READER = "pyspark_delta.spark.datasource.reader"
_WRITER = "pyspark_delta.spark.datasource.writer"


class DefaultSource(DataSource):
    """Delta tables by path, wherever this package is installed, without `enable`.

    Spark sends an instance from process to process.  The instance carries the table and the version
    that `schema` chose, so that a DataFrame reads one version however often it runs.
    """

    _pinned: tuple[str, int] | None = None

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return "delta"

    def schema(self) -> StructType:
        """The columns of the chosen version, which is pinned from here on."""
        schema: StructType
        self._pinned, schema = _part(_READER).pin_version(self.options)
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        reader: DataSourceReader = _part(_READER).reader_for(self.options, self._pinned, schema)
        return reader

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Spark's writer; raises before any job for data that the table cannot take."""
        writer: DataSourceWriter = _part(_WRITER).writer_for(self.options, schema, overwrite)
        return writer

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        raise needs_enabling("A stream from a Delta table")

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        raise needs_enabling("A stream into a Delta table")


class OwnNameSource(DefaultSource):
    """The same under another name.

    A JVM that has an enabled session finds Java's source for the format `delta`, in its other
    sessions too.
    """

    @classmethod
    def name(cls) -> str:
        return "pyspark_delta_by_path"


def needs_enabling(operation: str) -> OperationNotAllowedError:
    """The error for an operation that needs an enabled session."""
    return OperationNotAllowedError(
        "DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG", operation=operation
    )


def _part(module: str) -> Any:
    return import_module(module)
