"""WRITE: append to a table, overwrite it, or create it, in one commit.

Columns go by name and are never cast by `save`: data of another type is refused.  The job runs
between the checks and the commit; when it fails, the table is as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.errors.table import (
    OperationNotAllowedError,
    SchemaError,
    TableAlreadyExistsError,
)
from pyspark_delta.kernel.log.frames import add_files
from pyspark_delta.kernel.protocol.actions import (
    Action,
    AddFile,
    Metadata,
    RemoveFile,
    SetTransaction,
)
from pyspark_delta.kernel.protocol.column_defaults import default_columns
from pyspark_delta.kernel.protocol.constraints import table_constraints
from pyspark_delta.kernel.protocol.features import check_writable
from pyspark_delta.kernel.protocol.generated_columns import generated_columns
from pyspark_delta.kernel.protocol.identity_columns import identity_columns
from pyspark_delta.kernel.protocol.operations import write
from pyspark_delta.kernel.protocol.properties import validate_properties
from pyspark_delta.kernel.protocol.schema_checks import check_data_columns, check_partition_columns
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.schema_merge import (
    as_nullable,
    check_no_duplicates,
    check_write_compatible,
    evolve_schema,
)
from pyspark_delta.kernel.protocol.types import (
    VOID,
    StructField,
    StructType,
    map_fields,
    walk_fields,
)
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.invariants import check_append_only
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.column_alignment import aligned
from pyspark_delta.spark.commands.write_options import WriteOptions
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.types import from_spark
from pyspark_delta.spark.writer import stage

SaveMode = Literal["append", "overwrite", "error", "ignore"]

_RECORDED_MODES: Mapping[str, str] = {
    "append": "Append",
    "overwrite": "Overwrite",
    "error": "ErrorIfExists",
    "ignore": "Ignore",
}
_USER_METADATA_CONF = "spark.databricks.delta.commitInfo.userMetadata"
_CHAR_KEY = "__CHAR_VARCHAR_TYPE_STRING"  # Spark's mark of CHAR(n) and VARCHAR(n)
# Metadata of a column that says how another table keeps it.
_FOREIGN_METADATA = ("delta.", "CURRENT_DEFAULT", "EXISTS_DEFAULT", "parquet.field.", _CHAR_KEY)


def run_write(
    spark: SparkSession,
    log: DeltaLog,
    data: DataFrame,
    *,
    mode: SaveMode = "error",
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> int | None:
    """Write `data` and give the version that has it; None when nothing was to be done."""
    asked = WriteOptions.parse(options or {})
    txn = log.start_transaction()
    if txn.snapshot is not None and mode == "error":
        raise TableAlreadyExistsError("DELTA_PATH_EXISTS", path=log.store.root_uri)
    if txn.snapshot is not None and mode == "ignore":
        return None
    if asked.txn is not None and txn.txn_version(asked.txn[0]) >= asked.txn[1]:
        return None
    schema = _data_schema(data)
    is_overwrite = mode == "overwrite"
    _define_table(txn, schema, partition_by, asked, is_overwrite=is_overwrite)
    _check_supported(txn)
    removes = _removed(txn, asked, log.now_ms()) if is_overwrite else []
    adds = stage(
        JvmSession(spark),
        log,
        aligned(data, txn.schema),
        txn.metadata,
        txn.protocol,
        options=asked.file_options,
        data_change=asked.data_change,
    )
    actions: list[Action] = [*removes, *adds]
    if asked.txn is not None:
        app_id, version = asked.txn
        actions.insert(0, SetTransaction(app_id=app_id, version=version, last_updated=log.now_ms()))
    operation = write(
        _RECORDED_MODES[mode],
        partition_by=_spelled(partition_by, txn.schema),
        can_overwrite_schema=asked.overwrite_schema if is_overwrite else None,
        can_merge_schema=asked.merge_schema,
        user_metadata=asked.user_metadata or spark.conf.get(_USER_METADATA_CONF, None),
    )
    return txn.commit(actions, operation, metrics=_metrics(adds, removes)).version


def _data_schema(data: DataFrame) -> StructType:
    """What the data brings: its columns without what ties them to the table they came from."""

    def own(f: StructField) -> StructField:
        kept = {
            key: value for key, value in f.metadata.items() if not key.startswith(_FOREIGN_METADATA)
        }
        return StructField(f.name, f.data_type, f.nullable, kept)

    schema = map_fields(from_spark(data.schema), own)
    assert isinstance(schema, StructType)
    check_no_duplicates(schema)
    return schema


def _define_table(
    txn: OptimisticTransaction,
    data: StructType,
    partition_by: Sequence[str],
    asked: WriteOptions,
    *,
    is_overwrite: bool,
) -> None:
    """Make the table fit the data as far as the user allows, or raise."""
    if not data.fields:
        raise SchemaError("DELTA_EMPTY_DATA")
    if txn.snapshot is None:
        check_partition_columns(data, partition_by)
        check_data_columns(data, partition_by)
        txn.update_metadata(_new_metadata(txn, data, partition_by, asked))
        return
    check_writable(txn.protocol, txn.log.store.root_uri)
    old = txn.metadata
    if is_overwrite and asked.overwrite_schema:
        check_partition_columns(data, partition_by)
        check_data_columns(data, partition_by)
        columns = _spelled(partition_by, data)
        if as_nullable(data) != old.schema or columns != old.partition_columns:
            schema_string = format_schema(as_nullable(data))
            txn.update_metadata(
                replace(old, schema_string=schema_string, partition_columns=columns),
                replaces_table=True,
            )
        return
    _check_partitions(old, data)
    if asked.merge_schema:
        merged = evolve_schema(old.schema, data)
        check_write_compatible(
            merged,
            data,
            table_id=old.id,
            table_partitions=old.partition_columns,
            data_partitions=partition_by,
        )
        if merged != old.schema:
            txn.update_metadata(replace(old, schema_string=format_schema(merged)))
        return
    check_write_compatible(
        old.schema,
        data,
        table_id=old.id,
        table_partitions=old.partition_columns,
        data_partitions=partition_by,
    )


def _new_metadata(
    txn: OptimisticTransaction, data: StructType, partition_by: Sequence[str], asked: WriteOptions
) -> Metadata:
    return Metadata(
        id=str(uuid4()),
        schema_string=format_schema(as_nullable(data)),
        partition_columns=_spelled(partition_by, data),
        configuration=dict(validate_properties(asked.properties)),
        created_time=txn.log.now_ms(),
    )


def _spelled(names: Sequence[str], schema: StructType) -> tuple[str, ...]:
    """Column names as the schema spells them."""
    return tuple(f.name if (f := schema.get(name)) else name for name in names)


def _check_partitions(table: Metadata, data: StructType) -> None:
    """Every row needs a value to be put by: null is one, a column that is not there is none."""
    for name in table.partition_columns:
        found = data.get(name)
        if found is None or found.data_type == VOID:
            raise SchemaError(
                "DELTA_PARTITION_COLUMN_NOT_FOUND",
                columnName=name,
                schemaMap=", ".join(data.names),
            )
    if table.partition_columns:
        check_data_columns(data, table.partition_columns)


def _check_supported(txn: OptimisticTransaction) -> None:
    """Refuse tables whose columns this command cannot check or fill in."""
    schema = txn.schema
    asks = (
        ("with constraints", table_constraints(txn.metadata)),
        ("with generated columns", generated_columns(schema)),
        ("with identity columns", identity_columns(schema)),
        ("with default values", default_columns(schema)),
        (
            "with CHAR or VARCHAR columns",
            [f for _, f in walk_fields(schema) if _CHAR_KEY in f.metadata],
        ),
    )
    for what, found in asks:
        if found:
            raise OperationNotAllowedError(
                "DELTA_OPERATION_NOT_ALLOWED", operation=f"A write to a table {what}"
            )


def _removed(txn: OptimisticTransaction, asked: WriteOptions, now_ms: int) -> list[RemoveFile]:
    removes = [
        file.remove(now_ms, data_change=asked.data_change) for file in add_files(txn.filter_files())
    ]
    if txn.snapshot is not None:
        check_append_only(removes, txn.snapshot.metadata, txn.log.store.root_uri)
    return removes


def _metrics(adds: Sequence[AddFile], removes: Sequence[RemoveFile]) -> dict[str, object]:
    return {
        "numFiles": len(adds),
        "numOutputBytes": sum(file.size for file in adds),
        "numOutputRows": sum(file.num_records or 0 for file in adds),
        "numRemovedFiles": len(removes),
        "numRemovedBytes": sum(file.size or 0 for file in removes),
    }
