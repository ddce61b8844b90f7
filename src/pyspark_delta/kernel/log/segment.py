"""A listing of the log directory, and the files in it that make one version.

Listing and choosing only: no file is opened here but `_last_checkpoint`.  PROTOCOL.md, "Delta Log
Entries" and "Checkpoints": the newest complete checkpoint, then every commit after it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from pyspark_delta.errors import CorruptLogError, TableNotFoundError, VersionNotFoundError
from pyspark_delta.kernel.log.last_checkpoint import read_last_checkpoint
from pyspark_delta.kernel.protocol.paths import (
    LOG_DIRECTORY,
    LogFileKind,
    LogName,
    commit_path,
    parse_log_name,
)
from pyspark_delta.kernel.storage.base import FileInfo, LogStore


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """A file of the log directory whose name has a meaning."""

    name: LogName
    info: FileInfo

    @property
    def version(self) -> int:
        return self.name.version


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFiles:
    """One complete checkpoint: a file, or all the parts of a multi-part one in order."""

    version: int
    files: tuple[LogFile, ...]

    @property
    def kind(self) -> LogFileKind:
        """Its naming scheme; the content under a classic name may still be V2."""
        return self.files[0].name.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class LogListing:
    """Every meaningful file of the log directory from some version on, by kind."""

    start: int
    commits: tuple[LogFile, ...]
    checkpoints: tuple[CheckpointFiles, ...]  # complete ones, the best last
    compactions: tuple[LogFile, ...]
    checksums: tuple[LogFile, ...]

    @property
    def latest_version(self) -> int | None:
        """The newest version that a commit or a checkpoint names."""
        versions = [file.version for file in self.commits[-1:]]
        versions += [checkpoint.version for checkpoint in self.checkpoints[-1:]]
        return max(versions, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSegment:
    """The files that make version `version`: a checkpoint, and the commits after it.

    `commits` holds every commit after the checkpoint; `replay` is a cover of the same versions
    that prefers log compactions.  Both are oldest first.
    """

    version: int
    checkpoint: CheckpointFiles | None
    commits: tuple[LogFile, ...]
    replay: tuple[LogFile, ...]
    checksum: LogFile | None  # the newest one that is not newer than `version`
    last: LogFile  # the file that made `version`: its time is the version's time


def list_log(store: LogStore, start: int = 0) -> LogListing:
    """The listing of the log directory from version `start` on."""
    return sort_listing(store.list_from(f"{LOG_DIRECTORY}/{start:020d}"), start)


def sort_listing(files: Iterable[FileInfo], start: int = 0) -> LogListing:
    """A listing by kind; names without a meaning are strays and left out."""
    by_kind: dict[LogFileKind, list[LogFile]] = {kind: [] for kind in LogFileKind}
    for info in files:
        name = parse_log_name(info.path.rpartition("/")[2])
        if name is not None:
            by_kind[name.kind].append(LogFile(name=name, info=info))
    for of_kind in by_kind.values():
        of_kind.sort(key=lambda file: file.version)
    return LogListing(
        start=start,
        commits=tuple(by_kind[LogFileKind.COMMIT]),
        checkpoints=tuple(_complete_checkpoints(by_kind)),
        compactions=tuple(by_kind[LogFileKind.COMPACTED]),
        checksums=tuple(by_kind[LogFileKind.CHECKSUM]),
    )


def load_segment(
    store: LogStore, version: int | None = None, *, broken: Collection[str] = ()
) -> LogSegment:
    """The segment of `version`, or of the newest; checkpoints with a file in `broken` are not used.

    With such checkpoints the whole log is listed.
    """
    listing = list_log(store) if broken else list_log_for(store, version)
    return choose_segment(store, listing, version, broken)


def list_log_for(store: LogStore, version: int | None) -> LogListing:
    """The listing that `choose_segment` needs for `version`, or for the newest.

    The listing begins at the hint `_last_checkpoint`; if the checkpoint of the hint is not in it,
    the log is listed again from the start.
    """
    hint = read_last_checkpoint(store)
    if hint is not None and (version is None or hint.version <= version):
        listing = list_log(store, hint.version)
        if any(c.version <= (version or c.version) for c in listing.checkpoints):
            return listing
    return list_log(store)


def choose_segment(
    store: LogStore, listing: LogListing, version: int | None, broken: Collection[str] = ()
) -> LogSegment:
    """The files of `listing` that make `version` (None: the newest); typed errors for gaps."""
    latest = listing.latest_version
    if latest is None:
        raise TableNotFoundError("DELTA_TABLE_NOT_FOUND", tableName=store.root_uri)
    target = latest if version is None else version
    usable = [
        checkpoint
        for checkpoint in listing.checkpoints
        if checkpoint.version <= target
        and not any(file.info.path in broken for file in checkpoint.files)
    ]
    checkpoint = usable[-1] if usable else None
    first = 0 if checkpoint is None else checkpoint.version + 1
    commits = tuple(file for file in listing.commits if first <= file.version <= target)
    _check_contiguous(store, listing, commits, first, target, latest)
    checksums = [file for file in listing.checksums if file.version <= target]
    at_target = [file for file in listing.commits if file.version == target]
    if at_target:
        last = at_target[0]
    else:
        assert checkpoint is not None  # contiguity leaves no other way to reach `target`
        last = checkpoint.files[-1]
    return LogSegment(
        version=target,
        checkpoint=checkpoint,
        commits=commits,
        replay=_cover(commits, listing.compactions),
        checksum=checksums[-1] if checksums else None,
        last=last,
    )


def _check_contiguous(
    store: LogStore,
    listing: LogListing,
    commits: Sequence[LogFile],
    first: int,
    target: int,
    latest: int,
) -> None:
    # Counted, not compared with a range: one stray file name may have version 2**63 - 1.
    if target >= 0 and len(commits) == target + 1 - first:
        return
    present = [file.version for file in commits]
    earliest = earliest_version(listing)
    lacks_start = first == 0 and present[:1] != [0]
    if lacks_start and target == latest:
        raise CorruptLogError(
            "DELTA_TRUNCATED_TRANSACTION_LOG",
            path=commit_path(0),
            version=target,
            logRetentionKey="delta.logRetentionDuration",
            checkpointRetentionKey="delta.checkpointRetentionDuration",
        )
    if lacks_start and 0 <= target < latest and earliest < 0:  # no other version can be requested
        raise VersionNotFoundError(
            "DELTA_NO_RECREATABLE_HISTORY_FOUND", logPath=f"{store.root_uri}/_delta_log"
        )
    if lacks_start or not 0 <= target <= latest:
        raise VersionNotFoundError(
            "DELTA_VERSION_NOT_FOUND", userVersion=target, earliest=earliest, latest=latest
        )
    raise CorruptLogError(
        "DELTA_VERSIONS_NOT_CONTIGUOUS",
        versionList=_ranges(present),
        startVersion=first,
        endVersion=target,
        versionToLoad=target,
    )


def earliest_version(listing: LogListing) -> int:
    """The oldest version of a full listing that can still be reconstructed."""
    commits = [file.version for file in listing.commits]
    if commits[:1] == [0]:
        return 0
    return min((checkpoint.version for checkpoint in listing.checkpoints), default=-1)


def _ranges(versions: Sequence[int]) -> str:
    """Versions in as few words as possible: a message must not hold a million numbers."""
    runs: list[list[int]] = []
    for version in versions:
        if runs and runs[-1][1] == version - 1:
            runs[-1][1] = version
        else:
            runs.append([version, version])
    texts = [f"{a}" if a == b else f"{a}..{b}" for a, b in runs[:20]]
    return "[" + ", ".join(texts) + (", ..." if len(runs) > 20 else "") + "]"


_CHECKPOINT_KINDS = (
    LogFileKind.CLASSIC_CHECKPOINT,
    LogFileKind.MULTIPART_CHECKPOINT,
    LogFileKind.UUID_CHECKPOINT,
)


def _complete_checkpoints(by_kind: dict[LogFileKind, list[LogFile]]) -> list[CheckpointFiles]:
    """Whole checkpoints, the one to prefer last: by version, then classic < parts < uuid."""
    classic, parts, uuid = _CHECKPOINT_KINDS
    sets = [
        *((file,) for kind in (classic, uuid) for file in by_kind[kind] if file.info.size > 0),
        *_complete_sets(by_kind[parts]),
    ]
    return sorted(
        (CheckpointFiles(version=files[0].version, files=files) for files in sets),
        key=lambda c: (
            c.version,
            _CHECKPOINT_KINDS.index(c.kind),
            len(c.files),
            c.files[0].info.path,
        ),
    )


def _complete_sets(files: Sequence[LogFile]) -> list[tuple[LogFile, ...]]:
    sets: dict[tuple[int, int], dict[int, LogFile]] = {}
    for file in files:
        part, parts = file.name.part, file.name.parts
        if part is not None and parts is not None and 1 <= part <= parts:
            sets.setdefault((file.version, parts), {})[part] = file
    return [
        tuple(by_part[part] for part in sorted(by_part))
        for (_, parts), by_part in sets.items()
        if len(by_part) == parts
    ]


def _cover(commits: Sequence[LogFile], compactions: Sequence[LogFile]) -> tuple[LogFile, ...]:
    """The same versions in fewer files: at each version the compaction that reaches farthest."""
    if not commits or not compactions:
        return tuple(commits)
    first, last = commits[0].version, commits[-1].version
    farthest = {file.version: (file.version, file) for file in commits}  # version -> end, file
    for file in compactions:
        end = file.name.end_version
        if end is None or not first <= file.version < end <= last or not file.info.size:
            continue  # an empty one was never finished, or holds nothing that the commits lack
        if end > farthest[file.version][0]:
            farthest[file.version] = (end, file)
    chosen: list[LogFile] = []
    version = first
    while version <= last:
        end, file = farthest[version]
        chosen.append(file)
        version = end + 1
    return tuple(chosen)
