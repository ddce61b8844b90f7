"""RESTORE, SHALLOW CLONE and manifests by each engine: same rows, same result, same history."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_delta.spark.conf.setting_table import ALLOWED_LOCATIONS
from tests.interop.engines import Engine, Pair
from tests.support.canonical import json_rows

STEPS = """
import json
from tests.support.canonical import json_rows

def do(text):
    return [json.loads(row) for row in json_rows(spark.sql(text))]

def save(frame, path, mode="append", *partitions):
    writer = frame.coalesce(1).write.format("delta").mode(mode)
    writer.partitionBy(*partitions).save(path)

def refused(text):
    try:
        spark.sql(text).collect()
    except Exception as error:
        return getattr(error, "getCondition", lambda: None)()
    return "nothing"
"""
RESTORES = (
    STEPS
    + """
t = f"delta.`{path}`"
do(f"CREATE TABLE {t} (id BIGINT, p STRING) USING delta PARTITIONED BY (p) TBLPROPERTIES "
   "('delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true', 'own' = '1')")
save(spark.range(0, 10).selectExpr("id", "'a b%' AS p"), path)
DeltaTable.forPath(spark, path).delete("id = 3")
save(spark.range(20, 22).selectExpr("id", "'ü' AS p"), path, "overwrite")
result = [
    do(f"RESTORE TABLE {t} TO VERSION AS OF 1"),
    do(f"RESTORE {t} TO VERSION AS OF 2"),
    do(f"RESTORE {t} FOR SYSTEM_VERSION AS OF 3"),
    do(f"RESTORE {t} TO VERSION AS OF 6"),
    refused(f"RESTORE {t} TO VERSION AS OF 99"),
    refused(f"RESTORE {t} TO TIMESTAMP AS OF '2050-01-01'"),
    refused(f"RESTORE {t} TO TIMESTAMP AS OF '1999-01-01'"),
    refused(f"RESTORE {t} TO VERSION"),
    [str(d) for d in DeltaTable.forPath(spark, path).restoreToVersion(2).dtypes],
]
"""
)
CLONES = (
    STEPS
    + """
s, c, d = f"delta.`{source}`", f"delta.`{clone}`", f"delta.`{again}`"
do(f"CREATE TABLE {s} (id BIGINT, p STRING) USING delta PARTITIONED BY (p) COMMENT 'söme' "
   "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', 'own' = '1')")
save(spark.range(0, 10).selectExpr("id", "'a b%' AS p"), source)
DeltaTable.forPath(spark, source).delete("id = 3")
result = [
    do(f"CREATE TABLE {c} SHALLOW CLONE {s} TBLPROPERTIES ('own' = '2')"),
    do(f"CREATE TABLE {d} SHALLOW CLONE {c} VERSION AS OF 0"),
    refused(f"REPLACE TABLE delta.`{clone}x` SHALLOW CLONE {s}"),
    refused(f"CREATE TABLE delta.`{clone}x` DEEP CLONE {s}"),
    refused(f"CREATE TABLE delta.`{clone}x` SHALLOW CLONE {s} LOCATION '{clone}y'"),
    refused(f"CREATE TABLE delta.`{clone}x` SHALLOW CLONE {s} VERSION AS OF 77"),
    refused(f"CREATE TABLE delta.`{clone}x` SHALLOW CLONE {s} "
            "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"),
]
DeltaTable.forPath(spark, clone).delete("id = 4")
DeltaTable.forPath(spark, again).update("id = 5", {"id": F.lit(50)})
"""
)
MANIFESTS = (
    STEPS
    + """
t = f"delta.`{path}`"
save(spark.range(0, 4).selectExpr("id", "concat('ä %', id % 2) AS p"), path, "append", "p")
result = [
    do(f"GENERATE symlink_format_manifest FOR TABLE {t}"),
    refused(f"GENERATE something FOR TABLE {t}"),
]
"""
)


@pytest.fixture
def free(pair: Pair) -> Iterator[Pair]:
    """Both engines, ours letting logs name whatever they like below the tests' directory."""
    yield pair
    pair.ours.spark.conf.unset(ALLOWED_LOCATIONS.key)


def told(results: list[Any]) -> list[Any]:
    """Results without what differs: the sizes of files."""
    return [
        [{k: v for k, v in row.items() if "size" not in k} for row in each]
        if isinstance(each, list) and each and isinstance(each[0], dict)
        else each
        for each in results
    ]


def metadata_of(path: Path) -> dict[str, Any]:
    """What the newest metadata action says, but for what no two tables share."""
    found: dict[str, Any] = {}
    for commit in sorted((path / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            found = action.get("metaData", found)
    return {k: v for k, v in found.items() if k not in ("id", "createdTime")}


def history(pair: Pair, path: Path) -> list[dict[str, Any]]:
    """The restores and clones of a history, without sizes and the places of tables."""
    told = pair.theirs.history(path)
    commits = [commit for commit in told if commit["operation"] in ("RESTORE", "CLONE")]
    for commit in commits:
        commit["operationMetrics"] = {
            k: v for k, v in commit["operationMetrics"].items() if "Size" not in k
        }
        if "source" in (commit["operationParameters"] or {}):
            source = commit["operationParameters"]["source"]
            commit["operationParameters"]["source"] = source.replace(str(path.parent), "~")
    return commits


@pytest.mark.slow
def test_a_restore_leaves_the_same_table_on_both_sides(pair: Pair, tmp_path: Path) -> None:
    paths = {"ours": tmp_path / "öurs 1%", "theirs": tmp_path / "theirs"}
    found = {name: getattr(pair, name).python(RESTORES, path=path) for name, path in paths.items()}
    assert told(found["ours"]) == told(found["theirs"])
    ours, theirs = paths["ours"], paths["theirs"]
    assert pair.agree(ours) == pair.agree(theirs)
    for version in (4, 5):
        assert pair.agree(ours, versionAsOf=version) == pair.agree(theirs, versionAsOf=version)
    assert history(pair, ours) == history(pair, theirs)
    assert metadata_of(ours) == metadata_of(theirs)
    assert pair.theirs.changes(ours, 4) == pair.theirs.changes(theirs, 4)
    feed = pair.ours.spark.read.format("delta").option("readChangeFeed", "true")
    changes = feed.option("startingVersion", "4").load(str(ours)).drop("_commit_timestamp")
    assert [json.loads(row) for row in json_rows(changes, sort=True)] == pair.theirs.changes(
        ours, 4
    )


@pytest.mark.slow
def test_each_engine_reads_and_changes_the_clones_of_the_other(free: Pair, tmp_path: Path) -> None:
    pair = free
    pair.ours.spark.conf.set(ALLOWED_LOCATIONS.key, str(tmp_path))
    places: dict[str, dict[str, Path]] = {}
    results: dict[str, list[Any]] = {}
    for name, directory in (("ours", "öurs 1%"), ("theirs", "theirs")):
        home = tmp_path / directory
        places[name] = {key: home / f"{key} ü" for key in ("source", "clone", "again")}
        engine: Engine = getattr(pair, name)
        results[name] = engine.python(CLONES, **places[name])
    assert told(results["ours"]) == told(results["theirs"])
    ours, theirs = places["ours"], places["theirs"]
    for key in ("source", "clone", "again"):
        assert pair.agree(ours[key]) == pair.agree(theirs[key])
        assert history(pair, ours[key]) == history(pair, theirs[key])
        assert metadata_of(ours[key]) == metadata_of(theirs[key])
    # Each goes on with the other's clone, and clones it again.
    before = pair.agree(theirs["source"])
    code = "DeltaTable.forPath(spark, path).delete('id < 2')"
    pair.ours.python(code, path=theirs["clone"])
    pair.theirs.python(code, path=ours["clone"])
    assert pair.agree(ours["clone"]) == pair.agree(theirs["clone"])
    assert len(pair.agree(ours["clone"]).rows) == 6
    text = "CREATE TABLE delta.`{}` SHALLOW CLONE delta.`{}`"
    pair.ours.sql(text.format(tmp_path / "third", theirs["clone"]))
    pair.theirs.sql(text.format(tmp_path / "fourth", ours["clone"]))
    assert pair.agree(tmp_path / "third") == pair.agree(tmp_path / "fourth")
    assert pair.agree(theirs["source"]) == before


def test_manifests_name_the_same_files(pair: Pair, tmp_path: Path) -> None:
    found = {}
    for name, directory in (("ours", "öurs 1%"), ("theirs", "thëirs 1%")):
        path = tmp_path / directory
        engine: Engine = getattr(pair, name)
        results = engine.python(MANIFESTS, path=path)
        manifests = (path / "_symlink_format_manifest").rglob("manifest")
        found[name] = (
            results,
            {
                str(file.parent.relative_to(path)): [
                    line.replace(directory, "~").rpartition("/")[0]
                    for line in file.read_text().splitlines()
                ]
                for file in manifests
            },
        )
        lines = [
            line
            for file in (path / "_symlink_format_manifest").rglob("manifest")
            for line in file.read_text().splitlines()
        ]
        assert all(Path(line.removeprefix("file:")).exists() for line in lines)
    assert found["ours"] == found["theirs"]
    # What one wrote the other writes again, to the letter.
    ours = tmp_path / "öurs 1%"
    root = ours / "_symlink_format_manifest"
    before = {file: sorted(file.read_text().splitlines()) for file in root.rglob("manifest")}
    pair.theirs.sql(f"GENERATE symlink_format_manifest FOR TABLE delta.`{ours}`")
    after = {file: sorted(file.read_text().splitlines()) for file in root.rglob("manifest")}
    assert before == after
