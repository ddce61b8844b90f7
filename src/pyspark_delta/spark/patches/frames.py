"""`df.alias(name)`: the two sides of a self-join each have row ids to ask for."""

from __future__ import annotations

from typing import Any

from pyspark.sql.classic.dataframe import DataFrame

from pyspark_delta.spark.enabled_sessions import is_enabled
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.table_plan import frame_with_own_struct
from pyspark_delta.spark.patches.said import Method, Wrap


def _alias(original: Method) -> Method:
    def alias(self: Any, alias: str) -> Any:
        if is_enabled(self.sparkSession):
            return original(frame_with_own_struct(JvmSession(self.sparkSession), self), alias)
        return original(self, alias)

    return alias


CHANGED: dict[tuple[type, str], Wrap] = {(DataFrame, "alias"): _alias}
