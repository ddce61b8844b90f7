from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_delta.errors import PropertyError
from pyspark_delta.kernel.protocol import properties as p
from pyspark_delta.kernel.protocol.properties import (
    PROPERTIES,
    canonical_key,
    check_retention_periods,
    property_value,
    validate_properties,
)

DAY = 86_400_000
FLAGS = ["true", "false", "TRUE", "False"], ["", "yes", "1", " true", "tru", "truefalse"]
OBJECTS = ["{}", '{"a":"b"}'], ["", "[]", "1", "{", "[" * 100_000]
DURATIONS = (
    ["interval 1 day", "2 weeks", "interval 0 days"],
    ["", "7", "1 month", "interval -1 day"],
)

# key: default, legal texts, illegal texts.  One row for each property there is.
ROWS: dict[str, tuple[Any, tuple[list[str], list[str]]]] = {
    "delta.appendOnly": (False, FLAGS),
    "delta.isolationLevel": (
        "Serializable",
        (["Serializable", "WriteSerializable", "serializable"], ["SnapshotIsolation", ""]),
    ),
    "delta.checkpointInterval": (10, (["1", "100", "+5"], ["0", "-1", "1.0", "ten", "1_0", ""])),
    "delta.checkpointPolicy": ("classic", (["classic", "v2"], ["V3", "uuid", ""])),
    "delta.checkpointRetentionDuration": (2 * DAY, DURATIONS),
    "delta.checkpoint.writeStatsAsJson": (True, FLAGS),
    "delta.checkpoint.writeStatsAsStruct": (True, FLAGS),
    "delta.requireCheckpointProtectionBeforeVersion": (0, (["0", "7"], ["-1", "x"])),
    "delta.logRetentionDuration": (30 * DAY, DURATIONS),
    "delta.deletedFileRetentionDuration": (7 * DAY, DURATIONS),
    "delta.sampleRetentionDuration": (7 * DAY, DURATIONS),
    "delta.setTransactionRetentionDuration": (None, DURATIONS),
    "delta.enableExpiredLogCleanup": (True, FLAGS),
    "delta.enableFullRetentionRollback": (True, FLAGS),
    "delta.dropFeatureTruncateHistory.retentionDuration": (DAY, DURATIONS),
    "delta.enableInCommitTimestamps": (False, FLAGS),
    "delta.inCommitTimestampEnablementVersion": (None, (["0", "12"], ["-1", "a"])),
    "delta.inCommitTimestampEnablementTimestamp": (None, (["1700000000000"], ["now", ""])),
    "delta.columnMapping.mode": ("none", (["none", "name", "id", "NAME"], ["names", ""])),
    "delta.columnMapping.maxColumnId": (0, (["3"], ["-1", "x"])),
    "delta.enableChangeDataCapture": (False, FLAGS),
    "delta.enableChangeDataFeed": (False, FLAGS),
    "delta.enableDeletionVectors": (False, FLAGS),
    "delta.enableRowTracking": (False, FLAGS),
    "delta.rowTrackingSuspended": (False, FLAGS),
    "delta.rowTracking.materializedRowIdColumnName": (None, (["_row-id-col-1"], [])),
    "delta.rowTracking.materializedRowCommitVersionColumnName": (None, (["_x"], [])),
    "delta.enableTypeWidening": (False, FLAGS),
    "delta.enableVariantShredding": (False, FLAGS),
    "delta.enableIcebergCompatV1": (None, FLAGS),
    "delta.enableIcebergCompatV2": (None, FLAGS),
    "delta.enableIcebergCompatV3": (None, FLAGS),
    "delta.enableMaterializePartitionColumnsFeature": (None, FLAGS),
    "delta.universalFormat.enabledFormats": (
        (),
        (["", "iceberg", "iceberg,hudi"], ["iceberg,iceberg", "parquet", ","]),
    ),
    "delta.universalFormat.iceberg.atomicConversion.supported": (False, FLAGS),
    "delta.castIcebergTimeType": (False, FLAGS),
    "delta.ignoreIcebergBucketPartition": (False, FLAGS),
    "delta.autoOptimize": (None, FLAGS),
    "delta.autoOptimize.autoCompact": (None, FLAGS),
    "delta.autoOptimize.optimizeWrite": (None, FLAGS),
    "delta.compatibility.symlinkFormatManifest.enabled": (False, FLAGS),
    "delta.dataSkippingNumIndexedCols": (32, (["-1", "0", "64"], ["-2", "all"])),
    "delta.dataSkippingStatsColumns": (
        None,
        (
            ["a", "a,b.c", "a , `b,c`.d", "`a``b`", "", " "],
            ["a,", ",a", "a b", "a..b", "a-b", "`a"],
        ),
    ),
    "delta.dataSkippingStringPrefixLength": (None, (["0", "64"], ["-1", "x"])),
    "delta.writePartitionColumnsToParquet": (None, FLAGS),
    "delta.parquet.format.version": ("1.0.0", (["1.0.0", "2.12.0"], ["3.0.0", "2", ""])),
    "delta.targetFileSize": (
        None,
        (["1048576", "128mb", "1 GiB", "64K"], ["", "0", "-1", "1.5mb", "large", "9" * 30]),
    ),
    "delta.randomizeFilePrefixes": (False, FLAGS),
    "delta.randomPrefixLength": (2, (["1", "5"], ["0", "-3"])),
    "delta.minReaderVersion": (None, (["1", "3"], ["0", "4", "x"])),
    "delta.minWriterVersion": (None, (["1", "7"], ["0", "8", "x"])),
    "delta.ignoreProtocolDefaults": (False, FLAGS),
    "delta.coordinatedCommits.commitCoordinator-preview": (None, (["dynamodb"], [])),
    "delta.coordinatedCommits.commitCoordinatorConf-preview": (None, OBJECTS),
    "delta.coordinatedCommits.tableConf-preview": (None, OBJECTS),
    "delta.redirectReaderWriter-preview": (None, OBJECTS),
    "delta.redirectWriterOnly-preview": (None, OBJECTS),
}
NOT_SETTABLE = {
    "delta.columnMapping.maxColumnId",
    "delta.requireCheckpointProtectionBeforeVersion",
    "delta.rowTracking.materializedRowIdColumnName",
    "delta.rowTracking.materializedRowCommitVersionColumnName",
}


def test_every_property_has_a_row_here() -> None:
    assert ROWS.keys() == PROPERTIES.keys()
    assert all(row.doc and row.kind.needs for row in PROPERTIES.values())


@pytest.mark.parametrize("key", ROWS)
def test_an_unset_property_has_its_default(key: str) -> None:
    assert property_value({}, PROPERTIES[key]) == ROWS[key][0]


@pytest.mark.parametrize(("key", "text"), [(k, t) for k in ROWS for t in ROWS[k][1][0]])
def test_a_legal_value_is_read_back_from_the_configuration(key: str, text: str) -> None:
    assert property_value({key: text}, PROPERTIES[key]) == PROPERTIES[key].kind.parse(text)


@pytest.mark.parametrize(("key", "text"), [(k, t) for k in ROWS for t in ROWS[k][1][1]])
def test_an_illegal_value_is_refused_by_key(key: str, text: str) -> None:
    with pytest.raises(PropertyError) as caught:
        property_value({key: text}, PROPERTIES[key])
    assert caught.value.condition == "DELTA_INVALID_TABLE_PROPERTY"
    assert caught.value.parameters["key"] == key


@pytest.mark.parametrize("key", sorted(ROWS.keys() - NOT_SETTABLE - {p.UNIVERSAL_FORMATS.key}))
def test_a_user_may_set_it_in_any_case_and_it_is_stored_in_one(key: str) -> None:
    for text in ROWS[key][1][0]:
        # The retentions of log and files must fit, which has a test of its own.
        existing = {p.LOG_RETENTION.key: "999 days", p.DELETED_FILE_RETENTION.key: "0 days"}
        assert validate_properties({key.upper(): text}, existing=existing) == {key: text}


@pytest.mark.parametrize("formats", ["iceberg", "hudi", "hudi,iceberg"])
def test_metadata_of_other_formats_cannot_be_promised(formats: str) -> None:
    key = p.UNIVERSAL_FORMATS.key
    with pytest.raises(PropertyError) as caught:
        validate_properties({key.upper(): formats})
    assert caught.value.condition == "DELTA_UNIVERSAL_FORMAT_NOT_SUPPORTED"
    assert caught.value.parameters == {"formats": formats}
    assert validate_properties({key: ""}) == {key: ""}


@pytest.mark.parametrize("key", sorted(NOT_SETTABLE))
def test_a_property_that_delta_keeps_cannot_be_set(key: str) -> None:
    with pytest.raises(PropertyError) as caught:
        validate_properties({key.lower(): "1"})
    assert caught.value.condition == "DELTA_CANNOT_MODIFY_TABLE_PROPERTY"
    assert caught.value.parameters == {"prop": key}


def test_an_older_key_counts_when_the_newer_is_absent() -> None:
    older = {"delta.enableChangeDataCapture": "true"}
    assert property_value(older, p.ENABLE_CHANGE_DATA_FEED) is True
    newer = {**older, "delta.enableChangeDataFeed": "false"}
    assert property_value(newer, p.ENABLE_CHANGE_DATA_FEED) is False


def test_an_unknown_delta_key_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(PropertyError) as caught:
        validate_properties({"delta.apendOnly": "true"})
    assert caught.value.condition == "DELTA_UNKNOWN_CONFIGURATION"
    assert caught.value.parameters["config"] == "delta.apendOnly"
    assert "Is it delta.appendOnly?" in str(caught.value)
    with pytest.raises(PropertyError) as caught:
        validate_properties({"delta.": "x"})
    assert "<" not in str(caught.value)


def test_an_unknown_delta_key_passes_when_arbitrary_ones_may() -> None:
    changes = {"delta.mine": "x"}
    assert validate_properties(changes, allow_arbitrary=True) == changes


def test_keys_without_the_prefix_are_the_users_own() -> None:
    changes = {"appendOnly": "maybe", "Owner": "me", "": "x"}
    assert validate_properties(changes) == changes


def test_feature_keys_are_stored_in_lower_case() -> None:
    assert validate_properties({"DELTA.Feature.RowTracking": "supported"}) == {
        "delta.feature.rowtracking": "supported"
    }
    assert canonical_key("delta.FEATURE.X") == "delta.feature.x"


def test_constraints_come_with_a_new_table_but_not_as_a_property_of_an_old_one() -> None:
    changes = {"delta.constraints.c": "a > 0"}
    assert validate_properties(changes) == changes
    with pytest.raises(PropertyError) as caught:
        validate_properties(changes, altering=True)
    assert caught.value.condition == "DELTA_ADD_CONSTRAINTS"


@pytest.mark.parametrize(
    ("key", "condition"),
    [("location", "DELTA_CANNOT_CHANGE_LOCATION"), ("Provider", "DELTA_CANNOT_CHANGE_PROVIDER")],
)
def test_location_and_provider_are_not_properties_of_an_existing_table(
    key: str, condition: str
) -> None:
    with pytest.raises(PropertyError) as caught:
        validate_properties({key: "x"}, altering=True)
    assert caught.value.condition == condition


@pytest.mark.parametrize(
    ("changes", "existing", "fits"),
    [
        ({"delta.logRetentionDuration": "7 days"}, {}, True),
        ({"delta.logRetentionDuration": "6 days"}, {}, False),
        ({"delta.deletedFileRetentionDuration": "31 days"}, {}, False),
        (
            {"delta.deletedFileRetentionDuration": "31 days"},
            {"delta.logRetentionDuration": "60 days"},
            True,
        ),
        (
            {"delta.logRetentionDuration": "1 day", "delta.deletedFileRetentionDuration": "1 day"},
            {},
            True,
        ),
    ],
)
def test_removed_files_are_not_kept_longer_than_the_log(
    changes: dict[str, str], existing: dict[str, str | None], fits: bool
) -> None:
    if fits:
        assert validate_properties(changes, existing=existing) == changes
        return
    with pytest.raises(PropertyError) as caught:
        validate_properties(changes, existing=existing)
    assert caught.value.condition == "DELTA_INVALID_TABLE_PROPERTY"
    assert "delta.deletedFileRetentionDuration" in caught.value.parameters["reason"]


def test_a_table_that_breaks_the_retention_rule_already_takes_other_changes() -> None:
    existing = {"delta.logRetentionDuration": "1 day"}
    validate_properties({"delta.appendOnly": "true"}, existing=existing)
    with pytest.raises(PropertyError):
        check_retention_periods(existing)


def test_columns_are_paths_with_unusual_names_in_backticks() -> None:
    configuration = {"delta.dataSkippingStatsColumns": "a, b.c , `d.e`.`f``g`,ä"}
    assert property_value(configuration, p.STATS_COLUMNS) == (
        ("a",),
        ("b", "c"),
        ("d.e", "f`g"),
        ("ä",),
    )


def test_canonical_keys_leave_what_is_not_deltas_alone() -> None:
    assert canonical_key("DELTA.APPENDONLY") == "delta.appendOnly"
    assert canonical_key("My.Key") == "My.Key"
    assert canonical_key("delta.unknown") == "delta.unknown"


@given(st.sampled_from(sorted(ROWS)), st.text(max_size=30))
def test_any_text_is_a_value_or_a_typed_error(key: str, text: str) -> None:
    with suppress(PropertyError):
        property_value({key: text}, PROPERTIES[key])
