"""Random statements by both engines: the same rows, changes and results, or a refusal by both.

Of two reasons to refuse a statement an engine may tell either, so conditions are not compared here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.interop.engines import Pair
from tests.interop.random_statements import script

STEPS = 6
SAMPLE = (3, 104)
RUN = """
from tests.interop import random_statements
result = random_statements.run(spark, seed, steps, path)
"""


@pytest.mark.parametrize("seed", SAMPLE)
def test_both_engines_do_the_same(pair: Pair, table_path: Path, seed: int) -> None:
    check_script(pair, table_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 260))
def test_both_engines_do_the_same_in_many_more_cases(
    pair: Pair, table_path: Path, seed: int
) -> None:
    check_script(pair, table_path, seed)


def check_script(pair: Pair, path: Path, seed: int) -> None:
    """Run a script by both, and compare what each of its statements left behind."""
    ours, theirs = (
        engine.python(RUN, seed=seed, steps=STEPS, path=path / name)
        for name, engine in (("ours", pair.ours), ("theirs", pair.theirs))
    )
    settings = script(seed, STEPS).conf
    for own, other in zip(ours, theirs, strict=True):
        story = f"{ours[0]['text']}\n{own['text']}\n{settings}"
        assert _left(own) == _left(other), f"{story}\n{own.get('said')}\n{other.get('said')}"


def _left(told: dict[str, Any]) -> dict[str, Any]:
    kept = {key: told.get(key) for key in ("gave", "schema", "rows", "changes")}
    return {**kept, "is_refused": "error" in told}
