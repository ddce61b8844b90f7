"""`t VERSION AS OF 3` in a statement: the name under which Spark can find an older version.

Spark refuses time travel for every table of its own catalog.  In our catalog of paths the same
table has a name for which it does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pyspark.sql import SparkSession

from pyspark_delta.spark.catalog import look_up_relation
from pyspark_delta.spark.jvm.path_catalog import PATH_CATALOG
from pyspark_delta.spark.sql.words import Word, words

_LIKELY = re.compile(r"\bAS\s+OF\b|\b(?:version|timestamp)AsOf\b", re.IGNORECASE)
_POINTS = ("VERSION", "SYSTEM_VERSION", "TIMESTAMP", "SYSTEM_TIME")
_OPTIONS = ("versionasof", "timestampasof")


def with_version_names(spark: SparkSession, sql: str) -> str:
    """`sql` with other names for Delta tables of which it asks for a version or a time."""
    if _LIKELY.search(sql) is None:
        return sql
    found = list(words(sql))
    parts: list[str] = []
    done = 0
    for start, end in travelled_names(found):
        name = tuple(word.value for word in found[start:end:2])
        if len(name) == 1 and _is_query_of(found, name[0]):
            continue
        table = look_up_relation(spark, name)
        if table is None or table.entry is None or not table.is_delta:
            continue
        whole = (PATH_CATALOG, table.entry.database, table.entry.table)
        quoted = ".".join("`" + part.replace("`", "``") + "`" for part in whole)
        parts += (sql[done : found[start].start], quoted)
        done = found[end - 1].end
    return "".join((*parts, sql[done:])) if parts else sql


def travelled_names(found: Sequence[Word]) -> Iterator[tuple[int, int]]:
    """Where the names stand behind which a version or a time is asked for.

    >>> from pyspark_delta.spark.sql.words import words
    >>> list(travelled_names(list(words("SELECT * FROM a.b FOR VERSION AS OF 1"))))
    [(3, 6)]
    >>> list(travelled_names(list(words("SELECT * FROM t WITH ('versionAsOf' = 1)"))))
    [(3, 4)]
    """
    for i in range(1, len(found)):
        if _is_clause(found, i) or _has_option(found, i):
            start = i
            while start > 0 and found[start - 1].is_name:
                start -= 1
                if start == 0 or found[start - 1].text != ".":
                    break
                start -= 1
            if start < i and found[start].is_name:
                yield start, i


def _is_clause(found: Sequence[Word], i: int) -> bool:
    """Whether `[FOR] VERSION AS OF` or the like begins at `i`."""
    if found[i - 1].text.upper() == "FOR":
        return False
    if found[i].text.upper() == "FOR":
        i += 1
    texts = [word.text.upper() for word in found[i : i + 3]]
    return len(texts) == 3 and texts[0] in _POINTS and texts[1:] == ["AS", "OF"]


def _has_option(found: Sequence[Word], i: int) -> bool:
    """Whether options begin at `i`, and one of them asks for a version or a time."""
    if [word.text.upper() for word in found[i : i + 2]] != ["WITH", "("]:
        return False
    for word in found[i + 2 :]:
        if word.text == ")":
            return False
        if word.text.strip("'\"`").lower() in _OPTIONS:
            return True
    return False


def _is_query_of(found: Sequence[Word], name: str) -> bool:
    """Whether the statement gives that name to a query of its own, which has no versions."""
    for i, word in enumerate(found[:-2]):
        if word.is_name and word.value.lower() == name.lower():
            following = [each.text.upper() for each in found[i + 1 : i + 3]]
            if following == ["AS", "("]:
                return True
    return False
