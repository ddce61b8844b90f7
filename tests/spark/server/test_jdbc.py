"""JDBC: the statements of notebook and guide from beeline, compared with a classic session."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from tests.support.beeline import Outcome, run_beeline
from tests.support.catalog_tables import own_database
from tests.support.delta_server import ROOT, Server
from tests.support.notebook import CELLS, PRELUDE

pytestmark = pytest.mark.skipif(
    shutil.which("java") is None, reason="beeline needs java on the path"
)

GUIDE = ROOT / "docs" / "guide" / "sql.md"
STATEMENTS = [
    text.strip()
    for text in re.sub(
        r"^--.*\n", "", Path(__file__).with_name("guide.sql").read_text(encoding="utf-8")
    ).split(";;")
    if text.strip()
]
# Cells that are more than SQL.
NEEDS_PYTHON = re.compile(r"spark\.(?!sql\()|DeltaTable|\bF\.|json_rows|\.write")
SIZE = re.compile(r"[Tt]ime|[Ss]ize|createdAt|lastModified")
# What no two runs have in common: times, random ids, sizes and names of files.
VOLATILE = (
    (re.compile(r"\d{4}-\d\d-\d\d[ T][\d:]+(\.\d+)?( \w+)?"), "TIME"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "ID"),
    (re.compile(r"part-[^,\"\s]*\.parquet"), "FILE"),
    (re.compile(r'("\w*([Tt]ime|Ms|Bytes|[Ss]ize)\w*":"?)\d+'), r"\1N"),
    (re.compile(r"#\d+L?\b"), "#N"),
    (re.compile(r"db_[0-9a-f]{12}"), "DB"),
    (re.compile(r"col-[0-9a-f-]+"), "COL"),
    (re.compile(r"file:[^\"',]*?/warehouse/"), "WAREHOUSE/"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the classic session had for a statement."""

    sql: str
    columns: list[str]
    rows: list[list[str]]
    failure: tuple[str, str] | None


class Recorder:
    """A classic session's `sql`, which keeps each statement and what it gave."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.found: list[Expected] = []

    def sql(self, text: str) -> DataFrame:
        """Run a statement."""
        try:
            frame = self._spark.sql(text)
            rows = [list(row) for row in frame.select(*map(_as_text, frame.schema)).collect()]
        except PySparkException as error:
            failure = (str(error.getCondition()), str(error.getSqlState()))
            self.found.append(Expected(sql=text, columns=[], rows=[], failure=failure))
            raise
        self.found.append(Expected(sql=text, columns=frame.columns, rows=rows, failure=None))
        return frame


def _as_text(field: StructField) -> Column:
    """A column as JDBC has it: what is nested is JSON, null is a word."""
    column = F.col(f"`{field.name}`")
    if isinstance(field.dataType, ArrayType | MapType | StructType):
        column = F.to_json(column, {"ignoreNullFields": "false"})
    return F.coalesce(column.cast("string"), F.lit("NULL")).alias(field.name)


@pytest.fixture
def recorder(spark: SparkSession) -> Iterator[Recorder]:
    with own_database(spark):
        yield Recorder(spark)


@pytest.fixture
def homes(table_path: Path) -> tuple[Path, Path]:
    """A directory for each of the two."""
    here, there = table_path / "here", table_path / "there"
    here.mkdir(parents=True)
    there.mkdir()
    return here, there


def agree(recorder: Recorder, server: Server, here: Path, there: Path) -> None:
    """Run by beeline what was recorded, and compare; directories are `here` and `there`."""
    name = f"db_{uuid4().hex[:12]}"
    statements = [each.sql.replace(str(here), str(there)) for each in recorder.found]
    around = ([f"CREATE DATABASE {name}", f"USE {name}"], [f"DROP DATABASE {name} CASCADE"])
    outcomes = run_beeline(server.jdbc_url, there, [*around[0], *statements, *around[1]])
    different = []
    for expected, outcome in zip(recorder.found, outcomes[2:-1], strict=True):
        ours = _comparable(expected, here)
        theirs = _comparable(_of_beeline(expected.sql, outcome), there)
        if ours != theirs:
            different.append(f"{expected.sql}\n  classic {ours}\n  JDBC    {theirs}")
    assert not different, "\n".join(different)


def _of_beeline(sql: str, outcome: Outcome) -> Expected:
    if outcome.failure is not None:
        return Expected(sql=sql, columns=[], rows=[], failure=outcome.failure)
    # A result without columns has one of this name there.
    columns = [name for name in outcome.columns if name != "Result"]
    return Expected(sql=sql, columns=columns, rows=outcome.rows, failure=None)


def _comparable(found: Expected, home: Path) -> tuple[object, ...]:
    rows = [[_masked(text, home) for text in row] for row in found.rows]
    rows = [
        ["N" if SIZE.search(name) else text for name, text in zip(found.columns, row, strict=True)]
        for row in rows
    ]
    is_set = found.sql.lstrip().startswith(("SELECT", "WITH")) and "ORDER BY" not in found.sql
    return found.columns, sorted(rows) if is_set else rows, found.failure


def _masked(text: str, home: Path) -> str:
    for spelling in (str(home), quote(str(home))):
        text = text.replace(spelling, "HOME")
    for pattern, word in VOLATILE:
        text = pattern.sub(word, text)
    if text.startswith(("{", "[")):
        # Maps have no order, and Hive's JSON has no escapes in texts.
        return " ".join(sorted(re.split(r"[,{}\[\]]", text.replace("\\", ""))))
    return "".join(text.split())  # Hive's lines have an end of their own


def test_the_statements_of_the_notebook_run_by_jdbc(
    recorder: Recorder, delta_server: Server, homes: tuple[Path, Path]
) -> None:
    recorder.sql(
        "CREATE TABLE built (a INT COMMENT 'x', b INT GENERATED ALWAYS AS (a + 1)) USING delta"
    )
    recorder.sql("INSERT INTO built (a) VALUES (1), (2)")
    cells = [code for code in CELLS.values() if not NEEDS_PYTHON.search(code)]
    assert len(cells) > 12
    for code in cells:
        names = {"spark": recorder, "home": str(homes[0]), "db": "default"}
        exec(PRELUDE + code, names)
    assert len(recorder.found) > 40
    agree(recorder, delta_server, *homes)


def test_the_program_of_the_guide_runs_by_jdbc(
    recorder: Recorder, delta_server: Server, homes: tuple[Path, Path]
) -> None:
    for text in statements_of_the_program():
        recorder.sql(text)
    assert len(recorder.found) == 7
    agree(recorder, delta_server, *homes)


def test_each_kind_of_statement_of_the_guide_runs_by_jdbc(
    recorder: Recorder, delta_server: Server, homes: tuple[Path, Path]
) -> None:
    for text in STATEMENTS:
        with suppress(PySparkException):
            recorder.sql(text.replace("{home}", str(homes[0])))
    failures = [each.failure for each in recorder.found if each.failure]
    assert failures == [
        ("DELTA_VIOLATE_CONSTRAINT_WITH_VALUES", "23001"),
        ("PARSE_SYNTAX_ERROR", "42601"),
        ("DELTA_VERSION_NOT_FOUND", "22003"),
        ("TABLE_OR_VIEW_NOT_FOUND", "42P01"),
    ]
    agree(recorder, delta_server, *homes)


def test_each_row_of_the_guide_has_a_statement() -> None:
    begun = {" ".join(re.findall(r"[A-Za-z]+", text)[:1]) for text in STATEMENTS}
    rows = re.findall(r"^\| `+ ?([A-Z]+)", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) > 25
    assert {row for row in rows if row != "FROM"} <= begun


def statements_of_the_program() -> Iterator[str]:
    """The statements of the guide's program; arguments come by EXECUTE IMMEDIATE."""
    program = GUIDE.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    calls = [
        node
        for node in ast.walk(ast.parse(program))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "spark.sql"
    ]
    for node in sorted(calls, key=lambda call: call.lineno):
        if node.args:
            text = ast.literal_eval(node.args[0])
            given = {each.arg: ast.literal_eval(each.value) for each in node.keywords}.get("args")
            if given:
                quoted = text.replace("'", "\\'")
                using = ", ".join(f"{value!r} AS {name}" for name, value in given.items())
                text = f"EXECUTE IMMEDIATE '{quoted}' USING {using}"
            yield text
