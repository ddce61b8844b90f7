"""The files below many directories, listed by Spark tasks: what Spark does for its own tables.

Executors reach a file system of Hadoop's through Java alone, so it is Spark's lister that runs
there.  It passes over the names that `tree_listing` calls hidden.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark_delta.spark.jvm.gateway import JvmSession, items
from pyspark_delta.spark.jvm.listed_statuses import ListedStatus, listed_statuses

_LISTER = "org.apache.spark.util.HadoopFSUtils"
_MAX_TASKS = 10_000


def list_leaf_files(
    jvm: JvmSession, directories: Iterable[Any], conf: Any, tasks_above: int
) -> list[ListedStatus]:
    """The files below Java paths, by tasks when there are more than `tasks_above` of these."""
    lister = jvm.java_class(_LISTER)
    # Newer Sparks take the pattern of hidden names, after the two answers to what is missing.
    pattern = (
        (lister.defaultIgnoredPathSegmentRegexPattern(),)
        if "defaultIgnoredPathSegmentRegexPattern" in dir(lister)
        else ()
    )
    ignores_missing, ignores_locality = True, True
    by_directory = lister.parallelListLeafFiles(
        jvm.spark.sparkContext._jsc.sc(),
        jvm.seq(directories),
        conf,
        None,
        ignores_missing,
        *pattern,
        ignores_locality,
        tasks_above,
        _MAX_TASKS,
    )
    tag = jvm.static("scala.reflect.ClassTag", "apply")(
        jvm.static("java.lang.Class", "forName")("org.apache.hadoop.fs.FileStatus")
    )
    return [
        entry
        for pair in items(by_directory)
        for entry in listed_statuses(jvm, pair._2().toArray(tag))
    ]
