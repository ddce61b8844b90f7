"""A notebook of mixed SQL and DataFrame code runs the same here and on delta-spark.

Each cell leaves what it would show in `result`; both engines run all cells, each in a database and
a directory of its own, and every result must be the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.interop.engines import Engine, Pair
from tests.support.notebook import CELLS, PRELUDE
from tests.support.peer import PeerError

pytestmark = pytest.mark.slow


@pytest.fixture
def db(pair: Pair) -> Iterator[str]:
    name = f"db_{uuid4().hex[:12]}"
    for engine in (pair.ours, pair.theirs):
        engine.sql(f"CREATE DATABASE {name}")
        engine.sql(f"USE {name}")
    yield name
    for engine in (pair.ours, pair.theirs):
        engine.sql("USE default")
        engine.sql(f"DROP DATABASE {name} CASCADE")
        for view in ("last_day", "news"):
            engine.sql(f"DROP VIEW IF EXISTS {view}")


def shown(engine: Engine, code: str, home: Path, db: str) -> Any:
    try:
        return engine.python(PRELUDE + code, home=str(home), db=db)
    except PeerError as error:
        return f"failed: {error}"
    except Exception as error:
        return f"failed: {type(error).__name__}: {error}"


def test_a_notebook_shows_the_same_here_and_there(pair: Pair, db: str, table_path: Path) -> None:
    different = []
    for title, code in CELLS.items():
        ours = shown(pair.ours, code, table_path / "ours", db)
        theirs = shown(pair.theirs, code, table_path / "theirs", db)
        if ours != theirs or str(ours).startswith("failed"):
            different.append(f"{title}\n  ours   {ours}\n  theirs {theirs}")
    assert not different, "\n".join(different)
