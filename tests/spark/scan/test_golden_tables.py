"""The golden tables through Spark's own scan have the rows that they should have."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from pyspark_delta import enable
from tests.conformance.test_golden import SHOWS, check_same_rows, expected_rows
from tests.support.golden import GoldenTables, each_golden_table


@pytest.mark.parametrize("name", each_golden_table())
def test_a_golden_table_has_its_rows_in_spark(
    name: str, golden: GoldenTables, spark: SparkSession
) -> None:
    table, shows = golden(name), SHOWS[name]
    if shows.check is not None:
        pytest.skip("about its log: tests/conformance asks that")
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", shows.time_zone)
        found = enable(spark).read.format("delta").load(str(table.table)).toArrow()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    expected = expected_rows(table)
    check_same_rows(found.cast(expected.schema), expected)
