"""Writing through the Python data source: checked on the driver, written by workers, one commit.

Spark runs the three parts in different processes: `writer_for` before the job, `write` in every
task, `commit` after the last.  What they share travels with the writer, and the commit is one on
the version that was checked, so what others did meanwhile is found out there.  A job that fails
leaves the table as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType as SparkStructType

from pyspark_delta.errors.table import PropertyError
from pyspark_delta.kernel.log.frames import add_files
from pyspark_delta.kernel.protocol.actions import (
    Action,
    AddFile,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from pyspark_delta.kernel.protocol.column_defaults import default_columns
from pyspark_delta.kernel.protocol.constraints import check_constraints, invariants
from pyspark_delta.kernel.protocol.generated_columns import generated_columns
from pyspark_delta.kernel.protocol.identity_columns import identity_columns
from pyspark_delta.kernel.protocol.operations import write
from pyspark_delta.kernel.protocol.properties import check_universal_formats, validate_properties
from pyspark_delta.kernel.protocol.schema_checks import check_writable as check_writable_schema
from pyspark_delta.kernel.protocol.types import CHAR_VARCHAR_KEY, StructType, walk_fields
from pyspark_delta.kernel.storage.uris import decode_path
from pyspark_delta.kernel.txn.invariants import check_append_only
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.arrow_writer import CODECS, ArrowWriter
from pyspark_delta.spark.commands.write_definition import data_schema, define_table
from pyspark_delta.spark.commands.write_options import WriteOptions
from pyspark_delta.spark.commands.write_request import WriteRequest
from pyspark_delta.spark.datasource import needs_enabling
from pyspark_delta.spark.datasource_options import open_table, table_path
from pyspark_delta.spark.options import DeltaOptions
from pyspark_delta.spark.staged_files import StagedFiles, discard

_NATIVE_OPTIONS = ("replaceWhere", "replaceOn", "replaceUsing")
_HOOK_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What was decided before the job.

    `metadata` and `protocol` are those of the commit; `defines` says that it changes them.
    """

    options: DeltaOptions
    asked: WriteOptions
    overwrite: bool
    location: str
    read_version: int
    metadata: Metadata
    protocol: Protocol
    defines: bool
    is_done: bool


@dataclass(frozen=True)
class WrittenFiles(WriterCommitMessage):
    """What one task wrote."""

    files: tuple[AddFile, ...] = ()


def writer_for(given: Mapping[str, str], schema: SparkStructType, overwrite: bool) -> DeltaWriter:
    """A writer for data of that schema, after everything that can be refused was."""
    options = DeltaOptions(given)
    path = table_path(options)
    _check_options(options)
    asked = WriteOptions.parse(options, _not_set)
    txn = open_table(path, options).start_transaction()
    data = data_schema(schema)
    request = WriteRequest(mode="overwrite" if overwrite else "append", options=options)
    define_table(txn, data, request, asked, replaces_some=False, new_properties=validate_properties)
    check_universal_formats(txn.metadata.configuration)
    check_writable_schema(txn.schema)
    _check_rows_can_be_made(txn.metadata, data)
    if overwrite:
        _removed(txn, asked)
    is_done = asked.txn is not None and txn.txn_version(asked.txn.app_id) >= asked.txn.version
    old = txn.snapshot
    defines = old is None or txn.metadata != old.metadata or txn.protocol != old.protocol
    return DeltaWriter(
        _Plan(
            options=options,
            asked=asked,
            overwrite=overwrite,
            location=txn.log.store.root_uri,
            read_version=txn.read_version,
            metadata=txn.metadata,
            protocol=txn.protocol,
            defines=defines,
            is_done=is_done,
        )
    )


class DeltaWriter(DataSourceArrowWriter):
    """One append or overwrite."""

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:
        """Write the rows of a task into files, which no log names yet."""
        first = next(iterator, None)
        if first is None or self._plan.is_done:
            return WrittenFiles()
        plan, context = self._plan, TaskContext.get()
        writer = ArrowWriter(
            open_table(plan.location, plan.options).store,
            plan.metadata,
            plan.protocol,
            first.schema,
            task=0 if context is None else context.partitionId(),
            options=plan.asked.files,
            data_change=plan.asked.data_change,
        )
        try:
            for batch in chain([first], iterator):
                writer.write(batch)
            return WrittenFiles(tuple(writer.finish()))
        except BaseException:
            writer.discard()
            raise

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make the files of all tasks part of the table, in one version."""
        plan = self._plan
        if plan.is_done:
            return
        log = open_table(plan.location, plan.options)
        read = None if plan.read_version < 0 else log.snapshot_at(version=plan.read_version)
        txn = log.transaction_on(read)
        if plan.defines:
            txn.update_protocol(plan.protocol)
            txn.update_metadata(plan.metadata, replaces_table=_replaces_schema(plan))
        adds = _files(messages)
        with StagedFiles(txn) as staged:
            staged.add(adds)
            removes = _removed(txn, plan.asked) if plan.overwrite else []
            actions: list[Action] = [*removes, *adds]
            if plan.asked.txn is not None:
                app_id, version = plan.asked.txn.app_id, plan.asked.txn.version
                txn.txn_version(app_id)
                once = SetTransaction(app_id=app_id, version=version, last_updated=log.now_ms())
                actions.insert(0, once)
            operation = write(
                "Overwrite" if plan.overwrite else "Append",
                partition_by=(),
                can_overwrite_schema=plan.asked.overwrites_schema if plan.overwrite else None,
                can_merge_schema=plan.asked.merges_schema or None,
                user_metadata=plan.asked.user_metadata,
            )
            staged.offer()
            txn.commit(actions, operation, metrics=_metrics(adds, removes))
        # Spark may end this process as soon as it has the answer.
        log.wait_for_hooks(_HOOK_SECONDS)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Take the files back that tasks wrote before another one failed.

        Spark calls this also after `commit`, which then knows better what can be taken back.
        """
        if any(message is None for message in messages):
            store = open_table(self._plan.location, self._plan.options).store
            discard(store, [decode_path(file.path) for file in _files(messages)])


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[AddFile]:
    return [file for one in messages if isinstance(one, WrittenFiles) for file in one.files]


def _not_set(name: str) -> str | None:
    """A setting of the session, of which a data source sees none."""
    return None


def _check_options(options: DeltaOptions) -> None:
    for name in _NATIVE_OPTIONS:
        if name in options:
            raise needs_enabling(f"The option {name}")
    if options.get("partitionOverwriteMode", "static").lower() == "dynamic":
        raise needs_enabling("A dynamic partition overwrite")
    codec = options.get("compression", "snappy")
    if codec.lower() not in CODECS:
        raise PropertyError(
            "DELTA_ILLEGAL_OPTION",
            name="compression",
            input=codec,
            explain=f"it must be one of {', '.join(CODECS)}",
        )


def _check_rows_can_be_made(metadata: Metadata, data: StructType) -> None:
    """Refuse tables whose rows take Spark's expressions to check or to fill in."""
    schema = metadata.schema
    filled_in = [f for f in default_columns(schema) if data.get(f.name) is None]
    texts = [f for _, f in walk_fields(schema) if CHAR_VARCHAR_KEY in f.metadata]
    needs: tuple[tuple[str, Iterable[object]], ...] = (
        ("CHECK constraints", check_constraints(metadata.configuration)),
        ("column invariants", invariants(schema)),
        ("generated columns", generated_columns(schema)),
        ("identity columns", identity_columns(schema)),
        ("default values that the data lacks", filled_in),
        ("CHAR or VARCHAR columns", texts),
    )
    for what, found in needs:
        if list(found):
            raise needs_enabling(f"A write to a table with {what}")


def _replaces_schema(plan: _Plan) -> bool:
    return plan.read_version >= 0 and plan.overwrite and plan.asked.overwrites_schema is True


def _removed(txn: OptimisticTransaction, asked: WriteOptions) -> list[RemoveFile]:
    now_ms = txn.log.now_ms()
    removes = [
        file.remove(now_ms, data_change=asked.data_change) for file in add_files(txn.filter_files())
    ]
    if txn.snapshot is not None:
        check_append_only(removes, txn.snapshot.metadata, txn.log.store.root_uri)
    return removes


def _metrics(adds: Sequence[AddFile], removes: Sequence[RemoveFile]) -> dict[str, object]:
    return {
        "numFiles": len(adds),
        "numOutputBytes": sum(file.size for file in adds),
        "numOutputRows": sum(file.num_records or 0 for file in adds),
        "numRemovedFiles": len(removes),
        "numRemovedBytes": sum(file.size or 0 for file in removes),
    }
