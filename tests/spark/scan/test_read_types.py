"""Columns that are not in files as the table has them: renamed, widened, void; and rare types."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from pyspark_delta import DeltaLog, enable
from pyspark_delta.kernel.log.arrow_types import arrow_schema, arrow_type
from pyspark_delta.kernel.protocol.actions import AddFile
from pyspark_delta.kernel.protocol.operations import write
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.type_widening import record_type_changes
from pyspark_delta.kernel.protocol.types import (
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    map_fields,
)
from pyspark_delta.kernel.storage.uris import encode_path
from pyspark_delta.spark.jvm.scan.file_index import sources_in
from pyspark_delta.spark.scan.source import SnapshotSource
from tests.support.tables import append, change_schema, create_table, delete_positions


def load(spark: SparkSession, path: Path) -> DataFrame:
    return enable(spark).read.format("delta").load(str(path))


def values(frame: DataFrame) -> list[Any]:
    """Rows as plain values, by their first column."""
    return sorted((row.asDict(recursive=True) for row in frame.collect()), key=lambda r: str(r))


def read(frame: DataFrame) -> tuple[list[Row], int]:
    """The rows of a query, and how many files it opened for them."""
    rows = frame.collect()
    [source] = {id(each): each for each in sources_in(frame)}.values()
    assert isinstance(source, SnapshotSource)
    return rows, source.reads[-1].num_files


# Void columns.

VOIDS = StructType(
    (
        StructField("nothing", VOID, metadata={"comment": "later"}),
        StructField("id", LONG, nullable=False),
        StructField(
            "s",
            StructType(
                (
                    StructField("none", VOID),
                    StructField("a", INTEGER),
                    StructField(
                        "inner", StructType((StructField("b", STRING), StructField("v", VOID)))
                    ),
                )
            ),
        ),
    )
)


@pytest.mark.parametrize("mode", ["none", "name", "id"])
def test_void_columns_are_null_wherever_they_are(
    spark: SparkSession, table_path: Path, mode: str
) -> None:
    configuration = {"delta.enableDeletionVectors": "true"}
    if mode != "none":
        configuration["delta.columnMapping.mode"] = mode
    log = create_table(table_path, VOIDS, configuration=configuration)
    assert load(spark, table_path).collect() == []
    rows = [(1, (7, None)), (2, None), (3, (8, ("x",)))]
    types = "id long not null, s struct<a: int, inner: struct<b: string>>"
    data = spark.createDataFrame(rows, types).coalesce(1)
    data.write.format("delta").mode("append").save(str(table_path))
    table = load(spark, table_path)
    assert table.schema.simpleString() == (
        "struct<nothing:void,id:bigint,s:struct<none:void,a:int,inner:struct<b:string,v:void>>>"
    )
    assert table.schema["nothing"].metadata == {"comment": "later"}
    assert values(table) == [
        {"nothing": None, "id": 1, "s": {"none": None, "a": 7, "inner": None}},
        {"nothing": None, "id": 2, "s": None},
        {"nothing": None, "id": 3, "s": {"none": None, "a": 8, "inner": {"b": "x", "v": None}}},
    ]
    assert table.where("nothing IS NULL AND s.a = 8").select("s.none", "id").first() == (None, 3)
    assert table.where("nothing IS NOT NULL").count() == 0
    assert table.select("_metadata.row_index", "nothing").count() == 3
    delete_positions(log, lambda file: [0])
    assert load(spark, table_path).select("id", "nothing").count() == 2


def test_a_table_with_a_void_column_is_overwritten_in_part(
    spark: SparkSession, table_path: Path
) -> None:
    enable(spark)
    rows = "SELECT id, NULL AS nothing, named_struct('a', id, 'v', NULL) AS s FROM range(4)"
    spark.sql(rows).coalesce(1).write.format("delta").option(
        "delta.enableChangeDataFeed", "true"
    ).save(str(table_path))
    new = spark.sql(f"{rows} WHERE id < 2").where("id = 1")
    new.write.format("delta").mode("overwrite").option("replaceWhere", "id < 2").save(
        str(table_path)
    )
    assert [row["s"]["a"] for row in load(spark, table_path).orderBy("id").collect()] == [1, 2, 3]
    # Its own rows, with what is void among them, can be written back.
    load(spark, table_path).write.format("delta").mode("append").save(str(table_path))
    assert load(spark, table_path).count() == 6


def test_a_struct_of_nothing_but_void_fields_is_null(spark: SparkSession, table_path: Path) -> None:
    only = StructType(
        (StructField("a", VOID), StructField("b", StructType((StructField("c", VOID),))))
    )
    log = create_table(table_path, StructType((StructField("id", LONG), StructField("s", only))))
    append_file(log, pa.table({"id": [1]}))
    [row] = load(spark, table_path).collect()
    assert (row["id"], row["s"]) == (1, None)
    found = load(spark, table_path).schema["s"].dataType.simpleString()
    assert found == "struct<a:void,b:struct<c:void>>"


def append_file(log: DeltaLog, rows: pa.Table) -> None:
    """A file of just these columns, which need not be all that the table has."""
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    log.store.create("a 100%.parquet", sink.getvalue())
    file = AddFile(
        path=encode_path("a 100%.parquet"),
        partition_values={},
        size=len(sink.getvalue()),
        modification_time=0,
        data_change=True,
    )
    log.start_transaction().commit([file], write("Append"))


# Column mapping inside of structs, arrays and maps.

INNER = StructType((StructField("x y", INTEGER), StructField("t", STRING)))
NESTED = StructType(
    (
        StructField("id", LONG),
        StructField("s", StructType((StructField("deep", INNER), StructField("n", LONG)))),
        StructField("l", ArrayType(INNER)),
        StructField("m", MapType(STRING, INNER)),
        StructField("mm", MapType(INNER, ArrayType(MapType(STRING, INNER)))),
        StructField("p, q", STRING),
    )
)


def nested_rows(start: int) -> list[dict[str, Any]]:
    one = {"x y": start, "t": "ü"}
    return [
        {
            "id": start,
            "s": {"deep": one, "n": start},
            "l": [one, None, {"x y": None, "t": "b"}],
            "m": {"k": one, "none": None},
            "mm": [(one, [{"a": one}, None])],
            "p, q": "a=b c",
        },
        {"id": start + 1, "s": None, "l": None, "m": None, "mm": None, "p, q": None},
        {"id": start + 2, "s": {"deep": None, "n": None}, "l": [], "m": {}, "mm": [], "p, q": "x"},
    ]


def renamed(schema: StructType) -> StructType:
    """Every field, at any depth, under another name."""
    found = map_fields(
        schema,
        lambda f: StructField(f"new {f.name}", f.data_type, f.nullable, f.metadata),
    )
    assert isinstance(found, StructType)
    return found


@pytest.mark.parametrize("mode", ["name", "id"])
def test_fields_are_found_under_new_names_at_any_depth(
    spark: SparkSession, table_path: Path, mode: str
) -> None:
    log = create_table(
        table_path,
        NESTED,
        partition_by=["p, q"],
        configuration={"delta.columnMapping.mode": mode},
    )
    for start in (0, 10):
        append(log, pa.Table.from_pylist(nested_rows(start), arrow_schema(NESTED)))
    table = load(spark, table_path)
    assert table.toArrow().select(["id"]).num_rows == 6
    found = {row["id"]: row for row in table.collect()}
    assert found[0]["s"].asDict(recursive=True) == {"deep": {"x y": 0, "t": "ü"}, "n": 0}
    assert [each and each.asDict() for each in found[10]["l"]] == [
        {"x y": 10, "t": "ü"},
        None,
        {"x y": None, "t": "b"},
    ]
    assert found[0]["m"]["k"]["t"] == "ü"
    [(key, value)] = found[10]["mm"].items()
    assert (key["x y"], value[0]["a"]["x y"], value[1]) == (10, 10, None)
    assert (found[1]["s"], found[1]["l"], found[2]["m"]) == (None, None, {})
    assert table.where("s.deep.`x y` = 10").select("id", "s.n").collect() == [(10, 10)]
    assert read(table.where("s.deep.`x y` >= 10"))[1] == 1
    assert table.where("`p, q` = 'a=b c' AND l[0].t = 'ü'").count() == 2

    transaction = log.start_transaction()
    old = transaction.metadata
    transaction.update_metadata(
        replace(
            old,
            schema_string=format_schema(renamed(old.schema)),
            partition_columns=("new p, q",),
        )
    )
    transaction.commit([], "RENAME COLUMN")
    table = load(spark, table_path)
    assert table.columns == [f"new {name}" for name in NESTED.names]
    row = table.where("`new s`.`new deep`.`new x y` = 10").first()
    assert row["new id"] == 10
    assert row["new l"][2].asDict() == {"new x y": None, "new t": "b"}
    assert row["new m"]["k"]["new t"] == "ü"
    assert table.selectExpr("`new mm`").schema.simpleString().count("new x y") == 2
    assert table.where("`new p, q` IS NULL").count() == 2


# Types that are wider now than they were.

WIDENED: dict[str, tuple[DataType, DataType, list[Any], Any]] = {
    # Column: the type of old files, of new ones, old values, and one that only the new type has.
    "b": (BYTE, LONG, [-128, None, 127], 2**40),
    "sh": (SHORT, INTEGER, [-(2**15), None, 2**15 - 1], 2**31 - 1),
    "i": (INTEGER, LONG, [-(2**31), None, 2**31 - 1], 2**62),
    "f": (FLOAT, DOUBLE, [-1.5, None, 0.25], 1.1),
    "id": (INTEGER, DOUBLE, [-(2**31), None, 3], 3.5),
    "ic": (INTEGER, DecimalType(12, 2), [-5, None, 7], Decimal("7.01")),
    "lc": (LONG, DecimalType(20, 0), [-(2**63), None, 2**63 - 1], Decimal(10**19)),
    "c": (
        DecimalType(5, 2),
        DecimalType(12, 4),
        [Decimal("-999.99"), None, Decimal("0.10")],
        Decimal("12345678.0001"),
    ),
    "d": (
        DATE,
        TIMESTAMP_NTZ,
        [date(1969, 12, 31), None, date(2024, 2, 29)],
        datetime(2024, 2, 29, 12, 30),
    ),
}


def test_old_files_are_read_as_the_wider_type(spark: SparkSession, table_path: Path) -> None:
    narrow = StructType(tuple(StructField(name, old) for name, (old, *_) in WIDENED.items()))
    narrow = narrow.add(StructField("s", nested_of(INTEGER)))
    wide = StructType(tuple(StructField(name, new) for name, (_, new, *_) in WIDENED.items()))
    wide = wide.add(StructField("s", nested_of(LONG)))
    log = create_table(
        table_path,
        narrow,
        configuration={
            "delta.enableTypeWidening": "true",
            "delta.feature.timestampNtz": "supported",
        },
    )
    small = {"a": 1, "l": [2, None], "m": {"k": 3}}
    old = {name: listed for name, (_, _, listed, _) in WIDENED.items()} | {"s": [small, None, None]}
    append(log, pa.table(old, schema=arrow_schema(narrow)))
    change_schema(log, record_type_changes(narrow, wide, table_version=2))
    large = {"a": 2**40, "l": [2**40], "m": {"k": 2**40}}
    new = {name: [value] for name, (*_, value) in WIDENED.items()} | {"s": [large]}
    append(log, pa.table(new, schema=arrow_schema(wide)))

    table = load(spark, table_path)
    assert "delta.typeChanges" not in table.schema.json()
    found = table.drop("s").toArrow()
    for name, (before, now, listed, value) in WIDENED.items():
        widened = pa.array(listed, arrow_type(before)).cast(arrow_type(now)).to_pylist()
        assert sorted(found[name].to_pylist(), key=str) == sorted([*widened, value], key=str), name
        rows, files = read(table.where(f"{name} = {literal(value)}"))
        assert ([row[name] for row in rows], files) == ([value], 1), name
        low = table.where(f"{name} <= {literal(widened[0])} OR {name} IS NULL")
        assert low.count() == 2, name
    nested = [row["s"] for row in table.where("s IS NOT NULL").collect()]
    both = [each.asDict(recursive=True) for each in nested]
    assert sorted(both, key=str) == sorted([small, large], key=str)
    assert table.where(f"s.a = {2**40}").count() == 1


def test_a_widened_partition_column_is_read_from_the_log(
    spark: SparkSession, table_path: Path
) -> None:
    narrow = StructType((StructField("v", LONG), StructField("p", SHORT)))
    wide = StructType((StructField("v", LONG), StructField("p", LONG)))
    log = create_table(
        table_path,
        narrow,
        partition_by=["p"],
        configuration={"delta.enableTypeWidening": "true"},
    )
    append(log, pa.table({"v": [1, 2], "p": [7, None]}, schema=arrow_schema(narrow)))
    change_schema(log, record_type_changes(narrow, wide, table_version=2))
    append(log, pa.table({"v": [3], "p": [2**40]}, schema=arrow_schema(wide)))
    table = load(spark, table_path)
    assert sorted((row["v"], row["p"]) for row in table.collect()) == [
        (1, 7),
        (2, None),
        (3, 2**40),
    ]
    assert table.where(f"p > {2**33}").first()["v"] == 3
    assert read(table.where("p = 7"))[1] == 1


def nested_of(data_type: DataType) -> StructType:
    return StructType(
        (
            StructField("a", data_type),
            StructField("l", ArrayType(data_type)),
            StructField("m", MapType(STRING, data_type)),
        )
    )


def literal(value: Any) -> str:
    match value:
        case datetime():
            return f"TIMESTAMP_NTZ'{value}'"
        case float():
            return f"{value}D"
        case Decimal():
            return f"{value}BD"
    return str(value)


# Types that are rare.


def test_variant_columns_are_read_and_filtered(spark: SparkSession, table_path: Path) -> None:
    enable(spark)
    texts = ['{"a": [1, 2.5], "b": {"c": "ü"}}', "null", '"text"', '{"a": [7]}']
    listed = ", ".join(f"({i}, '{text}')" for i, text in enumerate(texts))
    data = spark.sql(
        f"SELECT id, parse_json(t) v, named_struct('w', parse_json(t)) s, array(parse_json(t)) l "
        f"FROM VALUES {listed} AS x(id, t) UNION ALL SELECT 4, NULL, NULL, NULL"
    )
    data.coalesce(1).write.format("delta").save(str(table_path))
    table = load(spark, table_path)
    assert table.schema.simpleString() == (
        "struct<id:int,v:variant,s:struct<w:variant>,l:array<variant>>"
    )
    shown = "id", "to_json(v) v", "to_json(s.w) w", "to_json(l[0]) l", "v IS NULL n"
    found = {row["id"]: tuple(row)[1:] for row in table.selectExpr(*shown).collect()}
    assert found[0] == ('{"a":[1,2.5],"b":{"c":"ü"}}',) * 3 + (False,)
    assert found[1] == ("null", "null", "null", False)
    assert found[4] == (None, None, None, True)
    assert table.where("variant_get(v, '$.a[0]', 'int') = 7").first()["id"] == 3
    assert table.selectExpr("try_variant_get(v, '$.b.c', 'string') c").where("c = 'ü'").count() == 1
    assert table.where("v IS NOT NULL").count() == 4


def test_timestamps_without_a_zone_mean_the_same_in_every_zone(
    spark: SparkSession, table_path: Path
) -> None:
    enable(spark)
    times = ["0001-01-01 00:00:00", "1969-12-31 23:59:59.999999", "2024-03-10 02:30:00.000001"]
    for number, text in enumerate(times):
        data = spark.sql(
            f"SELECT {number} id, TIMESTAMP_NTZ'{text}' n, "
            f"named_struct('n', TIMESTAMP_NTZ'{text}') s, TIMESTAMP_NTZ'{text}' p"
        )
        data.write.format("delta").mode("append").partitionBy("p").save(str(table_path))
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        for other in (zone, "Asia/Kathmandu"):
            spark.conf.set("spark.sql.session.timeZone", other)
            table = load(spark, table_path)
            shown = table.selectExpr("id", "string(n)", "string(s.n)", "string(p)").collect()
            assert sorted(tuple(row) for row in shown) == [
                (number, text, text, text) for number, text in enumerate(times)
            ]
            for column in ("n", "s.n", "p"):
                rows, files = read(table.where(f"{column} = TIMESTAMP_NTZ'{times[2]}'"))
                assert ([row["id"] for row in rows], files) == ([2], 1)
            assert read(table.where("n < DATE'1970-01-01'"))[1] <= 2
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_readers_see_nothing_of_a_partition_column_that_is_for_writers(
    spark: SparkSession, table_path: Path
) -> None:
    spark.sql(
        f"CREATE TABLE delta.`{table_path}` (d DATE COMMENT 'day', g INT GENERATED ALWAYS AS "
        "(year(d)) COMMENT 'year', n INT) USING delta PARTITIONED BY (g) "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    spark.sql(f"INSERT INTO delta.`{table_path}` (d, n) VALUES (DATE '2024-05-06', 1)")
    frame = spark.read.format("delta").load(str(table_path))
    assert [f.metadata for f in frame.schema] == [{"comment": "day"}, {"comment": "year"}, {}]
    copy = f"{table_path} copy"
    frame.selectExpr("d", "g + 1 AS h", "g", "n").write.format("delta").save(copy)
    copied = spark.read.format("delta").load(copy).select("g", "h", "n")
    assert copied.collect() == [Row(2024, 2025, 1)]
