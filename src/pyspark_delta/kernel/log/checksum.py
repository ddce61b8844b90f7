"""Version checksums: the totals of a version, in a `.crc` file beside its commit.

A checksum spares a reader the replay for protocol and metadata, and reveals a log that lost a
file.  It is optional: one that cannot be parsed counts as absent, and an existing one is never
replaced.  PROTOCOL.md, "Version Checksum File".

>>> parse_checksum(b"{}") is None
True
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors import FileAlreadyExistsError, StorageError
from pyspark_delta.kernel.log.checksum_histogram import (
    EMPTY_DELETED_RECORDS,
    EMPTY_FILE_SIZES,
    DeletedRecordCountsHistogram,
    FileSizeHistogram,
    deleted_records_histogram,
    file_size_histogram,
)
from pyspark_delta.kernel.log.frames.file_actions import ADD_SCHEMA, action_key, add_files
from pyspark_delta.kernel.log.replay import TableState
from pyspark_delta.kernel.protocol.actions import (
    Action,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from pyspark_delta.kernel.protocol.codec import Json, Record, count, dumps, form
from pyspark_delta.kernel.protocol.features import is_same_protocol
from pyspark_delta.kernel.protocol.paths import checksum_path
from pyspark_delta.kernel.protocol.properties import TRANSACTION_RETENTION, property_value
from pyspark_delta.kernel.storage.base import LogStore

# Beyond these delta-spark leaves the list out of the checksum.
MOST_TRANSACTIONS = 100
MOST_DOMAINS = 10
MOST_FILES = 50

# Operations that add live files again: the totals cannot be computed from their actions.
_READDING_OPERATIONS = frozenset(
    {
        "COMPUTE STATS",
        "DROP FEATURE",
        "ROW TRACKING BACKFILL",
        "ROW TRACKING UNBACKFILL",
        "REORG TABLE UPGRADE UNIFORM",
        "Manual Update",
    }
)
_LARGEST_BYTES = 1 << 28
_Item = TypeVar("_Item", bound=Record)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionChecksum(Record):
    """The totals of one version.  None means that the writer left the field out, never zero."""

    txn_id: str | None = None
    table_size_bytes: int = field(metadata=form(read=count))
    num_files: int = field(metadata=form(read=count))
    num_deleted_records: int | None = field(
        default=None, metadata=form("numDeletedRecordsOpt", count)
    )
    num_deletion_vectors: int | None = field(
        default=None, metadata=form("numDeletionVectorsOpt", count)
    )
    num_metadata: int = field(default=1, metadata=form(read=count))
    num_protocol: int = field(default=1, metadata=form(read=count))
    in_commit_timestamp: int | None = field(default=None, metadata=form("inCommitTimestampOpt"))
    set_transactions: tuple[SetTransaction, ...] | None = None
    domain_metadata: tuple[DomainMetadata, ...] | None = None
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    file_size_histogram: FileSizeHistogram | None = None
    deleted_records_histogram: DeletedRecordCountsHistogram | None = field(
        default=None, metadata=form("deletedRecordCountsHistogramOpt")
    )
    all_files: tuple[AddFile, ...] | None = None
    extra: Json = field(default_factory=dict, repr=False, hash=False)

    @property
    def state(self) -> TableState:
        """The state apart from files, as far as the checksum holds it."""
        return TableState(
            protocol=self.protocol,
            metadata=self.metadata,
            transactions={txn.app_id: txn for txn in self.set_transactions or ()},
            domains={domain.domain: domain for domain in self.domain_metadata or ()},
        )

    @property
    def whole_state(self) -> TableState | None:
        """The state apart from files; None unless the checksum holds all of it."""
        parts = (self.protocol, self.metadata, self.set_transactions, self.domain_metadata)
        return None if any(part is None for part in parts) else self.state


def read_checksum(store: LogStore, version: int) -> VersionChecksum | None:
    """The checksum of `version`, or None when there is none that can be read."""
    try:
        data = store.read(checksum_path(version))
    except StorageError:
        return None
    return parse_checksum(data)


def write_checksum(store: LogStore, version: int, checksum: VersionChecksum) -> bool:
    """Write the checksum unless there is one, and return whether it was written."""
    try:
        store.create(checksum_path(version), format_checksum(checksum).encode())
    except FileAlreadyExistsError:
        return False
    return True


def parse_checksum(data: bytes) -> VersionChecksum | None:
    """The checksum in `data`; None if it cannot be parsed as one."""
    if len(data) > _LARGEST_BYTES:
        return None
    try:
        value = json.loads(data)
        if isinstance(value, dict) and "fileSizeHistogram" not in value:
            # The name it had in delta-spark before the protocol gave it one.
            value["fileSizeHistogram"] = value.pop("histogramOpt", None)
        return VersionChecksum.from_json_value(value)
    except (ValueError, RecursionError):
        return None


def format_checksum(checksum: VersionChecksum) -> str:
    """The text of a checksum file: one line, its keys in delta-spark's order."""
    return dumps(checksum.to_json_value()) + "\n"


def checksum_of(
    files: pa.Table,
    *,
    protocol: Protocol,
    metadata: Metadata,
    transactions: Iterable[SetTransaction],
    domains: Iterable[DomainMetadata],
    in_commit_timestamp: int | None = None,
    txn_id: str | None = None,
) -> VersionChecksum:
    """The checksum of a whole version.

    `files` needs the columns `size` and `deletionVector`; with every column of an add action, a
    short list of files becomes part of the checksum.
    """
    sizes = files.column("size")
    vectors = files.column("deletionVector") if _has_vectors(protocol) else None
    cardinalities = (
        None if vectors is None else pc.fill_null(pc.struct_field(vectors, "cardinality"), 0)
    )
    complete = set(ADD_SCHEMA.names) <= set(files.schema.names)
    return VersionChecksum(
        txn_id=txn_id,
        table_size_bytes=pc.sum(sizes).as_py() or 0,
        num_files=files.num_rows,
        num_deleted_records=None if cardinalities is None else pc.sum(cardinalities).as_py() or 0,
        num_deletion_vectors=None if vectors is None else len(vectors) - vectors.null_count,
        in_commit_timestamp=in_commit_timestamp,
        set_transactions=_kept_transactions(transactions, metadata),
        domain_metadata=_kept((d for d in domains if not d.removed), MOST_DOMAINS),
        metadata=metadata,
        protocol=protocol,
        file_size_histogram=file_size_histogram(sizes),
        deleted_records_histogram=(
            None if cardinalities is None else deleted_records_histogram(cardinalities)
        ),
        all_files=(
            tuple(replace(add, data_change=False) for add in add_files(files))
            if complete and files.num_rows <= MOST_FILES
            else None
        ),
    )


def advance_checksum(
    previous: VersionChecksum | None,
    *,
    adds: Iterable[AddFile],
    removes: Iterable[RemoveFile],
    others: Iterable[Action],
    root_uri: str,
    operation: str | None = None,
    txn_id: str | None = None,
) -> VersionChecksum | None:
    """The checksum after one more commit; None when it cannot be computed from the actions.

    `previous` is the checksum of the version before, None before version 0.  `others` are the
    commit's actions that are not about files, commitInfo among them.
    """
    added, removed, other = tuple(adds), tuple(removes), tuple(others)
    base = _EMPTY if previous is None else previous
    if base.num_files and _may_add_again(added, removed, operation):
        return None
    added_keys = [action_key(add, root_uri) for add in added]
    removed_keys = [action_key(remove, root_uri) for remove in removed]
    is_distinct = len({*added_keys, *removed_keys}) == len(added) + len(removed)
    if not is_distinct or any(remove.size is None for remove in removed):
        return None
    if not _fits(base, added_keys, removed_keys, root_uri):
        return None
    state = base.state.apply(other)
    if state.metadata is None or state.protocol is None:
        return None
    info = next((action for action in reversed(other) if isinstance(action, CommitInfo)), None)
    sums = _advanced_sums(base, added, removed, state.protocol)
    if sums is None:
        return None
    if base.set_transactions is None:
        transactions = None
    else:
        transactions = _kept_transactions(state.transactions.values(), state.metadata)
    if base.domain_metadata is None:
        domains = None
    else:
        domains = _kept(state.live_domains.values(), MOST_DOMAINS)
    return replace(
        sums,
        txn_id=txn_id,
        num_metadata=1,
        num_protocol=1,
        in_commit_timestamp=None if info is None else info.in_commit_timestamp,
        set_transactions=transactions,
        domain_metadata=domains,
        metadata=state.metadata,
        protocol=state.protocol,
        all_files=_advanced_files(base, sums, added, removed_keys, root_uri),
        extra={},
    )


def mismatches(checksum: VersionChecksum, actual: VersionChecksum) -> list[str]:
    """The differences between a checksum and the replayed state, a line for each; fields that one
    of them lacks are not compared.
    """
    lines = []
    for f in VersionChecksum.FIELDS:
        recorded, replayed = getattr(checksum, f.attribute), getattr(actual, f.attribute)
        if f.attribute in _NOT_COMPARED or recorded is None or replayed is None:
            continue
        if isinstance(recorded, FileSizeHistogram) and recorded.boundaries != replayed.boundaries:
            continue  # two writers may choose other bins
        if is_same(recorded, replayed):
            continue
        is_number = isinstance(recorded, int)
        detail = f": {recorded} in the checksum, {replayed} in the log" if is_number else " differs"
        lines.append(f"{f.key}{detail}")
    return lines


_NOT_COMPARED = frozenset({"txn_id", "in_commit_timestamp", "all_files"})
_EMPTY = VersionChecksum(
    table_size_bytes=0,
    num_files=0,
    num_deleted_records=0,
    num_deletion_vectors=0,
    set_transactions=(),
    domain_metadata=(),
    file_size_histogram=EMPTY_FILE_SIZES,
    deleted_records_histogram=EMPTY_DELETED_RECORDS,
    all_files=(),
)


def is_same(recorded: Any, replayed: Any) -> bool:
    """Whether two values mean the same; a writer need not know each field of an action."""
    if isinstance(recorded, Protocol):
        return is_same_protocol(recorded, replayed)
    if isinstance(recorded, Metadata):
        return bool(replace(recorded, extra={}) == replace(replayed, extra={}))
    if isinstance(recorded, tuple):  # the order carries no meaning
        return sorted(map(_plain, recorded)) == sorted(map(_plain, replayed))
    return bool(recorded == replayed)


def _plain(action: SetTransaction | DomainMetadata) -> str:
    return dumps(replace(action, extra={}).to_json_value())


def _has_vectors(protocol: Protocol) -> bool:
    return "deletionVectors" in (protocol.reader_features or ())


def forgets_transactions(metadata: Metadata) -> bool:
    """Whether transactions expire, so that the live ones depend on the clock."""
    return property_value(metadata.configuration, TRANSACTION_RETENTION) is not None


def _kept(items: Iterable[_Item], most: int) -> tuple[_Item, ...] | None:
    kept = tuple(items)
    return kept if len(kept) <= most else None


def _kept_transactions(
    transactions: Iterable[SetTransaction], metadata: Metadata
) -> tuple[SetTransaction, ...] | None:
    return None if forgets_transactions(metadata) else _kept(transactions, MOST_TRANSACTIONS)


def _may_add_again(
    added: tuple[AddFile, ...], removed: tuple[RemoveFile, ...], operation: str | None
) -> bool:
    """Whether files that are live may be added again, with other statistics or row ids."""
    if operation in _READDING_OPERATIONS:
        return bool(added)
    # Without data changes and removed files no file can be new.
    return not removed and not all(add.data_change for add in added)


def _fits(base: VersionChecksum, added: list[str], removed: list[str], root_uri: str) -> bool:
    """Whether added files were not live and removed ones were, where all files are known."""
    if base.all_files is None:
        return True
    live = {action_key(add, root_uri) for add in base.all_files}
    return live.issuperset(removed) and live.isdisjoint(added)


def _cardinality(action: AddFile | RemoveFile) -> int:
    return 0 if action.deletion_vector is None else action.deletion_vector.cardinality


def _advanced_sums(
    base: VersionChecksum,
    added: tuple[AddFile, ...],
    removed: tuple[RemoveFile, ...],
    protocol: Protocol,
) -> VersionChecksum | None:
    """The counts and histograms after a commit; None when they come out below zero."""
    added_sizes = [add.size for add in added]
    removed_sizes = [remove.size or 0 for remove in removed]
    num_files = base.num_files + len(added) - len(removed)
    table_size_bytes = base.table_size_bytes + sum(added_sizes) - sum(removed_sizes)
    sizes = (base if base.num_files else _EMPTY).file_size_histogram
    if sizes is not None:
        sizes = sizes.change(added=added_sizes, removed=removed_sizes)
    if min(num_files, table_size_bytes) < 0 or not (sizes is None or sizes.is_possible):
        return None
    deleted, vectors, histogram = _advanced_vectors(base, added, removed, protocol)
    if min(deleted or 0, vectors or 0) < 0 or not (histogram is None or histogram.is_possible):
        return None
    return replace(
        base,
        table_size_bytes=table_size_bytes,
        num_files=num_files,
        file_size_histogram=sizes,
        num_deleted_records=deleted,
        num_deletion_vectors=vectors,
        deleted_records_histogram=histogram,
    )


def _advanced_vectors(
    base: VersionChecksum,
    added: tuple[AddFile, ...],
    removed: tuple[RemoveFile, ...],
    protocol: Protocol,
) -> tuple[int | None, int | None, DeletedRecordCountsHistogram | None]:
    known = base if base.num_files else _EMPTY
    deleted, vectors = known.num_deleted_records, known.num_deletion_vectors
    if not _has_vectors(protocol) or deleted is None or vectors is None:
        return None, None, None
    added_rows = [_cardinality(add) for add in added]
    removed_rows = [_cardinality(remove) for remove in removed]
    vectors += sum(add.deletion_vector is not None for add in added)
    vectors -= sum(remove.deletion_vector is not None for remove in removed)
    histogram = known.deleted_records_histogram
    if histogram is not None:
        histogram = histogram.change(added=added_rows, removed=removed_rows)
    return deleted + sum(added_rows) - sum(removed_rows), vectors, histogram


def _advanced_files(
    base: VersionChecksum,
    sums: VersionChecksum,
    added: tuple[AddFile, ...],
    removed_keys: list[str],
    root_uri: str,
) -> tuple[AddFile, ...] | None:
    """The short list of files after a commit; None when it is too long or not known."""
    if sums.num_files == 0:
        return ()
    if base.all_files is None or sums.num_files > MOST_FILES:
        return None
    live = {action_key(add, root_uri): add for add in base.all_files}
    for key in removed_keys:
        live.pop(key, None)
    live |= {action_key(add, root_uri): replace(add, data_change=False) for add in added}
    files = tuple(live.values())
    totals = (len(files), sum(add.size for add in files))
    return files if totals == (sums.num_files, sums.table_size_bytes) else None
