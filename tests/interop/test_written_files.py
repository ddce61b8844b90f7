"""Files of unusual kinds: where they are, how they are encoded, and that both read them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.interop.engines import Engine, Ours, Pair
from tests.support.spark_tables import conf

pytestmark = pytest.mark.slow
QUERY = (
    "SELECT id, id % 2 AS p, timestamp'2024-01-02 03:04:05.678' AS t, "
    "array(named_struct('x', id)) AS l, map('k', array(id)) AS m FROM range(6)"
)
PREFIXED = re.compile(r"[A-Za-z0-9]{2}/")


def paths(table_path: Path) -> list[str]:
    logs = sorted((table_path / "_delta_log").glob("*.json"))
    lines = (json.loads(line) for log in logs for line in log.read_text().splitlines())
    return [line["add"]["path"] for line in lines if "add" in line]


@pytest.mark.parametrize(
    "options",
    [
        {"delta_columnMapping_mode": "name"},
        {"delta_randomizeFilePrefixes": "true"},
        {"delta_enableIcebergCompatV2": "true", "delta_columnMapping_mode": "name"},
    ],
    ids=["mapped", "asked", "iceberg"],
)
def test_random_directories_are_read_by_both(
    pair: Pair, writer: Engine, table_path: Path, options: dict[str, str]
) -> None:
    for engine in (writer, pair.ours, pair.theirs):
        engine.write(QUERY, table_path, partition_by=("p",), **options)
        options = {}
    assert all(PREFIXED.match(path) for path in paths(table_path))
    assert len(pair.agree(table_path).rows) == 18
    pair.agree_on(table_path, ["p = 1", "id > 3", "t = timestamp'2024-01-02 03:04:05.678'"])


@pytest.mark.parametrize(
    "options",
    [
        {"parquet.writer.version": "v2", "parquet.enable.dictionary": "false"},
        {"parquet.bloom.filter.enabled#id": "true", "parquet.block.size": "4096"},
        {"spark.sql.parquet.outputTimestampType": "INT96"},
        {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS"},
        {"compression": "zstd"},
    ],
    ids=["v2", "bloom", "int96", "millis", "zstd"],
)
def test_files_of_every_encoding_are_read_by_the_peer(
    pair: Pair, ours: Ours, table_path: Path, options: dict[str, str]
) -> None:
    data = ours.spark.sql(QUERY).coalesce(1)
    data.write.format("delta").options(**options).save(str(table_path))
    pair.theirs.write(QUERY, table_path)
    assert len(pair.agree(table_path).rows) == 12
    pair.agree_on(table_path, ["id > 3", "t = timestamp'2024-01-02 03:04:05.678'"])


def test_a_compaction_is_read_by_the_peer(pair: Pair, ours: Ours, table_path: Path) -> None:
    properties = {"delta_autoOptimize_autoCompact": "true", "delta_enableRowTracking": "true"}
    pair.theirs.write(QUERY, table_path, partition_by=("p",), **properties)
    with conf(ours.spark, spark__databricks__delta__autoCompact__minNumFiles="2"):
        ours.write(QUERY, table_path)
    (*_, newest) = pair.theirs.history(table_path)
    assert newest["operation"] == "OPTIMIZE"
    assert newest["operationParameters"]["auto"] == "true"
    assert len(pair.agree(table_path).rows) == 12
    pair.theirs.write(QUERY, table_path)
    assert len(pair.agree(table_path).rows) == 18
