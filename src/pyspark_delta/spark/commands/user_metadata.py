"""`spark.databricks.delta.commitInfo.userMetadata`: what a session writes into its commits.

Statements have no option for it, so every command that commits asks here; a writer's own option
`userMetadata` wins, where there is one.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


def session_user_metadata(spark: SparkSession) -> str | None:
    """The text that the session's commits carry, if any."""
    return spark.conf.get(USER_METADATA, None)
