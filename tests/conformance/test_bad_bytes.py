"""Any byte of a table's files changed, cut or lost: right rows, or a typed error.

Every file of the log, a deletion vector and a data file are damaged at random, from a seed that
the test's name shows.  Wrong rows are allowed only where the damaged file is not protected by a
checksum and is still a legal one that says something else.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pyspark_delta.kernel.protocol.paths import checksum_path, commit_path
from tests.support.bad_tables import MEGABYTE, BadTable, fingerprint
from tests.support.damage import (
    RIGHT,
    damages,
    with_checkpoint,
    with_checksum,
    with_compaction,
    with_vectors,
)
from tests.support.guarded import GuardedReader


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
