"""UniForm: metadata of Iceberg and Hudi is not written, so no table of ours may promise it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pyspark_delta import DeltaError, DeltaTable, enable
from pyspark_delta.spark.datasource.writer import writer_for
from tests.support.catalog_tables import own_database
from tests.support.spark_tables import SparkTable, conf
from tests.support.tables import new_table

KEY = "delta.universalFormat.enabledFormats"
CONDITION = "DELTA_UNIVERSAL_FORMAT_NOT_SUPPORTED"


def test_no_way_to_define_a_table_accepts_a_universal_format(
    spark: SparkSession, table_path: Path, tmp_path: Path
) -> None:
    enable(spark)
    data = spark.range(1)
    with own_database(spark):
        spark.sql("CREATE TABLE old (id LONG) USING delta")
        spark.sql(f"CREATE TABLE delta.`{table_path}` (id LONG) USING delta")
        handle = DeltaTable.forName(spark, "old")

        def by_default() -> None:
            default = "spark__databricks__delta__properties__defaults__universalFormat__"
            with conf(spark, **{f"{default}enabledFormats": "iceberg"}):
                data.write.format("delta").saveAsTable("t")

        def option(name: str) -> None:
            data.write.format("delta").option(KEY.upper(), name).save(str(tmp_path / "a b%ü"))

        ways: list[Callable[[], object]] = [
            lambda: spark.sql(
                f"CREATE TABLE t (id LONG) USING delta TBLPROPERTIES ('{KEY}'='hudi')"
            ),
            lambda: spark.sql(
                f"CREATE TABLE t USING delta TBLPROPERTIES ('{KEY}'='iceberg,hudi') AS SELECT 1 id"
            ),
            lambda: spark.sql(
                f"CREATE OR REPLACE TABLE old (id LONG) USING delta TBLPROPERTIES ('{KEY}'='hudi')"
            ),
            lambda: spark.sql(f"ALTER TABLE old SET TBLPROPERTIES ('{KEY}' = 'iceberg')"),
            lambda: spark.sql(
                f"CREATE TABLE t SHALLOW CLONE old TBLPROPERTIES ('{KEY}' = 'iceberg')"
            ),
            lambda: handle.clone(str(tmp_path / "c d%ü"), isShallow=True, properties={KEY: "hudi"}),
            lambda: (
                DeltaTable.create(spark)
                .tableName("t")
                .addColumn("id", "LONG")
                .property(KEY, "iceberg")
                .execute()
            ),
            lambda: data.writeTo("t").using("delta").tableProperty(KEY, "iceberg").create(),
            lambda: option("iceberg"),
            lambda: option("hudi"),
            by_default,
            lambda: writer_for({"path": str(tmp_path / "e%ü"), KEY: "hudi"}, data.schema, False),
        ]
        for way in ways:
            with pytest.raises(DeltaError) as refused:
                way()
            assert refused.value.condition == CONDITION
        assert not spark.catalog.tableExists("t")
        # None of the formats is what a table has anyway.
        spark.sql(f"ALTER TABLE old SET TBLPROPERTIES ('{KEY}' = '')")


def test_a_table_of_others_with_a_universal_format_is_read_and_not_changed(
    spark: SparkSession, table_path: Path, tmp_path: Path
) -> None:
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    table = SparkTable(enable(spark), table_path)
    new_table(table_path, rows, configuration={"own": "iceberg"})
    first = table_path / "_delta_log" / f"{0:020d}.json"
    first.write_text(first.read_text().replace('"own"', f'"{KEY}"'))
    for checksum in (table_path / "_delta_log").glob("*.crc"):
        checksum.unlink()
    name = f"delta.`{table_path}`"
    assert spark.read.format("delta").load(str(table_path)).count() == 2
    files = sorted(table_path.rglob("*.parquet"))
    for statement in (
        f"INSERT INTO {name} VALUES (3)",
        f"DELETE FROM {name} WHERE id = 1",
        f"UPDATE {name} SET id = 5 WHERE id = 1",
        f"MERGE INTO {name} t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
        f"INSERT OVERWRITE {name} VALUES (3)",
        f"ALTER TABLE {name} ADD COLUMNS (v INT)",
        f"CREATE TABLE delta.`{tmp_path / 'c d%ü'}` SHALLOW CLONE {name}",
    ):
        with table.refused(CONDITION):
            spark.sql(statement)
    assert sorted(table_path.rglob("*.parquet")) == files
    spark.sql(f"VACUUM {name}")
    spark.sql(f"ALTER TABLE {name} UNSET TBLPROPERTIES ('{KEY}')")
    spark.sql(f"INSERT INTO {name} VALUES (3)")
    assert table.rows == [(1,), (2,), (3,)]
