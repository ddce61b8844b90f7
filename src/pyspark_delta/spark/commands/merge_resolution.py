"""What the names in a MERGE mean: its condition and clauses over a source and a target.

Expressions of WHEN MATCHED see both sides, those of NOT MATCHED the source, those of NOT MATCHED BY
SOURCE the target.  The result is texts of SQL, one for each column of each clause, over names
that `jvm.merge_plan` knows; no job runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_delta.kernel.protocol.type_widening import TypeWideningMode
from pyspark_delta.kernel.protocol.types import (
    StructType,
)
from pyspark_delta.kernel.scan.predicates import TRUE, Predicate
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.commands.merge_clauses import ClauseKind, Default, MergeClause
from pyspark_delta.spark.commands.merge_columns import (
    ClauseColumns,
    ClauseValues,
    TableColumns,
    target_names,
)
from pyspark_delta.spark.commands.merge_lookup import (
    NOTHING_FOUND,
    SEARCH_CONDITION,
    Asked,
    Lookup,
)
from pyspark_delta.spark.commands.merge_targets import (
    Assigned,
    Path,
    Target,
    evolved_schema,
)
from pyspark_delta.spark.commands.write_definition import data_schema
from pyspark_delta.spark.exact_names import is_exact
from pyspark_delta.spark.jvm.catalyst import column_of
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.merge_plan import (
    Found,
    Scope,
    named_columns,
    named_scope,
    scope_of,
    shown_conditions,
)
from pyspark_delta.spark.jvm.moments import Moment
from pyspark_delta.spark.jvm.table_plan import quoted_name

CONDITION = "__delta_condition"
"""The name of the search condition."""

# What the target is called when nobody calls it anything.
_NAMELESS = ("__delta_target",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """A MERGE whose names all mean something.

    `at_source`, `at_target` and `at_both` are the expressions that the texts of `clauses` name, by
    what they see; `values` are more of them that are made of these.  `schema` is what the table's
    will be; `before` has the text of each of its columns as the target has it now.
    `condition_columns` are those of the target that the condition names, `moment` is the time
    that all of it sees.  `has_queries` says that values come from queries, of the table perhaps.
    `taken` is true for every row of the target that a clause can be for.
    """

    source: Scope
    target: Scope
    moment: Moment = field(hash=False)
    condition: Column = field(hash=False)
    predicate: str
    at_source: Found = field(hash=False)
    at_target: Found = field(hash=False)
    at_both: Found = field(hash=False)
    values: Mapping[str, Column] = field(hash=False)
    clauses: tuple[ClauseValues, ...]
    schema: StructType
    before: Mapping[str, str] = field(hash=False)
    condition_columns: tuple[str, ...] = ()
    has_queries: bool = False
    taken: Predicate = TRUE

    def of_kind(self, *kinds: ClauseKind) -> dict[int, ClauseValues]:
        """The clauses of these kinds by their numbers."""
        return {i: each for i, each in enumerate(self.clauses) if each.clause.kind in kinds}


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeNames:
    """Everything that names of a MERGE are looked up in.

    `called` is what the target may be called; `tells_before` says that its old values are wanted.
    `own_columns` are the sets of columns that other frames over the target have.
    """

    jvm: JvmSession
    txn: OptimisticTransaction
    source: DataFrame = field(hash=False)
    target: DataFrame = field(hash=False)
    called: tuple[str, ...]
    evolves: bool
    widening: TypeWideningMode
    tells_before: bool
    moment: Moment = field(hash=False)
    own_columns: tuple[Any, ...] = field(default=(), hash=False)


def resolve_merge(
    names: MergeNames, condition: Column, clauses: Sequence[MergeClause]
) -> Resolution:
    """Look everything up; typed errors, or Spark's own, for what makes no sense."""
    return _Resolver(names, clauses).resolve(condition)


def resolve_alone(
    names: MergeNames, clauses: Sequence[MergeClause], schema: StructType
) -> Resolution:
    """The clauses for rows of the target alone, once more over another frame of the target's.

    `schema` is what the MERGE makes of the table's.
    """
    return _Resolver(names, clauses).resolve_alone(schema)


def resolve_inserts(
    names: MergeNames, condition: Column, clauses: Sequence[MergeClause], schema: StructType
) -> Resolution:
    """The condition and the clauses for source rows, over a frame with columns of the target.

    These are columns that the condition names; `schema` is what the MERGE makes of the table's.
    """
    return _Resolver(names, clauses).resolve_inserts(condition, schema)


class _Resolver:
    """One MERGE on its way from names to expressions."""

    def __init__(self, names: MergeNames, clauses: Sequence[MergeClause]) -> None:
        self._names = names
        self._jvm = names.jvm
        self._clauses = clauses
        self._called = names.called or _NAMELESS
        snapshot = names.txn.snapshot
        assert snapshot is not None
        schema = snapshot.metadata.schema
        brought = data_schema(names.source.schema) if names.evolves else None
        self._lookup = Lookup(
            jvm=names.jvm,
            source=scope_of(names.source),
            target=named_scope(names.jvm, names.target, self._called),
            called=self._called,
            moment=names.moment,
            own=names.own_columns,
            hidden=frozenset(names.target.columns).difference(schema.names),
        )
        self._source, self._target_scope = self._lookup.source, self._lookup.target
        self._source_columns = names.source.columns
        self._table = TableColumns.of(
            names.jvm, schema, names.txn.protocol, self._source_columns, evolves=names.evolves
        )
        self._target = Target(
            schema=schema,
            called=self._called,
            scope=self._source,
            source=brought,
            exact=is_exact(names.jvm.spark),
            computes=bool(self._table.computed or self._table.numbered),
        )

    def resolve(self, condition: Column) -> Resolution:
        jvm = self._jvm
        assigned = [self._assigned(clause) for clause in self._clauses]
        stars = [
            self._target.star_columns(clause, self._source_columns) if clause.is_star else ()
            for clause in self._clauses
        ]
        both = self._lookup.both
        at_source = self._find(self._source, "not matched", assigned, self._star_texts(stars))
        at_target = self._find(self._target_scope, None, assigned, self._target_texts())
        at_both = self._find(both, "matched", assigned, {}, condition)
        alone = self._find(self._target_scope, "not matched by source", assigned, {})
        schema = self._schema(assigned, stars)
        of_kind: dict[ClauseKind, Found] = {
            "matched": at_both,
            "not matched": at_source,
            "not matched by source": alone,
        }
        made = []
        for number, clause in enumerate(self._clauses):
            # Rows that turn out to be alone are looked up again.
            is_alone = clause.kind == "not matched by source"
            table = self._table.apart() if is_alone else self._table
            found = of_kind[clause.kind]
            values = ClauseColumns(table, clause, number, schema, found, at_source, at_target)
            made.append(values.values(assigned[number], stars[number]))
        resolved = at_both.expression(CONDITION)
        told = self._told(made, of_kind, resolved)
        before = self._before(schema, at_target)
        return Resolution(
            source=self._source,
            target=self._target_scope,
            moment=self._names.moment,
            condition=column_of(jvm, resolved),
            predicate=told[CONDITION],
            at_source=at_source,
            at_target=at_target,
            at_both=at_both,
            values=self._table.made,
            clauses=tuple(replace(each, predicate=told.get(each.condition or "")) for each in made),
            schema=schema,
            before=before,
            condition_columns=tuple(named_columns(resolved, self._target_scope)),
            has_queries=any(each.has_queries for each in (at_source, at_target, at_both, alone)),
        )

    def _told(
        self, made: Sequence[ClauseValues], found: Mapping[ClauseKind, Found], condition: object
    ) -> dict[str, str]:
        """Every condition as the history tells it, by its name."""
        named: dict[str, object] = {CONDITION: condition}
        for each in made:
            if each.condition is not None:
                named[each.condition] = found[each.clause.kind].expression(each.condition)
        return shown_conditions(self._jvm, [self._source, self._target_scope], named)

    def resolve_alone(self, schema: StructType) -> Resolution:
        """Look up the clauses that see the target alone; the others have no columns."""
        kind = "not matched by source"
        assigned = [
            self._assigned(clause) if clause.kind == kind else () for clause in self._clauses
        ]
        at_target = self._find(self._target_scope, None, assigned, self._target_texts())
        alone = self._find(self._target_scope, kind, assigned, {})
        made = []
        for number, clause in enumerate(self._clauses):
            if clause.kind == kind:
                values = ClauseColumns(
                    self._table, clause, number, schema, alone, NOTHING_FOUND, at_target
                )
                made.append(values.values(assigned[number], ()))
            else:
                made.append(ClauseValues(clause=clause, condition=None, columns={}))
        before = self._before(schema, at_target)
        return Resolution(
            source=self._source,
            target=self._target_scope,
            moment=self._names.moment,
            condition=F.lit(True),
            predicate="",
            at_source=NOTHING_FOUND,
            at_target=at_target,
            at_both=alone,
            values=self._table.made,
            clauses=tuple(made),
            schema=schema,
            before=before,
        )

    def resolve_inserts(self, condition: Column, schema: StructType) -> Resolution:
        """Look up the clauses that see the source alone; the others have no columns."""
        kind = "not matched"
        assigned = [
            self._assigned(clause) if clause.kind == kind else () for clause in self._clauses
        ]
        stars = [
            self._target.star_columns(clause, self._source_columns)
            if clause.is_star and clause.kind == kind
            else ()
            for clause in self._clauses
        ]
        both = self._lookup.both
        at_source = self._find(self._source, kind, assigned, self._star_texts(stars))
        at_both = self._find(both, None, assigned, {}, condition)
        made = []
        for number, clause in enumerate(self._clauses):
            if clause.kind == kind:
                values = ClauseColumns(
                    self._table, clause, number, schema, at_source, at_source, NOTHING_FOUND
                )
                made.append(values.values(assigned[number], stars[number]))
            else:
                made.append(ClauseValues(clause=clause, condition=None, columns={}))
        return Resolution(
            source=self._source,
            target=self._target_scope,
            moment=self._names.moment,
            condition=column_of(self._jvm, at_both.expression(CONDITION)),
            predicate="",
            at_source=at_source,
            at_target=NOTHING_FOUND,
            at_both=at_both,
            values=self._table.made,
            clauses=tuple(made),
            schema=schema,
            before={},
        )

    def _before(self, schema: StructType, at_target: Found) -> dict[str, str]:
        """The text of each column as the target has it now, in its type to come."""
        if not self._names.tells_before:
            return {}
        clause = MergeClause(kind="matched", action="update")
        old = ClauseColumns(self._table, clause, -1, schema, at_target, at_target, at_target)
        return {f.name: old.kept(f) for f in schema}

    def _assigned(self, clause: MergeClause) -> tuple[Assigned, ...]:
        return self._target.assignments(self._jvm, clause)

    def _star_texts(self, stars: Sequence[Sequence[str]]) -> dict[str, str]:
        """The source's columns that stars need, by the names that they are looked up under."""
        needed = {name.lower() for star in stars for name in star}
        return {
            f"__delta_s{i}": quoted_name(name)
            for i, name in enumerate(self._source_columns)
            if name.lower() in needed
        }

    def _target_texts(self) -> dict[str, str]:
        # The target's frame has more columns than the table: where each row is, and its id.
        own = target_names(self._target.schema)
        more = [name for name in self._names.target.columns if name not in own]
        return {
            **{name: quoted_name(column) for column, name in own.items()},
            **{name: quoted_name(name) for name in more},
        }

    def _schema(
        self, assigned: Sequence[Sequence[Assigned]], stars: Sequence[Sequence[str]]
    ) -> StructType:
        if self._target.source is None:
            return self._target.schema
        paths: list[Path] = []
        for clause, each, star in zip(self._clauses, assigned, stars, strict=True):
            if clause.kind != "not matched by source":
                paths += [one.path for one in each]
                paths += [(name,) for name in star]
        names = self._names
        return evolved_schema(names.txn, self._target.source, paths, names.widening)

    def _find(
        self,
        scope: Scope,
        kind: str | None,
        assigned: Sequence[Sequence[Assigned]],
        texts: Mapping[str, str],
        condition: Column | None = None,
    ) -> Found:
        """Look up a scope's texts, and the conditions and values of one kind of clauses."""
        return self._lookup.find(scope, list(self._asked(kind, assigned, condition)), texts)

    def _asked(
        self, kind: str | None, assigned: Sequence[Sequence[Assigned]], condition: Column | None
    ) -> Iterator[Asked]:
        """What users wrote for one kind of clauses."""
        if condition is not None:
            yield Asked(CONDITION, condition, SEARCH_CONDITION)
        for number, clause in enumerate(self._clauses):
            if clause.kind != kind:
                continue
            if clause.condition is not None:
                yield Asked(f"__delta_c{number}", clause.condition, f"{clause.shown} condition")
            for place, each in enumerate(assigned[number]):
                if not isinstance(each.value, Default):
                    yield Asked(f"__delta_v{number}_{place}", each.value, f"{clause.shown} clause")
