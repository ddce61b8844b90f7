"""Which Sparks we speak for."""

from __future__ import annotations

import warnings

import pytest

from pyspark_delta.spark.jvm.versions import warn_if_untested


@pytest.mark.parametrize("version", ["4.4.0", "4.10.1", "5.0.0-SNAPSHOT"])
def test_an_untested_newer_spark_warns_and_does_not_fail(version: str) -> None:
    with pytest.warns(UserWarning, match=version):
        warn_if_untested(version)


@pytest.mark.parametrize("version", ["4.2.0", "4.3.0", "4.3.7", "odd"])
def test_a_tested_spark_is_silent(version: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_untested(version)
