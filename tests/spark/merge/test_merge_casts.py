"""MERGE and UPDATE: values that do not fit, by the session's policy or by its ANSI mode."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_delta import enable
from pyspark_delta.errors import DeltaError
from tests.support.merges import MergeTable
from tests.support.spark_tables import conf

FOLLOWS = "spark.databricks.delta.updateAndMergeCastingFollowsAnsiEnabledFlag"
ANSI = "spark.sql.ansi.enabled"
POLICY = "spark.sql.storeAssignmentPolicy"

LARGE = 2**63 - 1
OVERFLOW = "DELTA_CAST_OVERFLOW_IN_TABLE_WRITE"


@dataclass(frozen=True, slots=True)
class Misfit:
    """A value that a column has no room for.

    `told` are the types, and the column, that an error of ours tells of: None where it is Spark's.
    `wrapped` is what is stored where nothing fails.
    """

    wanted: str
    value: str
    told: tuple[str, str, str] | None
    ansi: str
    wrapped: Any


MISFITS = {
    "tiny": Misfit("tinyint", "2147483647", ("INT", "TINYINT", "tiny"), "CAST_OVERFLOW", -1),
    "whole": Misfit("int", f"{LARGE}", ("BIGINT", "INT", "whole"), "CAST_OVERFLOW", -1),
    "long": Misfit(
        "bigint", "12345678901234567890D", ("DOUBLE", "BIGINT", "long"), "CAST_OVERFLOW", LARGE
    ),
    "exact": Misfit(
        "decimal(3,2)",
        "CAST(12.3 AS DECIMAL(3,1))",
        ("DECIMAL(3,1)", "DECIMAL(3,2)", "exact"),
        "NUMERIC_VALUE_OUT_OF_RANGE.WITH_SUGGESTION",
        None,
    ),
    "st": Misfit(
        "struct<value: int>",
        f"named_struct('value', {LARGE})",
        ("BIGINT", "INT", "value"),
        "CAST_OVERFLOW",
        (-1,),
    ),
    "items": Misfit(
        "array<int>",
        f"array({LARGE})",
        ("ARRAY<BIGINT>", "ARRAY<INT>", "items"),
        "CAST_OVERFLOW",
        [-1],
    ),
    "named": Misfit(
        "map<string, int>",
        f"map('abc', {LARGE})",
        ("MAP<STRING, BIGINT>", "MAP<STRING, INT>", "named"),
        "CAST_OVERFLOW",
        {"abc": -1},
    ),
    "structs": Misfit(
        "array<struct<f: int>>",
        f"array(named_struct('f', {LARGE}))",
        ("BIGINT", "INT", "f"),
        "CAST_OVERFLOW",
        [(-1,)],
    ),
    "text": Misfit("int", f"'{LARGE}'", None, "CAST_INVALID_INPUT", None),
}


@pytest.fixture(autouse=True)
def _enabled(spark: SparkSession) -> None:
    enable(spark)


@pytest.fixture
def table(spark: SparkSession, table_path: Path) -> MergeTable:
    """A row of nulls in columns that are too small."""
    schema = ", ".join(f"{name} {each.wanted}" for name, each in MISFITS.items())
    return MergeTable.of(spark, table_path, f"id int, {schema}", (1, *[None] * len(MISFITS)))


def statements(table: MergeTable, name: str, value: str) -> Iterator[str]:
    """Each that sets a value."""
    path = f"delta.`{table.path}`"
    yield f"UPDATE {path} SET {name} = {value}"
    merge = f"MERGE INTO {path} t USING (SELECT 1 id, {value} {name}) s ON t.id = s.id WHEN"
    yield f"{merge} MATCHED THEN UPDATE SET t.{name} = s.{name}"
    merge = merge.replace("SELECT 1 id", "SELECT 9 id")
    yield f"{merge} NOT MATCHED THEN INSERT (id, {name}) VALUES (s.id, s.{name})"
    yield f"{merge} NOT MATCHED BY SOURCE THEN UPDATE SET t.{name} = {value}"


def refusals_of(table: MergeTable, name: str) -> Iterator[DeltaError | PySparkException]:
    """What each statement is refused with."""
    for statement in statements(table, name, MISFITS[name].value):
        with pytest.raises((DeltaError, PySparkException)) as caught:
            table.spark.sql(statement)
        assert isinstance(caught.value, DeltaError | PySparkException)
        yield caught.value
    assert table.version == 0


@pytest.mark.parametrize("name", MISFITS)
def test_a_misfit_is_refused_with_the_types_of_what_is_cast(table: MergeTable, name: str) -> None:
    misfit = MISFITS[name]
    for error in refusals_of(table, name):
        assert error.getCondition() == (OVERFLOW if misfit.told else misfit.ansi)
        if misfit.told:
            own, wanted, column = misfit.told
            facts = error.getMessageParameters() or {}
            assert facts["sourceType"] == f'"{own}"'
            assert facts["targetType"] == f'"{wanted}"'
            assert facts["columnName"] == f"`{column}`"


@pytest.mark.parametrize("name", ["whole", "exact", "items", "named", "text"])
def test_a_misfit_is_spark_s_own_error_where_casts_follow_the_ansi_mode(
    table: MergeTable, name: str
) -> None:
    with conf(table.spark, **{FOLLOWS: "true", ANSI: "true", POLICY: "LEGACY"}):
        for error in refusals_of(table, name):
            assert error.getCondition() == MISFITS[name].ansi


@pytest.mark.parametrize(
    "settings",
    [{POLICY: "LEGACY"}, {FOLLOWS: "true", ANSI: "false", POLICY: "STRICT"}],
    ids=["by the policy", "by the mode"],
)
def test_a_misfit_is_wrapped_or_null_where_casts_do_not_fail(
    table: MergeTable, settings: dict[str, str]
) -> None:
    wrapped = tuple(each.wrapped for each in MISFITS.values())
    path = f"delta.`{table.path}`"
    values = ", ".join(f"{each.value} {name}" for name, each in MISFITS.items())
    assigned = ", ".join(f"{name} = {each.value}" for name, each in MISFITS.items())
    with conf(table.spark, **settings):
        table.spark.sql(
            f"MERGE INTO {path} t USING (SELECT id, {values} FROM VALUES (1), (2) AS _(id)) s"
            " ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        assert table.rows == [(1, *wrapped), (2, *wrapped)]
        table.spark.sql(f"INSERT INTO {path} (id) VALUES (3)")
        table.spark.sql(f"UPDATE {path} SET {assigned} WHERE id = 3")
        table.handle.update("id = 2", {"whole": f"{LARGE}", "text": "'x'"})
    assert table.rows == [(1, *wrapped), (2, *wrapped), (3, *wrapped)]


def test_an_insert_statement_follows_the_policy_alone(table: MergeTable) -> None:
    insert = f"INSERT INTO delta.`{table.path}` (id, whole) VALUES (2, {LARGE})"
    with conf(table.spark, **{FOLLOWS: "true", ANSI: "false"}):
        with pytest.raises(PySparkException) as caught:
            table.spark.sql(insert)
        assert caught.value.getCondition() == "CAST_OVERFLOW_IN_TABLE_INSERT"


def test_keys_of_a_map_are_cast_one_by_one(spark: SparkSession, table_path: Path) -> None:
    table = MergeTable.of(spark, table_path, "id int, m map<int, int>", (1, None))
    source = table.data("id int, m map<string, bigint>", (1, {"7": 8}))
    for policy in ("ANSI", "LEGACY"):
        with conf(spark, **{POLICY: policy}):
            table.done(table.merge(source).whenMatchedUpdateAll())
        assert table.rows == [(1, {7: 8})]
