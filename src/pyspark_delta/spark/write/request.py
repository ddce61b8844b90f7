"""`WriteRequest`, what `run_write` is called with beside table and data, and its scope.

The scope is the rows that a write replaces.  It follows from options, settings and the table's
metadata alone; contradictory options raise.

>>> WriteRequest(mode="append").options
{}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from pyspark.sql import Column, SparkSession

from pyspark_delta.errors import (
    AppendOnlyError,
    OperationNotAllowedError,
    PropertyError,
    TableAlreadyExistsError,
)
from pyspark_delta.kernel.protocol.properties import APPEND_ONLY, property_value
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.conf.settings import conf_of
from pyspark_delta.spark.files.write_options import WriteOptions, is_committed

SaveMode = Literal["append", "overwrite", "error", "ignore"]
TableVerb = Literal["create", "replace", "create or replace"]

Scope = Literal["nothing", "everything", "partitions", "where", "matching"]
"""The rows that a write replaces.

These are none, all, those of the partitions that it writes to, those for which a condition is true,
or those that a row of the data matches.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWrite:
    """A write that creates or replaces a table of the catalog, and is recorded as such.

    `properties` are the table's own, beside `delta.*` options of the writer.  `is_v1_overwrite`
    means that it is a `saveAsTable` in mode overwrite.
    """

    verb: TableVerb
    is_managed: bool
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    is_v1_overwrite: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRequest:
    """How rows are written to a table.

    `options` are the writer's, in any case.  `casts` makes the data's types the table's by
    Spark's store assignment policy, as table writes do and `save` does not; `by_position` takes
    columns in the table's order instead of by name, `fields_by_position` only fields of structs.
    `replace_where` and `dynamic_partitions` select the rows that an overwrite replaces, as the
    options of that name do.
    """

    mode: SaveMode = "error"
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    casts: bool = False
    by_position: bool = False
    fields_by_position: bool = False
    replace_where: Column | str | None = None
    dynamic_partitions: bool = False
    as_table: TableWrite | None = None

    @property
    def replaces_definition(self) -> bool:
        """Whether the table gets a new definition, and keeps nothing of the old one."""
        return self.as_table is not None and not self.as_table.is_v1_overwrite


def write_options(spark: SparkSession, request: WriteRequest) -> WriteOptions:
    """The write options of a request, with its own fields applied."""
    options = WriteOptions.parse(request.options, conf_of(spark))
    if request.replace_where is not None:
        if options.replace_where is not None:
            raise OperationNotAllowedError("DELTA_REPLACE_WHERE_IN_OVERWRITE")
        if options.matches is not None:
            raise OperationNotAllowedError(
                "DELTA_OVERWRITE_BY_FILTER_INCOMPATIBLE_REPLACE_ON_OR_USING"
            )
    if request.dynamic_partitions:
        if options.matches is not None:
            raise OperationNotAllowedError(
                "DELTA_DYNAMIC_PARTITION_OVERWRITE_INCOMPATIBLE_REPLACE_ON_OR_USING"
            )
        options = replace(options, dynamic_option=True, is_dynamic=True)
    table = request.as_table
    if table is not None and not table.is_v1_overwrite and options.matches is not None:
        raise OperationNotAllowedError("DELTA_DFV2_CREATE_REPLACE_INCOMPATIBLE_REPLACE_ON_OR_USING")
    return options


def must_write(
    spark: SparkSession, txn: OptimisticTransaction, request: WriteRequest, options: WriteOptions
) -> bool:
    """Whether there is anything to do; raises a typed error if the write is not allowed."""
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
    return not is_committed(spark, txn, options)


def write_scope(txn: OptimisticTransaction, request: WriteRequest, options: WriteOptions) -> Scope:
    """The scope of the write."""
    is_overwrite = request.mode == "overwrite"
    replaces_where = options.replace_where is not None or request.replace_where is not None
    _check_matching(options, is_overwrite=is_overwrite, replaces_where=replaces_where)
    is_dynamic = _is_dynamic(txn, request, options, replaces_where=replaces_where)
    if is_overwrite and not is_dynamic and options.leaves_null_partitions is not None:
        raise PropertyError(
            "DELTA_ILLEGAL_OPTION",
            name="useNullIntolerantEqualityWithDPO",
            input=str(options.leaves_null_partitions).lower(),
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
    return "everything" if options.matches is None else "matching"


def _is_dynamic(
    txn: OptimisticTransaction,
    request: WriteRequest,
    options: WriteOptions,
    *,
    replaces_where: bool,
) -> bool:
    if request.mode != "overwrite" or request.replaces_definition:
        return False
    is_partitioned = txn.snapshot is not None and bool(txn.metadata.partition_columns)
    if replaces_where:
        # Both select rows.  An option overrides a setting, but not another option.
        if options.dynamic_option and is_partitioned:
            raise OperationNotAllowedError("DELTA_REPLACE_WHERE_WITH_DYNAMIC_PARTITION_OVERWRITE")
        return False
    if options.matches is not None or not options.is_dynamic:
        return False
    if options.overwrites_schema:
        if request.partition_by:
            raise OperationNotAllowedError(
                "DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE"
            )
        # The new definition has no partition columns: dynamic mode does not apply, and the data
        # replaces all rows, as in delta-spark.
        return False
    return is_partitioned


def _check_matching(options: WriteOptions, *, is_overwrite: bool, replaces_where: bool) -> None:
    """Raise for options that cannot be combined with replaceOn or replaceUsing."""
    if options.matches is None:
        return
    name = "replaceUsing" if options.replace_on is None else "replaceOn"
    if options.replace_on is not None and options.replace_using is not None:
        raise _clash("replaceOn", "replaceUsing")
    if replaces_where:
        raise OperationNotAllowedError("DELTA_OVERWRITE_BY_FILTER_INCOMPATIBLE_REPLACE_ON_OR_USING")
    if options.dynamic_option is not None:
        raise OperationNotAllowedError(
            "DELTA_DYNAMIC_PARTITION_OVERWRITE_INCOMPATIBLE_REPLACE_ON_OR_USING"
        )
    if options.overwrites_schema and is_overwrite:
        raise _clash("overwriteSchema", name)
    if not options.data_change:
        raise _clash("dataChange", name)


def _clash(first: str, second: str) -> OperationNotAllowedError:
    return OperationNotAllowedError(
        "DELTA_INCOMPATIBLE_DATAFRAME_OPTIONS", firstDeltaOption=first, secondDeltaOption=second
    )
