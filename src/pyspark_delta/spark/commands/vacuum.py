"""VACUUM in a session: its settings, an inventory that is a DataFrame, a bar, and the result.

What may be deleted is decided, and deleted, in `kernel.ops.vacuum`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, LongType, StringType
from pyspark.sql.types import DataType as SparkType

from pyspark_delta.errors.table import OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.ops.vacuum import VacuumOptions, run_vacuum
from pyspark_delta.kernel.ops.vacuum_candidates import InventoryEntry
from pyspark_delta.kernel.ops.vacuum_retention import VacuumRules
from pyspark_delta.kernel.protocol.types import STRING, StructField, StructType
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.commands.convert_target import is_on
from pyspark_delta.spark.commands.user_metadata import session_user_metadata
from pyspark_delta.spark.local_frame import local_frame
from pyspark_delta.spark.progress import progress
from pyspark_delta.spark.table_access import hadoop_location

_DELTA = "spark.databricks.delta."
CHECKS_RETENTION = f"{_DELTA}retentionDurationCheck.enabled"
IGNORES_HOURS = f"{_DELTA}vacuum.retentionWindowIgnore.enabled"
RECORDS = f"{_DELTA}vacuum.logging.enabled"
IS_LITE = f"{_DELTA}vacuum.lite.enabled"
DELETES_IN_PARALLEL = f"{_DELTA}vacuum.parallelDelete.enabled"
PARALLELISM = f"{_DELTA}vacuum.parallelDelete.parallelism"

_THREADS = VacuumRules().threads
_MOST_THREADS = 128
_RESULT = StructType((StructField("path", STRING),))
_INVENTORY: dict[str, SparkType] = {
    "path": StringType(),
    "length": LongType(),
    "isDir": BooleanType(),
    "modificationTime": LongType(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumRequest:
    """What a user asks for; `lite` is None where the session's setting is to decide."""

    retention_hours: float | None = None
    dry_run: bool = False
    lite: bool | None = None
    inventory: DataFrame | None = None
    keep_versions: tuple[int, ...] = ()


def vacuum_table(spark: SparkSession, log: DeltaLog, request: VacuumRequest) -> DataFrame:
    """Run it; the table's path as a row, in a dry run what would go."""
    lite = is_on(spark, IS_LITE, False) if request.lite is None else request.lite
    if request.lite and request.inventory is not None:
        raise OperationNotAllowedError(
            "DELTA_OPERATION_NOT_ALLOWED", operation="VACUUM LITE with an inventory"
        )
    options = VacuumOptions(
        retention_hours=request.retention_hours,
        dry_run=request.dry_run,
        lite=lite,
        inventory=None if request.inventory is None else _entries(log, request.inventory),
        keep_versions=request.keep_versions,
    )
    with progress() as shown:
        done = run_vacuum(log, options, rules=_rules(spark), tell=shown)
    if request.dry_run:
        paths = [hadoop_location(log.store.address(path)) for path in done.paths]
        return local_frame(spark, _RESULT, [(path,) for path in paths])
    print(
        f"Deleted {done.num_deleted} files and directories "
        f"in a total of {done.num_directories} directories."
    )
    return local_frame(spark, _RESULT, [(hadoop_location(log.store.root_uri),)])


def _rules(spark: SparkSession) -> VacuumRules:
    records = spark.conf.get(RECORDS, None)
    return VacuumRules(
        checks_retention=is_on(spark, CHECKS_RETENTION),
        ignores_hours=is_on(spark, IGNORES_HOURS),
        records=None if records is None else records.lower() == "true",
        threads=_threads(spark),
        user_metadata=session_user_metadata(spark),
    )


def _threads(spark: SparkSession) -> int:
    """How many deletions go at once: several, unless the session says otherwise.

    They wait for the storage and cost no core, so that there is no reason to ask for them first.
    """
    if not is_on(spark, DELETES_IN_PARALLEL):
        return 1
    asked = spark.conf.get(PARALLELISM, None) or ""
    return min(max(int(asked), 1), _MOST_THREADS) if asked.isdecimal() else _THREADS


def _entries(log: DeltaLog, inventory: DataFrame) -> Iterator[InventoryEntry]:
    """The rows of an inventory that are about files below the table's root."""
    found = {f.name: f.dataType for f in inventory.schema if f.name in _INVENTORY}
    if found != _INVENTORY:
        needs = ", ".join(f"{name} {kind.simpleString()}" for name, kind in _INVENTORY.items())
        raise SchemaError("DELTA_INVALID_INVENTORY_SCHEMA", expectedSchema=needs)
    prefixes = [f"{place}/" for place in _spellings(log)]
    below = F.lit(False)
    for prefix in prefixes:
        below = below | F.startswith(F.col("path"), F.lit(prefix))
    rows = inventory.select(*_INVENTORY).where(below).toArrow()
    return _read(rows.to_batches(), prefixes)


def _read(batches: Sequence[pa.RecordBatch], prefixes: list[str]) -> Iterator[InventoryEntry]:
    for batch in batches:
        for path, size, is_directory, modified_ms in zip(
            *(batch.column(name).to_pylist() for name in _INVENTORY), strict=True
        ):
            # A row that does not say what it is about, or how old it is, says nothing.
            if is_directory is None or (modified_ms is None and not is_directory):
                continue
            start = next(len(prefix) for prefix in prefixes if path.startswith(prefix))
            yield InventoryEntry(
                path=path[start:],
                size=size or 0,
                is_directory=is_directory,
                modified_ms=modified_ms or 0,
            )


def _spellings(log: DeltaLog) -> list[str]:
    """How an inventory may spell the root: as Hadoop does, and local ones as anybody does."""
    place = hadoop_location(log.store.root_uri)
    if not isinstance(log.store, LocalStore):
        return [place]
    path = log.store.root_path
    return [place, f"file://{path}", path]
