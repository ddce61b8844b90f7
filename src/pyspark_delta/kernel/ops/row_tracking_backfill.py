"""Row tracking on a table that exists: giving its files row ids, and taking them away again.

Files are committed again as they are, some at a time, without touching a row.  The feature is
supported first: from then on every new file brings its ids, so that the work comes to an end.
What two commits make of each other is in `txn.rebase`.  PROTOCOL.md, "Row Tracking".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyspark_delta.errors.storage import StorageError
from pyspark_delta.errors.table import InvalidActionsError, OperationNotAllowedError
from pyspark_delta.kernel.log.frames import add_files
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.actions import AddFile, Metadata
from pyspark_delta.kernel.protocol.feature_upgrade import upgraded
from pyspark_delta.kernel.protocol.features import is_supported
from pyspark_delta.kernel.protocol.operations import row_tracking_backfill, upgrade_protocol
from pyspark_delta.kernel.protocol.properties import (
    ENABLE_ROW_TRACKING,
    ROW_TRACKING_SUSPENDED,
    parsed_value,
    property_value,
)
from pyspark_delta.kernel.protocol.row_tracking import FEATURE, check_properties
from pyspark_delta.kernel.protocol.stats import with_num_records
from pyspark_delta.kernel.scan.locations import Locations
from pyspark_delta.kernel.scan.plan import chosen_adds
from pyspark_delta.kernel.txn.delta_log import DeltaLog

FILES_PER_COMMIT = 22_000
"""How many files one commit of a backfill holds at most."""

ENABLEMENT_ONLY_TAG = "rowTrackingEnablementOnly"
"""Marks a commit that does nothing but let readers rely on row ids."""


def enables_row_tracking(changes: Mapping[str, str]) -> bool:
    """Whether properties to be set ask for row ids that readers may rely on."""
    text = changes.get(ENABLE_ROW_TRACKING.key)
    return text is not None and parsed_value(ENABLE_ROW_TRACKING, text)


def enablement_tags(changes: Mapping[str, str]) -> dict[str, str]:
    """The tags of a commit that sets these properties."""
    only = len(changes) == 1 and enables_row_tracking(changes)
    return {ENABLEMENT_ONLY_TAG: "true"} if only else {}


def prepare_row_tracking(
    log: DeltaLog,
    changes: Mapping[str, str],
    *,
    most_files: int = FILES_PER_COMMIT,
    locations: Locations | None = None,
) -> None:
    """Give every row an id, where properties that are about to be set promise that.

    `changes` are the properties; setting them is the next commit, and the caller's.  A file of
    which the log does not know how many rows it has is looked up in `locations`.
    """
    if not changes.keys() & {ENABLE_ROW_TRACKING.key, ROW_TRACKING_SUSPENDED.key}:
        return
    snapshot = log.update()
    metadata = snapshot.metadata
    wanted = {**metadata.configuration, **changes}
    check_properties(replace(metadata, configuration=wanted))
    if not enables_row_tracking(changes):
        return
    # Before the first commit: whoever cannot be counted leaves the table as it is.
    counts = _missing_counts(_without_ids(snapshot), locations or Locations(log.store))

    def counted(file: AddFile) -> AddFile:
        stats = file.stats
        if file.path in counts:
            stats = with_num_records(stats, counts[file.path])
        return replace(file, data_change=False, stats=stats)  # the commit gives it its ids

    _support(log)
    _in_batches(log, _without_ids, counted, undo=False, most_files=most_files)


def check_all_numbered(snapshot: Snapshot) -> None:
    """Refuse to promise row ids while a file has none: another writer forgot them."""
    if _without_ids(snapshot).num_rows:
        raise OperationNotAllowedError(
            "DELTA_OPERATION_NOT_ALLOWED_DETAIL",
            operation="Enabling row tracking while files have no row ids",
            tableName=snapshot.store.root_uri,
        )


def take_row_ids_away(log: DeltaLog, *, most_files: int = FILES_PER_COMMIT) -> int | None:
    """Commit every file without its row ids; the last version that did, None when none did.

    The table must have stopped giving out ids (`delta.rowTrackingSuspended`).
    """
    return _in_batches(log, with_ids, _without_its_ids, undo=True, most_files=most_files)


def with_ids(snapshot: Snapshot) -> pa.Table:
    """The live files that have a row id or a version of their rows."""
    names = ["baseRowId", "defaultRowCommitVersion"]
    return chosen_adds(
        snapshot, names, lambda files: pc.or_(*(pc.is_valid(files.column(n)) for n in names))
    )


def is_suspended(metadata: Metadata) -> bool:
    """Whether readers do not rely on row ids, and writers give out none."""
    configuration = metadata.configuration
    return property_value(configuration, ROW_TRACKING_SUSPENDED) and not property_value(
        configuration, ENABLE_ROW_TRACKING
    )


def _support(log: DeltaLog) -> None:
    txn = log.start_transaction()
    if is_supported(txn.protocol, FEATURE):
        return
    protocol = upgraded(txn.protocol, [FEATURE])
    txn.update_protocol(protocol)
    txn.commit([], upgrade_protocol(protocol))


def _in_batches(
    log: DeltaLog,
    chosen: Callable[[Snapshot], pa.Table],
    changed: Callable[[AddFile], AddFile],
    *,
    undo: bool,
    most_files: int,
) -> int | None:
    """Commit the chosen files anew until a look at the newest version finds none."""
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
        version = txn.commit(files, row_tracking_backfill(batch, undo=undo)).version
        batch += 1


def _without_ids(snapshot: Snapshot) -> pa.Table:
    return chosen_adds(snapshot, ["baseRowId"], lambda files: pc.is_null(files.column("baseRowId")))


def _missing_counts(files: pa.Table, locations: Locations) -> dict[str, int]:
    """The number of rows of each file whose statistics do not tell it."""
    told = pc.fill_null(pc.match_substring(files.column("stats"), '"numRecords"'), False)
    unclear = add_files(files.filter(pc.invert(told)))
    return {file.path: _num_rows(file, locations) for file in unclear if file.num_records is None}


def _num_rows(file: AddFile, locations: Locations) -> int:
    store, path = locations.open(file.path)
    try:
        with store.arrow_file(path) as opened:
            return int(pq.read_metadata(opened).num_rows)
    except (StorageError, pa.ArrowException, OSError) as error:
        raise InvalidActionsError("DELTA_ROW_ID_ASSIGNMENT_WITHOUT_STATS", path=path) from error


def _without_its_ids(file: AddFile) -> AddFile:
    return replace(file, data_change=False, base_row_id=None, default_row_commit_version=None)
