"""The Python object behind the hooks: what Java calls, with the session of each call.

It turns values of Java's into ours and back; what to do is for the `Door`, which knows no Py4J.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakValueDictionary

from pyspark.sql import DataFrame, SparkSession

from pyspark_delta.kernel.machine import cache_directory
from pyspark_delta.kernel.protocol.types import StructType
from pyspark_delta.spark.jvm.callbacks import (
    note_caller,
    noted_errors,
    thrown_by_hook,
    thrown_in_java,
)
from pyspark_delta.spark.jvm.catalog.session_objects import found_object
from pyspark_delta.spark.jvm.classes import load_classes
from pyspark_delta.spark.jvm.expressions.catalyst import column_of
from pyspark_delta.spark.jvm.gateway import (
    HOOKED_PARSER,
    JvmSession,
    items,
    private_value,
    set_private_value,
)
from pyspark_delta.spark.jvm.hooks.nodes import renamed
from pyspark_delta.spark.jvm.hooks.planner import ConnectPlanner
from pyspark_delta.spark.jvm.hooks.sessions import BridgedSessions
from pyspark_delta.spark.jvm.plans.frames import empty_rows
from pyspark_delta.spark.jvm.streaming import BatchSink, sink_proxy

_BRIDGE = "pyspark_delta.Bridge"
_PARSER_FIELD, _RULES_FIELD = "sqlParser", "hintResolutionRules"
_PARSERS_FIELD, _BUILDERS_FIELD = "parserBuilders", "hintResolutionRuleBuilders"
_RESOLUTION = "pyspark_delta.Resolution"
Throws = Callable[[JvmSession], AbstractContextManager[None]]
"""What makes an error of Python's one of Java's."""

# The sessions of Python code, by their ids.
_KNOWN: WeakValueDictionary[str, SparkSession] = WeakValueDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class HookedCommand:
    """A command that Spark runs when it wants to: its name in plans, its result, what does it."""

    text: str
    schema: StructType
    run: Callable[[], DataFrame | None]


class Door(Protocol):
    """What becomes of a session's statements, reads and writes."""

    def open(self, spark: SparkSession) -> None:
        """Called before anything else for a session, and again when it was long unused."""

    def statement(self, spark: SparkSession, sql: str, args: Any) -> HookedCommand | str | None:
        """A statement's command, another text for Spark's parser, or None for the text as it is."""

    def node(
        self, spark: SparkSession, node: Any
    ) -> HookedCommand | DataFrame | tuple[str, ...] | None:
        """What stands in the place of a node of a plan, or its table's name; None to keep it."""

    def write(
        self, spark: SparkSession, rows: DataFrame, mode: str, options: Mapping[str, str]
    ) -> None:
        """`df.write.format("delta").save(path)`."""

    def sink(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        partition_by: tuple[str, ...],
        output_mode: str,
    ) -> BatchSink:
        """The sink of `df.writeStream.format("delta")`."""

    def relation(
        self, spark: SparkSession, planner: ConnectPlanner, message: bytes
    ) -> HookedCommand | DataFrame | None:
        """What an extension's message of Spark Connect stands for; None for another extension."""

    def command(self, spark: SparkSession, planner: ConnectPlanner, message: bytes) -> bool:
        """Run an extension's message of Spark Connect; False for another extension."""


def open_door(jvm: JvmSession, door: Door) -> None:
    """Let the hooks of this JVM call `door`; the newest call decides."""
    load_classes(jvm, cache_directory())
    bridge = jvm.static("java.lang.Class", "forName")(_BRIDGE)
    bridge.getField("python").set(None, _Bridge(door))


def hook_session(jvm: JvmSession) -> None:
    """Hook a session that exists, and the sessions that are made of it from now on."""
    if is_hooked(jvm):
        _KNOWN.setdefault(str(jvm.session.sessionUUID()), jvm.spark)
        return
    session, state = jvm.session, jvm.session.sessionState()
    _KNOWN[str(session.sessionUUID())] = jvm.spark
    if not any(map(_is_ours, _builders(jvm, _PARSERS_FIELD))):
        jvm.java_class("pyspark_delta.Extensions")().apply(session.extensions())
    parser = jvm.java_class("pyspark_delta.ParserBuilder")().apply(session, state.sqlParser())
    set_private_value(state, _PARSER_FIELD, parser)
    analyzer = state.analyzer()
    rule = jvm.java_class("pyspark_delta.ResolutionBuilder")().apply(session)
    set_private_value(analyzer, _RULES_FIELD, analyzer.hintResolutionRules().appended(rule))


def unhook_session(jvm: JvmSession) -> None:
    """Undo `hook_session` for this session."""
    if not is_hooked(jvm):
        return
    state = jvm.session.sessionState()
    set_private_value(state, _PARSER_FIELD, jvm.parser)
    analyzer = state.analyzer()
    rules = [
        rule
        for rule in items(private_value(analyzer, _RULES_FIELD))
        if rule.getClass().getName() != _RESOLUTION
    ]
    set_private_value(analyzer, _RULES_FIELD, jvm.seq(rules))


def unhook_new_sessions(jvm: JvmSession) -> None:
    """Let sessions that are made of this one be Spark's own."""
    for name in (_PARSERS_FIELD, _BUILDERS_FIELD):
        builders = _builders(jvm, name)
        for builder in filter(_is_ours, builders):
            private_value(jvm.session.extensions(), name).subtractOne(builder)


def is_hooked(jvm: JvmSession) -> bool:
    """Whether the session's parser is ours."""
    name = jvm.state.sqlParser().getClass().getName()
    return bool(name == HOOKED_PARSER)


def _builders(jvm: JvmSession, name: str) -> list[Any]:
    return items(private_value(jvm.session.extensions(), name))


def _is_ours(builder: Any) -> bool:
    return str(builder.getClass().getName()).startswith("pyspark_delta.")


class _Bridge:
    """The object that Java calls; the methods are those of `pyspark_delta.Python`."""

    class Java:
        """The Java interface, for Py4J."""

        implements = ("pyspark_delta.Python",)

    def __init__(self, door: Door) -> None:
        self._door = door
        self._sessions = BridgedSessions()

    def opened(self, session: Any) -> None:
        with self._called(session):
            """Opening is all there is to do."""

    def parsed(self, session: Any, sql: str, parameters: Any) -> Any:
        with self._called(session) as jvm:
            found = self._door.statement(jvm.spark, sql, _arguments(jvm, parameters))
            return _command(jvm, found) if isinstance(found, HookedCommand) else found

    def resolved(self, session: Any, node: Any) -> Any:
        with self._called(session) as jvm:
            found = self._door.node(jvm.spark, node)
            if isinstance(found, HookedCommand):
                return _command(jvm, found)
            if isinstance(found, tuple):
                return renamed(jvm, node, found)
            return None if found is None else found._jdf.queryExecution().analyzed()

    def written(self, session: Any, mode: str, options: Any, rows: Any) -> None:
        with self._called(session, opens=False) as jvm:
            self._door.write(jvm.spark, DataFrame(rows, jvm.spark), mode, jvm.python_dict(options))

    def streamSink(self, session: Any, options: Any, partition_columns: Any, mode: str) -> Any:
        with self._called(session, opens=False) as jvm:
            names = tuple(map(str, items(partition_columns)))
            given = jvm.python_dict(options)
            return sink_proxy(jvm, self._door.sink(jvm.spark, given, names, mode))

    def relation(self, session: Any, planner: Any, message: Any) -> Any:
        with self._called(session) as jvm:
            connect = ConnectPlanner(jvm, planner)
            found = self._door.relation(jvm.spark, connect, bytes(message))
            if isinstance(found, HookedCommand) and not connect.executes:
                # The client looks at the columns: Spark would run a command here.
                found = empty_rows(jvm, found.schema)
            if isinstance(found, HookedCommand):
                return _command(jvm, found)
            return None if found is None else found._jdf.queryExecution().logical()

    def command(self, session: Any, planner: Any, message: Any) -> bool:
        with self._called(session) as jvm:
            return self._door.command(jvm.spark, ConnectPlanner(jvm, planner), bytes(message))

    def invoked(self, session: Any, kind: str, method: str, first: Any, second: Any) -> Any:
        # Interfaces of Spark's allow unchecked errors alone.
        with self._called(session, throws=thrown_in_java) as jvm:
            given = [each for each in (first, second) if each is not None]
            return getattr(found_object(jvm.spark, kind), method)(*given)

    def toString(self) -> str:
        return "pyspark_delta"

    @contextmanager
    def _called(
        self, session: Any, *, opens: bool = True, throws: Throws = thrown_by_hook
    ) -> Iterator[JvmSession]:
        """Wraps the body of a call: the session, and errors as Java's own.

        A data source is called for sessions that are not hooked too, which stay closed.
        """
        jvm = JvmSession(self._session(session))
        note_caller(jvm)
        with throws(jvm), noted_errors():
            if opens:
                self._door.open(jvm.spark)
            yield jvm

    def _session(self, session: Any) -> SparkSession:
        key = str(session.sessionUUID())
        known = _KNOWN.get(key)
        if known is not None:
            return known
        return self._sessions.found(key, session)


class _Work:
    """The object that Java calls to run a command."""

    class Java:
        """The Java interface, for Py4J."""

        implements = ("java.util.concurrent.Callable",)

    def __init__(self, jvm: JvmSession, command: HookedCommand) -> None:
        self._jvm = jvm
        self._command = command

    def call(self) -> Any:
        note_caller(self._jvm)
        with thrown_by_hook(self._jvm), noted_errors():
            found = self._command.run()
            return None if found is None else found._jdf

    def equals(self, other: Any) -> bool:
        return self is other

    def hashCode(self) -> int:
        return id(self) & 0x7FFFFFFF

    def toString(self) -> str:
        return self._command.text


def _command(jvm: JvmSession, command: HookedCommand) -> Any:
    columns = jvm.java_class("org.apache.spark.sql.catalyst.types.DataTypeUtils").toAttributes(
        jvm.data_type(command.schema)
    )
    return jvm.java_class("pyspark_delta.DeltaCommand")(command.text, _Work(jvm, command), columns)


def _arguments(jvm: JvmSession, parameters: Any) -> Any:
    """The arguments of a statement as PySpark takes them: by name, in order, or none."""
    if parameters is None:
        return None
    kind = parameters.getClass().getSimpleName()
    if kind == "NamedParameterContext":
        given = jvm.java_class("scala.jdk.javaapi.CollectionConverters").asJava(parameters.params())
        return {str(key): column_of(jvm, value) for key, value in dict(given).items()} or None
    is_hybrid = kind == "HybridParameterContext"  # of EXECUTE IMMEDIATE: names that may be empty
    values = items(parameters.args() if is_hybrid else parameters.params())
    columns = [column_of(jvm, each) for each in values]
    names = [str(name) for name in items(parameters.paramNames())] if is_hybrid else []
    return (dict(zip(names, columns, strict=True)) if any(names) else columns) or None
