from __future__ import annotations

from typing import Any

import pytest

from pyspark_delta.errors import DeltaError, InvalidActionsError, ProtocolError
from pyspark_delta.kernel.protocol.action_parts import DeletionVectorDescriptor
from pyspark_delta.kernel.protocol.actions import AddFile, Metadata, Protocol
from pyspark_delta.kernel.protocol.feature_upgrade import protocol_for, upgraded
from pyspark_delta.kernel.protocol.iceberg_compat import (
    check_iceberg_compat,
    default_properties,
    enabled_version,
    keeps_partition_columns,
    requires_partition_columns,
)
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import (
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)


def table(version: int, *types: DataType, **changes: Any) -> Metadata:
    fields = tuple(StructField(f"c{i}", t) for i, t in enumerate(types or (LONG,)))
    configuration = {
        f"delta.enableIcebergCompatV{version}": "true",
        "delta.columnMapping.mode": "name",
        **changes.pop("configuration", {}),
    }
    return Metadata(
        id="t",
        schema_string=format_schema(StructType(fields)),
        configuration=configuration,
        **changes,
    )


def violation(metadata: Metadata, protocol: Protocol | None = None, **more: Any) -> DeltaError:
    with pytest.raises((ProtocolError, InvalidActionsError)) as caught:
        check_iceberg_compat(protocol or protocol_for(metadata), metadata, **more)
    assert caught.value.condition.startswith("DELTA_ICEBERG_COMPAT_VIOLATION.")
    return caught.value


def kind(error: DeltaError) -> str:
    return error.condition.partition(".")[2]


ADD = AddFile(path="f", size=1, modification_time=0, data_change=True, stats='{"numRecords":1}')


@pytest.mark.parametrize("version", [1, 2])
def test_a_table_that_keeps_the_rules_passes(version: int) -> None:
    metadata = table(version, LONG, STRING, DecimalType(10, 2), StructType(()))
    assert enabled_version(metadata) == version
    check_iceberg_compat(protocol_for(metadata), metadata, previous=metadata, files=[ADD])


def test_a_table_without_the_switch_is_not_checked() -> None:
    metadata = Metadata(id="t", schema_string=format_schema(StructType()))
    assert enabled_version(metadata) is None
    check_iceberg_compat(
        Protocol(),
        metadata,
        files=[AddFile(path="f", size=1, modification_time=0, data_change=True)],
    )


def test_one_version_at_a_time() -> None:
    metadata = table(1, configuration={"delta.enableIcebergCompatV2": "true"})
    assert kind(violation(metadata)) == "VERSION_MUTUAL_EXCLUSIVE"


@pytest.mark.parametrize("version", [1, 2])
def test_column_mapping_must_be_supported_and_on(version: int) -> None:
    metadata = table(version)
    missing = violation(metadata, Protocol())
    assert kind(missing) == "MISSING_REQUIRED_TABLE_FEATURE"
    assert missing.parameters["feature"] == "columnMapping"
    off = violation(table(version, configuration={"delta.columnMapping.mode": "none"}))
    assert kind(off) == "WRONG_REQUIRED_TABLE_PROPERTY"
    assert off.parameters["key"] == "delta.columnMapping.mode"


@pytest.mark.parametrize(
    ("version", "data_type", "allowed"),
    [
        (1, ArrayType(LONG), False),
        (1, MapType(STRING, LONG), False),
        (1, VOID, False),
        (1, StructType((StructField("x", ArrayType(LONG)),)), False),
        (1, StructType((StructField("x", LONG),)), True),
        (2, ArrayType(LONG), True),
        (2, MapType(STRING, LONG), True),
        (2, VOID, False),
        (2, VARIANT, False),
        (2, ArrayType(VARIANT), False),
        (2, PrimitiveType("interval year to month"), False),
    ],
)
def test_types_that_iceberg_lacks_are_refused(
    version: int, data_type: DataType, allowed: bool
) -> None:
    metadata = table(version, data_type)
    if allowed:
        check_iceberg_compat(protocol_for(metadata), metadata)
    else:
        assert kind(violation(metadata)) == "UNSUPPORTED_DATA_TYPE"


def test_version_1_does_not_go_with_the_deletion_vectors_feature() -> None:
    metadata = table(1)
    protocol = upgraded(protocol_for(metadata), ["deletionVectors"])
    assert kind(violation(metadata, protocol)) == "INCOMPATIBLE_TABLE_FEATURE"


def test_version_2_goes_with_deletion_vectors_that_are_switched_off() -> None:
    metadata = table(2)
    check_iceberg_compat(upgraded(protocol_for(metadata), ["deletionVectors"]), metadata)
    on = table(2, configuration={"delta.enableDeletionVectors": "true"})
    assert kind(violation(on)) == "DELETION_VECTORS_SHOULD_BE_DISABLED"


def test_partition_columns_stay() -> None:
    old, new = table(2, partition_columns=("c0",)), table(2)
    assert kind(violation(new, previous=old)) == "REPLACE_TABLE_CHANGE_PARTITION_NAMES"
    check_iceberg_compat(protocol_for(old), old, previous=new)


@pytest.mark.parametrize(
    ("from_type", "to_type", "allowed"),
    [("integer", "long", True), ("integer", "double", False), ("date", "timestamp_ntz", False)],
)
def test_only_type_changes_that_iceberg_knows_are_allowed(
    from_type: str, to_type: str, allowed: bool
) -> None:
    changes = [{"fromType": from_type, "toType": to_type}]
    types = {"long": LONG, "double": DOUBLE}
    field = StructField("a", types.get(to_type, INTEGER), metadata={"delta.typeChanges": changes})
    metadata = Metadata(
        id="t",
        schema_string=format_schema(StructType((field,))),
        configuration=table(2).configuration,
    )
    if allowed:
        check_iceberg_compat(protocol_for(metadata), metadata)
    else:
        assert kind(violation(metadata)) == "UNSUPPORTED_TYPE_WIDENING"


@pytest.mark.parametrize("version", [1, 2])
def test_files_need_a_row_count_and_have_no_deletion_vector(version: int) -> None:
    bare = AddFile(path="tä b", size=1, modification_time=0, data_change=True)
    missing = violation(table(version), files=[ADD, bare])
    assert kind(missing) == "MISSING_NUM_RECORDS"
    assert missing.parameters["path"] == "tä b"
    vector = DeletionVectorDescriptor(
        storage_type="i", path_or_inline_dv="x", size_in_bytes=1, cardinality=1
    )
    marked = AddFile(
        path="f",
        size=1,
        modification_time=0,
        data_change=True,
        stats='{"numRecords":1}',
        deletion_vector=vector,
    )
    assert kind(violation(table(version), files=[marked])) == "DELETION_VECTORS_NOT_PURGED"


def test_a_new_table_gets_column_mapping_unless_it_says_otherwise() -> None:
    on = {"delta.enableIcebergCompatV2": "true"}
    assert default_properties(on) == {"delta.columnMapping.mode": "name"}
    assert default_properties({**on, "delta.columnMapping.mode": "id"}) == {}
    assert default_properties({}) == {}


def test_partition_columns_belong_in_files_when_a_feature_asks_for_it() -> None:
    plain = Metadata(id="t")
    assert not requires_partition_columns(Protocol(), plain)
    assert requires_partition_columns(Protocol(), table(1))
    assert requires_partition_columns(upgraded(Protocol(), ["materializePartitionColumns"]), plain)


def test_a_table_may_leave_partition_columns_out_of_files_unless_a_feature_needs_them() -> None:
    said_no = {"delta.writePartitionColumnsToParquet": "false"}
    plain = Metadata(id="t", configuration=said_no)
    assert keeps_partition_columns(Protocol(), Metadata(id="t"))
    assert not keeps_partition_columns(Protocol(), plain)
    assert keeps_partition_columns(Protocol(), table(2, configuration=said_no))
    assert keeps_partition_columns(upgraded(Protocol(), ["materializePartitionColumns"]), plain)
