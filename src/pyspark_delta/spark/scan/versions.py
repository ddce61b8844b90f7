"""Which version of a table a query or a command reads, and what its transaction knows of that.

A read that follows its table is of the version that is the newest when its query is planned.  All
scans of a table in one query read one version.  All queries of one command read the version of its
transaction.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from threading import Lock
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.errors import OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.ops.changes.definitions import loses_columns
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.schema_merge import is_read_compatible, schema_differences
from pyspark_delta.kernel.scan.aggregates import Aggregate, AggregateValues
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.conf.setting_table import METADATA_QUERY
from pyspark_delta.spark.conf.settings import session_zone
from pyspark_delta.spark.jvm.expressions.catalyst import Filter
from pyspark_delta.spark.jvm.gateway import JvmSession, has_cached_plans
from pyspark_delta.spark.jvm.plans.frames import read_cached_again
from pyspark_delta.spark.jvm.scan.catalyst_rows import FileGroups
from pyspark_delta.spark.jvm.scan.file_index import (
    ScanSource,
    indexes_of_versions,
    install_rule,
    running_command,
    sources_read_by,
)
from pyspark_delta.spark.jvm.scan.log_aggregates import answered
from pyspark_delta.spark.scan.source import ChosenSource, ScanSettings, SnapshotSource
from pyspark_delta.spark.tables.locations import hadoop_location

# The number of tables whose newest known version is remembered.
_MOST_KNOWN = 10_000
_KNOWN_VERSIONS: OrderedDict[str, int] = OrderedDict()
_KNOWN_LOCK = Lock()
# The running commands, by the names that Spark has for them.
_COMMANDS: dict[str, ReadVersions] = {}
_NUMBERS = count(1)


class ReadVersions:
    """The version of each table to read, chosen when the table is first read.

    `own` is that of a table that a command changes; `outer` has the versions of a statement that
    contains the command.
    """

    def __init__(self, own: Snapshot | None = None, outer: ReadVersions | None = None) -> None:
        self._by_root = {} if own is None else {own.store.root_uri: own}
        self._outer = outer
        if outer is not None and own is not None:
            # The following parts of the statement do not see what this part writes.
            outer._by_root.setdefault(own.store.root_uri, own)

    def of(self, log: DeltaLog) -> Snapshot:
        """The version to read of the log's table."""
        root = log.store.root_uri
        if root not in self._by_root:
            self._by_root[root] = log.update() if self._outer is None else self._outer.of(log)
        return self._by_root[root]


@contextmanager
def one_version_each(
    jvm: JvmSession, snapshot: Snapshot | None = None, *, apart: bool = False
) -> Iterator[None]:
    """Wraps a command, so that its queries read one version of each table.

    `snapshot` is that of the table that it changes.  A command inside another one reads the same
    versions as the outer one, unless it is `apart`.
    """
    name = str(next(_NUMBERS))
    try:
        with running_command(jvm, name) as outer:
            above = None if apart or outer is None else _COMMANDS.get(outer)
            _COMMANDS[name] = ReadVersions(snapshot, above)
            yield
    finally:
        _COMMANDS.pop(name, None)


class NewestSource(SnapshotSource):
    """The newest version of a table, with its columns at the time the DataFrame was made."""

    follows_table = True

    def __init__(self, log: DeltaLog, snapshot: Snapshot, settings: ScanSettings) -> None:
        super().__init__(snapshot, settings)
        self.log = log
        self._version: SnapshotSource | None = None

    @property
    def size_in_bytes(self) -> int:
        return self.log.snapshot.size_in_bytes

    @property
    def identity(self) -> tuple[str, ...]:
        return (self.snapshot.store.root_uri, self.snapshot.metadata.id, "newest version")

    def at(self, snapshot: Snapshot) -> SnapshotSource:
        """This read at one version; returns the same source for the same snapshot."""
        known = self._version
        if known is None or known.snapshot is not snapshot:
            _check_followed(self.snapshot.metadata, snapshot.metadata)
            known = SnapshotSource(
                snapshot, self._settings, tracks_rows=self.tracks_rows, reads=self.reads
            )
            self._version = known
        known.checks_every_link = self.checks_every_link
        return known

    def groups(
        self, partition_filters: Sequence[Filter], data_filters: Sequence[Filter]
    ) -> tuple[FileGroups, list[int]]:
        # Only in a session without the rule, where deleted rows would not be dropped.
        version = self.at(self.log.update())
        if version.has_vectors:
            raise OperationNotAllowedError(
                "DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG",
                operation="A read of a table with deletion vectors",
            )
        return version.groups(partition_filters, data_filters)

    def answers(
        self, partition_filters: Sequence[Filter], requested: Sequence[Aggregate]
    ) -> AggregateValues | None:
        return None

    def _may_hide_rows(self) -> bool:
        return False  # the version that a query reads decides about deleted rows


def follow_tables(jvm: JvmSession) -> None:
    """Make the session's queries choose their versions; calling it again does nothing."""
    install_rule(jvm, _indexes, partial(answered, may_answer=METADATA_QUERY.of))


def refresh_cached(jvm: JvmSession, root_uri: str, version: int, *, is_new: bool = False) -> None:
    """Invalidate the rows of the table that Spark has cached, if `version` is newer than known.

    Spark finds cached rows by equal plans, and the plan of a read that follows its table is the
    same for all versions.  So this is called after a commit of this process, and after a look-up
    by name, which may find another writer's version.  It covers reads by path and by name.  With
    `is_new` the version is newer, whatever is known.
    """
    with _KNOWN_LOCK:
        known = _KNOWN_VERSIONS.pop(root_uri, None)
        _KNOWN_VERSIONS[root_uri] = version if known is None else max(known, version)
        if len(_KNOWN_VERSIONS) > _MOST_KNOWN:
            _KNOWN_VERSIONS.popitem(last=False)
    if not is_new and (known is None or known >= version):
        return
    if has_cached_plans(jvm):
        # A command may be running whose own queries must read the version before it.
        with one_version_each(jvm, apart=True):
            read_cached_again(jvm, hadoop_location(root_uri))


def start_transaction(spark: SparkSession, log: DeltaLog) -> OptimisticTransaction:
    """A transaction on the newest version, or on none where there is no table yet.

    A timestamp as a partition value may lack its time zone.  Scans take it to be in the session's,
    so a command must find its files, and its commit the conflicts, in that zone too.
    """
    return log.start_transaction(time_zone=session_zone(spark))


def transaction_on(spark: SparkSession, log: DeltaLog, snapshot: Snapshot) -> OptimisticTransaction:
    """As `start_transaction`, on a version that was read before."""
    return log.transaction_on(snapshot, time_zone=session_zone(spark))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReads:
    """The scans of a table in data that is written to the same table, and their earlier reads.

    The transaction must know these reads: rows that were computed from files which another writer
    has replaced meanwhile must not be committed.  A read of a fixed version, by number or time,
    does not count.  `any_table` says whether the data reads any Delta table, this one or another.
    """

    sources: tuple[tuple[SnapshotSource, int], ...] = field(hash=False)
    any_table: bool = False

    @classmethod
    def of(cls, log: DeltaLog, data: DataFrame) -> TableReads:
        """The scans of the log's table in `data`, except those of files that a command chose."""
        root = log.store.root_uri
        found = sources_read_by(data)
        sources = [each for each in found if isinstance(each, SnapshotSource)]
        for source in sources:
            # The rows are copied into a table, whichever table they are from.
            source.checks_every_link = True
        return cls(
            sources=tuple(
                (source, len(source.reads))
                for source in sources
                if not isinstance(source, ChosenSource)
                and source.snapshot.store.root_uri == root
                and not source.is_time_travel
            ),
            any_table=bool(found),
        )

    def start_transaction(self, spark: SparkSession, log: DeltaLog) -> OptimisticTransaction:
        """A transaction on the version that was read, which may no longer be the newest.

        A read that follows the table reads the transaction's version; rows that Spark has cached
        are of the version that they were read from.
        """
        txn = start_transaction(spark, log)
        if txn.snapshot is None:
            return txn
        read = [
            source.snapshot
            for source, _ in self.sources
            if not source.follows_table
            and isinstance(source.snapshot, Snapshot)
            and source.snapshot.metadata.id == txn.snapshot.metadata.id
        ]
        oldest = min(read, key=lambda snapshot: snapshot.version, default=txn.snapshot)
        if oldest.version >= txn.read_version:
            return txn
        return log.transaction_on(oldest, time_zone=txn.time_zone)

    def record(self, txn: OptimisticTransaction) -> None:
        """Record the reads in the transaction, once the job has run."""
        for source, before in self.sources:
            # Rows that Spark had cached were not read again, so earlier reads count.
            reads = source.reads[before:] or source.reads
            if not reads:
                txn.read_whole_table()
            for predicate in dict.fromkeys(read.filter for read in reads):
                txn.filter_files(predicate)


def _indexes(command: str, names: Sequence[str]) -> list[Any]:
    # A thread that a command started may outlive it.
    versions = _COMMANDS.get(command) or ReadVersions()
    return indexes_of_versions(names, partial(_versions_of, versions))


def _versions_of(versions: ReadVersions, sources: Sequence[ScanSource]) -> list[ScanSource]:
    found: list[ScanSource] = []
    for source in sources:
        assert isinstance(source, NewestSource)
        found.append(source.at(versions.of(source.log)))
    return found


def _check_followed(planned: Metadata, now: Metadata) -> None:
    """Raise for a schema that a plan for another cannot read; new columns are fine."""
    if planned is now or (
        is_read_compatible(planned.schema, now.schema)
        and not loses_columns(planned, now)
        and planned.partition_columns == now.partition_columns
    ):
        return
    differences = schema_differences(planned.schema, now.schema)
    raise SchemaError(
        "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS",
        schemaDiff="; ".join(differences) or "its columns or partition columns are others",
    )
