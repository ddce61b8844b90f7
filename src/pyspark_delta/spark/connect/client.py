"""`DeltaTable` in a client of Spark Connect: its calls become messages of delta-spark's protocol.

`DeltaTable.forPath(spark, "/data/events")` gives this class where `spark` is a session of Spark
Connect.  Nothing here needs a JVM.  A method that changes the table runs when it is called, once,
and its result stays in the client; others, such as `toDF`, make a DataFrame that the server fills.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from typing import Any, NoReturn, SupportsIndex
from uuid import uuid4

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from pyspark_delta.errors import ChangeFeedError, OperationNotAllowedError
from pyspark_delta.kernel.log.snapshot import html_table
from pyspark_delta.kernel.sql.quoting import quoted_path
from pyspark_delta.spark.api.arguments import check_text, whole_number
from pyspark_delta.spark.api.errors import raises_spark_errors
from pyspark_delta.spark.api.merge_builder import merge_request
from pyspark_delta.spark.api.optimize_builder import DeltaOptimizeBuilder
from pyspark_delta.spark.api.table import DeltaTable
from pyspark_delta.spark.changes.feed import ChangeBound
from pyspark_delta.spark.connect.client_builders import (
    ConnectMergeBuilder,
    ConnectTableBuilder,
    assignment_messages,
    merge_message,
    optimize_builder,
)
from pyspark_delta.spark.connect.client_session import ClientSession
from pyspark_delta.spark.maintenance.vacuum import VacuumRequest
from pyspark_delta.spark.merge.request import MergeRequest
from pyspark_delta.spark.scan.load import AsOf

Message = dict[str, Any]
_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.\-]+:/")


@raises_spark_errors
class ConnectDeltaTable(DeltaTable):
    """A Delta table of a Spark Connect server, by its path or its name; see `DeltaTable`.

    Methods for which neither the protocol nor SQL has a word raise OperationNotAllowedError.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        path: str | None = None,
        name: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._spark = spark
        self._session = ClientSession(spark)
        self._table_path, self._name, self._alias = path, name, None
        self._options = dict(options or {})
        # One plan for all calls: conditions may have columns of it, as in `table.toDF()["id"]`.
        self._scan = self._session.plan("scan", {"table": self._message})

    @classmethod
    def _at_path(cls, spark: SparkSession, path: str, options: dict[str, str]) -> ConnectDeltaTable:
        return cls(spark, path=path, options=options)._checked()

    @classmethod
    def _of_name(cls, spark: SparkSession, name: str) -> ConnectDeltaTable:
        return cls(spark, name=name)._checked()

    @classmethod
    def _is_table(cls, spark: SparkSession, identifier: str) -> bool:
        frame = ClientSession(spark).frame("is_delta_table", {"path": identifier})
        return bool(frame.collect()[0][0])

    @classmethod
    def convertToDelta(  # type: ignore[override]  # the protocol has no other arguments
        cls,
        sparkSession: SparkSession,
        identifier: str,
        partitionSchema: str | StructType | None = None,
        *,
        incremental: bool = False,
        dry_run: bool = False,
    ) -> DeltaTable:
        check_text(identifier, "identifier")
        if incremental or dry_run:
            _refuse("convertToDelta with incremental or dry_run")
        session, body = ClientSession(sparkSession), Message(identifier=identifier)
        if isinstance(partitionSchema, StructType):
            body["partition_schema_struct"] = session.data_type(partitionSchema)
        elif partitionSchema is None or isinstance(partitionSchema, str):
            body["partition_schema_string"] = partitionSchema
        else:
            raise TypeError(
                f"partitionSchema is a text or a StructType, not {type(partitionSchema).__name__}"
            )
        converted = session.result("convert_to_delta", body).collect()[0][0]
        return cls.forName(sparkSession, converted)

    @classmethod
    def _builder(cls, spark: SparkSession | None, mode: str) -> ConnectTableBuilder:
        assert spark is not None

        def open_table(name: str | None, location: str | None) -> DeltaTable:
            if name is None:
                assert location is not None  # one of both is required
                return cls.forPath(spark, location)
            return cls.forName(spark, name)

        return ConnectTableBuilder(spark, mode, open_table)

    def toDF(self) -> DataFrame:
        return self._aliased(self._rows)

    def changes(self, start: ChangeBound, end: ChangeBound | None = None) -> DataFrame:
        if start is None:
            raise ChangeFeedError("DELTA_CDC_READ_NULL_RANGE_BOUNDARY")
        reader = self._spark.read.format("delta").options(**self._options)
        reader = reader.option("readChangeFeed", True)
        for side, bound in (("starting", start), ("ending", end)):
            if bound is not None:
                kind, text = _bound(bound)
                reader = reader.option(f"{side}{kind}", text)
        if self._table_path is not None:
            return self._aliased(reader.load(self._table_path))
        return self._aliased(reader.table(str(self._name)))

    def _delete(self, where: Column | None) -> DataFrame:
        return self._session.result("delete_from_table", self._change(where))

    def _update(self, values: dict[str, Column], where: Column | None) -> DataFrame:
        assignments = assignment_messages(self._session, values)
        body = self._change(where) | {"assignments": assignments}
        return self._session.result("update_table", body)

    def merge(self, source: DataFrame, condition: str | Column) -> ConnectMergeBuilder:
        def run(request: MergeRequest) -> DataFrame:
            message = merge_message(self._session, self._target(), request)
            return self._session.result("merge_into_table", message)

        return ConnectMergeBuilder(merge_request(source, condition, ()), run)

    def optimize(self) -> DeltaOptimizeBuilder:
        return optimize_builder(self._session, self._message)

    def _vacuum(self, request: VacuumRequest) -> DataFrame:
        if request.keep_versions:
            _refuse("vacuum with keepVersions")
        if request.dry_run or request.lite is not None or request.inventory is not None:
            return self._vacuumed(request)
        self._run("vacuum_table", retention_hours=request.retention_hours)
        return self._session.local(self.detail().selectExpr("location AS path"))

    def history(self, limit: int | None = None) -> DataFrame:
        frame = self._session.frame("describe_history", {"table": self._message})
        return frame if limit is None else frame.limit(whole_number(limit, "limit"))

    def detail(self) -> DataFrame:
        return self._session.frame("describe_detail", {"table": self._message})

    def _restored(self, as_of: AsOf) -> DataFrame:
        to = {"version": as_of.version, "timestamp": as_of.timestamp}
        return self._session.result("restore_table", {"table": self._message, **to})

    def generate(self, mode: str) -> None:
        check_text(mode, "mode")
        self._run("generate", mode=mode)

    def upgradeTableProtocol(self, readerVersion: int, writerVersion: int) -> None:
        reader = whole_number(readerVersion, "readerVersion")
        writer = whole_number(writerVersion, "writerVersion")
        self._run("upgrade_table_protocol", reader_version=reader, writer_version=writer)

    def addFeatureSupport(self, featureName: str) -> None:
        check_text(featureName, "featureName")
        self._run("add_feature_support", feature_name=featureName)

    def _drop_feature(self, name: str, truncates: bool | None) -> None:
        self._run("drop_feature_support", feature_name=name, truncate_history=truncates)

    def version(self) -> int:
        return int(self.history(1).collect()[0].version)

    def schema(self) -> StructType:
        return self._rows.schema

    def fileUris(self) -> list[str]:
        return self._rows.inputFiles()

    def _reader(self, columns: Iterable[str] | None, filter: str | None) -> pa.RecordBatchReader:
        rows = self._rows if filter is None else self._rows.where(filter)
        chosen = rows if columns is None else rows.select(*[quoted_path((c,)) for c in columns])
        return chosen.toArrow().to_reader()

    def _clone(
        self,
        as_of: AsOf | None,
        target: str,
        is_shallow: bool,
        replaces: bool,
        properties: dict[str, str],
    ) -> DeltaTable:
        self._run(
            "clone_table",
            target=target,
            version=None if as_of is None else as_of.version,
            timestamp=None if as_of is None else as_of.timestamp,
            is_shallow=is_shallow,
            replace=replaces,
            properties=properties,
        )
        if _ABSOLUTE.match(target):
            return type(self).forPath(self._spark, target)
        return type(self).forName(self._spark, target)

    def _run(self, command: str, **values: object) -> None:
        self._session.run(command, {"table": self._message, **values})

    def _whole_log(self) -> NoReturn:
        """Raise: methods that need the log are for processes that can read it."""
        _refuse("a method that reads or writes the log itself")

    def _log(self) -> NoReturn:
        self._whole_log()

    @property
    def _message(self) -> Message:
        if self._table_path is not None:
            return {"path": {"path": self._table_path, "hadoop_conf": self._options}}
        return {"table_or_view_name": self._name}

    @property
    def _sql_name(self) -> str:
        """The table as SQL writes it."""
        if self._table_path is not None:
            return quoted_path(("delta", self._table_path))
        return str(self._name)

    @property
    def _rows(self) -> DataFrame:
        """All rows.  A frame keeps its columns, so every call has one of its own."""
        return self._session.frame_of(self._scan)

    def _checked(self) -> ConnectDeltaTable:
        """The table itself; raises the server's error if there is none."""
        _ = self._rows.schema
        return self

    def _target(self) -> bytes:
        return self._session.relation(self.toDF())

    def _change(self, where: Column | None) -> Message:
        body: Message = {"target": self._target()}
        if where is not None:
            body["condition"] = self._session.expression(where)
        return body

    def _vacuumed(self, request: VacuumRequest) -> DataFrame:
        """VACUUM as a statement, whose clauses the message lacks."""
        words, view = ["VACUUM", self._sql_name], ""
        if self._options:
            _refuse("vacuum with dryRun, lite or inventory, of a table with hadoopConf")
        if request.lite is not None:
            words.append("LITE" if request.lite else "FULL")
        if request.inventory is not None:
            view = f"inventory_{uuid4().hex}"
            request.inventory.createOrReplaceTempView(view)
            words.append(f"USING INVENTORY {view}")
        if request.retention_hours is not None:
            words.append(f"RETAIN {request.retention_hours} HOURS")
        if request.dry_run:
            words.append("DRY RUN")
        try:
            return self._session.local(self._session.sql(" ".join(words)))
        finally:
            if view:
                self._spark.catalog.dropTempView(view)

    def __repr__(self) -> str:
        place = repr(self._table_path) if self._name is None else f"name={self._name!r}"
        alias = "" if self._alias is None else f", alias={self._alias!r}"
        return f"DeltaTable({place}{alias})"

    def _repr_html_(self) -> str:
        rows: dict[str, object] = {"table": self._sql_name}
        try:
            (found,) = self.detail().collect()
            rows |= {
                "location": found.location,
                "files": found.numFiles,
                "bytes": found.sizeInBytes,
                "partitioned by": ", ".join(found.partitionColumns) or "nothing",
                "columns": ", ".join(
                    f"{f.name} {f.dataType.simpleString()}" for f in self.schema()
                ),
            }
        except PySparkException as error:
            rows["error"] = error
        return html_table("DeltaTable", rows.items())


def has_delta(spark: SparkSession) -> bool:
    """Whether the server of a session of Spark Connect knows Delta's protocol."""
    try:
        ConnectDeltaTable.isDeltaTable(spark, "/")
    except PySparkException as error:
        if error.getCondition() != _UNKNOWN_EXTENSION:
            raise
        return False
    return True


# What Spark raises for an extension that no plugin takes.
_UNKNOWN_EXTENSION = "CONNECT_INVALID_PLAN.NO_HANDLER_FOR_EXTENSION"


def _bound(given: object) -> tuple[str, str]:
    """A bound of a range of changes, as the ending of the option's name and its value."""
    if isinstance(given, datetime):
        if given.utcoffset() is not None:
            return "Timestamp", given.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%fZ")
        return "Timestamp", given.isoformat(sep=" ")
    if isinstance(given, date):
        return "Timestamp", given.isoformat()
    if isinstance(given, str):
        return "Timestamp", given
    if isinstance(given, bool) or not isinstance(given, SupportsIndex):
        raise TypeError(
            f"an end of a range is a version, a text, a datetime or a date, "
            f"not {type(given).__name__}"
        )
    return "Version", str(whole_number(given, "version"))


def _refuse(operation: str) -> NoReturn:
    raise OperationNotAllowedError(
        "DELTA_OPERATION_NOT_ALLOWED", operation=f"In a session of Spark Connect, {operation}"
    )
