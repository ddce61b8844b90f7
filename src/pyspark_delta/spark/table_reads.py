"""What data that is written to a table was read from that very table.

The transaction must know: rows that were computed from files which another writer has replaced
meanwhile must not be committed.  A version that was asked for by number or time is not the table.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.kernel.scan.predicates import Predicate
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.chosen_rows import ChosenSource
from pyspark_delta.spark.jvm.file_index import sources_read_by
from pyspark_delta.spark.snapshot_source import SnapshotSource
from pyspark_delta.spark.transactions import start_transaction


@dataclass(frozen=True, slots=True)
class TableReads:
    """The scans of one table in some data, and how much each had read before."""

    sources: tuple[tuple[SnapshotSource, int], ...] = field(hash=False)

    @classmethod
    def of(cls, log: DeltaLog, data: DataFrame) -> TableReads:
        """The scans in `data` of the table that `log` is of, but of files that a command chose."""
        root = log.store.root_uri
        sources = [each for each in sources_read_by(data) if isinstance(each, SnapshotSource)]
        for source in sources:
            # What is read here is copied into a table, whichever table it is read from.
            source.checks_every_link = True
        return cls(
            tuple(
                (source, len(source.reads))
                for source in sources
                if not isinstance(source, ChosenSource)
                and source.snapshot.store.root_uri == root
                and not source.is_time_travel
            )
        )

    def start_transaction(self, spark: SparkSession, log: DeltaLog) -> OptimisticTransaction:
        """A transaction on the version that was read, which need not be the newest any more.

        A read that follows the table reads the version that the transaction is on; rows that
        Spark has cached are of the version that they were read from.
        """
        txn = start_transaction(spark, log)
        if txn.snapshot is None:
            return txn
        read = [
            source.snapshot
            for source, _ in self.sources
            if not source.follows_table and source.snapshot.metadata.id == txn.snapshot.metadata.id
        ]
        oldest = min(read, key=lambda snapshot: snapshot.version, default=txn.snapshot)
        if oldest.version >= txn.read_version:
            return txn
        return log.transaction_on(oldest, time_zone=txn.time_zone)

    def record(self, txn: OptimisticTransaction) -> None:
        """Tell the transaction, once the job has run, what of the table the data was made of."""
        for source, before in self.sources:
            # What Spark had cached was not read again, but once it was.
            reads = source.reads[before:] or source.reads
            if not reads:
                txn.read_whole_table()
            filters: dict[Predicate, None] = {read.filter: None for read in reads}
            for predicate in filters:
                txn.filter_files(predicate)
