"""The JVM of a session: its classes, Scala values, types, settings, private fields, Python proxies.

Everything else in this package takes a `JvmSession`.  Nothing outside `spark/jvm` uses the Java
objects in its attributes.  Differences between minor versions of Spark are here too: a row of
`_PLACES` has every name that a class has had, and the session's JVM decides which exists.  The
kernel's types become Spark's, of PySpark or of Java, by their common JSON.

>>> from pyspark_delta.kernel.protocol.types import LONG, StructField
>>> to_spark(StructType((StructField("id", LONG),))).simpleString()
'struct<id:bigint>'
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from py4j.java_gateway import JavaClass, JavaGateway
from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType as SparkDataType
from pyspark.sql.types import StructType as SparkStructType
from pyspark.sql.types import _parse_datatype_json_value

from pyspark_delta.errors import DeltaError, OperationNotAllowedError
from pyspark_delta.kernel.protocol.schema_json import parse_type, type_json
from pyspark_delta.kernel.protocol.types import DataType, StructType

SESSION_CATALOG_KEY = "spark.sql.catalog.spark_catalog"
"""Spark's setting for the class of the session catalog."""
HOOKED_PARSER = "pyspark_delta.Parser"
"""The class of a hooked session's parser."""
_PYTHON_UTILS = "org.apache.spark.api.python.PythonUtils"
_CATALYST = "org.apache.spark.sql.catalyst"
_JSON_MAPPER = "com.fasterxml.jackson.databind.ObjectMapper"
_SESSION_CLASS = "org.apache.spark.sql.classic.SparkSession"
_CATALOGS_FIELD = "catalogs"
_SESSION_CATALOG = "spark_catalog"
_BUILT_IN_CATALOG = "builtin"
_STREAMING = "org.apache.spark.sql.execution.streaming"
_OLDEST = (4, 2)
_NEWEST_TESTED = (4, 3)
# The newest name first.
_PLACES: Mapping[str, tuple[str, ...]] = {
    "FileStreamSinkLog": (
        f"{_STREAMING}.sinks.FileStreamSinkLog",
        f"{_STREAMING}.FileStreamSinkLog",
    ),
    "ManifestFileCommitProtocol": (
        f"{_STREAMING}.ManifestFileCommitProtocol",
        f"{_STREAMING}.sinks.ManifestFileCommitProtocol",
    ),
    "SerializedOffset": (
        f"{_STREAMING}.runtime.SerializedOffset",
        f"{_STREAMING}.SerializedOffset",
    ),
    "StreamingExecutionRelation": (
        f"{_STREAMING}.runtime.StreamingExecutionRelation",
        f"{_STREAMING}.StreamingExecutionRelation",
    ),
}
# Classes and methods of a JVM by name: a lookup is a call for each part of the name, and its result
# never changes.
_REMEMBERED: WeakKeyDictionary[JavaGateway, dict[str, Any]] = WeakKeyDictionary()
Owner = TypeVar("Owner")


class JvmSession:
    """A session and its JVM.  Cheap to make: it has no state besides the session."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.gateway: JavaGateway = spark.sparkContext._gateway
        self.jvm: Any = spark._jvm
        self.session: Any = spark._jsparkSession
        self._found = _REMEMBERED.setdefault(self.gateway, {})

    def accept_callbacks(self) -> None:
        """Let Java call Python objects of this process; calling it again does nothing."""
        ensure_callback_server_started(self.gateway)  # type: ignore[no-untyped-call]

    def java_class(self, name: str) -> Any:
        """A class by its full name; `Name$` gives the instance of a Scala object."""
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

    def plan_class(self, name: str) -> Any:
        """The class of a logical plan node of Catalyst."""
        return self.java_class(f"{_CATALYST}.plans.logical.{name}")

    def expression_class(self, name: str) -> Any:
        """The class of an expression of Catalyst."""
        return self.java_class(f"{_CATALYST}.expressions.{name}")

    def static(self, class_name: str, method: str) -> Any:
        """A static method of a class, as a callable."""
        return self.remembered(
            f"{class_name}.{method}()", lambda: getattr(self.java_class(class_name), method)
        )

    def class_named(self, name: str) -> Any:
        """Java's `Class` object of that name."""
        return self.static("java.lang.Class", "forName")(name)

    def remembered(self, key: str, find: Callable[[], Any]) -> Any:
        """The cached result of `find` for the key: the classes of a JVM do not change."""
        if key not in self._found:
            self._found[key] = find()
        return self._found[key]

    @property
    def callback_client(self) -> Any:
        """Java's client for calls of Python objects."""
        return self.gateway.java_gateway_server.getCallbackClient()

    @property
    def state(self) -> Any:
        """Spark's `SessionState`: the session's catalog, parser, optimizer and settings."""
        return self.session.sessionState()

    @property
    def session_id(self) -> str:
        """The id of the session in the JVM, which all Python objects for it share."""
        return str(self.session.sessionUUID())

    @property
    def parser(self) -> Any:
        """Spark's own parser of the session, behind ours where the session is hooked."""
        found = self.state.sqlParser()
        return found.sparks() if found.getClass().getName() == HOOKED_PARSER else found

    def seq(self, items: Iterable[Any]) -> Any:
        return self.static(_PYTHON_UTILS, "toSeq")(list(items))

    def scala_map(self, items: Mapping[str, str]) -> Any:
        return self.static(_PYTHON_UTILS, "toScalaMap")(dict(items))

    def python_dict(self, scala_map: Any) -> dict[str, str]:
        return self.java_dict(
            self.static("scala.jdk.javaapi.CollectionConverters", "asJava")(scala_map)
        )

    def java_dict(self, java_map: Any) -> dict[str, str]:
        """A Java map from text to text as a dict, by two calls of the JVM however long it is.

        An iterator of Java takes several calls for each item, and about ninety for its end, which
        is an exception that PySpark tries to translate.
        """
        mapper = self.remembered(f"{_JSON_MAPPER}()", lambda: self.java_class(_JSON_MAPPER)())
        found: dict[str, str] = json.loads(mapper.writeValueAsString(java_map))
        return found

    def none(self) -> Any:
        return self.java_class("scala.None$")

    def some(self, value: Any) -> Any:
        """Scala's Some of a value, or Scala's None for None."""
        return self.static("scala.Option", "apply")(value)

    def array(self, element_class: Any, items: Sequence[Any]) -> Any:
        """A Java array; takes a call for each item, so it is for short ones."""
        array = self.gateway.new_array(element_class, len(items))
        for index, item in enumerate(items):
            array[index] = item
        return array

    def data_type(self, data_type: DataType) -> Any:
        """A kernel type as Catalyst's."""
        text = json.dumps(type_json(data_type))
        return self.static("org.apache.spark.sql.types.DataType", "fromJson")(text)

    def data_frame(self, java_data_frame: Any) -> DataFrame:
        return DataFrame(java_data_frame, self.spark)

    def hadoop_path(self, text: str) -> Any:
        """Hadoop's Path for a decoded path or location."""
        return self.java_class("org.apache.hadoop.fs.Path")(text)

    def hadoop_conf(self, options: Mapping[str, str] | None = None) -> Any:
        """The Hadoop configuration with `options` added, as Spark makes it for a scan."""
        return self.state.newHadoopConfWithOptions(self.scala_map(options or {}))


def items(scala_seq: Any) -> list[Any]:
    """The items of a short Scala sequence; takes a call for each."""
    return [scala_seq.apply(index) for index in range(scala_seq.size())]


def option_value(option: Any) -> Any:
    """The value of a Scala Option, or None."""
    return option.get() if option.isDefined() else None


def analyzed_plan(frame: DataFrame) -> Any:
    """The resolved logical plan of a DataFrame, before the optimizer."""
    return frame._jdf.queryExecution().analyzed()


def simple_name(java_object: Any) -> str:
    """The name of an object's class without its package."""
    return str(java_object.getClass().getSimpleName())


def private_value(java_object: Any, name: str) -> Any:
    """The value of a private field of Spark, read by reflection because Spark has no hook there.

    Each such field is listed in `test_jvm_seams.py` or `test_hook_seams.py` of `tests/spark/jvm`.
    """
    return _private_field(java_object, name).get(java_object)


def set_private_value(java_object: Any, name: str, value: Any) -> None:
    """Set a private field; see `private_value`."""
    _private_field(java_object, name).set(java_object, value)


def java_interfaces(*names: str) -> type:
    """For the attribute `Java` of a class whose objects Java calls, by these interfaces."""
    return type("Java", (), {"implements": names})


class JavaProxy:
    """A Python object that Java calls and compares by identity."""

    def equals(self, other: Any) -> bool:
        return self is other

    def hashCode(self) -> int:
        return id(self) & 0x7FFFFFFF


class ProxyNames(Generic[Owner]):
    """Finds the Python object behind a Java proxy, among the live objects of one kind.

    Java has a proxy for a Python object, and returns the proxy, never the object.  The proxy's text
    begins with `prefix` and ends in a token that identifies the object.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._tokens = count()
        self._alive: WeakValueDictionary[str, Owner] = WeakValueDictionary()

    def name(self, owner: Owner, label: str = "") -> str:
        """The text for the object's proxy: the label, and a unique token."""
        token = str(next(self._tokens))
        self._alive[token] = owner
        return f"{self._prefix}{label}] {token}"

    def behind(self, java_object: Any) -> Owner | None:
        """Our object behind a Java object; None when there is none."""
        text = str(java_object.toString())
        return self._alive.get(_token_of_name(text)) if text.startswith(self._prefix) else None

    def named(self, name: str) -> Owner:
        """The live object with that name."""
        return self._alive[_token_of_name(name)]


def moved_class(jvm: JvmSession, name: str) -> Any:
    """The class of that short name, by the name that this Spark has."""

    def find() -> Any:
        for place in _PLACES[name]:
            found = jvm.java_class(place)
            if isinstance(found, JavaClass):
                return found
        raise OperationNotAllowedError(
            "DELTA_OPERATION_NOT_ALLOWED", operation=f"Spark {jvm.spark.version}, without {name},"
        )

    return jvm.remembered(f"moved {name}", find)


def default_arguments(
    jvm: JvmSession, object_name: str, method: str, given: int
) -> tuple[Any, ...]:
    """Defaults of the parameters that a newer Spark has after the `given` ones.

    Scala compiles the default of parameter N of `method` into a method `method$default$N` of the
    object, which `object_name` names as `JvmSession.java_class` takes it.
    """

    def find() -> tuple[Any, ...]:
        scala_object = jvm.java_class(object_name)
        names = {each for each in dir(scala_object) if each.startswith(f"{method}$default$")}
        defaults: list[Any] = []
        while (name := f"{method}$default${given + len(defaults) + 1}") in names:
            defaults.append(getattr(scala_object, name)())
        return tuple(defaults)

    return jvm.remembered(  # type: ignore[no-any-return]
        f"{object_name}.{method} after {given}", find
    )


def check_supported(version: str) -> None:
    """Raise for a Spark older than the supported ones; warn of one newer than the tested ones.

    Differences of a newer one are found when they are called, and may raise then.
    """
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None:
        return
    minor = (int(found[1]), int(found[2]))
    if minor < _OLDEST:
        raise unsupported(version)
    if minor > _NEWEST_TESTED:
        warnings.warn(
            f"pyspark-delta is tested up to Spark {_dotted(_NEWEST_TESTED)}, this is {version}: "
            "look for a newer release if something fails.",
            stacklevel=3,
        )


def unsupported(version: str) -> OperationNotAllowedError:
    """The error for enabling a session of such a Spark."""
    return OperationNotAllowedError(
        "DELTA_UNSUPPORTED_SPARK_VERSION",
        version=version,
        oldest=_dotted(_OLDEST),
        newest=_dotted(_NEWEST_TESTED),
    )


def all_settings(jvm: JvmSession) -> dict[str, str]:
    """All settings of the session that have a value, in one call.

    `spark.conf.getAll` makes a call for each, and ends with an exception that PySpark turns into
    text: well over a hundred calls.
    """
    return jvm.java_dict(jvm.session.conf().getAllAsJava())


def timestamp_text(jvm: JvmSession, milliseconds: int) -> str:
    """A time as `java.sql.Timestamp` prints it, in the JVM's zone: the form of the history."""
    instant = jvm.static("java.time.Instant", "ofEpochMilli")(milliseconds)
    return str(jvm.static("java.sql.Timestamp", "from")(instant).toString())


def note_last_commit(version: int, *, key: str, mark: str) -> None:
    """Set the setting `key` in the session of this thread, if that has the setting `mark`.

    Programs for delta-spark read the version there; it may be of any table.
    """
    context: Any = SparkContext._active_spark_context
    if context is None or context._gateway is None:
        return
    # Not through PySpark's SparkSession, which would make a wrapper that is not enabled.
    found = getattr(context._jvm, _SESSION_CLASS).getActiveSession()
    if not found.isDefined():
        return
    conf = found.get().sessionState().conf()
    if conf.contains(mark):
        conf.setConfString(key, str(version))


def has_cached_plans(jvm: JvmSession) -> bool:
    """Whether Spark has cached the rows of any plan."""
    return not jvm.session.sharedState().cacheManager().isEmpty()


def keep_session_catalog(jvm: JvmSession) -> None:
    """Make the session's catalog that of all views too, including those of other sessions.

    A permanent view stores the settings of the session that made it.  A view made by delta-spark
    has delta-spark's catalog class, which Spark fails to load whenever the view is used.  Spark
    loads no class while its map of catalogs has an entry for the session catalog.
    """
    manager = jvm.state.catalogManager()
    private_value(manager, _CATALOGS_FIELD).put(_SESSION_CATALOG, manager.v2SessionCatalog())


def release_session_catalog(jvm: JvmSession) -> None:
    """Undo `keep_session_catalog`; a catalog that the session configures was in the map before."""
    if jvm.spark.conf.get(SESSION_CATALOG_KEY, _BUILT_IN_CATALOG) == _BUILT_IN_CATALOG:
        private_value(jvm.state.catalogManager(), _CATALOGS_FIELD).remove(_SESSION_CATALOG)


def to_spark(schema: StructType) -> SparkStructType:
    """A kernel schema as PySpark's `StructType`, field metadata included."""
    return SparkStructType.fromJson(_plain(type_json(schema)))


def to_spark_type(data_type: DataType) -> SparkDataType:
    """A kernel type as PySpark's."""
    return _parse_datatype_json_value(_plain(type_json(data_type)))


def from_spark(schema: Any) -> StructType:
    """A schema of PySpark or Java as the kernel's."""
    parsed = parse_type(json.loads(schema.json()))
    assert isinstance(parsed, StructType)
    return parsed


def type_of_json(spelled: Any) -> DataType | None:
    """A type in Spark's JSON form as the kernel's; None for one that tables cannot have."""
    try:
        return parse_type(spelled)
    except DeltaError:
        return None


def _private_field(java_object: Any, name: str) -> Any:
    java_class = java_object.getClass()
    while java_class is not None:
        for field in java_class.getDeclaredFields():
            if field.getName() == name:
                field.setAccessible(True)
                return field
        java_class = java_class.getSuperclass()
    raise OperationNotAllowedError(
        "DELTA_OPERATION_NOT_ALLOWED",
        operation=f"A Spark whose {java_object.getClass().getName()} has no {name}",
    )


def _dotted(minor: tuple[int, int]) -> str:
    return ".".join(map(str, minor))


def _token_of_name(name: str) -> str:
    return name.rpartition(" ")[2]


def _plain(value: Any) -> Any:
    # Copied, because PySpark modifies its input and the kernel shares its values.
    return json.loads(json.dumps(value))
