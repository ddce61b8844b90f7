"""Table features that change what files or commits hold, used by both engines on one table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyspark_delta.kernel.log.frames.file_actions import add_files
from tests.interop.engines import Engine, Pair, Theirs, table
from tests.support.tables import table_log

pytestmark = pytest.mark.slow


def alter(theirs: Theirs, path: Path, change: str) -> None:
    theirs.sql(f"ALTER TABLE {table(path)} {change}")


def test_widened_columns_are_read_from_files_of_both_widths(
    pair: Pair, writer: Engine, table_path: Path
) -> None:
    narrow = (
        "SELECT 1Y AS b, 2S AS s, 3 AS i, 1.5F AS f, 1.23BD AS d, date'1500-01-01' AS dt, "
        "named_struct('x', 5S) AS st, array(6Y) AS a, map(7S, 8) AS m, 9 AS p"
    )
    writer.write(narrow, table_path, partition_by=["p"], delta_enableTypeWidening="true")
    changes = {
        "b": "INT",
        "s": "BIGINT",
        "i": "DOUBLE",
        "f": "DOUBLE",
        "d": "DECIMAL(20, 5)",
        "dt": "TIMESTAMP_NTZ",
        "st.x": "INT",
        "a.element": "SMALLINT",
        "m.key": "INT",
        "m.value": "BIGINT",
        "p": "BIGINT",
    }
    alter(pair.theirs, table_path, "SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')")
    for column, kind in changes.items():
        alter(pair.theirs, table_path, f"ALTER COLUMN {column} TYPE {kind}")
    wide = (
        "SELECT 100000 AS b, 1L << 40 AS s, 0.25D AS i, 1.0E300D AS f, "
        "CAST('123456789012345.12345' AS DECIMAL(20, 5)) AS d, "
        "timestamp_ntz'2024-01-01 01:02:03' AS dt, named_struct('x', 100000) AS st, "
        "array(300S) AS a, map(70000, 1L << 40) AS m, 1L << 40 AS p"
    )
    for engine in (pair.ours, pair.theirs):
        engine.write(wide, table_path)
    assert len(pair.agree(table_path).rows) == 3
    pair.agree_on(
        table_path,
        ["b = 1", "b > 1000", "s < 3", "i = 3", "d = 1.23", "dt < '1600-01-01'", "p = 9", "f > 2"],
    )


def test_each_engine_numbers_rows_that_the_other_did_not(
    pair: Pair, writer: Engine, table_path: Path
) -> None:
    writer.write("SELECT id FROM range(3)", table_path, delta_enableRowTracking="true")
    for engine in (pair.ours, pair.theirs, pair.ours):
        engine.write("SELECT id FROM range(2)", table_path)
    rows = pair.theirs.sql(
        f"SELECT _metadata.row_id AS r, _metadata.row_commit_version AS c FROM {table(table_path)}"
    )
    assert sorted(row["r"] for row in rows) == list(range(9))
    assert sorted(row["c"] for row in rows) == [0, 0, 0, 1, 1, 2, 2, 3, 3]
    pair.theirs.sql(f"UPDATE {table(table_path)} SET id = 50 WHERE id = 2")
    pair.ours.write("SELECT 7L AS id", table_path)
    rows = pair.theirs.sql(f"SELECT _metadata.row_id AS r FROM {table(table_path)}")
    assert len({row["r"] for row in rows}) == 10
    pair.agree(table_path)


def test_in_commit_timestamps_rise_across_engines(
    pair: Pair, writer: Engine, table_path: Path
) -> None:
    writer.write("SELECT 1 AS id", table_path)
    alter(pair.theirs, table_path, "SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')")
    for engine in (pair.ours, pair.theirs, pair.ours):
        engine.write("SELECT 2 AS id", table_path)
    infos = table_log(table_path).history()
    times = [info.in_commit_timestamp for info in infos if info.version]
    assert all(time is not None for time in times)
    assert times == sorted(times, reverse=True)  # type: ignore[type-var]
    assert len(set(times)) == 4
    assert len(pair.agree(table_path, versionAsOf=3).rows) == 3


CHANGES = """
feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", first)
columns = ["id", "_change_type", "_commit_version"]
result = sorted([list(row) for row in feed.load(path).select(*columns).collect()])
"""


def test_the_peer_sees_our_writes_as_changes(pair: Pair, writer: Engine, table_path: Path) -> None:
    writer.write("SELECT id FROM range(2)", table_path, delta_enableChangeDataFeed="true")
    pair.ours.write("SELECT 5L AS id", table_path)
    pair.theirs.sql(f"UPDATE {table(table_path)} SET id = 6 WHERE id = 5")
    pair.ours.write("SELECT 7L AS id", table_path, mode="overwrite")
    found = pair.theirs.python(CHANGES, path=table_path, first=0)
    assert found == [
        [0, "delete", 3],
        [0, "insert", 0],
        [1, "delete", 3],
        [1, "insert", 0],
        [5, "insert", 1],
        [5, "update_preimage", 2],
        [6, "delete", 3],
        [6, "update_postimage", 2],
        [7, "insert", 3],
    ]
    pair.agree(table_path)


def test_a_clustered_table_takes_our_rows(pair: Pair, table_path: Path) -> None:
    pair.theirs.sql(
        f"CREATE TABLE {table(table_path)} (id BIGINT, v STRING, s STRUCT<x: INT>) USING delta "
        "CLUSTER BY (id, s.x)"
    )
    row = "SELECT id, 'ü' AS v, named_struct('x', 1) AS s FROM range(5)"
    for engine in (pair.ours, pair.theirs, pair.ours):
        engine.write(row, table_path)
    for file in add_files(table_log(table_path).snapshot.files):
        assert file.stats is not None
        assert '"minValues"' in file.stats
    pair.theirs.sql(f"OPTIMIZE {table(table_path)}")
    pair.ours.write(row, table_path)
    assert len(pair.agree(table_path).rows) == 20
    (detail,) = pair.theirs.sql(f"DESCRIBE DETAIL {table(table_path)}")
    assert detail["clusteringColumns"] == ["id", "s.x"]


FEATURES: dict[str, dict[str, Any]] = {
    "everything": {
        "delta_enableDeletionVectors": "true",
        "delta_enableRowTracking": "true",
        "delta_enableInCommitTimestamps": "true",
        "delta_enableTypeWidening": "true",
        "delta_columnMapping_mode": "name",
        "delta_checkpointPolicy": "v2",
        "delta_checkpointInterval": "2",
        "delta_appendOnly": "false",
        "delta_dataSkippingNumIndexedCols": "1",
    },
    "named": {
        "delta_feature_vacuumProtocolCheck": "supported",
        "delta_feature_domainMetadata": "supported",
        "delta_feature_timestampNtz": "supported",
        "delta_feature_variantType": "supported",
        "delta_feature_allowColumnDefaults": "supported",
    },
    "statistics by name": {"delta_dataSkippingStatsColumns": "v,s.x"},
    "random prefixes": {"delta_randomizeFilePrefixes": "true"},
}


@pytest.mark.parametrize("kind", FEATURES)
def test_tables_with_many_features_are_made_by_either(
    pair: Pair, writer: Engine, table_path: Path, kind: str
) -> None:
    row = "SELECT id, concat('v ', id) AS v, named_struct('x', id) AS s FROM range(4)"
    writer.write(row, table_path, **FEATURES[kind])
    for engine in (pair.ours, pair.theirs, pair.ours):
        engine.write(row, table_path)
    pair.theirs.sql(f"DELETE FROM {table(table_path)} WHERE id = 2")
    pair.ours.write(row, table_path)
    assert len(pair.agree(table_path).rows) == 16
    pair.agree_on(table_path, ["id = 2", "v = 'v 3'", "s.x > 2"])


@pytest.mark.parametrize("kind", ["everything", "named"])
def test_a_table_of_ours_gets_the_protocol_that_theirs_gets(
    pair: Pair, tmp_path: Path, kind: str
) -> None:
    protocols = []
    for name, engine in (("ö %", pair.ours), ("t", pair.theirs)):
        engine.write("SELECT 1 AS id", tmp_path / name, **FEATURES[kind])
        protocol = table_log(tmp_path / name).snapshot.protocol
        protocols.append(
            (
                protocol.min_reader_version,
                protocol.min_writer_version,
                sorted(protocol.reader_features or ()),
                sorted(protocol.writer_features or ()),
            )
        )
    assert protocols[0] == protocols[1]


def test_variants_are_kept_byte_for_byte(pair: Pair, writer: Engine, table_path: Path) -> None:
    texts = ('{"a": [1, 2.5, null, true]}', '"ü"', "null", "12345678901234567890.5")
    rows = " UNION ALL ".join(
        f"SELECT {number} AS id, parse_json('{text}') AS v" for number, text in enumerate(texts)
    )
    for engine in (writer, pair.ours, pair.theirs):
        engine.write(rows, table_path)
    found = pair.agree(table_path)
    assert len(found.rows) == 12
    pair.agree_on(table_path, ["v IS NULL", "variant_get(v, '$.a[0]', 'int') = 1"])


def test_void_columns_are_there_and_empty(pair: Pair, writer: Engine, table_path: Path) -> None:
    writer.write("SELECT 1 AS id, NULL AS nothing", table_path)
    for engine in (pair.ours, pair.theirs):
        engine.write("SELECT 2 AS id", table_path)
    found = pair.agree(table_path)
    assert [value["nothing"] for value in found.values] == [None] * 3
