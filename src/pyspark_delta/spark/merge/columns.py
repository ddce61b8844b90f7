"""The columns of a MERGE: those that clauses assign to or add, and their new values.

Values are SQL text over resolved names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pyspark.sql import Column

from pyspark_delta.errors import (
    DeltaError,
    InvalidPredicateError,
    OperationNotAllowedError,
    SchemaError,
)
from pyspark_delta.kernel.protocol.actions import Protocol
from pyspark_delta.kernel.protocol.column_defaults import current_default
from pyspark_delta.kernel.protocol.features import supported_features
from pyspark_delta.kernel.protocol.generated_columns import generated_columns
from pyspark_delta.kernel.protocol.iceberg_compat import enabled_version
from pyspark_delta.kernel.protocol.identity_columns import (
    check_explicit_insert,
    check_update,
    identity_columns,
)
from pyspark_delta.kernel.protocol.properties import ENABLE_TYPE_WIDENING, property_value
from pyspark_delta.kernel.protocol.schema_merge import MergeRules, evolve_schema
from pyspark_delta.kernel.protocol.type_widening import TypeWideningMode
from pyspark_delta.kernel.protocol.types import (
    VOID,
    DataType,
    StructField,
    StructType,
    column_name,
    is_atomic,
    walk_fields,
)
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.jvm.expressions.catalyst import (
    StorePolicy,
    column_of,
    column_path,
    parse_attribute_name,
    stored_as,
)
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans.frames import without_name
from pyspark_delta.spark.jvm.plans.merge import Default, MergeClause, ResolvedValues, Scope, Value
from pyspark_delta.spark.rules.alignment import bare_type
from pyspark_delta.spark.rules.expressions import TableSql, default_values
from pyspark_delta.spark.rules.struct_values import Conversions, Typed
from pyspark_delta.spark.write.schema import metadata_with

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """A value and the path that it is assigned to, in the table's spelling."""

    path: Path
    value: Value = field(hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The columns that clauses assign to.

    A name is resolved in the table, as in Spark.  With schema evolution, a name that is not in the
    table is resolved in the source, and the source's column is added to the table.

    `called` is the table's name for qualified columns.  `source` has the columns that may be added
    to the table, None without schema evolution; `scope` is where their names are resolved.  With
    `exact`, names are case-sensitive.  `computes` means that the table has generated or identity
    columns.
    """

    jvm: JvmSession
    schema: StructType
    called: tuple[str, ...]
    scope: Scope
    source: StructType | None
    exact: bool
    computes: bool

    def assignments(self, clause: MergeClause) -> tuple[Assigned, ...]:
        """The assignments of a clause without a star; raises a typed error for unknown columns."""
        written = [parse_attribute_name(self.jvm, name) for name, _ in clause.assignments or ()]
        found = tuple(
            Assigned(path=self._path(parts, name, clause), value=value)
            for parts, (name, value) in zip(written, clause.assignments or (), strict=True)
        )
        if clause.action == "insert":
            self._check_insert(found, [parts[-1] for parts in written])
        else:
            _check_conflicts(found)
        return found

    def star_columns(self, clause: MergeClause, source: Sequence[str]) -> tuple[str, ...]:
        """The columns that a star assigns, in the source's spelling.

        Without evolution they are all columns of the table, and the source must have each.
        """
        left_out = {self._key(name) for name in clause.except_columns}
        known = {self._key(name): name for name in source}
        for name in clause.except_columns:
            if self._key(name) not in known and name not in self.schema:
                raise _unresolved(name, clause, self.schema.names)
        if self.source is not None and clause.kind != "not matched by source":
            return tuple(name for name in source if self._key(name) not in left_out)
        wanted = [f.name for f in self.schema if self._key(f.name) not in left_out]
        for name in wanted:
            if self._key(name) not in known:
                raise _unresolved(name, clause, source)
        return tuple(known[self._key(name)] for name in wanted)

    def _path(self, parts: Path, name: str, clause: MergeClause) -> Path:
        """The column or field of a name: in the table first, then a new one."""
        can_be_new = self.source is not None and clause.kind != "not matched by source"
        try:
            found = self._on_table(parts)
        except SchemaError:
            if not can_be_new:
                raise
            found = None
        if found is None and can_be_new:
            found = self._on_source(parts)
        if found is None:
            raise _unresolved(name, clause, self.schema.names)
        return found

    def _key(self, name: str) -> str:
        return name if self.exact else name.lower()

    def _on_table(self, parts: Path) -> Path | None:
        """The table's column or field of that name; SchemaError if the column has no such field.

        A name that is qualified by the table's refers to the table only.
        """
        for each in (*self._unqualified(parts), parts):
            if self._get(self.schema, each[0]) is not None:
                return self._spelled(self.schema, each)
        return None

    def _on_source(self, parts: Path) -> Path | None:
        """The source's column or field of that name.

        The table's name may qualify it, if nothing else has that name: the column is added to the
        table.
        """
        assert self.source is not None
        path = column_path(self.jvm, self.scope.plan, parts)
        for each in self._unqualified(parts) if path is None else (path,):
            if self._get(self.source, each[0]) is not None:
                return self._spelled(self.source, each, under=self.schema)
        return None

    def _unqualified(self, parts: Path) -> tuple[Path, ...]:
        return without_name(parts, self.called, exact=self.exact)

    def _spelled(self, schema: StructType, parts: Path, under: StructType | None = None) -> Path:
        """A path in the spelling of the schema, or of `under` as far as `under` has it."""
        here: DataType = schema
        spelled: list[str] = []
        for place, part in enumerate(parts):
            if not isinstance(here, StructType):
                raise _no_fields(here, parts[:place])
            found = self._get(here, part)
            if found is None:
                raise SchemaError("FIELD_NOT_FOUND", fieldName=part, fields=", ".join(here.names))
            known = None if under is None else under.get(part)
            spelled.append(found.name if known is None else known.name)
            below = None if known is None else known.data_type
            under = below if isinstance(below, StructType) else None
            here = found.data_type
        return tuple(spelled)

    def _get(self, struct: StructType, name: str) -> StructField | None:
        found = struct.get(name)
        return None if found is None or self._key(found.name) != self._key(name) else found

    def _check_insert(self, found: Sequence[Assigned], written: Sequence[str]) -> None:
        """Raise for fields, and for a column that is listed twice.

        As in delta-spark, names are case-sensitive here unless the table has computed columns.
        """
        for each in found:
            if len(each.path) > 1:
                raise OperationNotAllowedError(
                    "DELTA_UNSUPPORTED_NESTED_FIELD_IN_OPERATION",
                    operation="The INSERT clause of a MERGE",
                    fieldName=column_name(each.path),
                )
        names = [name.lower() for name in written] if self.computes else written
        if len(set(names)) < len(names):
            raise InvalidPredicateError("DELTA_DUPLICATE_COLUMNS_ON_INSERT")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClauseValues:
    """A clause with resolved names.

    `condition` is the name of its condition, None for none.  `columns` has a text for each column
    of the table, None for one that is computed later: generated and identity columns.  `predicate`
    is the condition for the history, where that is needed.
    """

    clause: MergeClause
    condition: str | None
    columns: Mapping[str, str | None] = field(hash=False)
    predicate: str | None = None

    @property
    def writes(self) -> bool:
        """Whether the clause writes rows: updates or inserts."""
        return self.clause.action != "delete"


def target_names(target: StructType) -> dict[str, str]:
    """The name by which each column of the target is resolved."""
    return {f.name: f"__delta_t{i}" for i, f in enumerate(target)}


@dataclass(frozen=True, kw_only=True)
class TableColumns:
    """The columns of a target and of a source, and expressions made for them.

    With `evolves` structs may lack fields.  `computed` are generated columns, `numbered` identity
    columns; `made` has the expressions by name.
    """

    jvm: JvmSession
    schema: StructType
    source: tuple[str, ...]
    evolves: bool
    computed: frozenset[str]
    numbered: frozenset[str]
    made: dict[str, Column] = field(default_factory=dict, hash=False)

    @classmethod
    def of(
        cls,
        jvm: JvmSession,
        schema: StructType,
        protocol: Protocol,
        source: Sequence[str],
        *,
        evolves: bool,
    ) -> TableColumns:
        """The columns of a table before its MERGE."""
        features = supported_features(protocol)
        generated = generated_columns(schema) if "generatedColumns" in features else ()
        identities = identity_columns(schema) if "identityColumns" in features else ()
        return cls(
            jvm=jvm,
            schema=schema,
            source=tuple(name.lower() for name in source),
            evolves=evolves,
            computed=frozenset(f.name for f in generated),
            numbered=frozenset(f.name for f in identities),
        )

    @cached_property
    def conversions(self) -> Conversions:
        """The casts of values, by the session's settings; many MERGE statements need none."""
        return Conversions.of(self.jvm, evolves=self.evolves)

    def named(self, column: Column) -> str:
        """Add an expression; returns its name."""
        name = f"__delta_a{len(self.made)}"
        self.made[name] = column
        return name

    def default(self, f: StructField) -> Column | None:
        """The default value of a column; None when the default is null."""
        text = current_default(f)
        if text is None:
            return None
        (value,) = default_values(self.jvm, [TableSql(name=f.name, text=text)])
        wanted = bare_type(f.data_type)
        return stored_as(
            self.jvm, value.column, wanted, StorePolicy.ANSI, name=f.name, can_overflow=False
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClauseColumns:
    """Makes the text of each column for the rows of one clause.

    `resolved` has the resolved expressions of the clause.
    """

    table: TableColumns
    clause: MergeClause
    number: int
    schema: StructType
    resolved: ResolvedValues = field(hash=False)
    at_source: ResolvedValues = field(hash=False)
    at_target: ResolvedValues = field(hash=False)

    def values(self, assigned: Sequence[Assigned], star: Sequence[str]) -> ClauseValues:
        """The clause with the texts of its columns."""
        return ClauseValues(
            clause=self.clause,
            condition=None if self.clause.condition is None else f"__delta_c{self.number}",
            columns={} if self.clause.action == "delete" else self._columns(assigned, star),
        )

    def _columns(self, assigned: Sequence[Assigned], star: Sequence[str]) -> dict[str, str | None]:
        given = [each.path[0] for each in assigned] or list(star)
        if self.table.numbered:
            # Only the table numbers some identity columns.
            check = check_explicit_insert if self.clause.action == "insert" else check_update
            check(self.table.schema, given)
        starred = {name.lower(): name for name in star}
        return {f.name: self._column(f, assigned, starred) for f in self.schema}

    def _column(
        self, f: StructField, assigned: Sequence[Assigned], starred: Mapping[str, str]
    ) -> str | None:
        mine = [
            (place, each)
            for place, each in enumerate(assigned)
            if each.path[0].lower() == f.name.lower()
        ]
        if f.name.lower() in starred:
            return self._from_source(f, starred[f.name.lower()])
        if not mine:
            return self._untouched(f)
        place, each = mine[0]
        if len(each.path) == 1:
            # An INSERT may list a column twice, in different case: the first counts.
            if isinstance(each.value, Default):
                return self._default(f)
            return self._stored(f, self.resolved, f"__delta_v{self.number}_{place}")
        values = [(each.path, self._field_value(place, each)) for place, each in mine]
        return self.table.named(self.table.conversions.column(self._original(f), f, values))

    def _field_value(self, place: int, each: Assigned) -> Typed:
        if isinstance(each.value, Default):
            raise OperationNotAllowedError(
                "DELTA_UNSUPPORTED_NESTED_FIELD_IN_OPERATION",
                operation="DEFAULT",
                fieldName=".".join(each.path),
            )
        return self._typed(self.resolved, f"__delta_v{self.number}_{place}")

    def _from_source(self, f: StructField, column: str) -> str:
        is_merged = self.clause.action == "update" and self.table.evolves
        merges = is_merged and isinstance(f.data_type, StructType)
        name = f"__delta_s{self.table.source.index(column.lower())}"
        return self._stored(f, self.at_source, name, merges=merges)

    def _stored(
        self, f: StructField, found: ResolvedValues, name: str, *, merges: bool = False
    ) -> str:
        """A value for a column; with `merges`, fields that only the target has are kept."""
        if merges and not self.table.conversions.keeps_null_in_star:
            value = self._typed(found, name)
            spread = self.table.conversions.spread
            return self.table.named(spread(value, f.data_type, f.name, self._original(f)))
        known = self.table.schema.get(f.name) if merges else None
        types = [found.types[name], *([] if known is None else [known.data_type])]
        if all(each is not None and bare_type(each) == bare_type(f.data_type) for each in types):
            return name
        original = self._original(f) if merges else None
        value = self._typed(found, name)
        stored = self.table.conversions.stored
        return self.table.named(stored(value, f.data_type, f.name, original))

    def _untouched(self, f: StructField) -> str | None:
        """The value of a column without an assignment in the clause."""
        if f.name in self.table.computed:
            return None
        if self.clause.action == "insert":
            return None if f.name in self.table.numbered else self._default(f)
        return self.kept(f)

    def kept(self, f: StructField) -> str:
        """The target's value of a column."""
        known = self.table.schema.get(f.name)
        if known is None:
            return "NULL"
        if bare_type(known.data_type) == bare_type(f.data_type):
            return target_names(self.table.schema)[known.name]
        original = self._original(f)
        assert original is not None
        return self.table.named(self.table.conversions.kept(original, f.data_type, f.name))

    def _default(self, f: StructField) -> str:
        value = self.table.default(f)
        return "NULL" if value is None else self.table.named(value)

    def _original(self, f: StructField) -> Typed | None:
        """The target's value of a column; None for a new column."""
        known = self.table.schema.get(f.name)
        if known is None:
            return None
        name = target_names(self.table.schema)[known.name]
        return Typed(column=self._expression(self.at_target, name), data_type=known.data_type)

    def _typed(self, found: ResolvedValues, name: str) -> Typed:
        data_type: DataType | None = found.types[name]
        if data_type is None:
            raise SchemaError(
                "DELTA_UNSUPPORTED_DATA_TYPES", dataTypeList=f"a value of {self.clause.action_name}"
            )
        return Typed(column=self._expression(found, name), data_type=data_type)

    def _expression(self, found: ResolvedValues, name: str) -> Column:
        return column_of(self.table.jvm, found.expression(name))


def evolved_schema(
    txn: OptimisticTransaction,
    source: StructType,
    assigned: Iterable[Path],
    widening: TypeWideningMode,
) -> StructType:
    """The table's schema with the source's columns and fields that clauses assign to."""
    metadata = txn.metadata
    paths = [tuple(part.lower() for part in path) for path in assigned]
    brought = _brought(source, paths, ())
    allowed = property_value(metadata.configuration, ENABLE_TYPE_WIDENING)
    rules = MergeRules(
        implicit_conversions=True,
        widening=widening if allowed else TypeWideningMode.NEVER,
        iceberg=(enabled_version(metadata) or 0) >= 1,
    )
    merged = evolve_schema(metadata.schema, brought, rules)
    for path, f in walk_fields(merged):
        if f.data_type == VOID and metadata.schema.find(tuple(path)) is None:
            raise SchemaError("DELTA_MERGE_ADD_VOID_COLUMN", newColumn=column_name(path))
    return merged


def evolve(txn: OptimisticTransaction, schema: StructType) -> None:
    """Change the table's schema in the transaction, if it differs."""
    if schema != txn.schema:
        txn.update_metadata(metadata_with(txn, schema))


def _brought(struct: StructType, assigned: Sequence[Path], base: Path) -> StructType:
    """The part of a source's schema with an assignment in some clause."""
    kept: list[StructField] = []
    for f in struct:
        path = (*base, f.name.lower())
        if path in assigned:
            kept.append(f)
        elif isinstance(f.data_type, StructType) and any(
            each[: len(path)] == path for each in assigned
        ):
            kept.append(f.with_type(_brought(f.data_type, assigned, path)))
    return StructType(tuple(kept))


def _unresolved(name: str, clause: MergeClause, columns: Iterable[str]) -> InvalidPredicateError:
    return InvalidPredicateError(
        "DELTA_MERGE_UNRESOLVED_EXPRESSION",
        sqlExpr=name,
        clause=f"{clause.action_name} clause",
        cols=", ".join(columns),
    )


def _no_fields(data_type: DataType, path: Path) -> DeltaError:
    """The error for a field of a value that is not a struct."""
    if is_atomic(data_type):
        return SchemaError(
            "INVALID_EXTRACT_BASE_FIELD_TYPE", base=column_name(path), other=data_type.simple_string
        )
    return OperationNotAllowedError("DELTA_UNSUPPORTED_NESTED_FIELD_IN_UPDATE")


def _check_conflicts(found: Sequence[Assigned]) -> None:
    """Raise for a path that is assigned twice, or a struct and a field in it."""
    paths = [tuple(part.lower() for part in each.path) for each in found]
    for i, one in enumerate(paths):
        clashing = [k for k, other in enumerate(paths) if k != i and other[: len(one)] == one]
        if clashing:
            listed = sorted({i, *clashing})
            raise InvalidPredicateError(
                "DELTA_CONFLICT_SET_COLUMN",
                columnList=", ".join(column_name(found[k].path) for k in listed),
            )
