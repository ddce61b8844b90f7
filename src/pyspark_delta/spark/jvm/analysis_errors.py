"""Spark's own errors for what Spark refuses by name, where we refuse it in its place."""

from __future__ import annotations

from pyspark.errors.exceptions.captured import convert_exception

from pyspark_delta.spark.jvm.gateway import JvmSession


def analysis_error(jvm: JvmSession, condition: str, **parameters: str) -> Exception:
    """The AnalysisException of that condition, with Spark's own words."""
    error = jvm.java_class("org.apache.spark.sql.AnalysisException")(
        condition, jvm.scala_map(parameters)
    )
    made: Exception = convert_exception(error)
    return made
