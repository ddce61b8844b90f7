"""What the names of Delta tables stand for: the plan of the newest version, for each session.

Spark asks on every lookup of a name.  The log is asked for its newest version each time; the plan
is kept as long as that version is, so that equal queries have equal plans.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from pyspark_delta.errors.table import TableNotFoundError
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.spark.allowed_places import allow_places
from pyspark_delta.spark.catalog import shown_schema
from pyspark_delta.spark.commands.read import chosen_snapshot, is_time_travel
from pyspark_delta.spark.jvm.catalog import SESSION_CATALOG, find_entry, path_table
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.path_catalog import PATH_CATALOG, PATH_DATABASE, version_in
from pyspark_delta.spark.jvm.plans import move_cached, table_plan
from pyspark_delta.spark.jvm.table_plan import has_hidden_struct, with_own_struct
from pyspark_delta.spark.options import DeltaOptions
from pyspark_delta.spark.reader import read_snapshot, session_zone
from pyspark_delta.spark.table_access import open_log

# Plans kept for each session, the one made longest ago going first.
_KEPT = 256


@dataclass(frozen=True, slots=True)
class _Made:
    identity: tuple[object, ...]
    plan: Any
    has_struct: bool


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
            snapshot = chosen_snapshot(self._spark, table, DeltaOptions())
            columns = shown_schema(snapshot.metadata.schema)
            handle = path_table(self._jvm, PATH_CATALOG, PATH_DATABASE, table, columns)
            is_older = is_time_travel(table, DeltaOptions(), snapshot)
            return self._plan(key, snapshot, handle, is_time_travel=is_older)
        version = version_in(catalog)
        if catalog != SESSION_CATALOG and version is None:
            return None
        entry = find_entry(self._jvm, database, table)
        if entry is None or not entry.is_delta or entry.location is None:
            return None
        allow_places(self._spark, entry.outside)
        asked = DeltaOptions({"versionAsOf": version})
        try:
            snapshot = chosen_snapshot(self._spark, entry.location, asked)
        except TableNotFoundError as error:
            raise TableNotFoundError("DELTA_TABLE_NOT_FOUND", tableName=entry.name) from error
        return self._plan(key, snapshot, entry.handle, is_time_travel=version is not None)

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
        self, key: tuple[str, str, str], snapshot: Snapshot, handle: Any, *, is_time_travel: bool
    ) -> Any:
        zone = session_zone(self._spark)
        root = snapshot.store.root_uri
        identity = (root, snapshot.metadata.id, snapshot.version, snapshot.last_commit.info, zone)
        made = self._made.get(key)
        if made is not None and made.identity == identity:
            # Twice in one query, each with row ids of its own to ask for.
            return with_own_struct(self._jvm, made.plan) if made.has_struct else made.plan
        rows = read_snapshot(self._spark, snapshot, is_time_travel=is_time_travel)
        plan = table_plan(self._jvm, rows, handle)
        self._made.pop(key, None)
        self._made[key] = _Made(identity, plan, has_hidden_struct(plan))
        while len(self._made) > _KEPT:
            self._made.pop(next(iter(self._made)), None)
        if made is not None and made.identity[:2] == identity[:2]:
            move_cached(self._jvm, made.plan, plan, key[-1])
        return plan
