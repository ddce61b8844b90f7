"""The note beside a table that is being made."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_delta.kernel.ops.notes import (
    CREATION_NOTE,
    forget_creation_note,
    read_creation_note,
    write_creation_note,
)
from pyspark_delta.kernel.storage.local import LocalStore
from pyspark_delta.kernel.storage.memory import MemoryStore
from tests.support.faulty import Fault, FaultRule, FaultStore
from tests.support.transactions import memory_log, new_table


def test_a_note_is_read_until_it_is_forgotten(table_path: Path) -> None:
    store = LocalStore(table_path)
    assert read_creation_note(store) is None
    write_creation_note(store, "spark_catalog.db.tä")
    assert read_creation_note(LocalStore(table_path)) == "spark_catalog.db.tä"
    forget_creation_note(store)
    assert read_creation_note(store) is None
    assert list(table_path.iterdir()) == []
    forget_creation_note(store)
    forget_creation_note(LocalStore(table_path / "nowhere"))
    assert list(table_path.iterdir()) == []


def test_a_table_with_a_note_is_read_as_any_other() -> None:
    log = new_table(log=memory_log())
    write_creation_note(log.store, "t")
    assert log.update().version == 0
    assert memory_log(log.store).update().version == 0
    forget_creation_note(log.store)
    assert log.update().version == 0


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"[]", b"{}", b'{"table":1}', b"[" * 50_000, b"{" + b" " * 70_000]
)
def test_a_broken_note_is_none(data: bytes) -> None:
    store = MemoryStore()
    store.overwrite(CREATION_NOTE, data)
    assert read_creation_note(store) is None


def test_a_note_that_cannot_be_deleted_stays(caplog: pytest.LogCaptureFixture) -> None:
    rule = FaultRule(operation="delete", path=CREATION_NOTE, fault=Fault.ERROR_BEFORE)
    store = FaultStore(MemoryStore("täble"), [rule])
    write_creation_note(store, "t")
    forget_creation_note(store)
    assert read_creation_note(store) == "t"
    assert "is left behind" in caplog.text
