"""What the plan of a query tells before it runs."""

from __future__ import annotations

from pyspark.sql import DataFrame


def files_read(frame: DataFrame) -> int:
    """How many files the plan of a query opens."""
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    scans = [leaves.apply(i) for i in range(leaves.size())]
    return sum(
        scan.selectedPartitions().totalNumberOfFiles()
        for scan in scans
        if scan.getClass().getSimpleName() == "FileSourceScanExec"
    )
