"""Which sessions are on.  A session's copies are on with it: Spark runs streams in copies."""

from __future__ import annotations

from contextlib import ExitStack
from threading import Lock
from weakref import WeakSet

from pyspark.sql import SparkSession

from pyspark_delta.kernel.txn.hooks import CommitEvent, Hook, shared_runner
from pyspark_delta.spark.cached_rows import refresh_cached
from pyspark_delta.spark.delta_spark_confs import drop_delta_spark_catalog, warn_of_delta_spark_jar
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.last_commit import note_last_commit
from pyspark_delta.spark.jvm.path_catalog import install_path_catalog, remove_path_catalog
from pyspark_delta.spark.jvm.relation_cache import install_relation_cache, remove_relation_cache
from pyspark_delta.spark.jvm.scan_rule import remove_rule
from pyspark_delta.spark.jvm.session_catalog import keep_session_catalog, release_session_catalog
from pyspark_delta.spark.jvm.table_functions import install_table_functions, remove_table_functions
from pyspark_delta.spark.newest_source import follow_tables
from pyspark_delta.spark.table_functions import table_functions
from pyspark_delta.spark.table_plans import TablePlans

# Set in a session's configuration, which its copies inherit.
MARK = "spark.pyspark_delta.enabled"

_ON: WeakSet[SparkSession] = WeakSet()
_OFF: WeakSet[SparkSession] = WeakSet()
_LOCK = Lock()


def _note_commit(event: CommitEvent) -> None:
    note_last_commit(event.version, MARK)


def _refresh_cached(event: CommitEvent) -> None:
    session = next(iter(_ON), None)
    if session is not None and session.sparkContext._jsc is not None:
        root_uri = event.log.store.root_uri
        refresh_cached(JvmSession(session), root_uri, event.version, is_new=True)


_CACHED_ROWS = Hook("cached rows", lambda _: any_enabled(), _refresh_cached, in_line=True)
_LAST_COMMIT = Hook("session's last version", lambda _: any_enabled(), _note_commit, in_line=True)


def is_enabled(spark: SparkSession) -> bool:
    """Whether the session is on, by itself or as the copy of one that is."""
    if spark in _ON:
        return True
    if spark in _OFF:
        return False
    if spark.conf.get(MARK, None) == "true":
        turn_on(spark)
        return True
    _OFF.add(spark)
    return False


def turn_on(spark: SparkSession) -> None:
    """Let the session's catalog find Delta tables; once is enough.

    A step that fails takes the steps before it back.
    """
    with _LOCK:
        if spark in _ON:
            return
        warn_of_delta_spark_jar(spark)
        with ExitStack() as undo:
            _install(spark, undo)
            undo.pop_all()
        shared_runner().add(_LAST_COMMIT)
        shared_runner().add(_CACHED_ROWS)
        _ON.add(spark)
        _OFF.discard(spark)


def _install(spark: SparkSession, undo: ExitStack) -> None:
    plans, jvm, functions = TablePlans(spark), JvmSession(spark), table_functions(spark)
    undo.callback(remove_relation_cache, jvm)
    install_relation_cache(jvm, plans.find_plan)
    undo.callback(remove_path_catalog, jvm)
    install_path_catalog(jvm, plans)
    undo.callback(remove_table_functions, jvm, list(functions))
    install_table_functions(jvm, functions)
    undo.callback(remove_rule, jvm)
    follow_tables(jvm)
    undo.callback(drop_delta_spark_catalog(spark))
    undo.callback(release_session_catalog, jvm)
    keep_session_catalog(jvm)
    undo.callback(spark.conf.unset, MARK)
    spark.conf.set(MARK, "true")


def turn_off(spark: SparkSession) -> None:
    """Undo `turn_on`."""
    with _LOCK:
        if spark not in _ON:
            return
        _ON.discard(spark)
        _OFF.add(spark)
        spark.conf.unset(MARK)
        jvm = JvmSession(spark)
        remove_relation_cache(jvm)
        remove_path_catalog(jvm)
        remove_table_functions(jvm, list(table_functions(spark)))
        remove_rule(jvm)
        release_session_catalog(jvm)


def any_enabled() -> bool:
    """Whether a session that still exists is on."""
    return len(_ON) > 0
