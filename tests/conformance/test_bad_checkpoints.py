"""Bad checkpoints, hints and checksums: none of them is needed while the commits are there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pyspark_delta.errors import CorruptLogError
from pyspark_delta.kernel.log.last_checkpoint import json_checksum
from pyspark_delta.kernel.protocol.actions import Metadata, Protocol
from pyspark_delta.kernel.protocol.paths import (
    checksum_path,
    classic_checkpoint_path,
    commit_path,
    multipart_checkpoint_path,
    uuid_checkpoint_path,
)
from tests.support.bad_tables import (
    MEGABYTE,
    ROWS,
    SECRET,
    BadTable,
    Case,
    add_a,
    case_id,
    check,
    parquet,
    parquet_of,
)
from tests.support.checkpoints import checkpoint, read_parquet
from tests.support.guarded import GuardedReader
from tests.support.reading import open_table
from tests.support.log_builder import add, metadata, remove

BROKEN = "DELTA_MALFORMED_CHECKPOINT"
UNSAFE = "DELTA_UNSAFE_PATH"
HINT = "_delta_log/_last_checkpoint"
CLASSIC = classic_checkpoint_path(2)
UUID = "11111111-2222-3333-4444-555555555555"
V2_JSON = uuid_checkpoint_path(2, UUID, "json")
V2_PARQUET = uuid_checkpoint_path(2, UUID, "parquet")
V2_PROTOCOL = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("v2Checkpoint",),
    writer_features=("v2Checkpoint",),
)
Damage = Callable[[bytes], bytes]


def _history(table: BadTable) -> BadTable:
    """Three commits with something of everything: the checkpoint of version 2 has all of it."""
    table.create(add("gone.parquet"), protocol=V2_PROTOCOL)
    table.commit(add_a(stats='{"numRecords":3}'), '{"txn":{"appId":"a","version":7}}')
    return table.commit(remove("gone.parquet"))


def _classic(table: BadTable) -> bytes:
    _history(table)
    checkpoint(table.store)
    return table.path(CLASSIC).read_bytes()


def _without_commits(table: BadTable) -> None:
    for version in range(table.log.version):
        table.path(commit_path(version)).unlink()


def _footer_length(data: bytes, length: int) -> bytes:
    return data[:-8] + length.to_bytes(4, "little") + b"PAR1"


def _changed(change: Callable[[pa.Table], pa.Table]) -> Damage:
    """The same checkpoint with another content."""
    return lambda data: parquet_of(change(_table(data)))


def _table(data: bytes) -> pa.Table:
    return pa.parquet.read_table(pa.BufferReader(data))


def _with_column(name: str, column: Callable[[pa.Table], Any]) -> Damage:
    def change(table: pa.Table) -> pa.Table:
        return table.set_column(table.schema.get_field_index(name), name, column(table))

    return _changed(change)


def _with_add(**children: Callable[[pa.Array], pa.Array | None]) -> Damage:
    """The same checkpoint, but with other columns in `add`; None leaves one out."""

    def column(table: pa.Table) -> pa.Array:
        adds = table.column("add").combine_chunks()
        found = {f.name: adds.field(f.name) for f in adds.type}
        for name, child in children.items():
            found[name] = child(found.get(name))
        kept = {name: child for name, child in found.items() if child is not None}
        return pa.StructArray.from_arrays(
            list(kept.values()), names=list(kept), mask=pc.is_null(adds)
        )

    return _with_column("add", column)


def _page_damage(data: bytes) -> bytes:
    """Every page in the middle of the file overwritten, the footer as it was."""
    footer = int.from_bytes(data[-8:-4], "little") + 8
    return data[:100] + b"\xa5" * (len(data) - footer - 100) + data[-footer:]


def _not_utf8(array: pa.Array) -> pa.Array:
    raw = [None if item is None else b"\xff" + item.encode() for item in array.to_pylist()]
    binary = pa.array(raw, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(binary), binary.buffers())


def _rows_of_null(rows: int) -> pa.Table:
    """A checkpoint of nothing but nulls: kilobytes in a file, gigabytes in memory."""
    fields = [("path", pa.string()), ("size", pa.int64()), ("stats", pa.string())]
    return pa.table({"add": pa.nulls(rows, pa.struct(fields))})


# What nobody can take for a checkpoint.
DAMAGES: dict[str, Damage] = {
    "truncated": lambda data: data[: len(data) // 2],
    "without its last byte": lambda data: data[:-1],
    "four bytes": lambda data: b"PAR1",
    "magic numbers only": lambda data: b"PAR1" + bytes(8) + b"PAR1",
    "garbage": lambda data: b"\x07" * len(data),
    "a footer of 4 GB": lambda data: _footer_length(data, 2**32 - 1),
    "a footer of 2 GB": lambda data: _footer_length(data, 2**31 - 1),
    "a footer that begins too early": lambda data: _footer_length(data, len(data)),
    "a footer that begins too late": lambda data: _footer_length(data, 7),
    "a footer of garbage": lambda data: data[:-200] + b"\xff" * 192 + data[-8:],
    "an encrypted footer": lambda data: data[:-4] + b"PARE",
    "damaged pages": _page_damage,
    "JSON": lambda data: add_a().json.encode(),
    "an add that is a number": _with_column("add", lambda t: pa.nulls(len(t), pa.int64())),
    "an add without paths": _with_add(path=lambda array: None),
    "paths that are numbers": _with_add(path=lambda array: pa.array(range(len(array)))),
    "paths that are null": _with_add(path=lambda array: pa.nulls(len(array), pa.string())),
    "paths that are not UTF-8": _with_add(path=_not_utf8),
    "sizes that are text": _with_add(size=lambda array: pa.array(["x"] * len(array))),
    "partition values that are text": _with_add(
        partitionValues=lambda array: pa.array(["x"] * len(array))
    ),
    "vectors that are text": _with_add(deletionVector=lambda array: pa.array(["x"] * len(array))),
    "a protocol of text": _with_column("protocol", lambda t: pa.array(["x"] * len(t))),
    "metadata that is a list": _with_column("metaData", lambda t: pa.array([[1]] * len(t))),
    "50,000,000 rows of null": lambda data: parquet_of(_rows_of_null(50_000_000)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_broken_checkpoint_is_done_without_while_the_commits_are_there(
    damage: Damage, tmp_path: Path, guarded: GuardedReader
) -> None:
    def build(table: BadTable) -> None:
        table.write(CLASSIC, damage(_classic(table)))

    check(Case(name="", build=build, want=ROWS, warns=(CLASSIC,)), tmp_path, guarded)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_broken_checkpoint_is_an_error_once_the_commits_are_gone(
    damage: Damage, tmp_path: Path, guarded: GuardedReader
) -> None:
    def build(table: BadTable) -> None:
        table.write(CLASSIC, damage(_classic(table)))
        _without_commits(table)

    check(Case(name="", build=build, want=BROKEN, says=(CLASSIC,)), tmp_path, guarded)


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
        _classic(table)
        table.write(HINT, hint)

    check(Case(name="", build=build, want=ROWS), tmp_path, guarded)


def _named_without_commits(table: BadTable) -> None:
    """A hint at a checkpoint that is missing, while another one is there."""
    _classic(table)
    table.commit(remove("nobody"))
    table.write(HINT, _hint(version=3))
    _without_commits(table)
    table.path(commit_path(2)).unlink(missing_ok=True)


def _multipart(table: BadTable) -> list[Path]:
    table.create(*(add(f"gone{i}.parquet") for i in range(4)))
    table.commit(add_a())
    table.commit(*(remove(f"gone{i}.parquet") for i in range(4)))
    checkpoint(table.store, part_size=2)
    return sorted(table.path("_delta_log").glob("*.checkpoint.*"))


def _parts_of_a_billion(table: BadTable) -> None:
    _history(table)
    for part in (1, 10**9):
        table.write(multipart_checkpoint_path(2, part, 10**9), _classic_bytes(table))


def _classic_bytes(table: BadTable) -> bytes:
    if not table.path(CLASSIC).exists():
        checkpoint(table.store)
    data = table.path(CLASSIC).read_bytes()
    table.path(CLASSIC).unlink()
    return data


SEVERAL_FILES = [
    Case(
        name="a part is missing",
        build=lambda table: _multipart(table)[1].unlink(),
        want=ROWS,
    ),
    Case(
        name="a part is empty",
        build=lambda table: _multipart(table)[1].write_bytes(b""),
        want=ROWS,
        warns=("checkpoint",),
    ),
    Case(
        name="a part is damaged",
        build=lambda table: os.truncate(_multipart(table)[-1], 100),
        want=ROWS,
        warns=("checkpoint",),
    ),
    Case(name="10^9 parts, of which two are there", build=_parts_of_a_billion, want=ROWS),
    Case(
        name="a hint at a missing checkpoint while an older one is there",
        build=_named_without_commits,
        want=ROWS,
    ),
    Case(
        name="an empty checkpoint",
        build=lambda table: (_classic(table), table.write(CLASSIC, b"")),
        want=ROWS,
    ),
    Case(
        name="a checkpoint that is a directory",
        build=lambda table: _history(table).path(CLASSIC).mkdir(),
        want=ROWS,
    ),
    Case(
        name="a checkpoint that is a pipe",
        build=lambda table: os.mkfifo(_history(table).path(CLASSIC)),
        want=ROWS,
    ),
    Case(
        name="a checkpoint of the last possible version",
        build=lambda table: table.write(classic_checkpoint_path(2**63 - 1), _classic(table)[:-9]),
        want=frozenset({BROKEN, "DELTA_VERSIONS_NOT_CONTIGUOUS"}),
    ),
    Case(
        name="a checkpoint without protocol and metadata",
        build=lambda table: _history(table).write(CLASSIC, parquet(ROWS)),
        want=ROWS,
        warns=("protocol",),
    ),
    Case(
        name="a checkpoint without protocol and metadata, the commits gone",
        build=lambda table: (
            _history(table).write(CLASSIC, parquet(ROWS)),
            _without_commits(table),
        ),
        want=BROKEN,
        says=("protocol",),
    ),
]


@pytest.mark.parametrize("case", SEVERAL_FILES, ids=case_id)
def test_a_checkpoint_that_is_not_whole_is_not_used(
    case: Case, tmp_path: Path, guarded: GuardedReader
) -> None:
    check(case, tmp_path, guarded)


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
        want=ROWS,
        warns=("17",),
    ),
    Case(
        name="another size",
        build=lambda table: _checksum(table, tableSizeBytes=17),
        want=ROWS,
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


def test_transactions_of_a_checksum_give_way_to_those_of_the_log(tmp_path: Path) -> None:
    table = BadTable(tmp_path)
    _checksum(table, setTransactions=[{"appId": "liar", "version": 1}])
    snapshot = open_table(str(table.root)).snapshot
    assert snapshot.num_files == 1
    assert snapshot.transactions == {}


# V2 checkpoints and their sidecars.


def _v2(table: BadTable, *sidecars: str, **sidecar: bytes) -> None:
    """A V2 checkpoint in JSON that names `sidecars`; `sidecar` gives files their content."""
    _history(table)
    lines = [
        '{"checkpointMetadata":{"version":2}}',
        V2_PROTOCOL.json,
        metadata().json,
        *(
            json.dumps({"sidecar": {"path": p, "sizeInBytes": 1, "modificationTime": 1}})
            for p in sidecars
        ),
    ]
    table.write(V2_JSON, "\n".join(lines))
    for name, data in sidecar.items():
        table.write(f"_delta_log/_sidecars/{name}.parquet", data)


def _sidecar(path: str = "a.parquet", **more: Any) -> bytes:
    columns = {
        "add": pa.array([{"path": path, "size": 1, "modificationTime": 1, "dataChange": True}])
    }
    return parquet_of(pa.table({**columns, **{k: pa.array([v]) for k, v in more.items()}}))


def _with_link(table: BadTable) -> None:
    _v2(table, "link.parquet")
    table.path("_delta_log/_sidecars").mkdir()
    (table.outside / "s.parquet").write_bytes(_sidecar("../_outside/o.parquet"))
    table.path("_delta_log/_sidecars/link.parquet").symlink_to(table.outside / "s.parquet")


ESCAPES = {
    "climbing": "../../../_outside/o.parquet",
    "climbing, escaped": "..%2F..%2F..%2F_outside%2Fo.parquet",
    "climbing from its directory": "_delta_log/_sidecars/../../../_outside/o.parquet",
    "with a backslash": "..\\..\\..\\_outside\\o.parquet",
    "absolute": "{outside}/o.parquet",
    "a URI": "file://{outside}/o.parquet",
    "another host": "//127.0.0.1/x.parquet",
    "another scheme": "http://127.0.0.1:9/x.parquet",
    "the log directory": "_delta_log/00000000000000000002.json",
    "a data file": "./a.parquet",
    "itself": f"_delta_log/{2:020d}.checkpoint.{UUID}.json",
    "a NUL": "a\0b.parquet",
    "a point": ".",
    "two points": "..",
    "a broken escape": "%zz.parquet",
}


@pytest.mark.parametrize("path", ESCAPES.values(), ids=ESCAPES)
def test_a_sidecar_outside_of_its_directory_is_refused(
    path: str, tmp_path: Path, guarded: GuardedReader
) -> None:
    def build(table: BadTable) -> None:
        _v2(table, path.replace("{outside}", os.fspath(table.outside)))

    check(Case(name="", build=build, want=UNSAFE), tmp_path, guarded)


SIDECARS = [
    Case(name="right", build=lambda t: _v2(t, "s.parquet", s=_sidecar()), want=ROWS),
    Case(
        name="a sidecar is missing",
        build=lambda t: _v2(t, "nobody.parquet"),
        want=ROWS,
        warns=("nobody.parquet",),
    ),
    Case(
        name="a sidecar is damaged",
        build=lambda t: _v2(t, "s.parquet", s=_sidecar()[:-5]),
        want=ROWS,
        warns=("s.parquet",),
    ),
    Case(
        name="a sidecar is named twice",
        build=lambda t: _v2(t, "s.parquet", "_delta_log/_sidecars/s.parquet", s=_sidecar()),
        want=ROWS,
        warns=("twice",),
    ),
    Case(
        name="a sidecar with an empty name",
        build=lambda t: _v2(t, ""),
        want=frozenset({UNSAFE, BROKEN}),
    ),
    Case(name="a sidecar that is a link outside", build=_with_link, want=UNSAFE),
    Case(
        name="a sidecar that names itself",
        build=lambda t: _v2(
            t, "s.parquet", s=_sidecar(sidecar={"path": "s.parquet", "sizeInBytes": 1})
        ),
        want=ROWS,
    ),
    Case(
        name="two sidecars that name each other",
        build=lambda t: _v2(
            t,
            "s.parquet",
            "t.parquet",
            s=_sidecar(sidecar={"path": "t.parquet", "sizeInBytes": 1}),
            t=_sidecar("gone.parquet", sidecar={"path": "s.parquet", "sizeInBytes": 1}),
        ),
        want="DELTA_FILE_NOT_FOUND",
    ),
    Case(
        name="100,000 sidecars that are not there",
        build=lambda t: _v2(t, *(f"s{i}.parquet" for i in range(100_000))),
        want=ROWS,
        asks=False,
    ),
    Case(
        name="no checkpointMetadata",
        build=lambda t: _history(t).write(V2_JSON, V2_PROTOCOL.json),
        want=ROWS,
        warns=("checkpointMetadata",),
    ),
    Case(
        name="half of a line",
        build=lambda t: _history(t).write(V2_JSON, '{"checkpointMetadata":{"version":2}}\n{"pro'),
        want=ROWS,
        warns=("line 2",),
    ),
    Case(
        name="garbage under a Parquet name",
        build=lambda t: _history(t).write(V2_PARQUET, "{"),
        want=ROWS,
        warns=(V2_PARQUET,),
    ),
]


@pytest.mark.parametrize("case", SIDECARS, ids=case_id)
def test_a_bad_v2_checkpoint_is_done_without(
    case: Case, tmp_path: Path, guarded: GuardedReader
) -> None:
    check(case, tmp_path, guarded)
