"""CONVERT TO DELTA as a statement: how it is read, and where it says that it cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from pyspark_delta import enable
from pyspark_delta.spark.sql.grammar import Piece, StatementReader, StatementSyntaxError
from pyspark_delta.spark.sql.statement import head
from pyspark_delta.spark.sql.statements.clone import ConvertStatement, parse_convert
from tests.support.parquet_tables import parquet_file
from tests.support.spark_tables import SparkTable


def test_words_count_in_any_case_and_between_comments() -> None:
    sql = (
        "-- first\nConvert /* a /* b */ c */ TO\tdelta parquet . `/a``b c` no Statistics ;; -- end"
    )
    assert parse_convert(sql) == ConvertStatement(table=("parquet", "/a`b c"), collect_stats=False)
    assert parse_convert("CONVERT TO DELTA t") == ConvertStatement(table=("t",))
    found = parse_convert("CONVERT TO DELTA a.b.c PARTITIONED BY (`x)` DECIMAL(3, 1), y INT)")
    assert found.table == ("a", "b", "c")
    assert found.partition_columns == Piece(text="`x)` DECIMAL(3, 1), y INT", start=39)
    # What is a word elsewhere may be a name here.
    assert parse_convert("CONVERT TO DELTA no").table == ("no",)
    assert parse_convert("CONVERT TO DELTA delta.partitioned NO STATISTICS").table == (
        "delta",
        "partitioned",
    )


@pytest.mark.parametrize(
    ("sql", "at", "found"),
    [
        ("CONVERT TO DELTA", 16, None),
        ("CONVERT TO DELTA ;", 17, ";"),
        ("CONVERT TO DELTA 'x'", 17, "'x'"),
        ("CONVERT TO DELTA ``", 17, "``"),
        ("CONVERT TO DELTA `a", 17, "`"),
        ("CONVERT TO DELTA a.", 19, None),
        ("CONVERT TO DELTA a b", 19, "b"),
        ("CONVERT TO DELTA a-b", 18, "-"),
        ("CONVERT TO DELTA a `NO` STATISTICS", 19, "`NO`"),
        ("CONVERT TO DELTA a NO STATS", 19, "NO"),
        ("CONVERT TO DELTA a PARTITIONED BY b", 34, "b"),
        ("CONVERT TO DELTA a PARTITIONED BY (b INT", 40, None),
        ("CONVERT TO DELTA a PARTITIONED BY (b INT) NO STATISTICS", 42, "NO"),
        ("CONVERT TO DELTA a; SELECT 1", 20, "SELECT"),
    ],
)
def test_what_cannot_be_read_is_a_place(sql: str, at: int, found: str | None) -> None:
    with pytest.raises(StatementSyntaxError) as error:
        parse_convert(sql)
    assert (error.value.start, error.value.found) == (at, found)


def test_a_reader_passes_only_what_it_reads() -> None:
    read = StatementReader("a b (c (d) ')' ) e")
    assert not read.takes("A", "C")
    assert read.takes("A", "B")
    assert read.bracketed() == Piece(text="c (d) ')' ", start=5)
    assert read.name() == ("e",)
    read.end()


def test_only_the_whole_verb_is_ours() -> None:
    found = head("CONVERT TO DELTA parquet.`/x`")
    assert found is not None
    assert found.verb == "CONVERT TO DELTA"
    assert head("CONVERT TO ICEBERG x") is None


def test_a_syntax_error_is_sparks_and_points_at_the_place(spark: SparkSession) -> None:
    enable(spark)
    with pytest.raises(ParseException) as error:
        spark.sql("CONVERT TO DELTA\n  tä FOO")
    assert error.value.getCondition() == "PARSE_SYNTAX_ERROR"
    assert error.value.getSqlState() == "42601"
    assert (error.value.getMessageParameters() or {})["error"] == "'FOO'"
    assert "(line 2, pos 5)" in str(error.value)
    assert "== SQL ==\nCONVERT TO DELTA\n  tä FOO\n-----^^^" in str(error.value)
    with pytest.raises(ParseException, match="end of input"):
        spark.sql("CONVERT TO DELTA")
    with pytest.raises(ParseException, match="CONVERT"):
        spark.sql("CONVERT TO ICEBERG x")


def test_an_error_in_the_partition_columns_counts_in_the_statement(spark: SparkSession) -> None:
    enable(spark)
    with pytest.raises(ParseException) as error:
        spark.sql("CONVERT TO DELTA t\nPARTITIONED BY (a INT, b NOTYPE)")
    assert error.value.getCondition() == "UNSUPPORTED_DATATYPE"
    assert "(line 2, pos 25)" in str(error.value)
    assert "CONVERT TO DELTA t\nPARTITIONED BY (a INT, b NOTYPE)\n" in str(error.value)
    for columns in ("", "a", "a INT,", "a INT b"):
        with pytest.raises(ParseException, match="CONVERT TO DELTA"):
            spark.sql(f"CONVERT TO DELTA t PARTITIONED BY ({columns})")


@pytest.mark.classic
def test_the_statement_converts_and_gives_no_rows(spark: SparkSession, table_path: Path) -> None:
    enable(spark)
    parquet_file(table_path / "at=2024-01-02 03%3A04%3A05" / "day=2024-02-29" / "1.parquet", id=[1])
    result = spark.sql(
        f"CONVERT TO DELTA parquet.`{table_path}` PARTITIONED BY (at TIMESTAMP, day DATE)"
    )
    assert (result.columns, result.collect()) == ([], [])
    table = SparkTable(spark, table_path)
    assert [str(f.data_type) for f in table.log.update().schema] == ["bigint", "timestamp", "date"]
    shown = table.read().selectExpr("id", "CAST(at AS STRING)", "CAST(day AS STRING)").collect()
    assert [tuple(row) for row in shown] == [(1, "2024-01-02 03:04:05", "2024-02-29")]
    assert table.parameters["collectStats"] is True


@pytest.mark.classic
def test_no_statistics_are_collected_when_the_statement_says_so(
    spark: SparkSession, table_path: Path
) -> None:
    enable(spark)
    parquet_file(table_path / "1.parquet", id=[1])
    spark.sql(f"convert to delta PARQUET.`{table_path}` no statistics;")
    table = SparkTable(spark, table_path)
    assert table.parameters["collectStats"] is False
    assert [file.stats for file in table.files] == [None]
    assert table.rows == [(1,)]
