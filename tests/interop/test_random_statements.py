"""Random statements by both engines: the same rows, changes, results and refusals."""

from __future__ import annotations

STEPS = 6
RUN = """
from tests.interop import random_statements
result = random_statements.run(spark, seed, steps, path)
"""
