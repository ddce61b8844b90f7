"""Changes of a view that shows a table otherwise than it is, and what they mean for the table.

What a view does not show cannot be named, and stays as it is.  A column of the table may have the
name of another one there.  A column that the table lacks is in the way, named or not, and MERGE
takes only whole tables: so it is with delta-spark.  But where delta-spark writes what such a view
shows into the table, hidden columns becoming null, the table's own values are kept here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from pyspark_delta.errors.table import OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.spark.jvm.attribute_names import is_default_keyword, parse_attribute_name
from pyspark_delta.spark.jvm.catalyst import expression_of
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.merge_plan import has_subquery
from pyspark_delta.spark.jvm.named_rows import Called, named_rows, without_name
from pyspark_delta.spark.jvm.parsed_changes import ParsedChange, ParsedDelete, ParsedUpdate
from pyspark_delta.spark.jvm.table_plan import quoted_name
from pyspark_delta.spark.jvm.target_alias import renamed
from pyspark_delta.spark.jvm.view_plans import ShownTable


def through_view(
    spark: SparkSession,
    view: ShownTable,
    called: Called,
    parsed: ParsedChange,
    *,
    schema: StructType,
    path: str,
) -> ParsedChange:
    """The statement about the table at `path`, of that schema, that one about the view means.

    `called` is what the statement calls the view.
    """
    jvm = JvmSession(spark)
    reader = _ViewNames(jvm, view, called)
    if isinstance(parsed, ParsedDelete | ParsedUpdate):
        reader.check(parsed)
    own = {name.lower() for name in schema.names}
    unknown = [name for name in view.columns if name.lower() not in own]
    if not isinstance(parsed, ParsedDelete | ParsedUpdate):
        if unknown or len(view.columns) < len(own):
            shown = ", ".join(view.columns)
            raise SchemaError(
                "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS", schemaDiff=f"the view has {shown}"
            )
        raise OperationNotAllowedError("DELTA_UNEXPECTED_PARTIAL_SCAN", path=path)
    if unknown:
        raise SchemaError(
            "DELTA_CANNOT_RESOLVE_COLUMN", columnName=unknown[0], schema=", ".join(schema.names)
        )
    if not reader.can_rename(parsed):
        raise OperationNotAllowedError("DELTA_UNEXPECTED_PARTIAL_SCAN", path=path)
    return reader.renamed(parsed)


@dataclass(frozen=True, slots=True)
class _ViewNames:
    """The names of one view, and what they are called in its table."""

    jvm: JvmSession
    view: ShownTable
    called: Called

    def check(self, parsed: ParsedDelete | ParsedUpdate) -> None:
        """Spark's AnalysisException for what makes no sense over the columns that are shown."""
        rows = named_rows(self.view.rows, self.called)
        if isinstance(parsed, ParsedUpdate):
            rows.select(*[F.col(name) for name, _ in parsed.assignments])
        for value in _values(parsed):
            if not is_default_keyword(self.jvm, value):
                rows.select(value)
        if parsed.condition is not None:
            rows.where(parsed.condition)

    def can_rename(self, parsed: ParsedDelete | ParsedUpdate) -> bool:
        """Whether each column that is shown is one of the table's, and all names can be seen."""
        if None in self.view.columns.values():
            return False
        if all(name.lower() == own.lower() for name, own in self._pairs):
            return True
        given = [*_values(parsed), *([] if parsed.condition is None else [parsed.condition])]
        return not any(has_subquery(self.jvm, expression_of(self.jvm, each)) for each in given)

    def renamed(self, parsed: ParsedDelete | ParsedUpdate) -> ParsedChange:
        """The statement with the table's names."""
        asked = parsed.condition
        condition = None if asked is None else renamed(self.jvm, asked, self._own_name)
        if isinstance(parsed, ParsedDelete):
            return replace(parsed, condition=condition)
        assignments = tuple(
            (self._assigned(name), renamed(self.jvm, value, self._own_name))
            for name, value in parsed.assignments
        )
        return replace(parsed, condition=condition, assignments=assignments)

    @property
    def _pairs(self) -> list[tuple[str, str]]:
        return [(name, own) for name, own in self.view.columns.items() if own is not None]

    def _assigned(self, text: str) -> str:
        return ".".join(map(quoted_name, self._own_name(parse_attribute_name(self.jvm, text))))

    def _own_name(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        known = {name.lower(): own for name, own in self._pairs}
        for path in (parts, *without_name(parts, self.called)):
            own = known.get(path[0].lower())
            if own is not None:
                return (own, *path[1:])
        return parts


def _values(parsed: ParsedDelete | ParsedUpdate) -> Sequence[Column]:
    return [value for _, value in parsed.assignments] if isinstance(parsed, ParsedUpdate) else []
