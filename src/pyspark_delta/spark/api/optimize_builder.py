"""`DeltaOptimizeBuilder`, returned by `DeltaTable.optimize()`: choose partitions, then run."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from pyspark_delta.spark.api.arguments import check_text
from pyspark_delta.spark.api.errors import raises_spark_errors
from pyspark_delta.spark.maintenance.optimize import OptimizeRequest


@raises_spark_errors
class DeltaOptimizeBuilder:
    """An OPTIMIZE, as in `table.optimize().where("day = '2024-05-01'").executeCompaction()`."""

    def __init__(
        self,
        run: Callable[[OptimizeRequest], DataFrame],
        parse_name: Callable[[str], tuple[str, ...]],
    ) -> None:
        self._run = run
        self._parse_name = parse_name
        self._filters: list[str] = []

    def where(self, partitionFilter: str) -> DeltaOptimizeBuilder:
        """Optimize only partitions for which the filter is true; further filters narrow them."""
        check_text(partitionFilter, "partitionFilter")
        self._filters.append(partitionFilter)
        return self

    def executeCompaction(self) -> DataFrame:
        """Compact small files into larger ones; returns one row with the metrics."""
        return self._run(OptimizeRequest(where=tuple(self._filters)))

    def executeZOrderBy(self, *cols: str | list[str] | tuple[str, ...]) -> DataFrame:
        """Z-order rows so that queries on any of the columns skip files; returns one row."""
        listed = [[each] if isinstance(each, str) else each for each in cols]
        names = [name for each in listed for name in each]
        for name in names:
            check_text(name, "cols")
        if not names:
            raise ValueError("executeZOrderBy needs at least one column")
        paths = tuple(self._parse_name(name) for name in names)
        return self._run(OptimizeRequest(where=tuple(self._filters), z_order_by=paths))
