"""Tables that other engines wrote, each for what it shows.  tests/data/README.md is the catalogue.

Most have their rows beside them as plain Parquet.  Some are broken on purpose and must be refused
by name; some are a log alone, and are judged by what their log says.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_delta.errors import DeltaError
from pyspark_delta.kernel.log.table_log import TableLog
from pyspark_delta.kernel.protocol.actions import (
    Action,
    AddCDCFile,
    AddFile,
    CommitInfo,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from pyspark_delta.kernel.scan.arrow_reader import ReadableSnapshot
from pyspark_delta.kernel.scan.predicates.tree import Column, IsNull, Not, Predicate, compare
from tests.support.golden import (
    ABSENT,
    GoldenTable,
    GoldenTables,
    each_golden_table,
    golden_names,
)
from tests.support.reading import open_table


@dataclass(frozen=True, slots=True)
class Shows:
    """What a table shows; without a check of its own, its rows are compared."""

    what: str
    check: Callable[[GoldenTable], None] | None = None
    time_zone: str = "UTC"


def log_of(table: GoldenTable) -> TableLog:
    return open_table(str(table.table))


def latest(root: Path, version: int | None = None) -> ReadableSnapshot:
    log = open_table(str(root))
    snapshot = log.snapshot if version is None else log.snapshot_at(version)
    assert isinstance(snapshot, ReadableSnapshot)
    return snapshot


def expected_rows(table: GoldenTable) -> pa.Table:
    assert table.expected is not None
    files = sorted(table.expected.glob("*.parquet"))
    read = [pq.ParquetFile(file).read().replace_schema_metadata() for file in files]
    return pa.concat_tables(read)


def check_same_rows(found: pa.Table, expected: pa.Table) -> None:
    """The same columns of the same types, and the same rows, each as often, in any order."""
    found.validate(full=True)
    assert found.schema.names == expected.schema.names
    assert found.schema.types == expected.schema.types
    if not any(pa.types.is_nested(kind) for kind in found.schema.types):
        keys = [(name, "ascending") for name in found.schema.names]
        plain = pa.schema([(f.name, f.type) for f in found.schema])
        first, second = (
            table.sort_by(keys).cast(plain).combine_chunks() for table in (found, expected)
        )
        if first.equals(second):
            return
    # As text: NaN is like NaN, and nested values have an order.
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist()))


def refused(condition: str) -> Callable[[GoldenTable], None]:
    def check(table: GoldenTable) -> None:
        with pytest.raises(DeltaError) as caught:
            latest(table.table).to_table()
        assert caught.value.condition == condition

    return check


def live(
    version: int, paths: Iterable[str], read: str | None = "DELTA_FILE_NOT_FOUND"
) -> Callable[[GoldenTable], None]:
    """A log without data files: its version, its live paths, and what reading them ends in."""

    def check(table: GoldenTable) -> None:
        snapshot = latest(table.table)
        assert snapshot.version == version
        assert sorted(snapshot.files.column("path").to_pylist()) == sorted(paths)
        if read is None:
            assert snapshot.to_table().num_rows == 0
        else:
            refused(read)(table)

    return check


def add_and_remove_meet(table: GoldenTable) -> None:
    live(1, [], read=None)(table)
    (add,) = [a for a in actions_of(table, 0) if isinstance(a, AddFile)]
    (remove,) = [a for a in actions_of(table, 1) if isinstance(a, RemoveFile)]
    assert add.path != remove.path
    tombstones = latest(table.table).tombstones()
    assert tombstones.column("path").to_pylist() == [remove.path]
    assert tombstones.column("deletionTimestamp").to_pylist() == [200]


def actions_of(table: GoldenTable, version: int) -> list[Action]:
    found = dict(log_of(table).get_changes(version))
    return found[version]


def the_newest_add_wins(table: GoldenTable) -> None:
    live(3, ["foo", "bar"])(table)
    files = latest(table.table).files_with(["path", "modificationTime"]).to_pylist()
    times = {file["path"]: file["modificationTime"] for file in files}
    assert times == {"foo": 1_700_000_000_000, "bar": 1_697_064_972_263}


def an_encoded_path_is_decoded_once(table: GoldenTable) -> None:
    live(0, ["special%20p@%23h"])(table)
    assert latest(table.table).plan().files.column("location").to_pylist() == ["special p@#h"]


def every_field_of_commit_info(table: GoldenTable) -> None:
    live(0, ["abc"], read="DELTA_READ_TABLE_WITHOUT_COLUMNS")(table)
    (info,) = [a for a in actions_of(table, 0) if isinstance(a, CommitInfo)]
    (told,) = log_of(table).history()
    assert (told.version, told.user_name, told.job) == (0, info.user_name, info.job)
    assert told.timestamp == log_of(table).snapshot.timestamp
    value = info.to_json_value()
    assert value == {
        "timestamp": 1540415658000,
        "userId": "user_0",
        "userName": "username_0",
        "operation": "WRITE",
        "operationParameters": {"test": "test"},
        "job": {
            "jobId": "job_id_0",
            "jobName": "job_name_0",
            "runId": "run_id_0",
            "jobOwnerId": "job_owner_0",
            "triggerType": "trigger_type_0",
        },
        "notebook": {"notebookId": "notebook_id_0"},
        "clusterId": "cluster_id_0",
        "readVersion": -1,
        "isolationLevel": "default",
        "isBlindAppend": True,
        "operationMetrics": {"test": "test"},
        "userMetadata": "foo",
    }


def every_change_is_told(table: GoldenTable) -> None:
    changes = dict(log_of(table).get_changes(0))
    assert sorted(changes) == [0, 1, 2]
    kinds = [[type(action) for action in changes[version]] for version in range(3)]
    assert kinds == [
        [CommitInfo, Protocol, Metadata, AddFile],
        [CommitInfo, AddCDCFile, RemoveFile],
        [CommitInfo, Protocol, SetTransaction],
    ]
    assert dict(log_of(table).get_changes(2)) == {2: changes[2]}
    (cdc,) = [a for a in changes[1] if isinstance(a, AddCDCFile)]
    assert cdc.partition_values == {"partition_foo": "partition_bar"}
    assert cdc.tags == {"tag_foo": "tag_bar"}
    snapshot = latest(table.table)
    assert snapshot.transactions["fakeAppId"].version == 3
    check_same_rows(snapshot.to_table(), expected_rows(table))


def the_newest_metadata_and_protocol_win(table: GoldenTable) -> None:
    snapshot = latest(table.table)
    assert snapshot.schema.names == ("col1", "col2")
    assert (snapshot.protocol.min_reader_version, snapshot.protocol.min_writer_version) == (3, 7)
    check_same_rows(snapshot.to_table(), expected_rows(table))


def vectors_take_rows_away(table: GoldenTable) -> None:
    snapshot = latest(table.table)
    assert snapshot.to_table().num_rows == expected_rows(table).num_rows
    files = snapshot.files_with(["path", "deletionVector"])
    assert files.column("deletionVector").null_count < files.num_rows
    assert len(set(files.column("path").to_pylist())) == files.num_rows
    check_same_rows(snapshot.to_table(), expected_rows(table))


def the_commits_stand_in_for_a_broken_checkpoint(table: GoldenTable) -> None:
    paths = [str(i) for i in range(11)]
    live(10, paths, read="DELTA_READ_TABLE_WITHOUT_COLUMNS")(table)
    snapshot = latest(table.table)
    assert snapshot.metadata.id
    assert snapshot.protocol.min_reader_version >= 1


HALVES = [(x, f"foo{x % 2}") for x in range(10)]
CITIES = [
    ("hz", "20180520", "Jim", 3),
    ("hz", "20180718", "Jone", 7),
    ("bj", "20180520", "Trump", 1),
    ("sh", "20180512", "Jay", 4),
    ("sz", "20181212", "Linda", 8),
]
EVERY_TYPE = (
    97,
    b"bc",
    True,
    4,
    5,
    "foo",
    6.0,
    7.0,
    8,
    date(1970, 1, 1),
    datetime(1970, 1, 1, 16, 40, tzinfo=UTC),
    Decimal("12345.678900000000794535"),
    ["foo", "bar"],
    [("foo", 123)],
    {"f1": "foo", "f2": 456},
)
# Directory -> names of its columns, and its rows.
HIVE_TABLES: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "deltatbl-not-allow-write": ("a b", HALVES),
    "deltatbl-schema-match": ("a b c", [(x, f"foo{x % 2}", f"test{x % 3}") for x in range(10)]),
    "deltatbl-non-partitioned": ("c1 c2", HALVES),
    "deltatbl-partitioned": ("c1 c2", HALVES),
    "deltatbl-partition-prune": ("city date name cnt", CITIES),
    "deltatbl-touch-files-needed-for-partitioned": ("c1 c2", HALVES),
    "deltatbl-special-chars-in-partition-column": (
        "c1 c2",
        [(x, f"+ =%{x % 2}") for x in range(10)],
    ),
    "deltatbl-map-types-correctly": (" ".join(f"c{i}" for i in range(1, 16)), [EVERY_TYPE]),
    "deltatbl-column-names-case-insensitive": ("FooBar BarFoo", HALVES),
    "deltatbl-deleted-path": ("c1 c2", HALVES),
    "deltatbl-incorrect-format-config": ("a b", HALVES),
}


def hive_tables_have_their_rows(table: GoldenTable) -> None:
    refused("DELTA_TABLE_NOT_FOUND")(table)
    assert {path.name for path in table.table.iterdir()} == set(HIVE_TABLES)
    for name, (columns, rows) in HIVE_TABLES.items():
        found = latest(table.table / name).to_table()
        assert found.schema.names == columns.split()
        got = [tuple(row.values()) for row in found.to_pylist()]
        assert sorted(got, key=repr) == sorted(rows, key=repr), name


NO_STATE = refused("DELTA_STATE_RECOVER_ERROR")

SHOWS: dict[str, Shows] = {
    "124-decimal-decode-bug": Shows("a decimal wider than its digits"),
    "125-iterator-bug": Shows("empty files between others"),
    "basic-decimal-table": Shows("decimals of three physical kinds, and as a partition"),
    "basic-decimal-table-legacy": Shows("the same, all as fixed-length bytes"),
    "basic-with-inserts-deletes-checkpoint": Shows("deletes, with a checkpoint between"),
    "basic-with-inserts-merge": Shows("what MERGE leaves"),
    "basic-with-inserts-overwrite-restore": Shows("what RESTORE leaves"),
    "basic-with-inserts-updates": Shows("what UPDATE leaves"),
    "basic-with-vacuum-protocol-check-feature": Shows("a feature that readers may ignore"),
    "canonicalized-paths-normal-a": Shows("/path and file:/path are one", add_and_remove_meet),
    "canonicalized-paths-normal-b": Shows("/path and file:///path are one", add_and_remove_meet),
    "canonicalized-paths-special-a": Shows("the same, with escapes", add_and_remove_meet),
    "canonicalized-paths-special-b": Shows("the same, with escapes", add_and_remove_meet),
    "checkpoint": Shows("a checkpoint and commits behind it", live(14, ["15"])),
    "corrupted-last-checkpoint-kernel": Shows("an empty _last_checkpoint"),
    "data-reader-absolute-paths-escaped-chars": Shows("adds without metaData", NO_STATE),
    "data-reader-array-complex-objects": Shows("arrays of arrays, maps and structs"),
    "data-reader-array-primitives": Shows("arrays of every plain type"),
    "data-reader-date-types-America": Shows("INT96 written in America/Los_Angeles"),
    "data-reader-date-types-Asia": Shows("INT96 written in Asia/Beirut"),
    "data-reader-date-types-Etc": Shows("INT96 written in Etc/GMT+9"),
    "data-reader-date-types-Iceland": Shows("INT96 written in Iceland"),
    "data-reader-date-types-Jst": Shows("INT96 written in JST"),
    "data-reader-date-types-Pst": Shows("INT96 written in PST"),
    "data-reader-date-types-utc": Shows("INT96 written in UTC"),
    "data-reader-escaped-chars": Shows("partition values with + and %"),
    "data-reader-map": Shows("maps of every plain type"),
    "data-reader-nested-struct": Shows("structs in structs"),
    "data-reader-nullable-field-invalid-schema-key": Shows("an array of nulls"),
    # Its rows were written out by a session in the zone of the table's writer.
    "data-reader-partition-values": Shows(
        "a partition column of every type, null and not", time_zone="America/Los_Angeles"
    ),
    "data-reader-primitives": Shows("every plain type"),
    "data-reader-timestamp_ntz": Shows("TIMESTAMP_NTZ, as data and as a partition"),
    "data-reader-timestamp_ntz-id-mode": Shows("the same, columns found by id"),
    "data-reader-timestamp_ntz-name-mode": Shows("the same, columns found by physical name"),
    "data-skipping-basic-stats-all-types": Shows("statistics of every type"),
    "data-skipping-basic-stats-all-types-checkpoint": Shows("the same, from a checkpoint"),
    "data-skipping-basic-stats-all-types-columnmapping-id": Shows("the same, mapped by id"),
    "data-skipping-basic-stats-all-types-columnmapping-name": Shows("the same, mapped by name"),
    "data-skipping-change-stats-collected-across-versions": Shows("statistics of some files only"),
    "data-skipping-partition-and-data-column": Shows("a partition and statistics"),
    "decimal-various-scale-precision": Shows("decimals of many widths"),
    "delete-re-add-same-file-different-transactions": Shows(
        "a path that comes back", the_newest_add_wins
    ),
    "deltalog-commit-info": Shows("commitInfo with all fields", every_field_of_commit_info),
    "deltalog-getChanges": Shows("every kind of action", every_change_is_told),
    "deltalog-invalid-protocol-version": Shows(
        "a reader version of the future", refused("DELTA_INVALID_PROTOCOL_VERSION")
    ),
    "deltalog-state-reconstruction-from-checkpoint-missing-metadata": Shows(
        "a checkpoint without metaData", the_commits_stand_in_for_a_broken_checkpoint
    ),
    "deltalog-state-reconstruction-from-checkpoint-missing-protocol": Shows(
        "a checkpoint without protocol", the_commits_stand_in_for_a_broken_checkpoint
    ),
    "deltalog-state-reconstruction-without-metadata": Shows("a log without metaData", NO_STATE),
    "deltalog-state-reconstruction-without-protocol": Shows("a log without protocol", NO_STATE),
    "dv-partitioned-with-checkpoint": Shows("vectors from a checkpoint", vectors_take_rows_away),
    "dv-with-columnmapping": Shows("vectors and physical names", vectors_take_rows_away),
    "hive": Shows("eleven tables in one folder", hive_tables_have_their_rows),
    "kernel-timestamp-int96": Shows("timestamps as INT96, and as a partition"),
    "kernel-timestamp-pst": Shows("the same, written in PST"),
    "kernel-timestamp-timestamp_micros": Shows("timestamps in microseconds"),
    "kernel-timestamp-timestamp_millis": Shows("timestamps in milliseconds"),
    "log-replay-dv-key-cases": Shows("one path under several vectors", vectors_take_rows_away),
    "log-replay-latest-metadata-protocol": Shows(
        "a schema and a protocol that change", the_newest_metadata_and_protocol_win
    ),
    "log-replay-special-characters": Shows("an encoded path that is removed"),
    "log-replay-special-characters-a": Shows("an encoded path that is removed"),
    "log-replay-special-characters-b": Shows("an encoded path", an_encoded_path_is_decoded_once),
    "multi-part-checkpoint": Shows("a checkpoint in parts"),
    "no-delta-log-folder": Shows("files without a log", refused("DELTA_TABLE_NOT_FOUND")),
    "only-checkpoint-files": Shows("a checkpoint without its commits"),
    "parquet-all-types": Shows("every type, nulls everywhere"),
    "parquet-all-types-legacy-format": Shows("the same in the older layout of lists and decimals"),
    "parquet-decimal-dictionaries": Shows("a million decimals in dictionaries"),
    "parquet-decimal-dictionaries-v2": Shows("the same in pages of the second version"),
    "parquet-decimal-type": Shows("negative decimals of three physical kinds"),
    "snapshot-data0": Shows("a first append"),
    "snapshot-data1": Shows("a second append"),
    "snapshot-data2": Shows("an overwrite"),
    "snapshot-data2-deleted": Shows("a delete"),
    "snapshot-data3": Shows("an append behind an overwrite"),
    "snapshot-repartitioned": Shows("a rewrite that changes no data"),
    "snapshot-vacuumed": Shows("older files are gone"),
    "table-with-columnmapping-mode-id": Shows("every type, found by id at every level"),
    "table-with-columnmapping-mode-name": Shows("every type, found by physical name"),
    "time-travel-partition-changes-a": Shows("a partitioned table"),
    "time-travel-partition-changes-b": Shows("the same, partitioned by another column"),
    "time-travel-schema-changes-a": Shows("one column"),
    "time-travel-schema-changes-b": Shows("older files lack a column"),
    "time-travel-start": Shows("one version"),
    "time-travel-start-start20": Shows("two versions"),
    "time-travel-start-start20-start40": Shows("three versions"),
    "update-deleted-directory": Shows(
        "a log without a schema",
        live(0, [str(i) for i in range(1, 11)], read="DELTA_READ_TABLE_WITHOUT_COLUMNS"),
    ),
    "v2-checkpoint-json": Shows("a V2 checkpoint in JSON, with sidecars"),
    "v2-checkpoint-parquet": Shows("a V2 checkpoint in Parquet, with sidecars"),
    "versions-not-contiguous": Shows(
        "a commit that is missing", refused("DELTA_VERSIONS_NOT_CONTIGUOUS")
    ),
}


@pytest.mark.skipif(not golden_names(), reason=ABSENT)
def test_no_golden_table_is_left_out() -> None:
    assert set(golden_names()) == set(SHOWS)
    assert len(SHOWS) == 89


@pytest.mark.parametrize("name", each_golden_table())
def test_a_golden_table_shows_what_it_is_for(name: str, golden: GoldenTables) -> None:
    table, shows = golden(name), SHOWS[name]
    if shows.check is not None:
        shows.check(table)
        return
    found = latest(table.table).to_table(time_zone=shows.time_zone)
    check_same_rows(found, expected_rows(table))


# A table at an older version is another table at its newest.
OLDER = [
    ("snapshot-data1", 0, "snapshot-data0"),
    ("snapshot-data3", 0, "snapshot-data0"),
    ("snapshot-data3", 1, "snapshot-data1"),
    ("snapshot-data3", 2, "snapshot-data2"),
    ("snapshot-repartitioned", 3, "snapshot-data3"),
    ("snapshot-repartitioned", 4, "snapshot-data2-deleted"),
    ("time-travel-start-start20-start40", 0, "time-travel-start"),
    ("time-travel-start-start20-start40", 1, "time-travel-start-start20"),
    ("time-travel-schema-changes-b", 0, "time-travel-schema-changes-a"),
    ("time-travel-partition-changes-b", 0, "time-travel-partition-changes-a"),
]


@pytest.mark.parametrize(("name", "version", "same"), OLDER)
def test_an_older_version_has_its_own_schema_and_rows(
    name: str, version: int, same: str, golden: GoldenTables
) -> None:
    found = latest(golden(name).table, version).to_table()
    check_same_rows(found, expected_rows(golden(same)))


def test_a_version_whose_files_were_vacuumed_names_the_file_that_is_gone(
    golden: GoldenTables,
) -> None:
    with pytest.raises(DeltaError) as caught:
        latest(golden("snapshot-vacuumed").table, 0).to_table()
    assert caught.value.condition == "DELTA_FILE_NOT_FOUND"


FILTERED = [
    "basic-decimal-table",
    "data-reader-escaped-chars",
    "data-reader-partition-values",
    "data-reader-primitives",
    "data-reader-timestamp_ntz-id-mode",
    "data-skipping-basic-stats-all-types",
    "data-skipping-basic-stats-all-types-checkpoint",
    "data-skipping-basic-stats-all-types-columnmapping-id",
    "data-skipping-basic-stats-all-types-columnmapping-name",
    "data-skipping-change-stats-collected-across-versions",
    "data-skipping-partition-and-data-column",
    "dv-with-columnmapping",
    "kernel-timestamp-pst",
    "log-replay-dv-key-cases",
    "parquet-all-types",
    "time-travel-schema-changes-b",
]
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    ">=": operator.ge,
}


@pytest.mark.parametrize("name", FILTERED)
def test_a_filter_gives_exactly_the_rows_that_fit(name: str, golden: GoldenTables) -> None:
    table = golden(name)
    snapshot, zone = latest(table.table), SHOWS[name].time_zone
    for f in (expected := expected_rows(table)).schema:
        if pa.types.is_nested(f.type):
            continue
        column = expected.column(f.name).to_pylist()
        values = sorted({value for value in column if value is not None})
        asked: list[tuple[Predicate, Callable[[Any], bool]]] = [
            (IsNull(Column((f.name,))), lambda value: value is None),
            (Not(IsNull(Column((f.name,)))), lambda value: value is not None),
        ]
        for value in {*values[len(values) // 2 :][:1], *values[-1:]}:
            for op, holds in OPERATORS.items():
                asked.append((compare((f.name,), op, value), _holding(holds, value)))
        for predicate, fits in asked:
            found = snapshot.to_table([f.name], predicate, time_zone=zone)
            kept = [value for value in column if fits(value)]
            got = found.column(f.name).to_pylist()
            assert sorted(got, key=repr) == sorted(kept, key=repr), predicate.to_sql()


def _holding(holds: Callable[[Any, Any], bool], value: Any) -> Callable[[Any], bool]:
    def fits(other: Any) -> bool:
        return other is not None and holds(other, value)

    return fits


def test_statistics_and_partitions_rule_files_out(golden: GoldenTables) -> None:
    snapshot = latest(golden("data-skipping-partition-and-data-column").table)
    assert snapshot.plan().files.num_rows == 4
    assert snapshot.plan(filter="part = 0").files.num_rows == 2
    assert snapshot.plan(filter="part = 0 AND id = 0").files.num_rows == 1
    assert snapshot.plan(filter="id > 1000").files.num_rows == 0
