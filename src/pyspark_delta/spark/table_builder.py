"""What `DeltaTable.create()` and its kin are told about a table, call by call.

A builder changes with each call and gives itself back, as delta-spark's does; nothing happens
before `execute`, which `DeltaTableBuilder` in `tables` has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn, Self

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType as SparkDataType
from pyspark.sql.types import StructField as SparkStructField
from pyspark.sql.types import StructType as SparkStructType

from pyspark_delta.errors.table import OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.protocol.column_defaults import without_defaults
from pyspark_delta.kernel.protocol.generated_columns import with_generation_expression
from pyspark_delta.kernel.protocol.identity_columns import with_identity
from pyspark_delta.kernel.protocol.types import StructField, StructType
from pyspark_delta.spark.catalog import TableName, look_up
from pyspark_delta.spark.commands.create_table import TableDefinition
from pyspark_delta.spark.jvm.catalog import parse_name
from pyspark_delta.spark.jvm.column_types import stored_column_type, stored_columns
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.new_columns import check_columns_differ
from pyspark_delta.spark.spark_errors import raises_spark_errors
from pyspark_delta.spark.table_access import is_same_location

Names = str | list[str] | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IdentityGenerator:
    """Values of an identity column: the first, and how far each is from the one before."""

    start: int = 1
    step: int = 1


@dataclass(frozen=True, slots=True)
class BuilderVerb:
    """Which of the four ways to make a table a builder is for."""

    creates: bool = True
    replaces: bool = False
    if_not_exists: bool = False


@raises_spark_errors
class TableBuilder:
    """Columns, place and properties of a table that is to be made or replaced."""

    def __init__(self, spark: SparkSession, verb: BuilderVerb) -> None:
        """Made by `DeltaTable.create` and its kin."""
        self._spark = spark
        self._verb = verb
        self._identifier: str | None = None
        self._location: str | None = None
        self._comment: str | None = None
        self._columns: list[StructField] = []
        self._partition_by: tuple[str, ...] = ()
        self._cluster_by: tuple[str, ...] = ()
        self._properties: dict[str, str] = {}

    def tableName(self, identifier: str) -> Self:
        """The table's name, `db.t` or delta.`/path`."""
        self._identifier = _text(identifier, "identifier")
        return self

    def location(self, location: str) -> Self:
        """Where the table's files are; a table with a name as well is then an external one."""
        self._location = _text(location, "location")
        return self

    def comment(self, comment: str) -> Self:
        """What the table is about."""
        self._comment = _text(comment, "comment")
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
        """One more column.

        `generatedAlwaysAs` is SQL over other columns, or an IdentityGenerator; with
        `generatedByDefaultAs` a row may bring its own identity value.
        """
        name = _text(colName, "colName")
        if not isinstance(dataType, (str, SparkDataType)):
            _refuse("dataType", "a text or a DataType", dataType)
        if type(nullable) is not bool:
            _refuse("nullable", "a bool", nullable)
        if generatedAlwaysAs is not None and generatedByDefaultAs is not None:
            raise ValueError("generatedAlwaysAs and generatedByDefaultAs exclude each other")
        column = self._column(name, dataType).with_nullable(nullable)
        if comment is not None:
            column = column.with_metadata(comment=_text(comment, "comment"))
        self._columns.append(_generated(column, generatedAlwaysAs, generatedByDefaultAs))
        return self

    def addColumns(self, cols: SparkStructType | list[SparkStructField]) -> Self:
        """Columns of a schema that exists."""
        if isinstance(cols, list):
            for each in cols:
                if not isinstance(each, SparkStructField):
                    _refuse("a column in cols", "a StructField", each)
            cols = SparkStructType(cols)
        if not isinstance(cols, SparkStructType):
            _refuse("cols", "a StructType or a list of StructField", cols)
        # The schema of a frame shows the defaults of the table it was read from.
        columns = without_defaults(stored_columns(JvmSession(self._spark), cols))
        self._columns.extend(columns)
        return self

    def partitionedBy(self, *cols: Names) -> Self:
        """The columns whose values make directories."""
        self._partition_by = _names(cols, "partitioning")
        return self

    def clusterBy(self, *cols: Names) -> Self:
        """The columns whose values lie close together, nested ones as `s.a`."""
        self._cluster_by = _names(cols, "clustering")
        return self

    def property(self, key: str, value: str) -> Self:
        """A table property."""
        self._properties[_text(key, "key")] = _text(value, "value")
        return self

    def _definition(self) -> TableDefinition:
        """What the calls said, put together."""
        jvm = JvmSession(self._spark)
        name = self._name()
        schema = StructType(tuple(self._columns))
        check_columns_differ(jvm, jvm.data_type(schema))
        return TableDefinition(
            name=name,
            schema=schema,
            partition_by=self._partition_by,
            cluster_by=tuple(parse_name(jvm, each) for each in self._cluster_by),
            location=self._location,
            comment=self._comment,
            properties=self._properties,
            creates=self._verb.creates,
            replaces=self._verb.replaces,
            if_not_exists=self._verb.if_not_exists,
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


def _generated(
    column: StructField,
    always: str | IdentityGenerator | None,
    by_default: IdentityGenerator | None,
) -> StructField:
    if isinstance(always, str):
        return with_generation_expression(column, always)
    if always is not None and not isinstance(always, IdentityGenerator):
        _refuse("generatedAlwaysAs", "a text or an IdentityGenerator", always)
    if by_default is not None and not isinstance(by_default, IdentityGenerator):
        _refuse("generatedByDefaultAs", "an IdentityGenerator", by_default)
    generator = always or by_default
    if generator is None:
        return column
    if generator.step == 0:
        raise ValueError("the step of an identity column is not 0")
    return with_identity(
        column,
        start=generator.start,
        step=generator.step,
        allow_explicit_insert=by_default is not None,
    )


def _names(cols: tuple[Names, ...], kind: str) -> tuple[str, ...]:
    listed: list[object] = list(cols)
    if len(cols) == 1 and isinstance(cols[0], (list, tuple)):
        listed = list(cols[0])
    return tuple(_text(each, f"a {kind} column") for each in listed)


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        _refuse(name, "a text", value)
    return value


def _refuse(name: str, wanted: str, value: object) -> NoReturn:
    raise TypeError(f"{name} is {wanted}, not {value!r} of type {type(value).__name__}")
