"""The columns of a checkpoint follow the table: names, types, properties."""

from __future__ import annotations

import json

import pyarrow as pa

from pyspark_delta.kernel.log.arrow_types import log_arrow_type
from pyspark_delta.kernel.log.checkpoints.schema import (
    add_type,
    checkpoint_schema,
    physical_partition_schema,
    spark_schema,
    stats_type,
    top_level_schema,
)
from pyspark_delta.kernel.protocol.actions import Protocol
from pyspark_delta.kernel.protocol.schema_json import type_json
from pyspark_delta.kernel.protocol.types import (
    BINARY,
    BOOLEAN,
    DATE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    VARIANT,
    ArrayType,
    DecimalType,
    StructField,
    StructType,
)
from tests.support.log_builder import metadata
from tests.support.schemas import field, struct

WITH_VECTORS = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors",),
    writer_features=("deletionVectors",),
)
WIDE = StructType(
    (
        StructField("id", LONG),
        StructField("flag", BOOLEAN),
        StructField("raw", BINARY),
        StructField("any", VARIANT),
        StructField("list", ArrayType(LONG)),
        StructField("in", struct(a=DecimalType(9, 3), b=BOOLEAN)),
        StructField("p", DATE),
        StructField("at", TIMESTAMP),
    )
)


def test_columns_stand_in_delta_sparks_order() -> None:
    names = checkpoint_schema(metadata(), Protocol()).names
    assert names == ["txn", "add", "remove", "metaData", "protocol", "domainMetadata"]
    assert top_level_schema(metadata(), Protocol()).names[6:] == ["checkpointMetadata", "sidecar"]


def test_bounds_are_for_types_that_have_them_and_null_counts_for_all() -> None:
    found = stats_type(metadata(WIDE, ["p"]), Protocol())
    assert [f.name for f in found] == ["numRecords", "minValues", "maxValues", "nullCount"]
    assert found.field("minValues").type == pa.struct(
        [
            ("id", pa.int64()),
            ("in", pa.struct([("a", pa.decimal128(9, 3))])),
            ("at", pa.timestamp("us", "UTC")),
        ]
    )
    counts = found.field("nullCount").type
    assert [f.name for f in counts] == ["id", "flag", "raw", "any", "list", "in", "at"]
    assert counts.field("in").type == pa.struct([("a", pa.int64()), ("b", pa.int64())])


def test_tables_with_deletion_vectors_say_whether_bounds_are_tight() -> None:
    assert stats_type(metadata(), WITH_VECTORS)[-1] == pa.field("tightBounds", pa.bool_())


def test_names_are_the_physical_ones_under_column_mapping() -> None:
    mapped = StructType(
        (
            field("id", LONG, delta__columnMapping__physicalName="col-1"),
            field("p", INTEGER, delta__columnMapping__physicalName="col-2"),
        )
    )
    table = metadata(mapped, ["p"], {"delta.columnMapping.mode": "name"})
    assert log_arrow_type(physical_partition_schema(table)) == pa.struct([("col-2", pa.int32())])
    assert stats_type(table, Protocol()).field("minValues").type == pa.struct(
        [("col-1", pa.int64())]
    )


def test_only_indexed_columns_have_statistics() -> None:
    first = metadata(WIDE, ["p"], {"delta.dataSkippingNumIndexedCols": "1"})
    assert stats_type(first, Protocol()).field("nullCount").type == pa.struct([("id", pa.int64())])
    named = metadata(WIDE, ["p"], {"delta.dataSkippingStatsColumns": "in.a"})
    assert stats_type(named, Protocol()).field("nullCount").type == pa.struct(
        [("in", pa.struct([("a", pa.int64())]))]
    )
    none = metadata(WIDE, ["p"], {"delta.dataSkippingNumIndexedCols": "0"})
    assert stats_type(none, Protocol()) == pa.struct([("numRecords", pa.int64())])


def test_the_properties_choose_the_form_of_statistics() -> None:
    def optional(**configuration: str) -> list[str]:
        keys = {f"delta.checkpoint.{key}": value for key, value in configuration.items()}
        return [f.name for f in add_type(metadata(WIDE, ["p"], keys), Protocol())][10:]

    assert optional() == ["stats", "partitionValues_parsed", "stats_parsed"]
    assert optional(writeStatsAsStruct="false") == ["stats"]
    assert optional(writeStatsAsJson="false") == ["partitionValues_parsed", "stats_parsed"]
    assert "partitionValues_parsed" not in add_type(metadata(), Protocol())


def test_the_schema_of_the_hint_is_sparks() -> None:
    value = type_json(spark_schema(checkpoint_schema(metadata(WIDE, ["p"]), Protocol())))
    text = json.dumps(value)
    assert value["fields"][0]["name"] == "txn"
    assert all(f["nullable"] for f in value["fields"])
    assert '"type": "decimal(9,3)"' in text
    assert '"keyType": "string"' in text
    assert struct(x=STRING).simple_string == "struct<x:string>"
