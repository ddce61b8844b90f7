"""Which files a query opens: of Delta tables, those that pruning and skipping leave."""

from __future__ import annotations

from pyspark.sql import DataFrame

from pyspark_delta.spark.jvm.file_index import proxy_behind, proxy_of
from pyspark_delta.spark.jvm.gateway import JvmSession, items
from pyspark_delta.spark.jvm.plans import plan_frame

_SCAN = "FileSourceScanExec"


def input_files(frame: DataFrame) -> tuple[list[str], list[DataFrame]] | None:
    """The URIs of a query's files in Delta tables, and each of its other leaves as a query.

    None when it reads no Delta table.  Spark asks a relation for all its files, whatever the
    query; which filters come to its scan shows in the plan that would be run.
    """
    query = frame._jdf.queryExecution()
    leaves = items(query.optimizedPlan().collectLeaves())
    others = [leaf for leaf in leaves if proxy_behind(leaf) is None]
    if len(others) == len(leaves):
        return None
    found: list[str] = []
    for leaf in items(query.sparkPlan().collectLeaves()):
        if leaf.getClass().getSimpleName() == _SCAN:
            proxy = proxy_of(leaf.relation().location())
            if proxy is not None:
                found += proxy.scanned_files(leaf.partitionFilters(), leaf.dataFilters())
    jvm = JvmSession(frame.sparkSession)
    return found, [plan_frame(jvm, leaf) for leaf in others]
