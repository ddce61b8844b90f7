"""Options of a batch write: those of the commit, and those of its data files.

Names of options are case-insensitive, values are checked, and options take precedence over the
session's settings.  A setting is read only where no option is set, because each read is a call into
the JVM.

>>> options = WriteOptions.parse({"MERGESCHEMA": "true", "delta.appendOnly": "true"}, {}.get)
>>> options.merges_schema, options.properties
(True, {'delta.appendOnly': 'true'})
>>> FileOptions.parse(DeltaOptions({"parquet.block.size": 4096, "mergeSchema": True})).parquet
{'parquet.block.size': '4096'}
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import SystemRandom

from pyspark.sql import SparkSession

from pyspark_delta.errors import OperationNotAllowedError, PropertyError, SchemaError
from pyspark_delta.kernel.protocol.actions import Metadata, SetTransaction
from pyspark_delta.kernel.protocol.column_mapping import ColumnMappingMode, physical_path
from pyspark_delta.kernel.protocol.iceberg_compat import enabled_version
from pyspark_delta.kernel.protocol.properties import (
    AUTO_COMPACT,
    AUTO_OPTIMIZE,
    OPTIMIZE_WRITE,
    PARQUET_FORMAT_VERSION,
    RANDOM_PREFIX_LENGTH,
    RANDOMIZE_FILE_PREFIXES,
    property_value,
)
from pyspark_delta.kernel.protocol.property_kinds import FLAG, TEXT, Kind, choice, whole
from pyspark_delta.kernel.protocol.type_widening import TypeWideningMode
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.conf.options import FILE_SYSTEM_PREFIXES, DeltaOptions, illegal_option
from pyspark_delta.spark.conf.setting_table import (
    AUTO_COMPACT_WRITES,
    AUTO_MERGE,
    DELETE_EXISTS,
    DML_METRICS_BY_LOG,
    DYNAMIC_PARTITION_OVERWRITE,
    OPTIMIZE_WRITES,
    SKIP_EMPTY_COMMITS,
    TXN_APP_ID,
    TXN_VERSION,
    TXN_VERSION_AUTO_RESET,
    USER_METADATA,
    WIDENING_MODE,
)
from pyspark_delta.spark.conf.settings import PARTITION_OVERWRITE_MODE, Conf
from pyspark_delta.spark.jvm.write.file_writer import OUTPUT_TIMESTAMP_TYPE

_PROPERTY_PREFIX = "delta."
# A name, in backquotes or plain, up to the next comma or the end.
_USING_COLUMN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`,\s](?:[^`,]*[^`,\s])?))\s*(?=,|\Z)")
_PARQUET_PREFIX = "parquet."
_WRITER_VERSION = "parquet.writer.version"
_MICROS = "TIMESTAMP_MICROS"
_FIRST_OF_VERSION_2 = (2, 12, 0)
# The table's statistics, and the marks of identity columns, come from footers.
_STATISTICS = "parquet.column.statistics.enabled"
_LONG = 2**63 - 1
_PREFIX_LETTERS = string.ascii_letters + string.digits
_LONGEST_PREFIX = 64
_RANDOM = SystemRandom()


def _fraction(text: str) -> float:
    if not 0 < float(text) < 1:
        raise ValueError(text)
    return float(text)


# Values that Parquet would reject in the middle of a job.  Table properties may set only these
# keys: anyone who can write the log can set properties, so none of the keys names a class or a
# location.
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
    "compression": TEXT,  # Spark checks codecs itself, before any job
    "maxRecordsPerFile": whole(0, most=_LONG),
}
_TIMESTAMPS = choice("INT96", _MICROS, "TIMESTAMP_MILLIS", ignore_case=True)
_KINDS = {**_PARQUET_KINDS, **_SPARK_KINDS, OUTPUT_TIMESTAMP_TYPE: _TIMESTAMPS}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOptions:
    """Options of the file writer.

    `spark` are options of Spark's writer, `parquet` those of Parquet.  `file_system` has the
    access to the store, with credentials, and is in no text.  `timestamps` is one of the values of
    `OUTPUT_TIMESTAMP_TYPE`, or None when it is not set.
    """

    spark: Mapping[str, str] = field(default_factory=dict, hash=False)
    parquet: Mapping[str, str] = field(default_factory=dict, hash=False)
    file_system: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    timestamps: str | None = None

    @classmethod
    def parse(cls, given: DeltaOptions) -> FileOptions:
        """The options of a writer that concern files; PropertyError for an invalid value."""
        spark = {name: given[name] for name in _SPARK_KINDS if name in given}
        parquet = {
            key: value for key, value in given.items() if key.lower().startswith(_PARQUET_PREFIX)
        }
        timestamps = given.get(OUTPUT_TIMESTAMP_TYPE)
        times = {} if timestamps is None else {OUTPUT_TIMESTAMP_TYPE: timestamps}
        for key, text, needs in _invalid({**spark, **parquet, **times}):
            raise illegal_option(key, text, needs)
        return cls(
            spark=spark,
            parquet=parquet,
            file_system={k: v for k, v in given.items() if k.startswith(FILE_SYSTEM_PREFIXES)},
            timestamps=None if timestamps is None else _TIMESTAMPS.parse(timestamps),
        )

    def of_table(self, metadata: Metadata) -> FileOptions:
        """The options with those from the table's properties, with physical column names."""
        own = {key: text for key, text in metadata.configuration.items() if text is not None}
        chosen = {key: text for key, text in own.items() if _bare(key) in _PARQUET_KINDS}
        for key, text, needs in _invalid(chosen):
            raise PropertyError("DELTA_INVALID_TABLE_PROPERTY", key=key, value=text, reason=needs)
        if PARQUET_FORMAT_VERSION.key in own:
            version = property_value(own, PARQUET_FORMAT_VERSION)
            is_second = tuple(map(int, version.split("."))) >= _FIRST_OF_VERSION_2
            chosen.setdefault(_WRITER_VERSION, "v2" if is_second else "v1")
        parquet = {
            _in_files(key, metadata): text
            for key, text in {**chosen, **self.parquet}.items()
            if not key.startswith(_STATISTICS)
        }
        timestamps = self.timestamps if enabled_version(metadata) is None else _MICROS
        return replace(self, parquet=parquet, timestamps=timestamps)

    @property
    def hadoop(self) -> dict[str, str]:
        """Entries for the Hadoop configuration of the job."""
        return {**self.file_system, **self.parquet, _STATISTICS: "true"}


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotentWrite:
    """An application and its version; a write with a version that was committed before is skipped.

    `resets_session` means that the version came from the session, and is unset after use.
    """

    app_id: str
    version: int
    resets_session: bool = False

    def action(self, now_ms: int) -> SetTransaction:
        return SetTransaction(app_id=self.app_id, version=self.version, last_updated=now_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """A write's options and settings.

    `overwrites_schema` is None when it is not set.  `dynamic_option` is the option
    partitionOverwriteMode, None when it is not set, and `is_dynamic` the resulting mode.
    `properties` are for a new table, `files` are options of the file writer.
    """

    conf: Conf = field(hash=False, compare=False)
    merges_schema: bool = False
    overwrites_schema: bool | None = None
    data_change: bool = True
    user_metadata: str | None = None
    txn: IdempotentWrite | None = None
    replace_where: str | None = None
    replace_on: str | None = None
    replace_using: str | None = None
    target_alias: str | None = None
    dynamic_option: bool | None = None
    is_dynamic: bool = False
    leaves_null_partitions: bool | None = None
    optimizes: bool | None = None
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    files: FileOptions = field(default_factory=FileOptions)

    @classmethod
    def parse(cls, options: Mapping[str, str], conf: Conf) -> WriteOptions:
        """Parse the options of a writer; PropertyError for an invalid value."""
        given = options if isinstance(options, DeltaOptions) else DeltaOptions(options)
        merges = given.can_merge_schema
        data_change = given.flag("dataChange")
        user_metadata = given.get("userMetadata")
        dynamic, is_dynamic = _dynamic(given, conf)
        return cls(
            conf=conf,
            merges_schema=AUTO_MERGE.by(conf) if merges is None else merges,
            overwrites_schema=given.can_overwrite_schema,
            data_change=data_change is not False,
            user_metadata=USER_METADATA.by(conf) if user_metadata is None else user_metadata,
            txn=_idempotent(given, conf),
            replace_where=given.get("replaceWhere"),
            replace_on=given.get("replaceOn"),
            replace_using=_replace_using(given),
            target_alias=given.get("targetAlias"),
            dynamic_option=dynamic,
            is_dynamic=is_dynamic,
            leaves_null_partitions=given.flag("useNullIntolerantEqualityWithDPO"),
            optimizes=given.flag("optimizeWrite"),
            properties={
                key: value
                for key, value in given.items()
                if key.lower().startswith(_PROPERTY_PREFIX)
            },
            files=FileOptions.parse(given),
        )

    @property
    def matches(self) -> str | None:
        """The text that selects the replaced rows by a join with the data."""
        return self.replace_using if self.replace_on is None else self.replace_on

    @property
    def records_empty(self) -> bool:
        """Whether a command that changes nothing commits anyway."""
        return not SKIP_EMPTY_COMMITS.by(self.conf)

    @property
    def counts_by_log(self) -> bool:
        """Whether rows of files that are removed whole are counted by the log's statistics."""
        return DML_METRICS_BY_LOG.by(self.conf)

    @property
    def allows_exists(self) -> bool:
        """Whether the condition of a DELETE may use EXISTS."""
        return DELETE_EXISTS.by(self.conf)

    @property
    def widening(self) -> TypeWideningMode:
        """How far a schema merge may widen types of a table that allows it."""
        return WIDENING_MODE.by(self.conf)

    def optimizes_files(self, configuration: Mapping[str, str | None]) -> bool:
        """Whether to optimize writes: by the option, the session, the table."""
        by_property = property_value(configuration, OPTIMIZE_WRITE)
        if by_property is None:
            by_property = property_value(configuration, AUTO_OPTIMIZE)
        if self.optimizes is not None:
            return self.optimizes
        by_session = OPTIMIZE_WRITES.by(self.conf)
        return bool(by_property) if by_session is None else by_session


def is_auto_compacted(metadata: Metadata, conf: Conf) -> bool:
    """Whether to compact after a write: by the session's setting, or else the table's property."""
    try:
        setting = AUTO_COMPACT_WRITES.by(conf)
    except PropertyError as error:
        raise PropertyError(
            "DELTA_INVALID_AUTO_COMPACT_TYPE",
            value=error.parameters["input"],
            allowed="true, false",
        ) from None
    if setting is not None:
        return setting
    configuration = metadata.configuration
    both = property_value(configuration, AUTO_OPTIMIZE)
    return bool(both or property_value(configuration, AUTO_COMPACT))


def forget_session_version(spark: SparkSession, options: WriteOptions) -> None:
    """Unset the session's txnVersion, if it is for one use."""
    if options.txn is not None and options.txn.resets_session:
        spark.conf.unset(TXN_VERSION.key)


def is_committed(spark: SparkSession, txn: OptimisticTransaction, options: WriteOptions) -> bool:
    """Whether this version was committed before; one that came from the session is then unset."""
    once = options.txn
    if once is None or txn.txn_version(once.app_id) < once.version:
        return False
    forget_session_version(spark, options)
    return True


def using_columns(text: str) -> tuple[str, ...]:
    """The columns in the option replaceUsing; ValueError for a text that is not a list.

    >>> using_columns("id, `a``b,c`")
    ('id', 'a`b,c')
    """
    names, at = [], 0
    while at <= len(text):
        found = _USING_COLUMN.match(text, at)
        if found is None:
            raise ValueError(text)
        quoted, plain = found.groups()
        names.append(plain if quoted is None else quoted.replace("``", "`"))
        at = found.end() + 1
    return tuple(names)


def random_prefix(metadata: Metadata) -> str:
    """A random directory with a trailing slash for files; empty where the table needs none.

    Stores split their load by the first letters of names, so a table may have random prefixes.
    With column mapping, physical names are random themselves.
    """
    configuration = metadata.configuration
    is_on = property_value(configuration, RANDOMIZE_FILE_PREFIXES)
    if not is_on and mapping_mode(metadata) is ColumnMappingMode.NONE:
        return ""
    length = min(property_value(configuration, RANDOM_PREFIX_LENGTH), _LONGEST_PREFIX)
    return "".join(_RANDOM.choices(_PREFIX_LETTERS, k=length)) + "/"


def file_tags(metadata: Metadata) -> dict[str, str] | None:
    """The tags of every file in the log: the Iceberg tables that it can be part of."""
    version = enabled_version(metadata) or 0
    return {"ICEBERG_COMPAT_VERSION": str(version)} if version >= 2 else None


def _dynamic(given: DeltaOptions, conf: Conf) -> tuple[bool | None, bool]:
    """The option for dynamic overwrites, if set, and the resulting mode."""
    name = "partitionOverwriteMode"
    option = given.get(name)
    mode = option if option is not None else conf(PARTITION_OVERWRITE_MODE) or "static"
    is_dynamic = mode.lower() == "dynamic"
    if is_dynamic and not DYNAMIC_PARTITION_OVERWRITE.by(conf):
        raise OperationNotAllowedError("DELTA_DYNAMIC_PARTITION_OVERWRITE_DISABLED")
    if not is_dynamic and mode.lower() != "static":
        raise illegal_option(name, mode, "must be STATIC or DYNAMIC")
    return (None if option is None else is_dynamic), is_dynamic


def _replace_using(given: DeltaOptions) -> str | None:
    """The option replaceUsing; raises for no columns, with which every row would match."""
    text = given.get("replaceUsing")
    try:
        if text is not None:
            using_columns(text)
    except ValueError:
        needs = "needs names of columns, separated by commas"
        raise illegal_option("replaceUsing", text or "", needs) from None
    return text


def _idempotent(given: DeltaOptions, conf: Conf) -> IdempotentWrite | None:
    """The application and version from the options, or else the session: both, or neither."""
    app_id, version = given.get("txnAppId"), given.get("txnVersion")
    # Two applications with an empty id would skip each other's writes.
    if app_id is not None and not app_id.strip():
        raise illegal_option("txnAppId", app_id, "needs the id of an application")
    if app_id is not None and version is not None:
        return IdempotentWrite(app_id=app_id, version=_version(version))
    if app_id is not None or version is not None:
        raise PropertyError(
            "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS.MISSING_DATAFRAME_WRITE_OPTIONS"
        )
    app_id, by_session = TXN_APP_ID.by(conf), TXN_VERSION.by(conf)
    if app_id is not None and by_session is not None:
        resets = TXN_VERSION_AUTO_RESET.by(conf)
        return IdempotentWrite(app_id=app_id, version=by_session, resets_session=resets)
    if app_id is not None or by_session is not None:
        raise PropertyError("DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS.MISSING_SESSION_CONFS")
    return None


def _version(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 19 or int(text) >= 2**63:
        raise illegal_option("txnVersion", text, "must be a non-negative integer")
    return int(text)


def _bare(key: str) -> str:
    return key.partition("#")[0]


def _invalid(options: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Keys with an invalid value, that value, and what it must be; unknown keys take any value."""
    for key, text in options.items():
        kind = _KINDS.get(_bare(key), TEXT)
        try:
            kind.parse(text)
        except ValueError:
            yield key, text, kind.needs


def _in_files(key: str, metadata: Metadata) -> str:
    """A key for one column, with the column's physical name."""
    name, mark, column = key.partition("#")
    if not mark:
        return key
    try:
        path = physical_path(metadata.schema, column.split("."), mapping_mode(metadata))
    except SchemaError:
        return key  # a Parquet path, or a column that the table does not have
    return f"{name}#{'.'.join(path)}"
