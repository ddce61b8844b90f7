"""`DeltaTable.optimize()`: which partitions first, then how."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyspark.sql import DataFrame

from pyspark_delta.spark.commands.optimize import OptimizeRequest
from pyspark_delta.spark.spark_errors import raises_spark_errors
from pyspark_delta.spark.table_arguments import check_text


@raises_spark_errors
class DeltaOptimizeBuilder:
    """What to optimize: `table.optimize().where("day = '2024-05-01'").executeCompaction()`."""

    def __init__(
        self,
        run: Callable[[OptimizeRequest], DataFrame],
        parse_name: Callable[[str], tuple[str, ...]],
    ) -> None:
        self._run = run
        self._parse_name = parse_name
        self._filters: list[str] = []

    def where(self, partitionFilter: str) -> DeltaOptimizeBuilder:
        """Only partitions for which the filter is true; of several, those for which all are."""
        check_text(partitionFilter, "partitionFilter")
        self._filters.append(partitionFilter)
        return self

    def executeCompaction(self) -> DataFrame:
        """Write small files together; one row says what was done."""
        return self._run(OptimizeRequest(where=tuple(self._filters)))

    def executeZOrderBy(self, *cols: str | list[str] | tuple[str, ...]) -> DataFrame:
        """Order rows so that queries on any of the columns skip files; one row says the rest."""
        names = _names(cols)
        if not names:
            raise ValueError("executeZOrderBy needs at least one column")
        paths = tuple(self._parse_name(name) for name in names)
        return self._run(OptimizeRequest(where=tuple(self._filters), z_order_by=paths))


def _names(given: Iterable[str | list[str] | tuple[str, ...]]) -> list[str]:
    found: list[str] = []
    for each in given:
        found += [each] if isinstance(each, str) else list(each)
    for name in found:
        check_text(name, "cols")
    return found
