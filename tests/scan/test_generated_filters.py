"""Filters on a column, as filters on the partition columns that it generates."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import (
    DATE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    StructField,
    StructType,
)
from pyspark_delta.kernel.scan.predicates.binding import bind
from pyspark_delta.kernel.scan.predicates.sql import parse_predicate
from pyspark_delta.kernel.scan.skipping.generated_filters import implied_partition_filter


def table(*generated: tuple[str, DataType, str]) -> Metadata:
    """A table with a column of each kind, partitioned by the generated ones."""
    own = (
        StructField("t", TIMESTAMP),
        StructField("l", TIMESTAMP_NTZ),
        StructField("d", DATE),
        StructField("s", STRING),
        StructField("n", LONG),
        StructField("st", StructType((StructField("d", DATE),))),
    )
    made = (
        StructField(name, kind, metadata={"delta.generationExpression": text})
        for name, kind, text in generated
    )
    return Metadata(
        id="1",
        schema_string=format_schema(StructType((*own, *made))),
        partition_columns=tuple(name for name, _, _ in generated),
    )


def implied(metadata: Metadata, condition: str, zone: str = "UTC") -> str:
    predicate = parse_predicate(condition, time_zone=zone)
    bound = bind(predicate, metadata.schema, time_zone=zone, lenient=True)
    return implied_partition_filter(bound, metadata).to_sql()


@pytest.mark.parametrize(
    ("expression", "kind", "condition", "expected"),
    [
        ("CAST(d AS DATE)", DATE, "d = DATE '2024-02-29'", "g = DATE '2024-02-29' OR g IS NULL"),
        (
            "CAST(l AS DATE)",
            DATE,
            "l < '2024-02-29 12:00:00'",
            "g <= DATE '2024-02-29' OR g IS NULL",
        ),
        (
            "cast ( `d` as date )",
            DATE,
            "NOT (d < '2024-01-02')",
            "g >= DATE '2024-01-02' OR g IS NULL",
        ),
        ("YEAR(d)", INTEGER, "d > DATE '2024-02-29'", "g >= 2024 OR g IS NULL"),
        ("year(CAST(d AS DATE))", INTEGER, "d <= DATE '2023-12-31'", "g <= 2023 OR g IS NULL"),
        ("YEAR(st.d)", INTEGER, "st.d <=> DATE '2024-01-01'", "g = 2024 OR g IS NULL"),
        (
            "DATE_FORMAT(d, 'yyyy-MM')",
            STRING,
            "d = DATE '2024-02-29'",
            "g = '2024-02' OR g IS NULL",
        ),
        ("TRUNC(d, 'MONTH')", DATE, "d = DATE '2024-02-29'", "g = DATE '2024-02-01' OR g IS NULL"),
        ("SUBSTRING(s, 1, 3)", STRING, "s = 'abcdef'", "g = 'abc' OR g IS NULL"),
        ("SUBSTRING(s, 0, 3)", STRING, "s >= 'abcdef'", "g >= 'abc' OR g IS NULL"),
        ("LEFT(s, 2)", STRING, "s LIKE 'abc%'", "g LIKE 'ab%' OR g IS NULL"),
        ("s", STRING, "s > 'x'", "g >= 'x' OR g IS NULL"),
        ("n", LONG, "n IS NULL", "g IS NULL"),
        ("YEAR(d)", INTEGER, "d IS NULL", "g IS NULL"),
        ("YEAR(d)", INTEGER, "d IS NOT NULL", "TRUE"),
        ("YEAR(d)", INTEGER, "d != DATE '2024-01-01'", "TRUE"),
        ("YEAR(d)", INTEGER, "d < DATE '2024-01-01' OR n = 5", "TRUE"),
        ("MONTH(d)", INTEGER, "d = DATE '2024-01-01'", "TRUE"),
        ("SUBSTRING(s, 2, 3)", STRING, "s = 'abc'", "TRUE"),
        ("DATE_FORMAT(d, 'dd-MM')", STRING, "d = DATE '2024-01-01'", "TRUE"),
        ("n + 1", LONG, "n = 1", "TRUE"),
        ("CAST(n AS STRING)", STRING, "n = 1", "TRUE"),
        ("YEAR(", INTEGER, "d = DATE '2024-01-01'", "TRUE"),
    ],
)
def test_a_generation_expression_implies_a_filter(
    expression: str, kind: DataType, condition: str, expected: str
) -> None:
    assert implied(table(("g", kind, expression)), condition) == expected


def test_a_timestamp_may_have_been_written_in_any_zone() -> None:
    metadata = table(("g", DATE, "CAST(t AS DATE)"))
    condition = "t = TIMESTAMP '2024-03-10 12:00:00Z'"
    for zone in ("UTC", "America/Los_Angeles", "Pacific/Kiritimati"):
        found = implied(metadata, condition, zone)
        assert any(f"2024-03-{day}" in found for day in ("09", "10", "11", "12"))
        assert ">=" in found
        assert "<=" in found


def test_parts_of_a_date_are_compared_together() -> None:
    metadata = table(
        ("y", INTEGER, "YEAR(d)"), ("m", INTEGER, "MONTH(d)"), ("dd", INTEGER, "DAY(d)")
    )
    found = implied(metadata, "d >= DATE '2024-02-29'")
    assert found == (
        "y > 2024 OR (y = 2024 AND (m > 2 OR (m = 2 AND dd >= 29)))"
        " OR y IS NULL OR m IS NULL OR dd IS NULL"
    )
    assert implied(metadata, "d = DATE '2024-02-29'").startswith("(y = 2024 AND m = 2 AND dd = 29)")


def test_lists_imply_lists_or_ranges() -> None:
    metadata = table(("g", INTEGER, "YEAR(d)"))
    assert implied(metadata, "d IN (DATE '2020-01-01', DATE '2024-06-01')") == (
        "g = 2020 OR g IS NULL OR g = 2024 OR g IS NULL"
    )
    many = ", ".join(f"DATE '{2000 + i}-01-01'" for i in range(60))
    assert implied(metadata, f"d IN ({many})") == (
        "(g >= 2000 OR g IS NULL) AND (g <= 2059 OR g IS NULL)"
    )


def test_a_truncated_timestamp_is_one_of_the_session_s_zone() -> None:
    metadata = table(("g", TIMESTAMP, "DATE_TRUNC('MONTH', t)"))
    found = implied(metadata, "t > TIMESTAMP '2024-05-15 00:00:00Z'", "America/Los_Angeles")
    # The partition may be another zone's start of the month, so it is taken a day earlier.
    start = datetime(2024, 4, 30, 7, tzinfo=UTC)
    assert start.strftime("%Y-%m-%d %H:%M:%S") in found
