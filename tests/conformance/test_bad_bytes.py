"""Any byte of a table's files changed, cut or lost: right rows, or a typed error.

Every file of the log, a deletion vector and a data file are damaged at random, from a seed that
the test's name shows.  Wrong rows are allowed only where the damaged file is not protected by a
checksum and is still a legal one that says something else.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from pyspark_delta.kernel.log.checksum import checksum_of, write_checksum
from pyspark_delta.kernel.log.compaction import write_compaction
from pyspark_delta.kernel.log.last_checkpoint import write_last_checkpoint
from pyspark_delta.kernel.protocol.actions import Protocol
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector, pack_deletion_vectors
from pyspark_delta.kernel.protocol.paths import checksum_path, commit_path
from tests.support.bad_tables import MEGABYTE, ROWS, BadTable, add_a, fingerprint
from tests.support.checkpoints import checkpoint, snapshot_at
from tests.support.guarded import GuardedReader
from tests.support.log_builder import add, remove

FEATURES = ("deletionVectors", "v2Checkpoint")
PROTOCOL = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=FEATURES,
    writer_features=FEATURES,
)
ID = UUID("9c2f4a10-1111-4222-8333-abcdefabcdef")
VECTORS = pack_deletion_vectors([DeletionVector([1]), DeletionVector([0, 2])], next_id=lambda: ID)
MORE = [{"id": 10, "v": "x"}, {"id": 11, "v": None}, {"id": 12, "v": "ü"}]
RIGHT = sorted([ROWS[0], ROWS[2], MORE[1]], key=repr)


def with_vectors(table: BadTable, **configuration: str) -> None:
    """Four versions whose rows are RIGHT: two files, each with a vector in one file."""
    table.write(VECTORS[0].path, VECTORS[0].data)
    table.data("b %.parquet", MORE)
    first, second = VECTORS[0].descriptors
    a = add_a(stats='{"numRecords":3,"minValues":{"id":1},"maxValues":{"id":3}}')
    b = add("b%20%25.parquet", size=7, tags={"k": "ü"})
    table.create(a, add("gone.parquet"), protocol=PROTOCOL, configuration=configuration)
    table.commit('{"commitInfo":{"operation":"WRITE"}}', b, remove("gone.parquet"))
    table.commit(replace(a, deletion_vector=first), remove("a.parquet"))
    table.commit(
        replace(b, deletion_vector=second),
        remove(b.path),
        '{"txn":{"appId":"app","version":7}}',
        '{"domainMetadata":{"domain":"d","configuration":"{}","removed":false}}',
    )


def with_checksum(table: BadTable) -> None:
    with_vectors(table)
    snapshot = snapshot_at(table.store)
    checksum = checksum_of(
        snapshot.files,
        protocol=snapshot.protocol,
        metadata=snapshot.metadata,
        transactions=snapshot.transactions.values(),
        domains=snapshot.domains.values(),
    )
    assert write_checksum(table.store, 3, checksum)


def with_checkpoint(table: BadTable, *, keep: bool = False, **options: Any) -> None:
    policy = {"delta.checkpointPolicy": "v2"} if "v2_format" in options else {}
    with_vectors(table, **policy)
    write_last_checkpoint(table.store, checkpoint(table.store, **options))
    for version in range(0 if keep else 3):
        table.path(commit_path(version)).unlink()


def with_compaction(table: BadTable) -> None:
    with_vectors(table)
    write_compaction(table.store, 1, 3)


@dataclass(frozen=True, slots=True)
class Target:
    """A file to damage: the table it is in, how to find it, and whether damage can go unseen."""

    name: str
    build: Callable[[BadTable], None]
    pattern: str
    is_protected: bool  # then the rows are right, or there is an error


TARGETS = [
    Target("the first commit", with_vectors, commit_path(0), False),
    Target("a later commit", with_vectors, commit_path(3), False),
    Target("a compaction", with_compaction, "_delta_log/*.compacted.json", False),
    Target("a checksum", with_checksum, checksum_path(3), True),
    Target("a hint", with_checkpoint, "_delta_log/_last_checkpoint", True),
    Target(
        "a hint, commits there",
        lambda t: with_checkpoint(t, keep=True),
        "_delta_log/_last_checkpoint",
        True,
    ),
    Target("a checkpoint", with_checkpoint, "_delta_log/*.checkpoint*.parquet", False),
    Target(
        "a checkpoint, commits there",
        lambda t: with_checkpoint(t, keep=True),
        "_delta_log/*.checkpoint*.parquet",
        False,
    ),
    Target(
        "a V2 checkpoint in JSON",
        lambda t: with_checkpoint(t, v2_format="json"),
        "_delta_log/*.checkpoint.*.json",
        False,
    ),
    Target(
        "a V2 checkpoint in Parquet",
        lambda t: with_checkpoint(t, v2_format="parquet"),
        "_delta_log/*.checkpoint.*.parquet",
        False,
    ),
    Target(
        "a sidecar",
        lambda t: with_checkpoint(t, v2_format="json"),
        "_delta_log/_sidecars/*.parquet",
        False,
    ),
    Target("a vector", with_vectors, "*.bin", True),
    Target("a data file", with_vectors, "a.parquet", False),
]


def damages(data: bytes, random: random.Random) -> Iterator[bytes]:
    """The same bytes, damaged in another way each time."""
    while True:
        at, length = random.randrange(len(data)), min(random.choice((1, 2, 8, 64)), len(data))
        noise = random.randbytes(length)
        yield random.choice(
            (
                data[:at] + bytes([data[at] ^ (1 << random.randrange(8))]) + data[at + 1 :],
                data[:at] + bytes([random.choice((0, 1, 0x7F, 0x80, 0xFF))]) + data[at + 1 :],
                data[:at] + noise + data[at + length :],
                data[:at] + bytes(length) + data[at + length :],
                data[:at] + data[at + length :],
                data[:at] + noise + data[at:],
                data[:at] + data[at : at + length] + data[at:],
                data[:at],
                data[at:],
            )
        )


@pytest.mark.parametrize(
    "times", [pytest.param(40, id="40 times"), pytest.param(2_000, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_damage_gives_right_rows_or_a_typed_error(
    target: Target, times: int, tmp_path: Path, guarded: GuardedReader
) -> None:
    table = BadTable(tmp_path)
    target.build(table)
    assert guarded.read(table.root).rows == RIGHT
    (path,) = table.root.glob(target.pattern)
    before = fingerprint(table.root)
    whole = path.read_bytes()
    stream = damages(whole, random.Random(target.name))
    for number in range(times):
        path.write_bytes(damaged := next(stream))
        outcome = guarded.read(table.root, asks=number % 10 == 0)
        seen = f"damage {number} of {target.name}: {damaged[:2000]!r}, {outcome.message}"
        if outcome.error is not None:
            assert outcome.condition is not None, seen
        elif target.is_protected:
            assert outcome.rows == RIGHT, seen
        assert outcome.untyped == [], seen
        assert outcome.opened == outcome.connected == [], seen
        assert outcome.peak_bytes < 512 * MEGABYTE, seen
    path.write_bytes(whole)
    assert fingerprint(table.root) == before
    assert guarded.read(table.root).rows == RIGHT
