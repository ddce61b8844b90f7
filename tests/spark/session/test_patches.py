"""What is changed in PySpark and Py4J for an enabled session: the table of design record 031."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from inspect import isclass
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from py4j.java_gateway import JavaGateway
from pyspark.sql import SparkSession

from pyspark_delta import enable
from pyspark_delta.errors import OperationNotAllowedError
from pyspark_delta.spark.jvm.callbacks import thrown_in_java
from pyspark_delta.spark.jvm.gateway import JvmSession

RECORD = Path(__file__).parents[3] / "docs" / "design" / "031-one-door.md"
MOST = 10
OURS = ("pyspark_delta", "_pyspark_delta_startup")
SINGLE_PASS = "spark.sql.analyzer.singlePassResolver.enabled"


def changes(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Names and modules of functions of ours in the place of a function, and those they wrap."""
    while isinstance(value, FunctionType):
        module = value.__globals__["__name__"]
        if module.split(".")[0] in OURS:
            yield name, module
        value = vars(value).get("__wrapped__")


def changed_in_python() -> set[tuple[str, str]]:
    """All functions of ours that are in modules and classes of PySpark and Py4J."""
    found: set[tuple[str, str]] = set()
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] not in ("pyspark", "py4j") or module is None:
            continue
        for attribute, value in list(vars(module).items()):
            found.update(changes(f"{name.rpartition('.')[2]}.{attribute}", value))
            if isclass(value):
                found.update(changed_in_class(value))
    return found


def changed_in_class(owner: type) -> Iterator[tuple[str, str]]:
    if owner.__module__.split(".")[0] not in ("pyspark", "py4j"):
        return
    for attribute, value in list(vars(owner).items()):
        yield from changes(f"{owner.__qualname__}.{attribute}", value)
        if isclass(value) and value is not owner:
            yield from changed_in_class(value)


def listed() -> list[str]:
    """The first column of the record's table."""
    _, _, rows = RECORD.read_text(encoding="utf-8").partition("| method | reason |\n|---|---|\n")
    return [
        row.split(" | ")[0].removeprefix("| ") for row in rows.partition("\n\n")[0].splitlines()
    ]


def test_the_record_lists_every_change_and_these_are_ten_at_most(spark: SparkSession) -> None:
    enable(spark)
    found = {
        f"`{name}`" if module != OURS[1] else f"`{name}` in `{module}.py`"
        for name, module in changed_in_python()
    }
    # Imported under a name of its own, and by each test's environment that has the `.pth` file.
    found.add(f"`SparkSession.Builder.getOrCreate` in `{OURS[1]}.py`")
    named = listed()
    of_py4j = [each for each in named if "Py4J" in each]
    assert of_py4j == ["`python_parameters.propagate_java_exceptions` of Py4J, in `callbacks.py`"]
    assert set(named) - set(of_py4j) == found
    assert len(named) == len(set(named)) <= MOST


def test_py4j_s_setting_is_what_it_was_for_everybody_else(spark: SparkSession) -> None:
    gateway: JavaGateway = JvmSession(enable(spark)).gateway
    with pytest.raises(Exception, match="nothing was changed"), thrown_in_java(JvmSession(spark)):
        raise OperationNotAllowedError("DELTA_OPERATION_NOT_ALLOWED", operation="This")
    assert gateway.python_parameters.propagate_java_exceptions  # for that one error
    assert not gateway.python_parameters.propagate_java_exceptions


def test_the_analyzer_that_passes_the_hooks_by_is_refused(spark: SparkSession) -> None:
    enable(spark)
    for turn_on in (
        lambda: spark.conf.set(SINGLE_PASS, "true"),
        lambda: spark.conf.set(f"{SINGLE_PASS}Tentatively", True),
        lambda: spark.sql(f"SET {SINGLE_PASS}=true"),
        lambda: spark.sql(f"/* c */ SET {SINGLE_PASS}Tentatively = TRUE;"),
    ):
        with pytest.raises(OperationNotAllowedError, match="singlePassResolver"):
            turn_on()
    spark.conf.set(SINGLE_PASS, "false")
    assert spark.sql(f"SET {SINGLE_PASS}").collect()[0].value == "false"


def test_a_session_with_that_analyzer_is_not_enabled(spark: SparkSession) -> None:
    enable(spark)
    made: Any = spark._jsparkSession
    java = made.newSession()
    java.conf().set(SINGLE_PASS, "true")
    other = SparkSession(spark.sparkContext, java)
    with pytest.raises(OperationNotAllowedError, match="singlePassResolver"):
        enable(other)
    other.conf.set(SINGLE_PASS, "false")
    assert enable(other).sql("SELECT 1").count() == 1
