"""Version checksums: what a version comes to, in a `.crc` file beside its commit.

A checksum spares a reader the replay for protocol and metadata, and shows a log that lost a file.
It is optional: whatever cannot be read as one counts as absent, and an existing one is never
replaced.  PROTOCOL.md, "Version Checksum File".

>>> parse_checksum(b"{}") is None
True
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.errors.storage import FileAlreadyExistsError, StorageError
from pyspark_delta.kernel.log.checksum_histogram import (
    EMPTY_DELETED_RECORDS,
    EMPTY_FILE_SIZES,
    DeletedRecordCountsHistogram,
    FileSizeHistogram,
    deleted_records_histogram,
    file_size_histogram,
)
from pyspark_delta.kernel.log.frames import ADD_SCHEMA, add_files, file_key
from pyspark_delta.kernel.protocol.actions import (
    Action,
    AddFile,
    CommitInfo,
    DomainMetadata,
    FileAction,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from pyspark_delta.kernel.protocol.codec import (
    Field,
    Json,
    MalformedRecordError,
    Record,
    dumps,
    integer,
    record,
    text,
    write_record,
)
from pyspark_delta.kernel.protocol.features import asks_the_same
from pyspark_delta.kernel.protocol.paths import checksum_path
from pyspark_delta.kernel.protocol.properties import TRANSACTION_RETENTION, property_value
from pyspark_delta.kernel.storage.base import LogStore

# Beyond these delta-spark leaves the list out of the checksum.
MOST_TRANSACTIONS = 100
MOST_DOMAINS = 10
MOST_FILES = 50

# Operations that add files again which are live already: the sums cannot be told from the actions.
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
_PLAIN_PATH = re.compile(r"[\w=.-][\w=./ -]*")
_Item = TypeVar("_Item", bound=Record)


def _count(value: Any, key: str) -> int:
    number = integer(value, key)
    if number < 0:
        raise MalformedRecordError(f"{key} is negative")
    return number


def _records(kind: type[_Item]) -> Any:
    def read(value: Any, key: str) -> tuple[_Item, ...]:
        if not isinstance(value, list):
            raise MalformedRecordError(f"{key} is not a list")
        return tuple(kind.from_json_value(item) for item in value)

    return read


def _write_records(records: tuple[Record, ...]) -> list[Json]:
    return [item.to_json_value() for item in records]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionChecksum(Record):
    """The sums of one version.  None: the writer did not say, never "none of it"."""

    FIELDS: ClassVar = (
        Field("txnId", "txn_id", text),
        Field("tableSizeBytes", "table_size_bytes", _count, required=True),
        Field("numFiles", "num_files", _count, required=True),
        Field("numDeletedRecordsOpt", "num_deleted_records", _count),
        Field("numDeletionVectorsOpt", "num_deletion_vectors", _count),
        Field("numMetadata", "num_metadata", _count),
        Field("numProtocol", "num_protocol", _count),
        Field("inCommitTimestampOpt", "in_commit_timestamp", integer),
        Field("setTransactions", "set_transactions", _records(SetTransaction), _write_records),
        Field("domainMetadata", "domain_metadata", _records(DomainMetadata), _write_records),
        Field("metadata", "metadata", record(Metadata), write_record),
        Field("protocol", "protocol", record(Protocol), write_record),
        Field("fileSizeHistogram", "file_size_histogram", record(FileSizeHistogram), write_record),
        Field(
            "deletedRecordCountsHistogramOpt",
            "deleted_records_histogram",
            record(DeletedRecordCountsHistogram),
            write_record,
        ),
        Field("allFiles", "all_files", _records(AddFile), _write_records),
    )

    txn_id: str | None = None
    table_size_bytes: int
    num_files: int
    num_deleted_records: int | None = None
    num_deletion_vectors: int | None = None
    num_metadata: int = 1
    num_protocol: int = 1
    in_commit_timestamp: int | None = None
    set_transactions: tuple[SetTransaction, ...] | None = None
    domain_metadata: tuple[DomainMetadata, ...] | None = None
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    file_size_histogram: FileSizeHistogram | None = None
    deleted_records_histogram: DeletedRecordCountsHistogram | None = None
    all_files: tuple[AddFile, ...] | None = None
    extra: Json = field(default_factory=dict, repr=False, hash=False)


def read_checksum(store: LogStore, version: int) -> VersionChecksum | None:
    """The checksum of `version`, or None when there is none that can be read."""
    try:
        data = store.read(checksum_path(version))
    except StorageError:
        return None
    return parse_checksum(data)


def write_checksum(store: LogStore, version: int, checksum: VersionChecksum) -> bool:
    """Write the checksum unless there is one; whether it was written."""
    try:
        store.create(checksum_path(version), format_checksum(checksum).encode())
    except FileAlreadyExistsError:
        return False
    return True


def parse_checksum(data: bytes) -> VersionChecksum | None:
    """The checksum that `data` spells; None for anything else."""
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
    has_vectors = _has_vectors(protocol)
    cardinalities = _cardinalities(files) if has_vectors else None
    kept_transactions = _kept(tuple(transactions), MOST_TRANSACTIONS)
    if forgets_transactions(metadata):
        kept_transactions = None
    complete = set(ADD_SCHEMA.names) <= set(files.schema.names)
    return VersionChecksum(
        txn_id=txn_id,
        table_size_bytes=pc.sum(sizes).as_py() or 0,
        num_files=files.num_rows,
        num_deleted_records=None if cardinalities is None else pc.sum(cardinalities).as_py() or 0,
        num_deletion_vectors=_num_vectors(files) if has_vectors else None,
        in_commit_timestamp=in_commit_timestamp,
        set_transactions=kept_transactions,
        domain_metadata=_kept(tuple(d for d in domains if not d.removed), MOST_DOMAINS),
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
    """The checksum after one more commit; None when the actions alone cannot tell it.

    `previous` is the checksum of the version before, None before version 0.  `others` are the
    commit's actions that are not about files, commitInfo among them.
    """
    added, removed, other = tuple(adds), tuple(removes), tuple(others)
    base = _BEFORE_THE_FIRST if previous is None else previous
    if base.num_files and _may_add_again(added, removed, operation):
        return None
    keys = [_key(action, root_uri) for action in (*added, *removed)]
    if len(set(keys)) != len(keys) or any(remove.size is None for remove in removed):
        return None
    if not _fits(base, keys[: len(added)], keys[len(added) :], root_uri):
        return None
    metadata = _newest(other, Metadata) or base.metadata
    protocol = _newest(other, Protocol) or base.protocol
    if metadata is None or protocol is None:
        return None
    info = _newest(other, CommitInfo)
    sums = _advanced_sums(base, added, removed, protocol)
    if sums is None:
        return None
    return replace(
        sums,
        txn_id=txn_id,
        num_metadata=1,
        num_protocol=1,
        in_commit_timestamp=None if info is None else info.in_commit_timestamp,
        set_transactions=_advanced_transactions(base, other, metadata),
        domain_metadata=_advanced_domains(base, other),
        metadata=metadata,
        protocol=protocol,
        all_files=_advanced_files(base, sums, added, keys[len(added) :], root_uri),
        extra={},
    )


def mismatches(checksum: VersionChecksum, actual: VersionChecksum) -> list[str]:
    """How a checksum differs from what replay found, a line for each; what one of them does not
    say is not compared.
    """
    found = []
    for name in _COMPARED:
        said, is_now = getattr(checksum, name), getattr(actual, name)
        if said is None or is_now is None:
            continue
        if name == "file_size_histogram" and said.boundaries != is_now.boundaries:
            continue  # two writers may choose other bins
        if not is_same(said, is_now):
            shown = isinstance(said, int)
            detail = f": {said} in the checksum, {is_now} in the log" if shown else " differs"
            found.append(f"{_KEYS[name]}{detail}")
    return found


_COMPARED = (
    "table_size_bytes",
    "num_files",
    "num_metadata",
    "num_protocol",
    "num_deleted_records",
    "num_deletion_vectors",
    "protocol",
    "metadata",
    "set_transactions",
    "domain_metadata",
    "file_size_histogram",
    "deleted_records_histogram",
)
_KEYS: Mapping[str, str] = {f.attribute: f.key for f in VersionChecksum.FIELDS}
_BEFORE_THE_FIRST = VersionChecksum(
    table_size_bytes=0,
    num_files=0,
    set_transactions=(),
    domain_metadata=(),
    all_files=(),
)


def is_same(said: Any, is_now: Any) -> bool:
    """Whether two values mean the same; a writer need not know each field of an action."""
    if isinstance(said, Protocol):
        return asks_the_same(said, is_now)
    if isinstance(said, Metadata):
        return bool(replace(said, extra={}) == replace(is_now, extra={}))
    if isinstance(said, tuple):  # the order carries no meaning
        return sorted(map(_plain, said)) == sorted(map(_plain, is_now))
    return bool(said == is_now)


def _plain(action: SetTransaction | DomainMetadata) -> str:
    return dumps(replace(action, extra={}).to_json_value())


def _has_vectors(protocol: Protocol) -> bool:
    return "deletionVectors" in (protocol.reader_features or ())


def forgets_transactions(metadata: Metadata) -> bool:
    """Whether transactions expire; which of them are live then depends on the clock."""
    return property_value(metadata.configuration, TRANSACTION_RETENTION) is not None


def _kept(items: tuple[_Item, ...], most: int) -> tuple[_Item, ...] | None:
    return items if len(items) <= most else None


def _cardinalities(files: pa.Table) -> pa.ChunkedArray:
    numbers = pc.struct_field(files.column("deletionVector"), "cardinality")
    return pc.fill_null(numbers, 0)


def _num_vectors(files: pa.Table) -> int:
    column = files.column("deletionVector")
    return len(column) - int(column.null_count)


def _key(action: FileAction, root_uri: str) -> str:
    assert isinstance(action, AddFile | RemoveFile)
    vector = action.deletion_vector
    if vector is None and _PLAIN_PATH.fullmatch(action.path):
        return action.path  # what `file_key` gives, without its checks
    return file_key(action.path, None if vector is None else vector.unique_id, root_uri)


def _may_add_again(
    added: tuple[AddFile, ...], removed: tuple[RemoveFile, ...], operation: str | None
) -> bool:
    """Whether files that are live may be added again, with other statistics or row ids."""
    if operation in _READDING_OPERATIONS:
        return bool(added)
    # No data changes and no file goes: then none can have come.
    return not removed and not all(add.data_change for add in added)


def _fits(base: VersionChecksum, added: list[str], removed: list[str], root_uri: str) -> bool:
    """Whether what is added was not live and what is removed was, where all files are known."""
    if base.all_files is None:
        return True
    live = {_key(add, root_uri) for add in base.all_files}
    return live.issuperset(removed) and live.isdisjoint(added)


def _newest(actions: tuple[Action, ...], kind: type[_Item]) -> _Item | None:
    return next((action for action in reversed(actions) if isinstance(action, kind)), None)


def _cardinality(action: AddFile | RemoveFile) -> int:
    return 0 if action.deletion_vector is None else action.deletion_vector.cardinality


def _advanced_sums(
    base: VersionChecksum,
    added: tuple[AddFile, ...],
    removed: tuple[RemoveFile, ...],
    protocol: Protocol,
) -> VersionChecksum | None:
    """The counts and histograms after a commit; None when they come out below zero."""
    came = [add.size for add in added]
    went = [remove.size or 0 for remove in removed]
    num_files = base.num_files + len(came) - len(went)
    table_size_bytes = base.table_size_bytes + sum(came) - sum(went)
    sizes = EMPTY_FILE_SIZES if base.num_files == 0 else base.file_size_histogram
    if sizes is not None:
        sizes = sizes.change(added=came, removed=went)
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
    if not _has_vectors(protocol):
        return None, None, None
    if base.num_files == 0:
        deleted, vectors = 0, 0
        histogram: DeletedRecordCountsHistogram | None = EMPTY_DELETED_RECORDS
    elif base.num_deleted_records is None or base.num_deletion_vectors is None:
        return None, None, None
    else:
        deleted, vectors = base.num_deleted_records, base.num_deletion_vectors
        histogram = base.deleted_records_histogram
    came = [_cardinality(add) for add in added]
    went = [_cardinality(remove) for remove in removed]
    vectors += sum(add.deletion_vector is not None for add in added)
    vectors -= sum(remove.deletion_vector is not None for remove in removed)
    if histogram is not None:
        histogram = histogram.change(added=came, removed=went)
    return deleted + sum(came) - sum(went), vectors, histogram


def _advanced_transactions(
    base: VersionChecksum, others: tuple[Action, ...], metadata: Metadata
) -> tuple[SetTransaction, ...] | None:
    if base.set_transactions is None or forgets_transactions(metadata):
        return None
    live = {txn.app_id: txn for txn in base.set_transactions}
    live |= {txn.app_id: txn for txn in others if isinstance(txn, SetTransaction)}
    return _kept(tuple(live.values()), MOST_TRANSACTIONS)


def _advanced_domains(
    base: VersionChecksum, others: tuple[Action, ...]
) -> tuple[DomainMetadata, ...] | None:
    if base.domain_metadata is None:
        return None
    live = {domain.domain: domain for domain in base.domain_metadata}
    live |= {domain.domain: domain for domain in others if isinstance(domain, DomainMetadata)}
    return _kept(tuple(d for d in live.values() if not d.removed), MOST_DOMAINS)


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
    live = {_key(add, root_uri): add for add in base.all_files}
    for key in removed_keys:
        live.pop(key, None)
    live |= {_key(add, root_uri): replace(add, data_change=False) for add in added}
    files = tuple(live.values())
    matches = len(files) == sums.num_files
    matches = matches and sum(add.size for add in files) == sums.table_size_bytes
    return files if matches else None
