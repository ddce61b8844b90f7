"""Tables of known rows with every kind of file that a log can have, and ways to break one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

from pyspark_delta.kernel.log.checksum import checksum_of, write_checksum
from pyspark_delta.kernel.log.compaction import write_compaction
from pyspark_delta.kernel.log.last_checkpoint import write_last_checkpoint
from pyspark_delta.kernel.protocol.actions import Protocol
from pyspark_delta.kernel.protocol.deletion_vectors import DeletionVector, pack_deletion_vectors
from pyspark_delta.kernel.protocol.paths import commit_path
from tests.support.bad_tables import ROWS, BadTable, add_a
from tests.support.checkpoints import checkpoint, snapshot_at
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
