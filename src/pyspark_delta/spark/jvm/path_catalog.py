"""A catalog of paths and of versions: `pyspark_delta.`/path/to/table`` is the table there.

Spark gives SQL no other way to a table without a catalog entry, nor to an older version of one
that has an entry: `pyspark_delta.db.t VERSION AS OF 3` is that of `db.t`.  Only reads come here.
A version becomes a part of a path (`/path@v3`), which every read understands, and of the catalog
of a name (`pyspark_delta@v3.db.t`), so that columns are still found as `db.t.id`.
"""

from __future__ import annotations

from typing import Any, NoReturn, Protocol

from pyspark_delta.errors.table import OperationNotAllowedError, PropertyError
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.spark.jvm.callback_errors import noted, noted_errors
from pyspark_delta.spark.jvm.catalog import path_table
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.private_fields import private_value

PATH_CATALOG = "pyspark_delta"
PATH_DATABASE = "delta"

_FIELD = "catalogs"
_VERSION_MARK = f"{PATH_CATALOG}@v"


class PathTables(Protocol):
    """What is known of tables by their paths; a path may end in a version."""

    def is_table(self, path: str) -> bool:
        """Whether there is a table, at the version that the path may name."""

    def columns_of(self, path: str) -> StructType:
        """The columns of that version."""

    def version_at(self, path: str, time_ms: int | None) -> int:
        """The version that was the newest at a time; the newest of all for None."""

    def path_of(self, database: str, table: str) -> str:
        """Where the Delta table of that name is."""


def version_in(catalog: str) -> int | None:
    """The version that a catalog's name tells; None when it is none of ours.

    >>> version_in("pyspark_delta@v3"), version_in("pyspark_delta")
    (3, None)
    """
    version = catalog.removeprefix(_VERSION_MARK)
    return int(version) if version != catalog and version.isdigit() else None


def install_path_catalog(jvm: JvmSession, tables: PathTables) -> None:
    """Make paths, and older versions of tables, names of the session."""
    jvm.accept_callbacks()
    manager = jvm.session.sessionState().catalogManager()
    private_value(manager, _FIELD).put(PATH_CATALOG, PathCatalogProxy(jvm, tables))


def remove_path_catalog(jvm: JvmSession) -> None:
    """Undo `install_path_catalog`."""
    manager = jvm.session.sessionState().catalogManager()
    private_value(manager, _FIELD).remove(PATH_CATALOG)


class PathCatalogProxy:
    """The object that Java calls.  Method names are Spark's `TableCatalog`."""

    class Java:
        """Tells Py4J which interface this is."""

        implements = ("org.apache.spark.sql.connector.catalog.TableCatalog",)

    def __init__(self, jvm: JvmSession, tables: PathTables) -> None:
        self._jvm = jvm
        self._tables = tables

    def name(self) -> str:
        return PATH_CATALOG

    def initialize(self, name: str, options: Any) -> None:
        """Nothing to do: no option leads here."""

    def defaultNamespace(self) -> Any:
        return self._jvm.array(self._jvm.java_class("java.lang.String"), [])

    def capabilities(self) -> Any:
        return self._jvm.java_class("java.util.HashSet")()

    tableStateOptionKeys = capabilities
    changelogStateOptionKeys = capabilities

    def useNullableQuerySchema(self) -> bool:
        return True

    def loadTable(self, identifier: Any, *asked: Any) -> Any:
        """The table, at the version or time that is among what Spark asks with.

        That is nothing, a version, microseconds, privileges, or (since 4.3) a context with all
        of them and the reader's options.
        """
        with noted_errors():
            point = asked[0] if asked else None
            name, namespace = identifier.name(), tuple(identifier.namespace())
            if namespace:
                table = self._version_of(namespace, name, point)
            else:
                path = name + self._at(name, point)
                columns = self._tables.columns_of(path)
                table = path_table(self._jvm, PATH_CATALOG, PATH_DATABASE, path, columns)
            return self._jvm.java_class("org.apache.spark.sql.connector.catalog.V1Table")(table)

    def tableExists(self, identifier: Any) -> bool:
        with noted_errors():
            return not tuple(identifier.namespace()) and self._tables.is_table(identifier.name())

    def invalidateTable(self, identifier: Any) -> None:
        """Nothing to do: every lookup is fresh."""

    def dropTable(self, identifier: Any) -> bool:
        return self._refuse("DROP TABLE of a path")

    purgeTable = dropTable

    def listTables(self, namespace: Any) -> Any:
        return self._jvm.array(
            self._jvm.java_class("org.apache.spark.sql.connector.catalog.Identifier"), []
        )

    def createTable(self, *asked: Any) -> Any:
        return self._refuse("CREATE TABLE of a path in this form")

    def alterTable(self, *asked: Any) -> Any:
        return self._refuse("ALTER TABLE of a path")

    def renameTable(self, *asked: Any) -> Any:
        return self._refuse("ALTER TABLE RENAME of a path")

    def equals(self, other: Any) -> bool:
        return self is other

    def hashCode(self) -> int:
        return id(self) & 0x7FFFFFFF

    def toString(self) -> str:
        return "Delta[paths]"

    def _version_of(self, namespace: tuple[str, ...], name: str, asked: Any) -> Any:
        if len(namespace) != 1:
            self._refuse(f"The name {'.'.join((PATH_CATALOG, *namespace, name))}")
        path = self._tables.path_of(namespace[0], name)
        at = self._at(path, asked) or f"@v{self._tables.version_at(path, None)}"
        columns = self._tables.columns_of(path + at)
        return path_table(self._jvm, PATH_CATALOG + at, namespace[0], name, columns, location=path)

    def _at(self, path: str, asked: Any) -> str:
        """The version that Spark asks for, as it stands behind a path; empty for the newest."""
        if asked is None:
            return ""
        if isinstance(asked, str):
            return self._at_version(asked)
        if isinstance(asked, int):
            return self._at_time(path, asked)
        if asked.getClass().getSimpleName() != "TableContext":
            return ""
        travel = asked.timeTravel()
        if not travel.isPresent():
            return ""
        point = travel.get()
        if point.getClass().getSimpleName() == "AsOfVersion":
            return self._at_version(str(point.version()))
        return self._at_time(path, int(point.micros()))

    def _at_version(self, version: str) -> str:
        if not (version.isascii() and version.isdigit()):
            key = "versionAsOf"
            raise PropertyError("DELTA_TIME_TRAVEL_INVALID_BEGIN_VALUE", timeTravelKey=key)
        return f"@v{version}"

    def _at_time(self, path: str, microseconds: int) -> str:
        return f"@v{self._tables.version_at(path, microseconds // 1000)}"

    def _refuse(self, operation: str) -> NoReturn:
        raise noted(OperationNotAllowedError("DELTA_OPERATION_NOT_ALLOWED", operation=operation))
