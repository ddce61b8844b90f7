"""Statements that are refused, here and there for the same reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.interop.engines import Engine, Pair
from tests.interop.refused import SCRIPTS, TABLES
from tests.interop.test_sql_ddl import outcome
from tests.support.peer import PeerError

pytestmark = pytest.mark.slow

_UDF = "spark.udf.register('own_udf', lambda value: value, 'int')"
# PySpark knows no condition of some of Java's errors, and Spark not all of Delta's in a MERGE.
_CONDITION = re.compile(r"\[(DELTA_[\w.]+)\]|Cannot find main error class '(\w+)'")


def told(engine: Engine, text: str, home: Path) -> tuple[str, Any]:
    """As `outcome`; a condition that only the text of an error tells counts as well."""
    found = outcome(engine, text, home)
    if found != ("error", None):
        return found
    with pytest.raises(PeerError) as caught:
        engine.sql(text)
    named = _CONDITION.search(str(caught.value))
    return ("error", None if named is None else named[1] or named[2])


def is_same(ours: tuple[str, Any], theirs: tuple[str, Any]) -> bool:
    """Whether both say the same; where one tells more of a condition, what both tell counts."""
    if ours[0] != "error" or theirs[0] != "error":
        return ours == theirs
    one, other = ours[1] or "", theirs[1] or ""
    return one == other or one.partition(".")[0] == other or one == other.partition(".")[0]


@pytest.mark.parametrize("script", SCRIPTS)
def test_refused_statements_have_the_same_condition(
    pair: Pair, db: str, table_path: Path, script: str
) -> None:
    for engine in (pair.ours, pair.theirs):
        engine.python(_UDF)
        for text in TABLES:
            engine.sql(text)
    different = []
    for step in SCRIPTS[script]:
        text, own_condition = step if isinstance(step, tuple) else (step, None)
        found = {}
        for who, engine in (("ours", pair.ours), ("theirs", pair.theirs)):
            home = table_path / who
            found[who] = told(engine, text.format(home=home, db=db), home)
        if own_condition is not None and found["theirs"][0] == "error":
            found["theirs"] = ("error", own_condition)
        if not is_same(found["ours"], found["theirs"]):
            different.append(f"{text}\n  ours   {found['ours']}\n  theirs {found['theirs']}")
    assert not different, "\n".join(different)
