"""Entries of Spark's session catalog: find, create, change and drop them; errors for missing ones.

In-memory and Hive catalogs have the same interface here.  Names come as parts; locations are
decoded, as Hadoop's Path prints them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from threading import Lock
from typing import Any
from urllib.parse import unquote

from pyspark_delta.kernel.protocol.partition_values import (
    HIVE_DEFAULT_PARTITION,
    partition_directory,
)
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.kernel.sql.quoting import quoted_path
from pyspark_delta.spark.jvm.failures import analysis_error
from pyspark_delta.spark.jvm.gateway import (
    JvmSession,
    default_arguments,
    from_spark,
    items,
    option_value,
)

SESSION_CATALOG = "spark_catalog"
_CATALOG = "org.apache.spark.sql.catalyst.catalog"
_TABLES = f"{_CATALOG}.CatalogTable$"
_TABLE_TYPES = f"{_CATALOG}.CatalogTableType$"
# Our own property: the catalog may name places outside a table, but a log may not.
_OUTSIDE = "pyspark_delta.outside"
_PARQUET_SERDE = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
# Spark offers Hive the columns of every table, gets an error for formats that Hive does not know,
# and then keeps the columns in properties.  It logs the error with its stack trace.
_HIVE_LOGGERS = (
    "org.apache.hadoop.hive.metastore.HiveAlterHandler",
    "org.apache.spark.sql.hive.HiveExternalCatalog",
)
# Spark leaves these properties in the entries that it makes itself.
_PROVIDER = "provider"
_RESERVED = (
    *("comment", "collation", "external", "is_managed_location", "location", "owner", _PROVIDER),
    "clusteringColumns",
)
_OPTION_PREFIX = "option."
_LOG4J = "org.apache.logging.log4j"
# Of two calls at once that silence loggers, each would restore the other's change.
_LOG_LOCK = Lock()
# The positions of these fields in a CatalogTable, from 0.
_CREATED, _COMMENT, _TRACKS_PARTITIONS = 8, 14, 17
# A name with its catalog and its database.
_FULL_NAME_PARTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """The entry of a table or view in the session catalog.

    `provider` is in lower case, and None for a view; `location` is decoded, None for a view;
    `outside` are other places with files of a Delta table; `handle` is Spark's own object.
    `is_sparks_own` is true when Spark made the entry of a Delta table in a session that was not
    enabled: it has a definition, and perhaps no log.
    """

    database: str
    table: str
    provider: str | None
    location: str | None
    is_managed: bool
    is_view: bool = False
    outside: tuple[str, ...] = ()
    is_sparks_own: bool = False
    handle: Any = field(repr=False, compare=False)

    @property
    def is_delta(self) -> bool:
        """Whether the entry is a Delta table."""
        return self.provider == "delta"

    @property
    def parts(self) -> tuple[str, ...]:
        """The full name, with the catalog's."""
        return (SESSION_CATALOG, self.database, self.table)

    @property
    def name(self) -> str:
        """The full name, without quotes."""
        return ".".join(self.parts)

    @property
    def schema(self) -> StructType:
        """The columns."""
        return from_spark(self.handle.schema())

    @property
    def partition_schema(self) -> StructType:
        """The partition columns."""
        return from_spark(self.handle.partitionSchema())

    @property
    def comment(self) -> str | None:
        """The comment, if there is one."""
        return option_value(self.handle.comment())  # type: ignore[no-any-return]

    @property
    def owner(self) -> str | None:
        """The owner, if the catalog has one."""
        return str(self.handle.owner() or "") or None

    @property
    def created_ms(self) -> int:
        """The time at which the entry was made."""
        return int(self.handle.createTime())

    @property
    def is_hive_parquet(self) -> bool:
        """Whether the table is a Hive table with Parquet files."""
        serde = option_value(self.handle.storage().serde())
        return self.provider == "hive" and serde == _PARQUET_SERDE


def parse_name(jvm: JvmSession, text: str) -> tuple[str, ...]:
    """The parts of a table's name; raises Spark's own error for an invalid name."""
    return tuple(items(jvm.parser.parseMultipartIdentifier(text)))


def is_temporary_view(jvm: JvmSession, parts: Sequence[str]) -> bool:
    """Whether a temporary view has that name, and so hides a table."""
    return bool(jvm.state.catalog().isTempView(jvm.seq(parts)))


def current_catalog(jvm: JvmSession) -> str:
    """The catalog for unqualified names."""
    return str(jvm.state.catalogManager().currentCatalog().name())


def current_database(jvm: JvmSession) -> str:
    """The database for unqualified names."""
    return str(jvm.state.catalog().getCurrentDatabase())


def find_entry(jvm: JvmSession, database: str | None, table: str) -> CatalogEntry | None:
    """The entry of that name in the session catalog; None when there is none."""
    catalog = jvm.state.catalog()
    identifier = _identifier(jvm, database, table)
    if not catalog.tableExists(identifier):
        return None
    return _entry(catalog.getTableMetadata(identifier))


def create_entry(
    jvm: JvmSession,
    database: str | None,
    table: str,
    *,
    location: str,
    is_managed: bool,
    schema: StructType,
    comment: str | None = None,
    outside: Sequence[str] = (),
) -> None:
    """Add an entry for a Delta table; its files and log exist already, some files in `outside`."""
    identifier = _identifier(jvm, database, table)
    made = _catalog_table(jvm, identifier, location, is_managed, schema, comment)
    if outside:
        made = _copied(made, properties=jvm.scala_map(_with_outside(outside)))
    jvm.state.catalog().createTable(made, False, False)


def drop_entry(jvm: JvmSession, entry: CatalogEntry) -> None:
    """Drop an entry without reading the table."""
    jvm.state.catalog().dropTable(entry.handle.identifier(), True, False)


def release_entry(jvm: JvmSession, entry: CatalogEntry) -> None:
    """Drop an entry, and keep the table's files, also those of a managed table."""
    catalog = jvm.state.catalog()
    if entry.is_managed:
        external = jvm.java_class(_TABLE_TYPES).EXTERNAL()
        catalog.alterTable(_copied(entry.handle, tableType=external))
    catalog.dropTable(entry.handle.identifier(), True, False)


def replace_schema(jvm: JvmSession, entry: CatalogEntry, schema: StructType) -> None:
    """Set the columns of an entry, unless they are set already."""
    new = jvm.data_type(schema)
    if not new.equals(entry.handle.schema()):
        is_hive = jvm.spark.conf.get("spark.sql.catalogImplementation", None) == "hive"
        with _silenced_logs(jvm, _HIVE_LOGGERS) if is_hive else nullcontext():
            jvm.state.catalog().alterTableSchema(entry.handle.identifier(), new)


def replace_properties(
    jvm: JvmSession, entry: CatalogEntry, properties: Mapping[str, str], comment: str | None
) -> None:
    """Set the properties and the comment of an entry; its columns stay."""
    catalog = jvm.state.catalog()
    present = catalog.getTableMetadata(entry.handle.identifier())
    all_properties = jvm.scala_map(_with_outside(entry.outside, properties))
    catalog.alterTable(_copied(present, properties=all_properties, comment=jvm.some(comment)))


def entry_properties(jvm: JvmSession, entry: CatalogEntry) -> dict[str, str]:
    """The TBLPROPERTIES of a table, without the comment."""
    found = jvm.python_dict(entry.handle.properties())
    found.pop("comment", None)
    return found


def defined_properties(jvm: JvmSession, entry: CatalogEntry) -> dict[str, str]:
    """The TBLPROPERTIES of the statement, for an entry that Spark made itself."""
    return {
        key: value
        for key, value in entry_properties(jvm, entry).items()
        if key not in _RESERVED and not key.startswith(_OPTION_PREFIX)
    }


def defined_clustering(jvm: JvmSession, entry: CatalogEntry) -> tuple[tuple[str, ...], ...]:
    """The columns of CLUSTER BY, for an entry that Spark made itself."""
    found = entry_properties(jvm, entry).get("clusteringColumns")
    return tuple(tuple(path) for path in json.loads(found)) if found else ()


def entry_partitions(
    jvm: JvmSession, entry: CatalogEntry
) -> list[tuple[dict[str, str | None], str]]:
    """Values and location of each partition in the catalog; null is None.

    They leave the JVM as one text, because there may be very many.
    """
    known = jvm.state.catalog().listPartitions(entry.handle.identifier(), jvm.none())
    mapper = jvm.java_class("com.fasterxml.jackson.databind.ObjectMapper")()
    mapper.registerModule(jvm.java_class("com.fasterxml.jackson.module.scala.DefaultScalaModule$"))
    found = json.loads(mapper.writeValueAsString(known))
    return [(_partition_values(each), _partition_location(entry, each)) for each in found]


def make_delta(
    jvm: JvmSession, entry: CatalogEntry, schema: StructType, outside: Sequence[str] = ()
) -> None:
    """Change an entry to that of a Delta table, whose log has everything else.

    `outside` are other places with files of the table.  Spark's caches of the former table are
    invalidated.
    """
    handle, none = entry.handle, jvm.none()
    storage = _copied(handle.storage(), inputFormat=none, outputFormat=none, serde=none)
    altered = _copied(
        handle,
        provider=jvm.some("delta"),
        storage=storage,
        schema=jvm.data_type(schema),
        partitionColumnNames=jvm.seq(()),
        bucketSpec=none,
        properties=jvm.scala_map(_with_outside(outside)),
        stats=none,
        tracksPartitionsInCatalog=False,
    )
    catalog = jvm.state.catalog()
    catalog.alterTable(altered)
    catalog.refreshTable(handle.identifier())


def remember_outside(jvm: JvmSession, entry: CatalogEntry, outside: Sequence[str]) -> None:
    """Add places with files of a table to its entry."""
    new = [place for place in outside if place not in entry.outside]
    if not new:
        return
    known = jvm.python_dict(entry.handle.properties())
    properties = jvm.scala_map(_with_outside([*entry.outside, *new], known))
    jvm.state.catalog().alterTable(_copied(entry.handle, properties=properties))


def move_entry(jvm: JvmSession, entry: CatalogEntry, location: str) -> None:
    """Change the location of a table's entry, and remove the other places of the old one."""
    handle = entry.handle
    uri = jvm.some(jvm.hadoop_path(location).toUri())
    catalog = jvm.state.catalog()
    kept = handle.properties().removed(_OUTSIDE)
    storage = _copied(handle.storage(), locationUri=uri)
    catalog.alterTable(_copied(handle, storage=storage, properties=kept))
    catalog.refreshTable(handle.identifier())


def move_directory(jvm: JvmSession, source: str, target: str) -> None:
    """Move a table's directory to a location without files, as a catalog does for RENAME."""
    old, new = jvm.hadoop_path(source), jvm.hadoop_path(target)
    file_system = old.getFileSystem(jvm.state.newHadoopConf())
    if file_system.exists(new) and not file_system.listFiles(new, True).hasNext():
        file_system.delete(new, True)
    file_system.rename(old, new)


def default_location(jvm: JvmSession, database: str | None, table: str) -> str:
    """The location of a managed table of that name."""
    return _decoded(jvm.state.catalog().defaultTablePath(_identifier(jvm, database, table)))


def location_in_database(jvm: JvmSession, database: str | None, location: str) -> str:
    """A user's location with scheme and absolute path; a relative one is in the database's."""
    path = jvm.hadoop_path(location)
    catalog = jvm.state.catalog()
    if not path.isAbsolute():
        known = catalog.getDatabaseMetadata(database or catalog.getCurrentDatabase())
        home = jvm.hadoop_path(_decoded(known.locationUri()))
        path = jvm.java_class("org.apache.hadoop.fs.Path")(home, path)
    qualified = jvm.java_class(f"{_CATALOG}.CatalogUtils$").makeQualifiedPath(
        path.toUri(), jvm.state.newHadoopConf()
    )
    return _decoded(qualified)


def path_table(
    jvm: JvmSession,
    catalog: str,
    database: str,
    table: str,
    schema: StructType,
    *,
    location: str | None = None,
) -> Any:
    """Spark's object for a table in no catalog, at `location` or else at the path `table`."""
    identifier = _identifier(jvm, database, table, catalog)
    return _catalog_table(jvm, identifier, location or table, False, schema, None)


def missing_table(jvm: JvmSession, name: Sequence[str]) -> Exception:
    """Spark's AnalysisException for the name of a missing table: TABLE_OR_VIEW_NOT_FOUND.

    A name with an unknown catalog gets another error, because Spark takes it for a database.
    """
    quoted = quoted_path(name)
    first = name[0].lower()
    is_known = first == SESSION_CATALOG or jvm.spark.conf.get(f"spark.sql.catalog.{name[0]}", None)
    if len(name) >= _FULL_NAME_PARTS and not is_known:
        return analysis_error(
            jvm, "REQUIRES_SINGLE_PART_NAMESPACE", sessionCatalog=SESSION_CATALOG, identifier=quoted
        )
    place = f"[`system`.`session`, {quoted_path((SESSION_CATALOG, current_database(jvm)))}]"
    return analysis_error(jvm, "TABLE_OR_VIEW_NOT_FOUND", relationName=quoted, searchPath=place)


def _identifier(
    jvm: JvmSession, database: str | None, table: str, catalog: str | None = None
) -> Any:
    identifier = jvm.java_class("org.apache.spark.sql.catalyst.TableIdentifier")
    qualifiers = [database] if catalog is None else [database, catalog]
    return identifier(table, *map(jvm.some, qualifiers))


def _with_outside(
    outside: Sequence[str], properties: Mapping[str, str] | None = None
) -> dict[str, str]:
    ours = {_OUTSIDE: json.dumps(list(outside))} if outside else {}
    return {**(properties or {}), **ours}


def _copied(product: Any, **changes: Any) -> Any:
    """A copy of a case class with other values for some fields."""
    names = [product.productElementName(i) for i in range(product.productArity())]
    missing = changes.keys() - set(names)
    assert not missing, missing
    return product.copy(
        *(
            changes[name] if name in changes else product.productElement(i)
            for i, name in enumerate(names)
        )
    )


def _partition_values(partition: dict[str, Any]) -> dict[str, str | None]:
    return {
        name: None if value == HIVE_DEFAULT_PARTITION else value
        for name, value in partition["spec"].items()
    }


def _partition_location(entry: CatalogEntry, partition: dict[str, Any]) -> str:
    uri = partition["storage"]["locationUri"]
    if uri is not None:
        return unquote(uri)
    names = entry.partition_schema.names
    directory = partition_directory(names, _partition_values(partition))
    return f"{(entry.location or '').rstrip('/')}/{directory}"


def _decoded(uri: Any) -> str:
    return unquote(uri.toASCIIString())


def _entry(table: Any) -> CatalogEntry:
    identifier = table.identifier()
    kind = table.tableType().name()
    provider = option_value(table.provider())
    uri = option_value(table.storage().locationUri())
    name = None if provider is None else provider.lower()
    outside = option_value(table.properties().get(_OUTSIDE)) if name == "delta" else None
    return CatalogEntry(
        database=identifier.database().get(),
        table=identifier.table(),
        provider=name,
        location=None if uri is None else _decoded(uri),
        is_managed=kind == "MANAGED",
        is_view=kind not in ("MANAGED", "EXTERNAL"),
        outside=tuple(json.loads(outside or "[]")),
        is_sparks_own=name == "delta" and bool(table.properties().contains(_PROVIDER)),
        handle=table,
    )


def _catalog_table(
    jvm: JvmSession,
    identifier: Any,
    location: str,
    is_managed: bool,
    schema: StructType,
    comment: str | None,
) -> Any:
    """Partition columns count as plain columns, as in delta-spark's entries.

    Spark would put them last, and a table may have them anywhere.
    """
    types = jvm.java_class(_TABLE_TYPES)
    empty = jvm.java_class(f"{_CATALOG}.CatalogStorageFormat$").empty()
    storage = _copied(empty, locationUri=jvm.some(jvm.hadoop_path(location).toUri()))
    tables = jvm.java_class(_TABLES)
    arguments = [
        identifier,
        types.MANAGED() if is_managed else types.EXTERNAL(),
        storage,
        jvm.data_type(schema),
        jvm.some("delta"),
    ]
    arguments += default_arguments(jvm, _TABLES, "apply", len(arguments))
    arguments[_CREATED] = getattr(tables, f"apply$default${_CREATED + 1}")()
    if comment is not None:
        arguments[_COMMENT] = jvm.some(comment)
    arguments[_TRACKS_PARTITIONS] = False
    return tables.apply(*arguments)


@contextmanager
def _silenced_logs(jvm: JvmSession, names: Sequence[str]) -> Iterator[None]:
    """Disable the loggers of these names inside the block, then restore their levels.

    For a call in which Spark tries something that fails, logs an error, and tries another way.
    """
    context = jvm.static(f"{_LOG4J}.LogManager", "getContext")(False)
    if context.getClass().getName() != f"{_LOG4J}.core.LoggerContext":
        yield  # another library implements the API, with levels that cannot be changed
        return
    with _LOG_LOCK:
        levels = {name: _own_level(context, name) for name in names}
        off = jvm.java_class(f"{_LOG4J}.Level").OFF
        try:
            for name in names:
                _set_level(jvm, context, name, off)
            context.updateLoggers()
            yield
        finally:
            for name, level in levels.items():
                _set_level(jvm, context, name, level)
            context.updateLoggers()


def _own_level(context: Any, name: str) -> Any:
    """The level configured for exactly this logger; None if there is none."""
    found = context.getConfiguration().getLoggerConfig(name)
    return found.getLevel() if found.getName() == name else None


def _set_level(jvm: JvmSession, context: Any, name: str, level: Any) -> None:
    configuration = context.getConfiguration()
    if level is None:
        configuration.removeLogger(name)
    elif _own_level(context, name) is None:
        made = jvm.java_class(f"{_LOG4J}.core.config.LoggerConfig")(name, level, True)
        configuration.addLogger(name, made)
    else:
        configuration.getLoggerConfig(name).setLevel(level)
