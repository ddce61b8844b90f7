"""Validate a version against its checksum file, to detect a damaged log.

A commit that was emptied, or cut at the end of a line, is well-formed; only the version's totals
reveal it.  Compared are the fields that PROTOCOL.md requires of a checksum, and transactions and
domains if it lists them.  PROTOCOL.md, "Version Checksum File", "State Validation".
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from pyspark_delta.errors import CorruptLogError
from pyspark_delta.kernel.log.checkpoints.reader import checkpoint_parts, open_checkpoint
from pyspark_delta.kernel.log.checksum import (
    VersionChecksum,
    forgets_transactions,
    mismatches,
    read_checksum,
)
from pyspark_delta.kernel.log.frames.json_frames import frame_from_json
from pyspark_delta.kernel.log.replay import FileState, TableState
from pyspark_delta.kernel.log.segment import load_segment
from pyspark_delta.kernel.protocol.paths import checksum_path, commit_path
from pyspark_delta.kernel.storage.base import LogStore

INTEGRITY = "DELTA_TXN_LOG_FAILED_INTEGRITY"


def differences(checksum: VersionChecksum, state: TableState | None, files: FileState) -> list[str]:
    """The differences between a checksum and the replayed state, a line for each.

    Without `state` only files are compared.
    """
    actual = VersionChecksum(table_size_bytes=files.size_in_bytes, num_files=files.num_files)
    if state is None:
        return mismatches(checksum, actual)
    metadata = state.metadata
    # The set of live transactions may depend on the clock.
    is_timed = metadata is None or forgets_transactions(metadata)
    actual = replace(
        actual,
        num_metadata=int(metadata is not None),
        num_protocol=int(state.protocol is not None),
        metadata=metadata,
        protocol=state.protocol,
        set_transactions=None if is_timed else tuple(state.transactions.values()),
        domain_metadata=tuple(state.live_domains.values()),
    )
    return mismatches(checksum, actual)


def check_version(
    store: LogStore,
    version: int,
    checksum: VersionChecksum,
    state: TableState | None,
    files: FileState,
    *,
    broken: Collection[str] = (),
) -> None:
    """Raise CorruptLogError, which names the damaged file, if a version contradicts its checksum.

    `broken` are the unreadable checkpoints that were skipped.
    """
    lines = differences(checksum, state, files)
    if lines:
        lines.append(_damage(store, version, broken))
        raise CorruptLogError(INTEGRITY, version=version, mismatchStringOpt="; ".join(lines))


def _damage(store: LogStore, version: int, broken: Collection[str]) -> str:
    """The damaged file, as far as the checksums of the versions before reveal it.

    That is the first commit after the last version that agrees with its checksum.
    """
    segment = load_segment(store, version, broken=broken)
    state, files, suspect = TableState(), FileState([]), None
    first = 0
    if segment.checkpoint is not None:
        checkpoint = open_checkpoint(store, segment.checkpoint)
        state = state.apply(checkpoint.state_actions)
        files = FileState(list(checkpoint_parts(store, checkpoint)))
        known = read_checksum(store, segment.checkpoint.version)
        if known is not None and differences(known, state, files):
            suspect = segment.checkpoint.version
            damage = _either(segment.checkpoint.files[0].info.path, suspect)
        first = segment.checkpoint.version + 1
    for commit in segment.commits:
        path = commit.info.path
        frame = frame_from_json(path, store.read(path), store.root_uri)
        state, files = state.apply(frame.others), files.apply(frame)
        known = read_checksum(store, commit.version)
        if known is None:
            continue
        if not differences(known, state, files):
            first, suspect = commit.version + 1, None
        elif suspect is None:
            suspect = commit.version
            last = commit_path(suspect)
            span = last if first == suspect else f"one of {commit_path(first)} to {last}"
            damage = _either(span, suspect)
    return "a log compaction is damaged" if suspect is None else damage


def _either(file: str, version: int) -> str:
    return f"{file} is damaged, or the checksum file {checksum_path(version)}"
