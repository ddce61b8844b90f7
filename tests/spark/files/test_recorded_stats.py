"""Statistics of new files, and what is left of them where the session collects none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_delta.errors import PropertyError
from pyspark_delta.kernel.protocol.actions import AddFile
from pyspark_delta.tables import DeltaTable
from tests.support.dml_tables import FEED, TRACKED, VECTORS, DmlTable, filled
from tests.support.spark_tables import SparkTable, conf


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> DmlTable:
    return DmlTable(spark, table_path)


@pytest.fixture
def no_stats(spark: SparkSession) -> Iterator[None]:
    """The session collects no statistics."""
    with conf(spark, spark__databricks__delta__stats__collect="false"):
        yield


def new_files(table: DmlTable) -> list[AddFile]:
    """The files that the newest commit added, but those that only got a vector."""
    return [file for file in table.added if file.deletion_vector is None]


@pytest.mark.usefixtures("no_stats")
def test_no_statement_records_statistics_when_the_session_collects_none(table: DmlTable) -> None:
    filled(table)
    assert table.metrics["numOutputRows"] == 5
    assert [file.stats for file in new_files(table)] == [None]
    assert table.handle.delete("id = 1").first() == (1,)
    assert [file.stats for file in new_files(table)] == [None]
    assert table.handle.update("id = 2", {"v": "'new'"}).first() == (1,)
    assert [file.stats for file in new_files(table)] == [None]
    source = table.data("id long, p string, v string", (2, "a", "B"), (9, "a", "I"))
    merge = table.handle.alias("t").merge(source.alias("s"), "t.id = s.id")
    merge = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll()
    assert merge.execute().first() == (2, 1, 0, 1)
    assert {file.stats for file in new_files(table)} == {None}
    assert merge.whenNotMatchedBySourceDelete("t.id = 3").execute().first() == (3, 2, 1, 0)
    filled(table)
    table.handle.optimize().executeCompaction()
    assert [file.stats for file in new_files(table)] == [None]
    assert sorted(row[0] for row in table.rows) == [1, 2, 2, 3, 4, 4, 5, 5, 9]


@pytest.mark.usefixtures("no_stats")
def test_rows_that_only_join_are_counted_without_recorded_statistics(table: DmlTable) -> None:
    filled(table)
    source = table.data("id long, p string, v string", (5, "a", "B"), (9, "a", "I"))
    merge = table.handle.alias("t").merge(source.alias("s"), "t.id = s.id")
    assert merge.whenNotMatchedInsertAll().execute().first() == (1, 0, 0, 1)
    assert [file.stats for file in new_files(table)] == [None]


@pytest.mark.usefixtures("no_stats")
def test_a_file_with_a_vector_tells_its_rows_in_any_case(table: DmlTable) -> None:
    filled(table, **VECTORS)
    assert [file.stats for file in table.files] == [None]
    table.handle.delete("id = 1")
    (file,) = table.files
    assert file.deletion_vector is not None
    assert file.num_records == 5
    table.handle.update("id = 2", {"v": "'new'"})
    assert [file.stats for file in new_files(table)] == [None]
    assert [row[0] for row in table.rows] == [2, 3, 4, 5]


@pytest.mark.usefixtures("no_stats")
def test_row_ids_need_the_number_of_rows_and_no_more(table: DmlTable) -> None:
    filled(table, **TRACKED)
    assert [file.stats for file in table.files] == ['{"numRecords":5}']
    filled(table)
    assert sorted(file.base_row_id or 0 for file in table.files) == [0, 5]


@pytest.mark.usefixtures("no_stats")
def test_identity_columns_go_on_without_recorded_statistics(table: DmlTable) -> None:
    name = f"delta.`{table.path}`"
    table.spark.sql(
        f"CREATE TABLE {name} (id LONG GENERATED ALWAYS AS IDENTITY, v STRING) USING delta"
    )
    for _ in range(2):
        table.spark.sql(f"INSERT INTO {name} (v) VALUES ('x')")
    assert [row[0] for row in table.rows] == [1, 2]
    assert {file.stats for file in table.files} == {None}


@pytest.mark.parametrize("collects", ["true", "false"])
@pytest.mark.parametrize("asks_log", ["true", "false"])
def test_rows_of_whole_partitions_are_counted_only_by_statistics(
    table: DmlTable, collects: str, asks_log: str
) -> None:
    settings = {
        "spark__databricks__delta__stats__collect": collects,
        "spark__databricks__delta__dmlMetricsFromMetadata__enabled": asks_log,
    }
    is_known = collects == asks_log == "true"
    with conf(table.spark, **settings):
        filled(table, "p", **FEED)
        assert table.handle.delete("p = 'nobody'").first() == (0,)
        assert table.handle.delete("p = 'a'").first() == (2 if is_known else -1,)
        assert table.metrics["numRemovedFiles"] == 1
        assert table.metrics.get("numDeletedRows") == (2 if is_known else None)
        assert table.handle.delete().first() == (3 if is_known else -1,)


def test_an_invalid_setting_leaves_no_files_and_no_commit(
    spark: SparkSession, table_path: Path
) -> None:
    written = SparkTable(spark, table_path)
    written.write(spark.range(4).repartition(2))
    handle = DeltaTable.forPath(spark, str(table_path))
    before = {each.name for each in table_path.glob("*.parquet")}
    runs: list[Callable[[], object]] = [
        lambda: handle.optimize().executeCompaction(),
        lambda: written.write(spark.range(1)),
        lambda: handle.update(set={"id": "id + 1"}),
    ]
    with conf(spark, spark__databricks__delta__stats__collect="perhaps"):
        for run in runs:
            with pytest.raises(PropertyError, match="DELTA_ILLEGAL_OPTION"):
                run()
    assert {each.name for each in table_path.glob("*.parquet")} == before
    assert written.log.update().version == 0
