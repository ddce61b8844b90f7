"""Statements that are killed: what they need, what is seen of them, and what must be true then.

Whoever looks is a new process.  It must find every table as it was before the statement or as it is
after it; every file that a version names must be there; and the statement, said again, must get
through, or say that it is done.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_delta import DeltaError, DeltaLog
from pyspark_delta.errors import TableNotFoundError
from pyspark_delta.kernel.ops.notes import read_creation_note
from pyspark_delta.kernel.ops.vacuum.missing_files import missing_files
from pyspark_delta.kernel.ops.vacuum.run import VacuumOptions, VacuumRules, run_vacuum
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.spark.conf.setting_table import ALLOWED_LOCATIONS
from pyspark_delta.spark.tables.names import look_up, schema_for_catalog
from tests.support.tables import append, delete_positions, new_table, overwrite

DATABASE = "kills"
SETTINGS = {
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.databricks.delta.optimize.minFileSize": "1000000",
}
ROWS, PLAIN = "rows", "plain"
"""Tables to begin with: one with deletion vectors, one with partitions and without."""

NAME, NEW_NAME, PATH = "name", "new name", "path"
"""Where a table is seen."""

State = dict[str, list[str] | None]
"""Columns and rows as text, by where they are seen; None where no table is."""

GONE = "gone"
MOVED = "moved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A statement; `{t}` is a name for a table of the catalog, `{p}` a path, both of its own.

    `begins_with` is a table that is copied to the path, and `is_named` makes it known by the name.
    `becomes` are queries for the rows that are seen afterwards, where they are not those of before;
    GONE for no table, MOVED for what was seen by the name.
    `refusal` is what the statement says when it is done already; None where it may be run again.
    `drops_old` says that older versions may lose files.
    """

    statement: str
    begins_with: str | None = None
    is_named: bool = False
    set_up: tuple[str, ...] = ()
    becomes: Mapping[str, str] = field(default_factory=dict)
    refusal: str | None = None
    drops_old: bool = False


_EXISTS = "TABLE_OR_VIEW_ALREADY_EXISTS"
_CLONE_EXISTS = "DELTA_TABLE_ALREADY_EXISTS"
_NOT_FOUND = "TABLE_OR_VIEW_NOT_FOUND"
_ROWS = "SELECT * FROM delta.`{rows}`"
_QUERY = "SELECT id * 2 AS id, s FROM delta.`{rows}`"
_FRESH = "SELECT id, 'new' AS fresh FROM delta.`{plain}`"
_NOTHING = "SELECT 1 AS id, 2 AS g, 'x' AS c WHERE false"
_DEFINITION = (
    "(id BIGINT, g BIGINT GENERATED ALWAYS AS (id + 1), c STRING COMMENT 'said') USING delta "
    "{place} CLUSTER BY (id) COMMENT 'about' TBLPROPERTIES ('delta.columnMapping.mode' = 'name', "
    "'delta.enableRowTracking' = 'true', 'delta.enableInCommitTimestamps' = 'true', 'own' = 'x')"
)

MAINTENANCE: Mapping[str, Case] = {
    "vacuum": Case(
        statement="VACUUM delta.`{p}` RETAIN 0 HOURS", begins_with=PLAIN, drops_old=True
    ),
    "optimize": Case(statement="OPTIMIZE delta.`{p}`", begins_with=ROWS),
    "z-order": Case(statement="OPTIMIZE delta.`{p}` ZORDER BY (id, s)", begins_with=ROWS),
    "purge": Case(statement="REORG TABLE delta.`{p}` APPLY (PURGE)", begins_with=ROWS),
    "restore": Case(
        statement="RESTORE TABLE delta.`{p}` TO VERSION AS OF 1",
        begins_with=ROWS,
        becomes={PATH: "SELECT * FROM delta.`{p}` VERSION AS OF 1"},
    ),
    "generate": Case(
        statement="GENERATE symlink_format_manifest FOR TABLE delta.`{p}`", begins_with=PLAIN
    ),
    "drop feature": Case(
        statement="ALTER TABLE delta.`{p}` DROP FEATURE deletionVectors",
        begins_with=ROWS,
        refusal="DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT",
    ),
    "clone to a path": Case(
        statement="CREATE TABLE delta.`{p}` SHALLOW CLONE delta.`{rows}`",
        becomes={PATH: _ROWS},
        refusal="DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION",
    ),
}
DEFINITIONS: Mapping[str, Case] = {
    "add column": Case(
        statement="ALTER TABLE {t} ADD COLUMN extra INT",
        begins_with=ROWS,
        is_named=True,
        becomes={
            NAME: "SELECT *, NULL AS extra FROM {t}",
            PATH: "SELECT *, NULL AS extra FROM {t}",
        },
        refusal="FIELD_ALREADY_EXISTS",
    ),
    "set properties": Case(
        statement="ALTER TABLE {t} SET TBLPROPERTIES "
        "('delta.enableRowTracking' = 'true', 'own' = 'x')",
        begins_with=ROWS,
        is_named=True,
    ),
    "add constraint": Case(
        statement="ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id >= 0)",
        begins_with=ROWS,
        is_named=True,
        refusal="DELTA_CONSTRAINT_ALREADY_EXISTS",
    ),
    "replace": Case(
        statement="CREATE OR REPLACE TABLE {t} USING delta PARTITIONED BY (fresh) AS " + _FRESH,
        begins_with=ROWS,
        is_named=True,
        becomes={NAME: _FRESH, PATH: _FRESH},
    ),
    "set location": Case(
        statement="ALTER TABLE {t} SET LOCATION '{rows}'",
        begins_with=ROWS,
        is_named=True,
        set_up=("DELETE FROM {t} WHERE id < 10",),
        becomes={NAME: _ROWS},
    ),
}
CREATIONS: Mapping[str, Case] = {
    "create": Case(
        statement="CREATE TABLE {t} " + _DEFINITION.replace("{place}", ""),
        becomes={NAME: _NOTHING},
        refusal=_EXISTS,
    ),
    "create at a place": Case(
        statement="CREATE TABLE {t} " + _DEFINITION.replace("{place}", "LOCATION '{p}'"),
        becomes={NAME: _NOTHING, PATH: _NOTHING},
        refusal=_EXISTS,
    ),
    "like": Case(
        statement="CREATE TABLE {t} LIKE {t}_source",
        set_up=("CREATE TABLE {t}_source USING delta LOCATION '{rows}'",),
        becomes={NAME: _ROWS + " WHERE false"},
        refusal=_EXISTS,
    ),
    "select": Case(
        statement="CREATE TABLE {t} USING delta PARTITIONED BY (s) AS " + _QUERY,
        becomes={NAME: _QUERY},
        refusal=_EXISTS,
    ),
    "select to a place": Case(
        statement="CREATE TABLE {t} USING delta LOCATION '{p}' AS " + _QUERY,
        becomes={NAME: _QUERY, PATH: _QUERY},
        refusal=_EXISTS,
    ),
    "select to a path": Case(
        statement="CREATE TABLE delta.`{p}` USING delta AS " + _QUERY,
        becomes={PATH: _QUERY},
        refusal=_EXISTS,
    ),
    "create or replace": Case(
        statement="CREATE OR REPLACE TABLE {t} USING delta AS " + _QUERY, becomes={NAME: _QUERY}
    ),
    "clone": Case(
        statement="CREATE TABLE {t} SHALLOW CLONE delta.`{rows}`",
        becomes={NAME: _ROWS},
        refusal=_CLONE_EXISTS,
    ),
    "clone to a place": Case(
        statement="CREATE TABLE {t} SHALLOW CLONE delta.`{rows}` LOCATION '{p}'",
        becomes={NAME: _ROWS, PATH: _ROWS},
        refusal=_CLONE_EXISTS,
    ),
    "clone or replace": Case(
        statement="CREATE OR REPLACE TABLE {t} SHALLOW CLONE delta.`{rows}`",
        becomes={NAME: _ROWS},
        refusal="DELTA_UNSUPPORTED_NON_EMPTY_CLONE",
    ),
    "clone over": Case(
        statement="CREATE OR REPLACE TABLE {t} SHALLOW CLONE delta.`{rows}`",
        set_up=("CREATE TABLE {t} (x INT) USING delta",),
        becomes={NAME: _ROWS},
        refusal="DELTA_UNSUPPORTED_NON_EMPTY_CLONE",
    ),
}
CATALOG: Mapping[str, Case] = {
    "drop": Case(
        statement="DROP TABLE {t}",
        set_up=("CREATE TABLE {t} USING delta AS " + _QUERY,),
        becomes={NAME: GONE},
        refusal=_NOT_FOUND,
    ),
    "drop at a place": Case(
        statement="DROP TABLE {t}",
        begins_with=ROWS,
        is_named=True,
        becomes={NAME: GONE},
        refusal=_NOT_FOUND,
    ),
    "rename": Case(
        statement="ALTER TABLE {t} RENAME TO {t}_new",
        set_up=("CREATE TABLE {t} USING delta AS " + _QUERY,),
        becomes={NAME: GONE, NEW_NAME: MOVED},
        refusal=_NOT_FOUND,
    ),
    "convert": Case(
        statement="CONVERT TO DELTA {t}",
        set_up=(
            "CREATE TABLE {t} (id INT, p INT) USING parquet PARTITIONED BY (p)",
            "INSERT INTO {t} VALUES (1, 1), (2, 2)",
            "ALTER TABLE {t} ADD PARTITION (p = 3) LOCATION '{p}'",
            "INSERT INTO {t} VALUES (3, 3)",
        ),
    ),
}
CASES = {**MAINTENANCE, **DEFINITIONS, **CREATIONS, **CATALOG}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A case with names and places of its own, somewhere below `home`."""

    home: Path
    case: str
    number: int

    @property
    def words(self) -> Case:
        return CASES[self.case]

    @property
    def name(self) -> str:
        return f"t{self.number}"

    @property
    def path(self) -> Path:
        return self.home / f"tä ble {self.number} 100%"

    @property
    def names(self) -> dict[str, str]:
        return {NAME: self.name, NEW_NAME: f"{self.name}_new"}

    def sql(self, text: str) -> str:
        return text.format(
            t=self.name,
            p=self.path,
            rows=template(self.home, ROWS),
            plain=template(self.home, PLAIN),
        )


def template(home: Path, name: str) -> Path:
    return home / f"tëmplate {name} 50%"


def make_templates(home: Path) -> None:
    """Make the tables that others begin with."""

    def rows(start: int, end: int) -> pa.Table:
        ids = range(start, end)
        return pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "p": pa.array([i % 3 for i in ids], pa.int32()),
                "s": [str(i % 4) for i in ids],
            }
        )

    vectors = {"delta.enableDeletionVectors": "true"}
    log = new_table(template(home, ROWS), rows(0, 30), configuration=vectors)
    append(log, rows(30, 60))
    delete_positions(log, lambda _: [0, 7, 21])
    log = new_table(template(home, PLAIN), rows(0, 30), partition_by=["p"])
    append(log, rows(30, 60))
    overwrite(log, rows(5, 50))


def prepare(spark: SparkSession, home: Path) -> None:
    """Make the database that the tables are in."""
    spark.sql(f"CREATE DATABASE {DATABASE} LOCATION '{home / 'dätabase 7%'}'")


def set_up(spark: SparkSession, tried: Tried) -> tuple[State, State]:
    """Make what the statement needs; what is seen before it, and what must be after it."""
    words = tried.words
    if words.begins_with is not None:
        shutil.copytree(template(tried.home, words.begins_with), tried.path)
    if words.is_named:
        spark.sql(f"CREATE TABLE {tried.name} USING delta LOCATION '{tried.path}'")
    for sql in words.set_up:
        spark.sql(tried.sql(sql))
    before = state(spark, tried)
    after = dict(before)
    for where, query in words.becomes.items():
        if query in (GONE, MOVED):
            after[where] = before[NAME] if query == MOVED else None
        else:
            after[where] = _seen(spark.sql(tried.sql(query)).toArrow())
    return before, after


def run(spark: SparkSession, tried: Tried) -> None:
    """Say the statement."""
    spark.sql(tried.sql(tried.words.statement))


def state(spark: SparkSession, tried: Tried) -> State:
    """What a new process sees: Spark by names, the kernel at the path."""
    spark.conf.unset(ALLOWED_LOCATIONS.key)  # a name must be enough
    found: State = {
        where: _seen(spark.table(name).toArrow()) if spark.catalog.tableExists(name) else None
        for where, name in tried.names.items()
    }
    log = _log(tried.path)
    allowed = [LocalStore(template(tried.home, ROWS))]  # whoever reads a clone says so
    found[PATH] = None if log is None else _seen(log.update().to_table(allowed_roots=allowed))
    return found


def check(spark: SparkSession, tried: Tried, before: State, after: State) -> bool:
    """What must be true after a kill; whether the statement was done."""
    seen = state(spark, tried)
    for key, value in seen.items():
        assert value in (before[key], after[key]), (key, value, before[key], after[key])
    _check_files(spark, tried)
    is_done = seen == after
    refusal = said_again(spark, tried)
    assert refusal is None or (is_done and refusal.startswith(f"[{tried.words.refusal}]")), refusal
    assert state(spark, tried) == after
    _check_files(spark, tried)
    _check_catalog(spark, tried)
    for log in _logs(spark, tried):
        # Who died behind the catalog left the note; a table that is known needs none.
        assert is_done or read_creation_note(log.store) is None
        rules = VacuumRules(checks_retention=False)
        run_vacuum(log, VacuumOptions(retention_hours=0), rules=rules)
    # What nobody refers to is gone now, and was not needed.
    assert state(spark, tried) == after
    return is_done


def said_again(spark: SparkSession, tried: Tried) -> str | None:
    """Say the statement; how it is refused, if it is."""
    try:
        run(spark, tried)
    except DeltaError as error:
        return f"[{error.condition}] {error}"
    except PySparkException as error:
        return f"[{error.getCondition()}] {error}"
    return None


def _seen(rows: pa.Table) -> list[str]:
    return [repr(rows.column_names), *sorted(repr(list(row.values())) for row in rows.to_pylist())]


def _log(path: Path) -> DeltaLog | None:
    log = DeltaLog.for_table(path)
    try:
        log.update()
    except TableNotFoundError:
        return None
    return log


def _logs(spark: SparkSession, tried: Tried) -> Iterator[DeltaLog]:
    """The logs of all tables of a case that are there, but for the templates'."""
    places = {tried.path}
    for name in tried.names.values():
        found = look_up(spark, name)
        assert found is not None
        if found.entry is not None and found.is_delta and found.location is not None:
            places.add(Path(found.location.removeprefix("file:")))
    places.discard(template(tried.home, ROWS))
    for place in places:
        log = _log(place)
        if log is not None:
            yield log


def _check_files(spark: SparkSession, tried: Tried) -> None:
    """Every file that a version names is there."""
    allowed = [LocalStore(template(tried.home, ROWS)), LocalStore(tried.path)]
    for log in _logs(spark, tried):
        newest = log.update().version
        for version in range(newest if tried.words.drops_old else 0, newest + 1):
            files = log.snapshot_at(version).files
            assert not missing_files(files, Locations(log.store, tuple(allowed))).num_rows


def _check_catalog(spark: SparkSession, tried: Tried) -> None:
    """What the catalog says of columns is what the log says."""
    for name in tried.names.values():
        found = look_up(spark, name)
        assert found is not None
        if found.entry is None:
            continue
        assert found.is_delta
        assert found.location is not None
        schema = DeltaLog.for_table(found.location.removeprefix("file:")).update().schema
        assert found.entry.schema == schema_for_catalog(schema)
