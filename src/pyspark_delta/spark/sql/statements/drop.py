"""DROP TABLE of a Delta table, and statements that are not supported for one.

Spark drops the tables of its catalog, with the files of managed ones.  A table by its path is in no
catalog.  As with delta-spark, dropping it is no error and changes nothing, because the owner of the
files is unknown.
"""

from __future__ import annotations

import logging

from pyspark.sql import DataFrame

from pyspark_delta.errors import TableNotFoundError
from pyspark_delta.kernel.ops.notes import forget_creation_note
from pyspark_delta.kernel.sql.quoting import quoted_path
from pyspark_delta.kernel.txn.delta_log import DeltaLog
from pyspark_delta.spark.jvm.catalog.entries import SESSION_CATALOG, drop_entry
from pyspark_delta.spark.jvm.failures import analysis_error
from pyspark_delta.spark.jvm.gateway import JvmSession
from pyspark_delta.spark.jvm.plans.frames import empty_frame
from pyspark_delta.spark.sql.grammar import StatementReader, StatementSyntaxError
from pyspark_delta.spark.sql.statement import Command, Request, delta_target
from pyspark_delta.spark.tables.names import TableName, log_of, look_up_relation

logger = logging.getLogger(__name__)


def drop_command(request: Request) -> Command | None:
    """DROP TABLE of a Delta table; None for any other.

    Spark reads a table before it drops it, so an entry without a log is dropped here.
    """
    name = delta_target(request)
    if name is None:
        return None
    return Command(run=lambda: _drop(request, name))


def _drop(request: Request, name: TableName) -> DataFrame:
    jvm = JvmSession(request.spark)
    log = log_of(request.spark, name)
    is_there = _has_log(log)
    if name.entry is not None:
        if is_there:
            # The files of an external table stay, so no later CREATE TABLE may resume from its
            # note.
            forget_creation_note(log.store)
            return request.run(request.sql)
        drop_entry(jvm, name.entry)
        return empty_frame(jvm)
    if is_there:
        logger.warning("DROP TABLE leaves %s as it is: a path is in no catalog", name.label)
    elif not _tolerates_absence(request.sql):
        database = (SESSION_CATALOG, "delta")
        raise analysis_error(
            jvm,
            "TABLE_OR_VIEW_NOT_FOUND",
            relationName=quoted_path((*database, name.path or "")),
            searchPath=f"[{quoted_path(database)}]",
        )
    return empty_frame(jvm)


def refused_command(request: Request) -> None:
    """Raise for a statement that Spark would run on a catalog entry or files, and bypass the log.

    The error is Spark's for tables of delta-spark.  Tables of other formats are left to Spark.
    """
    verb = request.head.verb
    target = _load_target(request.sql) if verb == "LOAD DATA" else request.head.target
    table = look_up_relation(request.spark, target) if target else None
    if table is None or not table.is_delta:
        return
    raise analysis_error(JvmSession(request.spark), "NOT_SUPPORTED_COMMAND_FOR_V2_TABLE", cmd=verb)


def _has_log(log: DeltaLog) -> bool:
    try:
        log.update()
    except TableNotFoundError:
        return False
    return True


def _tolerates_absence(sql: str) -> bool:
    read = StatementReader(sql)
    read.expect("DROP", "TABLE")
    return read.takes("IF", "EXISTS")


def _load_target(sql: str) -> tuple[str, ...]:
    """The table of LOAD DATA [LOCAL] INPATH 'place' [OVERWRITE] INTO TABLE t; empty for none."""
    read = StatementReader(sql)
    try:
        read.expect("LOAD", "DATA")
        read.takes("LOCAL")
        read.expect("INPATH")
        read.text()
        read.takes("OVERWRITE")
        read.expect("INTO", "TABLE")
        return read.name()
    except StatementSyntaxError:
        return ()  # Spark raises the error
