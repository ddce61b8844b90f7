"""A table whose author wrote its log by hand: nothing its SQL says reaches out of the table."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_delta import enable
from pyspark_delta.errors import DeltaError
from pyspark_delta.kernel.ops.footers.parquet import SPARK_SCHEMA_KEY
from pyspark_delta.kernel.protocol.actions import Protocol
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import BOOLEAN, LONG, STRING, StructField, StructType
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from tests.support.data_tables import DataTable
from tests.support.exploits import Traps, exploits, set_traps, shows_reads
from tests.support.ruled_tables import RuledTable
from tests.support.spark_tables import conf

FEATURES = ("checkConstraints", "generatedColumns", "allowColumnDefaults", "invariants")
PROTOCOL = Protocol(min_reader_version=1, min_writer_version=7, writer_features=FEATURES)
# Kinds of SQL in a table, and what refuses it.
KINDS = {
    "check": "DELTA_UNSUPPORTED_EXPRESSION_CHECK_CONSTRAINT",
    "invariant": "DELTA_UNSUPPORTED_EXPRESSION_CHECK_CONSTRAINT",
    "generated": "DELTA_UNSUPPORTED_EXPRESSION_GENERATED_COLUMN",
    "default": "DELTA_INVALID_COLUMN_DEFAULT",
}


@pytest.fixture(scope="module")
def traps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traps]:
    with set_traps(tmp_path_factory.mktemp("planted")) as found:
        yield found


@pytest.fixture(scope="module")
def hostile(traps: Traps) -> Mapping[str, str]:
    """The exploits, by what they do."""
    return exploits(traps)


def columns(kind: str, sql: str) -> tuple[StructField, ...]:
    """The columns of a table that has the text as a rule of that kind."""
    invariant = json.dumps({"expression": {"expression": sql}})
    keys = {
        "check": {},
        "invariant": {"delta.invariants": invariant},
        "generated": {"delta.generationExpression": sql},
        # Spark evaluates the second one for whoever reads.
        "default": {"CURRENT_DEFAULT": sql, "EXISTS_DEFAULT": sql},
    }
    return (
        StructField("id", LONG),
        StructField("s", STRING),
        StructField("b", BOOLEAN, metadata=keys[kind]),
    )


def written_by_hand(path: Path, kind: str, sql: str) -> None:
    """Two rows in two files, and the rule."""
    configuration = {"delta.constraints.c": sql} if kind == "check" else None
    schema = StructType(columns(kind, sql))
    store = LocalStore(path)
    table = DataTable(store, schema, configuration=configuration, protocol=PROTOCOL)
    table.commit(*[table.file(f"{n}.parquet", {"id": [n], "s": ["<a/>"]}) for n in (1, 2)])


def test_each_exploit_is_one(
    spark: SparkSession, traps: Traps, hostile: Mapping[str, str], tmp_path: Path
) -> None:
    for what, sql in hostile.items():
        found = []
        with suppress(Exception):
            found = spark.sql(f"SELECT {sql}").collect()
        sprung = " ".join(traps.sprung())
        is_local = what == "a document type in a local file"
        assert found == [(True,)] if is_local else "a connection" in sprung, what
        if "local" in what and shows_reads(tmp_path):
            assert "/planted." in sprung, what


def test_a_connection_without_a_request_is_seen_too(traps: Traps) -> None:
    host, _, port = traps.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))):
        assert len(traps.sprung()) == 1
    assert traps.sprung() == []


def test_every_exploit_is_refused_in_every_kind_of_expression(
    spark: SparkSession, traps: Traps, hostile: Mapping[str, str]
) -> None:
    for what, sql in hostile.items():
        for kind, condition in KINDS.items():
            checks = {"c": f"id > 0 AND {sql}"} if kind == "check" else {}
            table = RuledTable(spark=spark, fields=columns(kind, sql), checks=checks)
            with pytest.raises(DeltaError) as error:
                table.rows("SELECT 1L id, 'a' s")
            assert error.value.condition == condition, (what, kind)
            assert any(name in str(error.value) for name in ("from_xml", "xpath", "reflect"))
    assert traps.sprung() == []


def outcome(spark: SparkSession, statement: str) -> str:
    """The condition of the error; empty when the statement runs."""
    try:
        spark.sql(statement).collect()
    except DeltaError as error:
        return error.condition
    return ""


@pytest.mark.parametrize("kind", KINDS)
def test_no_statement_evaluates_it(
    spark: SparkSession,
    traps: Traps,
    hostile: Mapping[str, str],
    table_path: Path,
    kind: str,
) -> None:
    sql = " OR ".join(
        f"({hostile[what]})"
        for what in (
            "a schema at an address",
            "a schema in a local file",
            "a document type at an address",
            "a document type in a local file",
        )
    )
    written_by_hand(table_path, kind, sql)
    enable(spark)
    t, refused = f"delta.`{table_path}`", KINDS[kind]
    source = "(SELECT 2L AS id, 'y' AS s, true AS b)"
    writes = {
        f"INSERT INTO {t} (id, s) VALUES (3, 'x')": refused,
        f"INSERT INTO {t} (id, s, b) VALUES (3, 'x', DEFAULT)": refused,
        f"INSERT INTO {t} (id, s, b) SELECT 3, 'x', DEFAULT": refused,
        f"INSERT OVERWRITE {t} (id, s) VALUES (3, 'x')": refused,
        f"UPDATE {t} SET b = DEFAULT WHERE id = 1": refused,
        f"MERGE INTO {t} t USING {source} u ON t.id = u.id + 9"
        " WHEN NOT MATCHED THEN INSERT (id, s) VALUES (u.id, u.s)": refused,
        f"MERGE INTO {t} t USING {source} u ON t.id = u.id"
        " WHEN MATCHED THEN UPDATE SET b = DEFAULT": refused,
        # A default is not evaluated where there is a value.
        f"UPDATE {t} SET s = 'y' WHERE id = 1": "" if kind == "default" else refused,
    }
    for statement, condition in writes.items():
        assert outcome(spark, statement) == condition, statement
    frame = spark.range(3, 4).selectExpr("id", "'x' AS s")
    with pytest.raises(DeltaError) as error:
        frame.write.format("delta").mode("append").save(str(table_path))
    assert error.value.condition == refused
    streamed(spark, table_path, refused)
    others(spark, table_path, refused)
    cure = {"check": "DROP CONSTRAINT c", "default": "ALTER COLUMN b DROP DEFAULT"}.get(kind)
    if cure is not None:
        assert outcome(spark, f"ALTER TABLE {t} {cure}") == ""
        assert outcome(spark, f"INSERT INTO {t} (id, s) VALUES (3, 'x')") == ""
    assert traps.sprung() == []


def streamed(spark: SparkSession, path: Path, condition: str) -> None:
    """Rows into the table by a stream."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    writer = rows.selectExpr("value AS id", "'x' AS s").writeStream.format("delta")
    writer = writer.option("checkpointLocation", str(path.with_name("checkpoint")))
    query = writer.start(str(path))
    with pytest.raises(PySparkException, match=condition):
        query.awaitTermination(60)


def others(spark: SparkSession, path: Path, refused: str) -> None:
    """What moves no values of a rule, and so runs; the clone has the rule as well."""
    t, clone = f"delta.`{path}`", f"delta.`{path.with_name('clöne 1%')}`"
    assert len(spark.sql(f"SELECT * FROM {t}").collect()) == 2
    version = DeltaLog.for_table(path).update().version
    for statement, condition in {
        f"OPTIMIZE {t}": "",
        f"DELETE FROM {t} WHERE id = 1": "",
        f"CREATE TABLE {clone} SHALLOW CLONE {t}": "",
        f"INSERT INTO {clone} (id, s) VALUES (7, 'x')": refused,
        f"RESTORE TABLE {t} TO VERSION AS OF {version}": "",
        f"CREATE TABLE copied USING parquet AS SELECT * FROM {t}": "",
        "DROP TABLE copied": "",
    }.items():
        assert outcome(spark, statement) == condition, statement
    assert len(spark.sql(f"SELECT * FROM {t}").collect()) == 2


def test_converted_files_bring_no_sql_with_them(
    spark: SparkSession, traps: Traps, hostile: Mapping[str, str], table_path: Path
) -> None:
    """Spark keeps the metadata of columns in the footer, where any author may put SQL."""
    for kind in KINDS:
        path = table_path / kind
        path.mkdir(parents=True)
        schema = StructType(columns(kind, hostile["a schema at an address"]))
        rows = pa.table({"id": [1], "s": ["a"], "b": [True]})
        text = format_schema(schema).encode()
        pq.write_table(rows.replace_schema_metadata({SPARK_SCHEMA_KEY: text}), path / "1.parquet")
        enable(spark)
        table: Any = f"`{path}`"
        spark.sql(f"CONVERT TO DELTA parquet.{table}")
        assert outcome(spark, f"INSERT INTO delta.{table} (id, s) VALUES (2, 'b')") == "", kind
        assert outcome(spark, f"INSERT INTO delta.{table} VALUES (3, 'b', DEFAULT)") == "", kind
        assert spark.sql(f"SELECT id FROM delta.{table} WHERE b IS NULL").count() == 2
    assert traps.sprung() == []


def test_a_statement_cannot_put_it_into_a_table(
    spark: SparkSession, traps: Traps, hostile: Mapping[str, str], table_path: Path
) -> None:
    enable(spark)
    sql = hostile["a schema at an address"]
    properties = "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    t = f"delta.`{table_path}`"
    assert outcome(spark, f"CREATE TABLE {t} (id LONG, b BOOLEAN) USING delta {properties}") == ""
    new = f"delta.`{table_path.with_name('néw 1%')}`"
    for statement, condition in {
        f"ALTER TABLE {t} ADD CONSTRAINT c CHECK ({sql})": KINDS["check"],
        f"ALTER TABLE {t} ALTER COLUMN b SET DEFAULT {sql}": "INVALID_DEFAULT_VALUE",
        f"CREATE TABLE {new} (b BOOLEAN DEFAULT {sql}) USING delta {properties}": (
            "INVALID_DEFAULT_VALUE"
        ),
        f"CREATE TABLE {new} (id LONG, b BOOLEAN GENERATED ALWAYS AS ({sql})) USING delta": (
            KINDS["generated"]
        ),
        f"CREATE TABLE {new} (id LONG, CONSTRAINT c CHECK ({sql})) USING delta": KINDS["check"],
    }.items():
        assert outcome(spark, statement).startswith(condition), statement
    assert traps.sprung() == []


def test_a_function_of_the_session_never_takes_the_place_of_an_allowed_one(
    spark: SparkSession,
) -> None:
    spark.udf.register("octet_length", lambda s: 0)
    try:
        with conf(spark, spark__sql__functionResolution__sessionOrder="first"):
            table = RuledTable(
                spark=spark, fields=columns("check", ""), checks={"c": "octet_length(s) = 1"}
            )
            with pytest.raises(DeltaError) as error:
                table.rows("SELECT 1L id, 'a' s, true b")
            assert error.value.condition == "DELTA_UDF_IN_CHECK_CONSTRAINT"
    finally:
        spark.sql("DROP TEMPORARY FUNCTION IF EXISTS octet_length")
