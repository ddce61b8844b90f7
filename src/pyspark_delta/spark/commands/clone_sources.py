"""What can be cloned: a version of a Delta table, or a Parquet table as it lies there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow.compute as pc
from pyspark.sql import SparkSession

from pyspark_delta.errors.table import (
    InvalidActionsError,
    OperationNotAllowedError,
)
from pyspark_delta.kernel.log.frames import add_files
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.ops.clone import (
    NO_VERSION,
    CloneSource,
    check_clone_files,
    cloned_files,
)
from pyspark_delta.kernel.ops.convert import construct_table_schema
from pyspark_delta.kernel.protocol.actions import AddFile, Metadata
from pyspark_delta.kernel.protocol.row_tracking import assigns_row_ids
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.scan.locations import IS_ABSOLUTE, LOCATION, Locations
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.allowed_places import allowed_stores
from pyspark_delta.spark.catalog import is_path_name, log_of, look_up_relation
from pyspark_delta.spark.commands.convert_target import (
    PARQUET,
    ConvertTargetTable,
    is_on,
    resolve_convert_target,
    target_table,
)
from pyspark_delta.spark.commands.read import chosen_snapshot
from pyspark_delta.spark.convert.actions import create_delta_actions, partition_rules
from pyspark_delta.spark.convert.footers import Footers, read_footers
from pyspark_delta.spark.convert.manifest import list_files
from pyspark_delta.spark.file_retention import check_retention
from pyspark_delta.spark.jvm.catalog import is_hive_parquet, is_temporary_view
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.missing_tables import missing_table
from pyspark_delta.spark.options import DeltaOptions
from pyspark_delta.spark.progress import progress
from pyspark_delta.spark.reader import session_zone
from pyspark_delta.spark.recorded_stats import STATS_CONF
from pyspark_delta.spark.table_access import hadoop_location
from pyspark_delta.spark.time_travel import AsOf

_ICEBERG = "iceberg"


class OpenedSource(ABC):
    """A source that is being cloned.

    `facts` is what the clone's definition and history need, `places` where its files lie.
    """

    facts: CloneSource
    places: tuple[str, ...]

    @abstractmethod
    def files(self, txn: OptimisticTransaction) -> Iterator[AddFile]:
        """Its files as actions of the table that `txn` has defined, made while they are read."""


class DeltaSource(OpenedSource):
    """A version of a Delta table."""

    def __init__(self, spark: SparkSession, name: str, snapshot: Snapshot) -> None:
        self._files = cloned_files(snapshot, hadoop_location(snapshot.store.root_uri))
        self.facts = CloneSource(
            name=name,
            version=snapshot.version,
            metadata=snapshot.metadata,
            protocol=snapshot.protocol,
            domains=snapshot.domains,
            num_files=snapshot.num_files,
            num_bytes=snapshot.size_in_bytes,
        )
        self.places = tuple(_places(spark, snapshot))

    def files(self, txn: OptimisticTransaction) -> Iterator[AddFile]:
        """See OpenedSource."""
        check_clone_files(txn, self._files)
        return add_files(self._files)


class ParquetSource(OpenedSource):
    """A Parquet table; its footers give the schema, and statistics that it never had."""

    def __init__(
        self, spark: SparkSession, name: str, table: ConvertTargetTable, footers: Footers
    ) -> None:
        assert footers.schema is not None or table.catalog_schema is not None
        schema = table.catalog_schema or construct_table_schema(
            footers.schema or table.partition_schema, table.partition_schema
        )
        self._footers = footers
        self._table = table
        self._rules = partition_rules(spark)
        self.facts = CloneSource(
            name=name,
            version=NO_VERSION,
            metadata=Metadata(
                id="",
                schema_string=format_schema(schema),
                partition_columns=tuple(schema[n].name for n in table.partition_schema.names),
                configuration=dict(table.properties),
            ),
            protocol=None,
            domains={},
            num_files=footers.num_files,
            num_bytes=footers.num_bytes,
        )
        self.places = tuple(table.places_outside("elsewhere"))

    def files(self, txn: OptimisticTransaction) -> Iterator[AddFile]:
        """See OpenedSource."""
        if assigns_row_ids(txn.protocol, txn.metadata) and not self._footers.has_stats:
            raise InvalidActionsError("DELTA_CLONE_WITH_ROW_TRACKING_WITHOUT_STATS")
        return create_delta_actions(
            self._footers,
            metadata=txn.metadata,
            protocol=txn.protocol,
            partition_schema=self._table.partition_schema,
            rules=self._rules,
            absolute_paths=True,
        )


@contextmanager
def opened_source(
    spark: SparkSession, parts: tuple[str, ...], as_of: AsOf | None
) -> Iterator[OpenedSource]:
    """The table of that name, or at that path; a typed error for what cannot be cloned."""
    if is_path_name(parts):
        yield delta_at_path(spark, parts[1], as_of)
        return
    if len(parts) == 2 and parts[0].lower() == _ICEBERG:
        raise OperationNotAllowedError("DELTA_MISSING_ICEBERG_CLASS")
    if len(parts) == 2 and parts[0].lower() == PARQUET:
        _check_newest(parts, PARQUET, as_of)
        with _opened_parquet(spark, parts, f"{PARQUET}.`{parts[1]}`") as source:
            yield source
        return
    shown = ".".join(parts)
    if is_temporary_view(JvmSession(spark), parts):
        raise _unsupported(shown, "View")
    found = look_up_relation(spark, parts)
    if found is None or found.entry is None:
        raise missing_table(JvmSession(spark), parts)
    if found.entry.is_view:
        raise _unsupported(found.shown, "View")
    if found.is_delta:
        yield delta_of_log(spark, log_of(spark, found), found.shown, as_of)
        return
    provider = found.entry.provider or "Unknown"
    if provider != PARQUET and not is_hive_parquet(found.entry):
        raise _unsupported(found.shown, provider)
    _check_newest(parts, provider, as_of)
    with _opened_parquet(spark, parts, found.shown) as source:
        yield source


def delta_at_path(spark: SparkSession, path: str, as_of: AsOf | None) -> DeltaSource:
    """The Delta table at a path, which may name a version."""
    options: dict[str, str] = {}
    if as_of is not None and as_of.version is not None:
        options["versionAsOf"] = str(as_of.version)
    if as_of is not None and as_of.timestamp is not None:
        options["timestampAsOf"] = as_of.timestamp
    snapshot = chosen_snapshot(spark, path, DeltaOptions(options))
    location = hadoop_location(snapshot.store.root_uri)
    return DeltaSource(spark, f"delta.`{location}`", snapshot)


def delta_of_log(
    spark: SparkSession, log: DeltaLog, name: str | None, as_of: AsOf | None
) -> DeltaSource:
    """A table whose log is open already; `name` is the catalog's, where it has one."""
    shown = f"delta.`{hadoop_location(log.store.root_uri)}`" if name is None else name
    if as_of is None:
        return DeltaSource(spark, shown, log.update())
    snapshot = as_of.snapshot(log, session_zone(spark))
    check_retention(spark, log, snapshot)
    return DeltaSource(spark, shown, snapshot)


@contextmanager
def _opened_parquet(
    spark: SparkSession, parts: tuple[str, ...], name: str
) -> Iterator[ParquetSource]:
    target = resolve_convert_target(spark, parts)
    # The defaults of the session are for new tables, and this is one that exists.
    table = replace(target_table(spark, target, None), properties=target.properties)
    with (
        progress() as shown,
        list_files(spark, table.location, partitions=table.partitions, progress=shown) as manifest,
        read_footers(
            spark,
            manifest,
            stats=is_on(spark, STATS_CONF),
            infer_schema=table.catalog_schema is None,
            configuration=table.properties,
            progress=shown,
        ) as footers,
    ):
        yield ParquetSource(spark, name, table, footers)


def _places(spark: SparkSession, snapshot: Snapshot) -> Iterator[str]:
    """Where the files of a version lie: its own place, and those that it names outside of it."""
    yield hadoop_location(snapshot.store.root_uri)
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
