"""Which columns have statistics."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delta.errors import DeltaError, PropertyError
from pyspark_delta.kernel.protocol.column_mapping import ColumnMappingMode, assign_columns
from pyspark_delta.kernel.protocol.stats_columns import (
    check_stats_columns,
    drop_from_column_list,
    format_column_list,
    has_bounds,
    parse_column_list,
    rename_in_column_list,
    stats_columns,
    stats_schema,
)
from pyspark_delta.kernel.protocol.types import (
    BINARY,
    BOOLEAN,
    DATE,
    LONG,
    STRING,
    VARIANT,
    ArrayType,
    DecimalType,
    MapType,
    StructType,
    column_name,
)
from tests.support.schemas import field, struct

SCHEMA = struct(
    id=LONG,
    p=DATE,
    s=struct(a=STRING, t=struct(b=LONG, c=BOOLEAN)),
    l=ArrayType(struct(x=LONG)),
    m=MapType(STRING, LONG),
    z=STRING,
)


def _names(
    schema: StructType = SCHEMA, partitions: tuple[str, ...] = (), **options: object
) -> list[str]:
    found = stats_columns(schema, partitions, **options)  # type: ignore[arg-type]
    return [column_name(one.path) for one in found]


def test_leaves_of_structs_count_and_collections_count_as_one() -> None:
    assert _names() == ["id", "p", "s.a", "s.t.b", "s.t.c", "l", "m", "z"]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, []),
        (1, ["id"]),
        (3, ["id", "s.a", "s.t.b"]),
        (5, ["id", "s.a", "s.t.b", "s.t.c", "l"]),
        (-1, ["id", "s.a", "s.t.b", "s.t.c", "l", "m", "z"]),
    ],
)
def test_the_first_columns_are_indexed_and_partition_columns_do_not_count(
    count: int, expected: list[str]
) -> None:
    assert _names(SCHEMA, ("P",), num_indexed=count) == expected


def test_32_columns_are_indexed_when_nobody_says_otherwise() -> None:
    wide = StructType(tuple(field(f"c{i}", LONG) for i in range(40)))
    assert len(_names(wide)) == 32


def test_a_list_of_columns_wins_and_keeps_the_schemas_order() -> None:
    assert _names(listed="Z, s.T, id", num_indexed=0) == ["id", "s.t.b", "s.t.c", "z"]
    assert _names(listed="") == []
    assert _names(listed="s.nope, nope") == []


def test_paths_are_physical_in_the_log() -> None:
    mapped, _ = assign_columns(struct(s=struct(a=LONG)), max_id=0, new_uuid=iter("xy").__next__)
    found = stats_columns(mapped, mode=ColumnMappingMode.NAME)
    assert [(one.path, one.physical_path) for one in found] == [(("s", "a"), ("col-x", "col-y"))]


def test_bounds_are_kept_for_what_can_be_ordered_in_a_useful_way() -> None:
    assert has_bounds(LONG)
    assert has_bounds(STRING)
    assert has_bounds(DecimalType(10, 2))
    for data_type in (BOOLEAN, BINARY, VARIANT, ArrayType(LONG), MapType(LONG, LONG)):
        assert not has_bounds(data_type)


def test_the_parsed_form_mirrors_the_schema() -> None:
    columns = stats_columns(SCHEMA, ("p",), num_indexed=4)
    schema = stats_schema(columns, tight_bounds=True)
    bounds = struct(id=LONG, s=struct(a=STRING, t=struct(b=LONG)))
    counts = struct(id=LONG, s=struct(a=LONG, t=struct(b=LONG, c=LONG)))
    assert schema == struct(
        numRecords=LONG, minValues=bounds, maxValues=bounds, nullCount=counts, tightBounds=BOOLEAN
    )
    assert stats_schema([], tight_bounds=False) == struct(numRecords=LONG)


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("", ()),
        ("  ", ()),
        ("a", (("a",),)),
        (" a , b.c ", (("a",), ("b", "c"))),
        ("`a.b`.c,`x``y`,`d, e`", (("a.b", "c"), ("x`y",), ("d, e",))),
        ("ä.b-c", (("ä", "b-c"),)),
    ],
)
def test_a_list_of_columns_is_read(text: str, paths: tuple[tuple[str, ...], ...]) -> None:
    assert parse_column_list(text) == paths


@pytest.mark.parametrize("text", [",", "a,", "a b", "a.", ".a", "`a", "``", "a..b", "a`b`", "`a`b"])
def test_what_is_no_list_of_columns_is_refused(text: str) -> None:
    with pytest.raises(PropertyError, match="dataSkippingStatsColumns"):
        parse_column_list(text)


_PATHS = st.lists(st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=3), max_size=4)


@given(_PATHS)
def test_every_list_reads_back(paths: list[list[str]]) -> None:
    assert parse_column_list(format_column_list(paths)) == tuple(map(tuple, paths))


@given(st.text(alphabet="ab.,` ", max_size=12))
def test_no_text_is_anything_but_a_list_or_refused(text: str) -> None:
    try:
        paths = parse_column_list(text)
    except PropertyError:
        return
    assert all(part for path in paths for part in path)


@pytest.mark.parametrize(
    ("listed", "condition"),
    [
        ("P", "DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_PARTITIONED_COLUMN"),
        ("nope", "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"),
        ("l", "DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_TYPE"),
        ("s.t.c", "DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_TYPE"),
        ("id, ID", "DELTA_DUPLICATE_DATA_SKIPPING_COLUMNS"),
        ("s.t.b, S.T.B", "DELTA_DUPLICATE_DATA_SKIPPING_COLUMNS"),
        ("a b", "DELTA_INVALID_TABLE_PROPERTY"),
    ],
)
def test_a_property_that_names_the_wrong_columns_is_refused(listed: str, condition: str) -> None:
    with pytest.raises(DeltaError) as caught:
        check_stats_columns(SCHEMA, ["p"], listed)
    assert caught.value.condition == condition


def test_a_property_that_names_the_right_columns_is_fine() -> None:
    check_stats_columns(SCHEMA, ["p"], "ID, s.a, s.t.b, z")
    check_stats_columns(SCHEMA, ["p"], "")


def test_a_struct_can_be_listed_whatever_is_in_it() -> None:
    check_stats_columns(SCHEMA, ["p"], "s.t")
    check_stats_columns(SCHEMA, ["p"], "S")


def test_the_property_follows_renames_and_drops() -> None:
    listed = "a, s.x, S.y.z, other"
    assert rename_in_column_list(listed, ["s"], ["t u"]) == "a,`t u`.x,`t u`.y.z,other"
    assert rename_in_column_list(listed, ["s", "y"], ["s", "w"]) == "a,s.x,s.w.z,other"
    assert drop_from_column_list(listed, [["s"], ["a"]]) == "other"
    assert drop_from_column_list(listed, [["s", "x"]]) == "a,S.y.z,other"
