"""Every commit that stands leaves one record of figures, which hold nothing of the user's."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from pyspark_delta.errors import AppendOnlyError, ConcurrentWriteException
from pyspark_delta.kernel.protocol.actions import (
    AddCDCFile,
    DomainMetadata,
    SetTransaction,
)
from pyspark_delta.kernel.protocol.operations import Operation
from pyspark_delta.kernel.storage.memory import MemoryStore
from pyspark_delta.kernel.txn.commit_stats import LOGGER
from tests.support.clock import FrozenClock
from tests.support.faulty import Fault, FaultRule, FaultStore
from tests.support.transactions import TABLE, add, memory_log, metadata, new_table, remove

# What any record of the standard library has, and what a formatter may add to it.
_OF_ANY_RECORD = {*vars(logging.makeLogRecord({})), "message", "asctime"}


class Records(logging.Handler):
    """Keeps the fields that records carry beyond those of any record."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def fields(self) -> list[dict[str, Any]]:
        return [
            {key: value for key, value in vars(record).items() if key not in _OF_ANY_RECORD}
            for record in self.records
        ]


@pytest.fixture
def records() -> Iterator[Records]:
    """What the commits of a test tell, as a program that asked for it hears them."""
    handler, logger = Records(), logging.getLogger(LOGGER)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def test_a_commit_tells_its_figures_by_delta_sparks_names(
    records: Records, clock: FrozenClock
) -> None:
    log = new_table(
        actions=[add("a")],
        configuration={"delta.feature.domainMetadata": "supported"},
        log=memory_log(clock=clock),
    )
    records.records.clear()
    transaction = log.start_transaction()
    clock.advance(250)
    actions = [
        add("b"),
        add("c", size=23),
        remove("a"),
        AddCDCFile(path="_change_data/x", partition_values={}, size=5, data_change=False),
        SetTransaction(app_id="q", version=1),
        DomainMetadata(domain="mine", configuration="{}", removed=False),
    ]
    transaction.commit(actions, "MERGE")
    (fields,) = records.fields
    assert fields == {
        "opType": "delta.commit.stats",
        "tableId": "a-table",
        "tablePath": log.store.root_uri,
        "txnId": transaction.txn_id,
        "operation": "MERGE",
        "startVersion": 1,
        "commitVersion": 2,
        "isolationLevel": "Serializable",
        "isBlindAppend": False,
        "attempts": 1,
        "txnDurationMs": 250,
        "commitDurationMs": 0,
        "numAdd": 2,
        "numRemove": 1,
        "bytesNew": 123,
        "numCdcFiles": 1,
        "cdcBytesNew": 5,
        "numSetTransaction": 1,
        "numOfDomainMetadatas": 1,
        "commitSizeBytes": len(log.store.read("_delta_log/00000000000000000002.json")),
    }


def test_files_that_are_rearranged_are_no_new_bytes(records: Records) -> None:
    log = new_table(actions=[add("a")])
    rearranged = [add("b", data_change=False), remove("a", data_change=False)]
    log.start_transaction().commit(rearranged, "OPTIMIZE")
    last = records.fields[-1]
    assert (last["numAdd"], last["bytesNew"]) == (1, 0)
    assert last["isolationLevel"] == "SnapshotIsolation"


def test_the_text_of_the_record_says_the_same(records: Records) -> None:
    log = new_table(actions=[add("a")])
    record = records.records[-1]
    assert (record.name, record.levelno) == ("pyspark_delta.commit_stats", logging.INFO)
    assert record.getMessage() == (
        f"version 1 of {log.store.root_uri} is committed: WRITE, 1 files added, 0 removed, "
        "attempt 1, 0 ms"
    )


def test_lost_races_are_attempts(records: Records) -> None:
    log = new_table()
    slow, slower = log.start_transaction(), log.start_transaction()
    log.start_transaction().commit([add("a")], "WRITE")
    slow.commit([add("b")], "WRITE")
    slower.commit([add("c")], "WRITE")
    told = [
        (each["startVersion"], each["commitVersion"], each["attempts"]) for each in records.fields
    ]
    # Whoever loses reads all winners at once.
    assert told == [(-1, 0, 1), (0, 1, 1), (0, 2, 2), (0, 3, 2)]


def test_a_commit_that_does_not_stand_tells_nothing(records: Records) -> None:
    log = new_table(actions=[add("a")], configuration={"delta.appendOnly": "true"})
    late = log.start_transaction()
    late.update_metadata(metadata(description="mine"))
    other = log.start_transaction()
    other.update_metadata(metadata(description="theirs"))
    other.commit([], "SET TBLPROPERTIES")
    records.records.clear()
    with pytest.raises(AppendOnlyError):
        new_table(
            actions=[add("a"), remove("b")],
            configuration={"delta.appendOnly": "true"},
        )
    assert [each["operation"] for each in records.fields] == ["CREATE TABLE"]
    records.records.clear()
    with pytest.raises(Exception, match="DELTA_METADATA_CHANGED"):
        late.commit([], "SET TBLPROPERTIES")
    assert records.fields == []


def test_a_streamed_commit_is_counted_as_it_goes_by(records: Records) -> None:
    log = memory_log()
    transaction = log.start_transaction()
    transaction.update_metadata(metadata(configuration={"delta.enableRowTracking": "true"}))
    transaction.commit_large((add(f"{number}") for number in range(3000)), "CONVERT")
    (fields,) = records.fields
    assert (fields["operation"], fields["numAdd"], fields["bytesNew"]) == ("CONVERT", 3000, 300_000)
    assert (fields["startVersion"], fields["commitVersion"], fields["attempts"]) == (-1, 0, 1)
    assert fields["numOfDomainMetadatas"] == 1
    written = log.store.read("_delta_log/00000000000000000000.json")
    assert fields["commitSizeBytes"] == len(written)
    beaten = memory_log(log.store).start_transaction()
    log.start_transaction().commit([add("x")], "WRITE")
    records.records.clear()
    with pytest.raises(ConcurrentWriteException):
        beaten.commit_large(iter([add("y")]), "RESTORE")
    assert records.fields == []


def test_a_commit_that_an_earlier_try_wrote_is_told_once_it_is_found(records: Records) -> None:
    rules = [FaultRule(operation="create", path="*1.json", fault=Fault.ERROR_AFTER)]
    store = FaultStore(MemoryStore(None, TABLE), rules)
    log = new_table(log=memory_log(store))
    log.start_transaction().commit([add("a")], "WRITE")
    assert [(each["commitVersion"], each["numAdd"]) for each in records.fields] == [(0, 0), (1, 1)]


def test_nothing_of_the_users_is_told(records: Records) -> None:
    secret = "s3cret"
    store = MemoryStore(None, f"https://me:{secret}@host/{TABLE}")
    log = new_table("part", log=memory_log(store))
    operation = Operation(name="DELETE", parameters={"predicate": f'["(value = {secret})"]'})
    log.start_transaction().commit(
        [add(f"part={secret}/a", partition={"part": None})],
        operation,
        tags={"who": secret},
        user_metadata=secret,
        metrics={"numDeletedRows": secret},
    )
    assert secret in store.read("_delta_log/00000000000000000001.json").decode()
    assert len(records.fields) == 2
    for record in records.records:
        assert secret not in f"{record.getMessage()} {vars(record)}"


def test_a_handler_that_fails_does_not_fail_the_commit(records: Records) -> None:
    def failing(record: logging.LogRecord) -> bool:
        raise OSError("no space left for logs")

    logger = logging.getLogger(LOGGER)
    logger.addFilter(failing)
    try:
        log = new_table(actions=[add("a")])
    finally:
        logger.removeFilter(failing)
    assert log.update().num_files == 1
    assert records.fields == []


def test_who_does_not_ask_hears_nothing(caplog: pytest.LogCaptureFixture) -> None:
    new_table(actions=[add("a")])
    assert caplog.records == []
    with caplog.at_level(logging.INFO, "pyspark_delta"):
        new_table(actions=[add("a")])
    assert [record.name for record in caplog.records] == [LOGGER, LOGGER]
