"""How much of a table a write replaces, by its mode and options.

Nothing is read here: options, settings and the table's definition decide.  Options that clash are
refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pyspark.sql import SparkSession

from pyspark_delta.errors.table import (
    AppendOnlyError,
    OperationNotAllowedError,
    PropertyError,
    TableAlreadyExistsError,
)
from pyspark_delta.kernel.protocol.properties import APPEND_ONLY, property_value
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.commands.write_options import TXN_VERSION_CONF, WriteOptions
from pyspark_delta.spark.commands.write_request import WriteRequest

Scope = Literal["nothing", "everything", "partitions", "where", "matching"]
"""What a write replaces: no row, all rows, those of the partitions that it writes to, those for
which a condition is true, or those that a row of the data matches."""

_NULLS = "useNullIntolerantEqualityWithDPO"


def asked_options(spark: SparkSession, request: WriteRequest) -> WriteOptions:
    """The options and settings of a request, with what it says by itself."""
    asked = WriteOptions.parse(request.options, lambda key: spark.conf.get(key, None))
    if request.replace_where is not None:
        if asked.replace_where is not None:
            raise OperationNotAllowedError("DELTA_REPLACE_WHERE_IN_OVERWRITE")
        if asked.matches is not None:
            raise OperationNotAllowedError(
                "DELTA_OVERWRITE_BY_FILTER_INCOMPATIBLE_REPLACE_ON_OR_USING"
            )
    if request.dynamic_partitions:
        if asked.matches is not None:
            raise OperationNotAllowedError(
                "DELTA_DYNAMIC_PARTITION_OVERWRITE_INCOMPATIBLE_REPLACE_ON_OR_USING"
            )
        asked = replace(asked, dynamic_option=True, is_dynamic=True)
    table = request.as_table
    if table is not None and not table.is_v1_overwrite and asked.matches is not None:
        raise OperationNotAllowedError("DELTA_DFV2_CREATE_REPLACE_INCOMPATIBLE_REPLACE_ON_OR_USING")
    return asked


def must_write(
    spark: SparkSession, txn: OptimisticTransaction, request: WriteRequest, asked: WriteOptions
) -> bool:
    """Whether there is anything to do; a typed error when it must not be done."""
    if txn.snapshot is not None:
        root = txn.log.store.root_uri
        if request.mode == "error":
            raise TableAlreadyExistsError("DELTA_PATH_EXISTS", path=root)
        if request.mode == "ignore":
            return False
        is_append_only = property_value(txn.metadata.configuration, APPEND_ONLY)
        if request.mode == "overwrite" and is_append_only:
            raise AppendOnlyError(
                "DELTA_CANNOT_MODIFY_APPEND_ONLY", table_name=root, config=APPEND_ONLY.key
            )
    once = asked.txn
    if once is not None and txn.txn_version(once.app_id) >= once.version:
        forget_session_version(spark, asked)
        return False
    return True


def forget_session_version(spark: SparkSession, asked: WriteOptions) -> None:
    """Take the session's txnVersion back, where it is to be used once."""
    if asked.txn is not None and asked.txn.resets_session:
        spark.conf.unset(TXN_VERSION_CONF)


def scope_of(txn: OptimisticTransaction, request: WriteRequest, asked: WriteOptions) -> Scope:
    """What the write replaces."""
    is_overwrite = request.mode == "overwrite"
    replaces_where = asked.replace_where is not None or request.replace_where is not None
    _check_matching(asked, is_overwrite=is_overwrite, replaces_where=replaces_where)
    is_dynamic = _is_dynamic(txn, request, asked, replaces_where=replaces_where)
    if is_overwrite and not is_dynamic and asked.leaves_null_partitions is not None:
        raise PropertyError(
            "DELTA_ILLEGAL_OPTION",
            name=_NULLS,
            input=str(asked.leaves_null_partitions).lower(),
            explain="is for dynamic partition overwrites",
        )
    if not is_overwrite:
        return "nothing"
    if is_dynamic:
        return "partitions"
    if txn.snapshot is None or request.replaces_definition:
        return "everything"
    if replaces_where:
        return "where"
    return "everything" if asked.matches is None else "matching"


def _is_dynamic(
    txn: OptimisticTransaction, request: WriteRequest, asked: WriteOptions, *, replaces_where: bool
) -> bool:
    if request.mode != "overwrite" or request.replaces_definition:
        return False
    is_partitioned = txn.snapshot is not None and bool(txn.metadata.partition_columns)
    if replaces_where:
        # Both say what to replace.  An option beats a setting, but not another option.
        if asked.dynamic_option and is_partitioned:
            raise OperationNotAllowedError("DELTA_REPLACE_WHERE_WITH_DYNAMIC_PARTITION_OVERWRITE")
        return False
    if asked.matches is not None or not asked.is_dynamic:
        return False
    if asked.overwrites_schema:
        if request.partition_by:
            raise OperationNotAllowedError(
                "DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE"
            )
        # The new definition has no partition columns: there is nothing to be dynamic about, and
        # the data takes the place of all rows, as in delta-spark.
        return False
    return is_partitioned


def _check_matching(asked: WriteOptions, *, is_overwrite: bool, replaces_where: bool) -> None:
    """Refuse what cannot stand beside replaceOn or replaceUsing."""
    if asked.matches is None:
        return
    name = "replaceUsing" if asked.replace_on is None else "replaceOn"
    if asked.replace_on is not None and asked.replace_using is not None:
        raise _clash("replaceOn", "replaceUsing")
    if replaces_where:
        raise OperationNotAllowedError("DELTA_OVERWRITE_BY_FILTER_INCOMPATIBLE_REPLACE_ON_OR_USING")
    if asked.dynamic_option is not None:
        raise OperationNotAllowedError(
            "DELTA_DYNAMIC_PARTITION_OVERWRITE_INCOMPATIBLE_REPLACE_ON_OR_USING"
        )
    if asked.overwrites_schema and is_overwrite:
        raise _clash("overwriteSchema", name)
    if not asked.data_change:
        raise _clash("dataChange", name)


def _clash(first: str, second: str) -> OperationNotAllowedError:
    return OperationNotAllowedError(
        "DELTA_INCOMPATIBLE_DATAFRAME_OPTIONS", firstDeltaOption=first, secondDeltaOption=second
    )
