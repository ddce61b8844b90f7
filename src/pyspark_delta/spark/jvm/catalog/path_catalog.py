"""A Spark catalog of paths and versions: `pyspark_delta.`/path/to/table`` is the table there.

Spark SQL has no other way to read a table without a catalog entry, or an older version of one with
an entry: `pyspark_delta.db.t VERSION AS OF 3` is that of `db.t`.  Only reads use it.
A version becomes a part of a path (`/path@v3`), which every read understands, and of the catalog of
a name (`pyspark_delta@v3.db.t`), so that columns can still be written as `db.t.id`.
"""

from __future__ import annotations

from typing import Any, NoReturn, Protocol

from pyspark_delta.errors import OperationNotAllowedError, PropertyError
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.spark.jvm.callbacks import noted, noted_errors, thrown_in_java
from pyspark_delta.spark.jvm.catalog.entries import path_table
from pyspark_delta.spark.jvm.catalog.session_objects import session_object
from pyspark_delta.spark.jvm.gateway import JvmSession, private_value, simple_name

PATH_CATALOG = "pyspark_delta"
PATH_DATABASE = "delta"

_KIND, _CATALOG = "paths", "org.apache.spark.sql.connector.catalog.TableCatalog"
_VERSION_MARK = f"{PATH_CATALOG}@v"


class PathTables(Protocol):
    """Looks up tables by path; a path may end in a version."""

    def is_table(self, path: str) -> bool:
        """Whether there is a table, in the version that the path may have."""

    def columns_of(self, path: str) -> StructType:
        """The columns of that version."""

    def version_at(self, path: str, time_ms: int | None) -> int:
        """The version that was the newest at a time; the newest of all for None."""

    def path_of(self, database: str, table: str) -> str:
        """The path of the Delta table of that name."""


def version_in(catalog: str) -> int | None:
    """The version in a catalog's name; None when it is not one of ours.

    >>> version_in("pyspark_delta@v3"), version_in("pyspark_delta")
    (3, None)
    """
    version = catalog.removeprefix(_VERSION_MARK)
    return int(version) if version != catalog and version.isdigit() else None


def install_path_catalog(jvm: JvmSession, tables: PathTables) -> None:
    """Make paths, and older versions of tables, resolvable in the session."""
    jvm.accept_callbacks()
    catalog = session_object(jvm, _KIND, _CATALOG, PathCatalog(jvm, tables))
    _loaded_catalogs(jvm).put(PATH_CATALOG, catalog)


def remove_path_catalog(jvm: JvmSession) -> None:
    """Undo `install_path_catalog`."""
    _loaded_catalogs(jvm).remove(PATH_CATALOG)


def _loaded_catalogs(jvm: JvmSession) -> Any:
    return private_value(jvm.state.catalogManager(), "catalogs")


class PathCatalog:
    """What Java calls.  Method names are Spark's `TableCatalog`."""

    def __init__(self, jvm: JvmSession, tables: PathTables) -> None:
        self._jvm = jvm
        self._tables = tables

    def name(self) -> str:
        return PATH_CATALOG

    def initialize(self, name: str, options: Any) -> None:
        """Does nothing: the catalog has no options."""

    def defaultNamespace(self) -> Any:
        return self._jvm.array(self._jvm.java_class("java.lang.String"), [])

    def capabilities(self) -> Any:
        return self._jvm.java_class("java.util.HashSet")()

    tableStateOptionKeys = capabilities
    changelogStateOptionKeys = capabilities

    def useNullableQuerySchema(self) -> bool:
        return True

    def loadTable(self, identifier: Any, *arguments: Any) -> Any:
        """Load the table, at the version or time in Spark's arguments.

        These are none, a version, microseconds, privileges, or (since 4.3) a context with all of
        them and the reader's options.
        """
        with thrown_in_java(self._jvm), noted_errors():
            point = arguments[0] if arguments else None
            name, namespace = identifier.name(), tuple(identifier.namespace())
            # A stream looks for its table by the names of what `path_table` makes.
            if namespace and not (namespace == (PATH_DATABASE,) and "/" in name):
                table = self._version_of(namespace, name, point)
            else:
                path = name + self._at(name, point)
                columns = self._tables.columns_of(path)
                table = path_table(self._jvm, PATH_CATALOG, PATH_DATABASE, path, columns)
            return self._jvm.java_class("org.apache.spark.sql.connector.catalog.V1Table")(table)

    def tableExists(self, identifier: Any) -> bool:
        with thrown_in_java(self._jvm), noted_errors():
            return not tuple(identifier.namespace()) and self._tables.is_table(identifier.name())

    def invalidateTable(self, identifier: Any) -> None:
        """Does nothing: every lookup reads the table anew."""

    def dropTable(self, identifier: Any) -> bool:
        return self._refuse("DROP TABLE of a path")

    purgeTable = dropTable

    def listTables(self, namespace: Any) -> Any:
        identifier = "org.apache.spark.sql.connector.catalog.Identifier"
        return self._jvm.array(self._jvm.java_class(identifier), [])

    def createTable(self, *arguments: Any) -> Any:
        return self._refuse("CREATE TABLE of a path in this form")

    def alterTable(self, *arguments: Any) -> Any:
        return self._refuse("ALTER TABLE of a path")

    def renameTable(self, *arguments: Any) -> Any:
        return self._refuse("ALTER TABLE RENAME of a path")

    def _version_of(self, namespace: tuple[str, ...], name: str, point: Any) -> Any:
        if len(namespace) != 1:
            self._refuse(f"The name {'.'.join((PATH_CATALOG, *namespace, name))}")
        path = self._tables.path_of(namespace[0], name)
        at = self._at(path, point) or f"@v{self._tables.version_at(path, None)}"
        columns = self._tables.columns_of(path + at)
        return path_table(self._jvm, PATH_CATALOG + at, namespace[0], name, columns, location=path)

    def _at(self, path: str, point: Any) -> str:
        """The suffix of a path for the version in Spark's argument; empty for the newest."""
        if point is not None and not isinstance(point, (str, int)):
            travel = point.timeTravel() if simple_name(point) == "TableContext" else None
            if travel is None or not travel.isPresent():
                return ""
            as_of = travel.get()
            is_version = simple_name(as_of) == "AsOfVersion"
            point = str(as_of.version()) if is_version else int(as_of.micros())
        if point is None:
            return ""
        if isinstance(point, int):
            return f"@v{self._tables.version_at(path, point // 1000)}"
        if not (point.isascii() and point.isdigit()):
            key = "versionAsOf"
            raise PropertyError("DELTA_TIME_TRAVEL_INVALID_BEGIN_VALUE", timeTravelKey=key)
        return f"@v{point}"

    def _refuse(self, operation: str) -> NoReturn:
        raise noted(OperationNotAllowedError("DELTA_OPERATION_NOT_ALLOWED", operation=operation))
