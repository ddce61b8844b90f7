"""Which Sparks we speak for."""

from __future__ import annotations

import warnings

import pytest

from pyspark_delta.errors import OperationNotAllowedError
from pyspark_delta.spark.jvm.gateway import check_supported


@pytest.mark.parametrize("version", ["4.4.0", "4.10.1", "5.0.0-SNAPSHOT"])
def test_an_untested_newer_spark_warns_and_does_not_fail(version: str) -> None:
    with pytest.warns(UserWarning, match=version):
        check_supported(version)


@pytest.mark.parametrize("version", ["3.5.9", "4.0.0", "4.1.0", "4.1.4-SNAPSHOT"])
def test_an_older_spark_is_refused_in_one_sentence_with_the_supported_versions(
    version: str,
) -> None:
    with pytest.raises(OperationNotAllowedError, match=r"Spark 4\.2 to 4\.3") as refused:
        check_supported(version)
    assert refused.value.condition == "DELTA_UNSUPPORTED_SPARK_VERSION"
    assert refused.value.parameters["version"] == version


@pytest.mark.parametrize("version", ["4.2.0", "4.3.0", "4.3.7", "odd"])
def test_a_tested_spark_is_silent(version: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_supported(version)
