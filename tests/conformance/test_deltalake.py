"""deltalake reads every table that the kernel writes."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from pyspark_delta.kernel.log.cleanup import run_cleanup
from pyspark_delta.kernel.log.compaction import write_compaction
from pyspark_delta.kernel.log.last_checkpoint import write_last_checkpoint
from pyspark_delta.kernel.protocol.actions import DomainMetadata, SetTransaction
from pyspark_delta.kernel.protocol.paths import checksum_path, commit_path
from pyspark_delta.kernel.protocol.types import (
    INTEGER,
    STRING,
    ArrayType,
    StructField,
    StructType,
)
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from tests.support.agreement import agree, deltalake_rows, kernel_rows
from tests.support.checkpoints import checkpoint
from tests.support.clock import FrozenClock
from tests.support.tables import (
    append,
    change_schema,
    create_table,
    delete_positions,
    new_table,
    overwrite,
    set_properties,
    table_log,
)

TEN = pa.table({"id": list(range(10)), "v": [f"wörd {i}%" for i in range(10)]})
MORE = pa.table({"id": [10, 11, None], "v": ["x", None, "z"]})
MAPPED = {"delta.columnMapping.mode": "name"}
VECTORS = {"delta.enableDeletionVectors": "true"}
V2 = {"delta.checkpointPolicy": "v2"}


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]


# Two values at the ends of a type, and a null.
TYPES: Mapping[str, pa.Array] = {
    "boolean": pa.array([True, None, False]),
    "byte": pa.array([-128, None, 127], pa.int8()),
    "short": pa.array([-(2**15), None, 2**15 - 1], pa.int16()),
    "integer": pa.array([-(2**31), None, 2**31 - 1], pa.int32()),
    "long": pa.array([-(2**63), None, 2**63 - 1], pa.int64()),
    "float": pa.array([1.5, None, math.inf], pa.float32()),
    "double": pa.array([math.nan, None, -0.0], pa.float64()),
    "string": pa.array(["", None, "wörd 100% /" * 10]),
    "binary": pa.array([b"\x00\xff", None, b""]),
    "date": pa.array([date(1, 1, 1), None, date(9999, 12, 31)]),
    "timestamp": pa.array(
        [utc(1850, 1, 1), None, utc(2024, 2, 29, 1, 2, 3, 456_789)], pa.timestamp("us", "UTC")
    ),
    "timestamp_ntz": pa.array(
        [datetime(1, 1, 1), None, datetime(9999, 12, 31, 23, 59, 59, 999_999)], pa.timestamp("us")
    ),
    "small_decimal": pa.array([Decimal("-1.23"), None, Decimal("9.99")], pa.decimal128(5, 2)),
    "large_decimal": pa.array([Decimal(-(10**38) + 1), None, Decimal(1)], pa.decimal128(38, 0)),
    "struct": pa.array(
        [{"a": 1, "b": {"c": "x"}}, None, {"a": None, "b": None}],
        pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))]),
    ),
    "array": pa.array([[1, None], None, []], pa.list_(pa.int64())),
    "array_of_structs": pa.array(
        [[{"x": "y"}, None], None, []], pa.list_(pa.struct([("x", pa.string())]))
    ),
    "map": pa.array([[("k", 1), ("l", None)], None, []], pa.map_(pa.string(), pa.int64())),
    "map_of_arrays": pa.array([[(1, ["a"])], None, []], pa.map_(pa.int32(), pa.list_(pa.string()))),
}
PARTITIONS: Mapping[str, pa.Array] = {
    "boolean": TYPES["boolean"],
    "byte": TYPES["byte"],
    "short": TYPES["short"],
    "integer": TYPES["integer"],
    "long": TYPES["long"],
    "float": pa.array([1.5, None, -0.1], pa.float32()),
    "double": pa.array([1e300, None, 0.1], pa.float64()),
    "string": pa.array(["a b", "100%", "a%20b", "é/ü=?#&+:'\"", "日本", "__x", None]),
    "date": TYPES["date"],
    "timestamp": TYPES["timestamp"],
    "timestamp_ntz": TYPES["timestamp_ntz"],
    "small_decimal": TYPES["small_decimal"],
    "large_decimal": TYPES["large_decimal"],
}


def numbered(column: pa.Array) -> pa.Table:
    return pa.table({"id": list(range(len(column))), "x": column})


def only_checkpoint_left(log: DeltaLog, version: int | None = None) -> None:
    """Take away every commit before a checkpoint, so that a reader needs it."""
    last = log.update().version if version is None else version
    for number in range(last + 1):
        if number < last:
            log.store.delete(commit_path(number))
        log.store.delete(checksum_path(number))


# Types, partitions, statistics.


@pytest.mark.parametrize("mode", ["none", "name", "id"])
def test_every_type_is_read_with_and_without_column_mapping(table_path: Path, mode: str) -> None:
    rows = pa.table(dict(TYPES))
    log = new_table(table_path, rows, configuration={"delta.columnMapping.mode": mode})
    agree(table_path, rows)
    log.checkpoint()
    only_checkpoint_left(log)
    agree(table_path, rows)


@pytest.mark.parametrize("kind", PARTITIONS)
def test_partition_values_of_every_type_are_read(table_path: Path, kind: str) -> None:
    rows = numbered(PARTITIONS[kind])
    log = new_table(table_path, rows, partition_by=["x"])
    agree(table_path, rows)
    log.checkpoint()
    only_checkpoint_left(log)
    agree(table_path, rows)


def test_a_table_is_partitioned_by_several_columns_with_odd_names(table_path: Path) -> None:
    names = {"id": "id", "x": "pärt %=/ of", "y": "a b"}
    rows = pa.table(
        {
            "id": [1, 2, 3, 4],
            names["x"]: ["a/b", "a/b", None, "=%"],
            names["y"]: [date(2024, 2, 29), None, None, date(1, 1, 1)],
        }
    )
    new_table(table_path, rows, partition_by=[names["x"], names["y"]], configuration=MAPPED)
    agree(table_path, rows)


MOMENT = utc(2024, 5, 1, 12, 0, 0, 123_456)
SKIPPED: Mapping[str, tuple[pa.DataType, list[list[Any]], list[str]]] = {
    "long": (
        pa.int64(),
        [[-5, None, 3], [4, 9], [None, None], [100]],
        ["x = 3", "x > 3", "x <= -5", "x >= 9", "x is null", "x is not null", "x <> 100"],
    ),
    "double": (
        pa.float64(),
        # No filter that NaN passes: DataFusion prunes by the file's own bounds, which forget NaN.
        [[math.nan, 1.0], [-1.5, 2.5], [None], [1e300]],
        ["x = 1.0", "x < 0", "x <= 2.5", "x is null", "x = 1e300"],
    ),
    "string": (
        pa.string(),
        [["a" * 40 + "b", "m"], ["é", "ÿ" * 40], ["\U0010ffff" * 40], [None, ""]],
        [f"x = '{'a' * 40}b'", "x > 'm'", f"x = '{'ÿ' * 40}'", "x < 'b'", "x = ''", "x is null"],
    ),
    "date": (
        pa.date32(),
        [[date(1, 1, 1), date(2024, 2, 29)], [date(2024, 3, 1), None], [date(9999, 12, 31)]],
        ["x = date '2024-02-29'", "x > date '2024-02-29'", "x is null", "x < date '1900-01-01'"],
    ),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [[MOMENT], [MOMENT + timedelta(microseconds=1)], [utc(1850, 1, 1), None]],
        [
            "x = timestamp '2024-05-01T12:00:00.123456Z'",
            "x > timestamp '2024-05-01T12:00:00.123456Z'",
            "x >= timestamp '2024-05-01T12:00:00.123457Z'",
            "x < timestamp '1900-01-01T00:00:00Z'",
            "x is null",
        ],
    ),
    "decimal": (
        pa.decimal128(10, 2),
        [[Decimal("0.10"), Decimal("0.20")], [Decimal("-7.00")], [None]],
        ["x = 0.10", "x < 0", "x > 0.19", "x is null"],
    ),
}


@pytest.mark.parametrize("kind", SKIPPED)
def test_files_skipped_by_our_statistics_hold_no_wanted_row(
    table_path: Path, tmp_path: Path, kind: str
) -> None:
    data_type, files, filters = SKIPPED[kind]
    schema = pa.schema([("id", pa.int64()), ("x", data_type)])
    log = create_table(table_path, schema)
    twin = create_table(tmp_path / "twin, 100% the sämme", schema)
    for number, values in enumerate(files):
        columns = [pa.array([number] * len(values)), pa.array(values, data_type)]
        rows = pa.Table.from_arrays(columns, schema=schema)
        append(log, rows)
        append(twin, rows, with_stats=False)
    for is_checkpointed in (False, True):
        if is_checkpointed:
            log.checkpoint()
            only_checkpoint_left(log)
        for text in filters:
            wanted = deltalake_rows(tmp_path / "twin, 100% the sämme", text)
            assert wanted, text
            assert deltalake_rows(table_path, text) == wanted, text
            assert kernel_rows(table_path, text) == wanted, text


# What a table goes through.


def test_removed_and_overwritten_files_are_gone_and_old_versions_are_not(table_path: Path) -> None:
    log = new_table(table_path, TEN)
    append(log, MORE)
    overwrite(log, MORE)
    append(log, TEN)
    overwrite(log, TEN.slice(0, 0))
    agree(table_path, [])
    for version, rows in enumerate((None, TEN, pa.concat_tables([TEN, MORE]), MORE)):
        agree(table_path, [] if rows is None else rows, version=version)


def test_many_commits_with_checkpoints_between_them_are_read(table_path: Path) -> None:
    log = create_table(table_path, TEN.schema, configuration={"delta.checkpointInterval": "7"})
    for number in range(40):
        append(log, pa.table({"id": [number], "v": [str(number)]}))
    assert len(agree(table_path)) == 40
    for version in (6, 7, 8, 13, 14, 15, 40):
        assert len(agree(table_path, version=version)) == version


CHECKPOINTS: Mapping[str, tuple[Mapping[str, str], Mapping[str, Any]]] = {
    "classic": ({}, {}),
    "classic with columns": ({"delta.checkpoint.writeStatsAsStruct": "true"}, {}),
    "classic without text": (
        {
            "delta.checkpoint.writeStatsAsStruct": "true",
            "delta.checkpoint.writeStatsAsJson": "false",
        },
        {},
    ),
    "multi-part": ({}, {"part_size": 3}),
    "V2 json": (V2, {"v2_format": "json"}),
    "V2 json with sidecars": (V2, {"v2_format": "json", "part_size": 3}),
    "V2 parquet": (V2, {"v2_format": "parquet"}),
    "V2 parquet with sidecars": (V2, {"v2_format": "parquet", "part_size": 3}),
}


@pytest.mark.parametrize("has_hint", [True, False], ids=["hint", "no hint"])
@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_every_kind_of_checkpoint_is_read(table_path: Path, kind: str, has_hint: bool) -> None:
    configuration, options = CHECKPOINTS[kind]
    rows = pa.table({"id": list(range(10)), "p": ["a b", "ü%", None, "x", "y"] * 2})
    log = create_table(table_path, rows.schema, partition_by=["p"], configuration=configuration)
    append(log, rows)
    overwrite(log, rows)
    append(log, rows.slice(0, 4), SetTransaction(app_id="app", version=7, last_updated=1))
    hint = checkpoint(log.store, now_ms=log.now_ms(), **options)
    if has_hint:
        write_last_checkpoint(log.store, hint)
    only_checkpoint_left(log)
    expected = pa.concat_tables([rows, rows.slice(0, 4)])
    agree(table_path, expected)
    append(log, rows)
    agree(table_path, pa.concat_tables([expected, rows]))
    assert DeltaTable(table_path).transaction_version("app") == 7
    assert deltalake_rows(table_path, "id < 3") == kernel_rows(table_path, "id < 3")


def test_log_compactions_are_read(table_path: Path) -> None:
    log = new_table(table_path, TEN)
    for _ in range(4):
        append(log, MORE)
    overwrite(log, MORE)
    write_compaction(log.store, 1, 3)
    write_compaction(log.store, 2, 6)
    append(log, TEN)
    agree(table_path, pa.concat_tables([MORE, TEN]))


def test_a_cleaned_log_is_read(table_path: Path, clock: FrozenClock) -> None:
    one_day = "interval 1 days"
    configuration = {
        "delta.logRetentionDuration": one_day,
        "delta.deletedFileRetentionDuration": one_day,
    }
    log = create_table(
        table_path,
        TEN.schema,
        configuration=configuration,
        log=table_log(table_path, now_ms=clock),
    )
    for number in range(6):
        append(log, TEN)
        if number in (2, 4):
            log.checkpoint()
    log_directory = table_path / "_delta_log"
    for age, name in enumerate(sorted(os.listdir(log_directory), reverse=True)):
        when = clock() / 1000 + age * -60
        os.utime(log_directory / name, (when, when))
    clock.advance(days=4)
    latest = log.update()
    gone = run_cleanup(log.store, latest.protocol, latest.metadata, now_ms=clock())
    assert commit_path(0) in gone
    assert not log.store.exists(commit_path(4))
    agree(table_path, pa.concat_tables([TEN] * 6))


def test_columns_that_came_later_are_null_in_older_files(table_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "s": [{"a": 1}, None]})
    log = new_table(table_path, rows)
    first, second = log.snapshot.schema
    assert isinstance(second.data_type, StructType)
    wider = StructType(
        (
            first,
            second.with_type(StructType((*second.data_type, StructField("b", ArrayType(STRING))))),
            StructField("n", INTEGER),
        )
    )
    change_schema(log, wider)
    agree(
        table_path,
        [{"id": 1, "s": {"a": 1, "b": None}, "n": None}, {"id": 2, "s": None, "n": None}],
    )
    append(log, pa.table({"id": [3], "s": [{"a": 2, "b": ["x", None]}], "n": [4]}))
    log.checkpoint()
    only_checkpoint_left(log)
    assert len(agree(table_path)) == 3


@pytest.mark.parametrize("mode", ["name", "id"])
def test_renamed_and_dropped_columns_are_read(table_path: Path, mode: str) -> None:
    rows = pa.table({"id": [1, 2], "a": ["x", "y"], "b": [0.5, None], "p": ["1", "2"]})
    configuration = {"delta.columnMapping.mode": mode}
    log = new_table(table_path, rows, partition_by=["p"], configuration=configuration)
    ident, a, _, p = log.snapshot.schema
    change_schema(log, StructType((ident.with_name("nëw id"), p, a.with_name("b"))))
    agree(
        table_path,
        [{"nëw id": 1, "p": "1", "b": "x"}, {"nëw id": 2, "p": "2", "b": "y"}],
    )
    append(log, pa.table({"nëw id": [3], "b": ["z"], "p": ["3"]}))
    log.checkpoint()
    only_checkpoint_left(log)
    assert len(agree(table_path)) == 3


def test_column_mapping_can_begin_late(table_path: Path) -> None:
    log = new_table(table_path, TEN)
    set_properties(log, MAPPED)
    append(log, MORE)
    agree(table_path, pa.concat_tables([TEN, MORE]))


@pytest.mark.parametrize("inline", [False, True], ids=["in files", "inline"])
def test_deletion_vectors_are_read(table_path: Path, inline: bool) -> None:
    log = new_table(table_path, TEN, configuration=VECTORS)
    append(log, MORE)
    delete_positions(log, lambda file: [0, 2], inline=inline)
    agree(table_path, [*TEN.to_pylist()[1:2], *TEN.to_pylist()[3:], MORE.to_pylist()[1]])
    # A second vector replaces the first: the remove must name the pair of file and vector.
    delete_positions(log, lambda file: range(10) if file.num_records == 10 else [], inline=inline)
    agree(table_path, MORE.slice(1, 1))
    log.checkpoint()
    only_checkpoint_left(log)
    agree(table_path, MORE.slice(1, 1))


def test_large_deletion_vectors_are_read(table_path: Path) -> None:
    rows = pa.table({"id": list(range(200_000))})
    log = new_table(table_path, rows, configuration=VECTORS)
    delete_positions(log, lambda file: [*range(70_000), *range(100_000, 200_000, 3)])
    expected = [i for i in range(200_000) if i >= 70_000 and (i < 100_000 or (i - 100_000) % 3)]
    query = QueryBuilder().register("t", DeltaTable(table_path))
    theirs = pa.table(query.execute("select id from t order by id").read_all())
    assert theirs.column("id").to_pylist() == expected
    assert log.snapshot.to_table().column("id").to_pylist() == expected


FEATURES = {
    "row tracking": {"delta.enableRowTracking": "true"},
    "in-commit timestamps": {"delta.enableInCommitTimestamps": "true"},
    "domain metadata": {"delta.feature.domainMetadata": "supported"},
    "change data feed": {"delta.enableChangeDataFeed": "true"},
    "append-only": {"delta.appendOnly": "true"},
    "column defaults": {"delta.feature.allowColumnDefaults": "supported"},
    "check constraints": {"delta.constraints.positive": "id >= 0"},
    "generated columns": {"delta.feature.generatedColumns": "supported"},
    "identity columns": {"delta.feature.identityColumns": "supported"},
    "iceberg compatibility": {"delta.enableIcebergCompatV2": "true"},
    "checkpoint protection": {"delta.feature.checkpointProtection": "supported"},
    "everything at once": {
        "delta.enableRowTracking": "true",
        "delta.enableInCommitTimestamps": "true",
        **MAPPED,
        **VECTORS,
        **V2,
    },
}


@pytest.mark.parametrize("name", FEATURES)
def test_tables_with_a_feature_are_read(table_path: Path, name: str) -> None:
    configuration = {**FEATURES[name], "delta.checkpointInterval": "3"}
    log = new_table(table_path, TEN, configuration=configuration)
    append(log, TEN)
    append(log, TEN)  # writes a checkpoint
    append(log, TEN)
    only_checkpoint_left(log, 3)
    agree(table_path, pa.concat_tables([TEN] * 4))


def test_domains_and_transactions_do_not_disturb(table_path: Path) -> None:
    log = new_table(table_path, TEN, configuration=FEATURES["domain metadata"])
    domain = DomainMetadata(domain="my own", configuration='{"ä": 1}')
    append(log, MORE, domain, SetTransaction(app_id="a %", version=3))
    agree(table_path, pa.concat_tables([TEN, MORE]))
    assert DeltaTable(table_path).transaction_version("a %") == 3
    log.checkpoint()
    only_checkpoint_left(log)
    assert DeltaTable(table_path).transaction_version("a %") == 3


def test_our_commits_show_in_its_history(table_path: Path) -> None:
    log = new_table(table_path, TEN)
    overwrite(log, MORE)
    theirs = DeltaTable(table_path).history()
    ours = log.history()
    assert [entry["operation"] for entry in theirs] == ["WRITE", "WRITE", "CREATE TABLE"]
    assert [entry["version"] for entry in theirs] == [entry.version for entry in ours]
