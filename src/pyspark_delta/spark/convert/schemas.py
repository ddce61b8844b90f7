"""The schemas of files put together into that of a table.

Spark writes its schema into the footers of its files.  Of files that others wrote, Spark itself
says what it takes their columns for: it is asked about one file of each layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_delta.errors.table import DataFileError, SchemaError
from pyspark_delta.kernel.ops.parquet_footers import Layout
from pyspark_delta.kernel.protocol.schema_json import parse_schema
from pyspark_delta.kernel.protocol.schema_merge import (
    as_nullable,
    check_no_duplicates,
    merge_schemas,
)
from pyspark_delta.kernel.protocol.types import StructField, StructType, map_fields
from pyspark_delta.spark.convert.manifest import FileManifest
from pyspark_delta.spark.jvm.failures import JAVA_FAILURES
from pyspark_delta.spark.table_access import hadoop_location
from pyspark_delta.spark.types import from_spark

_COMMENT = "comment"
_DUPLICATES = "DELTA_DUPLICATE_COLUMNS_FOUND"
_SPARK_DUPLICATES = "COLUMN_ALREADY_EXISTS"
# One file, and nothing read out of the names of its directories.
_ONE_FILE = {"recursiveFileLookup": "true", "__globPaths__": "false"}


class SchemaMerge:
    """The merged schema of the layouts seen so far, in the order they came in."""

    def __init__(self, spark: SparkSession, manifest: FileManifest) -> None:
        self._spark = spark
        self._manifest = manifest
        self._schema = StructType(())
        self._merged = 0

    def add(self, layouts: Sequence[Layout], paths: Sequence[str]) -> None:
        """Merge what is new among all layouts so far; each has a path of a file that has it."""
        for layout, path in zip(layouts[self._merged :], paths[self._merged :], strict=True):
            schema = self._schema_of(layout, path)
            try:
                check_no_duplicates(schema, f"{_DUPLICATES}.CONVERT_TO_DELTA")
                self._schema = merge_schemas(self._schema, schema)
            except SchemaError as error:
                error.add_note(f"The file is {self._manifest.uri(path)}: {schema.simple_string}")
                raise
            self._merged += 1

    def schema(self) -> StructType:
        """The merged schema; SchemaError when no file has a column."""
        if not self._schema.fields:
            raise SchemaError("DELTA_FAILED_INFER_SCHEMA")
        return self._schema

    def _schema_of(self, layout: Layout, path: str) -> StructType:
        if layout.spark_schema is not None:
            try:
                return _plain(parse_schema(layout.spark_schema))
            except SchemaError as error:
                if error.condition == _DUPLICATES:
                    raise self._duplicates(path, error.parameters["duplicateCols"]) from error
                # Else it has a type that we have no name for.
        location = hadoop_location(self._manifest.uri(path))
        try:
            read = self._spark.read.format("parquet").options(**_ONE_FILE).load(location)
            return _plain(from_spark(read.schema))
        except JAVA_FAILURES as error:
            if isinstance(error, PySparkException) and error.getCondition() == _SPARK_DUPLICATES:
                name = (error.getMessageParameters() or {}).get("columnName", "").strip("`")
                raise self._duplicates(path, name) from error
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise DataFileError(
                "DELTA_CONVERT_UNREADABLE_COLUMNS",
                file=self._manifest.uri(path),
                reason=reason[:500],
            ) from error

    def _duplicates(self, path: str, name: str) -> SchemaError:
        error = SchemaError(f"{_DUPLICATES}.CONVERT_TO_DELTA", duplicateCols=name)
        error.add_note(f"The file is {self._manifest.uri(path)}")
        return error


def _plain(schema: StructType) -> StructType:
    """The schema as a new table takes it: all nullable, and of the metadata only comments."""
    plain = map_fields(as_nullable(schema), _with_comment_only)
    assert isinstance(plain, StructType)
    return plain


def _with_comment_only(field: StructField) -> StructField:
    kept: Mapping[str, Any] = {
        key: value for key, value in field.metadata.items() if key == _COMMENT
    }
    return StructField(field.name, field.data_type, field.nullable, kept)
