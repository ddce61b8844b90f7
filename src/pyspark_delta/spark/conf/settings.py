"""The types of rows in the table of session settings: a key with its parser, default and effect.

The rows are in `setting_table`.  Code reads a setting only through its row,
so that its key, its default and its check are in one place.

>>> from pyspark_delta.spark.conf.setting_table import STATS_SKIPPING
>>> STATS_SKIPPING.by({}.get), STATS_SKIPPING.by({STATS_SKIPPING.key: "FALSE"}.get)
(True, False)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pyspark.sql import SparkSession

from pyspark_delta.errors import PropertyError
from pyspark_delta.kernel.protocol.property_kinds import SIZE, Kind, choice

Conf = Callable[[str], str | None]
"""Looks up the text of a key in a session; None when it is not set."""

DELTA_PREFIX = "spark.databricks.delta."
"""The prefix of almost all keys of delta-spark's settings."""
OWN_PREFIX = "spark.pyspark_delta."
"""The prefix of the settings that delta-spark does not have."""

# Spark's own settings that are read here.  Spark has their defaults and checks their values.
ANSI_ENABLED = "spark.sql.ansi.enabled"
CASE_SENSITIVE = "spark.sql.caseSensitive"
CHAR_VARCHAR_AS_STRING = "spark.sql.legacy.charVarcharAsString"
DEFAULT_SOURCE = "spark.sql.sources.default"
IGNORE_CORRUPT_FILES = "spark.sql.files.ignoreCorruptFiles"
IGNORE_MISSING_FILES = "spark.sql.files.ignoreMissingFiles"
NULLS_FOR_MISSING_DEFAULTS = "spark.sql.defaultColumn.useNullsForMissingDefaultValues"
PARTITION_OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"
READ_FIELD_IDS = "spark.sql.parquet.fieldId.read.enabled"
SESSION_TIME_ZONE = "spark.sql.session.timeZone"
STORE_ASSIGNMENT_POLICY = "spark.sql.storeAssignmentPolicy"

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError(text)
    return value


def _bin_size(text: str) -> int:
    # delta-spark counts in MiB where no unit is given.
    return SIZE.parse(f"{text}m" if text.isdecimal() else text)


def _locations(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",") if each.strip())


SHARE = Kind(_share, "it needs to be a number from 0 to 1")
SIZE_OR_ZERO = Kind(lambda text: 0 if text.strip() == "0" else SIZE.parse(text), SIZE.needs)
BIN_SIZE = Kind(_bin_size, "it needs to be a size such as 128mb, or a number of MiB")
LOCATIONS = Kind(_locations, "it needs to be a list of locations, separated by commas")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(Generic[T_co]):
    """A row: the key, its kind of value, its default, and its effect.

    `default_text` is the default as the page shows it.  Without a default, an unset key has the
    value None, and `default_text` describes the behavior then.
    """

    key: str
    kind: Kind[T_co] = field(hash=False)
    default: T_co = field(hash=False)
    default_text: str
    effect: str

    def of(self, spark: SparkSession) -> T_co:
        """The value in a session, by one call into the JVM; PropertyError for an invalid one."""
        return self.by(conf_of(spark))

    def by(self, conf: Conf) -> T_co:
        """The value by a function from keys to texts, such as `get` of a mapping."""
        text = conf(self.key)
        return self.default if text is None else self.parsed(text)

    def parsed(self, text: str) -> T_co:
        """Parse a text; PropertyError for an invalid one."""
        try:
            return self.kind.parse(text)
        except ValueError:
            raise PropertyError(
                "DELTA_ILLEGAL_OPTION", name=self.key, input=text, explain=self.kind.needs
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingFamily:
    """A row for all keys that begin with `prefix`."""

    prefix: str
    effect: str

    @property
    def key(self) -> str:
        """The keys as a pattern for the page."""
        return f"{self.prefix}*"

    def members(self, settings: Mapping[str, str]) -> dict[str, str]:
        """The settings of this family, by their full keys."""
        return {key: text for key, text in settings.items() if key.startswith(self.prefix)}


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedSetting:
    """A setting of delta-spark without an effect here: what it does there, and why not here.

    A key that ends in `*` stands for all keys with that prefix.
    """

    key: str
    effect: str
    reason: str


Row = TypeVar("Row", bound=Setting[object] | SettingFamily | UnusedSetting)


def full_key(name: str) -> str:
    """The key of a setting: a name without `spark.` in front is one of delta-spark's."""
    return name if name.startswith("spark.") else DELTA_PREFIX + name


def conf_of(spark: SparkSession) -> Conf:
    """A lookup of a session's settings; each lookup is a call into the JVM."""
    return lambda key: spark.conf.get(key, None)


def session_zone(spark: SparkSession) -> str:
    """The session's time zone, which defines days, and times without a zone."""
    return spark.conf.get(SESSION_TIME_ZONE) or "UTC"


def is_on(spark: SparkSession, key: str, *, default: bool = False) -> bool:
    """Whether a boolean setting of Spark's is on; `default` applies when it is not set."""
    text = spark.conf.get(key, None)
    return default if text is None else text.lower() == "true"


def row_of(key: str, rows: Iterable[Row]) -> Row | None:
    """The row of a key, if there is one."""
    for row in rows:
        if row.key == key or (row.key.endswith("*") and key.startswith(row.key[:-1])):
            return row
    return None


def one_of(**values: T) -> Kind[T]:
    """A parser for an enumeration: one of these words, case-insensitive, gives its value."""
    spelled = choice(*values, ignore_case=True)
    return Kind(lambda text: values[spelled.parse(text)], spelled.needs)
