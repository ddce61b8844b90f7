from __future__ import annotations

import pytest

from pyspark_delta.errors import CorruptLogError, UnsupportedProtocolError
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.features import (
    FEATURES,
    active_features,
    check_readable,
    check_writable,
    feature_named,
    implied_features,
    in_listing_order,
    protocol_text,
    supported_features,
)
from pyspark_delta.kernel.protocol.identity_columns import with_identity
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import (
    LONG,
    STRING,
    TIMESTAMP_NTZ,
    VARIANT,
    ArrayType,
    MapType,
    StructField,
    StructType,
)

TABLE = "/tä ble 100%"

# name: readers too, legacy versions, requires, (readable, writable, removable)
ROWS = {
    "appendOnly": (False, (0, 2), (), (True, True, False)),
    "invariants": (False, (0, 2), (), (True, True, False)),
    "checkConstraints": (False, (0, 3), (), (True, True, True)),
    "changeDataFeed": (False, (0, 4), (), (True, True, False)),
    "generatedColumns": (False, (0, 4), (), (True, True, False)),
    "columnMapping": (True, (2, 5), (), (True, True, True)),
    "identityColumns": (False, (0, 6), (), (True, True, False)),
    "deletionVectors": (True, None, (), (True, True, True)),
    "timestampNtz": (True, None, (), (True, True, False)),
    "v2Checkpoint": (True, None, (), (True, True, True)),
    "domainMetadata": (False, None, (), (True, True, True)),
    "rowTracking": (False, None, ("domainMetadata",), (True, True, True)),
    "icebergCompatV1": (False, None, ("columnMapping",), (True, True, False)),
    "icebergCompatV2": (False, None, ("columnMapping",), (True, True, False)),
    "icebergCompatV3": (False, None, ("columnMapping", "rowTracking"), (True, False, False)),
    "icebergWriterCompatV1": (False, None, ("icebergCompatV2",), (True, False, False)),
    "icebergWriterCompatV3": (False, None, ("icebergCompatV3",), (True, False, False)),
    "clustering": (False, None, ("domainMetadata",), (True, True, False)),
    "allowColumnDefaults": (False, None, (), (True, True, False)),
    "inCommitTimestamp": (False, None, (), (True, True, True)),
    "vacuumProtocolCheck": (True, None, (), (True, True, True)),
    "typeWidening": (True, None, (), (True, True, True)),
    "typeWidening-preview": (True, None, (), (True, True, True)),
    "variantType": (True, None, (), (True, True, False)),
    "variantType-preview": (True, None, (), (True, True, False)),
    "variantShredding": (True, None, ("variantType",), (False, False, False)),
    "variantShredding-preview": (True, None, ("variantType",), (False, False, False)),
    "catalogManaged": (
        True,
        None,
        ("inCommitTimestamp", "vacuumProtocolCheck"),
        (False, False, False),
    ),
    "coordinatedCommits-preview": (
        False,
        None,
        ("inCommitTimestamp", "vacuumProtocolCheck"),
        (True, False, True),
    ),
    "checkpointProtection": (False, None, (), (True, True, True)),
    "materializePartitionColumns": (False, None, (), (True, True, True)),
    "geospatial": (True, None, (), (False, False, True)),
    "geospatial-dev": (True, None, (), (False, False, True)),
    "collations": (False, None, ("domainMetadata",), (True, False, False)),
    "timestampNanos": (True, None, ("timestampNtz",), (False, False, False)),
    "columnMappingUsageTracking": (False, None, ("columnMapping",), (True, False, False)),
    "adaptiveMetadata-preview": (
        True,
        None,
        ("catalogManaged", "rowTracking", "domainMetadata", "deletionVectors", "columnMapping"),
        (False, False, False),
    ),
    "redirectReaderWriter-preview": (True, None, (), (False, False, True)),
    "redirectWriterOnly-preview": (False, None, (), (True, False, True)),
}


def listing(*names: str) -> Protocol:
    readers = tuple(n for n in names if n in FEATURES and FEATURES[n].readers)
    return Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=readers,
        writer_features=names,
    )


def legacy(reader: int, writer: int) -> Protocol:
    return Protocol(min_reader_version=reader, min_writer_version=writer)


def metadata(*fields: StructField, **configuration: str) -> Metadata:
    return Metadata(
        id="t", schema_string=format_schema(StructType(fields)), configuration=configuration
    )


def test_every_feature_has_a_row_here() -> None:
    assert {
        f.name: (f.readers, f.legacy, f.requires, (f.readable, f.writable, f.removable))
        for f in FEATURES.values()
    } == ROWS


@pytest.mark.parametrize("name", ROWS)
def test_what_a_feature_requires_is_known_and_names_are_found_in_any_case(name: str) -> None:
    assert set(FEATURES[name].requires) <= FEATURES.keys()
    assert feature_named(name.upper()) is FEATURES[name]


@pytest.mark.parametrize("name", ROWS)
def test_a_table_is_read_or_refused_by_the_features_name(name: str) -> None:
    if not FEATURES[name].readers or FEATURES[name].readable:
        check_readable(listing(name), TABLE)
        return
    with pytest.raises(UnsupportedProtocolError) as caught:
        check_readable(listing(name), TABLE)
    assert caught.value.condition == "DELTA_UNSUPPORTED_FEATURES_FOR_READ"
    assert caught.value.parameters["unsupported"] == name
    assert caught.value.parameters["tableNameOrPath"] == TABLE
    check_readable(listing(name), TABLE, also={name})


@pytest.mark.parametrize("name", ROWS)
def test_a_table_is_written_or_refused_by_the_features_name(name: str) -> None:
    if FEATURES[name].writable:
        check_writable(listing(name), TABLE)
        return
    with pytest.raises(UnsupportedProtocolError) as caught:
        check_writable(listing(name), TABLE)
    verb = "READ" if FEATURES[name].readers else "WRITE"
    assert caught.value.condition == f"DELTA_UNSUPPORTED_FEATURES_FOR_{verb}"
    assert caught.value.parameters["unsupported"] == name
    check_writable(listing(name), TABLE, also={name})


def test_features_nobody_knows_are_refused_by_name() -> None:
    unknown = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=("zeta", "deletionVectors", "alpha"),
        writer_features=("zeta", "deletionVectors", "alpha"),
    )
    with pytest.raises(UnsupportedProtocolError) as caught:
        check_readable(unknown, TABLE)
    assert caught.value.parameters["unsupported"] == "alpha, zeta"


def test_an_unknown_writer_feature_still_lets_readers_in() -> None:
    protocol = listing("appendOnly", "somethingNew")
    check_readable(protocol, TABLE)
    with pytest.raises(UnsupportedProtocolError) as caught:
        check_writable(protocol, TABLE)
    assert caught.value.condition == "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE"
    assert caught.value.parameters["unsupported"] == "somethingNew"


def test_a_writers_feature_among_the_readers_is_refused() -> None:
    protocol = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=("appendOnly",),
        writer_features=("appendOnly",),
    )
    with pytest.raises(UnsupportedProtocolError):
        check_readable(protocol, TABLE)


@pytest.mark.parametrize(
    ("reader", "writer", "names"),
    [
        (1, 1, ()),
        (1, 2, ("appendOnly", "invariants")),
        (1, 3, ("appendOnly", "invariants", "checkConstraints")),
        (1, 4, ("changeDataFeed", "generatedColumns")),
        (2, 5, ("columnMapping",)),
        (2, 6, ("columnMapping", "identityColumns")),
        (2, 2, ("appendOnly", "invariants")),
    ],
)
def test_legacy_versions_imply_features(reader: int, writer: int, names: tuple[str, ...]) -> None:
    assert set(names) <= implied_features(reader, writer)
    assert supported_features(legacy(reader, writer)) == implied_features(reader, writer)


def test_column_mapping_needs_both_its_versions_and_lists_imply_nothing() -> None:
    assert "columnMapping" not in implied_features(1, 6)
    assert implied_features(1, 4) == {
        *("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns")
    }
    assert implied_features(3, 7) == implied_features(2, 7) == frozenset()
    assert supported_features(listing("appendOnly", "new")) == {"appendOnly", "new"}


@pytest.mark.parametrize("writer", range(1, 7))
def test_every_legacy_version_is_read_and_written(writer: int) -> None:
    for reader in (1, 2):
        check_writable(legacy(reader, writer), TABLE)


def test_column_mapping_may_be_listed_for_writers_alone() -> None:
    protocol = Protocol(
        min_reader_version=2,
        min_writer_version=7,
        writer_features=("appendOnly", "invariants", "columnMapping"),
    )
    check_writable(protocol, TABLE)
    assert "columnMapping" in supported_features(protocol)


@pytest.mark.parametrize("reader", [-1, 0, 4, 99])
def test_a_reader_version_nobody_knows_is_refused(reader: int) -> None:
    with pytest.raises(UnsupportedProtocolError) as caught:
        check_readable(legacy(reader, 7), TABLE)
    assert caught.value.condition == "DELTA_INVALID_PROTOCOL_VERSION"
    assert caught.value.parameters["readerRequired"] == str(reader)
    assert caught.value.parameters["supportedReaders"] == "1, 2, 3"


@pytest.mark.parametrize("writer", [-1, 0, 8, 99])
def test_a_writer_version_nobody_knows_stops_writers_only(writer: int) -> None:
    check_readable(legacy(1, writer), TABLE)
    with pytest.raises(UnsupportedProtocolError) as caught:
        check_writable(legacy(1, writer), TABLE)
    assert caught.value.condition == "DELTA_INVALID_PROTOCOL_VERSION"


@pytest.mark.parametrize(
    ("protocol", "reason"),
    [
        (legacy(3, 7), "readerFeatures"),
        (legacy(3, 2), "writer version 7"),
        (legacy(1, 7), "writerFeatures"),
        (
            Protocol(min_reader_version=3, min_writer_version=7, reader_features=()),
            "writerFeatures",
        ),
        (
            Protocol(min_reader_version=1, min_writer_version=7, writer_features=()),
            None,
        ),
        (
            Protocol(
                min_reader_version=2,
                min_writer_version=7,
                reader_features=("columnMapping",),
                writer_features=("columnMapping",),
            ),
            "readerFeatures",
        ),
        (
            Protocol(min_reader_version=1, min_writer_version=2, writer_features=("appendOnly",)),
            "writerFeatures",
        ),
        (
            Protocol(
                min_reader_version=1,
                min_writer_version=2,
                reader_features=(),
                writer_features=(),
            ),
            None,
        ),
    ],
)
def test_feature_lists_stand_beside_the_versions_that_have_them(
    protocol: Protocol, reason: str | None
) -> None:
    if reason is None:
        check_writable(protocol, TABLE)
        return
    with pytest.raises(CorruptLogError) as caught:
        check_readable(protocol, TABLE)
    assert caught.value.condition == "DELTA_INVALID_PROTOCOL"
    assert reason in caught.value.parameters["reason"]


VARIANT_COLUMN = StructField("v", ArrayType(VARIANT))
NTZ_COLUMN = StructField("t", MapType(STRING, StructType((StructField("n", TIMESTAMP_NTZ),))))


@pytest.mark.parametrize(
    ("table", "name"),
    [
        (metadata(**{"delta.appendOnly": "true"}), "appendOnly"),
        (metadata(StructField("a", LONG, metadata={"delta.invariants": "{}"})), "invariants"),
        (metadata(**{"delta.constraints.c": "a > 0"}), "checkConstraints"),
        (metadata(**{"delta.enableChangeDataFeed": "true"}), "changeDataFeed"),
        (metadata(**{"delta.enableChangeDataCapture": "true"}), "changeDataFeed"),
        (
            metadata(StructField("a", LONG, metadata={"delta.generationExpression": "1"})),
            "generatedColumns",
        ),
        (metadata(**{"delta.columnMapping.mode": "name"}), "columnMapping"),
        (metadata(**{"delta.columnMapping.mode": "id"}), "columnMapping"),
        (metadata(with_identity(StructField("a", LONG))), "identityColumns"),
        (metadata(**{"delta.enableDeletionVectors": "true"}), "deletionVectors"),
        (metadata(NTZ_COLUMN), "timestampNtz"),
        (metadata(**{"delta.checkpointPolicy": "v2"}), "v2Checkpoint"),
        (metadata(**{"delta.enableRowTracking": "true"}), "rowTracking"),
        (metadata(**{"delta.enableIcebergCompatV1": "true"}), "icebergCompatV1"),
        (metadata(**{"delta.enableIcebergCompatV2": "true"}), "icebergCompatV2"),
        (metadata(**{"delta.enableIcebergCompatV3": "true"}), "icebergCompatV3"),
        (metadata(**{"delta.enableInCommitTimestamps": "true"}), "inCommitTimestamp"),
        (metadata(**{"delta.enableTypeWidening": "true"}), "typeWidening"),
        (metadata(VARIANT_COLUMN), "variantType"),
        (metadata(**{"delta.enableVariantShredding": "true"}), "variantShredding-preview"),
        (
            metadata(**{"delta.coordinatedCommits.commitCoordinator-preview": "x"}),
            "coordinatedCommits-preview",
        ),
        (
            metadata(**{"delta.enableMaterializePartitionColumnsFeature": "true"}),
            "materializePartitionColumns",
        ),
        (
            metadata(**{"delta.redirectReaderWriter-preview": "{}"}),
            "redirectReaderWriter-preview",
        ),
        (metadata(**{"delta.redirectWriterOnly-preview": "{}"}), "redirectWriterOnly-preview"),
    ],
)
def test_metadata_puts_a_feature_to_use(table: Metadata, name: str) -> None:
    assert active_features(table) == {name}


def test_every_feature_that_can_come_by_itself_is_tested_above() -> None:
    automatic = {f.name for f in FEATURES.values() if f.needed is not None}
    assert len(automatic) == 22


@pytest.mark.parametrize(
    "configuration",
    [
        {"delta.appendOnly": "false"},
        {"delta.columnMapping.mode": "none"},
        {"delta.checkpointPolicy": "classic"},
        {"delta.enableIcebergCompatV1": "false"},
        {"appendOnly": "true"},
    ],
)
def test_what_is_switched_off_is_not_active(configuration: dict[str, str]) -> None:
    assert active_features(metadata(StructField("a", LONG), **configuration)) == frozenset()


@pytest.mark.parametrize(
    ("table", "other"),
    [
        (metadata(**{"delta.enableTypeWidening": "true"}), "typeWidening-preview"),
        (metadata(VARIANT_COLUMN), "variantType-preview"),
        (metadata(**{"delta.enableVariantShredding": "true"}), "variantShredding"),
    ],
)
def test_one_name_of_a_feature_makes_the_other_unnecessary(table: Metadata, other: str) -> None:
    assert active_features(table, frozenset({other})) == frozenset()


def test_features_are_listed_in_one_order_with_unknown_ones_behind() -> None:
    names = ["zeta", "rowTracking", "alpha", "appendOnly", "rowTracking"]
    assert in_listing_order(names) == ("appendOnly", "rowTracking", "alpha", "zeta")


def test_a_protocol_is_shown_in_a_few_characters() -> None:
    assert protocol_text(legacy(1, 2)) == "1,2"
    assert protocol_text(listing("deletionVectors", "appendOnly")) == (
        "3,7,[deletionVectors],[appendOnly,deletionVectors]"
    )
    assert (
        protocol_text(Protocol(min_reader_version=1, min_writer_version=7, writer_features=("a",)))
        == "1,7,None,[a]"
    )
