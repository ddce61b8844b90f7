"""The optimizer's rule for scans of Delta tables: which version they read, what need not be read.

Rules are Scala classes, and Python objects can only stand for interfaces.  Spark brings a compiler,
Janino, with which it compiles its own generated code; it compiles `hooks/DeltaScans.java`, which
walks the plans and calls Python for what is to be decided.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any
from weakref import WeakSet

from pyspark.sql import SparkSession

from pyspark_delta.kernel.protocol.types import BINARY, LONG, StructField, StructType
from pyspark_delta.spark.jvm.callback_errors import noted_errors
from pyspark_delta.spark.jvm.callback_threads import note_caller
from pyspark_delta.spark.jvm.gateway import JvmSession, items
from pyspark_delta.spark.jvm.plans import plan_frame
from pyspark_delta.spark.jvm.table_plan import METADATA, without_deleted_rows
from pyspark_delta.spark.jvm.thrown_errors import thrown_in_java

VECTOR = "__delta_deletion_vector"
"""The column that has the bits of a file's deleted rows."""

Versions = Callable[[str, list[str]], list[Any]]
"""From the command that runs a query, and the names of the query's file indexes that follow their
tables, to the indexes that it reads.  The command is empty where there is none."""

Answer = Callable[[Any], Any]
"""From an aggregate of Catalyst's to the plan in its place; None to leave it."""

_COMMAND = "pyspark_delta.command"
_CLASS = "pyspark_delta.DeltaScans"
_PLANS = "org.apache.spark.sql.catalyst.plans.logical"
_ROW_INDEX = StructType((StructField("row_index", LONG),))
# Sessions that have the rule, as far as is known here.
_INSTALLED: WeakSet[SparkSession] = WeakSet()
_LOG = logging.getLogger(__name__)


def scan_rule(jvm: JvmSession) -> Any:
    """The rule, one for each JVM; it also makes file indexes."""
    return jvm.remembered(_CLASS, lambda: _compiled(jvm))


def install_rule(jvm: JvmSession, versions: Versions, answer: Answer) -> None:
    """Let the session's queries go through the rule; once is enough, and its copies have it."""
    if jvm.spark in _INSTALLED:
        return
    rules = jvm.session.experimental().extraOptimizations()
    if not _is_among(rules):
        scan_rule(jvm).decideBy(_Versions(jvm, versions), _Answers(jvm, answer))
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
    """Let queries that this thread plans meanwhile be known as a command's; gives the outer one's.

    Spark hands the name on to threads of its own; Java calls Python on whatever thread it likes.
    """
    context = jvm.spark.sparkContext
    outer = context.getLocalProperty(_COMMAND)
    context.setLocalProperty(_COMMAND, name)
    try:
        yield outer
    finally:
        context.setLocalProperty(_COMMAND, outer)  # type: ignore[arg-type]


def _is_among(rules: Any) -> bool:
    return any(rules.apply(i).getClass().getName() == _CLASS for i in range(rules.size()))


def _set_rules(jvm: JvmSession, rules: Any) -> None:
    getattr(jvm.session.experimental(), "extraOptimizations_$eq")(rules)


def _compiled(jvm: JvmSession) -> Any:
    jvm.accept_callbacks()
    compiler = jvm.java_class("org.codehaus.janino.SimpleCompiler")()
    loader = jvm.static("org.apache.spark.util.Utils", "getContextOrSparkClassLoader")()
    compiler.setParentClassLoader(loader)
    source = files("pyspark_delta.spark.jvm") / "hooks" / "DeltaScans.java"
    compiler.cook(source.read_text(encoding="utf-8"))
    made = compiler.getClassLoader().loadClass(_CLASS).getConstructors()[0]
    return made.newInstance(jvm.array(jvm.java_class("java.lang.Object"), _live_rows(jvm)))


def _live_rows(jvm: JvmSession) -> tuple[Any, Any]:
    """The condition for rows that are not deleted, and the column of bits in it."""
    columns = StructType((StructField(VECTOR, BINARY), StructField(METADATA, _ROW_INDEX)))
    relation = jvm.java_class(f"{_PLANS}.LocalRelation$").apply(jvm.data_type(columns))
    rows = plan_frame(jvm, without_deleted_rows(jvm, relation, VECTOR))
    plan = rows._jdf.queryExecution().analyzed()
    return plan.condition(), items(plan.output())[0]


class _Versions:
    """The object that Java calls for the file indexes of one version."""

    class Java:
        """Tells Py4J which interface this is."""

        implements = ("java.util.function.Function",)

    def __init__(self, jvm: JvmSession, versions: Versions) -> None:
        self._jvm = jvm
        self._versions = versions

    def apply(self, names: str) -> Any:
        note_caller(self._jvm)
        # A query that is being planned was not started here: Java must see what went wrong.
        with thrown_in_java(self._jvm), noted_errors():
            found = self._jvm.java_class("java.util.ArrayList")()
            command, *followed = names.split("\n")
            for index in self._versions(command, followed):
                found.add(index)
            return found


class _Answers:
    """The object that Java calls for an aggregate that the log may answer."""

    class Java:
        """Tells Py4J which interface this is."""

        implements = ("java.util.function.Function",)

    def __init__(self, jvm: JvmSession, answer: Answer) -> None:
        self._jvm = jvm
        self._answer = answer

    def apply(self, aggregate: Any) -> Any:
        note_caller(self._jvm)
        try:
            return self._answer(aggregate)
        except Exception:
            # Whatever is wrong with the log, the scan that stays in the plan says it better.
            _LOG.debug("An aggregate was not answered from the log.", exc_info=True)
            return None
