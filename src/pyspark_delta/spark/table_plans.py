"""What the names of Delta tables stand for: a plan that follows the table, for each session.

Spark asks on every lookup of a name.  The plan is kept as long as the table's definition is the
same, so that equal queries have equal plans; which version a query reads is decided when it is
planned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from pyspark_delta.errors.table import TableNotFoundError
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.allowed_places import allow_places
from pyspark_delta.spark.cached_rows import refresh_cached
from pyspark_delta.spark.catalog import shown_schema, without_log
from pyspark_delta.spark.commands.read import (
    chosen_snapshot,
    chosen_version,
    is_time_travel,
    read_version,
)
from pyspark_delta.spark.jvm.catalog import SESSION_CATALOG, find_entry, path_table
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.path_catalog import PATH_CATALOG, PATH_DATABASE, version_in
from pyspark_delta.spark.jvm.plans import move_cached, table_plan
from pyspark_delta.spark.jvm.table_plan import has_hidden_struct, with_own_struct
from pyspark_delta.spark.options import DeltaOptions
from pyspark_delta.spark.reader import session_zone
from pyspark_delta.spark.table_access import open_log

# Plans kept for each session, the one made longest ago going first.
_KEPT = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """A plan, and what it was made of; another version of the same definition may use it."""

    snapshot: Snapshot
    zone: str
    is_time_travel: bool
    plan: Any
    has_struct: bool

    def serves(self, snapshot: Snapshot, zone: str, *, is_time_travel: bool) -> bool:
        """Whether the plan is that of a read of `snapshot`."""
        mine = self.snapshot
        if snapshot is mine:
            same = True
        elif is_time_travel or mine.store.root_uri != snapshot.store.root_uri:
            same = False
        else:
            same = mine.metadata == snapshot.metadata and mine.protocol == snapshot.protocol
        return same and (zone, is_time_travel) == (self.zone, self.is_time_travel)


class TablePlans:
    """The plans of one session's tables.  Safe to share between threads."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._jvm = JvmSession(spark)
        self._made: dict[tuple[str, str, str], _Made] = {}

    def find_plan(self, catalog: str, database: str, table: str) -> Any:
        """The plan of a Delta table by its whole name; None when it is none."""
        key = (catalog, database, table)
        if catalog == PATH_CATALOG:
            log, snapshot = chosen_version(self._spark, table, DeltaOptions())
            columns = shown_schema(snapshot.metadata.schema)
            handle = path_table(self._jvm, PATH_CATALOG, PATH_DATABASE, table, columns)
            is_older = is_time_travel(table, DeltaOptions(), snapshot)
            return self._plan(key, log, snapshot, handle, is_time_travel=is_older)
        version = version_in(catalog)
        if catalog != SESSION_CATALOG and version is None:
            return None
        entry = find_entry(self._jvm, database, table)
        if entry is None or not entry.is_delta or entry.location is None:
            return None
        allow_places(self._spark, entry.outside)
        asked = DeltaOptions({"versionAsOf": version})
        try:
            log, snapshot = chosen_version(self._spark, entry.location, asked)
        except TableNotFoundError as error:
            raise without_log(entry) from error
        return self._plan(key, log, snapshot, entry.handle, is_time_travel=version is not None)

    def is_table(self, path: str) -> bool:
        """Whether there is a Delta table at a path, at the version that the path may name."""
        try:
            chosen_snapshot(self._spark, path, DeltaOptions())
        except TableNotFoundError:
            return False
        return True

    def columns_of(self, path: str) -> StructType:
        """The columns of the table at a path, as Spark shows them."""
        return shown_schema(chosen_snapshot(self._spark, path, DeltaOptions()).metadata.schema)

    def version_at(self, path: str, time_ms: int | None) -> int:
        """The version that was the newest at a time; the newest of all for None."""
        log = open_log(self._spark, path)
        if not log.table_exists:
            raise TableNotFoundError("DELTA_TABLE_NOT_FOUND", tableName=path)
        if time_ms is None:
            return log.update().version
        return log.version_at(time_ms, zone=session_zone(self._spark))

    def path_of(self, database: str, table: str) -> str:
        """Where the Delta table of that name is."""
        entry = find_entry(self._jvm, database, table)
        if entry is None or not entry.is_delta or entry.location is None:
            raise TableNotFoundError("DELTA_MISSING_DELTA_TABLE", tableName=f"{database}.{table}")
        return entry.location

    def _plan(
        self,
        key: tuple[str, str, str],
        log: DeltaLog,
        snapshot: Snapshot,
        handle: Any,
        *,
        is_time_travel: bool,
    ) -> Any:
        zone = session_zone(self._spark)
        made = self._made.get(key)
        if made is not None and made.serves(snapshot, zone, is_time_travel=is_time_travel):
            if not is_time_travel:
                refresh_cached(self._jvm, log.store.root_uri, snapshot.version)
            # Twice in one query, each with row ids of its own.
            return with_own_struct(self._jvm, made.plan) if made.has_struct else made.plan
        rows = read_version(self._spark, log, snapshot, is_time_travel)
        plan = table_plan(self._jvm, rows, handle)
        self._made.pop(key, None)
        self._made[key] = _Made(
            snapshot=snapshot,
            zone=zone,
            is_time_travel=is_time_travel,
            plan=plan,
            has_struct=has_hidden_struct(plan),
        )
        while len(self._made) > _KEPT:
            self._made.pop(next(iter(self._made)), None)
        if made is not None and _is_same_table(made.snapshot, snapshot):
            move_cached(self._jvm, made.plan, plan, key[-1])
        return plan


def _is_same_table(old: Snapshot, new: Snapshot) -> bool:
    return (old.store.root_uri, old.metadata.id) == (new.store.root_uri, new.metadata.id)
