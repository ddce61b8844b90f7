"""Random commands on random tables, beside a model that does them row by row.

A program runs in many worlds at once: rows of different worlds never meet, so each world is a
case of its own, at the cost of one command.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_delta import disable, enable
from tests.support.dml_model import random_command
from tests.support.dml_runs import Program

WORLDS = 50
COMMANDS = 3
PROGRAMS = 40
"""Times `WORLDS` cases."""


@pytest.fixture
def enabled(spark: SparkSession) -> Iterator[SparkSession]:
    enable(spark)
    yield spark
    disable(spark)


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_commands_do_what_the_model_does(
    enabled: SparkSession, table_path: Path, seed: int
) -> None:
    run_program(enabled, table_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_many_more_commands_do_what_the_model_does(
    enabled: SparkSession, table_path: Path, seed: int
) -> None:
    run_program(enabled, table_path, seed)


def run_program(spark: SparkSession, path: Path, seed: int) -> None:
    """Some commands on one table."""
    rng = random.Random(seed)
    program = Program(spark, path, rng, WORLDS)
    for _ in range(COMMANDS):
        program.step(random_command(rng, program.worlds, program.payload))
