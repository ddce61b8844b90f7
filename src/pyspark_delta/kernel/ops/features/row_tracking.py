"""Enable row tracking on an existing table, or remove it: backfill and removal of row ids.

Files are committed again unchanged, in batches; no data file is rewritten.  The protocol supports
the feature first: from then on every new file has ids, so that the backfill ends.  `txn.rebase`
handles concurrent commits.  PROTOCOL.md, "Row Tracking".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyspark_delta.errors import InvalidActionsError, OperationNotAllowedError, StorageError
from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.actions import AddFile, Metadata
from pyspark_delta.kernel.protocol.feature_upgrade import upgraded
from pyspark_delta.kernel.protocol.features import is_supported
from pyspark_delta.kernel.protocol.operations import operation
from pyspark_delta.kernel.protocol.properties import (
    ENABLE_ROW_TRACKING,
    ROW_TRACKING_SUSPENDED,
    parsed_value,
    property_value,
)
from pyspark_delta.kernel.protocol.row_tracking import ROW_TRACKING_FEATURE, check_properties
from pyspark_delta.kernel.protocol.stats import with_num_records
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.scan.plan import chosen_adds
from pyspark_delta.kernel.txn.delta_log import DeltaLog

FILES_PER_COMMIT = 22_000
"""The most files in one commit of a backfill."""

# The tag of a commit that only lets readers rely on row ids.
_ENABLEMENT_ONLY_TAG = "rowTrackingEnablementOnly"


def enables_row_tracking(changes: Mapping[str, str]) -> bool:
    """Whether properties to be set enable row ids that readers may rely on."""
    text = changes.get(ENABLE_ROW_TRACKING.key)
    return text is not None and parsed_value(ENABLE_ROW_TRACKING, text)


def enablement_tags(changes: Mapping[str, str]) -> dict[str, str]:
    """The tags of a commit that sets these properties."""
    only = len(changes) == 1 and enables_row_tracking(changes)
    return {_ENABLEMENT_ONLY_TAG: "true"} if only else {}


def prepare_row_tracking(
    log: DeltaLog,
    changes: Mapping[str, str],
    *,
    most_files: int = FILES_PER_COMMIT,
    locations: Locations | None = None,
) -> None:
    """Give every row an id, if the properties about to be set promise that.

    `changes` are the properties, which the caller sets in the next commit.  `locations` serves to
    read the number of rows of files without that statistic.
    """
    if not changes.keys() & {ENABLE_ROW_TRACKING.key, ROW_TRACKING_SUSPENDED.key}:
        return
    snapshot = log.update()
    metadata = snapshot.metadata
    wanted = {**metadata.configuration, **changes}
    check_properties(replace(metadata, configuration=wanted))
    if not enables_row_tracking(changes):
        return
    # Before the first commit: a file whose rows cannot be counted leaves the table unchanged.
    counts = _missing_counts(_without_ids(snapshot), locations or Locations(log.store))

    def counted(file: AddFile) -> AddFile:
        count = counts.get(file.path)
        stats = file.stats if count is None else with_num_records(file.stats, count)
        return replace(file, data_change=False, stats=stats)  # the commit gives it its ids

    txn = log.start_transaction()
    if not is_supported(txn.protocol, ROW_TRACKING_FEATURE):
        protocol = upgraded(txn.protocol, [ROW_TRACKING_FEATURE])
        txn.update_protocol(protocol)
        txn.commit([], operation("UPGRADE PROTOCOL", newProtocol=protocol.to_json_value()))
    _in_batches(log, _without_ids, counted, undo=False, most_files=most_files)


def check_all_numbered(snapshot: Snapshot) -> None:
    """Raise if a file has no row ids, because another writer left them out."""
    if _without_ids(snapshot).num_rows:
        raise OperationNotAllowedError(
            "DELTA_OPERATION_NOT_ALLOWED_DETAIL",
            operation="Enabling row tracking while files have no row ids",
            tableName=snapshot.store.root_uri,
        )


def take_row_ids_away(log: DeltaLog, *, most_files: int = FILES_PER_COMMIT) -> int | None:
    """Commit every file without its row ids; returns the last version, None without a commit.

    The table must not assign ids any more (`delta.rowTrackingSuspended`).
    """

    def without_ids(file: AddFile) -> AddFile:
        return replace(file, data_change=False, base_row_id=None, default_row_commit_version=None)

    return _in_batches(log, with_ids, without_ids, undo=True, most_files=most_files)


def with_ids(snapshot: Snapshot) -> pa.Table:
    """The live files with a base row id or a default row commit version."""
    names = ["baseRowId", "defaultRowCommitVersion"]
    return chosen_adds(
        snapshot, names, lambda files: pc.or_(*(pc.is_valid(files.column(n)) for n in names))
    )


def is_suspended(metadata: Metadata) -> bool:
    """Whether readers may not rely on row ids, and writers assign none."""
    configuration = metadata.configuration
    return property_value(configuration, ROW_TRACKING_SUSPENDED) and not property_value(
        configuration, ENABLE_ROW_TRACKING
    )


def _in_batches(
    log: DeltaLog,
    chosen: Callable[[Snapshot], pa.Table],
    changed: Callable[[AddFile], AddFile],
    *,
    undo: bool,
    most_files: int,
) -> int | None:
    """Commit the chosen files again, until the newest version has none."""
    name = "ROW TRACKING UNBACKFILL" if undo else "ROW TRACKING BACKFILL"
    batch, version = 0, None
    while True:
        txn = log.start_transaction()
        snapshot = txn.snapshot
        assert snapshot is not None  # the caller has read the table
        if undo and not is_suspended(snapshot.metadata):
            raise OperationNotAllowedError(
                "DELTA_OPERATION_NOT_ALLOWED_DETAIL",
                operation="Taking row ids away while row tracking is not suspended",
                tableName=log.store.root_uri,
            )
        files = [changed(file) for file in add_files(chosen(snapshot).slice(0, most_files))]
        if not files:
            return version
        txn.read_files(file.path for file in files)
        version = txn.commit(files, operation(name, batchId=str(batch))).version
        batch += 1


def _without_ids(snapshot: Snapshot) -> pa.Table:
    return chosen_adds(snapshot, ["baseRowId"], lambda files: pc.is_null(files.column("baseRowId")))


def _missing_counts(files: pa.Table, locations: Locations) -> dict[str, int]:
    is_known = pc.fill_null(pc.match_substring(files.column("stats"), '"numRecords"'), False)
    unclear = add_files(files.filter(pc.invert(is_known)))
    return {file.path: _num_rows(file, locations) for file in unclear if file.num_records is None}


def _num_rows(file: AddFile, locations: Locations) -> int:
    store, path = locations.open(file.path)
    try:
        with store.arrow_file(path) as opened:
            return int(pq.read_metadata(opened).num_rows)
    except (StorageError, pa.ArrowException, OSError) as error:
        raise InvalidActionsError("DELTA_ROW_ID_ASSIGNMENT_WITHOUT_STATS", path=path) from error
