"""Tracks which sessions are enabled.  Copies of a session are too: Spark runs streams in copies."""

from __future__ import annotations

from contextlib import ExitStack
from threading import Lock
from weakref import WeakSet

from pyspark.sql import SparkSession

from pyspark_delta.kernel.txn.hooks import CommitEvent, Hook, shared_runner
from pyspark_delta.spark.changes.functions import table_functions
from pyspark_delta.spark.conf.setting_table import ENABLED, LAST_COMMIT_VERSION
from pyspark_delta.spark.jvm.catalog.functions import (
    install_table_functions,
    remove_table_functions,
)
from pyspark_delta.spark.jvm.catalog.path_catalog import install_path_catalog, remove_path_catalog
from pyspark_delta.spark.jvm.catalog.relation_cache import (
    install_relation_cache,
    remove_relation_cache,
)
from pyspark_delta.spark.jvm.catalog.session_objects import forget_objects
from pyspark_delta.spark.jvm.gateway import (
    JvmSession,
    keep_session_catalog,
    note_last_commit,
    release_session_catalog,
)
from pyspark_delta.spark.jvm.hooks.bridge import hook_session, is_hooked, unhook_session
from pyspark_delta.spark.jvm.scan.file_index import remove_rule
from pyspark_delta.spark.maintenance.compaction import compact_after_writes
from pyspark_delta.spark.scan.load import TablePlans
from pyspark_delta.spark.scan.versions import follow_tables, refresh_cached
from pyspark_delta.spark.session.analyzer import check_analyzer
from pyspark_delta.spark.session.delta_spark_settings import (
    drop_delta_spark_catalog,
    warn_of_delta_spark_jar,
)

_ON: WeakSet[SparkSession] = WeakSet()
_OFF: WeakSet[SparkSession] = WeakSet()
# The ids of sessions that are being turned on.
_OPENING: set[str] = set()
_LOCK = Lock()
_FIRST_API, _FORMAT = "spark.sql.sources.useV1SourceList", "delta"


def _note_commit(event: CommitEvent) -> None:
    note_last_commit(event.version, key=LAST_COMMIT_VERSION.key, mark=ENABLED.key)


def _refresh_cached(event: CommitEvent) -> None:
    session = next(iter(_ON), None)
    if session is not None and session.sparkContext._jsc is not None:
        root_uri = event.log.store.root_uri
        refresh_cached(JvmSession(session), root_uri, event.version, is_new=True)


_CACHED_ROWS = Hook("cached rows", lambda _: any_enabled(), _refresh_cached, in_line=True)
_LAST_COMMIT = Hook("session's last version", lambda _: any_enabled(), _note_commit, in_line=True)


def is_enabled(spark: SparkSession) -> bool:
    """Whether the session is enabled, by itself or as the copy of an enabled one."""
    if spark in _ON:
        return True
    if spark in _OFF:
        return False
    if ENABLED.of(spark) or is_hooked(JvmSession(spark)):
        turn_on(spark)
        return True
    _OFF.add(spark)
    return False


def turn_on(spark: SparkSession) -> None:
    """Make Delta tables visible in the session's catalog; calling it again does nothing.

    If a step fails, the steps before it are undone.
    """
    if spark in _ON:
        return
    session_id = JvmSession(spark).session_id
    if session_id in _OPENING:
        return  # a plan that is analyzed below has called the session's hook
    with _LOCK:
        if spark in _ON:
            return
        check_analyzer(spark)
        warn_of_delta_spark_jar(spark)
        _OPENING.add(session_id)
        try:
            with ExitStack() as undo:
                _install(spark, undo)
                undo.pop_all()
        finally:
            _OPENING.discard(session_id)
        shared_runner().add(_LAST_COMMIT)
        shared_runner().add(_CACHED_ROWS)
        compact_after_writes()
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
    undo.callback(unhook_session, jvm)
    hook_session(jvm)
    undo.callback(drop_delta_spark_catalog(spark))
    undo.callback(release_session_catalog, jvm)
    keep_session_catalog(jvm)
    undo.callback(_use_second_source_api, spark)
    _use_first_source_api(spark)
    undo.callback(spark.conf.unset, ENABLED.key)
    spark.conf.set(ENABLED.key, "true")


def _use_first_source_api(spark: SparkSession) -> None:
    """Let Spark write to the format delta by the first of its two APIs for data sources.

    The second parses the names of partition columns as SQL, and so refuses names that tables have.
    """
    names = _first_api_sources(spark)
    if _FORMAT not in names:
        spark.conf.set(_FIRST_API, ",".join([*names, _FORMAT]))


def _use_second_source_api(spark: SparkSession) -> None:
    spark.conf.set(
        _FIRST_API, ",".join(name for name in _first_api_sources(spark) if name != _FORMAT)
    )


def _first_api_sources(spark: SparkSession) -> list[str]:
    return [name for name in (spark.conf.get(_FIRST_API) or "").split(",") if name]


def turn_off(spark: SparkSession) -> None:
    """Undo `turn_on`."""
    is_on = is_enabled(spark)
    with _LOCK:
        _ON.discard(spark)
        _OFF.add(spark)
        if not is_on:
            return
        spark.conf.unset(ENABLED.key)
        _use_second_source_api(spark)
        jvm = JvmSession(spark)
        remove_relation_cache(jvm)
        remove_path_catalog(jvm)
        remove_table_functions(jvm, list(table_functions(spark)))
        remove_rule(jvm)
        unhook_session(jvm)
        release_session_catalog(jvm)
        forget_objects(spark)


def enabled_session() -> SparkSession | None:
    """An enabled session; None if there is none."""
    return next(iter(_ON), None)


def any_enabled() -> bool:
    """Whether an enabled session still exists."""
    return len(_ON) > 0
