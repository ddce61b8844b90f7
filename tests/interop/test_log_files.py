"""Checkpoints, checksums and compactions of either engine, read by the other as the only source."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pyspark_delta.kernel.log.checksum import checksum_of, mismatches, read_checksum
from pyspark_delta.kernel.log.compaction import write_compaction
from tests.interop.engines import Engine, Pair, SetTheirs, table
from tests.interop.samples import sampled
from tests.support.tables import table_log

PARTITIONED = "SELECT id, id % 3 AS p, timestamp_micros(id) AS t, named_struct('x', id) AS s"
CHECKSUM = """
log = spark._jvm.org.apache.spark.sql.delta.DeltaLog
log.clearCache()
snapshot = log.forTable(spark._jsparkSession, path).unsafeVolatileSnapshot()
found = snapshot.checksumOpt()
nothing = getattr(snapshot, "validateChecksum$default$1")()
result = found.isDefined() and [snapshot.version(), snapshot.validateChecksum(nothing)]
"""
FORGET = "spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()"


def rows(first: int, last: int) -> str:
    return f"{PARTITIONED} FROM range({first}, {last})"


def log_names(path: Path) -> list[str]:
    return sorted(each.name for each in (path / "_delta_log").iterdir())


def checkpoints(path: Path) -> list[str]:
    return [name for name in log_names(path) if ".checkpoint." in name]


def only_the_checkpoint_left(pair: Pair, path: Path, version: int) -> None:
    """Take away the commits before a version and all checksums, so that the checkpoint counts."""
    for each in list((path / "_delta_log").iterdir()):
        number = each.name.partition(".")[0]
        if each.suffix == ".crc" or (each.suffix == ".json" and number.isdecimal()):
            is_commit = re.fullmatch(r"\d{20}\.json", each.name)
            if each.suffix == ".crc" or (is_commit and int(number) < version):
                each.unlink()
    table_log(path).clear_cache()
    pair.theirs.python(FORGET)


OURS: dict[str, dict[str, Any]] = {
    "classic": {},
    "multi-part": {"part_size": 2},
    "v2 json": {"v2_format": "json", "part_size": 2},
    "v2 parquet": {"v2_format": "parquet"},
}


@pytest.mark.parametrize("kind", sampled("classic", OURS))
def test_the_peer_reads_our_checkpoints(pair: Pair, table_path: Path, kind: str) -> None:
    policy = {"delta_checkpointPolicy": "v2"} if kind.startswith("v2") else {}
    pair.ours.write(rows(0, 9), table_path, partition_by=["p"], **policy)
    pair.ours.write(rows(9, 12), table_path, txnAppId="app", txnVersion=7)
    pair.ours.write(rows(20, 22), table_path, mode="overwrite")
    pair.ours.write(rows(30, 40), table_path)
    table_log(table_path).checkpoint(**OURS[kind])
    assert (len(checkpoints(table_path)) > 1) == (kind == "multi-part")
    only_the_checkpoint_left(pair, table_path, 3)
    assert len(pair.agree(table_path).rows) == 12
    pair.agree_on(table_path, ["p = 1", "id = 35", "s.x > 38", "t IS NULL"])
    pair.theirs.write(rows(50, 52), table_path)
    pair.ours.write(rows(52, 53), table_path)
    assert len(pair.agree(table_path).rows) == 15


THEIRS = {
    "classic": {},
    "multi-part": {"spark.databricks.delta.checkpoint.partSize": "3"},
    "v2 json": {"spark.databricks.delta.checkpointV2.topLevelFileFormat": "json"},
    "v2 parquet": {
        "spark.databricks.delta.checkpointV2.topLevelFileFormat": "parquet",
        "spark.databricks.delta.checkpoint.partSize": "3",
    },
}


@pytest.mark.parametrize("kind", sampled("v2 json", THEIRS))
@pytest.mark.parametrize("stats", sampled("struct", ("json", "struct")))
def test_we_read_the_peers_checkpoints(
    pair: Pair, table_path: Path, set_theirs: SetTheirs, kind: str, stats: str
) -> None:
    for key, value in THEIRS[kind].items():
        set_theirs(key, value)
    policy = {"delta_checkpointPolicy": "v2"} if kind.startswith("v2") else {}
    pair.theirs.write(
        rows(0, 9),
        table_path,
        partition_by=["p"],
        delta_checkpointInterval="3",
        delta_checkpoint_writeStatsAsJson=str(stats == "json").lower(),
        delta_checkpoint_writeStatsAsStruct=str(stats == "struct").lower(),
        delta_enableDeletionVectors="true",
        **policy,
    )
    pair.ours.write(rows(9, 12), table_path, txnAppId="app", txnVersion=7)
    pair.theirs.sql(f"DELETE FROM {table(table_path)} WHERE id IN (1, 5)")
    pair.theirs.write(rows(30, 40), table_path)
    assert checkpoints(table_path)
    only_the_checkpoint_left(pair, table_path, 3)
    assert len(pair.agree(table_path).rows) == 20
    pair.agree_on(table_path, ["p = 1", "id = 35", "s.x > 38", "id = 5"])
    assert table_log(table_path).snapshot.transactions["app"].version == 7


@pytest.mark.slow
def test_the_peer_believes_our_checksums(pair: Pair, table_path: Path) -> None:
    pair.ours.write(rows(0, 9), table_path, partition_by=["p"], delta_enableDeletionVectors="true")
    for step in range(3):
        pair.ours.write(rows(step, 12), table_path, txnAppId=f"a{step}", txnVersion=step)
    pair.ours.write(rows(0, 2), table_path, mode="overwrite")
    assert pair.theirs.python(CHECKSUM, path=table_path) == [4, True]
    pair.theirs.sql(f"DELETE FROM {table(table_path)} WHERE id = 1")
    pair.ours.write(rows(5, 6), table_path)
    assert pair.theirs.python(CHECKSUM, path=table_path) == [6, True]


@pytest.mark.slow
def test_we_believe_the_peers_checksums(pair: Pair, table_path: Path) -> None:
    pair.theirs.write(
        rows(0, 9),
        table_path,
        partition_by=["p"],
        delta_enableDeletionVectors="true",
        delta_enableRowTracking="true",
        delta_enableInCommitTimestamps="true",
    )
    pair.theirs.sql(f"DELETE FROM {table(table_path)} WHERE id = 1")
    pair.ours.write(rows(5, 6), table_path)
    pair.theirs.sql(f"OPTIMIZE {table(table_path)}")
    log = table_log(table_path)
    for version in range(4):
        found = read_checksum(log.store, version)
        assert found is not None
        state = log.snapshot_at(version)
        whole = checksum_of(
            state.files,
            protocol=state.protocol,
            metadata=state.metadata,
            transactions=state.transactions.values(),
            domains=state.domains.values(),
        )
        assert mismatches(found, whole) == []


@pytest.mark.slow
def test_a_checksum_of_ours_has_the_keys_of_theirs(pair: Pair, tmp_path: Path) -> None:
    keys = []
    for name, engine in (("ö %", pair.ours), ("t", pair.theirs)):
        engine.write(rows(0, 9), tmp_path / name, partition_by=["p"])
        engine.write(rows(0, 9), tmp_path / name, txnAppId="a", txnVersion=1)
        text = (tmp_path / name / "_delta_log" / f"{1:020}.crc").read_text()
        keys.append(list(json.loads(text)))
    # delta-spark leaves the list of files out while it can be had from the log at no cost.
    assert sorted(set(keys[0]) - {"allFiles"}) == sorted(set(keys[1]) - {"allFiles"})


@pytest.mark.slow
def test_the_peer_reads_our_compactions(pair: Pair, writer: Engine, table_path: Path) -> None:
    for step in range(5):
        writer.write(rows(step, step + 2), table_path, mode="overwrite" if step == 2 else "append")
    write_compaction(table_log(table_path).store, 1, 3)
    pair.theirs.python(FORGET)
    assert len(pair.agree(table_path).rows) == 6
    segment = pair.theirs.python(
        "log = spark._jvm.org.apache.spark.sql.delta.DeltaLog\n"
        "snapshot = log.forTable(spark._jsparkSession, path).unsafeVolatileSnapshot()\n"
        "result = str(snapshot.logSegment().deltas())",
        path=table_path,
    )
    assert ".compacted.json" in segment


@pytest.mark.slow
@pytest.mark.parametrize("feature", ["none", "in-commit"])
def test_times_mean_the_same_version_to_both(
    pair: Pair, writer: Engine, table_path: Path, feature: str
) -> None:
    on = {"delta_enableInCommitTimestamps": "true"} if feature == "in-commit" else {}
    writer.write("SELECT 0 AS id", table_path, **on)
    for number, engine in ((1, pair.ours), (2, pair.theirs), (3, pair.ours)):
        engine.write(f"SELECT {number} AS id", table_path)
    history = pair.theirs.sql(f"DESCRIBE HISTORY {table(table_path)}")
    assert [commit["version"] for commit in history] == [3, 2, 1, 0]
    for commit in history:
        for options in (
            {"versionAsOf": commit["version"]},
            {"timestampAsOf": commit["timestamp"]},
        ):
            found = pair.agree(table_path, **options)
            assert len(found.rows) == commit["version"] + 1
    ours = pair.ours.read(f"{table_path}@v2")
    assert ours == pair.theirs.read(f"{table_path}@v2")
    times = [info.timestamp for info in table_log(table_path).history()]
    theirs = pair.theirs.python(
        "frame = spark.sql(text)\n"
        "result = [row[0] for row in frame.select(F.unix_millis('timestamp')).collect()]",
        text=f"DESCRIBE HISTORY {table(table_path)}",
    )
    assert times == theirs


@pytest.mark.slow
def test_transactions_of_applications_are_shared(pair: Pair, table_path: Path) -> None:
    for engine in (pair.ours, pair.theirs):
        for _ in range(2):
            engine.write("SELECT 1 AS id", table_path, txnAppId="app", txnVersion=1)
    assert len(pair.agree(table_path).rows) == 1
    pair.theirs.write("SELECT 2 AS id", table_path, txnAppId="app", txnVersion=2)
    pair.ours.write("SELECT 2 AS id", table_path, txnAppId="app", txnVersion=2)
    assert len(pair.agree(table_path).rows) == 2
