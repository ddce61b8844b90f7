"""The same MERGE commands by both engines: the same rows, feed, history, ids and results."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.interop.engines import Engine, Pair

FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}
TRACKED = {"delta.enableRowTracking": "true"}
# Properties of a table, and whether it has partitions.
KINDS: dict[str, tuple[dict[str, str], bool]] = {
    "copies": ({}, False),
    "copies in partitions": ({**TRACKED, **FEED}, True),
    "vectors": ({**VECTORS, **FEED}, False),
    "vectors in partitions": (
        {**VECTORS, **TRACKED, **FEED, "delta.columnMapping.mode": "name"},
        True,
    ),
}
# Which scripts run on which tables: each on several, and each kind of table with several.
CASES = [
    ("small", "copies"),
    ("small", "vectors in partitions"),
    ("more", "copies in partitions"),
    ("more", "vectors"),
    ("evolved", "copies"),
    ("evolved", "vectors in partitions"),
    ("filled", "copies in partitions"),
    ("filled", "vectors"),
]
# Engines are free in how they spread rows over files, and how large these become.
SPREAD = (
    "numTargetFilesAdded",
    "numTargetChangeFilesAdded",
    "numTargetBytesAdded",
    "numTargetBytesRemoved",
)
# Without vectors, delta-spark writes files anew of which rows matched, or could have for clauses
# on rows without a match, though no row of them changes.  Here such files stay.
REWRITTEN = ("numTargetRowsCopied", "numOutputRows", "numTargetFilesRemoved")
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
OUTPUT = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsCopied")
RUN = """
from tests.interop import merges
merges.create(spark, script, properties, partitioned, path)
result = merges.run(spark, DeltaTable, script, path)
"""
IDS = """
from tests.support.canonical import json_rows
table = spark.read.format("delta").load(path)
found = table.select("id", "_metadata.row_id", "_metadata.row_commit_version")
result = json_rows(found, sort=True)
"""


def history(pair: Pair, path: Path, free: tuple[str, ...]) -> list[dict[str, Any]]:
    """What each commit says; columns without the numbers by which plans tell them apart.

    Metrics of `free` are left out.
    """
    told = pair.theirs.history(path)
    for commit in told:
        parameters = commit["operationParameters"]
        for key in parameters:
            if key.lower().endswith(("predicate", "predicates")):
                parameters[key] = re.sub(r"#\d+", "#", parameters[key])
        if "properties" in parameters:
            # In no order, and with names of columns that nobody has twice.
            parameters["properties"] = json.loads(UUID.sub("*", parameters["properties"]))
        metrics = commit["operationMetrics"]
        if commit["operation"] == "MERGE":
            assert int(metrics["numOutputRows"]) == sum(int(metrics[key]) for key in OUTPUT)
        for metric in free:
            metrics.pop(metric, None)
    return told


def differing(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """What two commits say differently, and of which step they are."""
    found = {
        f"{part}.{key}": (ours[part].get(key), theirs[part].get(key))
        for part in ("operationParameters", "operationMetrics")
        for key in ours[part] | theirs[part]
        if ours[part].get(key) != theirs[part].get(key)
    }
    others = {key: (ours[key], theirs[key]) for key in ours if not isinstance(ours[key], dict)}
    found |= {key: both for key, both in others.items() if both[0] != both[1]}
    return {"of": theirs["userMetadata"], **found}


def assert_same(pair: Pair, tmp_path: Path, script: str, kind: str) -> dict[str, Any]:
    """Run a script by both, and compare all there is to compare; what each step gave."""
    properties, partitioned = KINDS[kind]
    paths = tmp_path / "öurs 1%", tmp_path / "theirs"
    engines: tuple[Engine, Engine] = (pair.ours, pair.theirs)
    told: list[dict[str, Any]] = [
        engine.python(RUN, script=script, properties=properties, partitioned=partitioned, path=path)
        for engine, path in zip(engines, paths, strict=True)
    ]
    assert told[0] == told[1]
    assert pair.agree(paths[0]) == pair.agree(paths[1])
    free = SPREAD if VECTORS.items() <= properties.items() else SPREAD + REWRITTEN
    commits = zip(*(history(pair, path, free) for path in paths), strict=True)
    assert [differing(*both) for both in commits if both[0] != both[1]] == []
    if FEED.items() <= properties.items():
        assert pair.theirs.changes(paths[0]) == pair.theirs.changes(paths[1])
        pair.agree(paths[0], readChangeFeed="true", startingVersion=0)
    if TRACKED.items() <= properties.items():
        assert_same_ids(pair, *paths)
    return told[0]


def assert_same_ids(pair: Pair, ours: Path, theirs: Path) -> None:
    """Rows keep their ids; new ones have new ids, in an order that engines may choose."""
    found = []
    for path in (ours, theirs):
        known = len(pair.theirs.read(path, versionAsOf=1).rows)
        rows = [json.loads(row) for row in pair.theirs.python(IDS, path=path)]
        assert len({row["row_id"] for row in rows}) == len(rows)
        found.append([{**row, "row_id": min(row["row_id"], known)} for row in rows])
        assert pair.ours.python(IDS, path=path) == pair.theirs.python(IDS, path=path)
    assert found[0] == found[1]


def test_a_few_commands_leave_the_same_rows_feed_and_history(pair: Pair, tmp_path: Path) -> None:
    told = assert_same(pair, tmp_path, "sample", "vectors in partitions")
    assert told["upsert"] == {
        "num_affected_rows": 3,
        "num_updated_rows": 1,
        "num_deleted_rows": 0,
        "num_inserted_rows": 2,
    }
    assert told["more than once"].startswith("DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW")


@pytest.mark.slow
@pytest.mark.parametrize(("script", "kind"), CASES)
def test_scripts_leave_the_same_rows_feed_and_history(
    pair: Pair, tmp_path: Path, script: str, kind: str
) -> None:
    assert_same(pair, tmp_path, script, kind)
