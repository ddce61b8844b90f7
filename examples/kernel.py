"""A table's life, with the kernel alone: create, commit, checkpoint, race, time travel.

No Spark and no JVM takes part.  The table is made in a temporary folder.
"""

from __future__ import annotations

import json
import tempfile
import time
import uuid
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyspark_delta import DeltaLog
from pyspark_delta.actions import AddFile, Metadata
from pyspark_delta.errors import DeltaConcurrentModificationException
from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.protocol.operations import define_table, operation, write
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import DATE, LONG, STRING, StructField, StructType

SCHEMA = StructType(
    (StructField("id", LONG), StructField("name", STRING), StructField("day", DATE))
)
APPEND = write("Append")


def main() -> None:
    """Every step, told as it happens."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "événements 100%"
        log = DeltaLog.for_table(str(path))
        create(log)
        append_ten_times(log, path)
        look_at_the_log(log, path)
        skip_files(log)
        lose_a_race(log, path)
        travel_in_time(log)
        let_another_engine_read(path)


def create(log: DeltaLog) -> None:
    """Version 0: a schema and nothing else."""
    say("Create a table")
    txn = log.start_transaction()
    metadata = Metadata(schema_string=format_schema(SCHEMA))
    txn.update_metadata(metadata)
    done = txn.commit([], define_table("create", metadata, is_managed=False))
    print(f"version {done.version}: {log.update().schema.simple_string}")


def append_ten_times(log: DeltaLog, path: Path) -> None:
    """Versions 1 to 10; the tenth is checkpointed by itself."""
    say("Commit ten files of 1,000 rows")
    started = time.perf_counter()
    for number in range(10):
        log.start_transaction().commit([write_file(path, first_id=1_000 * number)], APPEND)
    took = time.perf_counter() - started
    snapshot = log.update()
    print(f"version {snapshot.version}: {snapshot.num_files} files, {snapshot.size_in_bytes} bytes")
    print(f"{took / 10 * 1000:.1f} ms a commit, data file included")


def look_at_the_log(log: DeltaLog, path: Path) -> None:
    """What a commit and a checkpoint leave on disk."""
    say("Look into the log")
    log.wait_for_hooks()  # checkpoints are written behind the commits
    for file in sorted((path / "_delta_log").iterdir())[-5:]:
        print(f"{file.name:45} {file.stat().st_size:>7} bytes")
    hint = json.loads((path / "_delta_log" / "_last_checkpoint").read_text(encoding="utf-8"))
    print(f"the checkpoint at version {hint['version']} holds {hint['size']} actions")


def skip_files(log: DeltaLog) -> None:
    """A filter opens only the files whose statistics allow a match."""
    say("Read the rows with id >= 9500")
    snapshot = log.snapshot
    opened = snapshot.plan(filter="id >= 9500").files.num_rows
    table = snapshot.to_table(columns=["id", "name"], filter="id >= 9500")
    print(f"{table.num_rows} rows, ids {pc.min(table['id'])} to {pc.max(table['id'])}")
    print(f"statistics left {opened} of {snapshot.num_files} files to open")


def lose_a_race(log: DeltaLog, path: Path) -> None:
    """Two writers delete what both read: one wins, the other is told."""
    say("Let two writers race")
    append, other_append = log.start_transaction(), log.start_transaction()
    first = append.commit([write_file(path, first_id=10_000)], APPEND)
    second = other_append.commit([write_file(path, first_id=11_000)], APPEND)
    print(f"two appends: both stand, as versions {first.version} and {second.version}")

    early, late = log.start_transaction(), log.start_transaction()
    for txn in (early, late):
        file = next(add_files(txn.filter_files()))
        try:
            deletes = operation("DELETE", predicate=["(id < 1000)"])
            done = txn.commit([file.remove()], deletes)
            print(f"a delete of a file: version {done.version}")
        except DeltaConcurrentModificationException as error:
            print(f"a second delete of it is refused:\n  {error}")


def travel_in_time(log: DeltaLog) -> None:
    """Any version the log still holds can be opened."""
    say("Travel in time")
    for version in (0, 1, 10, log.update().version):
        snapshot = log.snapshot_at(version=version)
        rows = sum(batch.num_rows for batch in snapshot.to_batches(columns=["id"]))
        print(f"version {version:2}: {snapshot.num_files:2} files, {rows:6} rows")
    for commit in log.history(limit=3):
        print(f"version {commit.version}: {commit.operation}")


def let_another_engine_read(path: Path) -> None:
    """The table is an ordinary Delta table."""
    say("Read it with another implementation")
    table = deltalake.DeltaTable(str(path))
    files = len(table.file_uris())
    print(f"deltalake {deltalake.__version__}: version {table.version()}, {files} files")


def write_file(path: Path, *, first_id: int) -> AddFile:
    """A Parquet file of 1,000 rows, and the action that adds it."""
    ids = pa.array(range(first_id, first_id + 1_000), pa.int64())
    rows = pa.table(
        {
            "id": ids,
            "name": pc.binary_join_element_wise("n", pc.cast(ids, pa.string()), "-"),
            "day": pa.array([19_000 + first_id // 1_000] * 1_000, pa.date32()),
        }
    )
    name = f"part-{first_id:05d}-{uuid.uuid4()}.parquet"
    pq.write_table(rows, path / name)
    stats = {
        "numRecords": 1_000,
        "minValues": {"id": first_id},
        "maxValues": {"id": first_id + 999},
        "nullCount": {"id": 0},
    }
    status = (path / name).stat()
    return AddFile(
        path=name,
        size=status.st_size,
        modification_time=status.st_mtime_ns // 1_000_000,
        data_change=True,
        stats=json.dumps(stats),
    )


def say(headline: str) -> None:
    """One step begins."""
    print(f"\n{headline}\n{'-' * len(headline)}")


if __name__ == "__main__":
    main()
