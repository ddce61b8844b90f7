"""Every operation: delta-spark's parameters and metrics in the history, commit by commit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from pyspark_delta.kernel.protocol.operation_kinds import OPERATIONS
from tests.interop.engines import Pair
from tests.interop.operations import ELSEWHERE, NOT_BY_STATEMENTS, SCRIPTS
from tests.interop.samples import sampled

RUN = """
from tests.interop import operations
operations.run(spark, DeltaTable, operations.SCRIPTS[script], target)
"""
# delta-spark names five metrics of it and fills in one; we fill in all.
FILLED_IN_PART = ("REMOVE COLUMN MAPPING",)
LOCATION = "result = DeltaTable.forName(spark, name).detail().first().location"
# How a plan tells columns of one name apart.
_NUMBERED = re.compile(r"#\d+L?")
_DRAWN = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@pytest.fixture
def name(pair: Pair) -> Iterator[str]:
    """A table that both drop in the end."""
    name = f"t_{uuid4().hex[:12]}"
    yield name
    for engine in (pair.ours, pair.theirs):
        engine.sql(f"DROP TABLE IF EXISTS {name}")


def history(pair: Pair, path: str) -> list[dict[str, Any]]:
    """What commits say of themselves, but for places, sizes and what is drawn by lot."""
    return [_settled(commit, path) for commit in pair.theirs.history(path)]


def _settled(commit: dict[str, Any], path: str) -> dict[str, Any]:
    parameters = {
        key: None if value is None else _value(_plain(value.replace(path, "HOME")))
        for key, value in (commit["operationParameters"] or {}).items()
    }
    metrics = {
        key: "*" if "Size" in key or "Bytes" in key else value
        for key, value in commit["operationMetrics"].items()
    }
    return {**commit, "operationParameters": parameters, "operationMetrics": metrics}


def _plain(text: str) -> str:
    return _NUMBERED.sub("", _DRAWN.sub("*", text))


def _value(text: str) -> Any:
    """JSON as what it says; features of a protocol are a set."""
    if not text.startswith(("[", "{")):
        return text
    value = json.loads(text)
    if isinstance(value, dict) and "minReaderVersion" in value:
        return {key: sorted(v) if isinstance(v, list) else v for key, v in value.items() if v}
    if isinstance(value, list) and all(isinstance(each, dict) for each in value):
        return sorted(value, key=str)  # Scala keeps changed columns in the order of their hashes
    return value


def differences(
    ours: list[dict[str, Any]], theirs: list[dict[str, Any]]
) -> Iterator[tuple[str, str, Any, Any]]:
    """Where two histories differ: the commit, the field, and what each has there."""
    for number, (mine, other) in enumerate(zip_longest(ours, theirs, fillvalue={})):
        for key in sorted({*mine, *other}):
            found, wanted = mine.get(key), other.get(key)
            if key == "operationMetrics" and mine.get("operation") in FILLED_IN_PART:
                found = {metric: found[metric] for metric in wanted or () if metric in found}
            if found != wanted:
                yield f"{number} {mine.get('operation')}", key, found, wanted


@pytest.mark.parametrize("script", sampled("properties", SCRIPTS))
def test_every_operation_leaves_the_same_history(
    pair: Pair, tmp_path: Path, name: str, script: str
) -> None:
    found = []
    for engine, home in ((pair.ours, "öurs 1%"), (pair.theirs, "thëirs 1%")):
        target = name if SCRIPTS[script].named else str(tmp_path / home)
        engine.python(RUN, script=script, target=target)
        if SCRIPTS[script].named:
            target = engine.python(LOCATION, name=name).removeprefix("file:")
        found.append(history(pair, target))
    mine, their_own = found
    assert list(differences(mine, their_own)) == []
    assert {commit["operation"] for commit in mine} >= set(SCRIPTS[script].leaves)


def test_every_operation_is_compared() -> None:
    compared = {name for script in SCRIPTS.values() for name in script.leaves}
    assert compared | set(ELSEWHERE) | NOT_BY_STATEMENTS == set(OPERATIONS)
    assert not compared & NOT_BY_STATEMENTS
