"""The two sides of a lost race, as values: the commit to be written and the one that won.

Nothing here decides anything: `prepare` makes a `PreparedCommit`, `conflicts` sets it against each
`WinningCommit` in turn, `commit` writes it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_delta.kernel.log.action_frame import ActionFrame
from pyspark_delta.kernel.log.commit_info import commit_info_of
from pyspark_delta.kernel.log.commit_lines import actions_from_json
from pyspark_delta.kernel.log.frames import (
    add_files,
    add_table,
    canonical_paths,
    remove_files,
)
from pyspark_delta.kernel.log.json_frames import LARGE_COMMIT_BYTES, frame_from_json
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
from pyspark_delta.kernel.txn.isolation import IsolationLevel
from pyspark_delta.kernel.txn.reads import ReadSet
from pyspark_delta.kernel.txn.traits import Traits, traits_of

_A = TypeVar("_A", bound=Action)
ReadVector = Callable[[DeletionVectorDescriptor], DeletionVector]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCommit:
    """A commit that can be written as `version`, once nobody else has.

    `protocol` and `metadata` are the table's after it; those it read are None for a new table.
    `actions` are all of its lines but the first, which is `commit_info`.  `row_id_mark` is the
    largest row id in use below `version`, as far as it is known.  `is_removal_valid` looks again,
    at another version, whether the features that this commit drops are out of use.

    `settled` are paths whose change by the winner at hand is nothing to this commit, since it
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
        """The table's address, for messages."""
        return self.reads.root_uri

    @property
    def traits(self) -> Traits:
        """What the checks must know about the operation."""
        return traits_of(self.operation.name)

    @property
    def all_actions(self) -> tuple[Action, ...]:
        """Every line, in order."""
        return (self.commit_info, *self.actions)

    @property
    def is_blind_append(self) -> bool:
        """Whether it only adds files, and read none to do so."""
        return self.commit_info.is_blind_append is True

    def each(self, kind: type[_A]) -> Iterator[_A]:
        """Its actions of one kind."""
        return (action for action in self.actions if isinstance(action, kind))

    def has(self, kind: type[Action]) -> bool:
        """Whether an action of that kind is among them."""
        return any(isinstance(action, kind) for action in self.actions)

    def with_metadata(self, metadata: Metadata) -> PreparedCommit:
        """The same commit with other metadata, in its action too where it has one."""
        return replace(
            self,
            metadata=metadata,
            actions=tuple(
                metadata if isinstance(action, Metadata) else action for action in self.actions
            ),
        )

    def with_adds(self, adds: tuple[AddFile, ...]) -> PreparedCommit:
        """The same commit with its add actions, in order, replaced by as many others."""
        following = iter(adds)
        return replace(
            self,
            actions=tuple(
                next(following) if isinstance(action, AddFile) else action
                for action in self.actions
            ),
        )


def encode_actions(actions: tuple[Action, ...]) -> bytes:
    """The content of a commit file: one line for each action."""
    return "".join(f"{action.json}\n" for action in actions).encode()


@dataclass(frozen=True, kw_only=True)
class WinningCommit:
    """A commit that took a version first.

    `others` are its actions that are not about files.  Its files are columns, made when somebody
    asks: most winners are judged without.
    """

    version: int
    modified_ms: int
    commit_info: CommitInfo | None
    others: tuple[Action, ...]
    files: _Files
    root_uri: str

    @classmethod
    def from_bytes(cls, version: int, data: bytes, info: FileInfo, root_uri: str) -> WinningCommit:
        """The commit in a file's bytes; CorruptLogError when they are none."""
        others: tuple[Action, ...]
        if len(data) < LARGE_COMMIT_BYTES:
            actions = tuple(actions_from_json(info.path, data))
            commit_info = next((a for a in actions if isinstance(a, CommitInfo)), None)
            others = tuple(a for a in actions if not isinstance(a, FileAction | CommitInfo))
            files: _Files = _FewFiles(actions)
        else:
            commit_info = commit_info_of(info.path, data)
            frame = frame_from_json(info.path, data, root_uri).reconciled()
            others, files = frame.others, _ManyFiles(frame)
        return cls(
            version=version,
            modified_ms=info.modified_ms,
            commit_info=None if commit_info is None else replace(commit_info, version=version),
            others=others,
            files=files,
            root_uri=root_uri,
        )

    @property
    def protocol(self) -> Protocol | None:
        """The protocol it set, if any."""
        return self._last(Protocol)

    @property
    def metadata(self) -> Metadata | None:
        """The metadata it set, if any."""
        return self._last(Metadata)

    @property
    def app_ids(self) -> frozenset[str]:
        """The applications that it wrote a version for."""
        return frozenset(
            action.app_id for action in self.others if isinstance(action, SetTransaction)
        )

    @property
    def domains(self) -> Mapping[str, DomainMetadata]:
        """The domains it set or removed."""
        return {
            action.domain: action for action in self.others if isinstance(action, DomainMetadata)
        }

    @property
    def num_adds(self) -> int:
        """How many files it added."""
        return self.files.num_adds

    @property
    def num_removes(self) -> int:
        """How many files it removed."""
        return self.files.num_removes

    @cached_property
    def adds(self) -> pa.Table:
        """The files it added."""
        return self.files.adds()

    def add_partitions(self, most: int) -> list[StringMap]:
        """The partition values of up to `most` of the files it added."""
        return self.files.add_partitions(most)

    @cached_property
    def add_paths(self) -> pa.Array:
        """The paths it added, as replay compares them."""
        return canonical_paths(self.files.add_paths(), self.root_uri)

    @cached_property
    def remove_paths(self) -> pa.Array:
        """The paths it removed, as replay compares them."""
        return canonical_paths(self.files.remove_paths(), self.root_uri)

    def adds_at(self, paths: Iterable[str]) -> list[tuple[str, AddFile]]:
        """The add actions for these canonical paths."""
        found = _positions(self.add_paths, paths)
        actions = self.files.add_actions(found)
        return list(zip(self.add_paths.take(found).to_pylist(), actions, strict=True))

    def removes_at(self, paths: Iterable[str]) -> list[tuple[str, RemoveFile]]:
        """The remove actions for these canonical paths."""
        found = _positions(self.remove_paths, paths)
        actions = self.files.remove_actions(found)
        return list(zip(self.remove_paths.take(found).to_pylist(), actions, strict=True))

    @property
    def operation(self) -> str | None:
        """What it says it did."""
        return None if self.commit_info is None else self.commit_info.operation

    @property
    def is_blind_append(self) -> bool:
        """Whether it says that it read nothing; a commit that does not say may have read."""
        return self.commit_info is not None and self.commit_info.is_blind_append is True

    def _last(self, kind: type[_A]) -> _A | None:
        return next((a for a in reversed(self.others) if isinstance(a, kind)), None)


class _Files(ABC):
    """The file actions of a commit."""

    num_adds: int
    num_removes: int

    @abstractmethod
    def adds(self) -> pa.Table:
        """The add actions as columns."""

    @abstractmethod
    def add_partitions(self, most: int) -> list[StringMap]:
        """The partition values of the first adds."""

    @abstractmethod
    def add_paths(self) -> pa.Array:
        """The paths of adds, as written."""

    @abstractmethod
    def remove_paths(self) -> pa.Array:
        """The paths of removes, as written."""

    @abstractmethod
    def add_actions(self, positions: pa.Array) -> list[AddFile]:
        """Some of the add actions."""

    @abstractmethod
    def remove_actions(self, positions: pa.Array) -> list[RemoveFile]:
        """Some of the remove actions."""


class _FewFiles(_Files):
    """Of a small commit: objects, for which columns would cost more than they save."""

    def __init__(self, actions: tuple[Action, ...]) -> None:
        self._adds = [action for action in actions if isinstance(action, AddFile)]
        self._removes = [action for action in actions if isinstance(action, RemoveFile)]
        self.num_adds, self.num_removes = len(self._adds), len(self._removes)

    def adds(self) -> pa.Table:
        return add_table(self._adds)

    def add_partitions(self, most: int) -> list[StringMap]:
        return [add.partition_values for add in self._adds[:most]]

    def add_paths(self) -> pa.Array:
        return pa.array([add.path for add in self._adds], pa.string())

    def remove_paths(self) -> pa.Array:
        return pa.array([remove.path for remove in self._removes], pa.string())

    def add_actions(self, positions: pa.Array) -> list[AddFile]:
        return [self._adds[position] for position in positions.to_pylist()]

    def remove_actions(self, positions: pa.Array) -> list[RemoveFile]:
        return [self._removes[position] for position in positions.to_pylist()]


class _ManyFiles(_Files):
    """Of a large commit: columns from the start."""

    def __init__(self, frame: ActionFrame) -> None:
        self._frame = frame
        self.num_adds, self.num_removes = frame.adds.num_rows, frame.removes.num_rows

    def adds(self) -> pa.Table:
        return self._frame.adds

    def add_partitions(self, most: int) -> list[StringMap]:
        maps = self._frame.adds.column("partitionValues").slice(0, most)
        return [dict(entries or ()) for entries in maps.to_pylist()]

    def add_paths(self) -> pa.Array:
        return self._frame.adds.column("path").combine_chunks()

    def remove_paths(self) -> pa.Array:
        return self._frame.removes.column("path").combine_chunks()

    def add_actions(self, positions: pa.Array) -> list[AddFile]:
        return list(add_files(self._frame.adds.take(positions)))

    def remove_actions(self, positions: pa.Array) -> list[RemoveFile]:
        return list(remove_files(self._frame.removes.take(positions)))


def _positions(names: pa.Array, wanted: Iterable[str]) -> pa.Array:
    return pc.indices_nonzero(pc.is_in(names, value_set=pa.array(wanted, pa.string())))
