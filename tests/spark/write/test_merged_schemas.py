"""mergeSchema and columns with statistics, as the files and rows of real writes show them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.support.spark_tables import SparkTable


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> SparkTable:
    return SparkTable(spark, table_path)


@pytest.mark.parametrize("mapping", ["none", "name"])
def test_new_fields_merge_inside_of_arrays_and_maps(table: SparkTable, mapping: str) -> None:
    spark = table.spark
    old = """
        SELECT 1 AS id,
            array(named_struct('a', 1), NULL) AS l,
            map('k', named_struct('a', 1)) AS m,
            named_struct('l', array(map('k', named_struct('a', 1)))) AS n
    """
    new = """
        SELECT 2 AS id,
            array(named_struct('b', 'x', 'a', 2)) AS l,
            map('k', named_struct('b', 'y', 'a', 2)) AS m,
            named_struct('l', array(map('k', named_struct('b', 'z', 'a', 2)))) AS n
    """
    table.write(spark.sql(old), **{"delta.columnMapping.mode": mapping})
    with table.refused("DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH"):
        table.write(spark.sql(new))
    table.write(spark.sql(new), mergeSchema="true")
    assert table.log.snapshot.schema.simple_string == (
        "struct<id:int,l:array<struct<a:int,b:string>>,m:map<string,struct<a:int,b:string>>,"
        "n:struct<l:array<map<string,struct<a:int,b:string>>>>>"
    )
    # Rows of both kinds, and data that lacks a field by now.
    table.write(spark.sql(old.replace("1 AS id", "3 AS id")))
    texts = table.read().orderBy("id").select(F.to_json(F.struct("*"))).collect()
    found = [json.loads(row[0]) for row in texts]

    def row(number: int, a: int, **b: str) -> dict[str, Any]:
        fields = [{"a": a} | ({"b": b[key]} if b else {}) for key in "lmn"] if b else [{"a": a}] * 3
        items = [fields[0]] if b else [fields[0], None]
        return {
            "id": number,
            "l": items,
            "m": {"k": fields[1]},
            "n": {"l": [{"k": fields[2]}]},
        }

    assert found == [row(1, 1), row(2, 2, l="x", m="y", n="z"), row(3, 1)]
    lists = {row["id"]: row["l"] for row in table.log.update().to_table().to_pylist()}
    assert lists[2] == [{"a": 2, "b": "x"}]
    assert lists[1] == lists[3] == [{"a": 1, "b": None}, None]


@pytest.mark.parametrize(
    ("properties", "bounded"),
    [
        ({"delta.dataSkippingStatsColumns": "s.y,c"}, {"c", "s.y"}),
        (
            {"delta.dataSkippingStatsColumns": "s", "delta.columnMapping.mode": "name"},
            {"s.x", "s.y"},
        ),
        ({"delta.dataSkippingNumIndexedCols": "2"}, {"a", "s.x"}),
        ({"delta.dataSkippingNumIndexedCols": "0"}, set()),
        ({"delta.dataSkippingNumIndexedCols": "-1"}, {"a", "s.x", "s.y", "c", "d"}),
        (
            {"delta.dataSkippingNumIndexedCols": "1", "delta.dataSkippingStatsColumns": "`d`"},
            {"d"},
        ),
    ],
)
def test_files_have_statistics_of_exactly_the_asked_columns(
    table: SparkTable, properties: dict[str, str], bounded: set[str]
) -> None:
    text = "id AS a", "named_struct('x', id, 'y', id + 1) AS s", "-id AS c", "id % 3 AS d"
    data = table.spark.range(0, 4, 1, 1).selectExpr(*text)
    for mode in ("append", "overwrite"):
        table.write(data, mode, **properties)
        (file,) = table.files
        stats = json.loads(file.stats or "")
        names = {}
        if "delta.columnMapping.mode" in properties:
            schema = table.log.snapshot.schema
            inner = schema["s"].data_type
            fields = [*schema, *inner]  # type: ignore[misc]
            names = {f.metadata["delta.columnMapping.physicalName"]: f.name for f in fields}
        assert stats["numRecords"] == 4
        for kind in ("minValues", "maxValues", "nullCount"):
            assert _leaves(stats.get(kind, {}), names) == bounded


def _leaves(stats: dict[str, Any], names: dict[str, str], prefix: str = "") -> set[str]:
    found: set[str] = set()
    for key, value in stats.items():
        path = prefix + names.get(key, key)
        found |= _leaves(value, names, f"{path}.") if isinstance(value, dict) else {path}
    return found
