"""The two commits of a lost race as values: the one to write and the winner.

This module has no rules: `prepare` makes a `PreparedCommit`, `conflicts` checks it against each
`WinningCommit` in turn, `commit` writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.kernel.log.frames.commit_lines import actions_from_json
from pyspark_delta.kernel.log.frames.file_actions import (
    add_files,
    add_table,
    canonical_paths,
    remove_files,
)
from pyspark_delta.kernel.log.frames.json_frames import LARGE_COMMIT_BYTES, frame_from_json
from pyspark_delta.kernel.log.history import commit_info_of
from pyspark_delta.kernel.protocol.action_parts import DeletionVectorDescriptor, StringMap
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
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector
from pyspark_delta.kernel.protocol.operations import Operation
from pyspark_delta.kernel.storage.base import FileInfo
from pyspark_delta.kernel.txn.isolation import IsolationLevel, Traits, traits_of
from pyspark_delta.kernel.txn.reads import ReadSet

_A = TypeVar("_A", bound=Action)
_F = TypeVar("_F", bound=AddFile | RemoveFile)
ReadVector = Callable[[DeletionVectorDescriptor], DeletionVector]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCommit:
    """A commit that can be written as `version`, unless another commit has taken it.

    `protocol` and `metadata` are the table's after it; those it read are None for a new table.
    `actions` are all of its lines but the first, which is `commit_info`.  `row_id_mark` is the
    largest row id in use below `version`, as far as it is known.  `is_removal_valid` checks again,
    at another version, that the features which this commit drops are not in use.

    `settled` are paths whose change by the present winner is no conflict, because this commit
    depends on other rows of them.  `vectors` are those, by path, that a rebased add needs and
    that no file holds yet.  `read_vector` loads a vector of the table.
    """

    txn_id: str
    version: int
    operation: Operation
    isolation: IsolationLevel
    reads: ReadSet
    protocol: Protocol
    metadata: Metadata
    read_protocol: Protocol | None
    read_metadata: Metadata | None
    commit_info: CommitInfo
    actions: tuple[Action, ...]
    row_id_mark: int
    now_ms: int
    is_removal_valid: Callable[[int], bool] | None = None
    settled: frozenset[str] = frozenset()
    vectors: Mapping[str, DeletionVector] = field(default_factory=dict, hash=False)
    read_vector: ReadVector | None = None

    @property
    def table(self) -> str:
        return self.reads.root_uri

    @property
    def traits(self) -> Traits:
        return traits_of(self.operation.name)

    @property
    def all_actions(self) -> tuple[Action, ...]:
        return (self.commit_info, *self.actions)

    @property
    def is_blind_append(self) -> bool:
        """Whether it only adds files, and depends on no read."""
        return self.commit_info.is_blind_append is True

    def each(self, kind: type[_A]) -> Iterator[_A]:
        return (action for action in self.actions if isinstance(action, kind))

    def has(self, kind: type[Action]) -> bool:
        return any(isinstance(action, kind) for action in self.actions)

    def with_metadata(self, metadata: Metadata) -> PreparedCommit:
        """The same commit with other metadata, in its action too where it has one."""
        actions = tuple(metadata if isinstance(a, Metadata) else a for a in self.actions)
        return replace(self, metadata=metadata, actions=actions)

    def with_adds(self, adds: Iterable[AddFile]) -> PreparedCommit:
        """The same commit with its add actions, in order, replaced by as many others."""
        return replace(self, actions=with_adds(self.actions, adds))


def with_adds(actions: Iterable[Action], adds: Iterable[AddFile]) -> tuple[Action, ...]:
    """`actions` with their add actions, in order, replaced by as many others."""
    following = iter(adds)
    return tuple(next(following) if isinstance(a, AddFile) else a for a in actions)


def vector_id(descriptor: DeletionVectorDescriptor | None) -> str | None:
    """The id of a file's vector; None for none."""
    return None if descriptor is None else descriptor.unique_id


def encode_actions(actions: tuple[Action, ...]) -> bytes:
    """The content of a commit file: one line for each action."""
    return "".join(f"{action.json}\n" for action in actions).encode()


class _Few(Generic[_F]):
    """Files of a small commit, as objects, because columns would cost more than they save."""

    def __init__(self, actions: Iterable[_F]) -> None:
        self._actions = list(actions)

    def __len__(self) -> int:
        return len(self._actions)

    def columns(self) -> pa.Table:
        return add_table(add for add in self._actions if isinstance(add, AddFile))

    def partition_values(self, most: int) -> list[StringMap]:
        return [action.partition_values or {} for action in self._actions[:most]]

    def paths(self) -> pa.Array:
        return pa.array([action.path for action in self._actions], pa.string())

    def at(self, positions: pa.Array) -> list[_F]:
        return [self._actions[position] for position in positions.to_pylist()]


class _Many(Generic[_F]):
    """Files of a large commit, as columns from the start."""

    def __init__(self, files: pa.Table, to_actions: Callable[[pa.Table], Iterable[_F]]) -> None:
        self._files = files
        self._to_actions = to_actions

    def __len__(self) -> int:
        return int(self._files.num_rows)

    def columns(self) -> pa.Table:
        return self._files

    def partition_values(self, most: int) -> list[StringMap]:
        maps = self._files.column("partitionValues").slice(0, most)
        return [dict(entries or ()) for entries in maps.to_pylist()]

    def paths(self) -> pa.Array:
        return self._files.column("path").combine_chunks()

    def at(self, positions: pa.Array) -> list[_F]:
        return list(self._to_actions(self._files.take(positions)))


@dataclass(frozen=True, kw_only=True)
class WinningCommit:
    """A commit that took a version first.

    `others` are its actions that are not about files.  Its files are columns, made on demand:
    most winners are checked without them.
    """

    version: int
    modified_ms: int
    commit_info: CommitInfo | None
    others: tuple[Action, ...]
    added: _Few[AddFile] | _Many[AddFile]
    removed: _Few[RemoveFile] | _Many[RemoveFile]
    root_uri: str

    @classmethod
    def from_bytes(cls, version: int, data: bytes, info: FileInfo, root_uri: str) -> WinningCommit:
        """The commit in a file's bytes; CorruptLogError when they are malformed."""
        added: _Few[AddFile] | _Many[AddFile]
        removed: _Few[RemoveFile] | _Many[RemoveFile]
        others: tuple[Action, ...]
        if len(data) < LARGE_COMMIT_BYTES:
            actions = tuple(actions_from_json(info.path, data))
            commit_info = next((a for a in actions if isinstance(a, CommitInfo)), None)
            others = tuple(a for a in actions if not isinstance(a, FileAction | CommitInfo))
            added = _Few(a for a in actions if isinstance(a, AddFile))
            removed = _Few(a for a in actions if isinstance(a, RemoveFile))
        else:
            commit_info = commit_info_of(info.path, data)
            frame = frame_from_json(info.path, data, root_uri).reconciled()
            others = frame.others
            added, removed = _Many(frame.adds, add_files), _Many(frame.removes, remove_files)
        return cls(
            version=version,
            modified_ms=info.modified_ms,
            commit_info=None if commit_info is None else replace(commit_info, version=version),
            others=others,
            added=added,
            removed=removed,
            root_uri=root_uri,
        )

    @property
    def protocol(self) -> Protocol | None:
        return self._last(Protocol)

    @property
    def metadata(self) -> Metadata | None:
        return self._last(Metadata)

    @property
    def app_ids(self) -> frozenset[str]:
        return frozenset(a.app_id for a in self.others if isinstance(a, SetTransaction))

    @property
    def domains(self) -> Mapping[str, DomainMetadata]:
        return {a.domain: a for a in self.others if isinstance(a, DomainMetadata)}

    @cached_property
    def adds(self) -> pa.Table:
        return self.added.columns()

    @cached_property
    def add_paths(self) -> pa.Array:
        """The paths it added, as replay compares them."""
        return canonical_paths(self.added.paths(), self.root_uri)

    @cached_property
    def remove_paths(self) -> pa.Array:
        """The paths it removed, as replay compares them."""
        return canonical_paths(self.removed.paths(), self.root_uri)

    def adds_at(self, paths: Iterable[str]) -> list[tuple[str, AddFile]]:
        return _at(self.added, self.add_paths, paths)

    def removes_at(self, paths: Iterable[str]) -> list[tuple[str, RemoveFile]]:
        return _at(self.removed, self.remove_paths, paths)

    @property
    def operation(self) -> str | None:
        return None if self.commit_info is None else self.commit_info.operation

    @property
    def is_blind_append(self) -> bool:
        """Whether its `commitInfo` has `isBlindAppend`; a commit without it may have read."""
        return self.commit_info is not None and self.commit_info.is_blind_append is True

    def _last(self, kind: type[_A]) -> _A | None:
        return next((a for a in reversed(self.others) if isinstance(a, kind)), None)


def _at(
    files: _Few[_F] | _Many[_F], names: pa.Array, wanted: Iterable[str]
) -> list[tuple[str, _F]]:
    found = pc.indices_nonzero(pc.is_in(names, value_set=pa.array(wanted, pa.string())))
    return list(zip(names.take(found).to_pylist(), files.at(found), strict=True))
