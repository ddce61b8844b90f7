"""Writes through the Python data source: checks on the driver, files by workers, one commit.

Spark runs the three parts in different processes: `writer_for` before the job, `write` in every
task, `commit` after the last.  The writer carries what they share.  The commit is based on the
version that was checked, so it detects conflicts with commits since then.  A job that fails leaves
the table as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType as SparkStructType

from pyspark_delta.kernel.log.frames.file_actions import add_files
from pyspark_delta.kernel.protocol.actions import Action, AddFile, Metadata, Protocol, RemoveFile
from pyspark_delta.kernel.protocol.column_defaults import default_columns
from pyspark_delta.kernel.protocol.constraints import invariants, table_checks
from pyspark_delta.kernel.protocol.generated_columns import generated_columns
from pyspark_delta.kernel.protocol.identity_columns import identity_columns
from pyspark_delta.kernel.protocol.operations import write as write_operation
from pyspark_delta.kernel.protocol.properties import check_universal_formats, validate_properties
from pyspark_delta.kernel.protocol.schema_checks import check_writable_schema
from pyspark_delta.kernel.protocol.types import CHAR_VARCHAR_KEY, StructType, walk_fields
from pyspark_delta.kernel.storage.uris import decode_path
from pyspark_delta.kernel.txn.invariants import check_append_only
from pyspark_delta.kernel.txn.transaction import OptimisticTransaction
from pyspark_delta.spark.conf.options import DeltaOptions, illegal_option
from pyspark_delta.spark.datasource.arrow_files import CODECS, ArrowWriter
from pyspark_delta.spark.datasource.options import open_table, table_path
from pyspark_delta.spark.datasource.source import needs_enabling
from pyspark_delta.spark.files.stage import StagedFiles, discard
from pyspark_delta.spark.files.write_options import WriteOptions
from pyspark_delta.spark.write.request import WriteRequest
from pyspark_delta.spark.write.schema import data_schema, define_table

_NATIVE_OPTIONS = ("replaceWhere", "replaceOn", "replaceUsing")
_HOOK_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The decisions made before the job.

    `metadata` and `protocol` are for the commit; `defines` means that the commit changes them.
    """

    options: DeltaOptions
    write: WriteOptions
    overwrite: bool
    location: str
    read_version: int
    metadata: Metadata
    protocol: Protocol
    defines: bool
    is_done: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFiles(WriterCommitMessage):
    """The files that one task wrote."""

    files: tuple[AddFile, ...] = ()


def writer_for(given: Mapping[str, str], schema: SparkStructType, overwrite: bool) -> DeltaWriter:
    """A writer for data of that schema, after all checks that need no rows."""
    options = DeltaOptions(given)
    path = table_path(options)
    _check_options(options)
    write = WriteOptions.parse(options, _no_setting)
    txn = open_table(path, options).start_transaction()
    data = data_schema(schema)
    request = WriteRequest(mode="overwrite" if overwrite else "append", options=options)
    define_table(txn, data, request, write, replaces_some=False, new_properties=validate_properties)
    check_universal_formats(txn.metadata.configuration)
    check_writable_schema(txn.schema)
    _check_rows_can_be_made(txn.metadata, data)
    if overwrite:
        _removed(txn, write)
    is_done = write.txn is not None and txn.txn_version(write.txn.app_id) >= write.txn.version
    old = txn.snapshot
    plan = _Plan(
        options=options,
        write=write,
        overwrite=overwrite,
        location=txn.log.store.root_uri,
        read_version=txn.read_version,
        metadata=txn.metadata,
        protocol=txn.protocol,
        defines=old is None or txn.metadata != old.metadata or txn.protocol != old.protocol,
        is_done=is_done,
    )
    return DeltaWriter(plan)


class DeltaWriter(DataSourceArrowWriter):
    """One append or overwrite."""

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:
        """Write the rows of a task into files that no commit refers to yet."""
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
            options=plan.write.files,
            data_change=plan.write.data_change,
        )
        try:
            for batch in chain([first], iterator):
                writer.write(batch)
            return WrittenFiles(files=tuple(writer.finish()))
        except BaseException:
            writer.discard()
            raise

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the files of all tasks as one version."""
        plan = self._plan
        if plan.is_done:
            return
        log = open_table(plan.location, plan.options)
        read = None if plan.read_version < 0 else log.snapshot_at(version=plan.read_version)
        txn = log.transaction_on(read)
        if plan.defines:
            txn.update_protocol(plan.protocol)
            replaces = read is not None and plan.overwrite and plan.write.overwrites_schema is True
            txn.update_metadata(plan.metadata, replaces_table=replaces)
        adds = _files(messages)
        with StagedFiles(txn) as staged:
            staged.add(adds)
            removes = _removed(txn, plan.write) if plan.overwrite else []
            actions: list[Action] = [*removes, *adds]
            if plan.write.txn is not None:
                txn.txn_version(plan.write.txn.app_id)
                actions.insert(0, plan.write.txn.action(log.now_ms()))
            operation = write_operation(
                "Overwrite" if plan.overwrite else "Append",
                partition_by=(),
                can_overwrite_schema=plan.write.overwrites_schema if plan.overwrite else None,
                can_merge_schema=plan.write.merges_schema or None,
                user_metadata=plan.write.user_metadata,
            )
            staged.offer()
            txn.commit(actions, operation, metrics=_metrics(adds, removes))
        # Spark may end this process as soon as it has the result.
        log.wait_for_hooks(_HOOK_SECONDS)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the files that tasks wrote before another task failed.

        Spark also calls this after `commit`, which knows better which files can be deleted.
        """
        if any(message is None for message in messages):
            store = open_table(self._plan.location, self._plan.options).store
            discard(store, [decode_path(file.path) for file in _files(messages)])


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[AddFile]:
    return [file for one in messages if isinstance(one, WrittenFiles) for file in one.files]


def _no_setting(_: str) -> None:
    """Looks up a setting: a data source has no session.  Spark pickles it with the options."""


def _check_options(options: DeltaOptions) -> None:
    for name in _NATIVE_OPTIONS:
        if name in options:
            raise needs_enabling(f"The option {name}")
    if options.get("partitionOverwriteMode", "static").lower() == "dynamic":
        raise needs_enabling("A dynamic partition overwrite")
    codec = options.get("compression", "snappy")
    if codec.lower() not in CODECS:
        raise illegal_option("compression", codec, f"it must be one of {', '.join(CODECS)}")


def _check_rows_can_be_made(metadata: Metadata, data: StructType) -> None:
    """Raise for tables whose rows need Spark's expressions for checks or default values."""
    schema = metadata.schema
    missing = [f for f in default_columns(schema) if data.get(f.name) is None]
    texts = [f for _, f in walk_fields(schema) if CHAR_VARCHAR_KEY in f.metadata]
    needs: tuple[tuple[str, Iterable[object]], ...] = (
        ("CHECK constraints", table_checks(metadata.configuration)),
        ("column invariants", invariants(schema)),
        ("generated columns", generated_columns(schema)),
        ("identity columns", identity_columns(schema)),
        ("default values that the data lacks", missing),
        ("CHAR or VARCHAR columns", texts),
    )
    for label, rules in needs:
        if list(rules):
            raise needs_enabling(f"A write to a table with {label}")


def _removed(txn: OptimisticTransaction, write: WriteOptions) -> list[RemoveFile]:
    now_ms = txn.log.now_ms()
    removes = [
        file.remove(now_ms, data_change=write.data_change) for file in add_files(txn.filter_files())
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
