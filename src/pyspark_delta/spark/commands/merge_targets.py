"""Where the values of a MERGE go: names of target columns as paths, and the schema they make.

A name is looked up as Spark does it, in the table.  With schema evolution one that is not there is
looked up in the source, and the column of the source becomes one of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from pyspark_delta.errors.base import DeltaError
from pyspark_delta.errors.table import InvalidPredicateError, OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.features import supported_features
from pyspark_delta.kernel.protocol.iceberg_compat import enabled_version
from pyspark_delta.kernel.protocol.identity_columns import check_explicit_insert, check_update
from pyspark_delta.kernel.protocol.properties import ENABLE_TYPE_WIDENING, property_value
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.schema_merge import MergeRules, evolve_schema
from pyspark_delta.kernel.protocol.type_widening import TypeWideningMode, record_type_changes
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
from pyspark_delta.spark.commands.merge_clauses import MergeClause, Value
from pyspark_delta.spark.jvm.attribute_names import column_path, parse_attribute_name
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.merge_plan import Scope
from pyspark_delta.spark.jvm.named_rows import without_name

Path = tuple[str, ...]

_PREVIEW = "typeWidening-preview"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """A value and the place that it goes to, as the table spells it."""

    path: Path
    value: Value = field(hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The columns that clauses assign to.

    `called` is what the table may be called before a column's name.  `source` has the columns that
    may become the table's, None when its schema is not to change; `scope` is where their names are
    looked up.  With `exact` a name in another case is another name.  `computes` says that the table
    has columns that are generated or numbered.
    """

    schema: StructType
    called: tuple[str, ...]
    scope: Scope
    source: StructType | None = None
    exact: bool = False
    computes: bool = False

    def assignments(self, jvm: JvmSession, clause: MergeClause) -> tuple[Assigned, ...]:
        """What a clause that is no star assigns; a typed error for a place that is not there."""
        written = [parse_attribute_name(jvm, name) for name, _ in clause.assignments or ()]
        found = tuple(
            Assigned(path=self._path(jvm, parts, name, clause), value=value)
            for parts, (name, value) in zip(written, clause.assignments or (), strict=True)
        )
        if clause.action == "insert":
            self._check_insert(found, [parts[-1] for parts in written])
        else:
            _check_conflicts(found)
        return found

    def star_columns(self, clause: MergeClause, source: Sequence[str]) -> tuple[str, ...]:
        """The columns that a star assigns, as the source spells them.

        Without evolution that is every column of the table, and the source must have it.
        """
        left_out = {self._key(name) for name in clause.except_columns}
        known = {self._key(name): name for name in source}
        for name in clause.except_columns:
            if self._key(name) not in known and name not in self.schema:
                raise self._unresolved(name, clause)
        if self.source is not None and clause.kind != "not matched by source":
            return tuple(name for name in source if self._key(name) not in left_out)
        wanted = [f.name for f in self.schema if self._key(f.name) not in left_out]
        for name in wanted:
            if self._key(name) not in known:
                raise InvalidPredicateError(
                    "DELTA_MERGE_UNRESOLVED_EXPRESSION",
                    sqlExpr=name,
                    clause=f"{clause.shown} clause",
                    cols=", ".join(source),
                )
        return tuple(known[self._key(name)] for name in wanted)

    def _path(
        self, jvm: JvmSession, parts: tuple[str, ...], name: str, clause: MergeClause
    ) -> Path:
        """The column or field that a name means: one of the table's first, then a new one."""
        can_be_new = self.source is not None and clause.kind != "not matched by source"
        try:
            found = self._on_table(parts)
        except SchemaError:
            if not can_be_new:
                raise
            found = None
        if found is None and can_be_new:
            found = self._on_source(jvm, parts)
        if found is None:
            raise self._unresolved(name, clause)
        return found

    def _key(self, name: str) -> str:
        return name if self.exact else name.lower()

    def _on_table(self, parts: tuple[str, ...]) -> Path | None:
        """The table's column or field of that name; SchemaError when only the column is there.

        Where the table's name stands before a column, nothing else is meant.
        """
        for each in (*self._unqualified(parts), parts):
            if self._get(self.schema, each[0]) is not None:
                return self._spelled(self.schema, each)
        return None

    def _on_source(self, jvm: JvmSession, parts: tuple[str, ...]) -> Path | None:
        """The source's column or field of that name.

        The table's name may stand before one that nothing else is called: it will be the table's.
        """
        assert self.source is not None
        path = column_path(jvm, self.scope.plan, parts)
        for each in self._unqualified(parts) if path is None else (path,):
            if self._get(self.source, each[0]) is not None:
                return self._spelled(self.source, each, under=self.schema)
        return None

    def _unqualified(self, parts: tuple[str, ...]) -> tuple[Path, ...]:
        return without_name(parts, self.called, exact=self.exact)

    def _spelled(self, schema: StructType, parts: Path, under: StructType | None = None) -> Path:
        """A path as the schema spells it, or `under` as far as that has it."""
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
        """Refuse fields, and a column that is named twice.

        As in delta-spark, another case makes another name, unless the table computes columns.
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

    def _unresolved(self, name: str, clause: MergeClause) -> InvalidPredicateError:
        return InvalidPredicateError(
            "DELTA_MERGE_UNRESOLVED_EXPRESSION",
            sqlExpr=name,
            clause=f"{clause.shown} clause",
            cols=", ".join(self.schema.names),
        )


def _no_fields(data_type: DataType, path: Path) -> DeltaError:
    """What to raise for a field of what is no struct."""
    if is_atomic(data_type):
        return SchemaError(
            "INVALID_EXTRACT_BASE_FIELD_TYPE",
            base=column_name(path),
            other=data_type.simple_string,
        )
    return OperationNotAllowedError("DELTA_UNSUPPORTED_NESTED_FIELD_IN_UPDATE")


def _check_conflicts(found: Sequence[Assigned]) -> None:
    """Refuse to set a place twice, or a struct and a field in it."""
    paths = [tuple(part.lower() for part in each.path) for each in found]
    for i, one in enumerate(paths):
        clashing = [k for k, other in enumerate(paths) if k != i and other[: len(one)] == one]
        if clashing:
            listed = sorted({i, *clashing})
            raise InvalidPredicateError(
                "DELTA_CONFLICT_SET_COLUMN",
                columnList=", ".join(column_name(found[k].path) for k in listed),
            )


def check_identity(
    schema: StructType, clause: MergeClause, columns: Iterable[str], *, has_identity: bool
) -> None:
    """Refuse to set numbers that the table gives its rows."""
    if not has_identity:
        return
    if clause.action == "insert":
        check_explicit_insert(schema, columns)
    else:
        check_update(schema, columns)


def evolved_schema(
    txn: OptimisticTransaction,
    source: StructType,
    assigned: Iterable[Path],
    widening: TypeWideningMode,
) -> StructType:
    """The table's schema with what the source adds at the places that clauses assign to."""
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
    """Let the commit change the table's schema; nothing when it is that already."""
    old = txn.metadata
    if schema == old.schema:
        return
    version = txn.read_version + 1 if _PREVIEW in supported_features(txn.protocol) else None
    recorded = record_type_changes(old.schema, schema, table_version=version)
    txn.update_metadata(_with_schema(old, recorded))


def _with_schema(metadata: Metadata, schema: StructType) -> Metadata:
    return replace(metadata, schema_string=format_schema(schema))


def _brought(struct: StructType, assigned: Sequence[Path], base: Path) -> StructType:
    """The part of a source's schema that some clause assigns to."""
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
