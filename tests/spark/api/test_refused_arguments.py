"""What `DeltaTable` answers to arguments it cannot take, in words that programs look for."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import SparkSession

from pyspark_delta import DeltaTable, enable

# What is wrong, and a call with it: handles are of no type here, as nobody checks these programs.
WRONG: list[tuple[str, Callable[[Any], Any]]] = [
    ("timestamp needs to be a string but got '<class 'int'>'", lambda t: t.restoreToTimestamp(7)),
    ("version needs to be an int but got '<class 'str'>'", lambda t: t.restoreToVersion("0")),
    ("version needs to be an int", lambda t: t.cloneAtVersion("0", "c", True)),
    ("timestamp needs to be a string", lambda t: t.cloneAtTimestamp(7, "c", True)),
    ("target needs to be a string", lambda t: t.clone(7, True)),
    ("isShallow needs to be a boolean", lambda t: t.clone("c", 7)),
    ("replace needs to be a boolean", lambda t: t.clone("c", True, 7)),
    ("properties needs to be a dict", lambda t: t.clone("c", True, False, 7)),
    (
        "All property values including 7 needs to be a string",
        lambda t: t.clone("c", True, False, {"k": 7}),
    ),
    (
        "All property keys including 7 needs to be a string",
        lambda t: t.clone("c", True, False, {7: "v"}),
    ),
    ("readerVersion needs to be an int", lambda t: t.upgradeTableProtocol([1], 3)),
    ("writerVersion needs to be an int", lambda t: t.upgradeTableProtocol(1, {})),
    ("featureName needs to be a string", lambda t: t.addFeatureSupport([7])),
    ("featureName needs to be a string", lambda t: t.dropFeatureSupport({})),
    (
        "truncateHistory needs to be a boolean",
        lambda t: t.dropFeatureSupport("checkConstraints", 7),
    ),
]


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    return enable(spark)


@pytest.fixture
def table(session: SparkSession, table_path: Path) -> DeltaTable:
    frame = session.range(4).selectExpr("id", "id % 2 AS p")
    frame.write.format("delta").partitionBy("p").save(str(table_path))
    return DeltaTable.forPath(session, str(table_path))


def test_an_argument_of_another_type_is_refused_in_delta_sparks_words(table: DeltaTable) -> None:
    for words, call in WRONG:
        with pytest.raises(ValueError, match=re.escape(words)) as caught:
            call(table)
        assert isinstance(caught.value, TypeError)
    assert table.history().count() == 1


def test_a_merge_needs_a_source_and_a_condition(session: SparkSession, table: DeltaTable) -> None:
    source: Any = session.range(1)
    nothing: Any = None
    with pytest.raises(ValueError, match="'source' in merge cannot be None"):
        table.merge(nothing, "true")
    with pytest.raises(ValueError, match="'condition' in merge cannot be None"):
        table.merge(source, nothing)


def test_what_cannot_be_done_is_told_in_delta_sparks_words(table: DeltaTable) -> None:
    with pytest.raises(AnalysisException) as caught:
        table.restoreToTimestamp("05/04/1999")
    assert caught.value.getMessageParameters() == {"expr": "'05/04/1999'"}
    words = "The provided timestamp ('05/04/1999') cannot be converted to a valid timestamp"
    assert words in str(caught.value)
    with pytest.raises(AnalysisException) as caught:
        table.optimize().where("id = 1").executeCompaction()
    words = "non-partition column 'id'. Only the partition columns may be referenced: [p]"
    assert words in str(caught.value)
    with pytest.raises(IllegalArgumentException) as refused:
        table.optimize().where("p = 1").executeZOrderBy(["p"])
    words = "p is a partition column. Z-Ordering can only be performed on data columns"
    assert words in str(refused.value)


def test_a_table_is_refused_by_the_name_that_was_asked_for(session: SparkSession) -> None:
    builder = DeltaTable.create(session).tableName("madeTwice").addColumn("id", "int")
    builder.execute()
    frame = session.range(1)
    making: list[tuple[str, Callable[[], Any]]] = [
        ("`default`.`madeTwice`", builder.execute),
        (
            "`default`.`MADETwice`",
            lambda: session.sql("CREATE TABLE MADETwice (a INT) USING delta"),
        ),
        (
            "`DEFAULT`.`madeTwice`",
            lambda: session.sql("CREATE TABLE DEFAULT.madeTwice USING delta AS SELECT 1 AS a"),
        ),
        ("`default`.`madeTwice`", lambda: frame.write.format("delta").saveAsTable("madeTwice")),
        ("`default`.`madeTwice`", lambda: frame.writeTo("madeTwice").using("delta").create()),
    ]
    for name, make in making:
        with pytest.raises(AnalysisException, match="already exists") as caught:
            make()
        assert caught.value.getMessageParameters() == {"relationName": name}
    replacing: list[Callable[[], Any]] = [
        DeltaTable.replace(session).tableName("notThere").addColumn("id", "int").execute,
        lambda: frame.writeTo("notThere").using("delta").replace(),
    ]
    for replace in replacing:
        with pytest.raises(AnalysisException, match="cannot be found") as caught:
            replace()
        assert caught.value.getMessageParameters() == {
            "relationName": "`default`.`notThere`",
            "searchPath": "[`spark_catalog`.`default`]",
        }
    with pytest.raises(AnalysisException) as caught:
        DeltaTable.forName(session, "default.notThere")
    assert caught.value.getMessageParameters() == {"tableName": "`default`.`notThere`"}
