"""Arguments of `DeltaTable`, checked before anything is read: TypeError and ValueError."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, TypeVar, cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType as SparkStructType

from pyspark_delta.errors import PropertyError
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.spark.conf.options import FILE_SYSTEM_PREFIXES
from pyspark_delta.spark.jvm.gateway import JvmSession, from_spark
from pyspark_delta.spark.jvm.parser.plans import parse_columns
from pyspark_delta.spark.maintenance.vacuum import VacuumRequest

Method = TypeVar("Method", bound=Callable[..., Any])
_CONNECT = "pyspark.sql.connect."
# By name: the client builds on the classes whose methods it takes over.
_CLIENT = "pyspark_delta.spark.connect.client"


class WrongTypeError(TypeError, ValueError):
    """An argument of a wrong type; for some, delta-spark's DeltaTable raises ValueError."""


def partition_columns(
    spark: SparkSession, given: str | SparkStructType | None
) -> StructType | None:
    """The columns that a DDL text or a StructType defines; None when none are given."""
    if given is None:
        return None
    if isinstance(given, str):
        return parse_columns(JvmSession(spark), given)
    if isinstance(given, SparkStructType):
        return from_spark(given)
    raise TypeError(f"partitionSchema is a text or a StructType, not {type(given).__name__}")


def is_connect(spark: object) -> bool:
    """Whether this is a session of Spark Connect, whose JVM is in another process."""
    # By name: the class needs packages that may not be installed.
    return any(kind.__module__.startswith(_CONNECT) for kind in type(spark).__mro__)


def check_session(spark: object) -> None:
    """Check that the session runs its own JVM."""
    if not isinstance(spark, SparkSession):
        raise TypeError(f"sparkSession is a SparkSession, not {type(spark).__name__}")


def served_by_client(method: Method) -> Method:
    """Decorate a class method of `DeltaTable`: sessions of Spark Connect get the client's.

    The method gets a session that is checked: where no argument is given, the active one.
    """

    @functools.wraps(method)
    def chosen(cls: type, sparkSession: object = None, *args: Any, **given: Any) -> Any:
        spark = sparkSession
        if spark is None and not (args or given):
            spark = SparkSession.getActiveSession()  # as builders do
        if not is_connect(spark):
            check_session(spark)
            return method(cls, spark, *args, **given)
        client = import_module(_CLIENT).ConnectDeltaTable
        if issubclass(cls, client):
            return method(cls, spark, *args, **given)
        return getattr(client, method.__name__)(spark, *args, **given)

    return cast(Method, chosen)


def whole_number(value: object, name: str) -> int:
    """The argument as an int; raises when it is not a whole number."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise _wrong_type(name, "an int", value)
    return operator.index(value)


def check_flag(value: object, name: str) -> None:
    """Check that an argument is True or False."""
    if not isinstance(value, bool):
        raise _wrong_type(name, "a boolean", value)


def property_map(value: object) -> dict[str, str]:
    """Table properties as a dict of str to str; empty for None."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _wrong_type("properties", "a dict", value)
    for key, item in value.items():
        for kind, each in (("keys", key), ("values", item)):
            if not isinstance(each, str):
                raise _wrong_type(f"All property {kind} including {each}", "a string", each)
    return dict(value)


def check_text(value: object, name: str) -> None:
    """Check that an argument is a non-empty str."""
    if not isinstance(value, str):
        raise _wrong_type(name, "a string", value)
    if not value:
        raise ValueError(f"{name} is empty")


def checked_options(given: Mapping[str, str] | None) -> dict[str, str]:
    """Options of the file system; any other option beside a path is an error."""
    options = dict(given or {})
    bad = sorted(str(key) for key in options if not str(key).startswith(FILE_SYSTEM_PREFIXES))
    if bad:
        # The message has the keys alone: a value may be a secret.
        raise PropertyError(
            "DELTA_TABLE_FOR_PATH_UNSUPPORTED_HADOOP_CONF",
            allowedPrefixes=", ".join(FILE_SYSTEM_PREFIXES),
            unsupportedOptions=", ".join(bad),
        )
    return {key: str(value) for key, value in options.items()}


def condition_argument(given: object, name: str = "'condition'") -> Column | None:
    """A condition, as SQL text or a Column; None for none, TypeError for anything else."""
    if isinstance(given, str):
        return F.expr(given)
    if given is None or isinstance(given, Column):
        return given
    raise TypeError(
        f"{name} must be a Spark SQL Column or a string (expression in SQL syntax), "
        f"found to be of type {type(given)}"
    )


def values_argument(given: object, name: str = "'set'") -> dict[str, Column]:
    """New values by column name, as SQL text or Columns.

    ValueError for None, TypeError for anything else.
    """
    if given is None:
        raise ValueError(f"{name} cannot be None")
    if not isinstance(given, dict):
        raise TypeError(f"{name} must be a dict, found to be {type(given)}")
    for key, value in given.items():
        if not isinstance(key, str):
            raise TypeError(
                f"Keys of dict in {name} must contain only strings with column names, "
                f"found '{key}' of type '{type(key)}'"
            )
        if not isinstance(value, str | Column):
            raise TypeError(
                f"Values of dict in {name} must contain only Spark SQL Columns or strings "
                f"(expressions in SQL syntax) as values, found '{value}' of type '{type(value)}'"
            )
    return {key: F.expr(value) if isinstance(value, str) else value for key, value in given.items()}


def vacuum_request(
    hours: object, dry_run: object, lite: object, inventory: object, keep_versions: object
) -> VacuumRequest:
    """The arguments of `DeltaTable.vacuum`, checked; TypeError or ValueError for a wrong one."""
    check_flag(dry_run, "dryRun")
    if lite is not None:
        check_flag(lite, "lite")
    if inventory is not None and not isinstance(inventory, DataFrame):
        raise TypeError(f"inventory is a DataFrame, not {type(inventory).__name__}")
    if not isinstance(keep_versions, Iterable) or isinstance(keep_versions, str):
        raise TypeError(f"keepVersions are versions, not {type(keep_versions).__name__}")
    return VacuumRequest(
        retention_hours=_retention_hours(hours),
        dry_run=bool(dry_run),
        lite=None if lite is None else bool(lite),
        inventory=inventory,
        keep_versions=tuple(whole_number(version, "a version") for version in keep_versions),
    )


def _wrong_type(name: str, expected: str, value: object) -> WrongTypeError:
    # delta-spark's message, which the tests of some programs compare.
    return WrongTypeError(f"{name} needs to be {expected} but got '{type(value)}'.")


def _retention_hours(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"retentionHours is a number, not {type(value).__name__}")
    if math.isnan(value):
        raise ValueError("retentionHours is not a number")
    return float(value)
