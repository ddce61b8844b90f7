"""A catalog of paths: `pyspark_delta.`/path/to/table`` is the table there.

Spark gives SQL no other way to a table without a catalog entry.  Only reads come here, and time
travel becomes a part of the path (`/path@v3`), which every read understands.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NoReturn
from zoneinfo import ZoneInfo

from pyspark_delta.errors.table import OperationNotAllowedError
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.spark.jvm.callback_errors import noted, noted_errors
from pyspark_delta.spark.jvm.catalog import path_table
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.private_fields import private_value

PATH_CATALOG = "pyspark_delta"
PATH_DATABASE = "delta"

_FIELD = "catalogs"


def install_path_catalog(
    jvm: JvmSession, is_table: Callable[[str], bool], columns_of: Callable[[str], StructType]
) -> None:
    """Make paths names of the session.

    `is_table` says whether there is a table at one, `columns_of` which columns it has.
    """
    jvm.accept_callbacks()
    manager = jvm.session.sessionState().catalogManager()
    private_value(manager, _FIELD).put(PATH_CATALOG, PathCatalogProxy(jvm, is_table, columns_of))


def remove_path_catalog(jvm: JvmSession) -> None:
    """Undo `install_path_catalog`."""
    manager = jvm.session.sessionState().catalogManager()
    private_value(manager, _FIELD).remove(PATH_CATALOG)


class PathCatalogProxy:
    """The object that Java calls.  Method names are Spark's `TableCatalog`."""

    class Java:
        """Tells Py4J which interface this is."""

        implements = ("org.apache.spark.sql.connector.catalog.TableCatalog",)

    def __init__(
        self,
        jvm: JvmSession,
        is_table: Callable[[str], bool],
        columns_of: Callable[[str], StructType],
    ) -> None:
        self._jvm = jvm
        self._is_table = is_table
        self._columns_of = columns_of

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
            path = identifier.name() + self._time_travel(asked[0] if asked else None)
            columns = self._columns_of(path)
            table = path_table(self._jvm, PATH_CATALOG, PATH_DATABASE, path, columns)
            return self._jvm.java_class("org.apache.spark.sql.connector.catalog.V1Table")(table)

    def tableExists(self, identifier: Any) -> bool:
        with noted_errors():
            return self._is_table(identifier.name())

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

    def _time_travel(self, asked: Any) -> str:
        if asked is None:
            return ""
        if isinstance(asked, str):
            return self._at_version(asked)
        if isinstance(asked, int):
            return self._at_time(asked)
        if asked.getClass().getSimpleName() != "TableContext":
            return ""
        travel = asked.timeTravel()
        if not travel.isPresent():
            return ""
        point = travel.get()
        if point.getClass().getSimpleName() == "AsOfVersion":
            return self._at_version(str(point.version()))
        return self._at_time(int(point.micros()))

    def _at_version(self, version: str) -> str:
        if not (version.isascii() and version.isdigit()):
            return self._refuse(f"The version {version!r}")
        return f"@v{version}"

    def _at_time(self, microseconds: int) -> str:
        zone = self._jvm.spark.conf.get("spark.sql.session.timeZone") or "UTC"
        local = datetime.fromtimestamp(microseconds // 1_000_000, UTC).astimezone(ZoneInfo(zone))
        return f"@{local:%Y%m%d%H%M%S}{microseconds // 1000 % 1000:03d}"

    def _refuse(self, operation: str) -> NoReturn:
        raise noted(OperationNotAllowedError("DELTA_OPERATION_NOT_ALLOWED", operation=operation))
