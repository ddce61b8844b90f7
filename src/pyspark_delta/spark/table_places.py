"""Where a table that is to be made belongs, and how the catalog learns of it.

Log and catalog change one after the other, and whoever makes a table may be stopped in between.  A
note beside the log says so until both are done (`kernel.ops.creation_note`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from pyspark.sql import SparkSession

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.errors.table import TableAlreadyExistsError, TableNotFoundError
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.ops.creation_note import (
    CREATION_NOTE,
    forget_creation_note,
    read_creation_note,
    write_creation_note,
)
from pyspark_delta.kernel.protocol.feature_upgrade import is_protocol_property
from pyspark_delta.kernel.protocol.properties import (
    IGNORE_PROTOCOL_DEFAULTS,
    validate_properties,
)
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.catalog import (
    TableName,
    look_up,
    show_columns,
    shown_schema,
    tells_metastore,
)
from pyspark_delta.spark.jvm.catalog import (
    SESSION_CATALOG,
    create_entry,
    current_database,
    default_location,
    qualified_location,
    release_entry,
)
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.settings import all_settings
from pyspark_delta.spark.table_access import is_same_location, open_log

_DEFAULTS_PREFIX = "spark.databricks.delta.properties.defaults."
_ALLOW_ARBITRARY = "spark.databricks.delta.allowArbitraryProperties.enabled"
# What Spark's catalog takes for a name; it would only say so after the table is written.
_LEGAL_NAME = re.compile(r"\w+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlace:
    """A table's name, its location and its log.

    `is_managed` says that its files go when it is dropped; `noted_as` is what a note calls it while
    it is made.
    """

    name: TableName
    location: str
    is_managed: bool
    log: DeltaLog
    noted_as: str

    def snapshot(self) -> Snapshot | None:
        """The newest version; None when there is no log yet."""
        try:
            return self.log.update()
        except TableNotFoundError:
            return None

    def check_empty(self) -> None:
        """Refuse to make a table where files are, but for those that were left of making it."""
        if self.has_files() and not (self.is_begun() and self.snapshot() is None):
            raise TableAlreadyExistsError(
                "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION",
                tableId=self.name.shown,
                tableLocation=self.location,
            )

    def has_files(self) -> bool:
        """Whether there is any file below the location."""
        return next(iter(self.log.store.list_recursive("")), None) is not None

    def is_definition_only(self) -> bool:
        """Whether the catalog has the table's definition, and there is no log of it.

        Spark makes such an entry in a session that is not enabled.
        """
        entry = self.name.entry
        return entry is not None and entry.is_sparks_own and self.snapshot() is None

    def is_begun(self) -> bool:
        """Whether somebody began to make this very table here, and nobody has ended it."""
        return read_creation_note(self.log.store) == self.noted_as

    def is_unregistered(self) -> bool:
        """Whether the table was made and written, and its maker stopped before the catalog knew.

        Whoever goes on from there makes the catalog know it before he changes it, for the catalog
        has one winner: its maker may be alive, and about to do so.  With a second version it is a
        table of somebody's own.
        """
        if self.name.path is not None or self.name.entry is not None or not self.is_begun():
            return False
        snapshot = self.snapshot()
        return snapshot is not None and snapshot.version == 0

    @contextmanager
    def making(self) -> Iterator[Callable[[], None]]:
        """A block that makes the table; what it gets is to be called before the first file.

        That notes the making, if nothing is there yet; a block that fails takes the note back, if
        nothing else is left behind.
        """
        is_noted = False

        def begin() -> None:
            nonlocal is_noted
            if not self.has_files():
                write_creation_note(self.log.store, self.noted_as)
                is_noted = True

        try:
            yield begin
        except Exception:
            with suppress(DeltaError):  # the first failure is the one to tell
                left = (info.path for info in self.log.store.list_recursive(""))
                if is_noted and all(path == CREATION_NOTE for path in left):
                    forget_creation_note(self.log.store)
            raise


def place_of(
    spark: SparkSession,
    name: TableName,
    location: str | None,
    options: Mapping[str, str] | None = None,
) -> TablePlace:
    """Where the table of that name is or will be; `location` is what the user says about it.

    Of a writer's `options` those count that say how to reach the store.
    """
    jvm = JvmSession(spark)

    def place(location: str, *, is_managed: bool) -> TablePlace:
        return TablePlace(
            name=name,
            location=location,
            is_managed=is_managed,
            log=open_log(spark, location, options),
            noted_as=_noted_name(jvm, name),
        )

    if name.path is not None:
        if location is not None and not is_same_location(location, name.path):
            raise TableAlreadyExistsError(
                "DELTA_AMBIGUOUS_PATHS_IN_CREATE_TABLE", identifier=name.shown, location=location
            )
        return place(name.path, is_managed=False)
    given = None if location is None else qualified_location(jvm, name.database, location)
    if name.entry is not None:
        if not name.entry.is_delta or name.entry.location is None:
            raise TableAlreadyExistsError("DELTA_NOT_A_DELTA_TABLE", tableName=name.shown)
        known = name.entry.location
        if given is not None and not is_same_location(given, known):
            raise TableAlreadyExistsError(
                "DELTA_TABLE_LOCATION_MISMATCH",
                tableName=name.shown,
                existingTableLocation=known,
                tableLocation=given,
            )
        return place(known, is_managed=name.entry.is_managed)
    if _LEGAL_NAME.fullmatch(name.table) is None:
        raise TableNotFoundError("DELTA_PARSING_ILLEGAL_TABLE_NAME", tableName=name.table)
    if given is not None:
        return place(given, is_managed=False)
    return place(default_location(jvm, name.database, name.table), is_managed=True)


def register(spark: SparkSession, place: TablePlace, outside: Sequence[str] = ()) -> None:
    """Let the catalog know a table that is written, with the columns it has now.

    `outside` are places beside its own where files of a new table lie.
    """
    name = place.name
    if name.entry is not None and name.entry.is_sparks_own:
        # A metastore keeps the partition columns of an entry for good, and Delta's are plain
        # ones.  Whoever is stopped between the two entries leaves the note of a new table.
        write_creation_note(place.log.store, place.noted_as)
        release_entry(JvmSession(spark), name.entry)
    elif name.path is None and name.entry is not None:
        show_columns(spark, name)
        return
    if name.path is None:
        metadata = place.log.update().metadata
        create_entry(
            JvmSession(spark),
            name.database,
            name.table,
            location=place.location,
            is_managed=place.is_managed,
            schema=shown_schema(metadata.schema),
            comment=metadata.description,
            outside=outside,
        )
    forget_creation_note(place.log.store)
    if name.path is None and tells_metastore(spark):
        show_columns(spark, known_name(spark, name))


def known_name(spark: SparkSession, name: TableName) -> TableName:
    """A name of the catalog, with the entry that it has by now."""
    found = look_up(spark, [name.table] if name.database is None else [name.database, name.table])
    assert found is not None  # it is of Spark's own catalog
    return found


def _noted_name(jvm: JvmSession, name: TableName) -> str:
    if name.entry is not None:
        return name.entry.name
    if name.path is not None:
        return f"delta.`{name.path.rstrip('/')}`"
    return f"{SESSION_CATALOG}.{name.database or current_database(jvm)}.{name.table}".lower()


def checked_properties(spark: SparkSession, given: Mapping[str, str]) -> dict[str, str]:
    """Properties as users give them, under the keys they are stored with."""
    allow_arbitrary = (spark.conf.get(_ALLOW_ARBITRARY, "false") or "").lower() == "true"
    return validate_properties(given, allow_arbitrary=allow_arbitrary)


def new_table_properties(spark: SparkSession, given: Mapping[str, str]) -> dict[str, str]:
    """The properties of a new table: those given, checked, on top of the session's defaults."""
    session = all_settings(JvmSession(spark))
    allow_arbitrary = session.get(_ALLOW_ARBITRARY, "false").lower() == "true"
    defaults = {
        f"delta.{key.removeprefix(_DEFAULTS_PREFIX)}": value
        for key, value in session.items()
        if key.startswith(_DEFAULTS_PREFIX)
    }
    chosen = validate_properties(defaults, allow_arbitrary=allow_arbitrary)
    own = validate_properties(given, allow_arbitrary=allow_arbitrary)
    ignores = IGNORE_PROTOCOL_DEFAULTS.key
    if {**chosen, **own}.get(ignores, "false").lower() == "true":
        kept = {key: value for key, value in chosen.items() if not is_protocol_property(key)}
        chosen = {**kept, ignores: "true"}
    return {**chosen, **own}
