from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delta.errors import DeltaError, PropertyError, ProtocolError
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.feature_upgrade import (
    RequestedProtocol,
    check_upgrade,
    dropped_features,
    keeping_vectors,
    merged,
    protocol_for,
    take_protocol_properties,
    upgraded,
    with_required,
    without_feature,
)
from pyspark_delta.kernel.protocol.features import FEATURES, check_shape, supported_features
from pyspark_delta.kernel.protocol.identity_columns import with_identity
from pyspark_delta.kernel.protocol.schema_json import format_schema
from pyspark_delta.kernel.protocol.types import (
    LONG,
    TIMESTAMP_NTZ,
    VARIANT,
    StructField,
    StructType,
)


def legacy(reader: int, writer: int) -> Protocol:
    return Protocol(min_reader_version=reader, min_writer_version=writer)


def writers(reader: int, *names: str) -> Protocol:
    return Protocol(min_reader_version=reader, min_writer_version=7, writer_features=names)


def listing(readers: tuple[str, ...], *names: str) -> Protocol:
    return Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=readers,
        writer_features=names,
    )


def metadata(*fields: StructField, **configuration: str) -> Metadata:
    return Metadata(
        id="t", schema_string=format_schema(StructType(fields)), configuration=configuration
    )


PLAIN = metadata(StructField("a", LONG))
GENERATED = StructField("g", LONG, metadata={"delta.generationExpression": "a"})
BASICS = ("appendOnly", "invariants")


# As delta-spark 4.4 was seen to do it.
@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (PLAIN, legacy(1, 2)),
        (metadata(**{"delta.enableChangeDataFeed": "true"}), writers(1, *BASICS, "changeDataFeed")),
        (metadata(GENERATED), writers(1, *BASICS, "generatedColumns")),
        (
            metadata(with_identity(StructField("a", LONG))),
            writers(1, *BASICS, "identityColumns"),
        ),
        (metadata(**{"delta.constraints.c": "a > 0"}), legacy(1, 3)),
        (
            metadata(**{"delta.columnMapping.mode": "name"}),
            writers(2, *BASICS, "columnMapping"),
        ),
        (
            metadata(**{"delta.columnMapping.mode": "id", "delta.enableDeletionVectors": "true"}),
            listing(
                ("columnMapping", "deletionVectors"), *BASICS, "columnMapping", "deletionVectors"
            ),
        ),
        (
            metadata(**{"delta.enableRowTracking": "true"}),
            writers(1, *BASICS, "domainMetadata", "rowTracking"),
        ),
        (
            metadata(StructField("v", VARIANT)),
            listing(("variantType",), *BASICS, "variantType"),
        ),
        (
            metadata(StructField("t", TIMESTAMP_NTZ)),
            listing(("timestampNtz",), *BASICS, "timestampNtz"),
        ),
        (metadata(**{"delta.appendOnly": "true"}), legacy(1, 2)),
    ],
)
def test_a_new_table_gets_the_protocol_its_metadata_needs(
    table: Metadata, expected: Protocol
) -> None:
    assert protocol_for(table) == expected


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ((None, 7), legacy(1, 1)),
        ((3, 7), legacy(1, 1)),
        ((2, 2), legacy(1, 2)),
        ((2, 3), legacy(1, 3)),
        ((1, 5), legacy(1, 4)),
        ((2, 5), legacy(2, 5)),
        ((2, 6), legacy(2, 6)),
        ((2, None), legacy(1, 2)),
        ((1, 1), legacy(1, 1)),
    ],
)
def test_versions_asked_for_stand_for_the_features_they_imply(
    versions: tuple[int | None, int | None], expected: Protocol
) -> None:
    assert protocol_for(PLAIN, None, (), versions) == expected


def test_reader_features_cannot_be_asked_for_without_writer_features() -> None:
    for base in (None, legacy(1, 2)):
        with pytest.raises(ProtocolError) as caught:
            protocol_for(PLAIN, base, (), (3, None))
        assert caught.value.condition == "DELTA_READ_FEATURE_PROTOCOL_REQUIRES_WRITE"
    wanted = protocol_for(PLAIN, None, ["deletionVectors"], (3, None))
    assert wanted == listing(("deletionVectors",), *BASICS, "deletionVectors")


def test_a_new_table_may_do_without_the_defaults() -> None:
    assert protocol_for(PLAIN, default_versions=(1, 1)) == legacy(1, 1)


def test_features_asked_for_by_name_bring_what_they_require() -> None:
    assert protocol_for(PLAIN, None, ["rowTracking"]) == writers(
        1, *BASICS, "domainMetadata", "rowTracking"
    )
    assert with_required(["adaptiveMetadata-preview"]) == {
        "adaptiveMetadata-preview",
        *("catalogManaged", "rowTracking", "domainMetadata", "deletionVectors", "columnMapping"),
        *("inCommitTimestamp", "vacuumProtocolCheck"),
    }


def test_an_existing_protocol_that_is_enough_comes_back_as_it_is() -> None:
    odd = listing((), *BASICS)
    assert protocol_for(PLAIN, odd) is odd
    assert upgraded(odd, ["appendOnly"]) is odd


@pytest.mark.parametrize(
    ("base", "table", "expected"),
    [
        (
            legacy(1, 2),
            metadata(**{"delta.enableChangeDataFeed": "true"}),
            writers(1, *BASICS, "changeDataFeed"),
        ),
        (legacy(1, 2), metadata(**{"delta.constraints.c": "a"}), legacy(1, 3)),
        (
            legacy(2, 5),
            metadata(**{"delta.enableDeletionVectors": "true"}),
            listing(
                ("columnMapping", "deletionVectors"),
                *BASICS,
                *("checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping"),
                "deletionVectors",
            ),
        ),
        (legacy(2, 5), metadata(with_identity(StructField("a", LONG))), legacy(2, 6)),
        (
            legacy(1, 2),
            metadata(StructField("v", VARIANT)),
            listing(("variantType",), *BASICS, "variantType"),
        ),
    ],
)
def test_an_existing_table_is_upgraded_silently(
    base: Protocol, table: Metadata, expected: Protocol
) -> None:
    assert protocol_for(table, base) == expected
    check_upgrade(base, expected)


def test_a_timestamp_without_zone_must_be_enabled_by_name_on_an_existing_table() -> None:
    table = metadata(StructField("t", TIMESTAMP_NTZ), **{"delta.enableDeletionVectors": "true"})
    with pytest.raises(ProtocolError) as caught:
        protocol_for(table, legacy(1, 2))
    assert caught.value.condition == "DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT"
    assert caught.value.parameters == {
        "unsupportedFeatures": "timestampNtz",
        "supportedFeatures": "appendOnly, invariants, deletionVectors",
    }
    upgraded_table = protocol_for(table, legacy(1, 2), ["timestampNtz"])
    assert upgraded_table.reader_features == ("deletionVectors", "timestampNtz")


@pytest.mark.parametrize(
    ("base", "versions", "expected"),
    [
        (legacy(2, 5), (2, 7), legacy(2, 5)),
        (legacy(2, 5), (1, 2), legacy(2, 5)),
        (legacy(1, 2), (2, 5), legacy(2, 5)),
        (writers(1, "checkConstraints"), (1, 2), legacy(1, 3)),
        (legacy(1, 2), (None, 3), legacy(1, 3)),
        (
            writers(1, *BASICS, "rowTracking", "domainMetadata"),
            (1, 3),
            writers(1, *BASICS, "checkConstraints", "domainMetadata", "rowTracking"),
        ),
    ],
)
def test_asking_an_existing_table_for_versions_adds_their_features(
    base: Protocol, versions: tuple[int | None, int], expected: Protocol
) -> None:
    assert protocol_for(PLAIN, base, (), versions) == expected


def test_unknown_features_cannot_be_asked_for_but_are_never_lost() -> None:
    for ask in (
        lambda: protocol_for(PLAIN, None, ["new"]),
        lambda: upgraded(legacy(1, 2), ["new"]),
    ):
        with pytest.raises(ProtocolError) as caught:
            ask()
        assert caught.value.condition == "DELTA_UNSUPPORTED_FEATURES_IN_CONFIG"
    base = listing(("new",), "appendOnly", "new", "other")
    assert upgraded(base, ["clustering"]) == listing(
        ("new",), "appendOnly", "domainMetadata", "clustering", "new", "other"
    )


@pytest.mark.parametrize(
    ("protocol", "normal"),
    [
        (writers(1, *BASICS, "checkConstraints"), legacy(1, 3)),
        (listing((), "rowTracking", "domainMetadata"), writers(1, "domainMetadata", "rowTracking")),
        (listing((), *BASICS), legacy(1, 2)),
        (
            listing(
                (),
            ),
            legacy(1, 1),
        ),
        (listing(("columnMapping",), "columnMapping"), writers(2, "columnMapping")),
        (legacy(2, 3), legacy(1, 3)),
        (legacy(1, 5), legacy(1, 4)),
        (legacy(1, 2), legacy(1, 2)),
        (listing(("deletionVectors",), "deletionVectors"),) * 2,
        (writers(1, "new"), writers(1, "new")),
        (listing(("new",), "new"),) * 2,
    ],
)
def test_a_protocol_has_one_weakest_form(protocol: Protocol, normal: Protocol) -> None:
    assert merged(protocol) == normal


KNOWN = st.sets(st.sampled_from(sorted(FEATURES)), max_size=8)
PROTOCOLS = st.one_of(
    st.builds(legacy, st.integers(1, 2), st.integers(1, 6)),
    st.builds(lambda names: upgraded(legacy(1, 1), names), KNOWN),
)


@given(PROTOCOLS)
def test_writing_a_protocol_differently_changes_no_feature(protocol: Protocol) -> None:
    normal = merged(protocol)
    check_shape(normal)
    assert supported_features(normal) == supported_features(protocol)
    assert merged(normal) == normal


@given(PROTOCOLS, PROTOCOLS)
def test_merging_supports_what_either_does_and_is_an_upgrade_of_both(
    left: Protocol, right: Protocol
) -> None:
    both = merged(left, right)
    assert supported_features(both) == supported_features(left) | supported_features(right)
    assert merged(right, left) == both
    check_upgrade(left, both)
    check_upgrade(right, both)


@given(PROTOCOLS, KNOWN)
def test_an_upgrade_adds_what_was_asked_and_takes_nothing(
    protocol: Protocol, names: set[str]
) -> None:
    after = upgraded(protocol, names)
    assert supported_features(after) == supported_features(protocol) | with_required(names)
    assert not dropped_features(protocol, after)


def test_a_downgrade_is_refused_with_both_protocols() -> None:
    old, new = legacy(1, 3), writers(1, *BASICS)
    assert dropped_features(old, new) == {"checkConstraints"}
    with pytest.raises(ProtocolError) as caught:
        check_upgrade(old, new)
    assert caught.value.condition == "DELTA_INVALID_PROTOCOL_DOWNGRADE"
    assert caught.value.parameters == {
        "oldProtocol": "1,3",
        "newProtocol": "1,7,None,[appendOnly,invariants]",
    }
    check_upgrade(old, writers(1, *BASICS, "checkConstraints"))


@pytest.mark.parametrize(
    ("protocol", "name", "expected"),
    [
        (legacy(1, 3), "checkConstraints", legacy(1, 2)),
        (legacy(2, 5), "COLUMNMAPPING", legacy(1, 4)),
        (
            listing(("deletionVectors",), *BASICS, "deletionVectors"),
            "deletionVectors",
            legacy(1, 2),
        ),
        (
            writers(1, *BASICS, "domainMetadata", "rowTracking"),
            "rowTracking",
            writers(1, *BASICS, "domainMetadata"),
        ),
    ],
)
def test_a_removable_feature_can_be_dropped(
    protocol: Protocol, name: str, expected: Protocol
) -> None:
    assert without_feature(protocol, name) == expected


@pytest.mark.parametrize(
    ("name", "condition"),
    [
        ("new", "DELTA_FEATURE_DROP_UNSUPPORTED_CLIENT_FEATURE"),
        ("deletionVectors", "DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT"),
        ("appendOnly", "DELTA_FEATURE_DROP_NONREMOVABLE_FEATURE"),
        ("domainMetadata", "DELTA_FEATURE_DROP_DEPENDENT_FEATURE"),
    ],
)
def test_a_feature_that_cannot_go_is_refused(name: str, condition: str) -> None:
    protocol = writers(1, "appendOnly", "domainMetadata", "rowTracking", "clustering")
    with pytest.raises(ProtocolError) as caught:
        without_feature(protocol, name)
    assert caught.value.condition == condition
    assert caught.value.parameters["feature"] == name
    if name == "domainMetadata":
        assert caught.value.parameters["dependentFeatures"] == "rowTracking, clustering"


def test_protocol_properties_are_taken_out_of_the_configuration() -> None:
    rest, asked = take_protocol_properties(
        {
            "delta.minReaderVersion": "3",
            "DELTA.MINWRITERVERSION": "7",
            "delta.feature.rowtracking": "supported",
            "delta.feature.deletionVectors": "Enabled",
            "delta.ignoreProtocolDefaults": "true",
            "delta.appendOnly": "true",
            "mine": "x",
        }
    )
    assert rest == {"delta.appendOnly": "true", "mine": "x"}
    assert asked == RequestedProtocol(
        min_reader_version=3,
        min_writer_version=7,
        features=("deletionVectors", "rowTracking"),
        ignore_defaults=True,
    )
    assert asked.min_versions == (3, 7)
    assert asked.default_versions == (1, 1)


def test_a_configuration_that_asks_for_nothing_is_left_whole() -> None:
    configuration = {"delta.appendOnly": "true", "a": None}
    rest, asked = take_protocol_properties(configuration)
    assert rest == configuration
    assert asked == RequestedProtocol()
    assert asked.min_versions is None
    assert asked.default_versions == (1, 2)


@pytest.mark.parametrize(
    ("configuration", "error", "condition"),
    [
        ({"delta.minReaderVersion": "two"}, ProtocolError, "DELTA_PROTOCOL_PROPERTY_NOT_INT"),
        ({"delta.minWriterVersion": ""}, ProtocolError, "DELTA_PROTOCOL_PROPERTY_NOT_INT"),
        ({"delta.minWriterVersion": None}, ProtocolError, "DELTA_PROTOCOL_PROPERTY_NOT_INT"),
        ({"delta.minReaderVersion": "4"}, PropertyError, "DELTA_INVALID_TABLE_PROPERTY"),
        ({"delta.minWriterVersion": "0"}, PropertyError, "DELTA_INVALID_TABLE_PROPERTY"),
        ({"delta.minWriterVersion": "٣"}, PropertyError, "DELTA_INVALID_TABLE_PROPERTY"),
        ({"delta.feature.rowTracking": "on"}, ProtocolError, "DELTA_UNSUPPORTED_FEATURE_STATUS"),
        ({"delta.feature.new": "supported"}, ProtocolError, "DELTA_UNSUPPORTED_FEATURES_IN_CONFIG"),
        (
            {"delta.feature.clustering": "supported"},
            ProtocolError,
            "DELTA_CREATE_TABLE_SET_CLUSTERING_TABLE_FEATURE_NOT_ALLOWED",
        ),
        ({"delta.ignoreProtocolDefaults": "x"}, PropertyError, "DELTA_INVALID_TABLE_PROPERTY"),
    ],
)
def test_an_impossible_request_is_refused(
    configuration: dict[str, Any], error: type[DeltaError], condition: str
) -> None:
    with pytest.raises(error) as caught:
        take_protocol_properties(configuration)
    assert caught.value.condition == condition


def test_clustering_is_refused_by_name_on_an_existing_table_too() -> None:
    with pytest.raises(ProtocolError) as caught:
        take_protocol_properties({"delta.feature.Clustering": "supported"}, altering=True)
    assert caught.value.condition == "DELTA_ALTER_TABLE_SET_CLUSTERING_TABLE_FEATURE_NOT_ALLOWED"


def test_vectors_are_kept_for_who_reads_entries_of_a_protocol_that_had_them() -> None:
    plain, widening = legacy(1, 2), listing(("typeWidening",), "typeWidening")
    vectors = listing(("deletionVectors",), "deletionVectors")
    assert keeping_vectors(plain) == plain
    assert keeping_vectors(plain, widening, plain) == plain
    assert keeping_vectors(vectors, plain) == vectors
    # Nothing but vectors is taken over, and nothing that the protocol has is lost.
    found = supported_features(keeping_vectors(widening, plain, vectors))
    assert found == supported_features(widening) | {"deletionVectors"}
