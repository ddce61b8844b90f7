"""What Hadoop's configuration of a session says: the default file system, credentials, classes.

Few calls each: a configuration has well over a thousand entries, and they cross as one text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from pyspark_delta.spark.jvm.gateway import JvmSession

DEFAULT_FILE_SYSTEM = "fs.defaultFS"
_LOCAL = "file:///"


def hadoop_conf(jvm: JvmSession, options: Mapping[str, str]) -> Any:
    """The session's Hadoop configuration with `options` on top, as Spark makes it for a scan."""
    return jvm.session.sessionState().newHadoopConfWithOptions(jvm.scala_map(options))


def default_file_system(jvm: JvmSession) -> str:
    """The URI that a path without a scheme belongs to."""
    own = jvm.spark.conf.get(DEFAULT_FILE_SYSTEM, None)
    if own is not None:
        return own
    shared = jvm.spark.sparkContext._jsc.hadoopConfiguration()
    return shared.get(DEFAULT_FILE_SYSTEM) or _LOCAL


def qualified_location(jvm: JvmSession, location: str, options: Mapping[str, str]) -> str:
    """`location` with scheme and absolute path, resolved as Spark resolves paths of its own."""
    path = jvm.hadoop_path(location)
    file_system = path.getFileSystem(hadoop_conf(jvm, options))
    text: str = file_system.makeQualified(path).toString()
    return text


def path_exists(jvm: JvmSession, location: str) -> bool:
    """Whether there is a file or directory, as far as Hadoop can tell: yes when it cannot."""
    path = jvm.hadoop_path(location)
    try:
        return bool(path.getFileSystem(hadoop_conf(jvm, {})).exists(path))
    except (Py4JJavaError, PySparkException):
        return True


def properties(jvm: JvmSession, prefixes: Iterable[str]) -> dict[str, str]:
    """The entries of the session's Hadoop configuration whose keys begin with a prefix."""
    conf = hadoop_conf(jvm, {})
    mapper = jvm.java_class("com.fasterxml.jackson.databind.ObjectMapper")()
    found: dict[str, str] = {}
    for prefix in prefixes:
        entries = json.loads(mapper.writeValueAsString(conf.getPropsWithPrefix(prefix)))
        found |= {prefix + name: value for name, value in entries.items() if value}
    return found


def passwords(jvm: JvmSession, names: Iterable[str]) -> dict[str, str]:
    """Those of the secrets `names` that Hadoop's credential providers (key stores) hold."""
    conf = hadoop_conf(jvm, {})
    if not conf.get("hadoop.security.credential.provider.path"):
        return {}
    string = jvm.java_class("java.lang.String")
    found = {}
    for name in names:
        try:
            value = conf.getPassword(name)
        except (Py4JJavaError, PySparkException):
            continue  # a key store that cannot be opened: the request will be refused by name
        if value is not None:
            found[name] = str(string(value))
    return found


def class_location(jvm: JvmSession, name: str) -> str | None:
    """The JAR or directory that this JVM loads a class from; None without such a class."""
    utils = "org.apache.spark.util.Utils"
    if not jvm.static(utils, "classIsLoadable")(name):
        return None
    found = jvm.static(utils, "classForName")(name, False, False)
    source = found.getProtectionDomain().getCodeSource()
    return "an unknown place" if source is None else str(source.getLocation().getPath())


def forget_conf(jvm: JvmSession, key: str) -> Callable[[], None]:
    """Unset a configuration in the session, and in what new sessions begin with.

    The result sets it again, where it was set.
    """
    confs = (jvm.spark.conf, *_shared_confs(jvm))
    before = [(conf, conf.get(key, "")) for conf in confs]
    jvm.spark.conf.unset(key)
    for shared in _shared_confs(jvm):
        shared.remove(key)

    def restore() -> None:
        for conf, value in before:
            if value:
                conf.set(key, value)

    return restore


def _shared_confs(jvm: JvmSession) -> tuple[Any, ...]:
    return jvm.session.sharedState().conf(), jvm.session.sparkContext().conf()
