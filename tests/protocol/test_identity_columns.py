from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delta.errors import OperationNotAllowedError, SchemaError
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.identity_columns import (
    IdentityInfo,
    check_explicit_insert,
    check_identity_columns,
    check_update,
    identity_columns,
    identity_info,
    is_identity_only_change,
    synced,
    with_high_water_marks,
    with_identity,
    with_merged_marks,
)
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import INTEGER, LONG, STRING, StructField, StructType

ID = with_identity(StructField("id", LONG), start=10, step=5)


def mark(field: StructField, value: int | None) -> StructField:
    return field.with_metadata_items({"delta.identity.highWaterMark": value})


def metadata(*fields: StructField, **changes: Any) -> Metadata:
    return Metadata(id="t", schema_string=format_schema(StructType(fields)), **changes)


def test_an_identity_column_is_described_by_its_metadata() -> None:
    assert dict(ID.metadata) == {
        "delta.identity.start": 10,
        "delta.identity.step": 5,
        "delta.identity.allowExplicitInsert": False,
    }
    assert identity_info(ID) == IdentityInfo(start=10, step=5)
    assert identity_columns(StructType((ID, StructField("v", STRING)))) == (ID,)


def test_numbers_go_on_from_the_mark() -> None:
    assert identity_info(ID).next_value == 10
    assert identity_info(mark(ID, 25)).next_value == 30


def test_only_a_bigint_can_be_an_identity() -> None:
    with pytest.raises(SchemaError) as caught:
        with_identity(StructField("id", INTEGER))
    assert caught.value.condition == "DELTA_IDENTITY_COLUMNS_UNSUPPORTED_DATA_TYPE"
    assert caught.value.parameters == {"dataType": "int"}
    with pytest.raises(SchemaError):
        check_identity_columns(StructType((ID.with_type(INTEGER),)), ())


def test_a_step_of_zero_is_refused() -> None:
    with pytest.raises(SchemaError) as caught:
        with_identity(StructField("id", LONG), step=0)
    assert caught.value.condition == "DELTA_IDENTITY_COLUMNS_ILLEGAL_STEP"


def test_a_start_beyond_64_bits_is_refused() -> None:
    with pytest.raises(SchemaError) as caught:
        with_identity(StructField("id", LONG), start=2**63)
    assert caught.value.condition == "DELTA_IDENTITY_COLUMN_OVERFLOW"


def test_a_table_is_not_partitioned_by_an_identity() -> None:
    check_identity_columns(StructType((ID,)), ["other"])
    with pytest.raises(SchemaError) as caught:
        check_identity_columns(StructType((ID,)), ["ID"])
    assert caught.value.condition == "DELTA_IDENTITY_COLUMNS_PARTITION_NOT_SUPPORTED"


@pytest.mark.parametrize(
    "change",
    [
        {"delta.identity.start": None},
        {"delta.identity.step": None},
        {"delta.identity.step": 0},
        {"delta.identity.allowExplicitInsert": None},
        {"delta.identity.allowExplicitInsert": "yes"},
        {"delta.identity.start": "1"},
        {"delta.identity.start": True},
        {"delta.identity.highWaterMark": 2**63},
        {"delta.identity.highWaterMark": "1"},
    ],
)
def test_an_identity_that_is_described_in_part_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(SchemaError) as caught:
        identity_info(ID.with_metadata_items(change))
    assert caught.value.condition == "DELTA_IDENTITY_COLUMN_INCONSISTENT_METADATA"


def test_values_for_a_generated_always_identity_are_refused() -> None:
    always = StructType((ID,))
    by_default = StructType((with_identity(StructField("id", LONG), allow_explicit_insert=True),))
    check_explicit_insert(by_default, ["ID"])
    check_explicit_insert(always, ["v"])
    with pytest.raises(OperationNotAllowedError) as caught:
        check_explicit_insert(always, ["Id"])
    assert caught.value.condition == "DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED"


def test_an_identity_cannot_be_updated() -> None:
    check_update(StructType((ID,)), ["v"])
    with pytest.raises(OperationNotAllowedError) as caught:
        check_update(StructType((ID,)), ["ID"])
    assert caught.value.condition == "DELTA_IDENTITY_COLUMNS_UPDATE_NOT_SUPPORTED"


def test_marks_move_on_and_never_back() -> None:
    down = with_identity(StructField("d", LONG), start=-1, step=-2)
    schema = StructType((mark(ID, 20), mark(down, -5), StructField("v", STRING)))
    moved = with_high_water_marks(schema, {"id": 30, "d": -9, "v": 3})
    assert [identity_info(f).high_water_mark for f in identity_columns(moved)] == [30, -9]
    assert with_high_water_marks(schema, {"id": 15, "d": -3}) == schema
    assert moved["v"] == schema["v"]


def test_marks_are_reported_by_physical_name() -> None:
    field = ID.with_metadata_items({"delta.columnMapping.physicalName": "col-1"})
    schema = StructType((field,))
    assert with_high_water_marks(schema, {"id": 30}) == schema
    moved = with_high_water_marks(schema, {"col-1": 30})
    assert identity_info(moved["id"]).high_water_mark == 30


def test_a_mark_that_does_not_fit_64_bits_is_refused() -> None:
    with pytest.raises(SchemaError) as caught:
        with_high_water_marks(StructType((ID,)), {"id": 2**63})
    assert caught.value.condition == "DELTA_IDENTITY_COLUMN_OVERFLOW"


def test_restoring_an_older_schema_keeps_the_newer_marks() -> None:
    older, newer = StructType((mark(ID, 10),)), StructType((mark(ID, 40),))
    assert with_merged_marks(older, newer) == newer
    assert with_merged_marks(newer, older) == newer
    assert with_merged_marks(newer, StructType((ID,))) == newer


@pytest.mark.parametrize(
    ("start", "step", "old", "extreme", "lowering", "new"),
    [
        (1, 1, None, None, False, None),
        (1, 1, None, 7, False, 7),
        (1, 3, None, 5, False, 7),
        (10, 5, None, 3, False, None),
        (-1, -2, None, -4, False, -5),
        (-1, -2, None, 4, False, None),
        (1, 1, 20, 7, False, 20),
        (1, 1, 20, 7, True, 7),
        (1, 1, 20, 30, False, 30),
    ],
)
def test_sync_moves_the_mark_to_what_the_data_has(
    start: int, step: int, old: int | None, extreme: int | None, lowering: bool, new: int | None
) -> None:
    field = mark(with_identity(StructField("id", LONG), start=start, step=step), old)
    after = synced(field, extreme, allow_lowering=lowering)
    assert identity_info(after).high_water_mark == new


def test_sync_is_for_identity_columns_and_stays_within_64_bits() -> None:
    with pytest.raises(OperationNotAllowedError) as caught:
        synced(StructField("v", LONG), 1)
    assert caught.value.condition == "DELTA_IDENTITY_COLUMNS_ALTER_NON_IDENTITY_COLUMN"
    with pytest.raises(SchemaError) as overflow:
        synced(with_identity(StructField("id", LONG), start=0, step=10), 2**63 - 1)
    assert overflow.value.condition == "DELTA_IDENTITY_COLUMN_OVERFLOW"


@given(
    st.integers(-(10**6), 10**6),
    st.integers(-1000, 1000).filter(bool),
    st.integers(-(10**7), 10**7),
)
def test_after_a_sync_the_next_number_is_new_and_in_the_sequence(
    start: int, step: int, extreme: int
) -> None:
    info = identity_info(
        synced(with_identity(StructField("id", LONG), start=start, step=step), extreme)
    )
    following = info.next_value
    assert (following - start) % step == 0
    assert following > extreme if step > 0 else following < extreme


def test_a_change_of_marks_alone_is_told_from_other_changes() -> None:
    value = StructField("v", STRING)
    old = metadata(ID, value)
    assert is_identity_only_change(old, metadata(mark(ID, 10), value))
    assert not is_identity_only_change(old, old)
    assert not is_identity_only_change(old, metadata(mark(ID, 10), value.with_name("w")))
    assert not is_identity_only_change(
        old, replace(metadata(mark(ID, 10), value), configuration={"a": "b"})
    )
