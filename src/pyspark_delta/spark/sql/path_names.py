"""`delta.`/path`` in a statement: the name that our catalog of paths has for it.

>>> with_path_names("SELECT * FROM delta.`/t` -- delta.`/t`")
'SELECT * FROM pyspark_delta.`/t` -- delta.`/t`'
>>> with_path_names("SELECT delta.`/t`.id FROM delta.`/t`")
'SELECT delta.`/t`.id FROM pyspark_delta.`/t`'
"""

from __future__ import annotations

import re

from pyspark_delta.spark.catalog import is_path_name
from pyspark_delta.spark.jvm.path_catalog import PATH_CATALOG
from pyspark_delta.spark.sql.words import words

_LIKELY = re.compile(r"\bdelta`?\s*\.\s*`", re.IGNORECASE)


def with_path_names(sql: str) -> str:
    """`sql` with the names of path tables as Spark can resolve them; itself when it has none.

    In front of a column the name stays: there it is the table's, not the catalog's.
    """
    if _LIKELY.search(sql) is None:
        return sql
    found = list(words(sql))
    parts: list[str] = []
    done = 0
    for i, word in enumerate(found):
        before = found[i - 1].text if i else ""
        following = [each.text for each in found[i + 1 : i + 4]]
        if (
            word.is_name
            and before != "."
            and len(following) >= 2
            and following[0] == "."
            and following[1].startswith("`")
            and is_path_name((word.value, found[i + 2].value))
            and following[2:] != ["."]
        ):
            parts += (sql[done : word.start], PATH_CATALOG)
            done = word.end
    return "".join((*parts, sql[done:])) if parts else sql
