"""The optimizer rule for scans of Delta tables: sets their version, and replaces aggregates.

Rules are Scala classes, and Python objects can only implement interfaces: `hooks/DeltaScans.java`
walks the plans, and calls Python for decisions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

from pyspark.sql import SparkSession

from pyspark_delta.kernel.machine import cache_directory
from pyspark_delta.kernel.protocol.types import BINARY, LONG, StructField, StructType
from pyspark_delta.spark.jvm.callbacks import note_caller, noted_errors, thrown_in_java
from pyspark_delta.spark.jvm.classes import load_classes
from pyspark_delta.spark.jvm.gateway import JvmSession, analyzed_plan, items, java_interfaces
from pyspark_delta.spark.jvm.plans.frames import plan_frame
from pyspark_delta.spark.jvm.plans.table import METADATA, without_deleted_rows

VECTOR = "__delta_deletion_vector"
"""The column that has the bits of a file's deleted rows."""

Versions = Callable[[str, list[str]], list[Any]]
"""Maps file indexes that follow their tables to the indexes that a query reads.

The arguments are the command that runs the query, empty if there is none, and the indexes' names.
"""

COMMAND = "pyspark_delta.command"
"""The local property of a thread with the name of the running command; None outside of one."""

Answer = Callable[[Any], Any]
"""Returns the plan that replaces an aggregate of Catalyst's; None to keep it."""

_CLASS = "pyspark_delta.DeltaScans"
_ROW_INDEX = StructType((StructField("row_index", LONG),))
# Sessions in which this process installed the rule.
_INSTALLED: WeakSet[SparkSession] = WeakSet()
_LOG = logging.getLogger(__name__)


def scan_rule(jvm: JvmSession) -> Any:
    """The rule, one for each JVM; it also makes file indexes."""
    return jvm.remembered(_CLASS, lambda: _new_rule(jvm))


def install_rule(jvm: JvmSession, versions: Versions, answer: Answer) -> None:
    """Add the rule to the session, if it is not there; copies of the session have it too."""
    if jvm.spark in _INSTALLED:
        return
    rules = jvm.session.experimental().extraOptimizations()
    if not _is_among(rules):
        decisions = (_version_indexes(jvm, versions), _log_answer(jvm, answer))
        scan_rule(jvm).decideBy(*map(_Function, decisions))
        _set_rules(jvm, rules.appended(scan_rule(jvm)))
    _INSTALLED.add(jvm.spark)


def remove_rule(jvm: JvmSession) -> None:
    """Undo `install_rule`."""
    _INSTALLED.discard(jvm.spark)
    rules = jvm.session.experimental().extraOptimizations()
    if _is_among(rules):
        _set_rules(jvm, rules.diff(jvm.seq([scan_rule(jvm)])))


@contextmanager
def running_command(jvm: JvmSession, name: str) -> Iterator[str | None]:
    """Mark queries that this thread plans as a command's; yields the outer command.

    Spark passes the name on to its own threads; Java may call Python on any thread.
    """
    context = jvm.spark.sparkContext
    outer = context.getLocalProperty(COMMAND)
    context.setLocalProperty(COMMAND, name)
    try:
        yield outer
    finally:
        context.setLocalProperty(COMMAND, outer)  # type: ignore[arg-type]


def _is_among(rules: Any) -> bool:
    return any(rule.getClass().getName() == _CLASS for rule in items(rules))


def _set_rules(jvm: JvmSession, rules: Any) -> None:
    getattr(jvm.session.experimental(), "extraOptimizations_$eq")(rules)


def _new_rule(jvm: JvmSession) -> Any:
    load_classes(jvm, cache_directory())
    return jvm.java_class(_CLASS)(*_live_rows(jvm))


def _live_rows(jvm: JvmSession) -> tuple[Any, Any]:
    """The condition for rows that are not deleted, and its column of bits."""
    columns = StructType((StructField(VECTOR, BINARY), StructField(METADATA, _ROW_INDEX)))
    relation = jvm.plan_class("LocalRelation$").apply(jvm.data_type(columns))
    rows = plan_frame(jvm, without_deleted_rows(jvm, relation, VECTOR))
    plan = analyzed_plan(rows)
    return plan.condition(), items(plan.output())[0]


def _version_indexes(jvm: JvmSession, versions: Versions) -> Callable[[str], Any]:
    """What Java calls for the file indexes of one version."""

    def indexes(names: str) -> Any:
        note_caller(jvm)
        # Spark's planner is the caller, so Java must see the error.
        with thrown_in_java(jvm), noted_errors():
            found = jvm.java_class("java.util.ArrayList")()
            command, *followed = names.split("\n")
            for index in versions(command, followed):
                found.add(index)
            return found

    return indexes


def _log_answer(jvm: JvmSession, answer: Answer) -> Callable[[Any], Any]:
    """What Java calls for an aggregate that the log may answer."""

    def plan(aggregate: Any) -> Any:
        note_caller(jvm)
        try:
            return answer(aggregate)
        except Exception:
            # The scan that stays in the plan gives a better error for a damaged log.
            _LOG.debug("An aggregate was not answered from the log.", exc_info=True)
            return None

    return plan


class _Function:
    """Java's function of one argument."""

    Java = java_interfaces("java.util.function.Function")

    def __init__(self, apply: Callable[[Any], Any]) -> None:
        self.apply = apply
