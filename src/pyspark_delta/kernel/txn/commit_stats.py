"""One log record for each commit that stands: what it did, in figures.

The record has level INFO, goes to the logger `pyspark_delta.commit_stats`, and carries its figures
as attributes under the names of delta-spark's event `delta.commit.stats`.  It holds no user data:
no predicate, no partition value, no user metadata, no secret of an address.

>>> tally = Tally()
>>> tally.encoded((AddFile(path="a", size=7, modification_time=1, data_change=True),))[:7]
b'{"add":'
>>> tally.figures()["numAdd"], tally.figures()["bytesNew"]
(1, 7)
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from pyspark_delta.errors.base import without_secrets
from pyspark_delta.kernel.protocol.actions import (
    Action,
    AddCDCFile,
    AddFile,
    DomainMetadata,
    RemoveFile,
    SetTransaction,
)
from pyspark_delta.kernel.txn.prepared import PreparedCommit, encode_actions

LOGGER = "pyspark_delta.commit_stats"
"""The name of the logger, which stays where it is when modules move."""

logger = logging.getLogger(LOGGER)


class Tally:
    """Counts the actions of one commit as they go by; `commit_size_bytes` is None if not known."""

    def __init__(self) -> None:
        self.commit_size_bytes: int | None = None
        self._counts: dict[type[Action], int] = {}
        self._bytes_new = 0
        self._cdc_bytes_new = 0

    def add(self, actions: Iterable[Action]) -> None:
        """Count these too."""
        for action in actions:
            kind = type(action)
            self._counts[kind] = self._counts.get(kind, 0) + 1
            match action:
                case AddFile() if action.data_change:
                    self._bytes_new += action.size
                case AddCDCFile():
                    self._cdc_bytes_new += action.size

    def encoded(self, actions: tuple[Action, ...]) -> bytes:
        """The lines of these actions, which are counted."""
        self.add(actions)
        data = encode_actions(actions)
        self.commit_size_bytes = (self.commit_size_bytes or 0) + len(data)
        return data

    def figures(self) -> dict[str, int | None]:
        """What was counted, by delta-spark's names."""
        return {
            "numAdd": self._count(AddFile),
            "numRemove": self._count(RemoveFile),
            "bytesNew": self._bytes_new,
            "numCdcFiles": self._count(AddCDCFile),
            "cdcBytesNew": self._cdc_bytes_new,
            "numSetTransaction": self._count(SetTransaction),
            "numOfDomainMetadatas": self._count(DomainMetadata),
            "commitSizeBytes": self.commit_size_bytes,
        }

    def _count(self, wanted: type[Action]) -> int:
        return sum(n for kind, n in self._counts.items() if issubclass(kind, wanted))


def tally_of(actions: Iterable[Action], data: bytes | None) -> Tally:
    """What a commit holds whose actions, and perhaps whose bytes, are at hand."""
    tally = Tally()
    tally.add(actions)
    tally.commit_size_bytes = None if data is None else len(data)
    return tally


def is_wanted() -> bool:
    """Whether anybody would see a record; counting for nobody is spared."""
    return logger.isEnabledFor(logging.INFO)


def log_commit(
    prepared: PreparedCommit,
    tally: Tally,
    *,
    version: int,
    start_version: int,
    attempts: int,
    started_ms: int,
    now_ms: int,
) -> None:
    """Tell of a commit that stands."""
    fields: Mapping[str, object] = {
        "opType": "delta.commit.stats",
        "tableId": prepared.metadata.id,
        "tablePath": without_secrets(prepared.table),
        "txnId": prepared.txn_id,
        "operation": prepared.operation.name,
        "startVersion": start_version,
        "commitVersion": version,
        "isolationLevel": prepared.commit_info.isolation_level,
        "isBlindAppend": prepared.is_blind_append,
        "attempts": attempts,
        # A clock may be set back meanwhile.
        "txnDurationMs": max(now_ms - started_ms, 0),
        "commitDurationMs": max(now_ms - prepared.now_ms, 0),
        **tally.figures(),
    }
    logger.info(
        "version %(commitVersion)d of %(tablePath)s is committed: %(operation)s, "
        "%(numAdd)d files added, %(numRemove)d removed, attempt %(attempts)d, "
        "%(commitDurationMs)d ms",
        fields,
        extra=fields,
    )
