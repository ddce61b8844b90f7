"""Logical plans and their DataFrames: naming, UNION, caching, EXPLAIN, size, what they hold.

The plan of a table over the scan of its files drops deleted rows and renames columns.  It uses
Catalyst's own nodes and expressions, so Spark optimizes and compiles it as any query.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any, Literal

from pyspark.sql import DataFrame

from pyspark_delta.kernel.protocol.types import BOOLEAN, DataType, StructType
from pyspark_delta.kernel.sql.quoting import quoted_name
from pyspark_delta.spark.jvm.expressions.catalyst import alias_of, static_call
from pyspark_delta.spark.jvm.gateway import (
    JvmSession,
    analyzed_plan,
    has_cached_plans,
    items,
    option_value,
    simple_name,
)

ExplainMode = Literal["simple", "extended", "codegen", "cost", "formatted"]
"""The modes of EXPLAIN."""
Qualifier = str | tuple[str, ...] | None
"""The name of a table in expressions: an alias, all parts of its name, or none."""
UNION_SETTINGS = {"spark.sql.unionOutputPartitioning": "false"}
"""Settings for planning a union, so that inputs with one partition each stay separate."""
_HASHED_RELATIONS = ("LongHashedRelation", "UnsafeHashedRelation")
METADATA = "_metadata"
"""Spark's hidden column with metadata of a row's file, unless a column has that name."""
_BIT_SETS = "org.apache.spark.unsafe.bitset.BitSetMethods"
# The offset of the first byte in a Java array.
_ARRAY_START = "16L"
# The metadata key of columns that are resolved by name but are not in `*`.
_MARK = f'{{"__metadata_col":"{METADATA}"}}'
# A field that only our struct has.
_OWN_FIELD = "row_commit_version"
# Set when the first struct is made: before that, no plan need be searched for one.
_MADE = Event()


def table_plan(jvm: JvmSession, data: DataFrame, catalog_table: Any) -> Any:
    """The plan of `data`, with the catalog's table in each of its scans.

    REFRESH and UNCACHE find a table by it, and EXPLAIN shows it.  The plan is never a bare scan,
    because Spark's own INSERT would write into a scan and bypass the log.
    """
    plan = _with_catalog_table(jvm, analyzed_plan(data), catalog_table)
    return jvm.plan_class("Project")(plan.output(), plan)


def plan_frame(jvm: JvmSession, plan: Any) -> DataFrame:
    """The DataFrame of a plan, which is analyzed by this call."""
    dataset = jvm.java_class("org.apache.spark.sql.classic.Dataset$")
    return jvm.data_frame(dataset.ofRows(jvm.session, plan))


def empty_frame(jvm: JvmSession) -> DataFrame:
    """The result of a statement without one: no columns, no rows."""
    return jvm.data_frame(jvm.session.emptyDataFrame())


def empty_rows(jvm: JvmSession, schema: StructType) -> DataFrame:
    """No rows, with the columns of a schema."""
    return plan_frame(jvm, jvm.plan_class("LocalRelation$").apply(jvm.data_type(schema)))


def move_cached(jvm: JvmSession, old_plan: Any, new_plan: Any, name: str) -> None:
    """If the rows of `old_plan` are cached, cache those of `new_plan` instead."""
    if not has_cached_plans(jvm):
        return
    manager = jvm.session.sharedState().cacheManager()
    found = option_value(manager.lookupCachedData(jvm.session, old_plan))
    if found is None:
        return
    level = found.cachedRepresentation().cacheBuilder().storageLevel()
    manager.uncacheQuery(jvm.session, old_plan, False)
    manager.cacheQuery(jvm.session, new_plan, jvm.some(name), level)


def read_cached_again(jvm: JvmSession, location: str) -> None:
    """Invalidate cached rows of files in a directory; Spark reads them again on the next use."""
    jvm.session.sharedState().cacheManager().recacheByPath(jvm.session, location)


def explain_text(jvm: JvmSession, rows: DataFrame, mode: ExplainMode) -> str:
    """The text of Spark's EXPLAIN of the rows; no job is run."""
    modes = jvm.java_class("org.apache.spark.sql.execution.ExplainMode")
    return str(rows._jdf.queryExecution().explainString(modes.fromString(mode)))


def named_rows(rows: DataFrame, called: Qualifier) -> DataFrame:
    """`rows` as the table of that name: `t`, or `db.t` and `t` where the name has two parts."""
    if not called:
        return rows
    if isinstance(called, str) or len(called) == 1:
        return rows.alias(called if isinstance(called, str) else called[0])
    jvm = JvmSession(rows.sparkSession)
    return plan_frame(jvm, named_plan(jvm, analyzed_plan(rows), called))


def named_plan(jvm: JvmSession, plan: Any, name: Sequence[str]) -> Any:
    """A plan whose columns are qualified by a table name, which may have several parts."""
    identifier = jvm.java_class("org.apache.spark.sql.catalyst.AliasIdentifier")
    alias = identifier(name[-1], jvm.seq(name[:-1]))
    return jvm.plan_class("SubqueryAlias$").apply(alias, plan)


def without_name(
    path: Sequence[str], called: Qualifier, *, exact: bool = False
) -> tuple[tuple[str, ...], ...]:
    """Other interpretations of a path: without the leading table name, or an ending of that name.

    With `exact`, case must match.

    >>> without_name(("db", "t", "x"), ("cat", "db", "t"))
    (('x',),)
    >>> without_name(("t", "x"), "t"), without_name(("x",), "x"), without_name(("a", "b"), None)
    ((('x',),), (), ())
    """
    names = (called,) if isinstance(called, str) else tuple(called or ())
    whole = [part if exact else part.lower() for part in names]
    steps = [step if exact else step.lower() for step in path]
    return tuple(
        tuple(path[size:])
        for size in range(len(whole), 0, -1)
        if len(path) > size and steps[:size] == whole[-size:]
    )


def union_of(jvm: JvmSession, frames: Sequence[DataFrame]) -> DataFrame:
    """The UNION ALL of frames with the same columns, analyzed once."""
    return plan_frame(jvm, union_plan(jvm, [analyzed_plan(frame) for frame in frames]))


def union_plan(jvm: JvmSession, plans: Sequence[Any]) -> Any:
    """The plan of a UNION ALL; columns match by position."""
    by_name, allows_missing = False, False
    return jvm.plan_class("Union")(jvm.seq(plans), by_name, allows_missing)


def coalesced_plan(jvm: JvmSession, plan: Any, tasks: int) -> Any:
    """A plan of the same rows with at most so many tasks, without a shuffle."""
    shuffles = False
    return jvm.plan_class("Repartition")(tasks, shuffles, plan)


def size_in_bytes(frame: DataFrame) -> int:
    """Spark's estimate of the size of the rows; a huge number when it has no estimate."""
    return int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))


def broadcast_threshold(jvm: JvmSession) -> int:
    """The size up to which Spark broadcasts rows without a hint; negative for never."""
    return int(jvm.state.conf().autoBroadcastJoinThreshold())


def output_set(frame: DataFrame) -> Any:
    """The columns of a DataFrame with Catalyst's ids, which make them unique."""
    return analyzed_plan(frame).outputSet()


def stored_bytes(jvm: JvmSession, checkpointed: DataFrame) -> int:
    """The size of a local checkpoint, in memory and on disk."""
    number = analyzed_plan(checkpointed).rdd().id()
    infos = jvm.spark.sparkContext._jsc.sc().getRDDStorageInfo()
    sizes = (int(each.memSize()) + int(each.diskSize()) for each in infos if each.id() == number)
    return next(sizes, 0)


def observed(frame: DataFrame, name: str) -> int | None:
    """The value of a metric of `DataFrame.observe`, once a job over the frame has run.

    None when the optimizer has removed the observing node from the plan that ran.
    """
    found = option_value(frame._jdf.queryExecution().observedMetrics().get(name))
    return None if found is None else int(found.getLong(0))


def release(checkpointed: DataFrame) -> None:
    """Free the memory and disk of a local checkpoint."""
    plan = analyzed_plan(checkpointed)
    if simple_name(plan) == "LogicalRDD":
        rdd = plan.rdd()
        # Not `RDD.unpersist`: it warns that the rows cannot be computed again.
        rdd.sparkContext().unpersistRDD(rdd.id(), False)


def running_once(jvm: JvmSession, frame: DataFrame) -> DataFrame:
    """A DataFrame over the physical plan of `frame`, which is fixed by this call."""
    query = frame._jdf.queryExecution()
    schema = frame._jdf.schema()
    return jvm.data_frame(jvm.session.internalCreateDataFrame(query.toRdd(), schema, False))


def release_broadcasts(frame: DataFrame) -> None:
    """Free the broadcasts of a frame whose jobs have all succeeded.

    Spark keeps them until a garbage collection of the JVM, which first needs a collection in
    Python, whose objects hold the plan.  Until then each join holds a page of Spark's memory, up to
    64 MB for a few rows, so a few dozen small MERGEs would hold gigabytes.

    The frame cannot be computed a second time.  A task that is still running could read pages that
    were reused, so this is not for jobs that failed.
    """
    plan = frame._jdf.queryExecution().executedPlan()
    if simple_name(plan) != "AdaptiveSparkPlanExec":
        return
    for stage in items(plan.context().stageCache().values().toSeq()):
        if simple_name(stage) != "BroadcastQueryStageExec":
            continue
        broadcast = option_value(stage.resultOption().get())
        if broadcast is None:
            continue
        relation = broadcast.value()
        # Its pages return to the pool from which the next join takes them.
        if simple_name(relation) in _HASHED_RELATIONS:
            relation.close()
        broadcast.destroy()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A column of the table: its name, and the SQL over the scan's columns that computes it.

    `cast_to` is set when names of nested fields differ too.  `metadata` is JSON, or None for a
    column that keeps the metadata of its expression.
    """

    name: str
    expression: str
    cast_to: DataType | None = None
    metadata: str | None = None


def metadata_name(columns: Iterable[str]) -> str:
    """Spark's name for `_metadata` beside these columns.

    >>> metadata_name(["id"]), metadata_name(["_metadata"])
    ('_metadata', '__metadata')
    """
    taken = {name.lower() for name in columns}
    name = METADATA
    while name in taken:
        name = f"_{name}"
    return name


def without_deleted_rows(
    jvm: JvmSession, plan: Any, bits: str, metadata: str = METADATA, *, kept_from: str | None = None
) -> Any:
    """The rows of a scan whose bit in the binary column `bits` is not set.

    The position of a row is Spark's own `_metadata.row_index`: its position in the file, regardless
    of splits and skipped row groups.  Where the column `kept_from` is not null, it is the row of
    the first bit, and the rows whose bits are set are kept.
    """
    condition = jvm.remembered(
        f"{__name__} {bits} {metadata} {kept_from}",
        lambda: _is_live(jvm, bits, f"{metadata}.row_index", kept_from),
    )
    return jvm.plan_class("Filter")(condition, plan)


def with_columns(jvm: JvmSession, plan: Any, columns: Sequence[TableColumn]) -> Any:
    """The table's columns and no others, in this order."""
    listed = ", ".join(f"{each.expression} AS {quoted_name(each.name)}" for each in columns)
    selected = jvm.parser.parsePlan(f"SELECT {listed}")
    if all(column.metadata is None for column in columns):
        return selected.withNewChildren(jvm.seq([plan]))
    made = items(selected.projectList())
    for i, column in enumerate(columns):
        if column.metadata is not None:
            value = made[i].child()
            if column.cast_to is not None:
                value = _cast(jvm, value, column.cast_to)
            made[i] = alias_of(jvm, value, column.name, column.metadata)
    return jvm.plan_class("Project")(jvm.seq(made), plan)


def with_hidden_struct(
    jvm: JvmSession, plan: Any, columns: Sequence[TableColumn], fields: Sequence[tuple[str, str]]
) -> Any:
    """As `with_columns`, with `_metadata` made from these fields, each a name and a SQL expression.

    One of them is `row_commit_version`.
    """
    _MADE.set()
    listed = ", ".join(f"'{name}', {expression}" for name, expression in fields)
    text = f"SELECT *, named_struct({listed})"
    selected = jvm.parser.parsePlan(text).projectList()
    name = metadata_name(column.name for column in columns)
    struct = alias_of(jvm, selected.last().child(), name, _MARK)
    project = jvm.plan_class("Project")
    # The struct is the only column computed there: for a self-join Spark gives new ids to all
    # computed columns of a projection, or to none.
    inner = analyzed_plan(plan_frame(jvm, project(jvm.seq([selected.head(), struct]), plan)))
    outer = analyzed_plan(plan_frame(jvm, with_columns(jvm, inner, columns)))
    # Spark resolves the columns that a USING join hides in the same way.
    outer.setTagValue(_hidden_tag(jvm), inner.output().takeRight(1))
    return outer


def with_own_struct(jvm: JvmSession, plan: Any) -> Any:
    """The plan with a new struct where `with_hidden_struct` made one: for a self-join.

    Spark gives the columns of a join's right side new ids, and loses hidden ones.
    """
    return _with_own_struct(jvm, plan)[0]


def frame_with_own_struct(jvm: JvmSession, data: DataFrame) -> DataFrame:
    """As `with_own_struct`; `data` itself when there is nothing to change."""
    if not _MADE.is_set():
        return data
    plan = analyzed_plan(data)
    return plan_frame(jvm, with_own_struct(jvm, plan)) if has_hidden_struct(plan) else data


def has_hidden_struct(plan: Any) -> bool:
    """Whether the plan has a struct that was made here, and not among its columns."""
    return any(
        _OWN_FIELD in attribute.dataType().simpleString()
        and not plan.outputSet().contains(attribute)
        for attribute in items(plan.metadataOutput())
    )


def _with_catalog_table(jvm: JvmSession, plan: Any, catalog_table: Any) -> Any:
    children = items(plan.children())
    if children:
        return plan.withNewChildren(
            jvm.seq([_with_catalog_table(jvm, c, catalog_table) for c in children])
        )
    if simple_name(plan) != "LogicalRelation":
        return plan
    return plan.copy(
        plan.relation(), plan.output(), jvm.some(catalog_table), plan.isStreaming(), plan.stream()
    )


def _with_own_struct(jvm: JvmSession, plan: Any) -> tuple[Any, Any]:
    """The new plan, and a Scala map from the old struct to the new; None for no change."""
    if simple_name(plan) == "Project":
        tagged = plan.getTagValue(_hidden_tag(jvm))
        if tagged.isDefined() and _OWN_FIELD in tagged.get().head().dataType().simpleString():
            return _with_new_struct(jvm, plan, tagged.get().head())
    children, changes = [], None
    for child in items(plan.children()):
        made, changed = _with_own_struct(jvm, child)
        children.append(made)
        changes = changed if changes is None else changes
    if changes is None:
        return plan, None
    return plan.withNewChildren(jvm.seq(children)).rewriteAttrs(changes), changes


def _with_new_struct(jvm: JvmSession, outer: Any, old: Any) -> tuple[Any, Any]:
    inner = outer.child()
    listed = inner.projectList()
    new = alias_of(jvm, listed.last().child(), old.name(), _MARK)
    child = jvm.plan_class("Project")(jvm.seq([*items(listed.init()), new]), inner.child())
    pair = jvm.java_class("scala.Tuple2")(old, new.toAttribute())
    changes = jvm.expression_class("AttributeMap$").apply(jvm.seq([pair]))
    made = outer.withNewChildren(jvm.seq([child])).rewriteAttrs(changes)
    made.setTagValue(_hidden_tag(jvm), jvm.seq([new.toAttribute()]))
    return made, changes


def _hidden_tag(jvm: JvmSession) -> Any:
    return jvm.plan_class("Project$").hiddenOutputTag()


def _cast(jvm: JvmSession, child: Any, data_type: DataType) -> Any:
    mode = jvm.expression_class("EvalMode$").LEGACY()
    return jvm.expression_class("Cast")(child, jvm.data_type(data_type), jvm.none(), mode)


def _is_live(jvm: JvmSession, bits: str, index: str, kept_from: str | None) -> Any:
    """Whether a row's bit is not set; true for rows after the last bit, and without bits.

    Where `kept_from` is not null, whether the bit that belongs to the row is set.
    """
    parse = jvm.parser.parseExpression
    both, either = jvm.expression_class("And"), jvm.expression_class("Or")
    untouched = parse(f"{bits} IS NULL OR {index} >= length({bits}) * 8L")
    left = either(untouched, jvm.expression_class("Not")(_is_set(jvm, bits, index)))
    if kept_from is None:
        return left
    place = f"({index} - {kept_from})"
    has_bit = parse(f"{kept_from} IS NOT NULL AND {place} BETWEEN 0 AND length({bits}) * 8L - 1")
    kept = both(has_bit, _is_set(jvm, bits, place))
    return either(both(parse(f"{kept_from} IS NULL"), left), kept)


def _is_set(jvm: JvmSession, bits: str, index: str) -> Any:
    """Whether the bit of that index is set; the index must be valid."""
    texts = (bits, _ARRAY_START, f"cast({index} as int)")
    arguments = list(map(jvm.parser.parseExpression, texts))
    return static_call(jvm, _BIT_SETS, "isSet", jvm.data_type(BOOLEAN), arguments)
