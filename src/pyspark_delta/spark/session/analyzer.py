"""Refuses Spark's optional single-pass analyzer: it runs no rules of extensions, and so no hooks.

>>> is_single_pass("spark.sql.analyzer.singlePassResolver.enabled", "true")
True
"""

from __future__ import annotations

import re

from pyspark.sql import SparkSession

from pyspark_delta.errors import OperationNotAllowedError

_PREFIX = "spark.sql.analyzer.singlePassResolver."
_KEYS = (f"{_PREFIX}enabled", f"{_PREFIX}enabledTentatively")
_SET = re.compile(r"\bSET\s+(?P<key>[\w.]+)\s*=\s*(?P<value>\w+)\s*;?\s*$", re.IGNORECASE)


def is_single_pass(key: str, value: object) -> bool:
    """Whether a setting turns that analyzer on."""
    return key in _KEYS and str(value).lower() == "true"


def check_analyzer(spark: SparkSession) -> None:
    """Raise if the session has that analyzer."""
    for key in _KEYS:
        check_analyzer_setting(key, spark.conf.get(key, "false"))


def check_analyzer_setting(key: str, value: object) -> None:
    """Raise for a setting that would give an enabled session that analyzer."""
    if is_single_pass(key, value):
        raise OperationNotAllowedError(
            "DELTA_OPERATION_NOT_ALLOWED",
            operation=f"{key}=true, an analyzer that runs no rules of extensions,",
        )


def check_set(sql: str) -> None:
    """As `check_analyzer_setting`, for the text of a SET."""
    found = _SET.search(sql)
    if found is not None:
        check_analyzer_setting(found["key"], found["value"])
