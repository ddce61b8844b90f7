"""The same script run by both engines: each commit says the same, and both read it so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.interop import steps
from tests.interop.engines import Engine, Pair

pytestmark = pytest.mark.slow
RUN = """
from tests.interop import steps
chosen = getattr(steps, script)
result = steps.run(spark, DeltaTable, chosen if only is None else {only: chosen[only]}, target)
"""
LOCATION = "result = DeltaTable.forName(spark, name).detail().first().location"
TOLD = """
import json
from tests.support.canonical import json_rows
table = DeltaTable.forPath(spark, path)
result = [json.loads(row) for row in json_rows(table.history()) + json_rows(table.detail())]
"""


def run(engine: Engine, script: str, target: Path | str, only: str | None = None) -> dict[str, int]:
    """Take the steps of a script; the version after each of them."""
    found: dict[str, int] = engine.python(RUN, script=script, target=target, only=only)
    return found


def location(engine: Engine, name: str) -> str:
    found: str = engine.python(LOCATION, name=name)
    return found.removeprefix("file:")


def assert_same_story(pair: Pair, ours: str | Path, theirs: str | Path) -> None:
    """Each commit of one table says of itself what the other's says, and both are read alike."""
    commits = zip(pair.theirs.history(ours), pair.theirs.history(theirs), strict=True)
    assert [both for both in commits if both[0] != both[1]] == []
    for path in (ours, theirs):
        told = [engine.python(TOLD, path=path) for engine in (pair.ours, pair.theirs)]
        assert [both for both in zip(*told, strict=True) if both[0] != both[1]] == []


@pytest.fixture
def name(pair: Pair) -> Iterator[str]:
    """A table that both drop in the end."""
    name = f"t_{uuid4().hex[:12]}"
    yield name
    for engine in (pair.ours, pair.theirs):
        engine.sql(f"DROP TABLE IF EXISTS {name}")


def test_writes_by_path_leave_the_same_history(pair: Pair, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "öurs 1%", tmp_path / "theirs"
    assert run(pair.ours, "BY_PATH", ours) == run(pair.theirs, "BY_PATH", theirs)
    assert_same_story(pair, ours, theirs)


def test_writes_by_name_leave_the_same_history(pair: Pair, name: str) -> None:
    assert run(pair.ours, "BY_NAME", name) == run(pair.theirs, "BY_NAME", name)
    assert_same_story(pair, location(pair.ours, name), location(pair.theirs, name))


@pytest.mark.parametrize("step", steps.NEW)
def test_new_tables_begin_the_same_history(pair: Pair, name: str, step: str) -> None:
    for engine in (pair.ours, pair.theirs):
        assert run(engine, "NEW", name, step) == {step: 0}
    assert_same_story(pair, location(pair.ours, name), location(pair.theirs, name))
