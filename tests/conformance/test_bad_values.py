"""Any value in any place of the log's JSON: rows, or a typed error, and nothing else.

Where `test_bad_bytes` breaks JSON, this keeps it whole and puts a value of another kind, or
nothing, in the place of each that there is.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_delta.kernel.log.last_checkpoint import json_checksum
from pyspark_delta.kernel.protocol.paths import checksum_path, commit_path
from tests.support.bad_tables import MEGABYTE, BadTable
from tests.support.damage import RIGHT, with_checkpoint, with_checksum, with_vectors
from tests.support.guarded import GuardedReader

GONE = object()
VALUES: list[Any] = [
    GONE,
    None,
    True,
    0,
    -1,
    1.5,
    2**31,
    2**63 - 1,
    2**63,
    10**400,
    float("inf"),
    float("nan"),
    "",
    "x",
    "\0",
    "\ud800",
    "../../x",
    "%",
    "é" * 10_000,
    [],
    [None],
    ["x"],
    {},
    {"x": None},
    {"": [{}]},
    "[" * 10_000,
]
Place = tuple[str | int, ...]


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    """Where there is something in a JSON value."""
    yield at
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*at, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*at, index))


def replaced(value: Any, at: Place, by: Any) -> Any:
    """`value` with another one at one place."""
    if not at:
        return {} if by is GONE else by
    changed = copy.deepcopy(value)
    inner = changed
    for step in at[:-1]:
        inner = inner[step]
    if by is GONE:
        del inner[at[-1]]
    else:
        inner[at[-1]] = by
    return changed


def variants(lines: list[Any]) -> list[tuple[int, Place, Any]]:
    """Everything that can be changed: in which line, where, and to what."""
    return [
        (number, place, value)
        for number, line in enumerate(lines)
        for place in places(line)
        for value in VALUES
    ]


def _hint(text: str) -> str:
    """The hint with a right checksum, so that its values are looked at."""
    value = json.loads(text)
    if not isinstance(value, dict):
        return text
    value.pop("checksum", None)
    try:
        return json.dumps({**value, "checksum": json_checksum(value)})
    except (ValueError, UnicodeError):
        return text


TARGETS = {
    "the first commit": (with_vectors, commit_path(0)),
    "the last commit": (with_vectors, commit_path(3)),
    "a checksum": (with_checksum, checksum_path(3)),
    "a hint": (with_checkpoint, "_delta_log/_last_checkpoint"),
    "a V2 checkpoint": (
        lambda table: with_checkpoint(table, v2_format="json"),
        "_delta_log/*.checkpoint.*.json",
    ),
}


@pytest.mark.parametrize("times", [60, pytest.param(3_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", TARGETS)
def test_any_value_in_any_place_gives_rows_or_a_typed_error(
    name: str, times: int, tmp_path: Path, guarded: GuardedReader
) -> None:
    build, pattern = TARGETS[name]
    table = BadTable(tmp_path)
    build(table)
    (path,) = table.root.glob(pattern)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = variants(lines)
    for count, variant in enumerate(random.Random(name).sample(found, min(times, len(found)))):
        number, place, value = variant
        changed = [*lines[:number], replaced(lines[number], place, value), *lines[number + 1 :]]
        text = "\n".join(json.dumps(item) for item in changed)
        path.write_text(_hint(text) if name == "a hint" else text)
        outcome = guarded.read(table.root, asks=count % 10 == 0)
        seen = f"line {number}, {place} = {str(value)[:40]!r}: {outcome.message}"
        assert outcome.error is None or outcome.condition is not None, seen
        assert outcome.untyped == [], seen
        assert outcome.opened == outcome.connected == [], seen
        assert outcome.peak_bytes < 256 * MEGABYTE, seen
        if name in ("a hint", "a checksum") and outcome.error is None:
            assert outcome.rows == RIGHT, seen
