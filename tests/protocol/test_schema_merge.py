"""Merging, enforcing and comparing schemas."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from pyspark_delta.errors import SchemaError
from pyspark_delta.kernel.protocol.schema_merge import (
    MergeRules,
    as_nullable,
    check_no_duplicates,
    check_write_compatible,
    evolve_schema,
    is_read_compatible,
    merge_schemas,
    missing_not_null_columns,
    schema_differences,
)
from pyspark_delta.kernel.protocol.type_widening import TypeWideningMode
from pyspark_delta.kernel.protocol.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructType,
)
from tests.support.schemas import field, schemas, struct

D = DecimalType
IMPLICIT = MergeRules(implicit_conversions=True)
KEEP = MergeRules(keep_existing_type=True)
WIDEN = MergeRules(widening=TypeWideningMode.SAME_FAMILY)


def test_new_columns_go_behind_and_names_keep_the_tables_case() -> None:
    merged = merge_schemas(struct(Id=LONG, b=STRING), struct(new=DATE, ID=LONG, B=STRING))
    assert merged == struct(Id=LONG, b=STRING, new=DATE)


def test_structs_arrays_and_maps_merge_from_the_inside() -> None:
    table = struct(
        s=struct(a=LONG),
        l=ArrayType(struct(a=LONG), contains_null=False),
        m=MapType(struct(k=LONG), struct(v=LONG), value_contains_null=False),
    )
    data = struct(
        s=struct(b=LONG, A=LONG),
        l=ArrayType(struct(b=LONG)),
        m=MapType(struct(k=LONG, k2=LONG), struct(v2=LONG)),
    )
    assert merge_schemas(table, data) == struct(
        s=struct(a=LONG, b=LONG),
        l=ArrayType(struct(a=LONG, b=LONG), contains_null=False),
        m=MapType(struct(k=LONG, k2=LONG), struct(v=LONG, v2=LONG), value_contains_null=False),
    )


def test_nullability_and_metadata_are_the_tables() -> None:
    table = StructType((field("a", LONG, False, comment="mine"),))
    assert merge_schemas(table, StructType((field("a", LONG, True, comment="yours"),))) == table


def test_columns_that_a_write_adds_are_nullable_at_every_depth() -> None:
    new = StructType((field("n", ArrayType(StructType((field("x", LONG, False),)), False), False),))
    assert evolve_schema(struct(a=LONG), new) == struct(a=LONG, n=ArrayType(struct(x=LONG)))


@pytest.mark.parametrize(
    ("table", "data", "rules", "expected"),
    [
        (VOID, struct(a=LONG), MergeRules(), struct(a=LONG)),
        (LONG, VOID, MergeRules(), LONG),
        (ArrayType(LONG), VOID, MergeRules(), ArrayType(LONG)),
        (BYTE, SHORT, MergeRules(), SHORT),
        (SHORT, BYTE, MergeRules(), SHORT),
        (BYTE, INTEGER, MergeRules(), INTEGER),
        (INTEGER, BYTE, MergeRules(), INTEGER),
        (D(10, 2), D(10, 2), MergeRules(), D(10, 2)),
        (LONG, STRING, KEEP, LONG),
        (VOID, STRING, KEEP, VOID),
        (struct(a=LONG), struct(a=STRING, b=LONG), KEEP, struct(a=LONG, b=LONG)),
        (INTEGER, LONG, WIDEN, LONG),
        (D(10, 2), D(12, 2), WIDEN, D(12, 2)),
        (LONG, INTEGER, MergeRules(widening=TypeWideningMode.COMMON), LONG),
        (INTEGER, D(12, 2), MergeRules(widening=TypeWideningMode.ALWAYS), D(12, 2)),
        (STRING, LONG, IMPLICIT, STRING),
        (STRING, BOOLEAN, IMPLICIT, STRING),
        (LONG, STRING, IMPLICIT, LONG),
        (BINARY, STRING, IMPLICIT, BINARY),
        (DATE, TIMESTAMP, IMPLICIT, DATE),
        (D(10, 2), D(12, 4), IMPLICIT, D(10, 2)),
        (BYTE, DOUBLE, IMPLICIT, BYTE),
        (LONG, VOID, IMPLICIT, LONG),
        (VOID, LONG, IMPLICIT, LONG),
        # Widening is tried before a cast to the table's type.
        (
            INTEGER,
            LONG,
            MergeRules(implicit_conversions=True, widening=TypeWideningMode.SAME_FAMILY),
            LONG,
        ),
    ],
)
def test_types_merge_as_the_rules_allow(
    table: DataType, data: DataType, rules: MergeRules, expected: DataType
) -> None:
    assert merge_schemas(struct(c=table), struct(c=data), rules) == struct(c=expected)


@pytest.mark.parametrize(
    ("table", "data", "rules", "cause"),
    [
        (LONG, STRING, MergeRules(), "DELTA_MERGE_INCOMPATIBLE_DATATYPE"),
        (INTEGER, LONG, MergeRules(), "DELTA_MERGE_INCOMPATIBLE_DATATYPE"),
        (LONG, struct(a=LONG), MergeRules(), "DELTA_MERGE_INCOMPATIBLE_DATATYPE"),
        (struct(a=LONG), LONG, IMPLICIT, "DELTA_MERGE_INCOMPATIBLE_DATATYPE"),
        (BOOLEAN, STRING, IMPLICIT, "DELTA_MERGE_INCOMPATIBLE_DATATYPE"),
        (VARIANT, STRING, IMPLICIT, "DELTA_MERGE_INCOMPATIBLE_DATATYPE"),
        (D(10, 2), D(12, 2), MergeRules(), "DELTA_MERGE_INCOMPATIBLE_DECIMAL_TYPE"),
        (INTEGER, DOUBLE, WIDEN, "DELTA_MERGE_INCOMPATIBLE_DATATYPE"),
    ],
)
def test_types_that_do_not_go_together_are_refused_by_field(
    table: DataType, data: DataType, rules: MergeRules, cause: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        merge_schemas(struct(Col=table), struct(col=data), rules)
    assert caught.value.condition == "DELTA_FAILED_TO_MERGE_FIELDS"
    assert caught.value.parameters == {"currentField": "Col", "updateField": "col"}
    assert isinstance(caught.value.__cause__, SchemaError)
    assert caught.value.__cause__.condition == cause


def test_the_cause_names_both_types() -> None:
    with pytest.raises(SchemaError) as caught:
        merge_schemas(struct(c=D(10, 2)), struct(c=D(12, 4)))
    cause = caught.value.__cause__
    assert isinstance(cause, SchemaError)
    assert cause.parameters == {"decimalRanges": "precision 10 and 12 & scale 2 and 4"}
    with pytest.raises(SchemaError) as caught:
        merge_schemas(struct(c=LONG), struct(c=STRING))
    cause = caught.value.__cause__
    assert isinstance(cause, SchemaError)
    assert cause.parameters == {"currentDataType": "bigint", "updateDataType": "string"}


def test_data_with_names_that_differ_in_case_only_is_refused() -> None:
    twice = StructType((field("a", LONG), field("A", LONG)))
    for data in (twice, struct(l=ArrayType(twice)), struct(m=MapType(twice, LONG))):
        with pytest.raises(SchemaError) as caught:
            merge_schemas(struct(a=LONG), data)
        assert caught.value.condition == "DELTA_DUPLICATE_COLUMNS_FOUND.DATA"
        assert caught.value.parameters["duplicateCols"].endswith("A")
    check_no_duplicates(struct(a=LONG, s=struct(a=LONG)))


@settings(max_examples=25)
@given(schemas())
def test_merging_a_schema_with_itself_changes_nothing(schema: StructType) -> None:
    assert merge_schemas(schema, schema) == schema
    assert schema_differences(schema, schema) == ()
    assert is_read_compatible(schema, schema)


@settings(max_examples=25)
@given(schemas(), schemas())
def test_a_merge_keeps_every_field_of_the_table_in_its_place(
    table: StructType, data: StructType
) -> None:
    rules = MergeRules(keep_existing_type=True)
    merged = merge_schemas(table, data, rules)
    assert merged.names[: len(table)] == table.names
    assert all(f.name in merged for f in data)
    # What was merged once is there: a second time there is nothing to add.
    assert merge_schemas(merged, data, rules) == merged


# Enforcement.


def test_data_that_lacks_nullable_columns_or_has_smaller_integers_can_be_written() -> None:
    table = struct(id=INTEGER, v=STRING, s=struct(a=LONG, b=LONG))
    check_write_compatible(table, struct(ID=BYTE, s=struct(a=LONG)))
    check_write_compatible(table, struct(id=VOID))


@pytest.mark.parametrize(
    "data",
    [
        struct(id=LONG, extra=STRING),
        struct(id=LONG, s=struct(a=LONG, extra=LONG)),
    ],
)
def test_new_columns_need_leave(data: StructType) -> None:
    with pytest.raises(SchemaError) as caught:
        check_write_compatible(struct(id=LONG, s=struct(a=LONG)), data, table_id="t-1")
    assert caught.value.condition == "DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH"
    assert caught.value.sqlstate == "42KDG"
    assert caught.value.parameters["id"] == "t-1"


def test_a_larger_integer_needs_leave_or_a_cast() -> None:
    with pytest.raises(SchemaError) as caught:
        check_write_compatible(struct(a=SHORT), struct(a=INTEGER))
    assert caught.value.condition == "DELTA_METADATA_MISMATCH.SCHEMA_MISMATCH"
    check_write_compatible(struct(a=SHORT), struct(a=LONG), rules=IMPLICIT)


def test_partition_columns_that_are_named_must_be_the_tables() -> None:
    table = struct(a=LONG, p=LONG, q=LONG)
    check_write_compatible(table, table, table_partitions=["p", "q"], data_partitions=["P", "Q"])
    check_write_compatible(table, table, table_partitions=["p"])
    with pytest.raises(SchemaError) as caught:
        check_write_compatible(table, table, table_partitions=["p"], data_partitions=["q"])
    assert caught.value.condition == "DELTA_METADATA_MISMATCH.PARTITIONING_MISMATCH"
    assert caught.value.parameters == {"provided": "q", "original": "p"}


def test_a_missing_not_null_column_is_refused_unless_the_write_computes_it() -> None:
    table = StructType(
        (
            field("a", LONG),
            field("g", LONG, False, delta__generationExpression="a + 1"),
            field("s", StructType((field("x", LONG, False),))),
        )
    )
    assert list(missing_not_null_columns(table, struct(a=LONG, s=struct(y=LONG)))) == [("s", "x")]
    check_write_compatible(table, struct(a=LONG))
    with pytest.raises(SchemaError) as caught:
        check_write_compatible(table.add(field("n", LONG, False)), struct(a=LONG))
    assert caught.value.condition == "DELTA_MISSING_NOT_NULL_COLUMN_VALUE"
    assert caught.value.parameters == {"columnName": "n"}


# Reading.

NOT_NULL = StructType((field("a", LONG, False),))


@pytest.mark.parametrize(
    ("existing", "read", "options", "expected"),
    [
        (struct(a=LONG), struct(a=LONG, b=LONG), {}, True),
        (struct(a=LONG, b=LONG), struct(a=LONG), {}, False),
        (struct(a=LONG, b=LONG), struct(a=LONG), {"allow_missing_columns": True}, True),
        (struct(a=LONG), struct(A=LONG), {}, False),
        (struct(a=INTEGER), struct(a=LONG), {}, False),
        (struct(a=INTEGER), struct(a=LONG), {"widening": TypeWideningMode.SAME_FAMILY}, True),
        (struct(s=struct(a=LONG)), struct(s=struct(a=LONG, b=LONG)), {}, True),
        (struct(s=struct(a=LONG, b=LONG)), struct(s=struct(a=LONG)), {}, False),
        (NOT_NULL, struct(a=LONG), {}, False),
        (struct(a=LONG), NOT_NULL, {}, True),
        (struct(a=LONG), NOT_NULL, {"forbid_tighter_nullability": True}, False),
        (NOT_NULL, struct(a=LONG), {"forbid_tighter_nullability": True}, True),
        (struct(l=ArrayType(LONG, False)), struct(l=ArrayType(LONG)), {}, False),
        (struct(l=ArrayType(LONG)), struct(l=ArrayType(LONG, False)), {}, True),
        (struct(m=MapType(LONG, LONG, False)), struct(m=MapType(LONG, LONG)), {}, False),
        (struct(m=MapType(LONG, LONG)), struct(m=MapType(LONG, STRING)), {}, False),
    ],
)
def test_a_prepared_reader_can_be_served_or_not(
    existing: StructType, read: StructType, options: dict[str, object], expected: bool
) -> None:
    assert is_read_compatible(existing, read, **options) is expected  # type: ignore[arg-type]


@settings(max_examples=25)
@given(schemas())
def test_a_nullable_schema_has_no_not_null_left(schema: StructType) -> None:
    nullable = as_nullable(schema)
    assert as_nullable(nullable) == nullable
    assert is_read_compatible(schema, nullable, forbid_tighter_nullability=True)


def test_differences_are_told_one_by_one() -> None:
    one = StructType(
        (field("a", LONG), field("b", LONG, False), field("l", ArrayType(LONG)), field("c", LONG))
    )
    other = StructType(
        (
            field("a", STRING, comment="x"),
            field("b", LONG),
            field("l", ArrayType(INTEGER, False)),
            field("d", LONG),
        )
    )
    assert schema_differences(one, other) == (
        "c is missing",
        "a has other metadata",
        "a is string, but was bigint",
        "b is nullable, but was NOT NULL",
        "elements of l are NOT NULL",
        "l.element is int, but was bigint",
        "d is new",
    )
    maps = struct(m=MapType(LONG, LONG)), struct(m=MapType(STRING, LONG, False))
    assert schema_differences(*maps) == (
        "values of m are NOT NULL",
        "m.key is string, but was bigint",
    )
