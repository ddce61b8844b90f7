"""Bad hints and checksums: short cuts that are never trusted against the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pyspark_delta.errors import CorruptLogError
from pyspark_delta.kernel.log.last_checkpoint import json_checksum
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.paths import checksum_path
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from tests.support.bad_tables import (
    ROWS,
    UUID,
    BadTable,
    Case,
    add_a,
    case_id,
    check,
    with_history,
)
from tests.support.checkpoints import checkpoint
from tests.support.guarded import GuardedReader
from tests.support.log_builder import metadata, remove
from tests.support.reading import open_table

HINT = "_delta_log/_last_checkpoint"


def _hint(**fields: Any) -> str:
    value = {"version": 2, "size": 5, **fields}
    return json.dumps({**value, "checksum": json_checksum(value)})


HINTS = {
    "nothing": "",
    "garbage": "\x00\x01 not json",
    "not UTF-8": b"\xff\xfe{",
    "an array": "[]",
    "nested 100,000 deep": "[" * 100_000,
    "half of itself": _hint()[:20],
    "no version": '{"size":5}',
    "a version below zero": _hint(version=-1),
    "a version beyond 64 bits": _hint(version=2**63),
    "a version that is text": '{"version":"two"}',
    "a version that is not there": _hint(version=3),
    "the last possible version": _hint(version=2**63 - 1),
    "a checkpoint that is gone": _hint(version=1),
    "10^9 parts": _hint(parts=10**9),
    "10^12 parts": _hint(parts=10**12),
    "no parts": _hint(parts=0),
    "a wrong checksum": '{"version":1,"checksum":"00000000000000000000000000000000"}',
    "the same key twice": '{"version":1,"version":2}',
    "a V2 checkpoint elsewhere": _hint(
        v2Checkpoint={
            "path": "../../_outside/o.parquet",
            "sizeInBytes": 1,
            "modificationTime": 1,
            "nonFileActions": [],
            "sidecarFiles": [],
        }
    ),
    "a V2 checkpoint that is not there": _hint(
        v2Checkpoint={
            "path": f"{2:020d}.checkpoint.{UUID}.json",
            "sizeInBytes": 1,
            "modificationTime": 1,
            "sidecarFiles": [{"path": "nowhere.parquet", "sizeInBytes": 1, "modificationTime": 1}],
        }
    ),
}


@pytest.mark.parametrize("hint", HINTS.values(), ids=HINTS)
def test_a_bad_hint_is_ignored(hint: str, tmp_path: Path, guarded: GuardedReader) -> None:
    def build(table: BadTable) -> None:
        checkpoint(with_history(table).store)
        table.write(HINT, hint)

    check(Case(name="", build=build, want=ROWS), tmp_path, guarded)


# Version checksums.


def _checksum(table: BadTable, **changes: Any) -> None:
    table.create(add_a())
    value: dict[str, Any] = {
        "tableSizeBytes": add_a().size,
        "numFiles": 1,
        "numMetadata": 1,
        "numProtocol": 1,
        "setTransactions": [],
        "domainMetadata": [],
        "metadata": metadata().to_json_value(),
        "protocol": Protocol().to_json_value(),
    }
    table.write(checksum_path(0), json.dumps({**value, **changes}))


def _other_schema() -> dict[str, Any]:
    other = Metadata(id=metadata().id, schema_string='{"type":"struct","fields":[]}')
    return other.to_json_value()


INTEGRITY = "DELTA_TXN_LOG_FAILED_INTEGRITY"
CHECKSUMS = [
    Case(name="right", build=_checksum, want=ROWS),
    Case(
        name="another number of files",
        build=lambda table: _checksum(table, numFiles=17),
        want=INTEGRITY,
    ),
    Case(
        name="another size",
        build=lambda table: _checksum(table, tableSizeBytes=17),
        want=INTEGRITY,
    ),
    Case(
        name="another schema",
        build=lambda table: _checksum(table, metadata=_other_schema()),
        want=frozenset({INTEGRITY, "DELTA_READ_TABLE_WITHOUT_COLUMNS"}),
    ),
    Case(
        name="another protocol",
        build=lambda table: _checksum(
            table, protocol={"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": []}
        ),
        want=INTEGRITY,
    ),
    Case(
        name="a protocol that nobody can read",
        build=lambda table: _checksum(
            table, protocol={"minReaderVersion": 9, "minWriterVersion": 9}
        ),
        want=frozenset({INTEGRITY, "DELTA_INVALID_PROTOCOL_VERSION"}),
    ),
    Case(
        name="neither protocol nor metadata",
        build=lambda table: _checksum(table, protocol=None, metadata=None),
        want=ROWS,
    ),
    Case(
        name="garbage",
        build=lambda table: table.good().write(checksum_path(1), b"\x00\xff{"),
        want=ROWS,
    ),
    Case(name="empty", build=lambda table: table.good().write(checksum_path(1), b""), want=ROWS),
    Case(
        name="nested 100,000 deep",
        build=lambda table: table.good().write(checksum_path(1), "[" * 100_000),
        want=ROWS,
    ),
    Case(
        name="of other types",
        build=lambda table: _checksum(table, numFiles="x", setTransactions={}, metadata=[]),
        want=ROWS,
    ),
    Case(
        name="a number of files below zero",
        build=lambda table: _checksum(table, numFiles=-1),
        want=ROWS,
    ),
    Case(
        name="a histogram of odd shape",
        build=lambda table: _checksum(
            table,
            fileSizeHistogram={"sortedBinBoundaries": [5, 1], "fileCounts": [], "totalBytes": 0},
        ),
        want=ROWS,
    ),
]


@pytest.mark.parametrize("case", CHECKSUMS, ids=case_id)
def test_a_checksum_is_never_trusted_against_the_log(
    case: Case, tmp_path: Path, guarded: GuardedReader
) -> None:
    check(case, tmp_path, guarded)


@pytest.mark.parametrize("question", ["transactions", "domains", "protocol", "metadata"])
def test_a_wrong_checksum_is_found_out_whatever_was_asked_first(
    question: str, tmp_path: Path
) -> None:
    table = BadTable(tmp_path)
    _checksum(table, metadata=_other_schema())
    snapshot = open_table(str(table.root)).snapshot
    getattr(snapshot, question)
    for _ in range(2):
        with pytest.raises(CorruptLogError) as caught:
            snapshot.files  # noqa: B018
        assert caught.value.condition == INTEGRITY


def test_a_wrong_checksum_is_found_out_after_a_refresh_too(tmp_path: Path) -> None:
    table = BadTable(tmp_path)
    _checksum(table, metadata=_other_schema())
    log = open_table(str(table.root))
    assert log.snapshot.version == 0
    table.commit(remove("nobody"))
    snapshot = log.update()
    assert snapshot.version == 1
    with pytest.raises(CorruptLogError, match=INTEGRITY):
        snapshot.files  # noqa: B018


def test_transactions_of_a_checksum_are_held_against_those_of_the_log(tmp_path: Path) -> None:
    table = BadTable(tmp_path)
    _checksum(table, setTransactions=[{"appId": "liar", "version": 1}])
    with pytest.raises(CorruptLogError, match="setTransactions differs"):
        open_table(str(table.root)).snapshot.num_files  # noqa: B018
    snapshot = DeltaLog.for_table(table.root, verify_checksums=False).snapshot
    assert snapshot.num_files == 1
    assert snapshot.transactions == {}
