"""`configure_spark_with_delta_pip`: builders whose sessions are enabled when they are made.

In delta-spark the function of this name adds a JAR for download.  There is none here, so it only
enables the session that the builder makes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from pyspark.sql import SparkSession

from pyspark_delta.spark.session.delta_spark_settings import PACKAGES, without_delta_spark
from pyspark_delta.spark.session.enable import enable


def configure_spark_with_delta_pip(
    spark_session_builder: SparkSession.Builder, extra_packages: Sequence[str] | None = None
) -> SparkSession.Builder:
    """The builder, whose `getOrCreate` from now on returns an enabled session.

    `extra_packages` are Maven coordinates of the user's.  Configuration for delta-spark's
    extension, catalog and JAR is dropped when the session is made, whether it was set before this
    call or after it.
    """
    if not isinstance(spark_session_builder, SparkSession.Builder):
        raise TypeError(
            "configure_spark_with_delta_pip takes a SparkSession builder, as in "
            "configure_spark_with_delta_pip(SparkSession.builder.appName('x')), "
            f"not {type(spark_session_builder).__name__}"
        )
    if isinstance(extra_packages, str):
        raise TypeError("extra_packages is a list of Maven coordinates, not one text")
    builder = spark_session_builder
    if extra_packages:
        builder.config(PACKAGES, ",".join(extra_packages))
    original = builder.getOrCreate
    if "getOrCreate" not in vars(builder):

        @functools.wraps(original)
        def get_or_create() -> SparkSession:
            builder._options = without_delta_spark(builder._options)
            session = original()
            # A client of Spark Connect has no JVM: its server is enabled, or not.
            return enable(session) if isinstance(session, SparkSession) else session

        builder.getOrCreate = get_or_create  # type: ignore[method-assign]
    return builder
