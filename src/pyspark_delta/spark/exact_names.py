"""Names that must be spelled as the table spells them: `spark.sql.caseSensitive`.

Spark looks names in expressions up by itself, and knows the setting.  Here are the names that it
does not see: those of columns that a statement lists, sets, changes or lays a table out by.  No
schema has two names that differ in case alone, so a name in another case means nothing.

>>> from pyspark_delta.kernel.protocol.types import LONG, StructField
>>> is_spelled(StructType((StructField("Id", LONG),)), ("id",))
False
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import SparkSession

from pyspark_delta.errors.table import SchemaError
from pyspark_delta.kernel.ops.column_paths import find_column, unresolved
from pyspark_delta.kernel.protocol.types import DataType, StructType, column_name

_CASE_SENSITIVE = "spark.sql.caseSensitive"


def is_exact(spark: SparkSession) -> bool:
    """Whether the session tells upper and lower case apart."""
    return str(spark.conf.get(_CASE_SENSITIVE, "false")).lower() == "true"


def is_spelled(schema: StructType, path: Sequence[str]) -> bool:
    """Whether the steps of a path are spelled as the schema spells them; also if it has none."""
    here: DataType | None = schema
    for step in path:
        if not isinstance(here, StructType):
            return True
        found = here.get(step)
        if found is not None and found.name != step:
            return False
        here = None if found is None else found.data_type
    return True


def check_spelled(schema: StructType, path: Sequence[str]) -> None:
    """Refuse a path of which a step is spelled otherwise in the schema, or not there at all."""
    found = find_column(schema, path)
    if found.path != tuple(path):
        raise unresolved(schema, path)


def check_layout_names(
    spark: SparkSession, schema: StructType, paths: Iterable[Sequence[str]]
) -> None:
    """Refuse columns to lay a table out by that it spells otherwise, where the session does."""
    for path in paths:
        if is_exact(spark) and not is_spelled(schema, path):
            raise SchemaError(
                "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA",
                columnName=column_name(path),
                tableSchema=", ".join(schema.names),
            )
