"""The JVM behind a session: Python values to Scala's and back, calls from Java into Python.

Everything else in this package takes a `JvmSession`, and nothing outside of `spark/jvm` takes
what its attributes give.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from py4j.java_gateway import JavaClass, JavaGateway
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.kernel.protocol.schema_json import type_json
from pyspark_delta.kernel.protocol.types import DataType

_PYTHON_UTILS = "org.apache.spark.api.python.PythonUtils"
# What a JVM was asked for by name: a name takes a call for each of its parts, and never means
# anything else.
_FOUND: WeakKeyDictionary[JavaGateway, dict[str, Any]] = WeakKeyDictionary()


class JvmSession:
    """A session, and what its JVM offers.  Cheap to make; holds nothing but the session."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.gateway: JavaGateway = spark.sparkContext._gateway
        self.jvm: Any = spark._jvm
        self.session: Any = spark._jsparkSession
        self._found = _FOUND.setdefault(self.gateway, {})

    def accept_callbacks(self) -> None:
        """Let Java call Python objects of this process; once is enough."""
        ensure_callback_server_started(self.gateway)  # type: ignore[no-untyped-call]

    def java_class(self, name: str) -> Any:
        """A class by its full name; `Name$` gives the one instance of a Scala object."""
        known = self._found.get(name)
        if known is not None:
            return known
        found: Any = self.jvm
        for part in name.split("."):
            found = getattr(found, part)
        if not isinstance(found, JavaClass):
            return found  # a package, or a class that this JVM does not have
        if name.endswith("$"):
            found = getattr(found, "MODULE$")
        self._found[name] = found
        return found

    def static(self, class_name: str, method: str) -> Any:
        """A static method of a class, to be called."""
        return self.remembered(
            f"{class_name}.{method}()", lambda: getattr(self.java_class(class_name), method)
        )

    def remembered(self, key: str, find: Callable[[], Any]) -> Any:
        """What `find` gave for the key the first time: what a JVM has does not change."""
        if key not in self._found:
            self._found[key] = find()
        return self._found[key]

    def seq(self, items: Iterable[Any]) -> Any:
        """A Scala sequence."""
        return self.static(_PYTHON_UTILS, "toSeq")(list(items))

    def scala_map(self, items: Mapping[str, str]) -> Any:
        """A Scala map from text to text."""
        return self.static(_PYTHON_UTILS, "toScalaMap")(dict(items))

    def none(self) -> Any:
        """Scala's None."""
        return self.java_class("scala.None$")

    def some(self, value: Any) -> Any:
        """Scala's Some."""
        return self.static("scala.Option", "apply")(value)

    def array(self, element_class: Any, items: Sequence[Any]) -> Any:
        """A Java array; a call for each item, so for few of them."""
        array = self.gateway.new_array(element_class, len(items))
        for index, item in enumerate(items):
            array[index] = item
        return array

    def data_type(self, data_type: DataType) -> Any:
        """A kernel type as Catalyst's."""
        text = json.dumps(type_json(data_type))
        return self.static("org.apache.spark.sql.types.DataType", "fromJson")(text)

    def data_frame(self, java_data_frame: Any) -> DataFrame:
        """A Java Dataset as PySpark's DataFrame."""
        return DataFrame(java_data_frame, self.spark)

    def hadoop_path(self, text: str) -> Any:
        """Hadoop's Path of a decoded path or location."""
        return self.java_class("org.apache.hadoop.fs.Path")(text)


def items(scala_seq: Any) -> list[Any]:
    """The items of a short Scala sequence: a call for each."""
    return [scala_seq.apply(index) for index in range(scala_seq.size())]
