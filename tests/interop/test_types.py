"""Values of every type, at their ends, come out of the other engine as they went in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.engines import Engine, Pair
from tests.interop.rows import NESTED, TYPES, conditions, query
from tests.support.canonical import json_rows

ALL = {**TYPES, **NESTED}


def test_every_type_reads_the_same_whoever_wrote_it(
    pair: Pair, writer: Engine, table_path: Path
) -> None:
    writer.write(query(ALL), table_path)
    found = pair.agree(table_path)
    assert found.rows == json_rows(pair.ours.spark.sql(query(ALL)), sort=True)


@pytest.mark.slow
def test_files_are_skipped_alike_whoever_wrote_the_statistics(
    pair: Pair, writer: Engine, table_path: Path
) -> None:
    for number in range(3):
        writer.write(f"SELECT * FROM ({query(TYPES)}) WHERE id = {number}", table_path)
    asked = conditions(TYPES)
    expected = pair.ours.spark.sql(query(TYPES))
    for condition, found in zip(asked, pair.agree_on(table_path, asked), strict=True):
        assert (condition, found) == (condition, expected.where(condition).count())
