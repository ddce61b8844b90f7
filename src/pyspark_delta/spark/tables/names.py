"""Names of tables: looked up in Spark's session catalog, or `delta.`/path`` outside of any catalog.

Also what the catalog keeps of a table besides its log: columns, and properties for a metastore.

>>> is_path_name(("delta", "/data/events")), is_path_name(("delta", "events"))
(True, False)
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pyspark.sql import SparkSession

from pyspark_delta.errors import (
    OperationNotAllowedError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.column_mapping import logical_path
from pyspark_delta.kernel.protocol.domains import clustering_columns
from pyspark_delta.kernel.protocol.features import in_listing_order, is_supported
from pyspark_delta.kernel.protocol.paths import LOG_DIRECTORY
from pyspark_delta.kernel.protocol.properties import (
    FEATURE_PREFIX,
    MIN_READER_VERSION,
    MIN_WRITER_VERSION,
    PROPERTIES,
)
from pyspark_delta.kernel.protocol.types import (
    CHAR_VARCHAR_KEY,
    StructField,
    StructType,
    map_fields,
)
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.kernel.sql.quoting import quoted_path
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.conf.setting_table import UPDATE_CATALOG
from pyspark_delta.spark.jvm.catalog.entries import (
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
from pyspark_delta.spark.tables.locations import allow_places, ancestors, open_log

_LAST_VERSION, _LAST_TIME = "delta.lastUpdateVersion", "delta.lastCommitTimestamp"
_CLUSTERING_KEY = "clusteringColumns"
_CLUSTERING_FEATURE = "clustering"
_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.\-]+:/")
# The column metadata that Spark itself reads; Delta's own does not go into the catalog.
_CATALOG_METADATA = ("comment", CHAR_VARCHAR_KEY)
# Directories inside tables, or beside tables, where the search for a root ends.
_NOT_IN_A_TABLE = (LOG_DIRECTORY, "_samples")


def listed_properties(snapshot: Snapshot) -> dict[str, str]:
    """The properties for SHOW and the metastore, with protocol and clustering, sorted by keys."""
    protocol = snapshot.protocol
    features = (*(protocol.reader_features or ()), *(protocol.writer_features or ()))
    found = {
        **{key: value or "" for key, value in snapshot.metadata.configuration.items()},
        MIN_READER_VERSION.key: str(protocol.min_reader_version),
        MIN_WRITER_VERSION.key: str(protocol.min_writer_version),
        **{f"{FEATURE_PREFIX}{name}": "supported" for name in in_listing_order(features)},
    }
    if is_supported(protocol, _CLUSTERING_FEATURE):
        found[_CLUSTERING_KEY] = json.dumps(logical_clustering(snapshot), separators=(",", ":"))
    return {key: found[key] for key in sorted(found)}


def settable_properties(configuration: Mapping[str, str | None]) -> dict[str, str]:
    """The properties that a user can set."""
    return {
        key: value or ""
        for key, value in configuration.items()
        if key not in PROPERTIES or PROPERTIES[key].settable
    }


def logical_clustering(snapshot: Snapshot) -> list[tuple[str, ...]]:
    """The clustering columns by their logical names."""
    schema, mode = snapshot.metadata.schema, mapping_mode(snapshot.metadata)
    columns = clustering_columns(snapshot.domains) or ()
    return [tuple(logical_path(schema, path, mode)) for path in columns]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableName:
    """A resolved name: a path, or a name in the session catalog with its entry.

    `database` is None for the current one.
    """

    path: str | None = None
    database: str | None = None
    table: str = ""
    entry: CatalogEntry | None = None

    @property
    def label(self) -> str:
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
        """The table's location, if it is known."""
        return self.path if self.entry is None else self.entry.location


def is_path_name(parts: Sequence[str]) -> bool:
    """Whether a name is of the form `delta.`/path``."""
    return len(parts) == 2 and parts[0].lower() == "delta" and bool(_ABSOLUTE.match(parts[1]))


def look_up(spark: SparkSession, name: str | Sequence[str]) -> TableName | None:
    """The table of that name; None when the name belongs to another catalog than Spark's own.

    The table need not exist.  Temporary views are ignored.
    """
    jvm = JvmSession(spark)
    parts = _parts(jvm, name)
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
    """As `look_up`, for reads and inserts, where a temporary view hides a table."""
    jvm = JvmSession(spark)
    parts = _parts(jvm, name)
    if not is_path_name(parts) and is_temporary_view(jvm, parts):
        return None
    return look_up(spark, parts)


def resolve_table(spark: SparkSession, name: str | Sequence[str]) -> TableName:
    """The Delta table of that name; TableNotFoundError when there is none."""
    found = look_up_relation(spark, name)
    if found is None or (found.path is None and found.entry is None):
        label = name if isinstance(name, str) else ".".join(name)
        raise TableNotFoundError("DELTA_TABLE_NOT_FOUND", tableName=label)
    if not found.is_delta:
        raise TableNotFoundError("DELTA_MISSING_DELTA_TABLE", tableName=found.label)
    return found


def table_exists_error(spark: SparkSession, name: TableName) -> TableAlreadyExistsError:
    """The error for creating a table that exists, with the name from the statement."""
    relation = _relation_name(spark, name)
    return TableAlreadyExistsError("TABLE_OR_VIEW_ALREADY_EXISTS", relationName=relation)


def missing_table_error(spark: SparkSession, name: TableName) -> TableNotFoundError:
    """The error for replacing a table that does not exist."""
    relation = _relation_name(spark, name)
    database = quoted_path((SESSION_CATALOG, current_database(JvmSession(spark))))
    return TableNotFoundError(
        "TABLE_OR_VIEW_NOT_FOUND", relationName=relation, searchPath=f"[{database}]"
    )


def table_log(spark: SparkSession, name: str) -> DeltaLog:
    """The log of the Delta table of that name."""
    return log_of(spark, resolve_table(spark, name))


def log_of(spark: SparkSession, table: TableName) -> DeltaLog:
    """The log of a table whose location is known."""
    if table.location is None:
        operation = f"{table.label}, which has no location,"
        raise OperationNotAllowedError("DELTA_OPERATION_NOT_ALLOWED", operation=operation)
    log = open_log(spark, table.location)
    if table.entry is not None and table.entry.is_sparks_own and not log.table_exists:
        raise missing_log_error(table.entry)
    return log


def missing_log_error(entry: CatalogEntry) -> TableNotFoundError:
    """The error for a table with an entry in the catalog and no log."""
    if not entry.is_sparks_own:
        return TableNotFoundError("DELTA_TABLE_NOT_FOUND", tableName=entry.name)
    statement = f"CREATE TABLE IF NOT EXISTS {quoted_path(entry.parts)} USING delta"
    return TableNotFoundError("DELTA_TABLE_WITHOUT_LOG", tableName=entry.name, statement=statement)


def schema_for_catalog(schema: StructType) -> StructType:
    """A table's columns as the catalog keeps them."""

    def plain(f: StructField) -> StructField:
        kept = {key: value for key, value in f.metadata.items() if key in _CATALOG_METADATA}
        return StructField(f.name, f.data_type, f.nullable, kept)

    plain_schema = map_fields(schema, plain)
    assert isinstance(plain_schema, StructType)
    return plain_schema


def update_entry(spark: SparkSession, table: TableName, snapshot: Snapshot | None = None) -> None:
    """Write the columns of the newest version into the catalog; `snapshot` is that one, if known.

    With UPDATE_CATALOG set the properties too, for programs that read the catalog alone; they
    include the version and time that they are from.
    """
    if table.entry is None or not table.entry.is_delta:
        return
    jvm = JvmSession(spark)
    snapshot = log_of(spark, table).update() if snapshot is None else snapshot
    replace_schema(jvm, table.entry, schema_for_catalog(snapshot.metadata.schema))
    if UPDATE_CATALOG.of(spark):
        properties = listed_properties(snapshot)
        if not properties.items() <= entry_properties(jvm, table.entry).items():
            source = {_LAST_VERSION: str(snapshot.version), _LAST_TIME: str(snapshot.timestamp)}
            comment = snapshot.metadata.description
            replace_properties(jvm, table.entry, {**properties, **source}, comment)


def table_root(
    spark: SparkSession, path: str, options: Mapping[str, str] | None = None
) -> str | None:
    """The root of the table that contains a path, possibly the path itself; None for none."""
    for place in (path, *ancestors(path)):
        if place.rstrip("/").rpartition("/")[2] in _NOT_IN_A_TABLE:
            return None
        with suppress(TableNotFoundError):
            open_log(spark, place, options).update()
            return place
    return None


def _parts(jvm: JvmSession, name: str | Sequence[str]) -> tuple[str, ...]:
    return parse_name(jvm, name) if isinstance(name, str) else tuple(name)


def _relation_name(spark: SparkSession, name: TableName) -> str:
    if name.path is not None:
        return quoted_path(("delta", name.path))
    return quoted_path((name.database or current_database(JvmSession(spark)), name.table))
