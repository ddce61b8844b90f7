"""What a driver that runs for days must not pile up: pages of joins, threads, sockets."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_delta import enable
from pyspark_delta.spark.jvm.callbacks import note_caller
from pyspark_delta.spark.jvm.gateway import JvmSession, items
from pyspark_delta.spark.jvm.plans.frames import release_broadcasts
from tests.support.merges import MergeTable

_MIB = 1 << 20


@pytest.fixture
def jvm(spark: SparkSession) -> JvmSession:
    session = JvmSession(enable(spark))
    session.accept_callbacks()
    return session


@pytest.mark.parametrize("key", ["long", "string"])
def test_what_a_join_sent_to_every_task_is_given_back(spark: SparkSession, key: str) -> None:
    few = spark.range(3).select(F.col("id").cast(key))
    joined = spark.range(9).select(F.col("id").cast(key)).join(F.broadcast(few), "id")
    kept = joined.localCheckpoint(eager=False)
    assert kept.count() == 3
    stages = items(joined._jdf.queryExecution().executedPlan().context().stageCache().toSeq())
    (broadcast,) = [stage._2().resultOption().get().get() for stage in stages]
    release_broadcasts(joined)
    with pytest.raises(Py4JJavaError, match="destroyed"):
        broadcast.value()
    # What was kept is another matter.
    assert kept.count() == 3


@pytest.mark.parametrize("inserts_only", [False, True])
def test_merges_in_a_row_hold_no_page_of_their_joins(
    spark: SparkSession, table_path: Path, inserts_only: bool
) -> None:
    enable(spark)
    table = MergeTable.of(spark, table_path, "id long, v string", *[(i, "a") for i in range(9)])

    def merge(i: int) -> None:
        rows = table.merge(table.data("id long, v string", (i, "b"), (100 + i, "c")))
        if not inserts_only:
            rows = rows.whenMatchedUpdateAll()
        table.done(rows.whenNotMatchedInsertAll())

    def free() -> int:
        (executor,) = items(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().toSeq())
        return int(executor._2()._2())

    merge(0)
    before = free()
    for i in range(1, 6):
        merge(i)
    # A page is a megabyte in tests, and each of these MERGEs takes at least one.
    assert before - free() < 3 * _MIB
    assert len(table.rows) == 15


class _Calling:
    """Work for a thread of the JVM: it calls as a scan's planning would."""

    class Java:
        """What Py4J asks for."""

        implements = ("java.lang.Runnable",)

    def __init__(self, jvm: JvmSession) -> None:
        self._jvm = jvm
        self.served_by: threading.Thread | None = None

    def run(self) -> None:
        note_caller(self._jvm)
        self.served_by = threading.current_thread()


def _called_by_new_thread(jvm: JvmSession, pools: list[Any]) -> threading.Thread:
    pool = jvm.static("java.util.concurrent.Executors", "newSingleThreadExecutor")()
    pools.append(pool)
    calling = _Calling(jvm)
    pool.submit(calling).get()
    assert calling.served_by is not None
    return calling.served_by


def test_connections_of_threads_that_ended_are_closed(jvm: JvmSession) -> None:
    pools: list[Any] = []
    ended = [_called_by_new_thread(jvm, pools) for _ in range(5)]
    assert threading.current_thread() not in ended
    assert len(set(ended)) == 5
    unit = jvm.java_class("java.util.concurrent.TimeUnit").SECONDS
    for pool in pools:
        pool.shutdown()
        assert pool.awaitTermination(30, unit)
    alive = [_called_by_new_thread(jvm, pools) for _ in range(5)]
    # Each new caller looks at some of the others, of which this session has many.
    for _ in range(200):
        if not any(thread.is_alive() for thread in ended):
            break
        alive.append(_called_by_new_thread(jvm, pools))
    for thread in ended:
        thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in ended)
    # Those whose threads of the JVM live on are served.
    assert all(thread.is_alive() for thread in alive)
    for pool in pools[5:]:
        pool.submit(_Calling(jvm)).get()
        pool.shutdown()


def test_a_thread_of_python_keeps_its_own_connection(jvm: JvmSession) -> None:
    done: list[bool] = []

    def ask() -> None:
        note_caller(jvm)
        done.append(jvm.static("java.lang.Thread", "currentThread")().isAlive())

    asking = threading.Thread(target=ask)
    asking.start()
    asking.join()
    assert done == [True]


def test_a_broadcast_of_a_table_is_noted(
    spark: SparkSession, table_path: Path, jvm: JvmSession
) -> None:
    spark.range(5).write.format("delta").save(str(table_path))
    few = spark.read.format("delta").load(str(table_path))
    before = threading.active_count()
    for _ in range(3):
        joined = spark.range(9).join(F.broadcast(few), "id")
        assert joined.count() == 5
    # Spark keeps such threads for a minute, and one connection for each.
    assert threading.active_count() - before <= 3
