"""How data files are written: options of a writer and properties of a table, for Spark and Hadoop.

What `df.write.parquet` understands is understood here: Spark's own options, every `parquet.*` key
of Parquet's writer, and keys of the file system.  Names of columns behind a `#` are the table's.
Values are checked where their kind is known; credentials stay out of every text.

>>> FileOptions.parse(DeltaOptions({"parquet.block.size": 4096, "mergeSchema": True})).parquet
{'parquet.block.size': '4096'}
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import SystemRandom
from typing import Any

from pyspark_delta.errors.table import PropertyError, SchemaError
from pyspark_delta.kernel.protocol.actions import Metadata
from pyspark_delta.kernel.protocol.column_mapping import ColumnMappingMode, physical_path
from pyspark_delta.kernel.protocol.iceberg_compat import enabled_version
from pyspark_delta.kernel.protocol.properties import (
    PARQUET_FORMAT_VERSION,
    RANDOM_PREFIX_LENGTH,
    RANDOMIZE_FILE_PREFIXES,
    property_value,
)
from pyspark_delta.kernel.protocol.property_kinds import FLAG, TEXT, Kind, choice, whole
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.spark.options import FILE_SYSTEM_PREFIXES, DeltaOptions

OUTPUT_TIMESTAMP_TYPE = "spark.sql.parquet.outputTimestampType"
"""The setting, and the option, that says what timestamps are in files."""

_PARQUET_PREFIX = "parquet."
_WRITER_VERSION = "parquet.writer.version"
_MICROS = "TIMESTAMP_MICROS"
_FIRST_OF_VERSION_2 = (2, 12, 0)
# Footers are where a table's statistics, and the marks of identity columns, come from.
_STATISTICS = "parquet.column.statistics.enabled"
_LONG = 2**63 - 1
_PREFIX_LETTERS = string.ascii_letters + string.digits
_LONGEST_PREFIX = 64
_RANDOM = SystemRandom()


def _fraction(text: str) -> float:
    if not 0 < float(text) < 1:
        raise ValueError(text)
    return float(text)


# What Parquet would refuse in the middle of a job.  Those are also what a table may ask for: its
# properties are chosen by whoever can write its log, so none of them names a class or a place.
_PARQUET_KINDS: Mapping[str, Kind[object]] = {
    "parquet.block.size": whole(1, most=_LONG),
    "parquet.page.size": whole(1),
    "parquet.page.row.count.limit": whole(1),
    "parquet.dictionary.page.size": whole(1),
    "parquet.enable.dictionary": FLAG,
    _WRITER_VERSION: choice("v1", "v2", "PARQUET_1_0", "PARQUET_2_0"),
    "parquet.bloom.filter.enabled": FLAG,
    "parquet.bloom.filter.adaptive.enabled": FLAG,
    "parquet.bloom.filter.candidates.number": whole(1),
    "parquet.bloom.filter.expected.ndv": whole(1, most=_LONG),
    "parquet.bloom.filter.max.bytes": whole(1),
    "parquet.bloom.filter.fpp": Kind(_fraction, "it needs to be a number between 0 and 1"),
}
_SPARK_KINDS: Mapping[str, Kind[object]] = {
    "compression": TEXT,  # Spark knows its codecs, and says so before any job
    "maxRecordsPerFile": whole(0, most=_LONG),
}
_TIMESTAMPS = choice("INT96", _MICROS, "TIMESTAMP_MILLIS", ignore_case=True)
_KINDS = {**_PARQUET_KINDS, **_SPARK_KINDS, OUTPUT_TIMESTAMP_TYPE: _TIMESTAMPS}

_ARROW_ARGUMENTS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "parquet.page.size": ("data_page_size", int),
    "parquet.page.row.count.limit": ("max_rows_per_page", int),
    "parquet.dictionary.page.size": ("dictionary_pagesize_limit", int),
    "parquet.enable.dictionary": ("use_dictionary", FLAG.parse),
    _WRITER_VERSION: ("data_page_version", lambda text: "2.0" if "2" in text else "1.0"),
}
_BLOOM_ARGUMENTS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "ndv": ("parquet.bloom.filter.expected.ndv", int),
    "fpp": ("parquet.bloom.filter.fpp", float),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOptions:
    """What the writer of files is told.

    `spark` are options of Spark's own writer, `parquet` those of Parquet's; `file_system` says how
    to reach the store, with credentials, and shows in no text.  `timestamps` is one of the
    values of `OUTPUT_TIMESTAMP_TYPE`, None when nobody said.
    """

    spark: Mapping[str, str] = field(default_factory=dict, hash=False)
    parquet: Mapping[str, str] = field(default_factory=dict, hash=False)
    file_system: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    timestamps: str | None = None

    @classmethod
    def parse(cls, given: DeltaOptions) -> FileOptions:
        """The options of a writer that are for its files; PropertyError for a wrong value."""
        spark = {name: given[name] for name in _SPARK_KINDS if name in given}
        parquet = {
            key: value for key, value in given.items() if key.lower().startswith(_PARQUET_PREFIX)
        }
        timestamps = given.get(OUTPUT_TIMESTAMP_TYPE)
        asked = {**spark, **parquet}
        if timestamps is not None:
            asked[OUTPUT_TIMESTAMP_TYPE] = timestamps
        for key, text in asked.items():
            if (needs := _wrong(key, text)) is not None:
                raise PropertyError("DELTA_ILLEGAL_OPTION", name=key, input=text, explain=needs)
        return cls(
            spark=spark,
            parquet=parquet,
            file_system={k: v for k, v in given.items() if k.startswith(FILE_SYSTEM_PREFIXES)},
            timestamps=None if timestamps is None else _TIMESTAMPS.parse(timestamps),
        )

    def of_table(self, metadata: Metadata) -> FileOptions:
        """The options with what the table itself asks for, in the names that its files have."""
        own = {key: text for key, text in metadata.configuration.items() if text is not None}
        asked = {key: text for key, text in own.items() if _bare(key) in _PARQUET_KINDS}
        for key, text in asked.items():
            if (needs := _wrong(key, text)) is not None:
                raise PropertyError(
                    "DELTA_INVALID_TABLE_PROPERTY", key=key, value=text, reason=needs
                )
        if PARQUET_FORMAT_VERSION.key in own:
            version = property_value(own, PARQUET_FORMAT_VERSION)
            is_second = tuple(map(int, version.split("."))) >= _FIRST_OF_VERSION_2
            asked.setdefault(_WRITER_VERSION, "v2" if is_second else "v1")
        parquet = {
            _in_files(key, metadata): text
            for key, text in {**asked, **self.parquet}.items()
            if not key.startswith(_STATISTICS)
        }
        is_iceberg = enabled_version(metadata) is not None
        timestamps = _MICROS if is_iceberg else self.timestamps
        return replace(self, parquet=parquet, timestamps=timestamps)

    @property
    def hadoop(self) -> dict[str, str]:
        """Entries for the Hadoop configuration of the job."""
        return {**self.file_system, **self.parquet, _STATISTICS: "true"}


def random_prefix(metadata: Metadata) -> str:
    """A directory for files, with a slash behind it; none where the table has no need of one.

    Stores split their load by the first letters of names, so a table may ask for random ones; and
    the physical names of mapped columns, random themselves, say nothing in a directory.
    """
    configuration = metadata.configuration
    is_asked = property_value(configuration, RANDOMIZE_FILE_PREFIXES)
    if not is_asked and mapping_mode(metadata) is ColumnMappingMode.NONE:
        return ""
    length = min(property_value(configuration, RANDOM_PREFIX_LENGTH), _LONGEST_PREFIX)
    return "".join(_RANDOM.choices(_PREFIX_LETTERS, k=length)) + "/"


def file_tags(metadata: Metadata) -> dict[str, str] | None:
    """What the log says of every file beside its rows: which Iceberg tables it can be part of."""
    version = enabled_version(metadata) or 0
    return {"ICEBERG_COMPAT_VERSION": str(version)} if version >= 2 else None


def arrow_arguments(parquet: Mapping[str, str]) -> dict[str, Any]:
    """Options of Parquet's own writer as arguments of pyarrow's, as far as it knows them."""
    found: dict[str, Any] = {
        argument: read(parquet[key])
        for key, (argument, read) in _ARROW_ARGUMENTS.items()
        if key in parquet
    }
    marked = [key for key in parquet if key.startswith("parquet.bloom.filter.enabled#")]
    columns = [key.partition("#")[2] for key in marked if FLAG.parse(parquet[key])]
    if columns:
        found["bloom_filter_options"] = {name: _bloom(parquet, name) for name in columns}
    return found


def _bloom(parquet: Mapping[str, str], column: str) -> dict[str, Any]:
    sizes: dict[str, Any] = {}
    for argument, (key, read) in _BLOOM_ARGUMENTS.items():
        text = parquet.get(f"{key}#{column}", parquet.get(key))
        if text is not None:
            sizes[argument] = read(text)
    return sizes


def _bare(key: str) -> str:
    """A key without the column that it is for."""
    return key.partition("#")[0]


def _wrong(key: str, text: str) -> str | None:
    """What the value of a key needs to be; None when it is that, or when nobody knows."""
    kind = _KINDS.get(_bare(key))
    if kind is None:
        return None
    try:
        kind.parse(text)
    except ValueError:
        return kind.needs
    return None


def _in_files(key: str, metadata: Metadata) -> str:
    """A key for one column under the name that the column has in files."""
    name, mark, column = key.partition("#")
    if not mark:
        return key
    try:
        path = physical_path(metadata.schema, column.split("."), mapping_mode(metadata))
    except SchemaError:
        return key  # a path of Parquet's own, or a column that the table does not have
    return f"{name}#{'.'.join(path)}"
