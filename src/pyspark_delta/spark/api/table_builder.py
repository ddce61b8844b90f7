"""The table definition that `DeltaTable.create()` and its variants build call by call.

A builder changes with each call and returns itself, as delta-spark's does.  Only `execute` runs
anything; `DeltaTableBuilder` in `api.table` has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn, Self

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType as SparkDataType
from pyspark.sql.types import StructField as SparkStructField
from pyspark.sql.types import StructType as SparkStructType

from pyspark_delta.errors import OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.protocol.column_defaults import without_defaults
from pyspark_delta.kernel.protocol.generated_columns import with_generation_expression
from pyspark_delta.kernel.protocol.identity_columns import with_identity
from pyspark_delta.kernel.protocol.types import StructField, StructType
from pyspark_delta.spark.api.errors import raises_spark_errors
from pyspark_delta.spark.jvm.catalog.entries import parse_name
from pyspark_delta.spark.jvm.expressions.catalyst import stored_column_type, stored_columns
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parser.plans import TableDefinition
from pyspark_delta.spark.jvm.write.file_writer import check_columns_differ
from pyspark_delta.spark.tables.locations import is_same_location
from pyspark_delta.spark.tables.names import TableName, look_up

Names = str | list[str] | tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityGenerator:
    """The values of an identity column: the first one, and the step from each to the next."""

    start: int = 1
    step: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NewColumn:
    """The arguments of `addColumn`, checked: with an expression, an identity, or neither."""

    name: str
    data_type: str | SparkDataType
    nullable: bool
    comment: str | None
    expression: str | None
    generator: IdentityGenerator | None
    allows_explicit_insert: bool


@raises_spark_errors
class TableBuilder:
    """Columns, location and properties of a table to create or replace."""

    def __init__(
        self,
        spark: SparkSession,
        *,
        creates: bool = True,
        replaces: bool = False,
        if_not_exists: bool = False,
    ) -> None:
        """Use `DeltaTable.create` or a variant of it, which make builders."""
        self._spark = spark
        self._creates, self._replaces, self._if_not_exists = creates, replaces, if_not_exists
        self._identifier: str | None = None
        self._location: str | None = None
        self._comment: str | None = None
        self._columns: list[StructField] = []
        self._partition_by: tuple[str, ...] = ()
        self._cluster_by: tuple[str, ...] = ()
        self._properties: dict[str, str] = {}

    def tableName(self, identifier: str) -> Self:
        """Set the table's name, `db.t` or delta.`/path`."""
        self._identifier = checked_text(identifier, "identifier")
        return self

    def location(self, location: str) -> Self:
        """Set the location of the files; a table with a name as well is then external."""
        self._location = checked_text(location, "location")
        return self

    def comment(self, comment: str) -> Self:
        """Set the table's description."""
        self._comment = checked_text(comment, "comment")
        return self

    def addColumn(
        self,
        colName: str,
        dataType: str | SparkDataType,
        nullable: bool = True,
        generatedAlwaysAs: str | IdentityGenerator | None = None,
        generatedByDefaultAs: IdentityGenerator | None = None,
        comment: str | None = None,
    ) -> Self:
        """Add a column.

        `generatedAlwaysAs` is a SQL expression over other columns, or an IdentityGenerator; with
        `generatedByDefaultAs` a row may bring its own identity value.
        """
        name = checked_text(colName, "colName")
        if not isinstance(dataType, (str, SparkDataType)):
            wrong_type("dataType", "a text or a DataType", dataType)
        if type(nullable) is not bool:
            wrong_type("nullable", "a bool", nullable)
        generator = check_generators(generatedAlwaysAs, generatedByDefaultAs)
        if comment is not None:
            checked_text(comment, "comment")
        self._add_column(
            NewColumn(
                name=name,
                data_type=dataType,
                nullable=nullable,
                comment=comment,
                expression=generatedAlwaysAs if isinstance(generatedAlwaysAs, str) else None,
                generator=generator,
                allows_explicit_insert=generatedByDefaultAs is not None,
            )
        )
        return self

    def _add_column(self, new: NewColumn) -> None:
        column = self._column(new.name, new.data_type).with_nullable(new.nullable)
        if new.comment is not None:
            column = column.with_metadata_items({"comment": new.comment})
        if new.expression is not None:
            column = with_generation_expression(column, new.expression)
        elif new.generator is not None:
            column = with_identity(
                column,
                start=new.generator.start,
                step=new.generator.step,
                allow_explicit_insert=new.allows_explicit_insert,
            )
        self._columns.append(column)

    def addColumns(self, cols: SparkStructType | list[SparkStructField]) -> Self:
        """Add the columns of a schema."""
        if isinstance(cols, list):
            for each in cols:
                if not isinstance(each, SparkStructField):
                    wrong_type("a column in cols", "a StructField", each)
            cols = SparkStructType(cols)
        if not isinstance(cols, SparkStructType):
            wrong_type("cols", "a StructType or a list of StructField", cols)
        # The schema of a DataFrame carries the defaults of the table it was read from.
        columns = without_defaults(stored_columns(JvmSession(self._spark), cols))
        self._columns.extend(columns)
        return self

    def partitionedBy(self, *cols: Names) -> Self:
        """Set the partition columns."""
        self._partition_by = _names(cols, "partitioning")
        return self

    def clusterBy(self, *cols: Names) -> Self:
        """Set the clustering columns; nested ones as `s.a`."""
        self._cluster_by = _names(cols, "clustering")
        return self

    def property(self, key: str, value: str) -> Self:
        """Set a table property."""
        self._properties[checked_text(key, "key")] = checked_text(value, "value")
        return self

    def _definition(self) -> TableDefinition:
        jvm = JvmSession(self._spark)
        schema = StructType(tuple(self._columns))
        check_columns_differ(jvm, jvm.data_type(schema))
        return TableDefinition(
            schema=schema,
            partition_by=self._partition_by,
            cluster_by=tuple(parse_name(jvm, each) for each in self._cluster_by),
            location=self._location,
            comment=self._comment,
            properties=self._properties,
            creates=self._creates,
            replaces=self._replaces,
            if_not_exists=self._if_not_exists,
        )

    def _name(self) -> TableName:
        if self._identifier is None:
            if self._location is None:
                raise SchemaError("DELTA_CREATE_TABLE_MISSING_TABLE_NAME_OR_LOCATION")
            return TableName(path=self._location)
        name = look_up(self._spark, self._identifier)
        if name is None:
            raise OperationNotAllowedError(
                "DELTA_OPERATION_NOT_ALLOWED",
                operation=f"Making {self._identifier}, a table of another catalog,",
            )
        location = self._location
        if (
            name.path is not None
            and location is not None
            and not is_same_location(location, name.path)
        ):
            raise SchemaError(
                "DELTA_CREATE_TABLE_IDENTIFIER_LOCATION_MISMATCH",
                identifier=self._identifier,
                location=location,
            )
        return name

    def _column(self, name: str, kind: str | SparkDataType) -> StructField:
        jvm = JvmSession(self._spark)
        if isinstance(kind, str):
            return stored_column_type(jvm, name, kind).fields[0]
        return stored_columns(jvm, SparkStructType([SparkStructField(name, kind)])).fields[0]


def check_generators(always: object, by_default: object) -> IdentityGenerator | None:
    """The generator of an identity column, if there is one; raises for arguments that are wrong."""
    if always is not None and by_default is not None:
        raise ValueError("generatedAlwaysAs and generatedByDefaultAs exclude each other")
    if always is not None and not isinstance(always, (str, IdentityGenerator)):
        wrong_type("generatedAlwaysAs", "a text or an IdentityGenerator", always)
    if by_default is not None and not isinstance(by_default, IdentityGenerator):
        wrong_type("generatedByDefaultAs", "an IdentityGenerator", by_default)
    generator = by_default if isinstance(always, str) or always is None else always
    if generator is not None and generator.step == 0:
        raise ValueError("the step of an identity column is not 0")
    return generator


def _names(cols: tuple[Names, ...], kind: str) -> tuple[str, ...]:
    listed: list[object] = list(cols)
    if len(cols) == 1 and isinstance(cols[0], (list, tuple)):
        listed = list(cols[0])
    return tuple(checked_text(each, f"a {kind} column") for each in listed)


def checked_text(value: object, name: str) -> str:
    """The argument, which must be a text."""
    if not isinstance(value, str):
        wrong_type(name, "a text", value)
    return value


def wrong_type(name: str, expected: str, value: object) -> NoReturn:
    """Raise for an argument of a wrong type."""
    raise TypeError(f"{name} is {expected}, not {value!r} of type {type(value).__name__}")
