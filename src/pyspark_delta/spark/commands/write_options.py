"""What a batch write was told beside its data: options first, then the session's settings.

Names of options ignore case, values are checked; a setting is looked at only where no option
answers, for each look is a call into the JVM.

>>> asked = WriteOptions.parse({"MERGESCHEMA": "true", "delta.appendOnly": "true"}, {}.get)
>>> asked.merges_schema, asked.properties
(True, {'delta.appendOnly': 'true'})
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark_delta.errors.table import OperationNotAllowedError, PropertyError
from pyspark_delta.kernel.protocol.properties import TARGET_FILE_SIZE, property_value
from pyspark_delta.kernel.protocol.property_kinds import SIZE
from pyspark_delta.kernel.protocol.type_widening import TypeWideningMode
from pyspark_delta.spark.file_options import FileOptions
from pyspark_delta.spark.options import DeltaOptions

Conf = Callable[[str], str | None]
"""A setting of the session by its name; None when it is not set."""

_DELTA = "spark.databricks.delta."
_PARTITION_OVERWRITE_CONF = "spark.sql.sources.partitionOverwriteMode"
TXN_APP_ID_CONF = f"{_DELTA}write.txnAppId"
TXN_VERSION_CONF = f"{_DELTA}write.txnVersion"
_TXN_RESET_CONF = f"{_DELTA}write.txnVersion.autoReset.enabled"
_BIN_SIZE_CONF = f"{_DELTA}optimizeWrite.binSize"
_BIN_SIZE = 512 << 20
_PROPERTY_PREFIX = "delta."
# A name, in backquotes or plain, up to the next comma or the end.
_USING_COLUMN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`,\s](?:[^`,]*[^`,\s])?))\s*(?=,|\Z)")
_WIDENING_MODES = {
    "always": TypeWideningMode.ALWAYS,
    "same_family_type": TypeWideningMode.SAME_FAMILY,
    "never": TypeWideningMode.NEVER,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotentWrite:
    """An application and its version: what it wrote under this version it does not write again.

    `resets_session` says that the version came from the session, and goes once it is used.
    """

    app_id: str
    version: int
    resets_session: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """A write's options and settings.

    `overwrites_schema` is None when nobody said.  `dynamic_option` is what the option
    partitionOverwriteMode says and None without it, `is_dynamic` what holds in the end.
    `properties` are those of a new table, `files` is for the writer of files.
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
        """The options that a writer was given; PropertyError for a value that means nothing."""
        given = options if isinstance(options, DeltaOptions) else DeltaOptions(options)
        merges = given.can_merge_schema
        data_change = given.flag("dataChange")
        user_metadata = given.get("userMetadata")
        dynamic, is_dynamic = _dynamic(given, conf)
        return cls(
            conf=conf,
            merges_schema=_flag(conf, "schema.autoMerge.enabled") if merges is None else merges,
            overwrites_schema=given.can_overwrite_schema,
            data_change=data_change is not False,
            user_metadata=conf(f"{_DELTA}commitInfo.userMetadata")
            if user_metadata is None
            else user_metadata,
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
        """The text that says which rows of the table the data takes the place of, by a join."""
        return self.replace_using if self.replace_on is None else self.replace_on

    @property
    def can_replace_by_data(self) -> bool:
        """Whether replaceWhere may look at columns that do not partition the table."""
        return _flag(self.conf, "replaceWhere.dataColumns.enabled", default=True)

    @property
    def checks_replaced(self) -> bool:
        """Whether every row that is written must fulfil replaceWhere."""
        return _flag(self.conf, "replaceWhere.constraintCheck.enabled", default=True)

    @property
    def records_empty(self) -> bool:
        """Whether a command that changes nothing makes a commit all the same."""
        return not _flag(self.conf, "skipRecordingEmptyCommits", default=True)

    @property
    def counts_by_log(self) -> bool:
        """Whether rows of files that go as a whole are counted, by the statistics in the log."""
        return _flag(self.conf, "dmlMetricsFromMetadata.enabled", default=True)

    @property
    def allows_exists(self) -> bool:
        """Whether the condition of a DELETE may ask if a query has rows."""
        return _flag(self.conf, "delete.allowExistsSubquery")

    @property
    def widening(self) -> TypeWideningMode:
        """How far a merge may widen the types of a table that allows it."""
        text = self.conf(f"{_DELTA}typeWidening.allowAutomaticWidening") or "always"
        return _WIDENING_MODES.get(text.lower(), TypeWideningMode.ALWAYS)

    def bin_size(self, configuration: Mapping[str, str | None]) -> int:
        """How many bytes files get when rows are brought together: the session, or the table."""
        text = self.conf(_BIN_SIZE_CONF)
        if text is None:
            return property_value(configuration, TARGET_FILE_SIZE) or _BIN_SIZE
        try:
            # delta-spark counts in MiB where no unit is given.
            return SIZE.parse(f"{text}m" if text.isdecimal() else text)
        except ValueError:
            raise _illegal(_BIN_SIZE_CONF, text, SIZE.needs) from None

    def optimizes_files(self, by_property: bool | None) -> bool:
        """Whether rows are brought together before they are written: option, session, table."""
        if self.optimizes is not None:
            return self.optimizes
        setting = self.conf(f"{_DELTA}optimizeWrite.enabled")
        return bool(by_property) if setting is None else setting.lower() == "true"


def _dynamic(given: DeltaOptions, conf: Conf) -> tuple[bool | None, bool]:
    """Whether the option says that an overwrite is dynamic, and whether it is."""
    name = "partitionOverwriteMode"
    option = given.get(name)
    mode = option if option is not None else conf(_PARTITION_OVERWRITE_CONF) or "static"
    is_dynamic = mode.lower() == "dynamic"
    if is_dynamic and not _flag(conf, "dynamicPartitionOverwrite.enabled", default=True):
        raise OperationNotAllowedError("DELTA_DYNAMIC_PARTITION_OVERWRITE_DISABLED")
    if not is_dynamic and mode.lower() != "static":
        raise _illegal(name, mode, "must be STATIC or DYNAMIC")
    return (None if option is None else is_dynamic), is_dynamic


def using_columns(text: str) -> tuple[str, ...]:
    """The columns that the option replaceUsing names; ValueError for a text that is no list.

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


def _replace_using(given: DeltaOptions) -> str | None:
    """The option replaceUsing: with no column every row of the table would match."""
    name, needs = "replaceUsing", "needs names of columns, separated by commas"
    text = _not_blank(given, name, needs)
    if text is not None:
        try:
            using_columns(text)
        except ValueError:
            raise _illegal(name, text, needs) from None
    return text


def _not_blank(given: DeltaOptions, name: str, explain: str) -> str | None:
    text = given.get(name)
    if text is not None and not text.strip():
        raise _illegal(name, text, explain)
    return text


def _idempotent(given: DeltaOptions, conf: Conf) -> IdempotentWrite | None:
    """The application and version of the options, or else of the session: both, or neither."""
    # Two applications without a name would skip each other's writes.
    app_id = _not_blank(given, "txnAppId", "needs the id of an application")
    version = given.get("txnVersion")
    if app_id is not None and version is not None:
        return IdempotentWrite(app_id=app_id, version=_version("txnVersion", version))
    if app_id is not None or version is not None:
        raise PropertyError(
            "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS.MISSING_DATAFRAME_WRITE_OPTIONS"
        )
    app_id, version = conf(TXN_APP_ID_CONF), conf(TXN_VERSION_CONF)
    if app_id is not None and version is not None:
        return IdempotentWrite(
            app_id=app_id,
            version=_version(TXN_VERSION_CONF, version),
            resets_session=(conf(_TXN_RESET_CONF) or "false").lower() == "true",
        )
    if app_id is not None or version is not None:
        raise PropertyError("DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS.MISSING_SESSION_CONFS")
    return None


def _version(name: str, text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 19 or int(text) >= 2**63:
        raise _illegal(name, text, "must be a non-negative integer")
    return int(text)


def _flag(conf: Conf, name: str, *, default: bool = False) -> bool:
    text = conf(_DELTA + name)
    return default if text is None else text.lower() == "true"


def _illegal(name: str, text: str, explain: str) -> PropertyError:
    return PropertyError("DELTA_ILLEGAL_OPTION", name=name, input=text, explain=explain)
