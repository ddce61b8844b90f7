"""The JVM behind a session: Python values to Scala's and back, calls from Java into Python.

Everything else in this package takes a `JvmSession`, and nothing outside of `spark/jvm` takes
what its attributes give.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from py4j.java_gateway import JavaGateway
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.kernel.protocol.schema_json import type_json
from pyspark_delta.kernel.protocol.types import DataType


class JvmSession:
    """A session, and what its JVM offers.  Cheap to make; holds nothing but the session."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.gateway: JavaGateway = spark.sparkContext._gateway
        self.jvm: Any = spark._jvm
        self.session: Any = spark._jsparkSession

    def accept_callbacks(self) -> None:
        """Let Java call Python objects of this process; once is enough."""
        ensure_callback_server_started(self.gateway)  # type: ignore[no-untyped-call]

    def java_class(self, name: str) -> Any:
        """A class by its full name; `Name$` gives the one instance of a Scala object."""
        found: Any = self.jvm
        for part in name.split("."):
            found = getattr(found, part)
        if name.endswith("$"):
            return getattr(found, "MODULE$")
        return found

    def seq(self, items: Iterable[Any]) -> Any:
        """A Scala sequence."""
        return self.jvm.PythonUtils.toSeq(list(items))

    def scala_map(self, items: Mapping[str, str]) -> Any:
        """A Scala map from text to text."""
        return self.jvm.PythonUtils.toScalaMap(dict(items))

    def none(self) -> Any:
        """Scala's None."""
        return self.jvm.scala.Option.empty()

    def some(self, value: Any) -> Any:
        """Scala's Some."""
        return self.jvm.scala.Option.apply(value)

    def array(self, element_class: Any, items: Sequence[Any]) -> Any:
        """A Java array; a call for each item, so for few of them."""
        array = self.gateway.new_array(element_class, len(items))
        for index, item in enumerate(items):
            array[index] = item
        return array

    def data_type(self, data_type: DataType) -> Any:
        """A kernel type as Catalyst's."""
        text = json.dumps(type_json(data_type))
        return self.jvm.org.apache.spark.sql.types.DataType.fromJson(text)

    def data_frame(self, java_data_frame: Any) -> DataFrame:
        """A Java Dataset as PySpark's DataFrame."""
        return DataFrame(java_data_frame, self.spark)

    def hadoop_path(self, text: str) -> Any:
        """Hadoop's Path of a decoded path or location."""
        return self.jvm.org.apache.hadoop.fs.Path(text)


def items(scala_seq: Any) -> list[Any]:
    """The items of a short Scala sequence: a call for each."""
    return [scala_seq.apply(index) for index in range(scala_seq.size())]
