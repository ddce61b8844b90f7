"""One stream, two engines: each goes on from the checkpoint that the other left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.interop.engines import Ours, Pair, Theirs, table
from tests.support.peer import PeerError
from tests.support.streams import offsets

_DRAIN = """
found = []

def take(data, number):
    found.append(sorted([list(row) for row in data.select(*columns).collect()], key=str))

reader = spark.readStream.format("delta").options(**options)
if schema:
    reader = reader.schema(schema)
stream = reader.load(path) if "/" in path else reader.table(path)
if files:
    other = spark.readStream.schema("id LONG").json(files).select("id")
    stream = stream.select("id")
    stream = other.union(stream) if files_come_first else stream.union(other)
query = (
    stream.writeStream.option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .foreachBatch(take)
    .start()
)
try:
    query.awaitTermination(60)
finally:
    query.stop()
result = found
"""


def batches(
    engine: Ours | Theirs, path: Path, checkpoint: Path, *columns: str, **options: object
) -> list[list[list[Any]]]:
    """What each batch of a run of the engine held."""
    return _run(engine, path, checkpoint, columns, options)


def batches_with_files(
    engine: Ours | Theirs, path: Path, checkpoint: Path, files: Path, *, first: bool = False
) -> list[list[list[Any]]]:
    """The same of a stream of JSON files beside the table, in front of it or behind it."""
    return _run(engine, path, checkpoint, (), {}, files=str(files), files_come_first=first)


def _run(
    engine: Ours | Theirs,
    path: Path,
    checkpoint: Path,
    columns: Sequence[str],
    options: Mapping[str, object],
    *,
    files: str = "",
    files_come_first: bool = False,
    schema: str = "",
) -> list[list[list[Any]]]:
    found: list[list[list[Any]]] = engine.python(
        _DRAIN,
        path=path,
        checkpoint=checkpoint,
        columns=list(columns) or ["id"],
        files=files,
        files_come_first=files_come_first,
        schema=schema,
        options={key: str(value) for key, value in options.items()},
    )
    return found


def test_a_stream_goes_back_and_forth(
    pair: Pair, writer: Ours | Theirs, table_path: Path, tmp_path: Path
) -> None:
    """Whoever begins it, in the middle of the table or of a commit: nothing twice, nothing lost."""
    other = pair.theirs if writer is pair.ours else pair.ours
    for number in range(5):
        writer.write(f"SELECT {number}L AS id, 'p {number % 2}' AS p", table_path)
    both = [writer, other]
    ours_alone, told = tmp_path / "alone", tmp_path / "chéck point"
    alone = batches(pair.ours, table_path, ours_alone, maxFilesPerTrigger=2)
    assert batches(pair.theirs, table_path, told, maxFilesPerTrigger=2) == alone
    assert offsets(ours_alone) == offsets(told)
    for turn in range(4):
        other.write(f"SELECT id FROM range({10 * turn + 10}, {10 * turn + 13})", table_path)
        found = batches(both[turn % 2], table_path, told, maxFilesPerTrigger=1)
        assert sorted(row[0] for batch in found for row in batch) == [
            10 * turn + 10 + i for i in range(3)
        ]
        assert batches(both[(turn + 1) % 2], table_path, told) == []


def test_a_stream_may_be_given_the_schema_of_its_table(
    pair: Pair, db: str, table_path: Path, tmp_path: Path
) -> None:
    """By name; by path delta-spark 4.4 lets Spark refuse any schema, and ours takes the table's."""
    text = "SELECT id, CAST(id % 2 AS STRING) AS p FROM range(6)"
    pair.theirs.write(text, table_path, partition_by=["p"])
    expected = [[[number, str(number % 2)] for number in range(6)]]
    own = "id BIGINT, p STRING"

    def given(engine: Ours | Theirs, place: Path, checkpoint: str) -> object:
        return _run(engine, place, tmp_path / checkpoint, ["id", "p"], {}, schema=own)

    for name, engine in (("ours", pair.ours), ("theirs", pair.theirs)):
        engine.sql(f"CREATE TABLE t USING delta LOCATION '{table_path}'")
        assert given(engine, Path("t"), name) == expected
    assert offsets(tmp_path / "ours") == offsets(tmp_path / "theirs")
    assert given(pair.ours, table_path, "by path") == expected
    with pytest.raises(PeerError, match="does not support user-specified schema"):
        given(pair.theirs, table_path, "by their path")


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"startingVersion": 1},
        {"startingVersion": "latest"},
        {"startingVersion": 0, "maxFilesPerTrigger": 1},
        {"startingVersion": 0, "maxBytesPerTrigger": "1b"},
        {"startingTimestamp": "2001-01-01"},
        {"startingVersion": 1, "skipChangeCommits": "true"},
        {"startingVersion": 1, "ignoreChanges": "true"},
        {"startingVersion": 0, "excludeRegex": "p=1"},
    ],
)
def test_offsets_and_rows_agree_under_every_option(
    pair: Pair, table_path: Path, tmp_path: Path, options: dict[str, object]
) -> None:
    text = "SELECT id, CAST(id % 3 AS STRING) AS p FROM range({}, {}, 1, 1)"
    pair.theirs.write(text.format(0, 6), table_path, partition_by=["p"])
    pair.theirs.write(text.format(6, 9), table_path)
    pair.theirs.sql(f"ALTER TABLE {table(table_path)} SET TBLPROPERTIES ('a' = 'b')")
    if {"skipChangeCommits", "ignoreChanges"} & options.keys():
        pair.theirs.sql(f"UPDATE {table(table_path)} SET id = 100 WHERE id = 4")
        pair.theirs.sql(f"DELETE FROM {table(table_path)} WHERE p = '0'")
    pair.theirs.python(
        "DeltaTable.forPath(spark, path).optimize().executeCompaction()", path=table_path
    )
    pair.theirs.write(text.format(9, 10), table_path)
    found = {
        name: batches(engine, table_path, tmp_path / name, **options)
        for name, engine in (("ours", pair.ours), ("theirs", pair.theirs))
    }
    if options.get("startingVersion") == "latest":
        # Theirs remembers nothing of a stream that found nothing, so later rows are lost to it.
        assert found == {"ours": [[]], "theirs": []}
        return
    assert found["ours"] == found["theirs"]
    assert offsets(tmp_path / "ours") == offsets(tmp_path / "theirs")


@pytest.mark.slow
def test_vectors_and_mapped_columns_agree(pair: Pair, table_path: Path, tmp_path: Path) -> None:
    pair.theirs.sql(
        f"CREATE TABLE {table(table_path)} (id LONG, p STRING) USING delta TBLPROPERTIES"
        " ('delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = 'true')"
    )
    pair.theirs.write("SELECT id, 'x' AS p FROM range(0, 10, 1, 1)", table_path)
    pair.theirs.sql(f"DELETE FROM {table(table_path)} WHERE id % 3 = 0")
    first = batches(pair.ours, table_path, tmp_path / "one", "id", "p")
    assert first == batches(pair.theirs, table_path, tmp_path / "two", "id", "p")
    pair.theirs.sql(f"DELETE FROM {table(table_path)} WHERE id = 1")
    options = {"ignoreChanges": "true"}
    again = batches(pair.ours, table_path, tmp_path / "two", "id", "p", **options)
    assert again == batches(pair.theirs, table_path, tmp_path / "one", "id", "p", **options)
    assert offsets(tmp_path / "one") == offsets(tmp_path / "two")


@pytest.mark.slow
def test_files_beside_a_table_stay_with_the_engine_that_began(
    pair: Pair, table_path: Path, tmp_path: Path
) -> None:
    """Nothing comes twice: whoever would look for the files' state elsewhere is stopped."""
    files = tmp_path / "files"
    pair.theirs.write("SELECT 7L AS id", table_path)
    pair.theirs.python("spark.range(10, 12).coalesce(1).write.json(files)", files=str(files))
    for engine, other, refusal in (
        (pair.ours, pair.theirs, "v1000000"),
        (pair.theirs, pair.ours, "DELTA_STREAMING_SOURCES_NUMBERED_OTHERWISE"),
    ):
        checkpoint = tmp_path / f"begun by {type(engine).__name__}"
        found = batches_with_files(engine, table_path, checkpoint, files)
        assert found == [[[10], [11], [7]]]
        with pytest.raises(Exception, match=refusal):
            batches_with_files(other, table_path, checkpoint, files)
        assert batches_with_files(engine, table_path, checkpoint, files) == []
    # In front of the table they have the same number for both.
    for engine, expected in ((pair.ours, [[[10], [11], [7]]]), (pair.theirs, []), (pair.ours, [])):
        checkpoint = tmp_path / "goes back and forth"
        assert batches_with_files(engine, table_path, checkpoint, files, first=True) == expected


@pytest.mark.slow
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_change_feeds_agree(pair: Pair, table_path: Path, tmp_path: Path, vectors: str) -> None:
    pair.theirs.sql(
        f"CREATE TABLE {table(table_path)} (id LONG, p STRING) USING delta TBLPROPERTIES"
        " ('delta.enableChangeDataFeed' = 'true',"
        f" 'delta.enableDeletionVectors' = '{vectors}')"
    )
    pair.theirs.write("SELECT id, 'x' AS p FROM range(0, 10, 1, 1)", table_path)
    columns = ["id", "p", "_change_type", "_commit_version"]
    options = {"readChangeFeed": "true", "maxFilesPerTrigger": 1}
    for turn in range(2):
        first = batches(pair.ours, table_path, tmp_path / "one", *columns, **options)
        assert first == batches(pair.theirs, table_path, tmp_path / "two", *columns, **options)
        assert offsets(tmp_path / "one") == offsets(tmp_path / "two")
        if turn == 0:
            pair.theirs.sql(f"UPDATE {table(table_path)} SET p = 'y' WHERE id = 3")
            pair.theirs.sql(f"DELETE FROM {table(table_path)} WHERE id > 7")
            pair.theirs.write("SELECT 20L AS id, 'z' AS p", table_path)


@pytest.mark.slow
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_offsets_of_change_feeds_agree_under_every_limit(
    pair: Pair, table_path: Path, tmp_path: Path, vectors: str
) -> None:
    """Commits with change files, with vectors, with neither, without rows; and one that says
    that it changed none."""
    place = table(table_path)
    pair.theirs.sql(
        f"CREATE TABLE {place} (id LONG, p STRING) USING delta PARTITIONED BY (p) TBLPROPERTIES"
        " ('delta.enableChangeDataFeed' = 'true',"
        f" 'delta.enableDeletionVectors' = '{vectors}')"
    )
    text = "SELECT id, CAST(id % 3 AS STRING) AS p FROM range({}, {}, 1, 1)"
    pair.theirs.write(text.format(0, 12), table_path)
    pair.theirs.sql(f"UPDATE {place} SET id = id + 100 WHERE id < 4")
    pair.theirs.sql(f"DELETE FROM {place} WHERE id IN (7, 8, 9)")
    pair.theirs.sql(f"ALTER TABLE {place} SET TBLPROPERTIES ('a' = 'b')")
    pair.theirs.sql(f"DELETE FROM {place} WHERE p = '2' AND id < 6")
    pair.theirs.sql(
        f"MERGE INTO {place} t USING (SELECT 10L AS id) s ON t.id = s.id"
        " WHEN MATCHED AND t.p = 'none' THEN DELETE"
    )
    pair.theirs.write(text.format(20, 23), table_path)
    pair.theirs.sql(f"DELETE FROM {place} WHERE p = '1'")
    columns = ["id", "p", "_change_type", "_commit_version"]
    cases: list[dict[str, object]] = [
        {"maxFilesPerTrigger": 1},
        {"maxFilesPerTrigger": 3},
        {"maxFilesPerTrigger": 7},
        {"maxBytesPerTrigger": "1k"},
        {"maxFilesPerTrigger": 2, "excludeRegex": "p=[02]"},
    ]
    for number, limits in enumerate(cases):
        options = {"readChangeFeed": "true", "startingVersion": 0, **limits}
        one, two = tmp_path / f"one {number}", tmp_path / f"two {number}"
        found = batches(pair.ours, table_path, one, *columns, **options)
        assert found == batches(pair.theirs, table_path, two, *columns, **options), limits
        assert offsets(one) == offsets(two), limits


@pytest.mark.slow
def test_a_schema_log_goes_back_and_forth(pair: Pair, table_path: Path, tmp_path: Path) -> None:
    pair.theirs.sql(
        f"CREATE TABLE {table(table_path)} (id LONG, p STRING) USING delta TBLPROPERTIES"
        " ('delta.columnMapping.mode' = 'name')"
    )
    pair.theirs.write("SELECT 1L AS id, 'x' AS p", table_path)
    checkpoint = tmp_path / "checkpoint"
    options: dict[str, object] = {"schemaTrackingLocation": str(checkpoint / "schemas")}
    assert batches(pair.ours, table_path, checkpoint, **options) == [[[1]]]
    pair.theirs.sql(f"ALTER TABLE {table(table_path)} RENAME COLUMN p TO q")
    pair.theirs.write("SELECT 2L AS id, 'y' AS q", table_path)
    with pytest.raises(Exception, match="DELTA_STREAMING_METADATA_EVOLUTION"):
        batches(pair.theirs, table_path, checkpoint, "id", **options)
    with pytest.raises(Exception, match="POST_SCHEMA_EVOLUTION"):
        batches(pair.ours, table_path, checkpoint, "id", **options)
    allowed = {**options, "allowSourceColumnRename": "always"}
    found = batches(pair.ours, table_path, checkpoint, "id", "q", **allowed)
    assert [batch for batch in found if batch] == [[[2, "y"]]]
    pair.theirs.sql(f"ALTER TABLE {table(table_path)} RENAME COLUMN q TO r")
    pair.theirs.write("SELECT 3L AS id, 'z' AS r", table_path)
    with pytest.raises(Exception, match="DELTA_STREAMING_METADATA_EVOLUTION"):
        batches(pair.ours, table_path, checkpoint, "id", **allowed)
    found = batches(pair.theirs, table_path, checkpoint, "id", "r", **allowed)
    assert [batch for batch in found if batch] == [[[3, "z"]]]
