"""A rule of Spark's optimizer that asks Python: what a query over a table's log need not read.

Rules are Scala classes, and Python objects can only stand for interfaces.  Spark brings a compiler,
Janino, with which it compiles its own generated code; it compiles the few lines of Java here that
are such a class.  They look for plans of one shape and hand them on, so that a query without any
costs no call of Python.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError

from pyspark_delta.spark.jvm.callback_threads import note_caller
from pyspark_delta.spark.jvm.gateway import JvmSession

Replace = Callable[[Any], Any]
"""From an aggregate of Catalyst's to the plan in its place; None to leave it."""

_CLASS = "pyspark_delta.LogAnsweredAggregates"
# An aggregate without groups, directly over the rows of a scan whose index is a Python object:
# between them only filters, and projections that leave columns out or name them anew.
_SOURCE = """
package pyspark_delta;

import java.lang.reflect.Proxy;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import scala.collection.Iterator;
import scala.collection.mutable.ArrayBuffer;

public final class LogAnsweredAggregates extends Rule {
    private final Function python;

    public LogAnsweredAggregates(Function python) {
        this.python = python;
    }

    public TreeNode apply(TreeNode plan) {
        return plan.containsPattern(TreePattern.AGGREGATE()) ? replaced((LogicalPlan) plan) : plan;
    }

    private LogicalPlan replaced(LogicalPlan plan) {
        if (plan instanceof Aggregate && isOverScan((Aggregate) plan)) {
            Object found = python.apply(plan);
            if (found != null) {
                return (LogicalPlan) found;
            }
        }
        boolean isChanged = false;
        ArrayBuffer children = new ArrayBuffer();
        Iterator each = plan.children().iterator();
        while (each.hasNext()) {
            LogicalPlan child = (LogicalPlan) each.next();
            LogicalPlan made = replaced(child);
            isChanged = isChanged || made != child;
            children.addOne(made);
        }
        return isChanged ? (LogicalPlan) plan.withNewChildren(children.toSeq()) : plan;
    }

    private static boolean isOverScan(Aggregate aggregate) {
        if (aggregate.groupingExpressions().nonEmpty() || aggregate.isStreaming()) {
            return false;
        }
        LogicalPlan below = aggregate.child();
        while (below instanceof Filter || isOfColumns(below)) {
            below = (LogicalPlan) below.children().head();
        }
        if (!(below instanceof LogicalRelation)) {
            return false;
        }
        Object relation = ((LogicalRelation) below).relation();
        return relation instanceof HadoopFsRelation
            && Proxy.isProxyClass(((HadoopFsRelation) relation).location().getClass());
    }

    private static boolean isOfColumns(LogicalPlan plan) {
        if (!(plan instanceof Project)) {
            return false;
        }
        Iterator each = ((Project) plan).projectList().iterator();
        while (each.hasNext()) {
            Object column = each.next();
            if (column instanceof Alias) {
                column = ((Alias) column).child();
            }
            if (!(column instanceof AttributeReference)) {
                return false;
            }
        }
        return true;
    }
}
"""
_LOG = logging.getLogger(__name__)


def install_rule(jvm: JvmSession, replace: Replace) -> None:
    """Let the session's queries go through the rule; once is enough, and its copies have it."""
    rules = jvm.session.experimental().extraOptimizations()
    if _is_among(rules):
        return
    try:
        rule = jvm.remembered(_CLASS, lambda: _compiled(jvm, replace))
    except Py4JError:
        # Queries are right without it, and read what they need not.
        _LOG.warning("Aggregates are not answered from the log: no rule for it.", exc_info=True)
        return
    _set_rules(jvm, rules.appended(rule))


def remove_rule(jvm: JvmSession) -> None:
    """Undo `install_rule`."""
    rules = jvm.session.experimental().extraOptimizations()
    if _is_among(rules):
        rule = jvm.remembered(_CLASS, lambda: None)
        _set_rules(jvm, rules.diff(jvm.seq([rule])))


def _is_among(rules: Any) -> bool:
    return any(rules.apply(i).getClass().getName() == _CLASS for i in range(rules.size()))


def _set_rules(jvm: JvmSession, rules: Any) -> None:
    getattr(jvm.session.experimental(), "extraOptimizations_$eq")(rules)


def _compiled(jvm: JvmSession, replace: Replace) -> Any:
    jvm.accept_callbacks()
    compiler = jvm.java_class("org.codehaus.janino.SimpleCompiler")()
    loader = jvm.static("org.apache.spark.util.Utils", "getContextOrSparkClassLoader")()
    compiler.setParentClassLoader(loader)
    compiler.cook(_SOURCE)
    made = compiler.getClassLoader().loadClass(_CLASS).getConstructors()[0]
    # By way of a list: Py4J lets Python objects pass as arguments, and not into arrays.
    arguments = jvm.java_class("java.util.ArrayList")()
    arguments.add(_Function(jvm, replace))
    return made.newInstance(arguments.toArray())


class _Function:
    """The object that Java calls."""

    class Java:
        """Tells Py4J which interface this is."""

        implements = ("java.util.function.Function",)

    def __init__(self, jvm: JvmSession, replace: Replace) -> None:
        self._jvm = jvm
        self._replace = replace

    def apply(self, aggregate: Any) -> Any:
        note_caller(self._jvm)
        try:
            return self._replace(aggregate)
        except Exception:
            # Whatever is wrong with the log, the scan that stays in the plan says it better.
            _LOG.debug("An aggregate was not answered from the log.", exc_info=True)
            return None
