"""Random commands on random tables, beside a model that does them row by row.

Most programs are short, more than 2,000 of them: `dml_trees` says how they come cheap.  Few are
wide: such a program runs in many worlds at once, whose rows never meet, with all the files, the
shuffles and the compiled code of a larger table.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_delta import disable, enable
from tests.support.dml_model import random_command
from tests.support.dml_runs import PAYLOADS, Program, random_shape
from tests.support.dml_trees import WORLDS_APART, Node

ROOTS = 20
BRANCHES = (2, 3)
"""What a table is the beginning of: so many first commands, so many second ones after each."""

WORLDS = 50
COMMANDS = 3
WIDE_PROGRAMS = 3


@pytest.fixture
def enabled(spark: SparkSession) -> Iterator[SparkSession]:
    enable(spark)
    yield spark
    disable(spark)


@pytest.fixture
def interpreting(enabled: SparkSession) -> Iterator[SparkSession]:
    """Without compiled code, which takes longer to compile than a few rows take without it."""
    keys = {"wholeStage": "false", "factoryMode": "NO_CODEGEN"}
    before = {key: enabled.conf.get(f"spark.sql.codegen.{key}") for key in keys}
    for key, value in keys.items():
        enabled.conf.set(f"spark.sql.codegen.{key}", value)
    yield enabled
    for key, found in before.items():
        enabled.conf.set(f"spark.sql.codegen.{key}", found or "")


def test_there_are_two_thousand_programs() -> None:
    alone, apart = ROOTS - ROOTS // 2, ROOTS // 2
    assert math.prod(BRANCHES) * (alone + apart * WORLDS_APART) >= 2000


@pytest.mark.parametrize("seed", range(ROOTS))
def test_commands_do_what_the_model_does(
    interpreting: SparkSession, table_path: Path, seed: int
) -> None:
    grow_tree(interpreting, table_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_many_more_commands_do_what_the_model_does(
    interpreting: SparkSession, table_path: Path, seed: int
) -> None:
    grow_tree(interpreting, table_path, seed)


@pytest.mark.parametrize("seed", range(WIDE_PROGRAMS))
def test_commands_on_many_rows_do_what_the_model_does(
    enabled: SparkSession, table_path: Path, seed: int
) -> None:
    run_wide_program(enabled, table_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_many_more_commands_on_many_rows_do_what_the_model_does(
    enabled: SparkSession, table_path: Path, seed: int
) -> None:
    run_wide_program(enabled, table_path, seed)


def grow_tree(spark: SparkSession, path: Path, seed: int) -> None:
    """All programs that begin with one table."""
    rng = random.Random(seed)
    numbers = itertools.count()

    def grow(node: Node, branches: tuple[int, ...]) -> None:
        for _ in range(branches[0] if branches else 0):
            grow(node.grown(path / f"{next(numbers)}", rng), branches[1:])

    # One command for all rows, which may leave files out; or one for each world.
    shape = random_shape(rng, payload=sorted(PAYLOADS)[seed % len(PAYLOADS)])
    root = Node.planted(spark, path / "root", rng, shape, is_apart=seed % 2 == 1)
    grow(root, BRANCHES)


def run_wide_program(spark: SparkSession, path: Path, seed: int) -> None:
    """Some commands on one table of many worlds."""
    rng = random.Random(seed)
    program = Program(spark, path, rng, WORLDS)
    for _ in range(COMMANDS):
        program.step(random_command(rng, program.worlds, program.payload))
