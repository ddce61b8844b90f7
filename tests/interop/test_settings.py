"""Settings: every one that delta-spark lists is known here."""

from __future__ import annotations

from pyspark_delta.spark.conf.setting_table import HONOURED, NOT_HONOURED
from pyspark_delta.spark.conf.settings import DELTA_PREFIX, row_of
from tests.interop.engines import Theirs


def test_a_setting_that_delta_spark_lists_is_honoured_or_has_a_reason(theirs: Theirs) -> None:
    theirs.sql("SELECT 1")
    listed = {str(row["key"]) for row in theirs.sql("SET -v")}
    keys = {key for key in listed if key.startswith(DELTA_PREFIX)}
    assert len(keys) > 30
    rows = (*HONOURED, *NOT_HONOURED)
    assert sorted(key for key in keys if row_of(key, rows) is None) == []
