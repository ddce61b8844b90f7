"""Make AddFiles of a Parquet listing: partition values from directory names, and merged schemas.

delta-spark's rules: directories are unescaped as Hive
escapes, `__HIVE_DEFAULT_PARTITION__` is null, and a value must be one of the type that was
declared for its column.  Values are stored as PROTOCOL.md, "Partition Value Serialization", has
them, so that readers stricter than Spark read the same rows: `007` of an INT becomes `7`.

Where Spark's streaming file sink wrote the directory, its log has the committed files: a query that
failed leaves files that no batch committed, which a listing would find.  `_spark_metadata` holds a
file for each batch, `0`, `1`, `2`, and at times one that replaces all before it, `9.compact`.  Each
begins with the line `v1`, and has a line of JSON for each file.

>>> parsed_partition("year=2024/city=Z%3A/part-0.parquet")
(('year', '2024'), ('city', 'Z:'))
>>> stored_partition_value("007", INTEGER)
'7'
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Any, NamedTuple

from pyspark_delta.errors import DataFileError, PartitionValueError
from pyspark_delta.kernel.protocol.actions import AddFile
from pyspark_delta.kernel.protocol.partition_values import (
    HIVE_DEFAULT_PARTITION,
    format_partition_value,
    unescape_path_name,
)
from pyspark_delta.kernel.protocol.schema_merge import check_no_duplicates
from pyspark_delta.kernel.protocol.types import BYTE, INTEGER, LONG, SHORT, DataType, StructType
from pyspark_delta.kernel.scan.predicates.literals import cast_text
from pyspark_delta.kernel.sql.quoting import quoted_name
from pyspark_delta.kernel.storage.base import LogStore
from pyspark_delta.kernel.storage.uris import encode_path

_EMPTY = StructType(())
_INTEGERS = frozenset((BYTE, SHORT, INTEGER, LONG))
# Spark's cast accepts decimal digits as well, and truncates them.
_WHOLE_PART = re.compile(r"([+-]?[0-9]+)\.[0-9]*")
_SINK_LOG = "_spark_metadata"
_BATCH_NAME = re.compile(r"([0-9]{1,18})(\.compact)?")
_SINK_LOG_VERSION = "v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRules:
    """How directory names are parsed: the session's time zone, whether names are case-sensitive,
    and whether a value that cannot be cast to its column's type is null instead of an error.
    """

    zone: tzinfo = UTC
    case_sensitive: bool = False
    ignore_cast_failure: bool = False


DEFAULT_RULES = PartitionRules()


def parsed_partition(path: str) -> tuple[tuple[str, str | None], ...]:
    """Names and values that the directories above a file spell, outermost first.

    `path` is decoded and relative to the table's root.  Directories count from the file upwards,
    up to the first one that is not `name=value` above one that is.
    """
    parsed: list[tuple[str, str | None]] = []
    for part in reversed(path.split("/")[:-1]):
        name, equals, value = part.partition("=")
        if not equals or not name:
            if parsed:
                break
            continue
        is_null = value in ("", HIVE_DEFAULT_PARTITION)
        parsed.append((unescape_path_name(name), None if is_null else unescape_path_name(value)))
    return tuple(reversed(parsed))


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
                parsedCol=quoted_name(name),
                expectedCol=quoted_name(field.name),
            )
        values[field.name] = stored_partition_value(text, field.data_type, rules)
    return values


def given_partition_values(
    given: Mapping[str, str | None],
    partition_schema: StructType,
    rules: PartitionRules = DEFAULT_RULES,
) -> dict[str, str | None]:
    """The log's partition values of a file whose values come from a catalog."""
    by_name = {
        name.lower(): None if value == HIVE_DEFAULT_PARTITION else value
        for name, value in given.items()
    }
    return {
        f.name: stored_partition_value(by_name.get(f.name.lower()), f.data_type, rules)
        for f in partition_schema
    }


def stored_partition_value(
    text: str | None, data_type: DataType, rules: PartitionRules = DEFAULT_RULES
) -> str | None:
    """The log's text for a directory's value; every text that Spark casts is accepted."""
    if text is None or text == "":
        return None
    try:
        whole = _WHOLE_PART.fullmatch(text.strip()) if data_type in _INTEGERS else None
        value = cast_text(text if whole is None else whole[1], data_type, rules.zone)
        return format_partition_value(value, data_type)
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

    A partition column that the files have too keeps its position, with its declared type.
    Raises SchemaError when a name occurs twice.
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


def _listed(names: Iterable[str]) -> str:
    """Columns in the form of delta-spark's messages."""
    return f"[{', '.join(map(quoted_name, names))}]"


class SinkFile(NamedTuple):
    """A file that the sink committed; `uri` is absolute."""

    uri: str
    size: int
    modified_ms: int


def has_sink_log(store: LogStore) -> bool:
    """Whether a streaming query wrote into this directory."""
    return bool(store.list_from(f"{_SINK_LOG}/"))


def sink_files(store: LogStore) -> list[SinkFile]:
    """The files in the log, in the order of their batches."""
    files: dict[str, SinkFile] = {}
    for path in _batch_paths(store):
        for entry in _entries(store, path):
            try:
                uri, action = entry["path"], entry.get("action", "add")
                if action == "delete":
                    files.pop(uri, None)
                elif not entry.get("isDir", False):
                    files[uri] = SinkFile(uri, int(entry["size"]), int(entry["modificationTime"]))
            except (KeyError, TypeError, ValueError, AttributeError):
                raise _invalid(store, path, "an entry lacks its path, size or time") from None
    return list(files.values())


def _batch_paths(store: LogStore) -> list[str]:
    """The newest compacted file, and the files of the batches after it."""
    batches: dict[int, str] = {}
    compacted: dict[int, str] = {}
    for info in store.list_from(f"{_SINK_LOG}/"):
        name = _BATCH_NAME.fullmatch(info.path.rpartition("/")[2])
        if name is not None:
            (compacted if name[2] else batches)[int(name[1])] = info.path
    start = max(compacted, default=-1)
    after = sorted(batch for batch in batches if batch > start)
    if after != list(range(start + 1, start + 1 + len(after))):
        raise _invalid(store, _SINK_LOG, "a batch is missing")
    if start < 0 and not after:
        return []
    return [*([compacted[start]] if start >= 0 else []), *(batches[batch] for batch in after)]


def _entries(store: LogStore, path: str) -> Iterator[dict[str, Any]]:
    try:
        version, *lines = store.read(path).decode().splitlines()
    except ValueError:
        raise _invalid(store, path, "it is empty, or no text") from None
    if version.strip() != _SINK_LOG_VERSION:
        raise _invalid(store, path, f"it is of the version {version[:20]!r}")
    for line in lines:
        if line.strip():
            try:
                entry = json.loads(line)
            except ValueError:
                raise _invalid(store, path, "a line is no JSON") from None
            yield entry


def _invalid(store: LogStore, path: str, reason: str) -> DataFileError:
    return DataFileError("DELTA_CONVERT_INVALID_SINK_LOG", path=store.address(path), reason=reason)
