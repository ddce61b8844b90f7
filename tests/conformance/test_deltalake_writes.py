"""The kernel reads every table that deltalake writes, and both write to one table in turns."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import (
    CommitProperties,
    DeltaTable,
    Field,
    Schema,
    TableFeatures,
    Transaction,
    write_deltalake,
)
from deltalake.schema import PrimitiveType, StructType

from pyspark_delta import (
    ConcurrentAppendException,
    ConcurrentDeleteReadException,
    MetadataChangedException,
)
from pyspark_delta.kernel.log.compaction import write_compaction
from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.protocol.actions import AddCDCFile, SetTransaction
from pyspark_delta.kernel.protocol.operations import operation, write
from pyspark_delta.kernel.protocol.paths import commit_path
from tests.conformance.test_deltalake import PARTITIONS, SKIPPED, TYPES, numbered
from tests.support.agreement import agree, deltalake_rows, kernel_rows, sorted_rows
from tests.support.tables import append, create_table, overwrite, table_log, write_files

TEN = pa.table({"id": list(range(10)), "v": [f"wörd {i}%" for i in range(10)]})
MORE = pa.table({"id": [10, 11], "v": ["x", None]})
FEED = {"delta.enableChangeDataFeed": "true"}


def written(path: Path, **options: Any) -> DeltaTable:
    write_deltalake(path, TEN, **options)
    return DeltaTable(path)


def by_id(path: Path) -> DeltaTable:
    """A table of four partitions, in several files."""
    rows = pa.table({"id": list(range(20)), "p": ["a b", "100%", "ü/=", None] * 5})
    write_deltalake(path, rows, partition_by=["p"])
    write_deltalake(path, rows, mode="append")
    return DeltaTable(path)


def merge(table: DeltaTable, rows: pa.Table) -> None:
    (
        table.merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .when_not_matched_by_source_delete("t.id = 0")
        .execute()
    )


# Each writes a table, by several commits.


def appends(path: Path) -> None:
    for _ in range(3):
        write_deltalake(path, TEN, mode="append")


def overwrites(path: Path) -> None:
    written(path)
    write_deltalake(path, MORE, mode="overwrite")


def overwrites_a_part(path: Path) -> None:
    by_id(path)
    rows = pa.table({"id": [1, 2], "p": ["a b", "a b"]})
    write_deltalake(path, rows, mode="overwrite", predicate="p = 'a b'")


def overwrites_the_schema(path: Path) -> None:
    written(path)
    other = pa.table({"x": [1.5], "y": [date(2024, 2, 29)]})
    write_deltalake(path, other, mode="overwrite", schema_mode="overwrite")


def merges_schemas(path: Path) -> None:
    written(path)
    wider = pa.table({"id": [77], "more": [{"a": [1, None]}]})
    write_deltalake(path, wider, mode="append", schema_mode="merge")


def merges(path: Path) -> None:
    table = written(path)
    merge(table, pa.table({"id": [5, 6, 50], "v": ["five", None, "fifty"]}))


def merges_partitions(path: Path) -> None:
    # delta-rs#4352: rows doubled where a partition value holds a space.
    table = by_id(path)
    merge(table, pa.table({"id": [0, 4, 99], "p": ["a b", "100%", "ü/="]}))


def deletes(path: Path) -> None:
    table = written(path)
    write_deltalake(path, TEN, mode="append")
    table = DeltaTable(path)
    table.delete("id % 2 = 0")
    table.delete("id = 7")


def deletes_partitions(path: Path) -> None:
    table = by_id(path)
    table.delete("p = 'ü/='")
    table.delete("p is null")


def deletes_everything(path: Path) -> None:
    written(path).delete()


def updates(path: Path) -> None:
    written(path).update(updates={"v": "'new ' || v"}, predicate="id > 3")


def moves_rows_between_partitions(path: Path) -> None:
    by_id(path).update(updates={"p": "'näw/ 50%'"}, predicate="id < 5")


def compacts(path: Path) -> None:
    by_id(path).optimize.compact()


def orders_by_z(path: Path) -> None:
    by_id(path).optimize.z_order(["id"])


def vacuums(path: Path) -> None:
    table = by_id(path)
    table.delete("id < 4")
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def restores(path: Path) -> None:
    table = by_id(path)
    table.delete("id < 10")
    table.restore(1)


def checkpoints(path: Path) -> None:
    table = by_id(path)
    table.delete("id = 3")
    table.create_checkpoint()
    write_deltalake(path, pa.table({"id": [1], "p": ["after"]}), mode="append")


def checkpoints_and_cleans(path: Path) -> None:
    checkpoints(path)
    table = DeltaTable(path)
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 days"})
    table.create_checkpoint()
    table.cleanup_metadata()


def compacts_the_log(path: Path) -> None:
    appends(path)
    for _ in range(3):
        write_deltalake(path, MORE, mode="append")
    DeltaTable(path).delete("id = 3")
    DeltaTable(path).compact_logs(1, 4)
    DeltaTable(path).compact_logs(2, 6)


def writes_many_times(path: Path) -> None:
    properties = {"delta.checkpointInterval": "5"}
    write_deltalake(path, TEN.slice(0, 1), configuration=properties)
    for number in range(1, 23):
        write_deltalake(path, TEN.slice(number % 10, 1), mode="append")


def creates_with_properties(path: Path) -> None:
    DeltaTable.create(
        path,
        Schema(
            [
                Field("id", PrimitiveType("long"), nullable=False),
                Field("v", PrimitiveType("string"), metadata={"a": "ü"}),
            ]
        ),
        name="nämed",
        description="a 100% sure one",
        partition_by=["v"],
        configuration={**FEED, "delta.checkpointInterval": "2"},
    )
    write_deltalake(path, TEN, mode="append")


def alters(path: Path) -> None:
    table = written(path)
    table.alter.add_columns(
        [
            Field("n", PrimitiveType("integer")),
            Field("s", StructType([Field("a", PrimitiveType("date"))])),
        ]
    )
    table.alter.add_constraint({"positive": "id >= 0"})
    table.alter.set_table_name("other")
    table.alter.set_table_description("d")
    table.alter.set_column_metadata("id", {"comment": "the id"})
    table.alter.drop_constraint("positive")
    table.alter.add_feature(TableFeatures.AppendOnly, allow_protocol_versions_increase=True)
    table.alter.set_table_properties({"delta.appendOnly": "true"})


def feeds_changes(path: Path) -> None:
    table = written(path, configuration=FEED)
    table.delete("id = 1")
    table.update(updates={"v": "'u'"}, predicate="id = 2")
    merge(table, pa.table({"id": [5, 50], "v": ["five", "fifty"]}))


def repairs(path: Path) -> None:
    appends(path)
    name = DeltaTable(path).file_uris()[0].rpartition("/")[2]
    (path / name).unlink()
    DeltaTable(path).repair()


def notes_transactions(path: Path) -> None:
    for version in (1, 2):
        mark = CommitProperties(
            custom_metadata={"who": "mé"}, app_transactions=[Transaction("app %", version)]
        )
        write_deltalake(path, TEN, mode="append", commit_properties=mark)


WRITERS: tuple[Callable[[Path], None], ...] = (
    appends,
    overwrites,
    overwrites_a_part,
    overwrites_the_schema,
    merges_schemas,
    merges,
    merges_partitions,
    deletes,
    deletes_partitions,
    deletes_everything,
    updates,
    moves_rows_between_partitions,
    compacts,
    orders_by_z,
    vacuums,
    restores,
    checkpoints,
    checkpoints_and_cleans,
    compacts_the_log,
    writes_many_times,
    creates_with_properties,
    alters,
    feeds_changes,
    repairs,
    notes_transactions,
)


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.__name__)
def test_what_it_writes_is_read(table_path: Path, writer: Callable[[Path], None]) -> None:
    writer(table_path)
    agree(table_path)
    log = table_log(table_path)
    versions = [entry["version"] for entry in DeltaTable(table_path).history()]
    assert [info.version for info in log.history()] == versions
    if writer in (vacuums, repairs):
        return  # the files of older versions are gone
    for version in range(min(versions), log.snapshot.version):
        agree(table_path, version=version)


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.__name__)
def test_what_it_wrote_takes_our_commits(table_path: Path, writer: Callable[[Path], None]) -> None:
    writer(table_path)
    before = agree(table_path)
    log = table_log(table_path)
    rows = log.snapshot.to_table().slice(0, 3)
    append(log, rows)
    after = agree(table_path, [*before, *rows.to_pylist()])
    log.checkpoint()
    agree(table_path, after)
    write_deltalake(table_path, rows, mode="append")
    agree(table_path, [*after, *rows.to_pylist()])


def test_the_cleaned_log_had_something_to_clean(table_path: Path) -> None:
    checkpoints_and_cleans(table_path)
    assert not (table_path / commit_path(0)).exists()


def test_every_type_it_writes_is_read(table_path: Path) -> None:
    rows = pa.table(dict(TYPES))
    write_deltalake(table_path, rows)
    agree(table_path, rows)
    write_deltalake(table_path, rows, mode="append")
    DeltaTable(table_path).create_checkpoint()
    (table_path / commit_path(0)).unlink()
    write_deltalake(table_path, rows, mode="append")
    agree(table_path, pa.concat_tables([rows, rows, rows]))


# deltalake spells out large doubles and loses the way with negative decimals.
ITS_PARTITIONS = {
    **PARTITIONS,
    "double": pa.array([1e10, None, 0.1]),
    "small_decimal": pa.array([Decimal("1.23"), None, Decimal("9.90")], pa.decimal128(5, 2)),
}


@pytest.mark.parametrize("kind", ITS_PARTITIONS)
def test_partition_values_it_writes_are_read(table_path: Path, kind: str) -> None:
    rows = numbered(ITS_PARTITIONS[kind])
    write_deltalake(table_path, rows, partition_by=["x"])
    agree(table_path, rows)
    table_log(table_path).checkpoint()  # values of another's spelling, as typed columns
    (table_path / commit_path(0)).unlink()
    agree(table_path, rows)
    nulls = [row for row in rows.to_pylist() if row["x"] is None]
    assert kernel_rows(table_path, "x is null") == sorted_rows(nulls)


@pytest.mark.parametrize("kind", SKIPPED)
def test_files_skipped_by_its_statistics_hold_no_wanted_row(table_path: Path, kind: str) -> None:
    data_type, files, filters = SKIPPED[kind]
    for number, values in enumerate(files):
        # Its bounds forget NaN, and a file whose bounds are equal is read as that one value.
        values = [value for value in values if value == value]
        columns = {"id": [number] * len(values), "x": pa.array(values, data_type)}
        write_deltalake(table_path, pa.table(columns), mode="append")
    for text in filters:
        wanted = deltalake_rows(table_path, text)
        assert wanted, text
        assert kernel_rows(table_path, text) == wanted, text
    DeltaTable(table_path).create_checkpoint()
    for version in range(len(files) - 1):
        (table_path / commit_path(version)).unlink()
    for text in filters:
        assert kernel_rows(table_path, text) == deltalake_rows(table_path, text), text


def test_transactions_of_applications_are_shared(table_path: Path) -> None:
    notes_transactions(table_path)
    log = table_log(table_path)
    assert log.start_transaction().txn_version("app %") == 2
    append(log, TEN, SetTransaction(app_id="app %", version=3, last_updated=log.now_ms()))
    assert DeltaTable(table_path).transaction_version("app %") == 3


def test_its_change_files_are_in_the_changes_and_not_in_the_table(table_path: Path) -> None:
    feeds_changes(table_path)
    changes = dict(table_log(table_path).get_changes(1))
    kinds = [type(action) for action in changes[2]]
    assert AddCDCFile in kinds
    assert not any(row["v"] == "wörd 2%" for row in agree(table_path))


def test_our_change_files_are_read_as_changes(table_path: Path) -> None:
    log = create_table(table_path, TEN.schema, configuration=FEED)
    append(log, TEN)
    transaction = log.start_transaction()
    (old,) = add_files(transaction.filter_files())
    kept = write_files(log.store, transaction.metadata, TEN.slice(1), now_ms=log.now_ms())
    changed = TEN.slice(0, 1).append_column("_change_type", pa.array(["delete"]))
    sink = io.BytesIO()
    pq.write_table(changed, sink)
    log.store.create("_change_data/cdc-1.parquet", sink.getvalue())
    change = AddCDCFile(path="_change_data/cdc-1.parquet", size=len(sink.getvalue()))
    removed = old.remove(deletion_timestamp=log.now_ms())
    transaction.commit([*kept, removed, change], operation("DELETE", predicate=["id = 0"]))
    agree(table_path, TEN.slice(1))
    feed = pa.table(DeltaTable(table_path).load_cdf(starting_version=2).read_all())
    assert [(row["id"], row["_change_type"]) for row in feed.to_pylist()] == [(0, "delete")]


# One table, two writers.


def test_a_stale_writer_of_either_kind_comes_after_the_other(table_path: Path) -> None:
    stale = written(table_path)
    log = table_log(table_path)
    transaction = log.start_transaction()
    write_deltalake(table_path, MORE, mode="append")
    files = write_files(log.store, transaction.metadata, TEN, now_ms=log.now_ms())
    assert transaction.commit(files, write("Append")).version == 2
    write_deltalake(stale, MORE, mode="append")
    agree(table_path, pa.concat_tables([TEN, MORE, TEN, MORE]))
    assert table_log(table_path).snapshot.version == 3


def test_a_delete_of_ours_does_not_miss_rows_that_it_added(table_path: Path) -> None:
    written(table_path)
    log = table_log(table_path)
    transaction = log.start_transaction()
    (old,) = add_files(transaction.filter_files())
    write_deltalake(table_path, MORE, mode="append")
    removes = [old.remove(deletion_timestamp=log.now_ms())]
    with pytest.raises(ConcurrentAppendException):
        transaction.commit(removes, operation("DELETE", predicate=["true"]))
    agree(table_path, pa.concat_tables([TEN, MORE]))


def test_a_file_is_not_deleted_by_both(table_path: Path) -> None:
    table = written(table_path)
    log = table_log(table_path)
    transaction = log.start_transaction()
    (old,) = add_files(transaction.filter_files())
    table.delete()
    removes = [old.remove(deletion_timestamp=log.now_ms())]
    with pytest.raises(ConcurrentDeleteReadException):
        transaction.commit(removes, operation("DELETE", predicate=["true"]))
    agree(table_path, [])


def test_a_change_of_the_schema_stops_the_other(table_path: Path) -> None:
    table = written(table_path)
    log = table_log(table_path)
    transaction = log.start_transaction()
    table.alter.add_columns([Field("n", PrimitiveType("integer"))])
    files = write_files(log.store, transaction.metadata, TEN, now_ms=log.now_ms())
    with pytest.raises(MetadataChangedException):
        transaction.commit(files, write("Append"))


def test_a_remove_that_spells_its_path_otherwise_counts(table_path: Path) -> None:
    # As Java does, we leave letters beyond ASCII as they are in a path.  deltalake escapes them
    # when it removes such a file, and then takes the two spellings for two files.
    rows = pa.table({"id": [1, 2], "p": ["ü", "ü"]})
    log = create_table(table_path, rows.schema, partition_by=["p"])
    append(log, rows)
    DeltaTable(table_path).delete("id = 1")
    assert kernel_rows(table_path) == [{"id": 2, "p": "ü"}]
    log.checkpoint()
    assert kernel_rows(table_path) == [{"id": 2, "p": "ü"}]
    (table_path / commit_path(0)).unlink()  # from the checkpoint it knows better
    agree(table_path, rows.slice(1))


class Turns:
    """A partitioned table that both change in turns, beside a model of its rows."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.random = random.Random(seed)
        self.log = table_log(path)
        self.next_id = 0
        self.rows = self.new_rows()
        properties = {"delta.checkpointInterval": "4"}
        write_deltalake(path, self.rows, partition_by=["p"], configuration=properties)

    def new_rows(self) -> pa.Table:
        ids = list(range(self.next_id, self.next_id + self.random.randint(1, 5)))
        self.next_id = ids[-1] + 1
        # ASCII alone: see test_a_remove_that_spells_its_path_otherwise_counts.
        parts = [self.random.choice(["a b", "100%", "+/=", None]) for _ in ids]
        return pa.table({"id": ids, "p": pa.array(parts, pa.string())})

    def it_appends(self) -> None:
        rows = self.new_rows()
        write_deltalake(self.path, rows, mode="append")
        self.rows = pa.concat_tables([self.rows, rows])

    def we_append(self) -> None:
        rows = self.new_rows()
        append(self.log, rows)
        self.rows = pa.concat_tables([self.rows, rows])

    def it_deletes(self) -> None:
        remainder = self.random.randint(0, 4)
        DeltaTable(self.path).delete(f"id % 5 = {remainder}")
        kept = [row["id"] % 5 != remainder for row in self.rows.to_pylist()]
        self.rows = self.rows.filter(pa.array(kept, pa.bool_()))

    def we_overwrite(self) -> None:
        self.rows = self.new_rows()
        overwrite(self.log, self.rows)

    def it_compacts(self) -> None:
        DeltaTable(self.path).optimize.compact()

    def it_checkpoints(self) -> None:
        DeltaTable(self.path).create_checkpoint()

    def we_checkpoint(self) -> None:
        self.log.checkpoint()

    def we_compact_the_log(self) -> None:
        version = self.log.update().version
        if version >= 2:
            write_compaction(self.log.store, version - 2, version)


STEPS = (
    *(Turns.it_appends, Turns.we_append) * 3,
    *(Turns.it_deletes, Turns.it_compacts, Turns.it_checkpoints, Turns.we_checkpoint),
    *(Turns.we_overwrite, Turns.we_compact_the_log),
)


@pytest.mark.parametrize(
    "seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 40))]
)
def test_both_change_one_table_in_turns(table_path: Path, seed: int) -> None:
    turns = Turns(table_path, seed)
    for _ in range(20):
        step = turns.random.choice(STEPS)
        step(turns)
        agree(table_path, turns.rows)
