"""GENERATE: manifests that other engines, here Spark's own text reader, can follow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from pyspark_delta import DeltaTable, enable
from pyspark_delta.spark.sql.grammar import StatementSyntaxError
from pyspark_delta.spark.sql.statements.maintain import parse_generate
from tests.support.catalog_tables import own_database
from tests.support.refusals import condition
from tests.support.spark_tables import SparkTable
from tests.support.tables import set_properties

KEPT = {"delta.compatibility.symlinkFormatManifest.enabled": "true"}


@pytest.fixture
def database(spark: SparkSession) -> Iterator[str]:
    with own_database(enable(spark)) as name:
        yield name


def lines(path: Path) -> dict[str, list[str]]:
    root = path / "_symlink_format_manifest"
    return {
        str(file.parent.relative_to(root)): file.read_text().splitlines()
        for file in root.rglob("manifest")
    }


def test_the_statement_names_a_mode_and_a_table() -> None:
    assert parse_generate("generate Symlink_Format_Manifest for table a.`b c`;") == (
        "Symlink_Format_Manifest",
        ("a", "b c"),
    )
    for sql in ("GENERATE", "GENERATE a.b FOR TABLE t", "GENERATE m FOR t", "GENERATE m FOR TABLE"):
        with pytest.raises(StatementSyntaxError):
            parse_generate(sql)


def test_manifests_lead_to_the_rows(spark: SparkSession, table_path: Path, database: str) -> None:
    table = SparkTable(enable(spark), table_path)
    data = table.data("id BIGINT, p STRING", (1, "a b%"), (2, None), (3, "ü"))
    table.write(data, "append", "p")
    spark.sql(f"GENERATE symlink_format_manifest FOR TABLE delta.`{table_path}`")
    assert set(lines(table_path)) == {
        "p=a b%25",
        "p=__HIVE_DEFAULT_PARTITION__",
        "p=ü",
    }
    files = [line for found in lines(table_path).values() for line in found]
    read = spark.read.parquet(*files).select("id").collect()
    assert sorted(row.id for row in read) == [1, 2, 3]
    handle = DeltaTable.forPath(spark, str(table_path))
    handle.delete("p = 'ü'")
    assert "p=ü" in lines(table_path)
    handle.generate("SYMLINK_FORMAT_MANIFEST")
    assert "p=ü" not in lines(table_path)
    # By itself, once the table says so.
    set_properties(table.log, KEPT)
    table.write(table.data("id BIGINT, p STRING", (4, "c")))
    assert set(lines(table_path)) == {"p=a b%25", "p=__HIVE_DEFAULT_PARTITION__", "p=c"}
    handle.delete("p = 'c'")
    assert "p=c" not in lines(table_path)
    handle.restoreToVersion(3)
    assert "p=c" in lines(table_path)
    table.write(table.data("id BIGINT, p STRING", (5, "only")), "overwrite")
    assert set(lines(table_path)) == {"p=only"}


def test_what_has_no_manifests_says_why(
    spark: SparkSession, table_path: Path, database: str
) -> None:
    table = SparkTable(enable(spark), table_path)
    table.write(table.data("id BIGINT", (1,), (2,)), **{"delta.enableDeletionVectors": "true"})
    handle = DeltaTable.forPath(spark, str(table_path))
    with table.refused("DELTA_MODE_NOT_SUPPORTED") as refused:
        handle.generate("anything")
    assert refused.value.parameters == {
        "mode": "anything",
        "supportedModes": "symlink_format_manifest",
    }
    handle.delete("id = 1")
    with table.refused("DELTA_UNSUPPORTED_GENERATE_WITH_DELETION_VECTORS"):
        handle.generate("symlink_format_manifest")
    spark.sql("CREATE TABLE p (id INT) USING parquet")
    spark.sql(
        "CREATE TABLE m (id INT) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    for name, wanted in (
        ("p", "DELTA_ONLY_OPERATION"),
        ("nothing", "TABLE_OR_VIEW_NOT_FOUND"),
        ("m", "DELTA_UNSUPPORTED_MANIFEST_GENERATION_WITH_COLUMN_MAPPING"),
    ):
        assert condition(spark, f"GENERATE symlink_format_manifest FOR TABLE {name}") == wanted
    with pytest.raises(ParseException):
        spark.sql("GENERATE symlink_format_manifest OF TABLE m")
    with pytest.raises(TypeError):
        handle.generate(3)  # type: ignore[arg-type]
