"""Spark's session catalog: what a name stands for, and how an entry is made.

In-memory and Hive catalogs look the same from here.  Names come as parts; what a location is comes
and goes decoded, as Hadoop's Path prints it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from pyspark_delta.kernel.protocol.partition_values import (
    HIVE_DEFAULT_PARTITION,
    partition_directory,
)
from pyspark_delta.kernel.protocol.schema_json import parse_type
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.silenced_logs import silenced_logs
from pyspark_delta.spark.jvm.versions import default_arguments

SESSION_CATALOG = "spark_catalog"
_CATALOG = "org.apache.spark.sql.catalyst.catalog"
_TABLES = f"{_CATALOG}.CatalogTable$"
_TABLE_TYPES = f"{_CATALOG}.CatalogTableType$"
# A property of our own: the catalog is believed where a log is not.
_OUTSIDE = "pyspark_delta.outside"
_PARQUET_SERDE = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
# Spark offers Hive the columns of every table, is refused for formats that Hive does not know, and
# then keeps the columns in properties: the refusal is logged as an error, with its stack.
_HIVE_LOGGERS = (
    "org.apache.hadoop.hive.metastore.HiveAlterHandler",
    "org.apache.spark.sql.hive.HiveExternalCatalog",
)
# Spark's own way to make an entry leaves these among its properties.
_PROVIDER = "provider"
_RESERVED = (
    *("comment", "collation", "external", "is_managed_location", "location", "owner", _PROVIDER),
    "clusteringColumns",
)
_OPTION_PREFIX = "option."
# Which fields of a CatalogTable these are, counted from 0.
_CREATED, _COMMENT, _TRACKS_PARTITIONS = 8, 14, 17


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """A table or view that the catalog knows.

    `provider` is in lower case, and None for a view; `location` is decoded, None
    for a view; `outside` are places beside it that files of a Delta table lie in; `handle` is
    Spark's own object.  `is_sparks_own` says that Spark made the entry of a Delta table by itself,
    in a session that was not enabled: with a definition, and perhaps without a log.
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
        """The whole name, the catalog's included."""
        return (SESSION_CATALOG, self.database, self.table)

    @property
    def name(self) -> str:
        """The whole name as SQL spells it where no part needs quotes."""
        return ".".join(self.parts)


def parse_name(jvm: JvmSession, text: str) -> tuple[str, ...]:
    """The parts of a table's name; Spark's own error when it is none."""
    parts = jvm.session.sessionState().sqlParser().parseMultipartIdentifier(text)
    return tuple(parts.apply(i) for i in range(parts.size()))


def is_temporary_view(jvm: JvmSession, parts: Sequence[str]) -> bool:
    """Whether a temporary view stands before a table of that name."""
    return bool(_catalog(jvm).isTempView(jvm.seq(parts)))


def current_catalog(jvm: JvmSession) -> str:
    """The catalog that names without one are looked for in."""
    name: str = jvm.session.sessionState().catalogManager().currentCatalog().name()
    return name


def current_database(jvm: JvmSession) -> str:
    """The database that names without one are looked for in."""
    name: str = _catalog(jvm).getCurrentDatabase()
    return name


def find_entry(jvm: JvmSession, database: str | None, table: str) -> CatalogEntry | None:
    """What the session catalog knows by that name; None for nothing."""
    catalog = _catalog(jvm)
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
    """Make a Delta table known; its files and log are there already, some files in `outside`."""
    made = _catalog_table(
        jvm, _identifier(jvm, database, table), location, is_managed, schema, comment
    )
    if outside:
        made = _copied(made, properties=jvm.scala_map({_OUTSIDE: json.dumps(list(outside))}))
    _catalog(jvm).createTable(made, False, False)


def drop_entry(jvm: JvmSession, entry: CatalogEntry) -> None:
    """Forget a table without looking at it."""
    _catalog(jvm).dropTable(entry.handle.identifier(), True, False)


def release_entry(jvm: JvmSession, entry: CatalogEntry) -> None:
    """Forget a table, and leave its files where they are, a managed one's too."""
    catalog = _catalog(jvm)
    if entry.is_managed:
        external = jvm.java_class(_TABLE_TYPES).EXTERNAL()
        catalog.alterTable(_copied(entry.handle, tableType=external))
    catalog.dropTable(entry.handle.identifier(), True, False)


def replace_schema(jvm: JvmSession, entry: CatalogEntry, schema: StructType) -> None:
    """Let the catalog show these columns, unless it does already."""
    new = jvm.data_type(schema)
    if not new.equals(entry.handle.schema()):
        with silenced_logs(jvm, _HIVE_LOGGERS) if _is_hive(jvm) else nullcontext():
            _catalog(jvm).alterTableSchema(entry.handle.identifier(), new)


def replace_properties(
    jvm: JvmSession, entry: CatalogEntry, properties: Mapping[str, str], comment: str | None
) -> None:
    """Let the catalog show these properties and this comment; the columns stay."""
    catalog = _catalog(jvm)
    present = catalog.getTableMetadata(entry.handle.identifier())
    ours = {_OUTSIDE: json.dumps(list(entry.outside))} if entry.outside else {}
    told = {**properties, **ours}
    changes = {"comment": jvm.none() if comment is None else jvm.some(comment)}
    catalog.alterTable(_copied(present, properties=jvm.scala_map(told), **changes))


def entry_schema(entry: CatalogEntry) -> StructType:
    """The columns as the catalog shows them."""
    parsed = parse_type(json.loads(entry.handle.schema().json()))
    assert isinstance(parsed, StructType)
    return parsed


def entry_partition_schema(entry: CatalogEntry) -> StructType:
    """The columns that the catalog keeps partitions by."""
    parsed = parse_type(json.loads(entry.handle.partitionSchema().json()))
    assert isinstance(parsed, StructType)
    return parsed


def entry_properties(jvm: JvmSession, entry: CatalogEntry) -> dict[str, str]:
    """TBLPROPERTIES of a table, without the comment."""
    found = jvm.static("scala.jdk.javaapi.CollectionConverters", "asJava")(
        entry.handle.properties()
    )
    return {str(key): str(value) for key, value in found.items() if key != "comment"}


def defined_properties(jvm: JvmSession, entry: CatalogEntry) -> dict[str, str]:
    """What was given as TBLPROPERTIES to an entry that Spark made by itself."""
    return {
        key: value
        for key, value in entry_properties(jvm, entry).items()
        if key not in _RESERVED and not key.startswith(_OPTION_PREFIX)
    }


def defined_clustering(jvm: JvmSession, entry: CatalogEntry) -> tuple[tuple[str, ...], ...]:
    """The columns of CLUSTER BY of such an entry."""
    found = entry_properties(jvm, entry).get("clusteringColumns")
    return tuple(tuple(path) for path in json.loads(found)) if found else ()


def entry_comment(entry: CatalogEntry) -> str | None:
    """What the catalog says a table is about."""
    comment = entry.handle.comment()
    return str(comment.get()) if comment.isDefined() else None


def entry_owner(entry: CatalogEntry) -> str | None:
    """Who made the table, as far as the catalog knows."""
    return str(entry.handle.owner() or "") or None


def entry_created_ms(entry: CatalogEntry) -> int:
    """When the table became known to the catalog."""
    return int(entry.handle.createTime())


def is_hive_parquet(entry: CatalogEntry) -> bool:
    """Whether a table is of Hive's kind, with Parquet files."""
    serde = entry.handle.storage().serde()
    return entry.provider == "hive" and serde.isDefined() and serde.get() == _PARQUET_SERDE


def entry_partitions(
    jvm: JvmSession, entry: CatalogEntry
) -> list[tuple[dict[str, str | None], str]]:
    """Values and location of each partition that the catalog knows; null is None.

    They cross as one text: a catalog may know very many.
    """
    known = _catalog(jvm).listPartitions(entry.handle.identifier(), jvm.none())
    mapper = jvm.java_class("com.fasterxml.jackson.databind.ObjectMapper")()
    mapper.registerModule(jvm.java_class("com.fasterxml.jackson.module.scala.DefaultScalaModule$"))
    found = json.loads(mapper.writeValueAsString(known))
    return [(_partition_values(each), _partition_location(entry, each)) for each in found]


def make_delta(
    jvm: JvmSession, entry: CatalogEntry, schema: StructType, outside: Sequence[str] = ()
) -> None:
    """Let the catalog know that a table is a Delta table now; its log has all the rest.

    `outside` are places beside the table's own where its files lie.  What Spark remembers of the
    table as it was is forgotten.
    """
    handle = entry.handle
    none = jvm.none()
    storage = _copied(handle.storage(), inputFormat=none, outputFormat=none, serde=none)
    altered = _copied(
        handle,
        provider=jvm.some("delta"),
        storage=storage,
        schema=jvm.data_type(schema),
        partitionColumnNames=jvm.seq(()),
        bucketSpec=none,
        properties=jvm.scala_map({_OUTSIDE: json.dumps(list(outside))} if outside else {}),
        stats=none,
        tracksPartitionsInCatalog=False,
    )
    catalog = _catalog(jvm)
    catalog.alterTable(altered)
    catalog.refreshTable(handle.identifier())


def remember_outside(jvm: JvmSession, entry: CatalogEntry, outside: Sequence[str]) -> None:
    """Let the catalog say where files of a table lie besides the places that it knows."""
    new = [place for place in outside if place not in entry.outside]
    if not new:
        return
    known = jvm.static("scala.jdk.javaapi.CollectionConverters", "asJava")(
        entry.handle.properties()
    )
    properties = {str(key): str(value) for key, value in known.items()}
    properties[_OUTSIDE] = json.dumps([*entry.outside, *new])
    catalog = _catalog(jvm)
    catalog.alterTable(_copied(entry.handle, properties=jvm.scala_map(properties)))


def move_entry(jvm: JvmSession, entry: CatalogEntry, location: str) -> None:
    """Let a table's name mean what is at another location, with none of the old one's files."""
    handle = entry.handle
    uri = jvm.some(jvm.hadoop_path(location).toUri())
    catalog = _catalog(jvm)
    kept = handle.properties().removed(_OUTSIDE)
    storage = _copied(handle.storage(), locationUri=uri)
    catalog.alterTable(_copied(handle, storage=storage, properties=kept))
    catalog.refreshTable(handle.identifier())


def move_directory(jvm: JvmSession, source: str, target: str) -> None:
    """Move a table's directory to a place where no file is, as a catalog does that renames it."""
    old, new = jvm.hadoop_path(source), jvm.hadoop_path(target)
    file_system = old.getFileSystem(jvm.session.sessionState().newHadoopConf())
    if file_system.exists(new) and not file_system.listFiles(new, True).hasNext():
        file_system.delete(new, True)
    file_system.rename(old, new)


def default_location(jvm: JvmSession, database: str | None, table: str) -> str:
    """Where a managed table of that name belongs."""
    uri = _catalog(jvm).defaultTablePath(_identifier(jvm, database, table))
    return _decoded(uri)


def qualified_location(jvm: JvmSession, database: str | None, location: str) -> str:
    """A location as a user spells it, made whole: relative ones are the database's."""
    path = jvm.hadoop_path(location)
    catalog = _catalog(jvm)
    if not path.isAbsolute():
        known = catalog.getDatabaseMetadata(database or catalog.getCurrentDatabase())
        home = jvm.hadoop_path(_decoded(known.locationUri()))
        path = jvm.java_class("org.apache.hadoop.fs.Path")(home, path)
    qualified = jvm.java_class(f"{_CATALOG}.CatalogUtils$").makeQualifiedPath(
        path.toUri(), jvm.session.sessionState().newHadoopConf()
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
    """Spark's object for a table that no catalog knows by that name: its path, if not `location`
    is where it is.
    """
    identifier = jvm.java_class("org.apache.spark.sql.catalyst.TableIdentifier")(
        table, jvm.some(database), jvm.some(catalog)
    )
    return _catalog_table(jvm, identifier, location or table, False, schema, None)


def _is_hive(jvm: JvmSession) -> bool:
    return jvm.spark.conf.get("spark.sql.catalogImplementation", None) == "hive"


def _catalog(jvm: JvmSession) -> Any:
    return jvm.session.sessionState().catalog()


def _identifier(jvm: JvmSession, database: str | None, table: str) -> Any:
    return jvm.java_class("org.apache.spark.sql.catalyst.TableIdentifier")(
        table, jvm.none() if database is None else jvm.some(database)
    )


def _copied(product: Any, **changes: Any) -> Any:
    """A case class with other values for some of its fields."""
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
    directory = partition_directory(
        entry_partition_schema(entry).names, _partition_values(partition)
    )
    return f"{(entry.location or '').rstrip('/')}/{directory}"


def _decoded(uri: Any) -> str:
    """A location out of the URI that the catalog keeps."""
    return unquote(uri.toASCIIString())


def _entry(table: Any) -> CatalogEntry:
    identifier = table.identifier()
    kind = table.tableType().name()
    provider = table.provider()
    located = table.storage().locationUri()
    name = provider.get().lower() if provider.isDefined() else None
    return CatalogEntry(
        database=identifier.database().get(),
        table=identifier.table(),
        provider=name,
        location=_decoded(located.get()) if located.isDefined() else None,
        is_managed=kind == "MANAGED",
        is_view=kind not in ("MANAGED", "EXTERNAL"),
        outside=_outside(table) if name == "delta" else (),
        is_sparks_own=name == "delta" and bool(table.properties().contains(_PROVIDER)),
        handle=table,
    )


def _outside(table: Any) -> tuple[str, ...]:
    found = table.properties().get(_OUTSIDE)
    return tuple(json.loads(found.get())) if found.isDefined() else ()


def _catalog_table(
    jvm: JvmSession,
    identifier: Any,
    location: str,
    is_managed: bool,
    schema: StructType,
    comment: str | None,
) -> Any:
    """Columns of partitions count as plain ones, as delta-spark's entries have it.

    Spark would put them last, and a table may have them anywhere.
    """
    types = jvm.java_class(_TABLE_TYPES)
    empty = jvm.java_class(f"{_CATALOG}.CatalogStorageFormat$").empty()
    uri = jvm.hadoop_path(location).toUri()
    rest = [empty.productElement(i) for i in range(1, empty.productArity())]
    storage = empty.copy(jvm.some(uri), *rest)
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
