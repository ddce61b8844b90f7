"""Arguments of `spark.sql` in statements that Spark's parser does not know, and in names."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession

from pyspark_delta import DeltaLog, enable
from pyspark_delta.spark.sql.dispatch import Edit, markers, name_calls, rewritten
from tests.support.catalog_tables import own_database, rows, table_log
from tests.support.refusals import condition


@pytest.fixture
def db(spark: SparkSession) -> Iterator[str]:
    enable(spark)
    with own_database(spark) as name:
        yield name


@pytest.fixture
def t(spark: SparkSession, db: str) -> str:
    """A table of two rows, which were written one after the other."""
    spark.sql("CREATE TABLE t (id INT, p INT) USING delta PARTITIONED BY (p)")
    spark.sql("INSERT INTO t VALUES (1, 1)")
    spark.sql("INSERT INTO t VALUES (2, 2)")
    return "t"


def ids(spark: SparkSession, table: str = "t") -> list[int]:
    return sorted(row[0] for row in spark.table(table).collect())


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("VACUUM t RETAIN :h HOURS", [("h", ":h")]),
        ("OPTIMIZE t WHERE a = ? AND b IN (?, ?)", [(None, "?")] * 3),
        ("OPTIMIZE :path WHERE a=:b", [("path", ":path"), ("b", ":b")]),
        ("OPTIMIZE t WHERE v:field = 1 AND x::int = 2 AND '1':: int = 1", []),
        ("OPTIMIZE t WHERE v[0]:field = :x", [("x", ":x")]),
        ("RESTORE t -- :a\n TO /* ? */ VERSION AS OF ':b'", []),
        ("DESCRIBE DETAIL `:a`.`?`", []),
    ],
)
def test_markers_are_found_where_they_are_ones(sql: str, found: list[tuple[Any, str]]) -> None:
    assert [(mark.name, sql[mark.start : mark.end]) for mark in markers(sql)] == found


def test_calls_of_identifier_end_where_their_bracket_does() -> None:
    sql = "RESTORE IDENTIFIER(concat('a', ')')) TO identifier ( :b ) x IDENTIFIER(never"
    calls = name_calls(sql)
    assert [sql[call.start : call.end] for call in calls] == [
        "IDENTIFIER(concat('a', ')'))",
        "identifier ( :b )",
    ]
    assert [call.argument for call in calls] == ["concat('a', ')')", " :b "]
    assert name_calls("SELECT identifier FROM t") == []


def test_places_are_those_of_the_statement_as_written() -> None:
    bound = rewritten(
        "a :b c :d e", [Edit(start=7, end=9, text="4"), Edit(start=2, end=4, text="twelve")]
    )
    assert bound.text == "a twelve c 4 e"
    written = {word: bound.place(bound.text.index(word)) for word in ("a", "tw", "lve", "c", "4")}
    assert written == {"a": 0, "tw": 2, "lve": 2, "c": 5, "4": 7}
    assert bound.place(bound.text.index(" e")) == 9


def test_names_and_values_of_upkeep_are_bound(
    spark: SparkSession, db: str, t: str, table_path: Path
) -> None:
    named = {"t": f"{db}.t", "p": 1, "h": 168, "v": 1}
    done = spark.sql("OPTIMIZE IDENTIFIER(:t) WHERE p = :p", named).first()
    assert done is not None
    assert done.metrics.totalConsideredFiles == 1
    spark.sql("OPTIMIZE t WHERE p = ? ZORDER BY (IDENTIFIER(?))", [2, "id"])
    told = table_log(spark, t).history(1)[0].operation_parameters or {}
    assert (told["predicate"], told["zOrderBy"]) == ('["(\'p = 2)"]', '["id"]')
    assert spark.sql("VACUUM IDENTIFIER(:t) RETAIN :h HOURS DRY RUN", named).count() == 0
    assert spark.sql("VACUUM t RETAIN ? HOURS DRY RUN", [168.5]).count() == 0
    file = "SELECT concat(?, '/x') AS path, 1L AS length, false AS isDir, 0L AS modificationTime"
    inventory = f"VACUUM t USING INVENTORY ({file}) RETAIN ? HOURS DRY RUN"
    assert spark.sql(inventory, [str(table_path), 168]).columns == ["path"]
    assert spark.sql("REORG TABLE IDENTIFIER(?) WHERE p = ? APPLY (PURGE)", ["t", 1]).count() == 1
    assert spark.sql("DESCRIBE HISTORY IDENTIFIER(:t) LIMIT :v", named).count() == 1
    spark.range(2).write.format("delta").save(str(table_path))
    path = {"path": str(table_path), "name": f"delta.`{table_path}`"}
    assert spark.sql("DESC DETAIL :path", path).first().numFiles > 0  # type: ignore[union-attr]
    spark.sql("GENERATE symlink_format_manifest FOR TABLE IDENTIFIER(:name)", path)
    assert (table_path / "_symlink_format_manifest").exists()
    assert spark.sql("RESTORE IDENTIFIER(:t) TO VERSION AS OF :v", named).count() == 1
    assert ids(spark) == [1]


def test_versions_and_times_are_bound(spark: SparkSession, t: str, tmp_path: Path) -> None:
    spark.sql("RESTORE t TO VERSION AS OF :v", {"v": "1"})
    assert ids(spark) == [1]
    # A time in the zone of the session, as any argument is.
    between = datetime.now()
    spark.sql("INSERT INTO t VALUES (9, 9)")
    said = spark.sql("SELECT string(:t)", {"t": between}).first()
    assert said is not None
    for given in (between, said[0]):
        spark.sql("RESTORE t TO TIMESTAMP AS OF ?", [given])
        assert ids(spark) == [1]
        spark.sql("INSERT INTO t VALUES (9, 9)")
    late = condition(spark, "RESTORE t TO TIMESTAMP AS OF :t", {"t": date(2199, 1, 1)})
    assert late == "DELTA_CANNOT_RESTORE_TIMESTAMP_GREATER"
    place = tmp_path / "cl one 100%"
    spark.sql(
        "CREATE TABLE IDENTIFIER(:c) SHALLOW CLONE IDENTIFIER(:t) VERSION AS OF :v "
        "TBLPROPERTIES ('own' = :x) LOCATION :l",
        {"c": "cl", "t": "t", "v": 2, "x": "it's", "l": str(place)},
    )
    assert ids(spark, "cl") == [1, 2]
    assert DeltaLog.for_table(place).update().metadata.configuration["own"] == "it's"


def test_features_identities_and_comments_are_bound(spark: SparkSession, t: str) -> None:
    drop = "ALTER TABLE IDENTIFIER(:t) DROP FEATURE :f"
    assert condition(spark, drop, {"t": "t", "f": "nonsense"}) == (
        "DELTA_FEATURE_DROP_UNSUPPORTED_CLIENT_FEATURE"
    )
    spark.sql("CREATE TABLE n (id BIGINT GENERATED BY DEFAULT AS IDENTITY, v INT) USING delta")
    spark.sql("INSERT INTO n VALUES (50, 1)")
    spark.sql("ALTER TABLE IDENTIFIER(?) ALTER COLUMN IDENTIFIER(?) SYNC IDENTITY", ["n", "id"])
    spark.sql("INSERT INTO n (v) VALUES (2)")
    assert max(ids(spark, "n")) > 50
    spark.sql("COMMENT ON COLUMN t.id IS :c", {"c": "it's"})
    spark.sql("ALTER TABLE t ALTER COLUMN p COMMENT :c", {"c": "part"})
    comments = [f.comment for f in table_log(spark, t).update().schema]
    assert comments == ["it's", "part"]


def test_tables_are_made_shown_and_dropped_by_bound_names(
    spark: SparkSession, db: str, table_path: Path
) -> None:
    given = {"t": f"{db}.made", "l": str(table_path), "c": "said", "v": "1"}
    spark.sql(
        "CREATE TABLE IDENTIFIER(:t) (id INT) USING delta LOCATION :l COMMENT :c "
        "TBLPROPERTIES ('own' = :v)",
        given,
    )
    metadata = DeltaLog.for_table(table_path).update().metadata
    assert (metadata.description, metadata.configuration["own"]) == ("said", "1")
    assert spark.sql("DESCRIBE TABLE IDENTIFIER(:t)", given).first()[0] == "id"  # type: ignore[index]
    assert rows(spark.sql("SHOW COLUMNS IN IDENTIFIER(?)", ["made"])) == [("id",)]
    shown = spark.sql("SHOW CREATE TABLE IDENTIFIER(?)", ["made"]).first()
    assert shown is not None
    assert "USING delta" in shown[0]
    spark.sql("CREATE TABLE IDENTIFIER(?) USING delta AS SELECT ? AS a", ["other", 5])
    assert ids(spark, "other") == [5]
    spark.sql("ANALYZE TABLE IDENTIFIER(:t) COMPUTE DELTA STATISTICS", {"t": "other"})
    spark.sql("DROP TABLE IDENTIFIER(:t)", {"t": "other"})
    spark.sql("DROP TABLE IF EXISTS IDENTIFIER('made')")
    assert spark.sql("SHOW TABLES").count() == 0


def test_names_need_no_arguments_to_be_called(spark: SparkSession, db: str, t: str) -> None:
    for name in (f"'{db}.t'", f"'{db}' || '.t'", f"'{db}.' 't'", "'t'", "'`t`'"):
        assert spark.sql(f"DESCRIBE HISTORY IDENTIFIER({name})").count() == 3
    assert condition(spark, "VACUUM IDENTIFIER(NULL)") == "NOT_A_CONSTANT_STRING.NULL"
    assert condition(spark, "VACUUM IDENTIFIER(1)") == "NOT_A_CONSTANT_STRING.WRONG_TYPE"
    assert condition(spark, "VACUUM IDENTIFIER('a b')") == "PARSE_SYNTAX_ERROR"
    assert condition(spark, "VACUUM IDENTIFIER(id)") == "UNRESOLVED_COLUMN.WITHOUT_SUGGESTION"
    spark.sql(f"INSERT INTO IDENTIFIER('{db}' || '.t') VALUES (3, 3)")
    spark.sql("UPDATE IDENTIFIER(:d || '.t') SET id = :n WHERE id = 3", {"d": db, "n": 4})
    spark.sql("DELETE FROM IDENTIFIER(concat(?, '.t')) WHERE id = ?", [db, 1])
    assert ids(spark) == [2, 4]


def test_what_is_not_bound_is_refused(spark: SparkSession, t: str) -> None:
    restore = "RESTORE t TO VERSION AS OF"
    for sql, args in (
        (f"{restore} :v", {"w": 1}),
        (f"{restore} :v", [1]),
        (f"{restore} ?", {"v": 1}),
        ("DESCRIBE HISTORY IDENTIFIER(?) LIMIT ?", ["t"]),
    ):
        assert condition(spark, sql, args) == "UNBOUND_SQL_PARAMETER"
    with pytest.raises(AnalysisException, match="unbound parameter: v"):
        spark.sql(f"{restore} :v", {"w": 1})
    spark.sql(f"{restore} 1", {"more": 1})
    assert ids(spark) == [1]
    with pytest.raises(ParseException) as error:
        spark.sql("VACUUM t RETAIN :hours HOURS\n WET", {"hours": 168_000})
    assert "(line 2, pos 1)" in str(error.value)
    assert "RETAIN :hours HOURS" in str(error.value)
    with pytest.raises(Exception, match="args"):
        spark.sql(f"{restore} 1", 5)  # type: ignore[arg-type]
