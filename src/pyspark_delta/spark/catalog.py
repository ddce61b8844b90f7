"""Names of tables: in Spark's session catalog, or `delta.`/path`` for one that is in no catalog.

>>> is_path_name(("delta", "/data/events")), is_path_name(("delta", "events"))
(True, False)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from pyspark_delta.errors.table import (
    OperationNotAllowedError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.types import (
    CHAR_VARCHAR_KEY,
    StructField,
    StructType,
    map_fields,
)
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.allowed_places import allow_places
from pyspark_delta.spark.catalog_properties import is_told, metastore_properties
from pyspark_delta.spark.jvm.catalog import (
    SESSION_CATALOG,
    CatalogEntry,
    current_catalog,
    current_database,
    entry_properties,
    find_entry,
    is_temporary_view,
    parse_name,
    replace_properties,
    replace_schema,
)
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.table_access import open_log

UPDATE_METASTORE = "spark.databricks.delta.catalog.update.enabled"
"""The setting: whether commits by name tell the metastore a table's properties too."""

_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.\-]+:/")
# What Spark itself reads of a column's metadata; how Delta keeps it is nobody's affair there.
_SHOWN_METADATA = ("comment", CHAR_VARCHAR_KEY)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableName:
    """What a name means: a path, or a place in the session catalog and the entry found there.

    `database` is None for the current one.
    """

    path: str | None = None
    database: str | None = None
    table: str = ""
    entry: CatalogEntry | None = None

    @property
    def shown(self) -> str:
        """The name for messages and the history."""
        if self.path is not None:
            return f"delta.`{self.path}`"
        if self.entry is not None:
            return self.entry.name
        return ".".join(part for part in (SESSION_CATALOG, self.database, self.table) if part)

    @property
    def is_delta(self) -> bool:
        """Whether it is a path, or the name of a Delta table that exists."""
        return self.path is not None or (self.entry is not None and self.entry.is_delta)

    @property
    def location(self) -> str | None:
        """Where the table is, when that is known."""
        return self.path if self.entry is None else self.entry.location


def is_path_name(parts: Sequence[str]) -> bool:
    """Whether a name is of the form `delta.`/path``."""
    return len(parts) == 2 and parts[0].lower() == "delta" and bool(_ABSOLUTE.match(parts[1]))


def look_up(spark: SparkSession, name: str | Sequence[str]) -> TableName | None:
    """What a name means; None when it belongs to another catalog than Spark's own.

    The name may be of a table that does not exist.  Temporary views are not looked at.
    """
    jvm = JvmSession(spark)
    parts = parse_name(jvm, name) if isinstance(name, str) else tuple(name)
    if is_path_name(parts):
        return TableName(path=parts[1])
    if len(parts) == 3 and parts[0].lower() == SESSION_CATALOG:
        parts = parts[1:]
    elif len(parts) > 2 or current_catalog(jvm).lower() != SESSION_CATALOG:
        return None
    database = parts[0] if len(parts) == 2 else None
    entry = find_entry(jvm, database, parts[-1])
    if entry is not None:
        allow_places(spark, entry.outside)
    return TableName(database=database, table=parts[-1], entry=entry)


def look_up_relation(spark: SparkSession, name: str | Sequence[str]) -> TableName | None:
    """As `look_up`, for reads and inserts, where a temporary view stands before a table."""
    jvm = JvmSession(spark)
    parts = parse_name(jvm, name) if isinstance(name, str) else tuple(name)
    if not is_path_name(parts) and is_temporary_view(jvm, parts):
        return None
    return look_up(spark, parts)


def resolve_table(spark: SparkSession, name: str | Sequence[str]) -> TableName:
    """The Delta table of that name; TableNotFoundError when there is none."""
    found = look_up_relation(spark, name)
    if found is None or (found.path is None and found.entry is None):
        shown = name if isinstance(name, str) else ".".join(name)
        raise TableNotFoundError("DELTA_TABLE_NOT_FOUND", tableName=shown)
    if not found.is_delta:
        raise TableNotFoundError("DELTA_MISSING_DELTA_TABLE", tableName=found.shown)
    return found


def quoted_parts(parts: Sequence[str]) -> str:
    """A name as Spark's errors show it: as it was written, every part in backquotes."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def already_there(spark: SparkSession, name: TableName) -> TableAlreadyExistsError:
    """What creating a table says that exists, in the name that was asked for."""
    return TableAlreadyExistsError(
        "TABLE_OR_VIEW_ALREADY_EXISTS", relationName=_relation_name(spark, name)
    )


def not_there(spark: SparkSession, name: TableName) -> TableNotFoundError:
    """What replacing a table says that does not exist."""
    return TableNotFoundError(
        "TABLE_OR_VIEW_NOT_FOUND",
        relationName=_relation_name(spark, name),
        searchPath=f"[{quoted_parts((SESSION_CATALOG, current_database(JvmSession(spark))))}]",
    )


def _relation_name(spark: SparkSession, name: TableName) -> str:
    if name.path is not None:
        return quoted_parts(("delta", name.path))
    return quoted_parts((name.database or current_database(JvmSession(spark)), name.table))


def table_log(spark: SparkSession, name: str) -> DeltaLog:
    """The log of the Delta table of that name."""
    return log_of(spark, resolve_table(spark, name))


def log_of(spark: SparkSession, table: TableName) -> DeltaLog:
    """The log of a table whose location is known."""
    if table.location is None:
        raise OperationNotAllowedError(
            "DELTA_OPERATION_NOT_ALLOWED", operation=f"{table.shown}, which has no location,"
        )
    log = open_log(spark, table.location)
    if table.entry is not None and table.entry.is_sparks_own and not log.table_exists:
        raise without_log(table.entry)
    return log


def without_log(entry: CatalogEntry) -> TableNotFoundError:
    """What the use of a table raises whose definition is in the catalog, and nothing else."""
    if not entry.is_sparks_own:
        return TableNotFoundError("DELTA_TABLE_NOT_FOUND", tableName=entry.name)
    statement = f"CREATE TABLE IF NOT EXISTS {quoted_parts(entry.parts)} USING delta"
    return TableNotFoundError("DELTA_TABLE_WITHOUT_LOG", tableName=entry.name, statement=statement)


def shown_schema(schema: StructType) -> StructType:
    """A table's columns as the catalog keeps them."""

    def plain(f: StructField) -> StructField:
        kept = {key: value for key, value in f.metadata.items() if key in _SHOWN_METADATA}
        return StructField(f.name, f.data_type, f.nullable, kept)

    shown = map_fields(schema, plain)
    assert isinstance(shown, StructType)
    return shown


def tells_metastore(spark: SparkSession) -> bool:
    """Whether the catalog is to know properties too."""
    return (spark.conf.get(UPDATE_METASTORE, "false") or "").lower() == "true"


def show_columns(spark: SparkSession, table: TableName, snapshot: Snapshot | None = None) -> None:
    """Let the catalog show the columns that the newest version has, which may be known already.

    With UPDATE_METASTORE set it gets the properties as well, for programs that ask it alone.
    """
    if table.entry is None or not table.entry.is_delta:
        return
    jvm = JvmSession(spark)
    snapshot = log_of(spark, table).update() if snapshot is None else snapshot
    replace_schema(jvm, table.entry, shown_schema(snapshot.metadata.schema))
    if tells_metastore(spark):
        properties = metastore_properties(snapshot)
        if not is_told(entry_properties(jvm, table.entry), properties):
            replace_properties(jvm, table.entry, properties, snapshot.metadata.description)
