"""What people give to `DeltaTable`, checked before anything is read: TypeError and ValueError."""

from __future__ import annotations

import operator
from collections.abc import Mapping

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType as SparkStructType

from pyspark_delta.errors.table import OperationNotAllowedError, PropertyError
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.parser import parse_columns
from pyspark_delta.spark.options import FILE_SYSTEM_PREFIXES
from pyspark_delta.spark.types import from_spark


class WrongTypeError(TypeError, ValueError):
    """An argument of another type; delta-spark's DeltaTable says ValueError to some of them."""


def partition_columns(
    spark: SparkSession, given: str | SparkStructType | None
) -> StructType | None:
    """The columns that a DDL text or a StructType names; None for none given."""
    if given is None:
        return None
    if isinstance(given, str):
        return parse_columns(JvmSession(spark), given)
    if isinstance(given, SparkStructType):
        return from_spark(given)
    raise TypeError(f"partitionSchema is a text or a StructType, not {type(given).__name__}")


def check_session(spark: object) -> None:
    """A session that runs its own JVM: the only kind that can be enabled."""
    if isinstance(spark, SparkSession):
        return
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise OperationNotAllowedError(
            "DELTA_OPERATION_NOT_ALLOWED",
            operation="DeltaTable in a session of Spark Connect, which enable() cannot reach,",
        )
    raise TypeError(f"sparkSession is a SparkSession, not {type(spark).__name__}")


def active_session(given: SparkSession | None) -> SparkSession:
    """The session given, or else the one that is active in this thread."""
    spark = SparkSession.getActiveSession() if given is None else given
    check_session(spark)
    assert spark is not None
    return spark


def whole_number(value: object, name: str) -> int:
    """An argument that is a whole number."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise _wrong(name, "an int", value)
    return operator.index(value)


def check_flag(value: object, name: str) -> None:
    """An argument that is True or False."""
    if not isinstance(value, bool):
        raise _wrong(name, "a boolean", value)


def property_map(value: object) -> dict[str, str]:
    """Table properties, texts by texts; empty for None."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _wrong("properties", "a dict", value)
    for key, item in value.items():
        for kind, each in (("keys", key), ("values", item)):
            if not isinstance(each, str):
                raise _wrong(f"All property {kind} including {each}", "a string", each)
    return dict(value)


def check_text(value: object, name: str) -> None:
    """An argument that is a text, and not an empty one."""
    if not isinstance(value, str):
        raise _wrong(name, "a string", value)
    if not value:
        raise ValueError(f"{name} is empty")


def checked_options(given: Mapping[str, str] | None) -> dict[str, str]:
    """Options for the file system alone; nothing else may come with a path."""
    options = dict(given or {})
    bad = sorted(str(key) for key in options if not str(key).startswith(FILE_SYSTEM_PREFIXES))
    if bad:
        # The keys alone: a value may be a secret.
        raise PropertyError(
            "DELTA_TABLE_FOR_PATH_UNSUPPORTED_HADOOP_CONF",
            allowedPrefixes=", ".join(FILE_SYSTEM_PREFIXES),
            unsupportedOptions=", ".join(bad),
        )
    return {key: str(value) for key, value in options.items()}


def _wrong(name: str, wanted: str, value: object) -> WrongTypeError:
    # In delta-spark's words, which tests of programs look for.
    return WrongTypeError(f"{name} needs to be {wanted} but got '{type(value)}'.")
