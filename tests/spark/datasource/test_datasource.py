"""`format("delta")` where nothing was enabled: Spark finds the Python data source by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta import DeltaLog, disable, enable
from pyspark_delta.kernel.protocol.types import LONG, StructField, StructType
from pyspark_delta.kernel.storage.uris import decode_path
from tests.support.agreement import agree, kernel_rows, sorted_rows
from tests.support.tables import append, create_table, delete_positions, table_log

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session that is not enabled, beside others that may be."""
    other = disable(spark.newSession())
    other.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
    yield other
    other.catalog.clearCache()


def load(session: SparkSession, path: Path | str, **options: object) -> DataFrame:
    return session.read.format("delta").options(**options).load(str(path))  # type: ignore[arg-type]


def save(data: DataFrame, path: Path, mode: str = "append", **options: object) -> None:
    data.write.format("delta").mode(mode).options(**options).save(str(path))  # type: ignore[arg-type]


def rows(data: DataFrame) -> list[Any]:
    return sorted_rows(data.toArrow().to_pylist())


def refused(ask: Callable[[], object]) -> str:
    """What a user reads when Spark passes an error of ours on."""
    with pytest.raises(PySparkException) as caught:
        ask()
    return str(caught.value)


def test_a_table_is_created_appended_to_overwritten_and_read(
    session: SparkSession, table_path: Path
) -> None:
    data = session.range(10).selectExpr("id", "concat('wörd ', id % 3, '%') AS v")
    save(data, table_path)
    save(data.where("id < 2"), table_path, maxRecordsPerFile=1)
    assert load(session, table_path).count() == 12
    save(data.where("id > 7"), table_path, "overwrite", userMetadata="why")
    assert rows(load(session, table_path)) == agree(table_path) == rows(data.where("id > 7"))
    assert load(session, table_path, versionAsOf=0).count() == 10
    assert load(session, f"{table_path}@v1").where("id = 1").count() == 2
    newest, middle, first = DeltaLog.for_table(table_path).history()
    assert [info.operation for info in (newest, middle, first)] == ["WRITE"] * 3
    assert newest.operation_parameters == {"mode": "Overwrite", "partitionBy": "[]"}
    assert newest.user_metadata == "why"
    assert middle.operation_metrics is not None
    assert middle.operation_metrics["numOutputRows"] == "2"
    assert middle.is_blind_append is True


def test_values_of_every_type_come_back(session: SparkSession, table_path: Path) -> None:
    data = session.sql(
        "SELECT cast(1 AS byte) b, cast(-2 AS short) s, 3 i, 4L l, 1.5f f, double('NaN') d,"
        " cast(1.25 AS decimal(10,2)) small, cast(-1.25 AS decimal(38,4)) big, 'ü' t,"
        " binary('x') y, true o, date'1582-10-01' da, timestamp'2024-03-10 03:30:00' ts,"
        " timestamp_ntz'2024-03-10 02:30:00' tn, array(1, null) a, map('k', 1L, 'n', null) m,"
        " named_struct('x', 1, 'Y', array(named_struct('z', 'q'))) st"
        " UNION ALL SELECT null,null,null,null,null,null,null,null,null,null,null,null,null,null,"
        " null,null,null"
    )
    save(data, table_path)
    found = load(session, table_path)
    assert found.schema.simpleString() == data.schema.simpleString()
    assert sorted(map(repr, found.collect())) == sorted(map(repr, data.collect()))
    agree(table_path)


def test_variant_and_void_columns_come_back(session: SparkSession, table_path: Path) -> None:
    save(session.sql("SELECT parse_json('{\"a\":[1]}') v, cast(null AS void) n, 1 i"), table_path)
    found = load(session, table_path).selectExpr("to_json(v)", "n", "i").first()
    assert found is not None
    assert tuple(found) == ('{"a":[1]}', None, 1)


def test_rows_of_a_partitioned_and_mapped_table(session: SparkSession, table_path: Path) -> None:
    schema = pa.schema([("a b", pa.int64()), ("p,q", pa.string()), ("day", pa.date32())])
    configuration = {
        "delta.columnMapping.mode": "name",
        "delta.enableDeletionVectors": "true",
    }
    log = create_table(table_path, schema, partition_by=["p,q", "day"], configuration=configuration)
    data = session.sql(
        "SELECT date'2024-02-29' DAY, concat('ä/', id % 2) `p,q`, id `A B` FROM range(6)"
        " UNION ALL SELECT null, null, 6L"
    )
    save(data.coalesce(1), table_path)
    assert len({tuple(f.items()) for f in _partition_values(log)}) == 3
    delete_positions(log, lambda file: [0] if "ä/1" in file.partition_values.values() else [])
    expected = [row for row in range(7) if row != 1]
    found = load(session, table_path)
    assert sorted(row["a b"] for row in found.collect()) == expected
    assert [row[0] for row in found.where("`p,q` IS NULL").collect()] == [6]
    assert rows(load(session, table_path, filter="`p,q` = 'ä/0'")) == kernel_rows(
        table_path, "`p,q` = 'ä/0'"
    )


def _partition_values(log: DeltaLog) -> list[dict[str, str | None]]:
    return [dict(v) for v in log.update().files.column("partitionValues").to_pylist()]


def test_filters_are_pushed_where_session_and_dataframe_allow_it(
    session: SparkSession, table_path: Path
) -> None:
    schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
    log = create_table(table_path, schema, partition_by=["p"])
    for number, value in enumerate(["a", "b", "c"]):
        append(log, pa.table({"id": [10 * number, 10 * number + 1], "p": [value, value]}))
    plain = load(session, table_path)
    session.conf.set(PUSHDOWN, "true")
    # Spark lets scans of one DataFrame share what the last one planned; rows must not be lost.
    both = load(session, table_path)
    assert sorted(both.where("id = 1").union(both.where("id = 20")).collect()) == [
        (1, "a"),
        (20, "c"),
    ]
    assert both.groupBy().count().collect()[0][0] == 6
    # Only the files that may match are there, so no other can have been opened.
    for file in log.update().files.column("path").to_pylist():
        if "p=b" not in file:
            (table_path / decode_path(file)).unlink()
    pushed = load(session, table_path, pushFilters=True)
    assert pushed.where("p = 'b' AND id <> 10").collect() == [(11, "b")]
    by_statistics = load(session, table_path, pushFilters=True)
    assert by_statistics.where("id > 9 AND id < 20 AND id <> 10").collect() == [(11, "b")]
    assert load(session, table_path, filter="p = 'b'").count() == 2
    assert "DELTA_FILE_NOT_FOUND" in refused(plain.collect)


def test_spark_lets_the_scans_of_a_dataframe_share_a_plan(
    session: SparkSession, table_path: Path
) -> None:
    """Why filters prune nothing unless asked to; when this fails, amend docs/design/009."""
    log = create_table(table_path, pa.schema([("id", pa.int64())]))
    for number in range(2):
        append(log, pa.table({"id": [number]}))
    session.conf.set(PUSHDOWN, "true")
    shared = load(session, table_path, pushFilters=True)
    assert len(shared.where("id = 0").union(shared.where("id = 1")).collect()) == 1


def test_what_does_not_fit_is_refused_before_any_job(
    session: SparkSession, table_path: Path, tmp_path: Path
) -> None:
    schema = StructType((StructField("id", LONG, nullable=False), StructField("n", LONG)))
    create_table(table_path, schema)
    data = session.range(2)

    def no_job() -> DataFrame:
        return data.selectExpr("id", "raise_error('a job ran') AS x")

    asked: dict[str, Callable[[], object]] = {
        "DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH": lambda: save(no_job(), table_path),
        "DELTA_MISSING_NOT_NULL_COLUMN_VALUE": lambda: save(data.selectExpr("id n"), table_path),
        "DELTA_NOT_NULL_CONSTRAINT_VIOLATED": lambda: save(
            data.selectExpr("nullif(id, 1) AS id"), table_path
        ),
        "DELTA_UNSUPPORTED_DATA_TYPES": lambda: save(
            session.sql("SELECT interval 1 day AS i"), tmp_path / "näu"
        ),
        "DELTA_TABLE_NOT_FOUND": lambda: load(session, tmp_path / "nö where"),
        "DELTA_VERSION_NOT_FOUND": lambda: load(session, table_path, versionAsOf=9),
        "DELTA_ILLEGAL_OPTION": lambda: load(session, table_path, versionAsOf="x"),
        "DELTA_UNSUPPORTED_SCHEMA_DURING_READ": lambda: (
            session.read.schema("id long").format("delta").load(str(table_path)).collect()
        ),
    }
    for condition, ask in asked.items():
        assert f"[{condition}]" in refused(ask)
    assert table_log(table_path).update().version == 0


def test_what_the_api_cannot_do_names_enable(
    session: SparkSession, table_path: Path, tmp_path: Path
) -> None:
    data = session.range(2)
    save(data, table_path)
    asked: list[Callable[[], object]] = [
        lambda: data.write.format("delta").saveAsTable("by_name"),
        lambda: save(data, table_path, "overwrite", replaceWhere="id = 1"),
        lambda: session.sql(f"CREATE TABLE by_path USING delta LOCATION '{table_path}'"),
        lambda: (
            session.readStream.format("delta")
            .load(str(table_path))
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "chäckpoint"))
            .start()
            .processAllAvailable()
        ),
    ]
    for ask in asked:
        assert "pyspark_delta.enable(spark)" in refused(ask)
    # Spark answers these itself, before it asks a data source.
    assert "UNSUPPORTED_DATA_SOURCE_SAVE_MODE" in refused(
        lambda: data.write.format("delta").save(str(table_path))
    )


def test_a_job_that_fails_leaves_the_table_as_it_was(
    session: SparkSession, table_path: Path
) -> None:
    save(session.range(2), table_path)
    broken = session.range(0, 4, 1, 2).selectExpr("if(id > 2, raise_error('no'), id) AS id")
    refused(lambda: save(broken, table_path, "overwrite"))
    agree(table_path, [{"id": 0}, {"id": 1}])
    assert table_log(table_path).update().version == 0


def test_an_enabled_session_goes_the_native_way(
    spark: SparkSession, session: SparkSession, table_path: Path
) -> None:
    save(session.range(3), table_path)
    assert load(session, table_path).inputFiles() == []
    native = load(enable(spark), table_path)
    assert len(native.inputFiles()) == native.rdd.getNumPartitions() > 0
    assert sorted(native.collect()) == sorted(load(session, table_path).collect())
