"""Very many programs at the cost of few: programs that begin alike share their beginning.

A program is a table and the commands on it, one after the other.  Here a table is a node, a
command leads to another, on a copy of the table, and each path from the root to a leaf is a
program.  And a table may hold several programs, in worlds whose rows never meet, with rows and
commands of their own: a command is another in each.  Tables are made and read back without Spark;
only the commands run there.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType as SparkStructType

from pyspark_delta import DeltaTable
from pyspark_delta.kernel.log.arrow_types import arrow_schema
from pyspark_delta.kernel.protocol.schema_json import parse_schema
from tests.support.dml_model import (
    Command,
    Outcome,
    Row,
    as_bag,
    plain_row,
    random_command,
    run,
    some_rows,
)
from tests.support.dml_runs import (
    COLUMNS,
    PAYLOADS,
    Shape,
    carried_out,
    changes_by_spark,
    changes_of,
    check_files,
    counted,
    told,
)
from tests.support.dml_statements import statement
from tests.support.naive_feed import changes
from tests.support.tables import append, create_table, table_log

WORLDS_APART = 34
"""How many programs a table holds when each of its worlds has commands of its own."""

_WORLDS = 2
_SOURCE = "dml_source"


@dataclass(frozen=True)
class Node:
    """A table after some commands, and the rows that it must hold."""

    spark: SparkSession
    path: Path
    shape: Shape
    schema: pa.Schema
    rows: Sequence[Row]
    is_apart: bool
    past: tuple[str, ...] = ()

    @classmethod
    def planted(
        cls, spark: SparkSession, path: Path, rng: random.Random, shape: Shape, *, is_apart: bool
    ) -> Node:
        """A table of that shape with random rows, in a few files."""
        columns = parse_schema(SparkStructType.fromDDL(shape.schema).json())
        node = cls(spark, path, shape, arrow_schema(columns), [], is_apart)
        log = create_table(
            path, columns, partition_by=shape.partition_by, configuration=shape.properties
        )
        rows = []
        numbers_rows = "delta.enableRowTracking" in shape.properties
        for _ in range(shape.files):
            some = some_rows(rng, node.worlds, 4, node.payload(rng))
            if some:
                append(log, node._arrow(some), with_stats=numbers_rows or rng.random() < 0.9)
            rows += some
        return replace(node, rows=rows)

    @property
    def worlds(self) -> int:
        """How many worlds its rows are of."""
        return WORLDS_APART if self.is_apart else _WORLDS

    def payload(self, rng: random.Random) -> Any:
        """What makes values for the column `v`."""
        return lambda: PAYLOADS[self.shape.payload](rng)

    def grown(self, path: Path, rng: random.Random) -> Node:
        """The table at `path` after one more command, held to the model in all that it shows."""
        command = random_command(rng, self.worlds, self.payload(rng), is_apart=self.is_apart)
        in_sql, is_read_by_spark = rng.random() < 0.5, rng.random() < 0.05
        shutil.copytree(self.path, path)
        after = replace(self, path=path, past=(*self.past, told(command)))
        expected = run(command, self.rows, COLUMNS)
        counts = after._carried_out(command, in_sql=in_sql)
        after._check(expected)
        if counts is not None:
            assert counts == counted(expected, command), after.story
        if is_read_by_spark:
            after._check_by_spark(expected)
        return replace(after, rows=expected.rows)

    @property
    def story(self) -> str:
        """How the table came to be."""
        return "\n".join([str(self.shape), *self.past])

    def _carried_out(self, command: Command, *, in_sql: bool) -> list[int] | None:
        rows = self._frame(command.rows)
        if command.kind == "append" or not in_sql:
            return carried_out(self.spark, self.path, command, rows)
        rows.createOrReplaceTempView(_SOURCE)
        try:
            gave = self.spark.sql(statement(command, self.path, _SOURCE)).collect()
            return None if command.kind == "replace" else list(gave[0])
        finally:
            self.spark.catalog.dropTempView(_SOURCE)

    def _frame(self, rows: Sequence[Row]) -> DataFrame:
        if self.shape.payload == "VARIANT":
            values = [tuple(row.values()) for row in rows]
            return self.spark.createDataFrame(values, self.shape.schema)
        return self.spark.createDataFrame(self._arrow(rows), self.shape.schema)

    def _arrow(self, rows: Sequence[Row]) -> pa.Table:
        return pa.Table.from_pylist([plain_row(row) for row in rows], self.schema)

    def _check(self, expected: Outcome) -> None:
        log = table_log(self.path)
        rows = log.snapshot.to_table().to_pylist(maps_as_pydicts="strict")
        assert as_bag(rows) == as_bag(expected.rows), self.story
        if expected.counts.total():
            ((_, actions),) = log.get_changes(log.snapshot.version)
            found = changes(self.path, log.snapshot.metadata, actions)
            assert found == changes_of(expected), self.story
        check_files(self.path, len(expected.rows))

    def _check_by_spark(self, expected: Outcome) -> None:
        loaded = DeltaTable.forPath(self.spark, str(self.path)).toDF()
        found = [row.asDict(recursive=True) for row in loaded.collect()]
        assert as_bag(found) == as_bag(expected.rows), self.story
        if expected.counts.total():
            version = table_log(self.path).snapshot.version
            feed = changes_by_spark(self.spark, self.path, version, version)
            assert feed == changes_of(expected), self.story
