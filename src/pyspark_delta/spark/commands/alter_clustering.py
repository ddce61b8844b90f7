"""ALTER TABLE CLUSTER BY: by which columns OPTIMIZE lays out rows from now on.

Files stay as they are until then.  PROTOCOL.md, "Clustered Table".
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from pyspark_delta.errors.table import OperationNotAllowedError
from pyspark_delta.kernel.ops.clustering_columns import clustering_paths
from pyspark_delta.kernel.protocol.column_mapping import logical_path, physical_path
from pyspark_delta.kernel.protocol.domains import clustering_columns, clustering_domain
from pyspark_delta.kernel.protocol.feature_upgrade import upgraded
from pyspark_delta.kernel.protocol.operations import cluster_by
from pyspark_delta.kernel.protocol.types import column_name
from pyspark_delta.kernel.scan.plan import mapping_mode
from pyspark_delta.spark.catalog import TableName
from pyspark_delta.spark.commands.alter_table import Alteration
from pyspark_delta.spark.exact_names import check_layout_names

_FEATURE = "clustering"


def run_cluster_by(spark: SparkSession, table: TableName, columns: Sequence[Sequence[str]]) -> None:
    """Cluster the table by these columns, by none where there are none."""
    alteration = Alteration.start(spark, table)
    snapshot, schema = alteration.snapshot, alteration.schema
    if snapshot.metadata.partition_columns:
        raise OperationNotAllowedError(
            "DELTA_ALTER_TABLE_CLUSTER_BY_ON_PARTITIONED_TABLE_NOT_ALLOWED"
        )
    if not columns and _FEATURE not in alteration.features:
        return  # it is not clustered, and need not become a table that could be
    check_layout_names(spark, schema, columns)
    paths = clustering_paths(snapshot.metadata, columns)
    mode = mapping_mode(snapshot.metadata)
    old = [
        column_name(logical_path(schema, physical, mode))
        for physical in clustering_columns(snapshot.domains) or ()
    ]
    operation = cluster_by(old, [column_name(path) for path in paths])
    alteration.txn.update_protocol(upgraded(snapshot.protocol, [_FEATURE]))
    domain = clustering_domain(physical_path(schema, path, mode) for path in paths)
    alteration.commit(None, operation, [domain])
