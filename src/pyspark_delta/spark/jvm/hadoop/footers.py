"""Footers of Parquet files, read by Spark tasks through Hadoop's FileSystem.

Executors reach such files only through Java, so Spark's own Parquet library reads the footers.  It
writes them out again in the standard format, without statistics that the library considers wrong.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column

from pyspark_delta.kernel.protocol.types import BINARY, INTEGER
from pyspark_delta.spark.jvm.expressions.catalyst import (
    column_of,
    expression_of,
    held_object,
    method_call,
    new_object,
    object_type,
    static_call,
)
from pyspark_delta.spark.jvm.failures import JAVA_FAILURES
from pyspark_delta.spark.jvm.gateway import JvmSession

_CONF = "org.apache.spark.util.SerializableConfiguration"
_PARQUET = "org.apache.parquet"
_THRIFT = "shaded.parquet.org.apache.thrift"
_VERSION = 1


def has_file_system(jvm: JvmSession, location: str, options: Mapping[str, str]) -> bool:
    """Whether Hadoop can open the file system of a location."""
    try:
        jvm.hadoop_path(location).getFileSystem(jvm.hadoop_conf(options))
    except JAVA_FAILURES:
        return False
    return True


def footer_bytes(jvm: JvmSession, location: Column, options: Mapping[str, str]) -> Column:
    """The footer of the file at a location for Hadoop's Path; null if it has none.

    The bytes are those of the format's FileMetaData.
    """

    def type_of(name: str) -> object:
        return object_type(jvm, jvm.class_named(name))

    # Spark's text is not a String, and the configuration is sent along with the task.
    text = method_call(jvm, expression_of(jvm, location), "toString", type_of("java.lang.String"))
    conf = held_object(jvm, jvm.java_class(_CONF)(jvm.hadoop_conf(options)))
    value = method_call(jvm, conf, "value", type_of("org.apache.hadoop.conf.Configuration"))
    footer = static_call(
        jvm,
        f"{_PARQUET}.hadoop.ParquetFileReader",
        "readFooter",
        type_of(f"{_PARQUET}.hadoop.metadata.ParquetMetadata"),
        [value, new_object(jvm, "org.apache.hadoop.fs.Path", [text])],
    )
    version = jvm.expression_class("Literal")(_VERSION, jvm.data_type(INTEGER))
    thrift = method_call(
        jvm,
        new_object(jvm, f"{_PARQUET}.format.converter.ParquetMetadataConverter", []),
        "toParquetMetadata",
        type_of(f"{_PARQUET}.format.FileMetaData"),
        [version, footer],
    )
    compact = new_object(jvm, f"{_THRIFT}.protocol.TCompactProtocol$Factory", [])
    serializer = new_object(jvm, f"{_THRIFT}.TSerializer", [compact])
    data = method_call(jvm, serializer, "serialize", jvm.data_type(BINARY), [thrift])
    # A caller that needs the reason for an unreadable file reads it again by other means.
    return column_of(jvm, jvm.expression_class("TryEval")(data))
