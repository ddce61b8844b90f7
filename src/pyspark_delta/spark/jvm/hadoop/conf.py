"""The Hadoop configuration of a session: default file system, credentials, class locations.

It has well over a thousand entries, so they leave the JVM as one text, in few calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyspark_delta.spark.jvm.failures import JAVA_FAILURES
from pyspark_delta.spark.jvm.gateway import JvmSession

DEFAULT_FILE_SYSTEM = "fs.defaultFS"
_LOCAL = "file:///"


def default_file_system(jvm: JvmSession) -> str:
    """The URI of the file system for paths without a scheme."""
    own = jvm.spark.conf.get(DEFAULT_FILE_SYSTEM, None)
    if own is not None:
        return own
    shared = jvm.spark.sparkContext._jsc.hadoopConfiguration()
    return shared.get(DEFAULT_FILE_SYSTEM) or _LOCAL


def qualified_location(jvm: JvmSession, location: str, options: Mapping[str, str]) -> str:
    """`location` with scheme and absolute path, resolved as Spark resolves paths of its own."""
    path = jvm.hadoop_path(location)
    file_system = path.getFileSystem(jvm.hadoop_conf(options))
    return str(file_system.makeQualified(path).toString())


def path_exists(jvm: JvmSession, location: str) -> bool:
    """Whether a file or directory exists; True when Hadoop cannot find out."""
    path = jvm.hadoop_path(location)
    try:
        return bool(path.getFileSystem(jvm.hadoop_conf()).exists(path))
    except JAVA_FAILURES:
        return True


def properties(jvm: JvmSession, prefixes: Iterable[str]) -> dict[str, str]:
    """The entries of the session's Hadoop configuration with these key prefixes."""
    conf = jvm.hadoop_conf()
    mapper = jvm.java_class("com.fasterxml.jackson.databind.ObjectMapper")()
    found: dict[str, str] = {}
    for prefix in prefixes:
        entries = json.loads(mapper.writeValueAsString(conf.getPropsWithPrefix(prefix)))
        found |= {prefix + name: value for name, value in entries.items() if value}
    return found


def passwords(jvm: JvmSession, names: Iterable[str]) -> dict[str, str]:
    """Those of the secrets `names` that Hadoop's credential providers (key stores) have."""
    conf = jvm.hadoop_conf()
    if not conf.get("hadoop.security.credential.provider.path"):
        return {}
    string = jvm.java_class("java.lang.String")
    found = {}
    for name in names:
        try:
            value = conf.getPassword(name)
        except JAVA_FAILURES:
            continue  # the key store cannot be opened: the request will fail with a named error
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
    """Unset a key in the session, and in the defaults of new sessions.

    Call the result to restore it.
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
