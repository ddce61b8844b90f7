"""SHALLOW CLONE: a new table whose files are another one's.

The session is told that the clone's log may name files in the source's place, and so is the
catalog, where the clone is in one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.errors.table import (
    OperationNotAllowedError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from pyspark_delta.kernel.ops.clone import commit_clone, define_clone, replacing_files
from pyspark_delta.kernel.protocol.actions import Action
from pyspark_delta.kernel.protocol.operations import clone
from pyspark_delta.kernel.protocol.types import LONG, StructField, StructType
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.allowed_places import allow_places
from pyspark_delta.spark.catalog import TableName, look_up, show_columns
from pyspark_delta.spark.commands.clone_sources import OpenedSource, delta_of_log
from pyspark_delta.spark.commands.restore import DOWNGRADE_CONF, metrics_frame
from pyspark_delta.spark.commands.user_metadata import session_user_metadata
from pyspark_delta.spark.jvm.catalog import remember_outside
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.local_frame import local_frame
from pyspark_delta.spark.table_access import is_same_location
from pyspark_delta.spark.table_places import (
    TablePlace,
    checked_properties,
    known_name,
    place_of,
    register,
)
from pyspark_delta.spark.time_travel import AsOf

_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.\-]+:/")
_COLUMNS = {
    "source_table_size": "sourceTableSize",
    "source_num_of_files": "sourceNumOfFiles",
    "num_removed_files": "numRemovedFiles",
    "num_copied_files": "numCopiedFiles",
    "removed_files_size": "removedFilesSize",
    "copied_files_size": "copiedFilesSize",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneTarget:
    """The table that becomes a clone, and what is said of it besides.

    With `replaces` an empty table that exists becomes the clone, with `creates` one that is missing
    is made.
    """

    name: TableName
    location: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    creates: bool = True
    replaces: bool = False
    if_not_exists: bool = False


def find_clone_place(spark: SparkSession, target: CloneTarget) -> TablePlace | None:
    """Where the clone will be, before its source is looked at; None when there is one already.

    That is fine only IF NOT EXISTS; else it is an error, as are two places for one table.
    """
    name = target.name
    if target.location is not None and _ABSOLUTE.match(target.location) is None:
        raise OperationNotAllowedError("DELTA_INVALID_CLONE_PATH", path=name.shown)
    if (
        name.path is not None
        and target.location is not None
        and not is_same_location(target.location, name.path)
    ):
        raise OperationNotAllowedError(
            "DELTA_CLONE_AMBIGUOUS_TARGET",
            externalLocation=target.location,
            targetIdentifier=name.shown,
        )
    if name.entry is not None and not target.replaces:
        _check_may_exist(target)
        return None
    place = place_of(spark, name, target.location)
    exists = name.entry is not None or (name.path is not None and place.snapshot() is not None)
    if exists and not target.replaces:
        if not target.if_not_exists:
            place.check_empty()
        return None
    if not exists and not target.creates:
        raise TableNotFoundError("DELTA_CANNOT_REPLACE_MISSING_TABLE", tableName=name.shown)
    if not target.replaces and not place.is_unregistered():
        place.check_empty()
    return place


def run_clone(
    spark: SparkSession, place: TablePlace, target: CloneTarget, source: OpenedSource
) -> DataFrame:
    """Make the clone, and tell how large its source is.

    The catalog is told where files of a table lie that it knows before the log names them: a table
    that nobody could read is none.
    """
    is_unregistered = place.is_unregistered()
    txn = place.log.start_transaction()
    if txn.snapshot is not None:
        # A statement before this one may have been stopped before it told the catalog.
        show_columns(spark, place.name, txn.snapshot)
    domains = define_clone(
        txn,
        source.facts,
        checked_properties(spark, target.properties),
        new_id=str(uuid4()),
        allow_downgrade=spark.conf.get(DOWNGRADE_CONF, "false") == "true",
        replaces_files=is_unregistered,
    )

    facts = source.facts
    with place.making() as begin:

        def actions() -> Iterator[Action]:
            files = source.files(txn)
            yield from replacing_files(txn, files) if is_unregistered else files
            yield from domains
            # All that can be wrong was found by now, and nothing is committed yet.
            if is_unregistered:
                register(spark, place, source.places)
            elif place.name.entry is not None:
                remember_outside(JvmSession(spark), place.name.entry, source.places)
            elif place.name.path is None:
                begin()

        commit_clone(
            txn,
            actions(),
            facts,
            clone(facts.name, facts.version),
            user_metadata=session_user_metadata(spark),
        )
    allow_places(spark, source.places)
    if is_unregistered or place.name.entry is not None:
        show_columns(spark, known_name(spark, place.name))
    else:
        register(spark, place, source.places)
    return metrics_frame(spark, _COLUMNS, facts.metrics)


def clone_log(
    spark: SparkSession,
    log: DeltaLog,
    name: str | None,
    as_of: AsOf | None,
    target: CloneTarget,
) -> None:
    """Clone the table of a log, which the catalog may know by `name`."""
    place = find_clone_place(spark, target)
    if place is not None:
        run_clone(spark, place, target, delta_of_log(spark, log, name, as_of))


def target_named(spark: SparkSession, target: str) -> TableName:
    """The table at a path, or of a name, that a clone is asked for at."""
    found = TableName(path=target) if _ABSOLUTE.match(target) else look_up(spark, target)
    if found is None:
        raise OperationNotAllowedError("DELTA_INVALID_CLONE_PATH", path=target)
    return found


def no_clone(spark: SparkSession) -> DataFrame:
    """What is told when there was a table already: nothing."""
    return local_frame(spark, StructType(tuple(StructField(c, LONG) for c in _COLUMNS)), [])


def _check_may_exist(target: CloneTarget) -> None:
    if not target.if_not_exists:
        raise TableAlreadyExistsError("DELTA_TABLE_ALREADY_EXISTS", tableName=target.name.shown)
