from __future__ import annotations

import json
from uuid import uuid4

import pytest

from pyspark_delta.errors import DataFileError
from pyspark_delta.kernel.ops.convert.files import has_sink_log, sink_files
from pyspark_delta.kernel.storage.memory import MemoryStore


def _entry(name: str, action: str = "add", *, is_dir: bool = False) -> str:
    return json.dumps(
        {
            "path": f"file:///t/{name}",
            "size": 3,
            "isDir": is_dir,
            "modificationTime": 7,
            "blockReplication": 1,
            "blockSize": 33554432,
            "action": action,
        }
    )


def _store(batches: dict[str, str]) -> MemoryStore:
    store = MemoryStore(f"sink-{uuid4()}")
    for name, text in batches.items():
        store.create(f"_spark_metadata/{name}", text.encode())
    return store


def _uris(store: MemoryStore) -> list[str]:
    return [file.uri.rpartition("/")[2] for file in sink_files(store)]


def test_only_committed_files_count() -> None:
    store = _store({"0": "\n".join(["v1", _entry("a"), _entry("d", is_dir=True)]), "1": "v1"})
    store.create("stray.parquet", b"")
    assert has_sink_log(store)
    assert [tuple(file) for file in sink_files(store)] == [("file:///t/a", 3, 7)]
    assert not has_sink_log(MemoryStore(f"plain-{uuid4()}"))


def test_a_compacted_batch_stands_for_all_before_it() -> None:
    store = _store(
        {
            "8": "v1\n" + _entry("old"),
            "9.compact": "\n".join(["v1", _entry("a"), _entry("b")]),
            "10": "\n".join(["v1", _entry("c"), _entry("a", "delete")]),
            ".9.compact.crc": "",
            "9.compact.tmp": "",
        }
    )
    assert _uris(store) == ["b", "c"]


@pytest.mark.parametrize(
    ("batches", "reason"),
    [
        ({"0": "v2\n"}, "version"),
        ({"0": ""}, "empty"),
        ({"0": "v1\n{"}, "JSON"),
        ({"0": "v1\n[]"}, "entry"),
        ({"0": 'v1\n{"path": 1}'}, "entry"),
        ({"0": "v1", "2": "v1"}, "missing"),
    ],
)
def test_a_log_that_cannot_be_read_is_refused(batches: dict[str, str], reason: str) -> None:
    with pytest.raises(DataFileError, match=reason) as caught:
        sink_files(_store(batches))
    assert caught.value.condition == "DELTA_CONVERT_INVALID_SINK_LOG"
