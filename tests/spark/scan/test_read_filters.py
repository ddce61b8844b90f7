"""Filters of a query: which files they leave, and that no row is lost by it, in every zone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta import DeltaLog, enable
from pyspark_delta.kernel.protocol.types import (
    DATE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    StructField,
    StructType,
)
from tests.support.plans import files_read
from tests.support.tables import append, create_table, delete_positions

ZONE = "spark.sql.session.timeZone"
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("i", pa.int32()),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("dec", pa.decimal128(10, 2)),
        ("b", pa.bool_()),
        ("x", pa.float64()),
        ("st", pa.struct([("a", pa.int32()), ("z", pa.string())])),
        ("p", pa.string()),
        ("q", pa.date32()),
    ]
)
# The hours around the end of summer time in Los Angeles, which come twice.
AUTUMN = datetime(2024, 11, 3, 6, 0, tzinfo=UTC)


@pytest.fixture(params=["America/Los_Angeles", "UTC"])
def zone(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    before = spark.conf.get(ZONE)
    spark.conf.set(ZONE, request.param)
    yield request.param
    spark.conf.set(ZONE, before)


def load(spark: SparkSession, path: Path) -> DataFrame:
    return enable(spark).read.format("delta").load(str(path))


def some_row(random_: random.Random, number: int) -> dict[str, object]:
    def maybe(value: object) -> object:
        return None if random_.random() < 0.2 else value

    at = AUTUMN + timedelta(minutes=30 * number)
    return {
        "n": maybe(number),
        "i": maybe(number % 7 - 3),
        "s": maybe(random_.choice(["a", "ab", "abc", "b%", "ü", ""])),
        "d": maybe(date(2024, 2, 27) + timedelta(days=number % 9)),
        "t": maybe(at),
        "dec": maybe(Decimal(number) / 4),
        "b": maybe(number % 2 == 0),
        "x": maybe(random_.choice([0.0, -0.0, 1.5, float("nan"), float(number)])),
        "st": maybe({"a": maybe(number), "z": maybe("z")}),
        "p": random_.choice(["x y", "ü%", None]),
        "q": random_.choice([date(2024, 2, 28), date(2024, 2, 29), None]),
    }


LITERALS = {
    "n": ["5", "12L", "3.5", "cast(7 as smallint)", "'9'"],
    "i": ["0", "-1", "2L", "1.5D"],
    "s": ["'ab'", "'a'", "'zz'", "''"],
    "d": ["date'2024-02-29'", "timestamp'2024-02-29 00:00:00'", "date'2024-03-02'"],
    "t": [
        "timestamp'2024-11-03 01:30:00'",
        "timestamp'2024-11-03 08:30:00Z'",
        "date'2024-11-03'",
        "timestamp'2024-11-03 01:30:00 America/Los_Angeles'",
    ],
    "dec": ["2.5", "3", "2.25D", "100"],
    "x": ["0.0D", "1.5D", "double('NaN')", "4"],
    "st.a": ["3", "9L"],
    "p": ["'x y'", "'ü%'"],
    "q": ["date'2024-02-29'", "'2024-02-28'"],
    "cast(t as date)": ["date'2024-11-03'", "date'2024-11-02'"],
    "year(d)": ["2024", "2025"],
    "date_trunc('MONTH', t)": ["timestamp'2024-11-01 00:00:00'", "timestamp'2024-12-01'"],
    "date_trunc('DAY', t)": ["timestamp'2024-11-03'"],
    "trunc(d, 'MM')": ["date'2024-02-01'", "date'2024-03-01'"],
    "substring(s, 1, 2)": ["'ab'", "'a'"],
    "upper(p)": ["'X Y'"],
    "n + 1": ["6"],
}


def some_condition(random_: random.Random, depth: int = 2) -> str:
    if depth and random_.random() < 0.6:
        word = random_.choice(["AND", "OR"])
        left, right = (some_condition(random_, depth - 1) for _ in range(2))
        text = f"({left} {word} {right})"
        return f"NOT {text}" if random_.random() < 0.25 else text
    column = random_.choice(sorted(LITERALS))
    values = LITERALS[column]
    match random_.randrange(7):
        case 0:
            return f"{column} IS {random_.choice(['', 'NOT '])}NULL"
        case 1:
            listed = ", ".join([*values, *random_.choice([[], ["NULL"]])])
            return f"{column} {random_.choice(['', 'NOT '])}IN ({listed})"
        case 2:
            many = ", ".join(str(n) for n in random_.sample(range(60), 12))
            return f"n {random_.choice(['', 'NOT '])}IN ({many})"
        case 3:
            return random_.choice(["s LIKE 'ab%'", "p LIKE 'x%'", "b", "NOT b", "s LIKE 'a%c'"])
    op = random_.choice(["=", "<=>", "<>", "<", "<=", ">", ">="])
    left, right = column, random_.choice(values)
    return (
        f"{right} {op} {left}" if random_.random() < 0.2 and op != "<>" else f"{left} {op} {right}"
    )


def test_random_filters_find_the_rows_that_plain_parquet_has(
    spark: SparkSession, table_path: Path, tmp_path: Path, zone: str
) -> None:
    random_ = random.Random(7)
    rows = [some_row(random_, number) for number in range(60)]
    log = create_table(
        table_path,
        SCHEMA,
        partition_by=["p", "q"],
        configuration={"delta.enableDeletionVectors": "true"},
    )
    for start in range(0, 60, 10):
        append(log, pa.Table.from_pylist(rows[start : start + 10], SCHEMA))
    delete_positions(log, lambda file: [0] if len(file.path) % 2 else [])
    left = log.update().to_table()
    plain = tmp_path / "pläin 100%.parquet"
    pq.write_table(left.cast(SCHEMA), plain)
    table = load(spark, table_path)
    expected = spark.read.schema(table.schema).parquet(str(plain))
    assert table.count() == left.num_rows
    conditions = [some_condition(random_) for _ in range(40)]
    row = "hash(n, i, s, d, t, dec, b, st, p, q)"
    # One job tells what each of them finds in plain Parquet: how many rows, and which.
    wanted = expected.selectExpr(
        *(f"count_if({each}) c{i}" for i, each in enumerate(conditions)),
        *(f"sum(if({each}, {row}, null)) h{i}" for i, each in enumerate(conditions)),
    ).first()
    for i, condition in enumerate(conditions):
        found = table.where(condition).selectExpr("count(*) c", f"sum({row}) h").first()
        assert (found["c"], found["h"]) == (wanted[f"c{i}"], wanted[f"h{i}"]), condition


def test_what_a_filter_cannot_match_is_not_opened(
    spark: SparkSession, table_path: Path, zone: str
) -> None:
    log = create_table(table_path, SCHEMA, partition_by=["p"])
    for number in range(4):
        day = datetime(2024, 11, 2 + number, 18, tzinfo=UTC)
        row = {
            "n": 10 * number,
            "i": number,
            "s": "abcd"[number] * 3,
            "d": day.date(),
            "t": day,
            "dec": Decimal(number),
            "b": number == 0,
            "x": float(number),
            "st": {"a": number, "z": None},
            "p": f"p{number % 2}",
            "q": day.date(),
        }
        append(log, pa.Table.from_pylist([row], SCHEMA))
    table = load(spark, table_path)
    many = ", ".join(str(n) for n in range(15, 40))
    opened = {
        "n = 10": 1,
        "n = 10L AND p = 'p0'": 0,
        f"n IN ({many})": 2,
        "n > 10 AND n <= 20": 1,
        "NOT (n < 30)": 1,
        "i = 2L": 1,
        "i < 1.5D": 2,
        "s LIKE 'bb%'": 1,
        "substring(s, 1, 2) = 'cc'": 1,
        "d = date'2024-11-03'": 1,
        "d < timestamp'2024-11-03 00:00:00'": 1,
        "t >= timestamp'2024-11-04 12:00:00Z'": 2,
        "cast(t as date) = date'2024-11-04'": 1,
        "cast(t as date) IS NULL": 4,
        "year(d) = 2023": 0,
        "year(t) >= 2025": 0,
        "date_trunc('DAY', t) = timestamp'2024-11-05'": 1,
        "date_trunc('YEAR', t) = timestamp'2023-01-01'": 0,
        "trunc(d, 'MM') > date'2024-11-01'": 0,
        "dec >= 3": 1,
        "dec < 0.5": 1,
        "b IS NULL": 0,
        "NOT b": 4,
        "st.a = 3": 1,
        "st.z IS NOT NULL": 0,
        "n <=> 20": 1,
        "upper(p) = 'P1'": 2,
        "p IN ('p0', NULL)": 2,
        "p = 'nö'": 0,
    }
    found = {condition: files_read(table.where(condition)) for condition in opened}
    assert found == opened


def generated(kind: object, expression: str) -> StructField:
    return StructField("g", kind, metadata={"delta.generationExpression": expression})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "values", "condition", "left"),
    [
        (
            generated(DATE, "CAST(t AS DATE)"),
            [date(2024, 1, d) for d in (1, 5, 9)],
            "t = timestamp'2024-01-05 12:00:00Z'",
            1,
        ),
        (generated(INTEGER, "YEAR(t)"), [2022, 2023, 2024], "t < timestamp'2022-06-01'", 1),
        (
            generated(STRING, "DATE_FORMAT(t, 'yyyy-MM')"),
            ["2024-01", "2024-03", "2024-05"],
            "t > timestamp'2024-04-15'",
            1,
        ),
        (generated(STRING, "SUBSTRING(s, 1, 2)"), ["aa", "bb", None], "s = 'bbx'", 2),
        (generated(LONG, "n"), [1, 2, None], "n IS NULL", 1),
        (
            generated(TIMESTAMP, "DATE_TRUNC('MONTH', t)"),
            [datetime(2024, m, 1, 8, tzinfo=UTC) for m in (1, 5, 9)],
            "t BETWEEN timestamp'2024-05-10' AND timestamp'2024-05-11'",
            1,
        ),
    ],
)
def test_a_filter_prunes_partitions_that_its_column_generates(
    spark: SparkSession,
    table_path: Path,
    field: StructField,
    values: list[object],
    condition: str,
    left: int,
) -> None:
    schema = StructType(
        (StructField("t", TIMESTAMP), StructField("s", STRING), StructField("n", LONG), field)
    )
    log = create_table(table_path, schema, partition_by=["g"])
    arrow = pa.schema(
        [
            ("t", SCHEMA.field("t").type),
            ("s", pa.string()),
            ("n", pa.int64()),
            ("g", pa.array(values).type),
        ]
    )
    for value in values:
        # No statistics, so that only the partition can tell.
        row = pa.Table.from_pylist([{"t": None, "s": None, "n": None, "g": value}], arrow)
        append(log, row, with_stats=False)
    assert files_read(load(spark, table_path).where(condition)) == left


def test_a_join_with_a_filtered_dimension_reads_only_its_partitions(
    spark: SparkSession, table_path: Path
) -> None:
    schema = pa.schema([("n", pa.int64()), ("p", pa.int32())])
    log: DeltaLog = create_table(table_path, schema, partition_by=["p"])
    append(log, pa.table({"n": range(400), "p": [i % 4 for i in range(400)]}, schema=schema))
    facts = load(spark, table_path)
    dimension = spark.createDataFrame([(i, f"name {i}") for i in range(4)], "p int, name string")
    key = "spark.sql.adaptive.enabled"
    spark.conf.set(key, "false")
    try:
        joined = facts.join(dimension.where("name = 'name 2'").hint("broadcast"), "p")
        counted = joined.selectExpr("count(*) c")
        assert counted.collect()[0]["c"] == 100
        plan = counted._jdf.queryExecution().executedPlan()
    finally:
        spark.conf.unset(key)
    assert "dynamicpruning" in plan.toString()
    leaves = plan.collectLeaves()
    scans = [leaves.apply(i) for i in range(leaves.size())]
    [scan] = [each for each in scans if each.nodeName().startswith("Scan parquet")]
    assert scan.metrics().apply("numFiles").value() == 1
