"""The same table optimized by both engines: the same files, rows, history and results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.interop.engines import Engine, Pair, table
from tests.interop.samples import sampled
from tests.support.peer import PeerError

ROWS = """
SELECT id, id % 3 AS p, abs(xxhash64(1, id)) % 1000 AS a, abs(xxhash64(2, id)) % 1000 AS b,
       concat('v', id) AS v FROM range({start}, {end})
"""
# What differs from run to run: sizes of files, and the time.
_VARYING = ("startTimeMs", "min", "max", "avg", "totalSize", "size", "totalClusterParallelism")
STEPS: dict[str, list[str]] = {
    "compaction": ["OPTIMIZE {t} WHERE p = 1", "OPTIMIZE {t}", "OPTIMIZE {t}"],
    "z-order": ["OPTIMIZE {t} ZORDER BY (a, b)", "OPTIMIZE {t} WHERE p >= 1 ZORDER BY v"],
    "vectors": [
        "DELETE FROM {t} WHERE id IN (1, 5, 17)",
        "REORG TABLE {t} WHERE p = 1 APPLY (PURGE)",
        "REORG TABLE {t} APPLY (PURGE)",
        "OPTIMIZE {t}",
    ],
    "clustering": ["OPTIMIZE {t}", "OPTIMIZE {t} FULL"],
}
FAILING = {
    "compaction": [
        ("OPTIMIZE {t} WHERE v = 'x'", "DELTA_NON_PARTITION_COLUMN_REFERENCE"),
        (
            "OPTIMIZE {t} WHERE p IN (SELECT 1)",
            "DELTA_UNSUPPORTED_SUBQUERY_IN_PARTITION_PREDICATES",
        ),
        ("OPTIMIZE {t} WHERE p =", "DELTA_FAILED_RECOGNIZE_PREDICATE"),
        ("OPTIMIZE {t} FULL", "DELTA_OPTIMIZE_FULL_NOT_SUPPORTED"),
        ("OPTIMIZE {t} ZORDER BY p", "DELTA_ZORDERING_ON_PARTITION_COLUMN"),
        ("OPTIMIZE {t} ZORDER BY nobody", "DELTA_ZORDERING_COLUMN_DOES_NOT_EXIST"),
        ("OPTIMIZE {t} ZORDER BY ()", "PARSE_SYNTAX_ERROR"),
    ],
    "clustering": [
        ("OPTIMIZE {t} WHERE a = 1", "DELTA_CLUSTERING_WITH_PARTITION_PREDICATE"),
        ("OPTIMIZE {t} ZORDER BY a", "DELTA_CLUSTERING_WITH_ZORDER_BY"),
    ],
}
_RESULT = """
frame = spark.sql(sql)
result = [frame.schema.json(), [row.asDict(True) for row in frame.collect()]]
"""
_FILES = """
from pyspark_delta import DeltaLog
files = DeltaLog.for_table(path).update().files
result = [files.num_rows, sorted(map(str, files.column("clusteringProvider").to_pylist()))]
"""


def make(engine: Engine, path: Path, kind: str) -> None:
    """A table of three commits, each a file for each partition."""
    if kind == "clustering":
        columns = "id LONG, p LONG, a LONG, b LONG, v STRING"
        engine.sql(f"CREATE TABLE {table(path)} ({columns}) USING delta CLUSTER BY (a, b)")
    options = {"delta_enableDeletionVectors": "true"} if kind == "vectors" else {}
    for start in (0, 10, 20):
        partitions = [] if kind == "clustering" else ["p"]
        query = ROWS.format(start=start, end=start + 10)
        engine.write(query, path, partition_by=partitions, **options)


def told(engine: Engine, sql: str) -> Any:
    """The result's schema and row, without what no two runs share."""
    schema, [row] = engine.python(_RESULT, sql=sql)
    return json.loads(schema), _steady(row["metrics"])


def _steady(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: _steady(item) for key, item in value.items() if key not in _VARYING}


def condition(engine: Engine, sql: str) -> str | None:
    """The error class that a statement ends with."""
    try:
        engine.sql(sql)
    except PeerError as error:
        return error.condition
    except Exception as error:
        found = getattr(error, "condition", None)
        return found or error.getCondition()  # type: ignore[attr-defined, no-any-return]
    return None


@pytest.mark.parametrize("kind", sampled("compaction", STEPS))
def test_both_leave_the_same_files_rows_and_history(pair: Pair, tmp_path: Path, kind: str) -> None:
    ours, theirs = tmp_path / "öurs 1%", tmp_path / "theirs"
    for engine, path in ((pair.ours, ours), (pair.theirs, theirs)):
        make(engine, path, kind)
    for step in STEPS[kind]:
        if step.startswith("DELETE"):
            for engine, path in ((pair.ours, ours), (pair.theirs, theirs)):
                engine.sql(step.format(t=table(path)))
            continue
        mine = told(pair.ours, step.format(t=table(ours)))
        other = told(pair.theirs, step.format(t=table(theirs)))
        assert mine == other, step
    assert pair.agree(ours).rows == pair.agree(theirs).rows
    both = zip(_history(pair, ours), _history(pair, theirs), strict=True)
    assert [each for each in both if each[0] != each[1]] == []
    assert pair.ours.python(_FILES, path=ours) == pair.ours.python(_FILES, path=theirs)
    for sql, expected in FAILING.get(kind, []):
        assert condition(pair.ours, sql.format(t=table(ours))) == expected, sql
        assert condition(pair.theirs, sql.format(t=table(theirs))) == expected, sql


@pytest.mark.slow
def test_each_goes_on_where_the_other_left_a_clustered_table(pair: Pair, tmp_path: Path) -> None:
    path = tmp_path / "böth 1%"
    make(pair.ours, path, "clustering")
    pair.ours.sql(f"OPTIMIZE {table(path)}")
    # One cube, by whomever: there is nothing to do.
    _, metrics = told(pair.theirs, f"OPTIMIZE {table(path)}")
    assert (metrics["numBins"], metrics["clusteringStats"]["inputNumZCubes"]) == (0, 1)
    pair.theirs.write(ROWS.format(start=30, end=40), path)
    pair.theirs.sql(f"OPTIMIZE {table(path)}")
    pair.ours.write(ROWS.format(start=40, end=50), path)
    _, metrics = told(pair.ours, f"OPTIMIZE {table(path)}")
    assert (metrics["numFilesRemoved"], metrics["numFilesAdded"]) == (2, 1)
    assert len(pair.agree(path).rows) == 50


def _history(pair: Pair, path: Path) -> list[dict[str, Any]]:
    found = pair.theirs.history(path)
    for commit in found:
        metrics = commit["operationMetrics"]
        commit["operationMetrics"] = {
            key: "*" if key.endswith("FileSize") else value for key, value in metrics.items()
        }
    return [commit for commit in found if commit["operation"] in ("OPTIMIZE", "REORG")]
