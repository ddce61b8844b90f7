"""Row tracking switched on for tables that have rows, and off again."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_delta.errors import DeltaError
from tests.support.feature_tables import FeatureTable as Table
from tests.support.spark_tables import conf

ENABLE = "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')"
IDS = "SELECT id, _metadata.row_id, _metadata.row_commit_version FROM {t} ORDER BY id"


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> Table:
    """No table yet, but where it is going to be."""
    return Table(spark, table_path)


def test_rows_get_ids_before_readers_rely_on_them(table: Table) -> None:
    insert = "SELECT /*+ COALESCE(1) */ id FROM range({}, {})"
    inserts = [insert.format(n, n + 2) for n in (0, 2, 4)]
    table.create("id LONG", *inserts, delta_enableDeletionVectors="true")
    table.sql("DELETE FROM {t} WHERE id = 2")
    rows = table.rows
    with conf(table.spark, spark__databricks__delta__backfill__maxNumFiles="2"):
        table.sql(ENABLE)
    told = ["UPGRADE PROTOCOL", *["ROW TRACKING BACKFILL"] * 2, "SET TBLPROPERTIES"]
    assert table.told(5) == told
    assert table.rows == rows
    assert table.log.history(1)[0].tags == {"rowTrackingEnablementOnly": "true"}
    found = [tuple(row) for row in table.sql(IDS)]
    assert len({row_id for _, row_id, _ in found}) == len(found) == 5
    assert {version for _, _, version in found} == {6, 7}
    # Whoever moves the rows keeps their ids.
    table.sql("UPDATE {t} SET id = 50 WHERE id = 5")
    table.sql("INSERT INTO {t} VALUES (100L)")
    after = {row.id: row.row_id for row in table.sql(IDS)}
    before = {row_id: id for id, row_id, _ in found}
    assert before[after[50]] == 5
    assert after[100] not in before


def test_a_second_time_there_is_nothing_left_to_number(table: Table) -> None:
    table.create("id LONG", "VALUES (1L)", delta_feature_rowTracking="supported")
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true', 'a' = 'b')")
    assert table.told(2) == ["SET TBLPROPERTIES"]
    assert table.log.history(1)[0].tags is None
    table.sql(ENABLE)
    assert table.told(2) == ["SET TBLPROPERTIES"] * 2


def test_dropping_and_enabling_again_gives_new_ids(table: Table) -> None:
    table.create("id LONG", "VALUES (1L), (2L)")
    table.sql(ENABLE)
    table.sql("ALTER TABLE {t} DROP FEATURE rowTracking")
    table.sql("INSERT INTO {t} VALUES (3L)")
    table.sql(ENABLE)
    assert sorted(row.row_id for row in table.sql(IDS)) == [0, 1, 2]


def test_what_cannot_be_enabled_is_refused_first(table: Table) -> None:
    table.create("id LONG", "VALUES (1L)", delta_rowTrackingSuspended="true")
    both = "DELTA_ROW_TRACKING_ILLEGAL_PROPERTY_COMBINATION"
    assert table.condition(ENABLE) == both
    assert table.log.update().version == 1
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.rowTrackingSuspended' = 'false')")
    with conf(table.spark, spark__databricks__delta__rowTracking__backfill__enabled="false"):
        assert table.condition(ENABLE) == "DELTA_OPERATION_NOT_ALLOWED"
    with (
        conf(table.spark, spark__databricks__delta__backfill__maxNumFiles="none"),
        pytest.raises(DeltaError) as caught,
    ):
        table.sql(ENABLE)
    assert caught.value.condition == "DELTA_ILLEGAL_OPTION"
    assert table.log.update().version == 2
