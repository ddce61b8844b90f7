"""ALTER TABLE SET and UNSET TBLPROPERTIES, and COMMENT ON TABLE.

Some properties are more than a line in the metadata: they ask for a protocol, for ids on every
row, or for files without column mapping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from pyspark_delta.kernel.ops.row_tracking_backfill import (
    check_all_numbered,
    enablement_tags,
    enables_row_tracking,
)
from pyspark_delta.kernel.protocol.operations import set_table_properties, unset_table_properties
from pyspark_delta.kernel.protocol.properties import (
    COLUMN_MAPPING_MODE,
    canonical_key,
    validate_properties,
)
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.catalog import TableName, log_of
from pyspark_delta.spark.commands.alter_table import Alteration
from pyspark_delta.spark.commands.remove_column_mapping import (
    is_mapped,
    may_remove_mapping,
    run_remove_column_mapping,
)
from pyspark_delta.spark.commands.row_tracking_backfill import enable_row_tracking

_ALLOW_ARBITRARY = "spark.databricks.delta.allowArbitraryProperties.enabled"
_COMMENT = "comment"


def run_set_properties(
    spark: SparkSession,
    table: TableName,
    properties: Mapping[str, str],
    log: DeltaLog | None = None,
    *,
    told_as_given: bool = False,
) -> None:
    """Set properties; those of the protocol go there, and a comment becomes the description.

    `log` is the table's where it was opened with options of its own.  With `told_as_given` the
    history spells keys as the caller did.
    """
    log = log_of(spark, table) if log is None else log
    checking = Alteration.start(spark, table, log)
    given = {key: value for key, value in properties.items() if key != _COMMENT}
    changes = validate_properties(
        given,
        existing=checking.metadata.configuration,
        altering=True,
        allow_arbitrary=checking.setting(_ALLOW_ARBITRARY, False),
    )
    enable_row_tracking(spark, log, changes)
    removes = (changes.get(COLUMN_MAPPING_MODE.key) or "").lower() == "none"
    if removes and is_mapped(checking.metadata) and may_remove_mapping(spark):
        run_remove_column_mapping(spark, log, keeps_property=True)
        if len(properties) == 1:
            return
    alteration = Alteration.start(spark, table, log)
    if enables_row_tracking(changes):
        check_all_numbered(alteration.snapshot)
    old = alteration.metadata
    new = replace(
        old,
        description=properties.get(_COMMENT, old.description),
        configuration={**old.configuration, **changes},
    )
    told = {**changes, **{key: properties[key] for key in properties if key == _COMMENT}}
    if told_as_given:
        told = dict(properties)
    alteration.commit(new, set_table_properties(told), tags=enablement_tags(changes))


def run_unset_properties(spark: SparkSession, table: TableName, keys: Sequence[str]) -> None:
    """Take properties away; those that are not set make no difference."""
    spelled = [canonical_key(key) for key in keys]
    alteration = Alteration.start(spark, table)
    if COLUMN_MAPPING_MODE.key in spelled and is_mapped(alteration.metadata):
        if may_remove_mapping(spark):
            run_remove_column_mapping(spark, log_of(spark, table), keeps_property=False)
            if len(spelled) == 1:
                return
        alteration = Alteration.start(spark, table)
    old = alteration.metadata
    left = {key: value for key, value in old.configuration.items() if key not in spelled}
    description = None if _COMMENT in spelled else old.description
    new = replace(old, description=description, configuration=left)
    # The statement has no way to ask for anything else in Spark's second catalog interface.
    alteration.commit(new, unset_table_properties(spelled, if_exists=True))


def run_comment(spark: SparkSession, table: TableName, comment: str) -> None:
    """Say what the table is about."""
    run_set_properties(spark, table, {_COMMENT: comment})
