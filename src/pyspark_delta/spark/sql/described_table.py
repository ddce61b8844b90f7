"""What DESCRIBE and SHOW tell of a table: the rows of their results, out of its log.

The rows are those that Spark makes for a table of delta-spark's catalog; nothing here asks Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark_delta.kernel.log.snapshot import Snapshot
from pyspark_delta.kernel.protocol.column_defaults import current_default
from pyspark_delta.kernel.protocol.types import StructField
from pyspark_delta.spark.catalog_properties import shown_properties
from pyspark_delta.spark.sql.create_statement import quoted_name

Line = tuple[str, str | None, str | None]
"""A row of DESCRIBE: name, type, comment."""

_BLANK: Line = ("", "", "")
_COLUMN_HEADS: Line = ("# col_name", "data_type", "comment")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTable:
    """A version of a table, with what its catalog knows of it.

    `name` is database and table, or `delta` and a path; `location` is as the catalog or the user
    spells it.  A path is told to be neither managed nor external.
    """

    snapshot: Snapshot
    name: tuple[str, str]
    location: str
    owner: str | None = None
    is_managed: bool = False
    is_external: bool = False


def described(table: ShownTable, *, is_extended: bool) -> list[Line]:
    """The rows of DESCRIBE TABLE."""
    lines = [*_columns(table.snapshot), *_partitions(table.snapshot)]
    return [*lines, *_details(table)] if is_extended else lines


def _line(name: str, f: StructField) -> Line:
    return (name, f.data_type.simple_string, f.comment)


def _columns(snapshot: Snapshot) -> Iterator[Line]:
    for f in snapshot.schema:
        yield _line(f.name, f)


def _partitions(snapshot: Snapshot) -> Iterator[Line]:
    metadata = snapshot.metadata
    if metadata.partition_columns:
        yield ("# Partition Information", "", "")
        yield _COLUMN_HEADS
        for name in metadata.partition_columns:
            yield _line(quoted_name((name,)), metadata.schema[name])


def _details(table: ShownTable) -> Iterator[Line]:
    description = table.snapshot.metadata.description
    yield _BLANK
    yield ("# Detailed Table Information", "", "")
    database, name = table.name
    yield ("Catalog", "spark_catalog", "")
    yield ("Namespace", database, "")
    yield ("Database", database, "")
    yield ("Table", name, "")
    yield ("Type", "EXTERNAL" if table.is_external else "MANAGED", "")
    if description is not None:
        yield ("Comment", description, "")
    yield ("Location", table.location, "")
    yield ("Provider", "delta", "")
    if table.owner:
        yield ("Owner", table.owner, "")
    if table.is_managed:
        yield ("Is_managed_location", "true", "")
    pairs = (f"{key}={value}" for key, value in shown_properties(table.snapshot).items())
    yield ("Table Properties", f"[{','.join(pairs)}]", "")
    defaults = [(f, current_default(f)) for f in table.snapshot.schema]
    known = [(f, default) for f, default in defaults if default is not None]
    if known:
        yield _BLANK
        yield ("# Column Default Values", "", "")
        for f, default in known:
            yield (f.name, f.data_type.simple_string, default)
