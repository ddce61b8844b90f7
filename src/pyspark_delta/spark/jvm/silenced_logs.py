"""Loggers of Spark and Hive that are off while one call runs.

For calls in which Spark tries a way that fails, logs an error, and goes another way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

from pyspark_delta.spark.jvm.gateway import JvmSession

_LOG4J = "org.apache.logging.log4j"
# Two calls at once would each take the other's change for what was there before.
_LOCK = Lock()


@contextmanager
def silenced_logs(jvm: JvmSession, names: Sequence[str]) -> Iterator[None]:
    """Nothing is logged by the loggers of these names; afterwards they are as they were."""
    context = jvm.static(f"{_LOG4J}.LogManager", "getContext")(False)
    if context.getClass().getName() != f"{_LOG4J}.core.LoggerContext":
        yield  # another library is behind the API, and it has no levels that can be changed
        return
    with _LOCK:
        levels = {name: _own_level(context, name) for name in names}
        off = jvm.java_class(f"{_LOG4J}.Level").OFF
        try:
            for name in names:
                _set_level(jvm, context, name, off)
            context.updateLoggers()
            yield
        finally:
            for name, level in levels.items():
                _set_level(jvm, context, name, level)
            context.updateLoggers()


def _own_level(context: Any, name: str) -> Any:
    """The level that the configuration has for this very logger; None where it has none."""
    found = context.getConfiguration().getLoggerConfig(name)
    return found.getLevel() if found.getName() == name else None


def _set_level(jvm: JvmSession, context: Any, name: str, level: Any) -> None:
    configuration = context.getConfiguration()
    if level is None:
        configuration.removeLogger(name)
    elif _own_level(context, name) is None:
        made = jvm.java_class(f"{_LOG4J}.core.config.LoggerConfig")(name, level, True)
        configuration.addLogger(name, made)
    else:
        configuration.getLoggerConfig(name).setLevel(level)
