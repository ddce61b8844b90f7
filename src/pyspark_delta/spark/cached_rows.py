"""Rows of tables that Spark keeps in memory, read anew once the table has changed.

Spark finds what it has cached by equal plans, and the plan of a read that follows its table is the
same for all versions.  So a commit of this process, and a look-up by name that finds a version of
another's, tells Spark to read again what it has of the table, by path or by name.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans import has_cached_plans, read_cached_again
from pyspark_delta.spark.newest_source import one_version_each
from pyspark_delta.spark.table_access import hadoop_location

# Of so many tables the newest known version is remembered.
_MOST = 10_000
_KNOWN: OrderedDict[str, int] = OrderedDict()
_LOCK = Lock()


def refresh_cached(jvm: JvmSession, root_uri: str, version: int, *, is_new: bool = False) -> None:
    """Let cached rows of the table be read again, if `version` is newer than the one last seen.

    `is_new` says that it is, whatever was seen.
    """
    with _LOCK:
        known = _KNOWN.pop(root_uri, None)
        _KNOWN[root_uri] = version if known is None else max(known, version)
        if len(_KNOWN) > _MOST:
            _KNOWN.popitem(last=False)
    if not is_new and (known is None or known >= version):
        return
    if has_cached_plans(jvm):
        # A command may be running, whose own queries are to read the version before it.
        with one_version_each(jvm, apart=True):
            read_cached_again(jvm, hadoop_location(root_uri))
