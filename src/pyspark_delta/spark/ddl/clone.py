"""SHALLOW CLONE: a new table that refers to the files of another one.

The source is a version of a Delta table, or a Parquet table in its current state.  The session
allows the clone's log to refer to files at the source's location, and so does the catalog entry,
where the clone has one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from uuid import uuid4

import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.errors import (
    InvalidActionsError,
    OperationNotAllowedError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.ops.clone import (
    NO_VERSION,
    CloneSource,
    check_clone_files,
    cloned_files,
    commit_clone,
    define_clone,
    replacing_files,
)
from pyspark_delta.kernel.ops.convert.files import construct_table_schema
from pyspark_delta.kernel.protocol.actions import Action, AddFile, Metadata
from pyspark_delta.kernel.protocol.row_tracking import assigns_row_ids
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import LONG, StructField, StructType
from pyspark_delta.kernel.scan.locations import IS_ABSOLUTE, LOCATION, Locations
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.conf.options import DeltaOptions
from pyspark_delta.spark.conf.progress import progress
from pyspark_delta.spark.conf.setting_table import PROTOCOL_DOWNGRADE, STATS_COLLECT, USER_METADATA
from pyspark_delta.spark.conf.settings import session_zone
from pyspark_delta.spark.convert.actions import create_delta_actions, partition_rules
from pyspark_delta.spark.convert.files import list_files
from pyspark_delta.spark.convert.footers import Footers, read_footers
from pyspark_delta.spark.convert.target import (
    PARQUET,
    ConvertTargetTable,
    resolve_convert_target,
    target_table,
)
from pyspark_delta.spark.jvm.catalog.entries import (
    is_temporary_view,
    missing_table,
    remember_outside,
)
from pyspark_delta.spark.jvm.failures import typed_job_failures
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parser.plans import TableDefinition
from pyspark_delta.spark.maintenance.restore import metrics_frame
from pyspark_delta.spark.results.local_frame import local_frame
from pyspark_delta.spark.scan.load import AsOf, check_still_readable, chosen_snapshot
from pyspark_delta.spark.tables.locations import (
    allow_places,
    allowed_stores,
    hadoop_location,
    is_same_location,
)
from pyspark_delta.spark.tables.names import (
    TableName,
    is_path_name,
    log_of,
    look_up,
    look_up_relation,
    update_entry,
)
from pyspark_delta.spark.tables.registration import (
    TablePlace,
    checked_properties,
    known_name,
    place_of,
    register,
)

_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.\-]+:/")
_ICEBERG = "iceberg"
_COLUMNS = {
    "source_table_size": "sourceTableSize",
    "source_num_of_files": "sourceNumOfFiles",
    "num_removed_files": "numRemovedFiles",
    "num_copied_files": "numCopiedFiles",
    "removed_files_size": "removedFilesSize",
    "copied_files_size": "copiedFilesSize",
}
CLONE_SCHEMA = StructType(tuple(StructField(name, LONG) for name in _COLUMNS))
"""The columns of a clone's result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedSource:
    """The source of a running clone.

    `facts` has what the clone's definition and history need, `places` the locations of its files.
    `files` makes the actions for the table that a transaction defines, as they are consumed.
    """

    facts: CloneSource
    places: tuple[str, ...]
    files: Callable[[OptimisticTransaction], Iterator[AddFile]] = field(hash=False)


@contextmanager
def opened_source(
    spark: SparkSession, parts: tuple[str, ...], as_of: AsOf | None
) -> Iterator[OpenedSource]:
    """The table of that name or path; raises a typed error for what cannot be cloned."""
    if is_path_name(parts):
        yield _delta_at_path(spark, parts[1], as_of)
        return
    if len(parts) == 2 and parts[0].lower() == _ICEBERG:
        raise OperationNotAllowedError("DELTA_MISSING_ICEBERG_CLASS")
    if len(parts) == 2 and parts[0].lower() == PARQUET:
        _check_newest(parts, PARQUET, as_of)
        with _opened_parquet(spark, parts, f"{PARQUET}.`{parts[1]}`") as source:
            yield source
        return
    if is_temporary_view(JvmSession(spark), parts):
        raise _unsupported(".".join(parts), "View")
    found = look_up_relation(spark, parts)
    if found is None or found.entry is None:
        raise missing_table(JvmSession(spark), parts)
    if found.entry.is_view:
        raise _unsupported(found.label, "View")
    if found.is_delta:
        yield _delta_of_log(spark, log_of(spark, found), found.label, as_of)
        return
    provider = found.entry.provider or "Unknown"
    if provider != PARQUET and not found.entry.is_hive_parquet:
        raise _unsupported(found.label, provider)
    _check_newest(parts, provider, as_of)
    with _opened_parquet(spark, parts, found.label) as source:
        yield source


def find_clone_place(
    spark: SparkSession, name: TableName, target: TableDefinition
) -> TablePlace | None:
    """The clone's location, resolved before its source is read; None when a table exists already.

    An existing table is an error without IF NOT EXISTS, and so are two locations for one table.
    """
    if target.location is not None and _ABSOLUTE.match(target.location) is None:
        raise OperationNotAllowedError("DELTA_INVALID_CLONE_PATH", path=name.label)
    if (
        name.path is not None
        and target.location is not None
        and not is_same_location(target.location, name.path)
    ):
        raise OperationNotAllowedError(
            "DELTA_CLONE_AMBIGUOUS_TARGET",
            externalLocation=target.location,
            targetIdentifier=name.label,
        )
    if name.entry is not None and not target.replaces:
        if not target.if_not_exists:
            raise TableAlreadyExistsError("DELTA_TABLE_ALREADY_EXISTS", tableName=name.label)
        return None
    place = place_of(spark, name, target.location)
    exists = name.entry is not None or (name.path is not None and place.snapshot() is not None)
    if exists and not target.replaces:
        if not target.if_not_exists:
            place.check_empty()
        return None
    if not exists and not target.creates:
        raise TableNotFoundError("DELTA_CANNOT_REPLACE_MISSING_TABLE", tableName=name.label)
    if not target.replaces and not place.is_unregistered():
        place.check_empty()
    return place


def run_clone(
    spark: SparkSession, place: TablePlace, target: TableDefinition, source: OpenedSource
) -> DataFrame:
    """Make the clone; returns the row with the size of its source.

    For a table in the catalog, the entry allows the places of the files before the commit refers to
    them: otherwise the committed table could not be read.
    """
    is_unregistered = place.is_unregistered()
    txn = place.log.start_transaction()
    if txn.snapshot is not None:
        # An earlier statement may have been stopped before it updated the catalog.
        update_entry(spark, place.name, txn.snapshot)
    domains = define_clone(
        txn,
        source.facts,
        checked_properties(spark, target.properties),
        new_id=str(uuid4()),
        allow_downgrade=PROTOCOL_DOWNGRADE.of(spark),
        replaces_files=is_unregistered,
    )

    with place.making() as begin:

        def actions() -> Iterator[Action]:
            files = source.files(txn)
            yield from replacing_files(txn, files) if is_unregistered else files
            yield from domains
            # All checks are done, and nothing is committed yet.
            if is_unregistered:
                register(spark, place, source.places)
            elif place.name.entry is not None:
                remember_outside(JvmSession(spark), place.name.entry, source.places)
            elif place.name.path is None:
                begin()

        commit_clone(
            txn,
            actions(),
            source.facts,
            user_metadata=USER_METADATA.of(spark),
        )
    allow_places(spark, source.places)
    if is_unregistered or place.name.entry is not None:
        update_entry(spark, known_name(spark, place.name))
    else:
        register(spark, place, source.places)
    return metrics_frame(spark, _COLUMNS, source.facts.metrics)


def clone_log(
    spark: SparkSession,
    log: DeltaLog,
    label: str | None,
    as_of: AsOf | None,
    name: TableName,
    target: TableDefinition,
) -> None:
    """Clone the table of a log, whose name in the catalog is `label` if it has one."""
    place = find_clone_place(spark, name, target)
    if place is not None:
        run_clone(spark, place, target, _delta_of_log(spark, log, label, as_of))


def target_named(spark: SparkSession, target: str) -> TableName:
    """The table name for a clone's target, which is a path or a name."""
    found = TableName(path=target) if _ABSOLUTE.match(target) else look_up(spark, target)
    if found is None:
        raise OperationNotAllowedError("DELTA_INVALID_CLONE_PATH", path=target)
    return found


def no_clone(spark: SparkSession) -> DataFrame:
    """The empty result for a target that exists already."""
    return local_frame(spark, CLONE_SCHEMA, [])


def _delta_at_path(spark: SparkSession, path: str, as_of: AsOf | None) -> OpenedSource:
    """The Delta table at a path, which may include a version."""
    options: dict[str, str] = {}
    if as_of is not None and as_of.version is not None:
        options["versionAsOf"] = str(as_of.version)
    if as_of is not None and as_of.timestamp is not None:
        options["timestampAsOf"] = as_of.timestamp
    snapshot = chosen_snapshot(spark, path, DeltaOptions(options))
    location = hadoop_location(snapshot.store.root_uri)
    return _delta_source(spark, f"delta.`{location}`", snapshot)


def _delta_of_log(
    spark: SparkSession, log: DeltaLog, name: str | None, as_of: AsOf | None
) -> OpenedSource:
    """A table whose log is open already; `name` is its name in the catalog, if any."""
    label = f"delta.`{hadoop_location(log.store.root_uri)}`" if name is None else name
    if as_of is None:
        return _delta_source(spark, label, log.update())
    snapshot = as_of.snapshot(log, session_zone(spark))
    check_still_readable(spark, log, snapshot)
    return _delta_source(spark, label, snapshot)


def _delta_source(spark: SparkSession, name: str, snapshot: Snapshot) -> OpenedSource:
    location = hadoop_location(snapshot.store.root_uri)
    cloned = cloned_files(snapshot, location)

    def files(txn: OptimisticTransaction) -> Iterator[AddFile]:
        check_clone_files(txn, cloned)
        return add_files(cloned)

    facts = CloneSource(
        name=name,
        version=snapshot.version,
        metadata=snapshot.metadata,
        protocol=snapshot.protocol,
        domains=snapshot.domains,
        num_files=snapshot.num_files,
        num_bytes=snapshot.size_in_bytes,
    )
    places = (location, *_outside(spark, snapshot))
    return OpenedSource(facts=facts, places=places, files=files)


@contextmanager
def _opened_parquet(
    spark: SparkSession, parts: tuple[str, ...], name: str
) -> Iterator[OpenedSource]:
    """A Parquet table; the footers of its files give the schema and the statistics."""
    target = resolve_convert_target(spark, parts)
    # The session's default properties are for new tables, and this one exists.
    table = replace(target_table(spark, target, None), properties=target.properties)
    with (
        typed_job_failures(spark),
        progress() as bar,
        list_files(spark, table.location, partitions=table.partitions, progress=bar) as manifest,
        read_footers(
            spark,
            manifest,
            stats=STATS_COLLECT.of(spark),
            infer_schema=table.catalog_schema is None,
            configuration=table.properties,
            progress=bar,
        ) as footers,
    ):
        yield _parquet_source(spark, name, table, footers)


def _parquet_source(
    spark: SparkSession, name: str, table: ConvertTargetTable, footers: Footers
) -> OpenedSource:
    assert footers.schema is not None or table.catalog_schema is not None
    schema = table.catalog_schema or construct_table_schema(
        footers.schema or table.partition_schema, table.partition_schema
    )
    rules = partition_rules(spark)

    def files(txn: OptimisticTransaction) -> Iterator[AddFile]:
        if assigns_row_ids(txn.protocol, txn.metadata) and not footers.has_stats:
            raise InvalidActionsError("DELTA_CLONE_WITH_ROW_TRACKING_WITHOUT_STATS")
        return create_delta_actions(
            footers,
            metadata=txn.metadata,
            protocol=txn.protocol,
            partition_schema=table.partition_schema,
            rules=rules,
            absolute_paths=True,
        )

    metadata = Metadata(
        id="",
        schema_string=format_schema(schema),
        partition_columns=tuple(schema[n].name for n in table.partition_schema.names),
        configuration=dict(table.properties),
    )
    facts = CloneSource(
        name=name,
        version=NO_VERSION,
        metadata=metadata,
        protocol=None,
        domains={},
        num_files=footers.num_files,
        num_bytes=footers.num_bytes,
    )
    places = tuple(table.places_outside("elsewhere"))
    return OpenedSource(facts=facts, places=places, files=files)


def _outside(spark: SparkSession, snapshot: Snapshot) -> Iterator[str]:
    """The locations of a version's files outside the table's own."""
    allowed = allowed_stores(spark)
    resolved = Locations(snapshot.store, allowed).resolve(snapshot.files_with(["path"])["path"])
    outside = resolved.column(LOCATION).filter(resolved.column(IS_ABSOLUTE))
    for store in allowed:
        if not len(outside):
            return
        root = store.root_uri.rstrip("/") + "/"
        is_here = pc.starts_with(outside, root)
        if pc.any(is_here).as_py():
            yield hadoop_location(store.root_uri)
            outside = outside.filter(pc.invert(is_here))


def _check_newest(parts: tuple[str, ...], provider: str, as_of: AsOf | None) -> None:
    if as_of is not None:
        raise _unsupported(".".join(parts), provider)


def _unsupported(name: str, kind: str) -> OperationNotAllowedError:
    return OperationNotAllowedError("DELTA_CLONE_UNSUPPORTED_SOURCE", name=name, format=kind)
