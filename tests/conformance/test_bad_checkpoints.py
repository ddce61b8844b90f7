"""Bad checkpoints: none of them is needed while the commits are there."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pyspark_delta.kernel.protocol.paths import (
    classic_checkpoint_path,
    multipart_checkpoint_path,
)
from tests.support.bad_tables import (
    MEGABYTE,
    ROWS,
    BadTable,
    Case,
    add_a,
    case_id,
    check,
    parquet,
    parquet_of,
    with_history,
    without_commits,
)
from tests.support.checkpoints import checkpoint
from tests.support.guarded import GuardedReader
from tests.support.log_builder import add, remove

BROKEN = "DELTA_MALFORMED_CHECKPOINT"
CLASSIC = classic_checkpoint_path(2)
Damage = Callable[[bytes], bytes]


def _classic(table: BadTable) -> bytes:
    with_history(table)
    checkpoint(table.store)
    return table.path(CLASSIC).read_bytes()


def _footer_length(data: bytes, length: int) -> bytes:
    return data[:-8] + length.to_bytes(4, "little") + b"PAR1"


def _changed(change: Callable[[pa.Table], pa.Table]) -> Damage:
    """The same checkpoint with another content."""
    return lambda data: parquet_of(change(_table(data)))


def _table(data: bytes) -> pa.Table:
    return pq.read_table(pa.BufferReader(data))


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


@cache
def _bomb() -> bytes:
    """A checkpoint of nothing but nulls: kilobytes in a file, gigabytes in memory."""
    fields = [("path", pa.string()), ("size", pa.int64()), ("stats", pa.string())]
    data = parquet_of(pa.table({"add": pa.nulls(50_000_000, pa.struct(fields))}))
    assert len(data) < MEGABYTE
    return data


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
    "50,000,000 rows of null": lambda data: _bomb(),
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
        without_commits(table)

    check(Case(name="", build=build, want=BROKEN, says=(CLASSIC,)), tmp_path, guarded)


def _named_without_commits(table: BadTable) -> None:
    """A hint at a checkpoint that is missing, while another one is there."""
    _classic(table)
    table.commit(remove("nobody"))
    table.write("_delta_log/_last_checkpoint", '{"version":3,"size":5}')
    without_commits(table)


def _multipart(table: BadTable) -> list[Path]:
    table.create(*(add(f"gone{i}.parquet") for i in range(4)))
    table.commit(add_a())
    table.commit(*(remove(f"gone{i}.parquet") for i in range(4)))
    checkpoint(table.store, part_size=2)
    return sorted(table.path("_delta_log").glob("*.checkpoint.*"))


def _parts_of_a_billion(table: BadTable) -> None:
    with_history(table)
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
        build=lambda table: with_history(table).path(CLASSIC).mkdir(),
        want=ROWS,
    ),
    Case(
        name="a checkpoint that is a pipe",
        build=lambda table: os.mkfifo(with_history(table).path(CLASSIC)),
        want=ROWS,
    ),
    Case(
        name="a checkpoint of the last possible version",
        build=lambda table: table.write(classic_checkpoint_path(2**63 - 1), _classic(table)[:-9]),
        want=frozenset({BROKEN, "DELTA_VERSIONS_NOT_CONTIGUOUS"}),
    ),
    Case(
        name="a checkpoint without protocol and metadata",
        build=lambda table: with_history(table).write(CLASSIC, parquet(ROWS)),
        want=ROWS,
        warns=("protocol",),
    ),
    Case(
        name="a checkpoint without protocol and metadata, the commits gone",
        build=lambda table: (
            with_history(table).write(CLASSIC, parquet(ROWS)),
            without_commits(table),
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
