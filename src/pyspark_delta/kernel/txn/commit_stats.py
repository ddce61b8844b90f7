"""One logging record for each successful commit, with its metrics.

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
from collections import Counter
from collections.abc import Iterable, Mapping

from pyspark_delta.errors import without_secrets
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
"""The name of the logger, which does not change when modules move."""

logger = logging.getLogger(LOGGER)


class Tally:
    """Counts the actions of a commit as they are encoded; `commit_size_bytes` may be None."""

    def __init__(self, actions: Iterable[Action] = (), data: bytes | None = None) -> None:
        self.commit_size_bytes = None if data is None else len(data)
        self._counts: Counter[type[Action]] = Counter()
        self._bytes_new = 0
        self._cdc_bytes_new = 0
        self.add(actions)

    def add(self, actions: Iterable[Action]) -> None:
        for action in actions:
            self._counts[type(action)] += 1
            match action:
                case AddFile() if action.data_change:
                    self._bytes_new += action.size
                case AddCDCFile():
                    self._cdc_bytes_new += action.size

    def encoded(self, actions: tuple[Action, ...]) -> bytes:
        """The lines of these actions; they are counted."""
        self.add(actions)
        data = encode_actions(actions)
        self.commit_size_bytes = (self.commit_size_bytes or 0) + len(data)
        return data

    def figures(self) -> dict[str, int | None]:
        """The counts, by delta-spark's names."""
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
    """Write the record of a successful commit."""
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
