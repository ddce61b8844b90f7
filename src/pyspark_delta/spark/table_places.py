"""Where a table that is to be made belongs, and how the catalog learns of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from pyspark_delta.errors.table import TableAlreadyExistsError, TableNotFoundError
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.properties import validate_properties
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.catalog import (
    TableName,
    look_up,
    show_columns,
    shown_schema,
    tells_metastore,
)
from pyspark_delta.spark.jvm.catalog import create_entry, default_location, qualified_location
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.table_access import is_same_location, open_log

_DEFAULTS_PREFIX = "spark.databricks.delta.properties.defaults."
_ALLOW_ARBITRARY = "spark.databricks.delta.allowArbitraryProperties.enabled"
# What Spark's catalog takes for a name; it would only say so after the table is written.
_LEGAL_NAME = re.compile(r"\w+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlace:
    """A table's name, its location and its log.

    `is_managed` says that its files go when it is dropped.
    """

    name: TableName
    location: str
    is_managed: bool
    log: DeltaLog

    def snapshot(self) -> Snapshot | None:
        """The newest version; None when there is no log yet."""
        try:
            return self.log.update()
        except TableNotFoundError:
            return None

    def check_empty(self) -> None:
        """Refuse to make a table where files are."""
        if self.has_files():
            raise TableAlreadyExistsError(
                "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION",
                tableId=self.name.shown,
                tableLocation=self.location,
            )

    def has_files(self) -> bool:
        """Whether there is any file below the location."""
        return next(iter(self.log.store.list_recursive("")), None) is not None


def place_of(
    spark: SparkSession,
    name: TableName,
    location: str | None,
    options: Mapping[str, str] | None = None,
) -> TablePlace:
    """Where the table of that name is or will be; `location` is what the user says about it.

    Of a writer's `options` those count that say how to reach the store.
    """

    def place(location: str, *, is_managed: bool) -> TablePlace:
        log = open_log(spark, location, options)
        return TablePlace(name=name, location=location, is_managed=is_managed, log=log)

    if name.path is not None:
        if location is not None and not is_same_location(location, name.path):
            raise TableAlreadyExistsError(
                "DELTA_AMBIGUOUS_PATHS_IN_CREATE_TABLE", identifier=name.shown, location=location
            )
        return place(name.path, is_managed=False)
    jvm = JvmSession(spark)
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


def register(spark: SparkSession, place: TablePlace) -> None:
    """Let the catalog know a table that is written, with the columns it has now."""
    name = place.name
    if name.path is not None:
        return
    if name.entry is not None:
        show_columns(spark, name)
        return
    metadata = place.log.update().metadata
    create_entry(
        JvmSession(spark),
        name.database,
        name.table,
        location=place.location,
        is_managed=place.is_managed,
        schema=shown_schema(metadata.schema),
        comment=metadata.description,
    )
    if tells_metastore(spark):
        parts = [name.table] if name.database is None else [name.database, name.table]
        known = look_up(spark, parts)
        if known is not None:
            show_columns(spark, known)


def checked_properties(spark: SparkSession, given: Mapping[str, str]) -> dict[str, str]:
    """Properties as users give them, under the keys they are stored with."""
    allow_arbitrary = (spark.conf.get(_ALLOW_ARBITRARY, "false") or "").lower() == "true"
    return validate_properties(given, allow_arbitrary=allow_arbitrary)


def new_table_properties(spark: SparkSession, given: Mapping[str, str]) -> dict[str, str]:
    """The properties of a new table: those given, checked, on top of the session's defaults."""
    session = spark.conf.getAll
    allow_arbitrary = session.get(_ALLOW_ARBITRARY, "false").lower() == "true"
    defaults = {
        f"delta.{key.removeprefix(_DEFAULTS_PREFIX)}": value
        for key, value in session.items()
        if key.startswith(_DEFAULTS_PREFIX)
    }
    return {
        **validate_properties(defaults, allow_arbitrary=allow_arbitrary),
        **validate_properties(given, allow_arbitrary=allow_arbitrary),
    }
