"""What the clauses of a MERGE make of each column: texts of SQL over names that were looked up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import Column

from pyspark_delta.errors.table import OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.protocol.actions import Protocol
from pyspark_delta.kernel.protocol.column_defaults import current_default
from pyspark_delta.kernel.protocol.features import supported_features
from pyspark_delta.kernel.protocol.generated_columns import generated_columns
from pyspark_delta.kernel.protocol.identity_columns import identity_columns
from pyspark_delta.kernel.protocol.types import DataType, StructField, StructType
from pyspark_delta.spark.column_alignment import bare_type
from pyspark_delta.spark.commands.merge_clauses import Default, MergeClause
from pyspark_delta.spark.commands.merge_targets import Assigned, check_identity
from pyspark_delta.spark.commands.merge_values import Conversions, Typed
from pyspark_delta.spark.jvm.catalyst import StorePolicy, column_of, stored_as
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.merge_plan import Found
from pyspark_delta.spark.table_sql import TableSql, default_values


@dataclass(frozen=True, slots=True, kw_only=True)
class ClauseValues:
    """A clause whose names are looked up.

    `condition` is the name of its condition, None for none; `columns` has a text for each column
    of the table, None for one that is computed later: generated, or an identity.  `predicate` is
    the condition for the history, where somebody asked for it.
    """

    clause: MergeClause
    condition: str | None
    columns: Mapping[str, str | None] = field(hash=False)
    predicate: str | None = None

    @property
    def writes(self) -> bool:
        """Whether its rows are written: updated or inserted."""
        return self.clause.action != "delete"


def target_names(target: StructType) -> dict[str, str]:
    """The name under which each column of the target is looked up."""
    return {f.name: f"__delta_t{i}" for i, f in enumerate(target)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumns:
    """The columns of a target and of a source, and expressions that were put together for them.

    `computed` are generated columns, `numbered` identity columns; `made` are the expressions by
    their names.
    """

    jvm: JvmSession
    schema: StructType
    source: tuple[str, ...]
    conversions: Conversions
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
            conversions=Conversions.of(jvm, evolves=evolves),
            computed=frozenset(f.name for f in generated),
            numbered=frozenset(f.name for f in identities),
        )

    @property
    def evolves(self) -> bool:
        """Whether structs may lack fields."""
        return self.conversions.evolves

    def apart(self) -> TableColumns:
        """The same columns, with expressions that are not among these."""
        return replace(self, made={})

    def named(self, column: Column) -> str:
        """A name for an expression."""
        name = f"__delta_a{len(self.made)}"
        self.made[name] = column
        return name

    def source_name(self, column: str) -> str:
        """What a column of the source is looked up under."""
        return f"__delta_s{self.source.index(column.lower())}"

    def default(self, f: StructField) -> Column | None:
        """The default value of a column; None when it is null."""
        text = current_default(f)
        if text is None:
            return None
        (value,) = default_values(self.jvm, [TableSql(name=f.name, text=text)])
        wanted = bare_type(f.data_type)
        return stored_as(
            self.jvm, value.column, wanted, StorePolicy.ANSI, name=f.name, can_overflow=False
        )


@dataclass(frozen=True, slots=True)
class ClauseColumns:
    """One clause: the text that makes each column of its rows.

    `found` has what the clause itself says.
    """

    table: TableColumns
    clause: MergeClause
    number: int
    schema: StructType
    found: Found = field(hash=False)
    at_source: Found = field(hash=False)
    at_target: Found = field(hash=False)

    def values(self, assigned: Sequence[Assigned], star: Sequence[str]) -> ClauseValues:
        """The clause with its texts."""
        name = None if self.clause.condition is None else f"__delta_c{self.number}"
        return ClauseValues(
            clause=self.clause,
            condition=name,
            columns={} if self.clause.action == "delete" else self._columns(assigned, star),
        )

    def _columns(self, assigned: Sequence[Assigned], star: Sequence[str]) -> dict[str, str | None]:
        given = [each.path[0] for each in assigned] or list(star)
        check_identity(
            self.table.schema,
            self.clause,
            given,
            has_identity=bool(self.table.numbered),
        )
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
            # An INSERT may name a column twice, in another case: the first counts.
            if isinstance(each.value, Default):
                return self._default(f)
            return self._stored(f, self.found, f"__delta_v{self.number}_{place}")
        values = [(each.path, self._field_value(place, each)) for place, each in mine]
        return self.table.named(self.table.conversions.column(self._original(f), f, values))

    def _field_value(self, place: int, each: Assigned) -> Typed:
        if isinstance(each.value, Default):
            raise OperationNotAllowedError(
                "DELTA_UNSUPPORTED_NESTED_FIELD_IN_OPERATION",
                operation="DEFAULT",
                fieldName=".".join(each.path),
            )
        return self._typed(self.found, f"__delta_v{self.number}_{place}")

    def _from_source(self, f: StructField, column: str) -> str:
        is_merged = self.clause.action == "update" and self.table.evolves
        merges = is_merged and isinstance(f.data_type, StructType)
        return self._stored(f, self.at_source, self.table.source_name(column), merges=merges)

    def _stored(self, f: StructField, found: Found, name: str, *, merges: bool = False) -> str:
        """A value for a column; where it `merges`, fields that only the target has stay."""
        conversions = self.table.conversions
        if merges and not conversions.keeps_null_in_star:
            value = self._typed(found, name)
            spread = conversions.spread(value, f.data_type, f.name, self._original(f))
            return self.table.named(spread)
        known = self.table.schema.get(f.name) if merges else None
        types = [found.types[name], *([] if known is None else [known.data_type])]
        if all(each is not None and bare_type(each) == bare_type(f.data_type) for each in types):
            return name
        original = self._original(f) if merges else None
        value = self._typed(found, name)
        return self.table.named(conversions.stored(value, f.data_type, f.name, original))

    def _untouched(self, f: StructField) -> str | None:
        """A column that the clause does not assign to."""
        if f.name in self.table.computed:
            return None
        if self.clause.action == "insert":
            return None if f.name in self.table.numbered else self._default(f)
        return self.kept(f)

    def kept(self, f: StructField) -> str:
        """A column as the target has it."""
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
        """What the target has in a column; None for one that is new."""
        known = self.table.schema.get(f.name)
        if known is None:
            return None
        name = target_names(self.table.schema)[known.name]
        return Typed(self._expression(self.at_target, name), known.data_type)

    def _typed(self, found: Found, name: str) -> Typed:
        data_type: DataType | None = found.types[name]
        if data_type is None:
            raise SchemaError(
                "DELTA_UNSUPPORTED_DATA_TYPES", dataTypeList=f"a value of {self.clause.shown}"
            )
        return Typed(self._expression(found, name), data_type)

    def _expression(self, found: Found, name: str) -> Column:
        return column_of(self.table.jvm, found.expression(name))
