"""Columns of a table to be made, looked at as Spark does before any catalog hears of them."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from pyspark_delta.spark.jvm.gateway import JvmSession


def check_columns_differ(jvm: JvmSession, schema: Any) -> None:
    """Spark's error for two columns of one name, at any depth of a schema of Java's.

    Whether upper and lower case make two names is the session's to say.
    """
    exact = jvm.session.sessionState().conf().caseSensitiveAnalysis()
    utils = jvm.java_class("org.apache.spark.sql.util.SchemaUtils$")
    utils.checkSchemaColumnNameDuplication(schema, exact)


def check_new_columns(data: DataFrame) -> None:
    """As `check_columns_differ`, for the columns that rows bring to a new table."""
    check_columns_differ(JvmSession(data.sparkSession), data._jdf.schema())
