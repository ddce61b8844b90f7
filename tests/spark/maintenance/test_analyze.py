"""ANALYZE TABLE ... COMPUTE DELTA STATISTICS."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from tests.support.feature_tables import FeatureTable


def test_statistics_of_the_log_are_collected_again(spark: SparkSession, table_path: Path) -> None:
    table = FeatureTable(spark, table_path).create(
        "id LONG, v STRING, at TIMESTAMP", "VALUES (1L, 'ä', timestamp'2024-01-02 03:04:05.678')"
    )
    (file,) = table.files
    bare = replace(file, stats=None, data_change=False)
    table.log.start_transaction().commit([bare], "COMPUTE STATS")
    assert table.sql("ANALYZE TABLE {t} COMPUTE DELTA STATISTICS") == []
    (again,) = table.files
    found, written = (json.loads(each.stats or "{}") for each in (again, file))
    assert found["numRecords"] == 1
    assert found["minValues"]["v"] == written["minValues"]["v"]
    assert found["nullCount"] == written["nullCount"]
    assert table.sql("SELECT count(*) AS n FROM {t} WHERE at < '2024-01-03'")[0].n == 1
    assert table.told()[-1] == "COMPUTE STATS"
    version = table.log.update().version
    with pytest.raises(ParseException):
        table.sql("ANALYZE TABLE {t} COMPUTE DELTA STATISTICS NOW")
    assert table.log.update().version == version
