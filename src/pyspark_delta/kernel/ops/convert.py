"""A Parquet listing into AddFiles: partition values out of directory names, schemas put together.

Nothing is read here and nothing written.  delta-spark's rules: directories are unescaped as Hive
escapes, `__HIVE_DEFAULT_PARTITION__` is null, and a value must be one of the type that was
declared for its column.  Values are stored as PROTOCOL.md, "Partition Value Serialization", has
them, so that readers stricter than Spark read the same rows: `007` of an INT becomes `7`.

>>> parsed_partition("year=2024/city=Z%3A/part-0.parquet")
(('year', '2024'), ('city', 'Z:'))
>>> stored_partition_value("007", INTEGER)
'7'
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo

from pyspark_delta.errors.table import PartitionValueError
from pyspark_delta.kernel.protocol.actions import AddFile
from pyspark_delta.kernel.protocol.partition_values import (
    HIVE_DEFAULT_PARTITION,
    format_partition_value,
    unescape_path_name,
)
from pyspark_delta.kernel.protocol.schema_merge import check_no_duplicates
from pyspark_delta.kernel.protocol.types import (
    BYTE,
    INTEGER,
    LONG,
    SHORT,
    DataType,
    StructType,
)
from pyspark_delta.kernel.scan.literals import LiteralValue, cast_text
from pyspark_delta.kernel.storage.uris import encode_path

_EMPTY = StructType(())
_INTEGERS = frozenset((BYTE, SHORT, INTEGER, LONG))
# Spark's cast takes digits behind a point as well, and cuts them.
_WHOLE_PART = re.compile(r"([+-]?[0-9]+)\.[0-9]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRules:
    """How directory names are read: the session's time zone, whether case of names counts, and
    whether a value that cannot be cast to its column's type is null instead of an error.
    """

    zone: tzinfo = UTC
    case_sensitive: bool = False
    ignore_cast_failure: bool = False


DEFAULT_RULES = PartitionRules()


def parsed_partition(path: str) -> tuple[tuple[str, str | None], ...]:
    """Names and values that the directories above a file spell, outermost first.

    `path` is decoded and relative to the table's root.  Directories count from the file upwards
    until one that is no `name=value` stands above one that is.
    """
    found: list[tuple[str, str | None]] = []
    for part in reversed(path.split("/")[:-1]):
        name, equals, value = part.partition("=")
        if not equals or not name:
            if found:
                break
            continue
        is_null = value in ("", HIVE_DEFAULT_PARTITION)
        found.append((unescape_path_name(name), None if is_null else unescape_path_name(value)))
    return tuple(reversed(found))


def partition_values(
    path: str, partition_schema: StructType, rules: PartitionRules = DEFAULT_RULES
) -> dict[str, str | None]:
    """The log's partition values of a file, under the names of the schema.

    PartitionValueError when the directories spell other columns, or a value that its column
    cannot have.
    """
    parsed = parsed_partition(path)
    if len(parsed) != len(partition_schema):
        raise PartitionValueError(
            "DELTA_UNEXPECTED_NUM_PARTITION_COLUMNS_FROM_FILE_NAME",
            path=path,
            parsedColsSize=len(parsed),
            parsedCols=_listed(name for name, _ in parsed),
            expectedColsSize=len(partition_schema),
            expectedCols=_listed(partition_schema.names),
        )
    values: dict[str, str | None] = {}
    for field, (name, text) in zip(partition_schema, parsed, strict=True):
        same = name == field.name or (
            not rules.case_sensitive and name.lower() == field.name.lower()
        )
        if not same:
            raise PartitionValueError(
                "DELTA_UNEXPECTED_PARTITION_COLUMN_FROM_FILE_NAME",
                path=path,
                parsedCol=_quoted(name),
                expectedCol=_quoted(field.name),
            )
        values[field.name] = stored_partition_value(text, field.data_type, rules)
    return values


def given_partition_values(
    given: Mapping[str, str | None],
    partition_schema: StructType,
    rules: PartitionRules = DEFAULT_RULES,
) -> dict[str, str | None]:
    """The log's partition values of a file whose values a catalog knows."""
    by_name = {name.lower(): value for name, value in given.items()}
    return {
        field.name: stored_partition_value(
            _null_if_default(by_name.get(field.name.lower())), field.data_type, rules
        )
        for field in partition_schema
    }


def stored_partition_value(
    text: str | None, data_type: DataType, rules: PartitionRules = DEFAULT_RULES
) -> str | None:
    """The text of the log for what a directory spells; what Spark's cast takes is taken."""
    if text is None or text == "":
        return None
    try:
        return format_partition_value(_cast(text, data_type, rules.zone), data_type)
    except (PartitionValueError, ValueError):
        if rules.ignore_cast_failure:
            return None
        raise PartitionValueError(
            "DELTA_FAILED_CAST_PARTITION_VALUE", value=text, dataType=data_type.simple_string
        ) from None


def construct_table_schema(
    data_schema: StructType, partition_schema: StructType = _EMPTY
) -> StructType:
    """The columns of the files, then the partition columns that the files do not have.

    A partition column that the files have as well keeps its place there, with the type that was
    declared for it.  SchemaError when a name comes twice.
    """
    check_no_duplicates(data_schema, "DELTA_DUPLICATE_COLUMNS_FOUND.CONVERT_TO_DELTA")
    check_no_duplicates(partition_schema, "DELTA_DUPLICATE_COLUMNS_FOUND.PARTITION_SCHEMA")
    kept = tuple(partition_schema.get(f.name) or f for f in data_schema)
    added = tuple(f for f in partition_schema if f.name not in data_schema)
    return StructType(kept + added)


def create_add_file(
    path: str,
    *,
    size: int,
    modification_time: int,
    partition_values: Mapping[str, str | None],
    stats: str | None = None,
    is_uri: bool = False,
) -> AddFile:
    """The action that makes a file part of the table; `is_uri` when `path` is absolute already."""
    return AddFile(
        path=path if is_uri else encode_path(path),
        partition_values=partition_values,
        size=size,
        modification_time=modification_time,
        data_change=True,
        stats=stats,
    )


def _null_if_default(value: str | None) -> str | None:
    return None if value == HIVE_DEFAULT_PARTITION else value


def _listed(names: Iterable[str]) -> str:
    """Columns as delta-spark's messages have them."""
    return f"[{', '.join(map(_quoted, names))}]"


def _quoted(name: str) -> str:
    return f"`{name}`"


def _cast(text: str, data_type: DataType, zone: tzinfo) -> LiteralValue:
    """The value of the type that Spark's cast makes of a text; ValueError when it makes none."""
    if data_type in _INTEGERS and (found := _WHOLE_PART.fullmatch(text.strip())):
        text = found[1]
    return cast_text(text, data_type, zone)
