"""Servers of the JVM for clients of other processes: Spark Connect, and Thrift for JDBC."""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass
from pyspark.sql import SparkSession

from pyspark_delta.errors import OperationNotAllowedError
from pyspark_delta.spark.jvm.gateway import JvmSession, simple_name

_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectService"
_THRIFT = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"
# By the setting hive.server2.transport.mode.
_THRIFT_SERVICES = ("ThriftBinaryCLIService", "ThriftHttpCLIService")


def start_connect(spark: SparkSession) -> int:
    """Start Spark Connect in the session's driver; returns its port."""
    jvm = JvmSession(spark)
    service = _service(jvm, _CONNECT, "spark-connect")
    service.start(spark.sparkContext._jsc.sc())
    objects: Any = jvm.java_class(f"{_CONNECT}$")
    return int(objects.localPort())


def stop_connect(spark: SparkSession) -> None:
    """Stop Spark Connect; operations that still run are cut off."""
    jvm = JvmSession(spark)
    jvm.static(_CONNECT, "stop")(jvm.none(), jvm.none())


def start_thrift(spark: SparkSession) -> int:
    """Start the Thrift server on the port of the session's settings; returns its port."""
    jvm = JvmSession(spark)
    exits_with_context = False
    server = _service(jvm, _THRIFT, "spark-hive-thriftserver").startWithSparkSession(
        spark._jsparkSession, exits_with_context
    )
    [service] = [each for each in server.getServices() if simple_name(each) in _THRIFT_SERVICES]
    return int(service.getPortNumber())


def is_alive(spark: SparkSession) -> bool:
    """Whether the JVM of the session still runs."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    return process is None or process.poll() is None


def _service(jvm: JvmSession, name: str, artifact: str) -> Any:
    found = jvm.java_class(name)
    if not isinstance(found, JavaClass):
        raise OperationNotAllowedError(
            "DELTA_OPERATION_NOT_ALLOWED", operation=f"A Spark without the JAR {artifact}"
        )
    return found
