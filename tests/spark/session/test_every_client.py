"""What does not come through PySpark's methods: calls of Scala, scripts, dynamic statements."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from pyspark_delta import DeltaLog, enable
from tests.support.catalog_tables import own_database, rows


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    enable(spark)
    with own_database(spark):
        yield spark


def scala_rows(frame: Any) -> list[tuple[object, ...]]:
    """The rows of a Dataset, as Scala collects them."""
    found = frame.collectAsList()
    return sorted(tuple(row.get(i) for i in range(row.size())) for row in found)


def test_scala_reads_writes_and_travels(session: SparkSession, table_path: Path) -> None:
    scala: Any = session._jsparkSession
    path = str(table_path)
    scala.range(3).toDF().write().format("delta").save(path)
    scala.range(5, 6).toDF().write().format("DELTA").mode("append").save(path)
    assert scala_rows(scala.read().format("delta").load(path)) == [(0,), (1,), (2,), (5,)]
    assert scala_rows(scala.read().format("delta").option("versionAsOf", 0).load(path)) == [
        (0,),
        (1,),
        (2,),
    ]
    assert scala_rows(scala.sql(f"DELETE FROM delta.`{path}` WHERE id < 2")) == [(2,)]
    assert scala_rows(scala.sql(f"SELECT id FROM delta.`{path}` VERSION AS OF 1 WHERE id = 5")) == [
        (5,)
    ]
    assert [info.operation for info in DeltaLog.for_table(path).history()] == [
        "DELETE",
        "WRITE",
        "WRITE",
    ]


def test_scala_makes_and_changes_tables_of_the_catalog(session: SparkSession) -> None:
    scala: Any = session._jsparkSession
    scala.range(3).toDF().write().format("delta").saveAsTable("t")
    scala.range(7, 8).toDF().writeTo("t").append()
    scala.range(8, 9).toDF().write().insertInto("t")
    source = "(SELECT * FROM VALUES (0L), (9L) AS s(id)) s"
    scala.sql(f"MERGE INTO t USING {source} ON t.id = s.id WHEN NOT MATCHED THEN INSERT *")
    assert rows(session.table("t")) == [(0,), (1,), (2,), (7,), (8,), (9,)]
    assert scala.sql("DESCRIBE HISTORY t").count() == 5 - 1


def test_a_statement_in_a_statement_runs_once(session: SparkSession) -> None:
    session.sql("CREATE TABLE t (id INT) USING delta")
    session.sql("EXECUTE IMMEDIATE 'INSERT INTO t VALUES (?), (2)' USING 1")
    session.sql("EXECUTE IMMEDIATE 'UPDATE t SET id = 10 WHERE id = 1'")
    assert rows(session.table("t")) == [(10,), (2,)]
    assert session.sql("DESCRIBE HISTORY t").count() == 3


def test_a_script_changes_tables_in_its_branches(session: SparkSession) -> None:
    session.sql(
        """BEGIN
             DECLARE i INT DEFAULT 0;
             CREATE TABLE t (id INT) USING delta;
             WHILE i < 3 DO
               INSERT INTO t VALUES (i);
               SET i = i + 1;
             END WHILE;
             DELETE FROM t WHERE id = 1;
           END"""
    )
    assert rows(session.table("t")) == [(0,), (2,)]
    assert session.sql("DESCRIBE HISTORY t").count() == 5


def test_a_path_may_stand_wherever_a_table_can(session: SparkSession, table_path: Path) -> None:
    session.range(3).write.format("delta").save(str(table_path))
    path = f"delta.`{table_path}`"
    found = session.sql(
        f"WITH c AS (SELECT id FROM {path} WHERE id > 0) "
        f"SELECT (SELECT max(id) FROM {path}) AS m, c.id FROM c "
        f"WHERE EXISTS (SELECT 1 FROM {path} p WHERE p.id = c.id AND p.id < 2)"
    )
    assert rows(found) == [(2, 1)]
    session.sql(f"CACHE TABLE {path}")
    session.sql(f"UNCACHE TABLE {path}")
    session.sql(f"REFRESH TABLE {path}")
    assert rows(session.sql(f"SELECT count(*) FROM IDENTIFIER('{path}')")) == [(3,)]
    assert session.table(path).count() == 3


def test_the_user_s_own_text_is_in_an_error(session: SparkSession, table_path: Path) -> None:
    session.range(1).write.format("delta").save(str(table_path))
    text = f"SELECT nobody FROM delta.`{table_path}`"
    with pytest.raises(AnalysisException) as error:
        session.sql(text)
    assert error.value.getQueryContext()[0].fragment() == "nobody"
    assert text[7:13] == "nobody"
    assert error.value.getQueryContext()[0].startIndex() == 7
