"""Features dropped by one engine from a table of the other, which then goes on with it."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pyspark_delta import DeltaLog
from pyspark_delta.errors import DeltaError
from pyspark_delta.kernel.protocol.features import protocol_text
from tests.interop.engines import Engine, Pair, table
from tests.support.peer import PeerError
from tests.support.tables import table_log

pytestmark = pytest.mark.slow

_HOUR = 3600
# Names that are drawn by lot.
_DRAWN = re.compile(r"_row-(?:id|commit-version)-col-[0-9a-f-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """How a table comes to use a feature; `t` in braces is the table."""

    properties: Mapping[str, str]
    steps: Sequence[str] = ()
    columns: str = "id LONG, v STRING"
    drops: Sequence[str] = ()


_FILL = (
    "INSERT INTO {t} SELECT /*+ COALESCE(1) */ id, concat('v', id) FROM range(6)",
    "INSERT INTO {t} VALUES (10L, 'x')",
)
CASES = {
    "deletionVectors": Case(
        properties={"delta.enableDeletionVectors": "true"},
        steps=(*_FILL, "DELETE FROM {t} WHERE id IN (2, 3)"),
    ),
    "columnMapping": Case(
        properties={"delta.columnMapping.mode": "name"},
        steps=(*_FILL, "ALTER TABLE {t} RENAME COLUMN v TO w"),
    ),
    "typeWidening": Case(
        properties={"delta.enableTypeWidening": "true"},
        columns="id INT, v STRING, s STRUCT<x: SMALLINT>",
        steps=(
            "INSERT INTO {t} VALUES (1, 'a', named_struct('x', 2S))",
            "ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT",
            "ALTER TABLE {t} ALTER COLUMN s.x TYPE INT",
            "INSERT INTO {t} VALUES (5000000000L, 'b', named_struct('x', 70000))",
        ),
    ),
    "v2Checkpoint": Case(
        properties={"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "2"},
        steps=_FILL,
    ),
    "vacuumProtocolCheck": Case(
        properties={"delta.feature.vacuumProtocolCheck": "supported"}, steps=_FILL
    ),
    "rowTracking": Case(
        properties={"delta.enableRowTracking": "true"},
        steps=_FILL,
        drops=("rowTracking", "domainMetadata"),
    ),
    "row tracking of rows that were there": Case(
        properties={},
        steps=(*_FILL, "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')"),
        drops=("rowTracking",),
    ),
    "inCommitTimestamp": Case(
        properties={},
        steps=(
            *_FILL,
            "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
        ),
    ),
    "checkConstraints": Case(
        properties={},
        steps=(
            *_FILL,
            "ALTER TABLE {t} ADD CONSTRAINT c CHECK (id >= 0)",
            "ALTER TABLE {t} DROP CONSTRAINT c",
        ),
    ),
    "materializePartitionColumns": Case(
        properties={"delta.enableMaterializePartitionColumnsFeature": "true"}, steps=_FILL
    ),
}


def make(engine: Engine, path: Path, case: Case) -> None:
    """A table that uses a feature, made by one engine."""
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in case.properties.items())
    told = f" TBLPROPERTIES ({listed})" if listed else ""
    run(engine, path, f"CREATE TABLE {{t}} ({case.columns}) USING delta{told}", *case.steps)


def run(engine: Engine, path: Path, *statements: str) -> None:
    """Statements of one engine on a table."""
    for statement in statements:
        engine.sql(statement.format(t=table(path)))
    DeltaLog.for_table(path).wait_for_hooks()


def condition(engine: Engine, path: Path, statement: str) -> str:
    """What an engine refuses a statement with."""
    try:
        run(engine, path, statement)
    except DeltaError as error:
        return error.condition
    except PeerError as error:
        found = re.search(r"\[(DELTA_\w+)\]", str(error))
        return str(error) if found is None else found[1]
    return "none"


def definition(path: Path) -> tuple[str, dict[str, Any]]:
    """Protocol and properties of a table."""
    snapshot = table_log(path).update()
    said = {k: _DRAWN.sub("*", v or "") for k, v in snapshot.metadata.configuration.items()}
    return protocol_text(snapshot.protocol), said


def history(pair: Pair, path: Path, first: int) -> list[dict[str, Any]]:
    """What commits say of themselves, from a version on, but for what nobody can foretell."""
    kept = ("operation", "operationParameters", "isolationLevel", "isBlindAppend", "readVersion")
    found = [{k: commit[k] for k in kept} for commit in pair.theirs.history(path)[first:]]
    for commit in found:
        parameters = dict(commit["operationParameters"])
        if "newProtocol" in parameters:
            protocol = json.loads(parameters["newProtocol"])
            parameters["newProtocol"] = {
                key: sorted(value) if isinstance(value, list) else value
                for key, value in protocol.items()
                if value is not None
            }
        if "properties" in parameters:
            # Names of features count in any case, and engines differ in which they keep.
            parameters["properties"] = parameters["properties"].lower()
        if "columns" in parameters:
            parameters["columns"] = json.loads(parameters["columns"])
        commit["operationParameters"] = parameters
    return found


@pytest.mark.parametrize("name", list(CASES))
def test_each_engine_drops_what_the_other_used(pair: Pair, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    theirs_made, ours_made = tmp_path / "thëirs 100%", tmp_path / "öurs 100%"
    make(pair.theirs, theirs_made, case)
    make(pair.ours, ours_made, case)
    before = table_log(theirs_made).update().version
    assert table_log(ours_made).update().version == before
    rows = pair.agree(theirs_made).rows
    for feature in case.drops or (name,):
        for engine, path in ((pair.ours, theirs_made), (pair.theirs, ours_made)):
            run(engine, path, f"ALTER TABLE {{t}} DROP FEATURE {feature}")
            assert pair.agree(path).rows == rows
        assert definition(theirs_made) == definition(ours_made)
        assert feature not in definition(ours_made)[0]
    assert history(pair, theirs_made, before + 1) == history(pair, ours_made, before + 1)
    names = table_log(ours_made).update().schema.names
    more = "INSERT INTO {t} (id, " + names[1] + ") VALUES (100L, 'more')"
    for engine, path in ((pair.theirs, theirs_made), (pair.ours, ours_made)):
        run(engine, path, more, "DELETE FROM {t} WHERE id = 1")
        assert len(pair.agree(path).rows) == len(rows)
    theirs, ours = (len(pair.agree(p, versionAsOf=before).rows) for p in (theirs_made, ours_made))
    assert theirs == ours == len(rows)


def test_enabling_row_tracking_is_the_same_to_the_last_commit(pair: Pair, tmp_path: Path) -> None:
    case = CASES["row tracking of rows that were there"]
    one, other = tmp_path / "ä", tmp_path / "ö"
    make(pair.theirs, one, case)
    make(pair.ours, other, case)
    assert history(pair, one, 3) == history(pair, other, 3)
    assert definition(one) == definition(other)
    ids = "SELECT id, _metadata.row_id AS i, _metadata.row_commit_version AS c FROM {t} ORDER BY id"
    for path in (one, other):
        text = ids.format(t=table(path))
        assert pair.ours.sql(text) == pair.theirs.sql(text)


def _grow_old(path: Path, hours: int) -> None:
    """Let every log file be older, each commit by a second less than the one before."""
    now = time.time() - hours * _HOUR
    for file in sorted((path / "_delta_log").iterdir()):
        if file.name[:20].isdigit():
            at = now + int(file.name[:20])
            os.utime(file, (at, at))


def test_history_is_truncated_by_either_engine(pair: Pair, tmp_path: Path) -> None:
    case = CASES["deletionVectors"]
    statement = "ALTER TABLE {t} DROP FEATURE deletionVectors TRUNCATE HISTORY"
    found = {}
    for label, engine in (("ours", pair.ours), ("theirs", pair.theirs)):
        path = tmp_path / f"{label} ü"
        make(pair.theirs if label == "ours" else pair.ours, path, case)
        refused = [condition(engine, path, statement)]
        refused.append(condition(engine, path, statement))
        _grow_old(path, 30)
        run(engine, path, statement)
        rows = pair.agree(path).rows
        # How much more than is needed goes is each engine's own affair.
        first = min(file.name for file in (path / "_delta_log").glob("*.json"))
        found[label] = (refused, definition(path), rows, int(first[:20]) > 5)
        run(pair.theirs, path, "INSERT INTO {t} VALUES (100L, 'more')")
        assert len(pair.agree(path).rows) == len(rows) + 1
    assert found["ours"] == found["theirs"]
    assert found["ours"][0] == [
        "DELTA_FEATURE_DROP_WAIT_FOR_RETENTION_PERIOD",
        "DELTA_FEATURE_DROP_HISTORICAL_VERSIONS_EXIST",
    ]


def test_protection_is_dropped_with_what_it_protects(pair: Pair, tmp_path: Path) -> None:
    case = CASES["vacuumProtocolCheck"]
    statement = "ALTER TABLE {t} DROP FEATURE checkpointProtection TRUNCATE HISTORY"
    found = {}
    for label, engine in (("ours", pair.ours), ("theirs", pair.theirs)):
        path = tmp_path / f"{label} ü"
        other = pair.theirs if label == "ours" else pair.ours
        make(other, path, case)
        run(other, path, "ALTER TABLE {t} DROP FEATURE vacuumProtocolCheck")
        refused = condition(engine, path, statement)
        _grow_old(path, 30)
        run(engine, path, statement)
        found[label] = (refused, definition(path), pair.agree(path).rows)
    assert found["ours"] == found["theirs"]
    assert found["ours"][1][0] == "1,2"


def test_what_is_refused_is_refused_alike(pair: Pair, tmp_path: Path) -> None:
    path = tmp_path / "täble"
    case = Case(
        properties={
            "delta.enableRowTracking": "true",
            "delta.columnMapping.mode": "name",
            "delta.feature.checkpointProtection": "supported",
            "delta.constraints.c": "id > 0",
        },
        columns="id LONG, `a b` STRING",
    )
    make(pair.theirs, path, case)
    version = table_log(path).update().version
    for wrong in (
        "DROP FEATURE nonsense",
        "DROP FEATURE appendOnly",
        "DROP FEATURE deletionVectors",
        "DROP FEATURE clustering",
        "DROP FEATURE domainMetadata",
        "DROP FEATURE checkConstraints",
        "DROP FEATURE checkpointProtection",
        "DROP FEATURE rowTracking TRUNCATE HISTORY",
        "DROP FEATURE columnMapping",
        "DROP FEATURE 'delta.enableRowTracking'",
        "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')",
        "SET TBLPROPERTIES ('delta.rowTrackingSuspended' = 'true')",
        "SET TBLPROPERTIES ('delta.feature.nonsense' = 'supported')",
    ):
        statement = f"ALTER TABLE {{t}} {wrong}"
        theirs = condition(pair.theirs, path, statement)
        assert theirs.startswith("DELTA_"), wrong
        assert condition(pair.ours, path, statement) == theirs, wrong
    assert table_log(path).update().version == version


_PROTOCOL = """
handle = DeltaTable.forPath(spark, path)
for reader, writer in ((1, 3), (1, 2), (2, 5)):
    handle.upgradeTableProtocol(reader, writer)
handle.addFeatureSupport("deletionVectors")
handle.addFeatureSupport("domainMetadata")
handle.dropFeatureSupport("domainMetadata")
handle.dropFeatureSupport("deletionVectors", False)
"""


def test_python_changes_protocols_alike(pair: Pair, tmp_path: Path) -> None:
    found = []
    for label, engine in (("ours", pair.ours), ("theirs", pair.theirs)):
        path = tmp_path / f"{label} ü"
        make(engine, path, Case(properties={}))
        engine.python(_PROTOCOL, path=path)
        found.append((definition(path), history(pair, path, 1)))
    assert found[0][0] == found[1][0]
    for ours, theirs in zip(found[0][1], found[1][1], strict=True):
        assert ours == theirs
