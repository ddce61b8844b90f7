from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delta.errors import (
    CorruptLogError,
    InvalidActionsError,
    PropertyError,
    SchemaError,
)
from pyspark_delta.kernel.protocol.actions import AddFile, Metadata, Protocol
from pyspark_delta.kernel.protocol.row_tracking import (
    assign_row_ids,
    assigns_row_ids,
    check_properties,
    is_row_tracking_enabled,
    materialized_columns,
    reassign_row_ids,
    with_materialized_columns,
)
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import LONG, StructField, StructType

SUPPORTED = Protocol(
    min_reader_version=1,
    min_writer_version=7,
    writer_features=("domainMetadata", "rowTracking"),
)
ON = {"delta.enableRowTracking": "true"}
SUSPENDED = {"delta.rowTrackingSuspended": "true"}


def file(path: str, rows: int | None = 10, **changes: int) -> AddFile:
    add = AddFile(
        path=path,
        size=1,
        modification_time=0,
        data_change=True,
        stats=None if rows is None else f'{{"numRecords":{rows}}}',
    )
    return replace(add, **changes)  # type: ignore[arg-type]


def ids(files: tuple[AddFile, ...]) -> list[tuple[int | None, int | None]]:
    return [(f.base_row_id, f.default_row_commit_version) for f in files]


def test_the_first_row_of_a_table_has_the_id_zero() -> None:
    numbered = assign_row_ids([file("a", 3), file("b", 4)], high_water_mark=None, version=0)
    assert ids(numbered.files) == [(0, 0), (3, 0)]
    assert numbered.high_water_mark == 6


def test_files_that_come_back_keep_their_ids() -> None:
    old = file("a", base_row_id=2, default_row_commit_version=1)
    numbered = assign_row_ids([old, file("b", 5)], high_water_mark=99, version=7)
    assert ids(numbered.files) == [(2, 1), (100, 7)]
    assert numbered.high_water_mark == 104


def test_an_empty_file_takes_no_id() -> None:
    numbered = assign_row_ids([file("a", 0), file("b", 1)], high_water_mark=4, version=1)
    assert ids(numbered.files) == [(5, 1), (5, 1)]
    assert numbered.high_water_mark == 5


@pytest.mark.parametrize("rows", [None, -1])
def test_a_file_without_a_row_count_cannot_be_numbered(rows: int | None) -> None:
    with pytest.raises(InvalidActionsError) as caught:
        assign_row_ids([file("a", rows)], high_water_mark=None, version=0)
    assert caught.value.condition == "DELTA_ROW_ID_ASSIGNMENT_WITHOUT_STATS"


def test_ids_stay_within_64_bits() -> None:
    with pytest.raises(InvalidActionsError) as caught:
        assign_row_ids([file("a", 2)], high_water_mark=2**63 - 2, version=0)
    assert caught.value.condition == "DELTA_INVALID_ROW_TRACKING_METADATA"


def test_after_a_lost_race_own_ids_move_behind_the_winners() -> None:
    old = file("old", base_row_id=3, default_row_commit_version=2)
    mine = assign_row_ids([old, file("a", 5), file("b", 5)], high_water_mark=9, version=4)
    assert ids(mine.files) == [(3, 2), (10, 4), (15, 4)]
    again = reassign_row_ids(mine.files, read_mark=9, winner_mark=29, winner_version=4)
    assert ids(again.files) == [(3, 2), (30, 5), (35, 5)]
    assert again.high_water_mark == 39


def test_a_winner_without_new_rows_leaves_the_ids_and_moves_the_version() -> None:
    mine = assign_row_ids([file("a", 5)], high_water_mark=9, version=4)
    again = reassign_row_ids(mine.files, read_mark=9, winner_mark=None, winner_version=4)
    assert ids(again.files) == [(10, 5)]
    assert again.high_water_mark == 14


@given(st.lists(st.integers(0, 50), max_size=6), st.lists(st.integers(0, 50), max_size=4))
def test_no_id_is_given_twice_however_often_a_race_is_lost(
    rows: list[int], winners: list[int]
) -> None:
    mark = 100
    numbered = assign_row_ids([file(str(n), n) for n in rows], high_water_mark=mark, version=1)
    taken: set[int] = set(range(101))
    winner_mark = mark
    for version, won in enumerate(winners, start=1):
        taken |= set(range(winner_mark + 1, winner_mark + 1 + won))
        winner_mark += won
        numbered = reassign_row_ids(
            numbered.files, read_mark=mark, winner_mark=winner_mark, winner_version=version
        )
    mine = [
        (add.base_row_id or 0) + position
        for add, n in zip(numbered.files, rows, strict=True)
        for position in range(n)
    ]
    assert len(set(mine)) == len(mine)
    assert not taken & set(mine)
    assert max([winner_mark, *mine]) == numbered.high_water_mark
    assert {f.default_row_commit_version for f in numbered.files} <= {len(winners) + 1}


def test_ids_are_given_wherever_the_feature_is_supported() -> None:
    plain = Metadata(id="t")
    assert assigns_row_ids(SUPPORTED, plain)
    assert not assigns_row_ids(Protocol(), plain)
    assert not assigns_row_ids(SUPPORTED, Metadata(id="t", configuration=SUSPENDED))


def test_ids_are_relied_on_only_where_they_are_enabled() -> None:
    assert not is_row_tracking_enabled(SUPPORTED, Metadata(id="t"))
    assert is_row_tracking_enabled(SUPPORTED, Metadata(id="t", configuration=ON))
    with pytest.raises(CorruptLogError) as caught:
        is_row_tracking_enabled(Protocol(), Metadata(id="t", configuration=ON))
    assert caught.value.condition == "DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH"


def test_row_tracking_cannot_be_enabled_and_suspended() -> None:
    with pytest.raises(PropertyError) as caught:
        check_properties(Metadata(id="t", configuration={**ON, **SUSPENDED}))
    assert caught.value.condition == "DELTA_ROW_TRACKING_ILLEGAL_PROPERTY_COMBINATION"
    assert caught.value.parameters == {
        "property1": "delta.enableRowTracking",
        "property2": "delta.rowTrackingSuspended",
    }


def test_hidden_columns_get_names_once() -> None:
    numbers = count()
    named = with_materialized_columns(Metadata(id="t"), lambda: f"uuid-{next(numbers)}")
    assert materialized_columns(named) == (
        "_row-id-col-uuid-0",
        "_row-commit-version-col-uuid-1",
    )
    assert with_materialized_columns(named, lambda: "other") == named


def test_hidden_columns_without_names_are_a_typed_error() -> None:
    with pytest.raises(CorruptLogError) as caught:
        materialized_columns(Metadata(id="t"), "tä ble")
    assert caught.value.condition == "DELTA_MATERIALIZED_ROW_TRACKING_COLUMN_NAME_MISSING"
    assert caught.value.parameters["tableName"] == "tä ble"


def test_a_column_cannot_have_the_name_of_a_hidden_one() -> None:
    schema = StructType((StructField("_Row-ID-col-x", LONG),))
    table = Metadata(id="t", schema_string=format_schema(schema))
    with pytest.raises(SchemaError) as caught:
        with_materialized_columns(table, lambda: "x")
    assert caught.value.condition == "DELTA_ADDING_COLUMN_WITH_INTERNAL_NAME_FAILED"
