"""VACUUM in a session: settings, an inventory from a DataFrame, a progress bar, and the result.

`kernel.ops.vacuum` decides which files to delete, and deletes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, LongType, StringType
from pyspark.sql.types import DataType as SparkType

from pyspark_delta.errors import OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.ops.vacuum.candidates import InventoryEntry
from pyspark_delta.kernel.ops.vacuum.run import VacuumOptions, VacuumRules, run_vacuum
from pyspark_delta.kernel.protocol.types import STRING, StructField, StructType
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.conf.progress import progress
from pyspark_delta.spark.conf.setting_table import (
    CHECK_RETENTION,
    USER_METADATA,
    VACUUM_IGNORE_HOURS,
    VACUUM_LITE,
    VACUUM_LOGGING,
    VACUUM_PARALLEL_DELETE,
    VACUUM_PARALLELISM,
)
from pyspark_delta.spark.jvm.failures import typed_jobs
from pyspark_delta.spark.results.local_frame import local_frame
from pyspark_delta.spark.tables.locations import hadoop_location

_THREADS = VacuumRules().threads
_MOST_THREADS = 128
VACUUM_SCHEMA = StructType((StructField("path", STRING),))
_INVENTORY: dict[str, SparkType] = {
    "path": StringType(),
    "length": LongType(),
    "isDir": BooleanType(),
    "modificationTime": LongType(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumRequest:
    """The arguments of a VACUUM; for `lite` None, the session's setting decides."""

    retention_hours: float | None = None
    dry_run: bool = False
    lite: bool | None = None
    inventory: DataFrame | None = None
    keep_versions: tuple[int, ...] = ()


@typed_jobs
def vacuum_table(spark: SparkSession, log: DeltaLog, request: VacuumRequest) -> DataFrame:
    """Run VACUUM; returns the table's path as a row, or in a dry run the files to delete."""
    lite = VACUUM_LITE.of(spark) if request.lite is None else request.lite
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
    with progress() as bar:
        done = run_vacuum(log, options, rules=_rules(spark), report=bar)
    if request.dry_run:
        paths = [hadoop_location(log.store.address(path)) for path in done.paths]
        return local_frame(spark, VACUUM_SCHEMA, [(path,) for path in paths])
    print(
        f"Deleted {done.num_deleted} files and directories "
        f"in a total of {done.num_directories} directories."
    )
    return local_frame(spark, VACUUM_SCHEMA, [(hadoop_location(log.store.root_uri),)])


def _rules(spark: SparkSession) -> VacuumRules:
    threads = 1
    if VACUUM_PARALLEL_DELETE.of(spark):  # deletions wait for storage and need no core
        threads = min(VACUUM_PARALLELISM.of(spark) or _THREADS, _MOST_THREADS)
    return VacuumRules(
        checks_retention=CHECK_RETENTION.of(spark),
        ignores_hours=VACUUM_IGNORE_HOURS.of(spark),
        records=VACUUM_LOGGING.of(spark),
        threads=threads,
        user_metadata=USER_METADATA.of(spark),
    )


def _entries(log: DeltaLog, inventory: DataFrame) -> Iterator[InventoryEntry]:
    """The rows of an inventory for files below the table's root."""
    columns = {f.name: f.dataType for f in inventory.schema if f.name in _INVENTORY}
    if columns != _INVENTORY:
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
            # A row without a type or a modification time is not usable.
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
    """The spellings of the root in inventories: Hadoop's, and the usual ones of local paths."""
    place = hadoop_location(log.store.root_uri)
    if not isinstance(log.store, LocalStore):
        return [place]
    path = log.store.root_path
    return [place, f"file://{path}", path]
