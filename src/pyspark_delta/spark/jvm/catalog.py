"""Spark's session catalog: what a name stands for, and how an entry is made.

In-memory and Hive catalogs look the same from here.  Names come as parts; what a location is comes
and goes decoded, as Hadoop's Path prints it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from pyspark_delta.kernel.protocol.schema_json import parse_type
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.versions import default_arguments

SESSION_CATALOG = "spark_catalog"
_CATALOG = "org.apache.spark.sql.catalyst.catalog"
_TABLES = f"{_CATALOG}.CatalogTable$"
_TABLE_TYPES = f"{_CATALOG}.CatalogTableType$"
# Which fields of a CatalogTable these are, counted from 0.
_CREATED, _COMMENT, _TRACKS_PARTITIONS = 8, 14, 17


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """A table or view that the catalog knows.

    `provider` is in lower case, and None for a view; `location` is decoded, None
    for a view; `handle` is Spark's own object.
    """

    database: str
    table: str
    provider: str | None
    location: str | None
    is_managed: bool
    is_view: bool = False
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
) -> None:
    """Make a Delta table known; its files and log are there already."""
    made = _catalog_table(
        jvm, _identifier(jvm, database, table), location, is_managed, schema, comment
    )
    _catalog(jvm).createTable(made, False, False)


def drop_entry(jvm: JvmSession, entry: CatalogEntry) -> None:
    """Forget a table without looking at it."""
    _catalog(jvm).dropTable(entry.handle.identifier(), True, False)


def replace_schema(jvm: JvmSession, entry: CatalogEntry, schema: StructType) -> None:
    """Let the catalog show these columns, unless it does already."""
    new = jvm.data_type(schema)
    if not new.equals(entry.handle.schema()):
        _catalog(jvm).alterTableSchema(entry.handle.identifier(), new)


def entry_schema(entry: CatalogEntry) -> StructType:
    """The columns as the catalog shows them."""
    parsed = parse_type(json.loads(entry.handle.schema().json()))
    assert isinstance(parsed, StructType)
    return parsed


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


def path_table(jvm: JvmSession, catalog: str, database: str, path: str, schema: StructType) -> Any:
    """Spark's object for a table that no catalog knows: its name is its path."""
    identifier = jvm.java_class("org.apache.spark.sql.catalyst.TableIdentifier")(
        path, jvm.some(database), jvm.some(catalog)
    )
    return _catalog_table(jvm, identifier, path, False, schema, None)


def _catalog(jvm: JvmSession) -> Any:
    return jvm.session.sessionState().catalog()


def _identifier(jvm: JvmSession, database: str | None, table: str) -> Any:
    return jvm.java_class("org.apache.spark.sql.catalyst.TableIdentifier")(
        table, jvm.none() if database is None else jvm.some(database)
    )


def _decoded(uri: Any) -> str:
    """A location out of the URI that the catalog keeps."""
    return unquote(uri.toASCIIString())


def _entry(table: Any) -> CatalogEntry:
    identifier = table.identifier()
    kind = table.tableType().name()
    provider = table.provider()
    located = table.storage().locationUri()
    return CatalogEntry(
        database=identifier.database().get(),
        table=identifier.table(),
        provider=provider.get().lower() if provider.isDefined() else None,
        location=_decoded(located.get()) if located.isDefined() else None,
        is_managed=kind == "MANAGED",
        is_view=kind not in ("MANAGED", "EXTERNAL"),
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
