"""Registers new tables in the catalog, and resolves their location.

Log and catalog change one after the other, and a process may be stopped in between.  Until both are
done, a note beside the log records this (`kernel.ops.notes`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from pyspark.sql import SparkSession

from pyspark_delta.errors import DeltaError, TableAlreadyExistsError, TableNotFoundError
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.ops.notes import (
    CREATION_NOTE,
    forget_creation_note,
    read_creation_note,
    write_creation_note,
)
from pyspark_delta.kernel.protocol.feature_upgrade import is_protocol_property
from pyspark_delta.kernel.protocol.properties import IGNORE_PROTOCOL_DEFAULTS, validate_properties
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.conf.setting_table import (
    ALLOW_ARBITRARY_PROPERTIES,
    PROPERTY_DEFAULTS,
    UPDATE_CATALOG,
)
from pyspark_delta.spark.jvm.catalog.entries import (
    SESSION_CATALOG,
    create_entry,
    current_database,
    default_location,
    location_in_database,
    release_entry,
)
from pyspark_delta.spark.jvm.gateway import JvmSession, all_settings
from pyspark_delta.spark.tables.locations import is_same_location, open_log
from pyspark_delta.spark.tables.names import TableName, look_up, schema_for_catalog, update_entry

# Valid names for Spark's catalog, which would raise only after the table is written.
_LEGAL_NAME = re.compile(r"\w+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlace:
    """A table's name, its location and its log.

    `is_managed` means that its files are deleted with the table; `noted_as` is its name in the note
    while it is created.
    """

    name: TableName
    location: str
    is_managed: bool
    log: DeltaLog
    noted_as: str

    def snapshot(self) -> Snapshot | None:
        """The newest version; None if there is no log yet."""
        with suppress(TableNotFoundError):
            return self.log.update()
        return None

    def check_empty(self) -> None:
        """Raise if the location has files, except those of an unfinished creation of this table."""
        if self.has_files() and not (self.is_begun() and self.snapshot() is None):
            raise TableAlreadyExistsError(
                "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION",
                tableId=self.name.label,
                tableLocation=self.location,
            )

    def has_files(self) -> bool:
        """Whether there are files below the location."""
        return next(iter(self.log.store.list_recursive("")), None) is not None

    def is_begun(self) -> bool:
        """Whether a creation of this table was begun here, and not finished."""
        return read_creation_note(self.log.store) == self.noted_as

    def is_unregistered(self) -> bool:
        """Whether the table was committed, but its creator stopped before it updated the catalog.

        A later writer registers the table before it changes it.  The creator may still run and do
        the same; the catalog accepts only one of them.  With a second version it is an independent
        table.
        """
        if self.name.path is not None or self.name.entry is not None or not self.is_begun():
            return False
        snapshot = self.snapshot()
        return snapshot is not None and snapshot.version == 0

    @contextmanager
    def making(self) -> Iterator[Callable[[], None]]:
        """Wraps the creation of the table; yields a function to call before the first file.

        That function writes the note, if nothing is there yet.  If the block fails, the note is
        deleted, unless other files are left behind.
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
            with suppress(DeltaError):  # the first failure is the one to raise
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
    """The place of a table that exists or is to be created; `location` is the user's, if any.

    Of a writer's `options`, those for access to the store apply.
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
            condition = "DELTA_AMBIGUOUS_PATHS_IN_CREATE_TABLE"
            raise TableAlreadyExistsError(condition, identifier=name.label, location=location)
        return place(name.path, is_managed=False)
    given = None if location is None else location_in_database(jvm, name.database, location)
    if name.entry is not None:
        if not name.entry.is_delta or name.entry.location is None:
            raise TableAlreadyExistsError("DELTA_NOT_A_DELTA_TABLE", tableName=name.label)
        known = name.entry.location
        if given is not None and not is_same_location(given, known):
            raise TableAlreadyExistsError(
                "DELTA_TABLE_LOCATION_MISMATCH",
                tableName=name.label,
                existingTableLocation=known,
                tableLocation=given,
            )
        return place(known, is_managed=name.entry.is_managed)
    if _LEGAL_NAME.fullmatch(name.table) is None:
        raise TableNotFoundError("DELTA_PARSING_ILLEGAL_TABLE_NAME", tableName=name.table)
    if given is not None:
        return place(given, is_managed=False)
    return place(default_location(jvm, name.database, name.table), is_managed=True)


def is_definition_only(spark: SparkSession, name: TableName) -> bool:
    """Whether the catalog has the table's definition, and there is no log yet.

    Spark makes such an entry in a session that is not enabled.
    """
    if name.entry is None or not name.entry.is_sparks_own:
        return False
    return place_of(spark, name, None).snapshot() is None


def register(spark: SparkSession, place: TablePlace, outside: Sequence[str] = ()) -> None:
    """Register a written table in the catalog, with its current columns.

    `outside` are other locations with files of a new table.
    """
    name = place.name
    if name.entry is not None and name.entry.is_sparks_own:
        # A metastore never changes the partition columns of an entry, and Delta's are plain columns
        # in it.  The note of a new table remains if the process stops between the two entries.
        write_creation_note(place.log.store, place.noted_as)
        release_entry(JvmSession(spark), name.entry)
    elif name.path is None and name.entry is not None:
        update_entry(spark, name)
        return
    if name.path is None:
        metadata = place.log.update().metadata
        create_entry(
            JvmSession(spark),
            name.database,
            name.table,
            location=place.location,
            is_managed=place.is_managed,
            schema=schema_for_catalog(metadata.schema),
            comment=metadata.description,
            outside=outside,
        )
    forget_creation_note(place.log.store)
    if name.path is None and UPDATE_CATALOG.of(spark):
        update_entry(spark, known_name(spark, name))


def known_name(spark: SparkSession, name: TableName) -> TableName:
    """A name of the catalog, with its current entry."""
    found = look_up(spark, [part for part in (name.database, name.table) if part is not None])
    assert found is not None  # it is in Spark's own catalog
    return found


def _noted_name(jvm: JvmSession, name: TableName) -> str:
    if name.entry is not None:
        return name.entry.name
    if name.path is not None:
        return f"delta.`{name.path.rstrip('/')}`"
    return f"{SESSION_CATALOG}.{name.database or current_database(jvm)}.{name.table}".lower()


def checked_properties(spark: SparkSession, given: Mapping[str, str]) -> dict[str, str]:
    """Properties from a user, under the keys by which they are stored."""
    return validate_properties(given, allow_arbitrary=ALLOW_ARBITRARY_PROPERTIES.of(spark))


def new_table_properties(spark: SparkSession, given: Mapping[str, str]) -> dict[str, str]:
    """The properties of a new table: the given ones, checked, and the session's defaults."""
    session = all_settings(JvmSession(spark))
    allow_arbitrary = ALLOW_ARBITRARY_PROPERTIES.by(session.get)
    settings, start = PROPERTY_DEFAULTS.members(session), len(PROPERTY_DEFAULTS.prefix)
    defaults = {f"delta.{key[start:]}": value for key, value in settings.items()}
    chosen = validate_properties(defaults, allow_arbitrary=allow_arbitrary)
    own = validate_properties(given, allow_arbitrary=allow_arbitrary)
    ignores = IGNORE_PROTOCOL_DEFAULTS.key
    if {**chosen, **own}.get(ignores, "false").lower() == "true":
        kept = {key: value for key, value in chosen.items() if not is_protocol_property(key)}
        chosen = {**kept, ignores: "true"}
    return {**chosen, **own}
