"""What rows came and went between two versions, by row tracking alone: no change feed is needed.

Every commit of the range is read once.  Files that were written anew hold rows that did not change:
these are told as gone and come, with the same id and version, and who reads them leaves them out.
PROTOCOL.md, "Row Tracking".
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pyspark_delta.errors.table import ChangeFeedError
from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.log.table_log import TableLog
from pyspark_delta.kernel.ops.change_feed import Definition, commit_files, fits
from pyspark_delta.kernel.ops.changed_files import ChangedFiles, ReadVector
from pyspark_delta.kernel.ops.stream_commits import StreamCommit, parse_changes
from pyspark_delta.kernel.protocol.feature_upgrade import keeping_vectors
from pyspark_delta.kernel.protocol.features import check_readable
from pyspark_delta.kernel.protocol.row_tracking import is_enabled


@dataclass(frozen=True, slots=True, kw_only=True)
class Changelog:
    """The changes from version `start` on, and the definition to read them by: that of their end.

    `has_pairs` says that a row may have gone and come in one commit.
    """

    start: int
    read_as: Definition
    files: ChangedFiles = field(hash=False)
    has_pairs: bool


def tracks_rows(snapshot: Snapshot) -> bool:
    """Whether changes of a version can be told by row tracking."""
    return is_enabled(snapshot.protocol, snapshot.metadata)


def read_changelog(
    log: TableLog,
    start: Snapshot,
    end: Snapshot,
    read: ReadVector,
    *,
    name: str,
    has_copies: bool = False,
) -> Changelog:
    """The changes from the version of `start` to that of `end`.

    `has_copies` keeps all rows of files that only got another vector; `name` is for messages.
    """
    if not tracks_rows(start):
        raise ChangeFeedError("DELTA_CHANGELOG_REQUIRES_ROW_TRACKING", tableName=name)
    first, read_as = _definition(start), _definition(end)
    _check(first, read_as)
    _check(read_as, read_as)
    files = ChangedFiles(
        read,
        is_partitioned=bool(end.metadata.partition_columns),
        has_ids=True,
        pairs_vectors=not has_copies,
    )
    has_pairs, found = False, [first]
    for file, data, time_ms in commit_files(log, start.version, end.version):
        commit = parse_changes(file.info.path, file.version, data, time_ms=time_ms, with_feed=False)
        found.append(_checked(log, commit, found[-1], read_as))
        files.take(commit.files)
        has_pairs = has_pairs or len(set(commit.files.kinds or ())) > 1
    protocol = keeping_vectors(read_as.protocol, *(each.protocol for each in found))
    return Changelog(
        start=first.version,
        read_as=replace(read_as, protocol=protocol),
        files=files,
        has_pairs=has_pairs,
    )


def _definition(snapshot: Snapshot) -> Definition:
    return Definition(
        version=snapshot.version, metadata=snapshot.metadata, protocol=snapshot.protocol
    )


def _checked(
    log: TableLog, commit: StreamCommit, before: Definition, read_as: Definition
) -> Definition:
    """The definition from a commit on, which must be one that the changes can be read by."""
    if commit.protocol is not None:
        check_readable(commit.protocol, log.store.root_uri)
    if commit.metadata is None and commit.protocol is None:
        return before
    after = Definition(
        version=commit.version,
        metadata=commit.metadata or before.metadata,
        protocol=commit.protocol or before.protocol,
    )
    _check(after, read_as)
    return after


def _check(definition: Definition, read_as: Definition) -> None:
    if not is_enabled(definition.protocol, definition.metadata):
        raise ChangeFeedError(
            "DELTA_CHANGELOG_ROW_TRACKING_DISABLED_IN_RANGE", version=definition.version
        )
    if not fits(definition, read_as):
        raise ChangeFeedError("DELTA_CHANGELOG_SCHEMA_CHANGE_IN_RANGE", version=definition.version)
