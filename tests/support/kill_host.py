"""Run as a program: statements in processes that die amid them, while their JVM lives on.

Every line of input is an order.  It is carried out by a fork, which has a session and connections
of its own, and so knows nothing of what others did before; the catalog is in the JVM, which they
share.  Each order is answered by what the fork says, and by whether it came to its end.

With `alone` there are no forks: the process carries out its orders itself, and dies with its JVM.
What outlives it is a Hive metastore.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pyspark_delta import enable
from tests.support import killed_statements
from tests.support.deaths import (
    FUNCTION,
    Moment,
    die_alone,
    die_at,
    die_together,
    prepare_to_watch,
    stop_watching,
    watch,
)
from tests.support.killed_statements import DATABASE, SETTINGS, State, Tried, make_templates
from tests.support.spark_workers import JAVA_OPTIONS, SparkWorker, answering, session_builder

# Java tells Python of objects that it needs no more; they must not be those of another process.
_IDS_EACH = 1_000_000


class KillHost(SparkWorker):
    """The process, as a test sees it."""

    def __init__(self, home: Path, *, is_alone: bool = False) -> None:
        super().__init__(__name__, str(home), "alone" if is_alone else "forks")
        self._home = home
        assert self.told() == "ready"

    def order(self, do: str, **words: Any) -> Any:
        """What the order gives; None when whoever carried it out was killed."""
        self.say({"do": do, **words})
        word, found = "found", None
        while (told := self.told()) not in (None, ["killed"], ["end"]):
            word, found = told
        assert word == "found", found
        return found if told == ["end"] else None

    def prepare(self) -> None:
        make_templates(self._home)
        self.order("prepare")

    def set_up(self, case: str, number: int) -> tuple[State, State]:
        """Make what a statement needs; what is seen before it, and what must be after it."""
        before, after = self.order("set_up", case=case, number=number)
        return before, after

    def measure(self, case: str, number: int) -> dict[str, Any]:
        """Run a statement that nobody kills: its `steps`, `functions` and `seconds`."""
        measured: dict[str, Any] = self.order("measure", case=case, number=number)
        return measured

    def kill_amid(self, case: str, number: int, moment: Moment) -> bool:
        """Run a statement up to a moment; whether it died."""
        return self.order("kill", case=case, number=number, moment=asdict(moment)) is None

    def check(self, case: str, number: int, before: State, after: State) -> bool:
        """What must be true; whether the statement was done when it was killed."""
        is_done: bool = self.order("check", case=case, number=number, before=before, after=after)
        return is_done


# What runs in that process.


def started(home: Path, *, is_alone: bool) -> SparkSession:
    builder = session_builder().config("spark.sql.warehouse.dir", str(home / "ware house 100%"))
    if is_alone:
        metastore = f"jdbc:derby:;databaseName={home}/metastore;create=true"
        builder = (
            builder.config("spark.hadoop.javax.jdo.option.ConnectionURL", metastore)
            .config("spark.driver.extraJavaOptions", f"{JAVA_OPTIONS} -Dderby.system.home={home}")
            .enableHiveSupport()
        )
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def carry_out(
    spark: SparkSession, home: Path, order: dict[str, Any], die: Callable[[], None]
) -> Any:
    if order["do"] == "prepare":
        return killed_statements.prepare(spark, home)
    spark.sql(f"USE {DATABASE}")
    tried = Tried(home=home, case=order["case"], number=order["number"])
    match order["do"]:
        case "set_up":
            return killed_statements.set_up(spark, tried)
        case "check":
            return killed_statements.check(spark, tried, order["before"], order["after"])
        case "measure":
            return measured(spark, tried)
        case "kill":
            die_at(Moment(**order["moment"]), die)
            killed_statements.run(spark, tried)
            stop_watching()
            return True
    raise AssertionError(order)


def measured(spark: SparkSession, tried: Tried) -> dict[str, Any]:
    steps: list[str] = []
    functions = 0

    def told(step: str, is_done: bool) -> None:
        nonlocal functions
        if step == FUNCTION:
            functions += 1
        elif not is_done:
            steps.append(step)

    start = time.monotonic()
    watch(told)
    killed_statements.run(spark, tried)
    stop_watching()
    return {"steps": steps, "functions": functions, "seconds": time.monotonic() - start}


def own_session(spark: SparkSession, number: int) -> SparkSession:
    """A session of this process, which was forked from the one that the JVM belongs to."""
    prepare_to_watch()
    gateway: Any = spark.sparkContext._gateway
    gateway._gateway_client.deque.clear()
    gateway.gateway_property.pool.next_id = number * _IDS_EACH
    return set_up_session(spark.newSession())


def set_up_session(spark: SparkSession) -> SparkSession:
    for key, value in SETTINGS.items():
        spark.conf.set(key, value)
    return enable(spark)


def forked(spark: SparkSession, number: int, home: Path, order: dict[str, Any]) -> Any:
    return carry_out(own_session(spark, number), home, order, die_alone)


def answered(run: Callable[[], Any], say: Callable[[object], None]) -> None:
    try:
        say(["found", run()])
    except BaseException:
        say(["failed", traceback.format_exc()[-6000:]])


def main(home: Path, *, is_alone: bool) -> None:
    say = answering()
    spark = started(home, is_alone=is_alone)
    if is_alone:
        prepare_to_watch()
        spark = set_up_session(spark)
    say("ready")
    for number, line in enumerate(sys.stdin, start=1):
        order = json.loads(line)
        if is_alone:
            answered(partial(carry_out, spark, home, order, die_together), say)
            say(["end"])
            continue
        child = os.fork()
        if not child:
            answered(partial(forked, spark, number, home, order), say)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        say(["killed"] if os.WIFSIGNALED(status) else ["end"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), is_alone=sys.argv[2] == "alone")
