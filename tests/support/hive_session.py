"""Run as a program: Delta tables in a Hive metastore, which a JVM can only have from its start."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from pyspark_delta import enable
from pyspark_delta.spark.catalog import resolve_table


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
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
