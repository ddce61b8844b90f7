"""DELETE, UPDATE, MERGE, appends and rewrites of files, all at once on one table.

Whatever the races, a command is committed or raises a conflict, and the versions are those of the
committed commands one after the other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Barrier
from typing import TypeVar

import pytest
from pyspark.sql import SparkSession

from pyspark_delta import disable, enable
from pyspark_delta.errors import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    DeltaConcurrentModificationException,
)
from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.protocol.actions import AddFile
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from tests.support.dml_model import (
    Clause,
    Command,
    Formula,
    Row,
    column,
    compared,
    literal,
    plus,
)
from tests.support.dml_races import Replay, Task, new_rows, run_task, shown, task_of
from tests.support.dml_worker import DmlWorker
from tests.support.interleaving import InterruptibleCommitter

VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}
TRACKED = {"delta.enableRowTracking": "true"}
WEAKER = {"delta.isolationLevel": "WriteSerializable"}
CONFLICTS = (
    ConcurrentAppendException,
    ConcurrentDeleteReadException,
    ConcurrentDeleteDeleteException,
)


@pytest.fixture(autouse=True)
def enabled(spark: SparkSession) -> Iterator[SparkSession]:
    enable(spark)
    yield spark
    disable(spark)


# Commands on rows of one key.


def keyed(*keys: int) -> list[Row]:
    """A row for each key."""
    return [
        {"w": 0, "k": key, "x": 0, "p": "a", "st": {"a": key, "b": None}, "v": f"old {key}"}
        for key in keys
    ]


def is_key(key: int) -> Formula:
    return compared(column("t", "k"), "=", literal(key))


def delete(key: int) -> Task:
    return Task(f"delete {key}", Command("delete", condition=is_key(key)))


def update(key: int) -> Task:
    sets = {"x": plus(column("t", "x"), literal(1)), "v": literal("updated")}
    return Task(f"update {key}", Command("update", condition=is_key(key), sets=sets))


def merged(name: str, keys: Sequence[int], *clauses: Clause) -> Task:
    on = compared(column("t", "k"), "=", column("s", "k"))
    rows = [{"w": 0, "k": key, "x": 10, "p": "a", "st": None, "v": name} for key in keys]
    return Task(f"{name} {keys}", Command("merge", on=on, clauses=clauses, rows=rows))


def merge(*keys: int) -> Task:
    sets = {"x": plus(column("t", "x"), column("s", "x"))}
    return merged("merge", keys, Clause("matched", "update", sets=sets))


def merge_delete(*keys: int) -> Task:
    return merged("merge-delete", keys, Clause("matched", "delete"))


def upsert(*keys: int) -> Task:
    clauses = (Clause("matched", "update", sets=None), Clause("not matched", "insert", sets=None))
    return merged("upsert", keys, *clauses)


Kind = Callable[[int], Task]
T = TypeVar("T")
SECONDS = 120


def race(spark: SparkSession, path: Path, first: Task, second: Task) -> dict[int, Task]:
    """Run `first`, and before it commits all of `second`; the tasks by their versions."""
    made: dict[int, Task] = {}
    store = LocalStore(path, fsync=False)
    committer = InterruptibleCommitter(store)

    def run_second() -> None:
        committer.before = lambda: None
        version = run_task(spark, DeltaLog(store), second)
        assert version is not None
        made[version] = second

    committer.before = run_second
    version = run_task(spark, DeltaLog(store, committer=committer), first)
    assert version is not None
    return {**made, version: first}


PAIRS: list[tuple[Kind, Kind]] = [
    (delete, delete),
    (delete, update),
    (update, merge),
    (merge, upsert),
    (upsert, merge_delete),
]


def test_two_commands_share_a_file_but_no_row(spark: SparkSession, table_path: Path) -> None:
    rows = keyed(*range(10 * len(PAIRS)))
    replay = Replay.of_new_table(spark, table_path, rows, {**VECTORS, **FEED})
    ((path, _),) = num_gone(table_path).items()
    for number, (first, second) in enumerate(PAIRS):
        key, gone = 10 * number, num_gone(table_path)[path]
        replay.follow(race(spark, table_path, first(key), second(key + 1)))
        assert replay.version == 3 * number + 2
        assert num_gone(table_path)[path] == gone + 2
        with pytest.raises(CONFLICTS):
            race(spark, table_path, first(key + 5), second(key + 5))
        replay.follow({replay.version + 1: second(key + 5)})
        assert replay.version == 3 * number + 3
    replay.check(spark, has_feed=True, is_tidy=True)


def num_gone(path: Path) -> dict[str, int]:
    """How many rows the vector of each file names."""
    files = add_files(DeltaLog.for_table(path).update().files)
    return {f.path: f.deletion_vector.cardinality if f.deletion_vector else 0 for f in files}


def test_all_commands_meet_before_they_commit(spark: SparkSession, table_path: Path) -> None:
    replay = Replay.of_new_table(
        spark, table_path, keyed(*range(8)), {**VECTORS, **FEED, **TRACKED}
    )
    kinds: list[Kind] = [delete, update, merge, upsert]
    apart = at_once(spark, table_path, [kind(key) for key, kind in enumerate(kinds)])
    assert len(apart) == 4
    replay.follow(apart)
    together = at_once(spark, table_path, [kind(6) for kind in kinds])
    assert len(together) == 1
    replay.follow(together)
    replay.check(spark, has_feed=True, is_tidy=True)


def test_a_source_that_may_change_is_not_asked_for_its_keys(
    spark: SparkSession, table_path: Path
) -> None:
    replay = Replay.of_new_table(spark, table_path, keyed(*range(8)), VECTORS)
    with pytest.raises(ConcurrentAppendException):
        race(spark, table_path, merge(1, 100), update(2))  # two rows: see `run_task`
    replay.follow({1: update(2)})
    replay.check(spark, has_feed=False, is_tidy=True)


def test_rows_that_no_clause_is_for_do_not_matter_to_a_merge(
    spark: SparkSession, table_path: Path
) -> None:
    is_a = compared(column("t", "p"), "=", literal("a"))
    clause = Clause("matched", "delete", condition=is_a)
    first = merged("merge-a", [1, 2], clause)
    replay = Replay.of_new_table(spark, table_path, keyed(*range(8)), VECTORS)

    def appended(p: str) -> Task:
        return Task(f"append {p}", Command("append", rows=[{**keyed(1)[0], "p": p}]))

    replay.follow(race(spark, table_path, first, appended("b")))
    with pytest.raises(ConcurrentAppendException):
        race(spark, table_path, merged("again", [1, 3], clause), appended("a"))
    replay.follow({3: appended("a")})
    replay.check(spark, has_feed=False, is_tidy=True)


def test_files_that_are_copied_are_no_ones_to_share(spark: SparkSession, table_path: Path) -> None:
    replay = Replay.of_new_table(spark, table_path, keyed(*range(8)), FEED)
    made = at_once(spark, table_path, [delete(1), update(2), merge(3)])
    assert len(made) == 1
    replay.follow(made)
    replay.check(spark, has_feed=True, is_tidy=True)


def test_commands_and_compactions(spark: SparkSession, table_path: Path) -> None:
    rows = keyed(*range(24))
    replay = Replay.of_new_table(spark, table_path, rows, {**VECTORS, **FEED}, files=8)
    files = sorted(add_files(DeltaLog.for_table(table_path).update().files), key=least_key)
    paths = [file.path for file in files]
    # Each of them puts two files together, which hold six keys.
    parts = [Task(f"compact {i}", paths=tuple(paths[i : i + 2])) for i in (0, 2, 4, 6)]
    replay.follow(race(spark, table_path, parts[1], update(0)))
    replay.follow(race(spark, table_path, merge(3), parts[2]))
    assert replay.version == 4
    for first, second in [(parts[0], delete(1)), (update(4), parts[0]), (merge(18), parts[3])]:
        with pytest.raises(CONFLICTS):
            race(spark, table_path, first, second)
        replay.follow({replay.version + 1: second})
    assert replay.version == 7
    replay.check(spark, has_feed=True, is_tidy=True)


def least_key(file: AddFile) -> int:
    return int(json.loads(file.stats or "")["minValues"]["k"])


def at_once(spark: SparkSession, path: Path, tasks: Sequence[Task]) -> dict[int, Task]:
    """Run all tasks in threads that wait for each other before they commit; what was committed."""
    barrier = Barrier(len(tasks))
    made: dict[int, Task] = {}

    def work(task: Task) -> None:
        store = LocalStore(path, fsync=False)
        committer = InterruptibleCommitter(store)

        def meet() -> None:
            committer.before = lambda: None
            barrier.wait(SECONDS)

        committer.before = meet
        with suppress(*CONFLICTS):
            version = run_task(spark, DeltaLog(store, committer=committer), task)
            assert version is not None
            made[version] = task

    in_threads(work, tasks)
    return made


def in_threads(work: Callable[[T], None], things: Sequence[T]) -> None:
    """Do something with each thing, in a thread for each; nothing may go wrong."""
    with ThreadPoolExecutor(len(things)) as pool:
        for done in [pool.submit(work, thing) for thing in things]:
            done.result()


SHAPES: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "vectors": ({**VECTORS, **FEED}, ()),
    "copies": (FEED, ()),
    "vectors, weaker": ({**VECTORS, **FEED, **TRACKED, **WEAKER}, ("p",)),
    "copies, weaker": ({**WEAKER, **FEED}, ("p",)),
}


@pytest.mark.parametrize(
    ("shape", "seed", "tasks"),
    [
        ("vectors", 1, 4),
        ("vectors, weaker", 2, 3),
        *[
            pytest.param(shape, 1000 + number, 25, marks=pytest.mark.slow)
            for number, shape in enumerate([*SHAPES] * 5)
        ],
    ],
)
def test_threads_of_one_session_race_for_a_table(
    spark: SparkSession, table_path: Path, shape: str, seed: int, tasks: int
) -> None:
    properties, partition_by = SHAPES[shape]
    replay = Replay.of_new_table(
        spark, table_path, new_rows(seed), properties, partition_by, files=2
    )
    seeds = count(seed * 1000)
    made: dict[int, Task] = {}
    lost: list[str] = []

    def work(is_shared: bool) -> None:
        log = DeltaLog.for_table(table_path) if is_shared else DeltaLog(LocalStore(table_path))
        for _ in range(tasks):
            task = task_of(next(seeds))
            try:
                version = run_task(spark, log, task)
            except DeltaConcurrentModificationException as error:
                lost.append(f"{shown(task)}: {error}")
            else:
                if version is not None:
                    assert made.setdefault(version, task) is task

    in_threads(work, [True, True, False, False])
    replay.follow(made)
    assert replay.version == len(made), lost
    replay.check(spark, has_feed=True, is_tidy=True)


@pytest.mark.parametrize(
    ("shapes", "processes", "tasks"),
    [
        (["vectors"], 2, 4),
        pytest.param([*SHAPES] * 3, 3, 25, marks=pytest.mark.slow),
    ],
)
def test_processes_race_for_a_table(
    spark: SparkSession, tmp_path: Path, shapes: list[str], processes: int, tasks: int
) -> None:
    workers = [DmlWorker() for _ in range(processes)]
    try:
        assert [worker.told() for worker in workers] == ["ready"] * processes
        for number, shape in enumerate(shapes):
            properties, partition_by = SHAPES[shape]
            replay = Replay.of_new_table(
                spark,
                tmp_path / f"tä ble 100% {number}",
                new_rows(number),
                properties,
                partition_by,
                files=2,
            )
            for index, worker in enumerate(workers):
                first = 100_000 + 10_000 * number + 1000 * index
                worker.order(replay.path, range(first, first + tasks))
            told = [each for worker in workers for each in worker.outcomes()]
            assert {word for word, *_ in told} <= {"done", "lost"}, told
            replay.follow()
            versions = [more for word, _, more in told if word == "done" and more is not None]
            assert sorted(versions) == [*range(1, replay.version + 1)]
            replay.check(spark, has_feed=True, is_tidy=True)
    finally:
        for worker in workers:
            worker.close()
