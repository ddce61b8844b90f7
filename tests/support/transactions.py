"""Small builders for tests of transactions: tables in memory, files that exist in the log alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyspark_delta.kernel.log.table_log import TableLog
from pyspark_delta.kernel.protocol.action_parts import DeletionVectorDescriptor
from pyspark_delta.kernel.protocol.actions import Action, AddFile, Metadata, RemoveFile
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import INTEGER, LONG, STRING, StructField, StructType
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.storage.memory import MemoryStore
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.hooks import HookRunner
from tests.support.clock import FrozenClock
from tests.support.hooks import InlineRunner

TABLE = "tä ble 100%"
NO_HOOKS = InlineRunner(())


def schema_of(*partitions: str) -> StructType:
    """A table of two columns behind partition columns of whole numbers."""
    columns = [StructField(name, INTEGER) for name in partitions]
    return StructType((*columns, StructField("id", LONG), StructField("value", STRING)))


def metadata(*partitions: str, **changes: Any) -> Metadata:
    """Metadata of `schema_of`; `configuration` and other fields as `changes`."""
    fields: dict[str, Any] = {
        "id": "a-table",
        "schema_string": format_schema(schema_of(*partitions)),
        "partition_columns": partitions,
        "created_time": 0,
    }
    return Metadata(**{**fields, **changes})


def add(path: str, partition: Mapping[str, str | None] | None = None, **changes: Any) -> AddFile:
    """A file of ten rows; its partition values are those in its path unless they are given."""
    if partition is None:
        steps = path.split("/")[:-1]
        partition = dict(tuple(step.split("=", 1)) for step in steps)  # type: ignore[misc]
    fields: dict[str, Any] = {
        "path": path,
        "partition_values": partition,
        "size": 100,
        "modification_time": 1,
        "data_change": True,
        "stats": '{"numRecords":10}',
    }
    return AddFile(**{**fields, **changes})


def remove(path: str, **changes: Any) -> RemoveFile:
    """The tombstone of a file made by `add`."""
    data_change = changes.pop("data_change", True)
    return add(path, **changes).remove(deletion_timestamp=5, data_change=data_change)


def vector(name: str = "ab", cardinality: int = 1) -> DeletionVectorDescriptor:
    """A deletion vector that nobody will read."""
    return DeletionVectorDescriptor(
        storage_type="u",
        path_or_inline_dv=name.ljust(20, "x"),
        offset=1,
        size_in_bytes=36,
        cardinality=cardinality,
    )


def memory_log(
    store: LogStore | None = None,
    *,
    clock: Callable[[], int] | None = None,
    hooks: HookRunner = NO_HOOKS,
    **settings: Any,
) -> DeltaLog:
    """A log in memory, without hooks unless they are given."""
    now_ms = clock or FrozenClock()
    store = store or MemoryStore(None, TABLE, now_ms=now_ms)
    return DeltaLog(store, now_ms=now_ms, hooks=hooks, **settings)


def new_table(
    *partitions: str,
    actions: Iterable[Action] = (),
    configuration: Mapping[str, str] | None = None,
    log: DeltaLog | None = None,
) -> DeltaLog:
    """A table at version 0, and at version 1 when there are `actions`."""
    log = log or memory_log()
    transaction = log.start_transaction()
    transaction.update_metadata(metadata(*partitions, configuration=configuration or {}))
    transaction.commit([], "CREATE TABLE")
    files = tuple(actions)
    if files:
        log.start_transaction().commit(files, "WRITE")
    return log


def live_paths(log: TableLog) -> list[str]:
    """The paths of the newest version, sorted."""
    return sorted(log.update().files.column("path").to_pylist())
