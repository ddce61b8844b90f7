"""Where in a statement a table is asked for at a version or a time."""

from __future__ import annotations

import pytest

from pyspark_delta.spark.sql.version_names import travelled_names
from pyspark_delta.spark.sql.words import words


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT * FROM t VERSION AS OF 1", ["t"]),
        ("SELECT * FROM a.`b.c` . d FOR SYSTEM_TIME AS OF now()", ["a.b.c.d"]),
        ("SELECT * FROM t -- t\n/* x */ timestamp /* y */ as of '2024'", ["t"]),
        ("SELECT * FROM a VERSION AS OF 1 JOIN b FOR VERSION AS OF 2", ["a", "b"]),
        ("SELECT * FROM t WITH ('a' = 'b', `versionAsOf` = 1) x", ["t"]),
        ("SELECT * FROM t WITH (a = 'versionAsOf ') x", []),
        ("WITH t AS (SELECT 1) SELECT 'VERSION AS OF 1' FROM t", []),
        ("SELECT a.timestamp AS of, b, timestamp AS of FROM t", []),
        ("SELECT * FROM IDENTIFIER('t') VERSION AS OF 1", []),
        ("VERSION AS OF 1", []),
        ("t VERSION AS", []),
        ("", []),
    ],
)
def test_names_before_a_version_or_time_are_found(sql: str, expected: list[str]) -> None:
    found = list(words(sql))
    names = [
        ".".join(word.value for word in found[start:end:2]) for start, end in travelled_names(found)
    ]
    assert names == expected
