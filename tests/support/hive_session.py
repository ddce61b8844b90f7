"""Run as a program: Delta tables in a Hive metastore, which a JVM can only have from its start."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta import DeltaError, DeltaTable, disable, enable
from pyspark_delta.spark.tables.names import resolve_table

BEGIN, END = "messages begin", "messages end"


def started(home: Path) -> SparkSession:
    metastore = f"jdbc:derby:;databaseName={home}/metastore;create=true"
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.warehouse.dir", str(home / "ware house 100%"))
        .config("spark.hadoop.javax.jdo.option.ConnectionURL", metastore)
        .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={home}")
        .enableHiveSupport()
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    return session


def check_converted(spark: SparkSession, home: Path) -> None:
    """Parquet tables of Spark's kind and of Hive's become Delta tables in the metastore too."""
    outside = home / "öther side 5%"
    spark.sql("CREATE TABLE sparks (id INT, p INT) USING parquet PARTITIONED BY (p)")
    spark.sql("ALTER TABLE sparks SET TBLPROPERTIES ('my.own' = '1')")
    spark.sql("INSERT INTO sparks VALUES (1, 1), (2, NULL)")
    spark.sql(f"ALTER TABLE sparks ADD PARTITION (p = 3) LOCATION '{outside}'")
    spark.sql("CREATE TABLE hives (id INT) PARTITIONED BY (P STRING) STORED AS PARQUET")
    spark.sql("INSERT INTO hives PARTITION (P = 'ä b') VALUES (1)")
    spark.sql("CREATE TABLE texts (id INT) STORED AS TEXTFILE")
    for name, rows in (("sparks", {(1, 1), (2, None)}), ("hives", {(1, "ä b")})):
        spark.sql(f"CONVERT TO DELTA {name}")
        found = resolve_table(spark, name)
        assert found.is_delta
        assert found.entry is not None
        for session in (spark, spark.newSession()):
            assert {tuple(row) for row in session.table(name).collect()} == rows
        spark.sql(f"INSERT INTO {name} VALUES (7, '7')")
        assert spark.table(name).count() == len(rows) + 1
        detail = DeltaTable.forName(spark, name).detail().first()
        assert detail is not None
        assert dict(detail.properties) == ({"my.own": "1"} if name == "sparks" else {})
        assert [column.lower() for column in detail.partitionColumns] == ["p"]
        assert spark.sql(f"DESCRIBE {name}").first() is not None
        spark.sql(f"DROP TABLE {name}")
    with pytest.raises(DeltaError, match="trying to convert a hive source: `texts`"):
        spark.sql("CONVERT TO DELTA texts")


def check_quiet(spark: SparkSession, home: Path) -> None:
    """Statements whose messages are kept apart on standard error: the test looks at them."""
    spark.conf.set("spark.sql.adaptive.enabled", "false")  # Spark warns of it for streams
    spark.sql("CREATE TABLE quiet (id BIGINT, s STRING) USING delta")
    spark.sql("INSERT INTO quiet VALUES (1, 'a')")
    spark.sparkContext.setLogLevel("WARN")
    print(BEGIN, file=sys.stderr, flush=True)
    merge = "MERGE INTO quiet t USING (SELECT 1L + rand() * 0 AS id) s ON t.id = s.id"
    spark.sql(
        f"{merge} WHEN MATCHED THEN UPDATE SET s = 'b' WHEN NOT MATCHED THEN INSERT (id) VALUES (0)"
    )
    spark.sql("ALTER TABLE quiet ADD COLUMNS (late INT)")

    def upsert(batch: DataFrame, _: int) -> None:
        target = DeltaTable.forName(batch.sparkSession, "quiet")
        merge = target.alias("t").merge(batch.alias("s"), "t.id = s.id")
        merge.whenMatchedUpdate(set={"s": "'c'"}).execute()

    stream = spark.readStream.table("quiet").writeStream.foreachBatch(upsert)
    stream = stream.option("checkpointLocation", str(home / "chäckpoint 5%"))
    stream.trigger(availableNow=True).start().awaitTermination()
    for number in range(2):  # the first batch makes the table
        copy = spark.readStream.table("quiet").writeStream.format("delta")
        copy = copy.option("checkpointLocation", str(home / "chäckpoint 6%"))
        copy.trigger(availableNow=True).start(str(home / "cö py 5%")).awaitTermination()
        spark.sql(f"INSERT INTO quiet VALUES ({number + 2}, 'd', NULL)")
    print(END, file=sys.stderr, flush=True)
    # A logger that was off for a call is on again.
    name = "org.apache.spark.sql.hive.HiveExternalCatalog"
    assert spark._jvm is not None
    assert spark._jvm.org.slf4j.LoggerFactory.getLogger(name).isWarnEnabled()
    spark.sparkContext.setLogLevel("OFF")
    assert not spark._jvm.org.slf4j.LoggerFactory.getLogger(name).isErrorEnabled()
    assert sorted(spark.table("quiet").collect())[0] == (1, "c", None)
    assert spark.read.format("delta").load(str(home / "cö py 5%")).count() == 2
    assert [row.col_name for row in spark.sql("DESCRIBE quiet").collect()][2] == "late"


def check_completed(spark: SparkSession, home: Path) -> None:
    """What a session that is not enabled defines, the first write or statement completes."""
    plain = disable(spark.newSession())
    place = home / "defined 5% ü"
    for name, rest in (
        ("defined", "PARTITIONED BY (p) COMMENT 'why' TBLPROPERTIES ('own' = '1')"),
        ("placed", f"LOCATION '{place}'"),
    ):
        plain.sql(f"CREATE TABLE {name} (id BIGINT COMMENT 'c', p STRING) USING delta {rest}")
        with pytest.raises(DeltaError, match="CREATE TABLE IF NOT EXISTS"):
            spark.table(name)
    spark.sql("INSERT INTO defined VALUES (1, 'a')")
    spark.sql("CREATE TABLE IF NOT EXISTS placed USING delta")
    assert (place / "_delta_log").is_dir()
    assert spark.table("placed").columns == ["id", "p"]
    detail = spark.sql("DESCRIBE DETAIL defined").first()
    assert detail is not None
    assert (detail.partitionColumns, detail.description) == (["p"], "why")
    assert dict(detail.properties) == {"own": "1"}
    for name in ("defined", "placed"):
        found = resolve_table(spark, name).entry
        assert found is not None
        assert not found.is_sparks_own
        spark.sql(f"INSERT INTO {name} VALUES (2, 'b')")
    assert {tuple(row) for row in spark.newSession().table("defined").collect()} == {
        (1, "a"),
        (2, "b"),
    }
    plain.sql("CREATE TABLE again (id BIGINT, p STRING) USING delta PARTITIONED BY (p)")
    spark.sql("CREATE OR REPLACE TABLE again USING delta AS SELECT 1 AS n")
    assert [row.col_name for row in spark.sql("DESCRIBE again").collect()] == ["n"]


def main(home: Path) -> None:
    spark = enable(started(home))
    assert spark.conf.get("spark.sql.catalogImplementation") == "hive"
    spark.sql("CREATE TABLE t (p INT, s STRING COMMENT 'c') USING delta PARTITIONED BY (p)")
    spark.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    spark.sql("CREATE VIEW v AS SELECT s FROM t WHERE p = 2")
    assert [row.s for row in spark.table("v").collect()] == ["b"]
    wider = spark.sql("SELECT 3 AS p, 'c' AS s, true AS f")
    wider.write.format("delta").mode("append").option("mergeSchema", True).saveAsTable("t")
    assert spark.table("t").count() == 3
    assert [row.col_name for row in spark.sql("DESCRIBE t").collect()][:3] == ["p", "s", "f"]
    outside = home / "out side 5%"
    spark.range(4).write.format("delta").option("path", str(outside)).saveAsTable("u")
    located = resolve_table(spark, "t").location
    assert located is not None
    files = Path(located.removeprefix("file:"))
    assert files.is_dir()
    spark.range(2).write.saveAsTable("plain")
    assert spark.newSession().table("plain").count() == 2
    spark.sql("DROP TABLE t")
    spark.sql("DROP TABLE u")
    assert not files.exists()
    assert spark.read.format("delta").load(str(outside)).count() == 4
    check_converted(spark, home)
    check_quiet(spark, home)
    check_completed(spark, home)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
