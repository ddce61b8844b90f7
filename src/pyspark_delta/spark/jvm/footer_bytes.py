"""Footers of Parquet files, read by Spark tasks through Hadoop's FileSystem.

Executors reach such files through Java alone, so it is Spark's own Parquet library that reads a
footer there.  It is written out again as the format has it, because that is what everybody can
read; statistics that the library does not believe are gone from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column

from pyspark_delta.kernel.protocol.types import BINARY, INTEGER
from pyspark_delta.spark.jvm.catalyst import column_of, expression_of
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.hadoop_conf import hadoop_conf
from pyspark_delta.spark.jvm.versions import default_arguments

_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"
_OBJECTS = f"{_EXPRESSIONS}.objects"
_THRIFT = "shaded.parquet.org.apache.thrift"
_VERSION = 1


def has_file_system(jvm: JvmSession, location: str, options: Mapping[str, str]) -> bool:
    """Whether Hadoop can open the file system of a location."""
    try:
        jvm.hadoop_path(location).getFileSystem(hadoop_conf(jvm, options))
    except (Py4JJavaError, PySparkException):
        return False
    return True


def footer_bytes(jvm: JvmSession, location: Column, options: Mapping[str, str]) -> Column:
    """The footer of the file at a location, as Hadoop's Path takes it; null if it has none.

    The bytes are those of the format's FileMetaData.
    """
    make = _Calls(jvm)
    text = make.call(expression_of(jvm, location), "toString", make.object("java.lang.String"))
    path = make.new("org.apache.hadoop.fs.Path", [text])
    conf = make.constant(
        jvm.java_class("org.apache.spark.util.SerializableConfiguration")(
            hadoop_conf(jvm, options)
        ),
        "org.apache.spark.util.SerializableConfiguration",
    )
    value = make.call(conf, "value", make.object("org.apache.hadoop.conf.Configuration"))
    footer = make.static(
        "org.apache.parquet.hadoop.ParquetFileReader",
        "readFooter",
        make.object("org.apache.parquet.hadoop.metadata.ParquetMetadata"),
        [value, path],
    )
    thrift = make.call(
        make.new("org.apache.parquet.format.converter.ParquetMetadataConverter", []),
        "toParquetMetadata",
        make.object("org.apache.parquet.format.FileMetaData"),
        [make.number(_VERSION), footer],
    )
    compact = make.new(f"{_THRIFT}.protocol.TCompactProtocol$Factory", [])
    serializer = make.new(f"{_THRIFT}.TSerializer", [compact])
    data = make.call(serializer, "serialize", jvm.data_type(BINARY), [thrift])
    # Whoever asks for a file that cannot be read wants to know why, and asks elsewhere then.
    return column_of(jvm, jvm.java_class(f"{_EXPRESSIONS}.TryEval")(data))


class _Calls:
    """Calls of Java methods as Catalyst's expressions, compiled into the task's code."""

    def __init__(self, jvm: JvmSession) -> None:
        self._jvm = jvm

    def object(self, name: str) -> Any:
        """The type of an object of that class."""
        return self._jvm.java_class("org.apache.spark.sql.types.ObjectType")(self._class(name))

    def constant(self, value: Any, name: str) -> Any:
        """An object that goes along with the task."""
        literals = self._jvm.java_class(f"{_EXPRESSIONS}.Literal$")
        return literals.fromObject(value, self.object(name))

    def number(self, value: int) -> Any:
        literal = self._jvm.java_class(f"{_EXPRESSIONS}.Literal")
        return literal(value, self._jvm.data_type(INTEGER))

    def new(self, name: str, arguments: list[Any]) -> Any:
        made = self._jvm.java_class(f"{_OBJECTS}.NewInstance$")
        propagates_null = True
        return made.apply(
            self._class(name), self._jvm.seq(arguments), self.object(name), propagates_null
        )

    def static(self, name: str, method: str, gives: Any, arguments: list[Any]) -> Any:
        rest = default_arguments(self._jvm, f"{_OBJECTS}.StaticInvoke$", "apply", 4)
        made = self._jvm.java_class(f"{_OBJECTS}.StaticInvoke")
        return made(self._class(name), gives, method, self._jvm.seq(arguments), *rest)

    def call(self, target: Any, method: str, gives: Any, arguments: Sequence[Any] = ()) -> Any:
        rest = default_arguments(self._jvm, f"{_OBJECTS}.Invoke$", "apply", 4)
        made = self._jvm.java_class(f"{_OBJECTS}.Invoke")
        return made(target, method, gives, self._jvm.seq(arguments), *rest)

    def _class(self, name: str) -> Any:
        return self._jvm.static("org.apache.spark.util.Utils", "classForName")(name, True, False)
